//! A closed surface cut from a Delaunay triangulation of the Gaussians, as fine as the Gaussians (after Gaussian
//! Opacity Fields, Yu et al. 2024, and Gaussian Wrapping, 2026).

use splat_mesh::Vec3;
use splat_mesh::delaunay::{Want, delaunay};
use splat_mesh::tetrahedra::{Cutting, Labelled, LongEdges, PivotSides, Pivots, cut};

use super::drawn::Pass;
use super::finish::{Extracted, ExtractionFigures};
use super::focus::opaque_rows;
use super::options::TetrahedraOptions;
use super::{DrawnModel, ExtractionError, WorldBox};
use crate::backend::TrainDevice;
use crate::math::Real as _;
use crate::math::field::DensityKernel;
use crate::math::sh::C0;
use crate::math::splat::Shape;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Host memory of a point: position, label, tetrahedra, and edges that the surface crosses.
pub(super) const POINT_BYTES: u64 = 400;

/// Points per Gaussian: the centre and one on each side, since the sign of the normal is not learned.
pub(super) const POINTS_A_GAUSSIAN: usize = 3;

/// Cuts the surface of the opaque Gaussians in a box, in at most `room` of the host's memory.
///
/// A point is outside if at least half of its light reaches any training view that sees the point. If all views were
/// required, regions that are hidden from some view would be solid.
pub fn cut_tetrahedra<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    gaussians: &Gaussians,
    world_box: &WorldBox,
    options: &TetrahedraOptions,
    room: Bytes,
) -> Result<Extracted, ExtractionError> {
    let rows = rows_within(gaussians, world_box);
    let fits = usize::try_from(room.0 / POINT_BYTES).unwrap_or(usize::MAX) / POINTS_A_GAUSSIAN;
    if rows.len() > fits {
        return Err(ExtractionError::TooManyPoints { gaussians: rows.len(), fits });
    }
    let pivots = Pivots::of(rows.iter().map(|&row| flat(gaussians, row)), PivotSides::Both);
    let found = delaunay(&pivots.points, Want::Tetrahedra)?;
    tracing::info!(
        "{} tetrahedra over {} points of {} Gaussians",
        found.tetrahedra.len(),
        pivots.points.len(),
        rows.len()
    );
    let cutting = Cutting::default();
    // One pass labels the points, and each bisection takes one.
    let mut pass = Pass::first("tetrahedra", 1 + cutting.bisections);
    let inside = pivots.labels(drawn.inside(pass, pivots.inner())?);
    let labelled =
        Labelled { points: &pivots.points, tetrahedra: &found.tetrahedra, inside: &inside };
    let long_edges = match options.open {
        true => LongEdges::Drop(options.max_edge),
        false => LongEdges::Keep,
    };
    let cutting = Cutting { long_edges, ..cutting };
    let made = cut(&labelled, &cutting, |places: &[Vec3]| {
        pass = pass.next();
        drawn.inside(pass, places)
    })?;
    let color = |&[inside, _]: &[u32; 2]| {
        // Inside points are no corners of the bounding box.
        rows.get(inside as usize / POINTS_A_GAUSSIAN).map_or([0.0; 3], |&row| color(gaussians, row))
    };
    let mut mesh = made.mesh;
    mesh.colors = made.edge_from_vertex.iter().map(color).collect();
    let figures = ExtractionFigures::Tetrahedra {
        points: pivots.points.len(),
        tetrahedra: found.tetrahedra.len(),
        dropped: made.dropped_faces,
    };
    Ok(Extracted::whole(mesh, figures))
}

/// Returns the rows of the opaque Gaussians in a box with finite shapes.
fn rows_within(gaussians: &Gaussians, world_box: &WorldBox) -> Vec<usize> {
    let is_within = |&row: &usize| {
        let (mean, normal, deviation) = flat(gaussians, row);
        world_box.holds(mean) && deviation.is_finite() && normal.iter().all(|x| x.is_finite())
    };
    opaque_rows(gaussians).into_iter().filter(is_within).collect()
}

/// Returns the centre (world), the shortest axis and the standard deviation along it (world units).
fn flat(gaussians: &Gaussians, row: usize) -> (Vec3, Vec3, f64) {
    let shape = Shape {
        mean_world: std::array::from_fn(|axis| f64::from(gaussians.means[3 * row + axis])),
        log_scale: std::array::from_fn(|axis| f64::from(gaussians.log_scales[3 * row + axis])),
        quat: std::array::from_fn(|part| f64::from(gaussians.quats[4 * row + part])),
        smoothing: 0.0,
    };
    let kernel = DensityKernel::new(&shape, f64::from(gaussians.opacity_logits[row]));
    (kernel.mean_world, kernel.normal(), kernel.thickness())
}

/// Returns the view-independent colour of a Gaussian, sRGB.
fn color(gaussians: &Gaussians, row: usize) -> [f32; 3] {
    let channel = |channel: usize| 0.5 + C0.to_f32() * gaussians.sh_dc[3 * row + channel];
    std::array::from_fn(|c| channel(c).clamp(0.0, 1.0))
}

//! A closed surface through points of the level set: screened Poisson (Kazhdan and Hoppe 2013), as SuGaR
//! meshes (Guédon and Lepetit 2024).

use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use splat_mesh::points::{OrientedPoints, checked, outliers_by_cells, outliers_by_neighbours};
use splat_mesh::poisson::{
    CUBE_FACTOR, Cube, Depth, FEWEST_POINTS, PoissonSettings, Trim, depth_for, reconstruct,
};
use splat_mesh::watch::Watch;

use super::consistency::agreement;
use super::drawn::ALL_VIEWS;
use super::extracted::{Extracted, ExtractionFigures, PoissonFigures, Surface};
use super::fitted::FittedSurface;
use super::free_space::in_free_space;
use super::level_set::{OpaqueGaussians, PointSearch, level_set_points};
use super::options::{Consistency, MeshOptions, Outliers, PoissonOptions};
use super::{DrawnModel, ExtractionError, WorldBox};
use crate::backend::TrainDevice;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Host memory of a brick of 512 nodes of the finest level: five vectors of the solver, a third more for
/// the coarser levels, key and neighbours.
pub(super) const BRICK_BYTES: u64 = 512 * 20 * 4 / 3 + 136;

/// Host memory of a point of the level set: its place, normal and colour, while the lists of all grow.
pub(super) const POINT_BYTES: u64 = 3 * (3 * 12);

/// How much farther out the background reaches than the box.
const BACKGROUND: f64 = 4.0;

/// Nearest points, and deviations of their mean distance, of the reference's outliers.
const OUTLIER_NEIGHBOURS: usize = 20;
const OUTLIER_DEVIATIONS: f64 = 20.0;

/// Levels that the cells by which outliers are told are coarser than the finest.
const OUTLIERS_ABOVE: u32 = 2;

/// The surface through points of the level set within a box, and with [`PoissonOptions::mesh_background`]
/// a second one around it, in at most `room` of the host's memory.
pub fn fit<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    gaussians: &Gaussians,
    world_box: &WorldBox,
    options: &MeshOptions,
    seed: u64,
    room: Bytes,
) -> Result<Extracted, ExtractionError> {
    let consistency = options.consistency();
    let options = &options.poisson;
    let Some(opaque) = OpaqueGaussians::of(gaussians) else {
        return Err(ExtractionError::TooManyGaussians { found: gaussians.len() });
    };
    let wanted = options.surface_points.min(drawn.pixels());
    let fits = room.0 / POINT_BYTES;
    if wanted > fits {
        return Err(ExtractionError::SurfacePoints { wanted, fits });
    }
    let search = PointSearch {
        wanted: options.surface_points,
        level: options.surface_level,
        seed,
        every: ALL_VIEWS,
    };
    let begun = Instant::now();
    let points = level_set_points(drawn, &opaque, &search)?;
    let independent = opaque.len();
    drop(opaque);
    tracing::info!(
        "{} points found where the density is {}, {:.1} s",
        points.len(),
        options.surface_level,
        begun.elapsed().as_secs_f64()
    );
    let (inside, around) = parted(points, world_box, options.mesh_background);
    let mut fitted = vec![surface(inside, independent, options, consistency, room, drawn.told)?];
    if options.mesh_background {
        match surface(around, independent, options, consistency, room, drawn.told) {
            Ok(background) => fitted.push(background),
            Err(error) => tracing::warn!("there is no mesh around the box: {error}"),
        }
    }
    if options.trim() != Trim::Nothing {
        let reach = if options.mesh_background { BACKGROUND } else { 1.0 };
        let free = in_free_space(drawn, &fitted, &world_box.scaled(reach))?;
        fitted = opened(fitted, &free, options)?;
    }
    let (surfaces, figures) =
        fitted.into_iter().map(|FittedSurface { surface, figures, .. }| (surface, figures)).unzip();
    Ok(Extracted { surfaces, figures: ExtractionFigures::Poisson(figures) })
}

/// The surfaces without what no points support. Where nothing is left around the box, there is only the mesh
/// of the box.
fn opened(
    fitted: Vec<FittedSurface>,
    free: &[Vec<bool>],
    options: &PoissonOptions,
) -> Result<Vec<FittedSurface>, ExtractionError> {
    let mut left = Vec::with_capacity(fitted.len());
    for (mut surface, free) in fitted.into_iter().zip(free) {
        match surface.open(free, options) {
            Ok(()) => left.push(surface),
            Err(error) if left.is_empty() => return Err(error),
            Err(error) => tracing::warn!("there is no mesh around the box: {error}"),
        }
    }
    Ok(left)
}

/// The points in a box, and on demand those around it, up to four times as far from its centre.
fn parted(
    mut points: OrientedPoints,
    world_box: &WorldBox,
    with_background: bool,
) -> (OrientedPoints, OrientedPoints) {
    let far = world_box.scaled(BACKGROUND);
    let is_in = |world_box: &WorldBox, place: &[f32; 3]| world_box.holds(place.map(f64::from));
    let near: Vec<bool> = points.places.iter().map(|place| is_in(world_box, place)).collect();
    let mut around = OrientedPoints::default();
    if with_background {
        around = points.clone();
        let keep = near.iter().zip(&around.places).map(|(near, place)| !near && is_in(&far, place));
        let keep: Vec<bool> = keep.collect();
        around.retain(&keep);
    }
    points.retain(&near);
    (points, around)
}

/// The closed surface through some points of `independent` Gaussians.
fn surface(
    mut points: OrientedPoints,
    independent: usize,
    options: &PoissonOptions,
    consistency: Consistency,
    room: Bytes,
    told: &(dyn Fn(&'static str, f64) + Sync),
) -> Result<FittedSurface, ExtractionError> {
    // A point stands for a part of the views.
    let weight = points.len() as f64;
    checked(&mut points, FEWEST_POINTS)?;
    let outliers = drop_outliers(&mut points, options)?;
    let agreement = agreement(&points, independent, consistency)?;
    tracing::info!("{:.0} % of their normals agree with their neighbours'", 100.0 * agreement);
    let stop = AtomicBool::new(false);
    let watch = Watch { stop: &stop, told };
    let settings = PoissonSettings {
        depth: Depth::UpTo(options.poisson_depth),
        bricks: usize::try_from(room.0 / BRICK_BYTES).unwrap_or(usize::MAX),
        ..PoissonSettings::default()
    };
    let begun = Instant::now();
    let made = reconstruct(&points, &settings, &watch)?;
    tracing::info!(
        "surface of {} triangles through {} points, 2^{} cells along its cube, {:.1} s",
        made.mesh.faces.len(),
        points.len(),
        made.depth,
        begun.elapsed().as_secs_f64()
    );
    if made.is_cut {
        tracing::warn!(
            "the surface was not followed to its end, for which --host-limit leaves no memory: it is \
             open there"
        );
    }
    let figures = PoissonFigures {
        points: points.len(),
        outliers,
        agreement,
        depth: made.depth,
        cell: made.cell,
        in_free_space: 0,
        trimmed: 0,
    };
    let surface = Surface { mesh: made.mesh, weight };
    Ok(FittedSurface { surface, densities: made.densities, points: points.places, figures })
}

fn drop_outliers(
    points: &mut OrientedPoints,
    options: &PoissonOptions,
) -> Result<usize, ExtractionError> {
    let keep = match options.outliers {
        Outliers::Keep => return Ok(0),
        Outliers::Knn => {
            let Some(neighbours) = NonZeroUsize::new(OUTLIER_NEIGHBOURS) else { return Ok(0) };
            outliers_by_neighbours(&points.places, neighbours, OUTLIER_DEVIATIONS)
        }
        Outliers::Cells => {
            let Some(cube) = Cube::around(&points.places, CUBE_FACTOR) else { return Ok(0) };
            let depth = depth_for(points, Depth::UpTo(options.poisson_depth))?;
            outliers_by_cells(&points.places, &cube, depth.saturating_sub(OUTLIERS_ABOVE))
        }
    };
    let dropped = points.retain(&keep);
    checked(points, FEWEST_POINTS)?;
    Ok(dropped)
}

//! Points on a level set of the Gaussians' density, found along the rays of training pixels (SuGaR: Guédon and
//! Lepetit 2024, section 4.2).

use std::num::NonZeroUsize;

use kiddo::{ImmutableKdTree, SquaredEuclidean};
use rayon::prelude::*;
use splat_mesh::narrow::{to_f32, to_f32s};
use splat_mesh::points::{OrientedPoints, PointsError, normals_agreement};
use splat_mesh::poisson::FEWEST_POINTS;

use super::focus::opaque_rows;
use super::options::{Consistency, PoissonOptions};
use super::{DrawnModel, ExtractionError};
use crate::backend::{DrawnDepths, PixelDepth, TrainDevice};
use crate::math::field::{DensityKernel, density_of, deviation_along, front, level_point};
use crate::math::linalg::{Vec3, normalize, sub};
use crate::math::random::{RandomStream, RandomUse};
use crate::math::splat::Shape;
use crate::model::Gaussians;
use crate::train::event::Split;

/// Number of nearest Gaussians whose density is summed.
const NEIGHBOURS: usize = 16;

/// Pixels per wanted point in the first view, since not every ray meets the surface.
const PIXELS_A_POINT: f64 = 2.0;

/// Factor on the pixels that would have sufficed in the view before.
const SPARE_PIXELS: f64 = 1.1;

/// Search tree of the opaque Gaussians' centres.
pub(super) struct OpaqueGaussians<'a> {
    gaussians: &'a Gaussians,
    rows: Vec<usize>,
    tree: ImmutableKdTree<f32, 3>,
}

impl<'a> OpaqueGaussians<'a> {
    /// Builds the tree. Fails if the model has more Gaussians than a 32-bit index.
    pub(super) fn of(gaussians: &'a Gaussians) -> Result<Self, ExtractionError> {
        let rows = opaque_rows(gaussians);
        let centres: Vec<[f32; 3]> = rows.iter().map(|&row| centre(gaussians, row)).collect();
        let tree = ImmutableKdTree::new_from_slice(&centres)
            .map_err(|_too_many| ExtractionError::TooManyGaussians { found: gaussians.len() })?;
        Ok(Self { gaussians, rows, tree })
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Collects the kernels of the Gaussians nearest to a point (world space) in `kernels`.
    fn near(&self, place: Vec3<f64>, kernels: &mut Vec<DensityKernel<f32>>) {
        kernels.clear();
        let Some(count) = NonZeroUsize::new(NEIGHBOURS.min(self.rows.len())) else { return };
        let found =
            self.tree.query(&to_f32s(place)).nearest_n::<SquaredEuclidean<f32>>(count).execute();
        kernels.extend(found.iter().map(|near| self.kernel(self.rows[near.item as usize])));
    }

    /// Returns the density at a point, world space. `kernels` is a reused buffer.
    pub(super) fn density(&self, place: Vec3<f64>, kernels: &mut Vec<DensityKernel<f32>>) -> f32 {
        self.near(place, kernels);
        density_of(kernels, &offsets(kernels, place), [0.0; 3])
    }

    fn kernel(&self, row: usize) -> DensityKernel<f32> {
        let Gaussians { log_scales, quats, opacity_logits, .. } = self.gaussians;
        let shape = Shape {
            mean_world: centre(self.gaussians, row),
            log_scale: std::array::from_fn(|axis| log_scales[3 * row + axis]),
            quat: std::array::from_fn(|part| quats[4 * row + part]),
            smoothing: 0.0,
        };
        DensityKernel::new(&shape, opacity_logits[row])
    }
}

/// Returns the offsets of a point (world space) from the centres of the kernels.
fn offsets(kernels: &[DensityKernel<f32>], place: Vec3<f64>) -> Vec<Vec3<f32>> {
    kernels.iter().map(|k| to_f32s(sub(place, k.mean_world.map(f64::from)))).collect()
}

fn centre(gaussians: &Gaussians, row: usize) -> [f32; 3] {
    std::array::from_fn(|axis| gaussians.means[3 * row + axis])
}

/// A point with its normal and colour, world space.
#[derive(Clone, Copy)]
struct SurfacePoint {
    place: [f32; 3],
    normal: [f32; 3],
    color: [f32; 3],
}

pub(super) struct PointSearch {
    pub(super) wanted: u64,
    pub(super) level: f64,
    pub(super) seed: u64,
    /// Step over the training views: every n-th is drawn.
    pub(super) every: usize,
}

/// Finds points on the level set, with an equal share from each drawn view. Maps of a view are freed before the next
/// view is drawn.
pub(super) fn level_set_points<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    opaque: &OpaqueGaussians<'_>,
    &PointSearch { wanted, level, seed, every }: &PointSearch,
) -> Result<OrientedPoints, ExtractionError> {
    let views = drawn.views.split(Split::Train).len().div_ceil(every.max(1)).max(1);
    let a_view = wanted.div_ceil(views as u64);
    let mut points = OrientedPoints::default();
    let (mut number, mut pixels_a_point) = (0, PIXELS_A_POINT);
    drawn.each("finding points", every, PixelDepth::Mean, |view| {
        let stream = |drawn_for| RandomStream::new(seed, number, drawn_for);
        let pixels = PixelSample {
            wanted: pixels_a_point * a_view as f64,
            stream: stream(RandomUse::SurfacePixel),
        };
        let (looked_at, found) = points_on_rays(view, opaque, &pixels, to_f32(level));
        let found_share = found.len() as f64 / looked_at.max(1) as f64;
        pixels_a_point = (SPARE_PIXELS / found_share).clamp(SPARE_PIXELS, 2.0 * PIXELS_A_POINT);
        let share = a_view as f64 / found.len().max(1) as f64;
        let keeps = stream(RandomUse::SurfacePoint);
        let kept = found.iter().zip(0..).filter(|&(_, index)| keeps.uniform(index) < share);
        for (point, _) in kept {
            points.places.push(point.place);
            points.normals.push(point.normal);
            points.colors.push(point.color);
        }
        number += 1;
        Ok(())
    })?;
    Ok(points)
}

struct PixelSample {
    wanted: f64,
    stream: RandomStream,
}

/// Returns the number of sampled pixels and the points on their rays.
fn points_on_rays(
    view: &DrawnDepths,
    opaque: &OpaqueGaussians<'_>,
    pixels: &PixelSample,
    level: f32,
) -> (usize, Vec<SurfacePoint>) {
    let mut seen: Vec<usize> = view.pixels_with_depth().collect();
    let share = pixels.wanted / seen.len().max(1) as f64;
    seen.retain(|&pixel| pixels.stream.uniform(pixel as u64) < share);
    let looked_at = seen.len();
    let eye = view.eye();
    let found = seen
        .into_par_iter()
        .map_init(Vec::new, |kernels, pixel| {
            let place = view.place(pixel);
            opaque.near(place, kernels);
            let from = offsets(kernels, place);
            let direction = to_f32s(normalize(sub(place, eye)));
            let deviation = deviation_along(kernels.get(front(kernels, &from))?, direction);
            let found = level_point(kernels, &from, direction, deviation, level)?;
            let along = found.offset.map(f64::from);
            Some(SurfacePoint {
                place: std::array::from_fn(|axis| to_f32(place[axis] + along[axis])),
                normal: found.normal,
                color: view.color(pixel),
            })
        })
        .flatten()
        .collect();
    (looked_at, found)
}

/// Minimum share of normals that agree with their neighbours on a surface. For random normals towards one camera the
/// share is one half.
const AGREEMENT_MIN: f64 = 0.6;

/// Points and training views of the consistency check.
const CHECKED_POINTS: u64 = 20_000;
const CHECKED_VIEWS: usize = 16;

/// Returns the share of the normals that agree with their neighbours, among points of `independent` Gaussians.
/// Returns an error if the share is too small.
pub(super) fn agreement(
    points: &OrientedPoints,
    independent: usize,
    consistency: Consistency,
) -> Result<f64, PointsError> {
    let needed = match consistency {
        Consistency::Required => AGREEMENT_MIN,
        Consistency::NotRequired => 0.0,
    };
    normals_agreement(&thinned(points, independent), needed)
}

/// Returns an error if the Gaussians have no consistent surface in a sample of the training views. Passes if there
/// are too few points to judge.
pub fn check_consistency<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    gaussians: &Gaussians,
    seed: u64,
) -> Result<(), ExtractionError> {
    let opaque = OpaqueGaussians::of(gaussians)?;
    let views = drawn.views.split(Split::Train).len();
    let search = PointSearch {
        wanted: CHECKED_POINTS,
        level: PoissonOptions::default().surface_level,
        seed,
        every: views.div_ceil(CHECKED_VIEWS),
    };
    let points = level_set_points(drawn, &opaque, &search)?;
    if points.len() >= FEWEST_POINTS {
        agreement(&points, opaque.len(), Consistency::Required)?;
    }
    Ok(())
}

/// Keeps every n-th point, about one per Gaussian: points of one Gaussian always agree.
fn thinned(points: &OrientedPoints, left: usize) -> OrientedPoints {
    let every = points.len().div_ceil(left.max(FEWEST_POINTS)).max(1);
    let column = |rows: &[[f32; 3]]| rows.iter().copied().step_by(every).collect();
    OrientedPoints {
        places: column(&points.places),
        normals: column(&points.normals),
        colors: column(&points.colors),
    }
}

//! Whether Gaussians show a surface at all: of places without order, every method makes a mesh that is none.

use splat_mesh::points::{OrientedPoints, PointsError, normals_agreement};
use splat_mesh::poisson::FEWEST_POINTS;

use super::level_set::{OpaqueGaussians, PointSearch, level_set_points};
use super::options::{Consistency, PoissonOptions};
use super::{DrawnModel, ExtractionError};
use crate::backend::TrainDevice;
use crate::model::Gaussians;
use crate::train::event::Split;

/// Share of the normals that agree with their neighbours' on a surface. Of normals in all directions that
/// one camera can see, half would.
const AGREEMENT_MIN: f64 = 0.6;

/// Points that are looked at, and training views that show them.
const CHECKED_POINTS: u64 = 20_000;
const CHECKED_VIEWS: usize = 16;

/// The share of the normals that agree with their neighbours', of points of `independent` Gaussians; an error
/// where it is too small.
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

/// Refuses Gaussians that show no surface to some of the training views; what shows too few points is not
/// judged.
pub fn check_consistency<B: TrainDevice>(
    drawn: &mut DrawnModel<'_, '_, B>,
    gaussians: &Gaussians,
    seed: u64,
) -> Result<(), ExtractionError> {
    let Some(opaque) = OpaqueGaussians::of(gaussians) else {
        return Err(ExtractionError::TooManyGaussians { found: gaussians.len() });
    };
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

/// Every n-th point, so that about one is left of each Gaussian: those of one Gaussian always agree, of
/// whatever they are points.
fn thinned(points: &OrientedPoints, left: usize) -> OrientedPoints {
    let every = points.len().div_ceil(left.max(FEWEST_POINTS)).max(1);
    let column = |rows: &[[f32; 3]]| rows.iter().copied().step_by(every).collect();
    OrientedPoints {
        places: column(&points.places),
        normals: column(&points.normals),
        colors: column(&points.colors),
    }
}

//! A view of the dataset as the mathematics takes it.

use super::ScreenFilter;
use crate::dataset::View;
use crate::math::Real;
use crate::math::splat::Viewpoint;

/// The view in the precision of the computation, drawn from this depth on (world units) with this
/// filter.
pub(super) fn viewpoint<R: Real>(view: &View, near: f64, filter: ScreenFilter) -> Viewpoint<R> {
    Viewpoint {
        rotation: view.pose.rotation.map(|row| row.map(R::of)),
        translation: view.pose.translation.map(R::of),
        centre_world: view.pose.centre_world().map(R::of),
        focal_px: view.camera.focal_px.map(R::of),
        centre_px: view.camera.centre_px.map(R::of),
        size: [view.camera.width, view.camera.height],
        near: R::of(near),
        variance_px2: R::of(filter.variance_px2),
        compensates: filter.compensates,
    }
}

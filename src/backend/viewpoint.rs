//! Conversion of the dataset's views.

use super::Footprint;
use crate::dataset::View;
use crate::math::Real;
use crate::math::splat::Viewpoint;

/// Converts a view to the precision of the computation. `near` is in world units. The filter of ellipses is part of
/// the result; other footprints have none.
pub(super) fn viewpoint<R: Real>(view: &View, near: f64, footprint: Footprint) -> Viewpoint<R> {
    let (variance_px2, compensates) = match footprint {
        Footprint::Ellipse { variance_px2, compensates } => (variance_px2, compensates),
        Footprint::Surfel | Footprint::Triangle(_) => (0.0, false),
    };
    Viewpoint {
        rotation: view.pose.rotation.map(|row| row.map(R::of)),
        translation: view.pose.translation.map(R::of),
        centre_world: view.pose.centre_world().map(R::of),
        focal_px: view.camera.focal_px.map(R::of),
        centre_px: view.camera.centre_px.map(R::of),
        size: [view.camera.width, view.camera.height],
        near: R::of(near),
        variance_px2: R::of(variance_px2),
        compensates,
    }
}

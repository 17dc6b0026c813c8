//! How much light passes Gaussians on its way from places to a camera.

use super::{DeviceError, RenderSettings, Store};
use crate::dataset::View;
use crate::model::Primitive;

pub use crate::abi::NOT_SEEN;

/// Devices that know how much light passes between places and a camera.
pub trait Transmittances<P: Primitive>: Store<P> {
    /// The transmittance between a view's camera and each place (world units), the Gaussians being
    /// taken in space, without the screen's filter: 1 before all of them, falling along a ray as
    /// [`crate::math::transmittance`] says. Less than 1e-4 may be 0; [`NOT_SEEN`] where the view does
    /// not see the place: outside the image, or not beyond its near depth.
    fn transmittances(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError>;
}

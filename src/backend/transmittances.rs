//! Transmittances between positions and a camera.

use super::{DeviceError, RenderSettings, Store};
use crate::dataset::View;
use crate::model::Primitive;

pub use crate::abi::NOT_SEEN;

/// Devices that compute the transmittances between positions and a camera.
pub trait Transmittances<P: Primitive>: Store<P> {
    /// Computes the transmittance between a view's camera and each position (world units). Gaussians are taken in
    /// space, without the screen's filter: the transmittance is 1 in front of all Gaussians and falls along a ray as
    /// [`crate::math::transmittance`] says. Values below 1e-4 may be 0. The value is [`NOT_SEEN`] outside the image
    /// and up to the view's near depth.
    fn transmittances(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError>;
}

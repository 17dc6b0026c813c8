//! LPIPS of drawn views (Zhang et al. 2018).

use super::frame_state::Shown;
use super::{DeviceError, Render};
use crate::model::Primitive;
use crate::perceptual::{LpipsInput, LpipsWeights};

/// Devices that measure LPIPS.
pub trait Lpips<P: Primitive>: Render<P> {
    /// A network on the device.
    type Net;

    /// Copies a network to the device. Uses only memory that is free, and frees nothing for it.
    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<Self::Net, DeviceError>;

    /// Computes LPIPS of a frame and its photograph. As in [`Render::measure`] the frame is clamped to 0..1, and both
    /// images are multiplied by the mask. Uses memory as [`Self::load_lpips`] does.
    fn lpips(
        &mut self,
        net: &Self::Net,
        frame: &Self::Frame<Shown>,
        target: &Self::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError>;
}

//! Contributions of Gaussians to views and their likeness to the photographs.

use super::{DeviceError, Held, Measured, Render, RenderSettings};
use crate::dataset::View;
use crate::model::Primitive;

/// Contribution of a Gaussian over the counting pixels of views.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Sum of its blend weights.
    pub weight: f32,
    /// Largest of its blend weights.
    pub weight_max: f32,
    /// Change of the squared error, over pixels and channels, if only this Gaussian was left out; for a Gaussian that
    /// is left out, if only this Gaussian was put back. The background stands for what lies behind if less than
    /// 1/1000 of the light passes the Gaussian.
    pub error_change: f32,
    /// Sum, over pixels and channels, of the squared change of the colours (0 to 1) by the same change of the model.
    /// Small for a Gaussian with the colour of its background, whatever its weight.
    pub squared_change: f32,
}

/// Devices that compute the contributions of Gaussians.
pub trait Worths<P: Primitive>: Render<P> {
    /// Sums over views, and the mask of left-out Gaussians.
    type WorthSums: Held;

    /// Creates sums without views. `absent` has an entry for each Gaussian: true if it is left out.
    fn no_worths(
        &mut self,
        model: &Self::Model,
        absent: &[bool],
    ) -> Result<Self::WorthSums, DeviceError>;

    /// Adds the contributions of each Gaussian in a view that is drawn without the left-out ones. Returns the
    /// distances to the photograph. After an error the view is not added.
    fn add_worths(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        target: &Self::Target,
        sums: &mut Self::WorthSums,
    ) -> Result<Measured, DeviceError>;

    /// Reads the contribution of each Gaussian. Waits for the device.
    fn read_worths(&mut self, sums: &Self::WorthSums) -> Result<Vec<Worth>, DeviceError>;
}

pub(crate) fn check_absent(absent: &[bool], len: usize) -> Result<(), DeviceError> {
    if absent.len() == len {
        return Ok(());
    }
    Err(DeviceError::NoSuchRow { row: absent.len().min(len), len })
}

//! What Gaussians add to the likeness of views and photographs.

use super::{DeviceError, Held, Measured, Render, RenderSettings};
use crate::dataset::View;
use crate::model::Primitive;

/// What a Gaussian adds, over the pixels of views that count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Worth {
    /// Sum of its blend weights.
    pub weight: f32,
    /// The largest of them.
    pub weight_max: f32,
    /// By how much the squared error would grow, over pixels and channels, if this one alone were left
    /// out; of one that is left out, if it alone were not. Where less than 1/1000 of the light passes it,
    /// the background is taken for what lies behind.
    pub error_change: f32,
    /// Sum, over pixels and channels, of the square of what would change in the views with that. Colours are
    /// from 0 to 1. It is small, whatever the weight, of one that has the colour of what lies behind it.
    pub squared_change: f32,
}

/// Devices that know what Gaussians are worth.
pub trait Worths<P: Primitive>: Render<P> {
    /// Sums over views, and which Gaussians are left out.
    type WorthSums: Held;

    /// No view yet. As many Gaussians as the model has are left out or not.
    fn no_worths(
        &mut self,
        model: &Self::Model,
        absent: &[bool],
    ) -> Result<Self::WorthSums, DeviceError>;

    /// Adds what each Gaussian is worth in a view that is drawn without those left out; says how much that
    /// looks like its photograph. Where it fails the view is not added.
    fn add_worths(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        target: &Self::Target,
        sums: &mut Self::WorthSums,
    ) -> Result<Measured, DeviceError>;

    /// What each is worth. Waits for the device.
    fn read_worths(&mut self, sums: &Self::WorthSums) -> Result<Vec<Worth>, DeviceError>;
}

/// Fails where it is not said of every row of a model whether it is left out.
pub(crate) fn check_absent(absent: &[bool], len: usize) -> Result<(), DeviceError> {
    if absent.len() == len {
        return Ok(());
    }
    Err(DeviceError::NoSuchRow { row: absent.len().min(len), len })
}

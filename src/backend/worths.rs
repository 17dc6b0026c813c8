//! Views as they are judged: the worth of each Gaussian, LPIPS, depths fused into voxels.

use std::sync::Arc;

use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::frame_state::Shown;
use super::{DeviceError, Held, MaskedView, Measured, Render, RenderSettings};
use crate::dataset::View;
use crate::model::Primitive;
use crate::perceptual::{LpipsInput, LpipsWeights};

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

// LPIPS of drawn views (Zhang et al. 2018).

/// Devices that measure LPIPS.
pub trait Lpips<P: Primitive>: Render<P> {
    /// A network on the device.
    type Net;

    /// Brings a network to the device. Takes memory only where there is some left, and gives nothing
    /// up for it.
    fn load_lpips(&mut self, weights: &LpipsWeights) -> Result<Self::Net, DeviceError>;

    /// LPIPS of a frame and its photograph. As in [`Render::measure`] the frame is clamped to 0..1,
    /// and both images are multiplied by the mask. Takes memory as [`Self::load_lpips`] does.
    fn lpips(
        &mut self,
        net: &Self::Net,
        frame: &Self::Frame<Shown>,
        target: &Self::Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError>;
}

// Fusing the depths of views into voxels.

/// Devices that fuse the depths of views, each in two looks as [`splat_mesh::tsdf`] says.
///
/// Frames are those of a view that was drawn with [`super::Look::MEDIAN`] on black; one without the median
/// depths is [`DeviceError::NoMedianDepths`]. Where a call fails the view is not taken.
pub trait Fuse<P: Primitive>: Render<P> {
    /// Which bricks there are, after the views up to now.
    type BrickSurvey;
    /// Voxels after the views up to now.
    type FusedVoxels;

    /// Before the first look at any view.
    fn new_survey(&mut self, space: Space) -> Result<Self::BrickSurvey, DeviceError>;

    /// The first look at a view: finds the bricks near what it shows.
    fn survey_depths(
        &mut self,
        survey: &mut Self::BrickSurvey,
        frame: &Self::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError>;

    /// What the first looks found. Waits for the device.
    fn read_survey(&mut self, survey: Self::BrickSurvey) -> Result<Survey, DeviceError>;

    /// Before the second look at any view.
    fn new_voxels(
        &mut self,
        bricks: &Arc<SurveyedBricks>,
    ) -> Result<Self::FusedVoxels, DeviceError>;

    /// The second look at a view: takes it into the mean of the voxels in its sight.
    fn fuse_depths(
        &mut self,
        voxels: &mut Self::FusedVoxels,
        frame: &Self::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError>;

    /// What the second looks came to. Waits for the device.
    fn read_voxels(&mut self, voxels: Self::FusedVoxels) -> Result<Fusion, DeviceError>;
}

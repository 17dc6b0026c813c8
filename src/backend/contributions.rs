//! Contributions of Gaussians to views, LPIPS of views, fusion of depths into voxels, and transmittances.

use std::sync::Arc;

use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::error::refused;
use super::render::Shown;
use super::settings::TRANSMITTANCES;
use super::{DeviceError, Held, MaskedView, Measured, Render, RenderSettings, Store};
use crate::dataset::View;
use crate::model::Primitive;
use crate::perceptual::{LpipsInput, LpipsWeights};

/// Contribution of a Gaussian over the counting pixels of views.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Contribution {
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
pub trait Contributions<P: Primitive>: Render<P> {
    /// Sums over views, and the mask of left-out Gaussians.
    type ContributionSums: Held;

    /// Creates sums without views. `absent` has an entry for each Gaussian: true if it is left out.
    fn no_contributions(
        &mut self,
        _model: &Self::Model,
        _absent: &[bool],
    ) -> Result<Self::ContributionSums, DeviceError> {
        refused("worths")
    }

    /// Adds the contributions of each Gaussian in a view that is drawn without the left-out ones. Returns the
    /// distances to the photograph. After an error the view is not added.
    fn add_contributions(
        &mut self,
        _model: &Self::Model,
        _view: &View,
        _settings: &RenderSettings,
        _target: &Self::Target,
        _sums: &mut Self::ContributionSums,
    ) -> Result<Measured, DeviceError> {
        refused("worths")
    }

    /// Reads the contribution of each Gaussian. Waits for the device.
    fn read_contributions(
        &mut self,
        _sums: &Self::ContributionSums,
    ) -> Result<Vec<Contribution>, DeviceError> {
        refused("worths")
    }
}

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

// Fusing the depths of views into voxels.

/// Devices that fuse the depths of views. Each view is passed twice, as [`splat_mesh::tsdf`] says.
///
/// Views are drawn with [`super::RenderRequest::MEDIAN`] on black. A frame without median depths returns
/// [`DeviceError::NoMedianDepths`]. A view is not taken if its call fails.
pub trait Fuse<P: Primitive>: Render<P> {
    /// Bricks that the views so far reach.
    type BrickSurvey;
    /// Voxels with the views so far.
    type FusedVoxels;

    /// Creates a survey without views.
    fn new_survey(&mut self, _space: Space) -> Result<Self::BrickSurvey, DeviceError> {
        refused("fused depths")
    }

    /// Adds the bricks near a view's depths to the survey.
    fn survey_depths(
        &mut self,
        _survey: &mut Self::BrickSurvey,
        _frame: &Self::Frame<Shown>,
        _seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        refused("fused depths")
    }

    /// Reads the survey. Waits for the device.
    fn read_survey(&mut self, _survey: Self::BrickSurvey) -> Result<Survey, DeviceError> {
        refused("fused depths")
    }

    /// Creates the voxels of surveyed bricks, without views.
    fn new_voxels(
        &mut self,
        _bricks: &Arc<SurveyedBricks>,
    ) -> Result<Self::FusedVoxels, DeviceError> {
        refused("fused depths")
    }

    /// Adds a view to the means of the voxels that it shows.
    fn fuse_depths(
        &mut self,
        _voxels: &mut Self::FusedVoxels,
        _frame: &Self::Frame<Shown>,
        _seen: MaskedView<'_>,
    ) -> Result<(), DeviceError> {
        refused("fused depths")
    }

    /// Reads the voxels. Waits for the device.
    fn read_voxels(&mut self, _voxels: Self::FusedVoxels) -> Result<Fusion, DeviceError> {
        refused("fused depths")
    }
}

// Transmittances between positions and a camera.

/// Devices that compute the transmittances between positions and a camera.
pub trait Transmittances<P: Primitive>: Store<P> {
    /// Computes the transmittance between a view's camera and each position (world units). Gaussians are taken in
    /// space, without the screen's filter: the transmittance is 1 in front of all Gaussians and falls along a ray as
    /// [`crate::math::transmittance`] says. Values below 1e-4 may be 0. The value is [`NOT_SEEN`](super::NOT_SEEN)
    /// outside the image and up to the view's near depth.
    fn transmittances(
        &mut self,
        _model: &Self::Model,
        _view: &View,
        _settings: &RenderSettings,
        _places: &[[f32; 3]],
    ) -> Result<Vec<f32>, DeviceError> {
        refused(TRANSMITTANCES)
    }
}

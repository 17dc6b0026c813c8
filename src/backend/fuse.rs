//! Fusing the depths of views into voxels.

use std::sync::Arc;

use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::frame_state::Shown;
use super::{DeviceError, MaskedView, Render};
use crate::model::Primitive;

/// Devices that fuse the depths of views. Each view is passed twice, as [`splat_mesh::tsdf`] says.
///
/// Views are drawn with [`super::Look::MEDIAN`] on black. A frame without median depths returns
/// [`DeviceError::NoMedianDepths`]. A view is not taken if its call fails.
pub trait Fuse<P: Primitive>: Render<P> {
    /// Bricks that the views so far reach.
    type BrickSurvey;
    /// Voxels with the views so far.
    type FusedVoxels;

    /// Creates a survey without views.
    fn new_survey(&mut self, space: Space) -> Result<Self::BrickSurvey, DeviceError>;

    /// Adds the bricks near a view's depths to the survey.
    fn survey_depths(
        &mut self,
        survey: &mut Self::BrickSurvey,
        frame: &Self::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError>;

    /// Reads the survey. Waits for the device.
    fn read_survey(&mut self, survey: Self::BrickSurvey) -> Result<Survey, DeviceError>;

    /// Creates the voxels of surveyed bricks, without views.
    fn new_voxels(
        &mut self,
        bricks: &Arc<SurveyedBricks>,
    ) -> Result<Self::FusedVoxels, DeviceError>;

    /// Adds a view to the means of the voxels that it shows.
    fn fuse_depths(
        &mut self,
        voxels: &mut Self::FusedVoxels,
        frame: &Self::Frame<Shown>,
        seen: MaskedView<'_>,
    ) -> Result<(), DeviceError>;

    /// Reads the voxels. Waits for the device.
    fn read_voxels(&mut self, voxels: Self::FusedVoxels) -> Result<Fusion, DeviceError>;
}

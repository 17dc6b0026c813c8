//! Fusing the depths of views into voxels.

use std::sync::Arc;

use splat_mesh::tsdf::{Fusion, Space, Survey, SurveyedBricks};

use super::frame_state::Shown;
use super::{DeviceError, MaskedView, Render};
use crate::model::Primitive;

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

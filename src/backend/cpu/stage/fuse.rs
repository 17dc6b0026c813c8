//! Stage `fuse`: fuses the depths of views into voxels with [`splat_mesh::tsdf`].

use std::sync::atomic::AtomicBool;

use splat_mesh::Watch;
use splat_mesh::tsdf::{Fusion, FusionError, Survey};

use crate::backend::DrawnDepths;

/// Adds the bricks near the depths of a view.
pub(crate) fn survey(survey: &mut Survey, seen: &DrawnDepths) -> Result<(), FusionError> {
    let stop = AtomicBool::new(false);
    survey.add(&seen.depth_view(), &Watch { stop: &stop, on_progress: &|_, _| {} })
}

/// Averages the depths of a view into the voxels that it sees.
pub(crate) fn fuse(voxels: &mut Fusion, seen: &DrawnDepths) -> Result<(), FusionError> {
    let stop = AtomicBool::new(false);
    voxels.add(&seen.depth_view(), &Watch { stop: &stop, on_progress: &|_, _| {} })
}

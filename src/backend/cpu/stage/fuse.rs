//! Stage `fuse`: the depths of views, fused into voxels as [`splat_mesh::tsdf`] does it.

use std::sync::atomic::AtomicBool;

use splat_mesh::Watch;
use splat_mesh::tsdf::{Fusion, FusionError, Survey};

use crate::backend::DrawnDepths;

/// Finds the bricks near what a view shows.
pub(crate) fn survey(survey: &mut Survey, seen: &DrawnDepths) -> Result<(), FusionError> {
    let stop = AtomicBool::new(false);
    survey.add(&seen.depth_view(), &Watch { stop: &stop, told: &|_, _| {} })
}

/// Takes a view into the mean of the voxels in its sight.
pub(crate) fn fuse(voxels: &mut Fusion, seen: &DrawnDepths) -> Result<(), FusionError> {
    let stop = AtomicBool::new(false);
    voxels.add(&seen.depth_view(), &Watch { stop: &stop, told: &|_, _| {} })
}

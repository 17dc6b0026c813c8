//! All that a run needs of a device.

use super::{Appearance, Bind, Edit, Faces, Filter3d, Fuse, Lpips, Transmittances, Worths};
use crate::model::Gaussians;

/// A device that trains Gaussians.
pub trait TrainDevice:
    Edit<Gaussians>
    + Filter3d
    + Lpips<Gaussians>
    + Appearance<Gaussians>
    + Transmittances<Gaussians>
    + Worths<Gaussians>
    + Fuse<Gaussians>
    + Bind
    + Faces
{
}

impl<D> TrainDevice for D where
    D: Edit<Gaussians>
        + Filter3d
        + Lpips<Gaussians>
        + Appearance<Gaussians>
        + Transmittances<Gaussians>
        + Worths<Gaussians>
        + Fuse<Gaussians>
        + Bind
        + Faces
{
}

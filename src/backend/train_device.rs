//! The device that a training run needs.

use super::{
    Appearance, Bind, Edit, Faces, Filter3d, Fuse, Lpips, Palettes, Ranks, Transmittances, Worths,
};
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
    + Palettes
    + Bind
    + Faces
    + Ranks
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
        + Palettes
        + Bind
        + Faces
        + Ranks
{
}

//! Fusion of depth maps into truncated signed distances on bricks (Curless and Levoy 1996).
//!
//! Depth maps are seen twice, one at a time: a [`Survey`] finds the bricks near what they show, and the
//! [`Fusion`] that comes of it averages distances along the axis of view in them. Unbounded scenes are
//! fused in contracted space (Barron et al. 2022), so that far voxels are larger.

mod directions;
mod error;
mod fuse;
mod space;
mod survey;
#[cfg(test)]
mod tests;
mod view;
mod voxel;

pub use error::FusionError;
pub use fuse::{Fused, Fusion};
pub use space::Space;
pub use survey::Survey;
pub use view::DepthView;

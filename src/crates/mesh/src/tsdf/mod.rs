//! Fusion of depth maps into truncated signed distances on bricks (Curless and Levoy 1996).
//!
//! Depth maps are seen twice, one at a time: a [`Survey`] finds the bricks near what they show, and a
//! [`Fusion`] averages distances along the axis of view in these. Unbounded scenes are
//! fused in contracted space (Barron et al. 2022), so that far voxels are larger. Either look can be had
//! elsewhere, as on a GPU, and its outcome be handed in.

mod bricks;
mod directions;
mod error;
mod fuse;
mod space;
mod survey;
#[cfg(test)]
mod tests;
mod view;
mod voxel;

pub use bricks::SurveyedBricks;
pub use directions::DIRECTIONS;
pub use error::FusionError;
pub use fuse::{Fused, Fusion};
pub use space::{FARTHEST, Space, SpaceKind, TRUNCATION_VOXELS};
pub use survey::{MARGIN, Survey};
pub use view::{DepthView, GRAZING_WEIGHT};
pub use voxel::{DISTANCE_STEPS, LEAST_WEIGHT, MOST_WEIGHT, Voxel};

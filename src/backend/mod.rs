//! Devices that render and train. The trainer uses them only through these traits, whose operations are whole stages.

mod appearance;
mod contributions;
pub mod cpu;
pub mod cuda;
mod device;
mod drawn_depths;
mod edit;
mod error;
mod faces;
pub mod gpu;
mod neighbours;
pub mod nvidia;
mod other_view;
#[cfg(feature = "bench")]
mod profiler;
pub mod ranks;
mod render;
mod rows;
mod settings;

pub use appearance::{AppearanceRule, AppearanceTables, Compensation, TableStep};
pub(crate) use contributions::check_absent;
pub use contributions::{Contribution, Contributions, Fuse, Lpips, Transmittances};
pub use device::{
    Device, DeviceInfo, DeviceMemory, FallbackState, Held, MemoryEntry, MemoryKind, ModelShape,
    Peaks, Photo, Stage, Stay, Store,
};
pub use drawn_depths::{DrawnDepths, MaskedView, PixelDepth, camera_of};
pub(crate) use edit::GradientRule;
pub use edit::{Adjust, Candidates, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule};
pub(crate) use error::unsupported;
pub use error::{Capability, DeviceError, Result};
pub use faces::{Bind, BoundState, BoundStep, FaceStatistics, Faces, Remesh};
pub use neighbours::{Filter3d, NeighbourLists, Neighbours, Palettes};
pub(crate) use other_view::patches;
pub use other_view::{OtherView, seen_from};
#[cfg(feature = "bench")]
pub(crate) use profiler::LANES;
#[cfg(feature = "bench")]
pub use profiler::{CopySpeed, Profiler, RowWords, StageTime, Work};
pub use ranks::{RankOutcome, RankView, Ranks, ViewSetup};
pub(crate) use render::check_inputs;
pub use render::{
    AdamStep, Appearance, Compensated, Drawn, FrameState, Fresh, LossValues, Measured, MotionReach,
    Noise, Objective, Pending, Rates, Reach, Regularisers, Render, Rendered, Scored, Shown,
    Trainable,
};
pub use rows::Snapshot;
pub(crate) use rows::check_rows;
pub use rows::{CHUNK_ROWS, Rows, chunks};
pub(crate) use settings::ColorRoom;
pub use settings::{
    DrawSettings, Extra, Footprint, MOST_SAMPLES, RenderRequest, RenderSettings, Statistics,
    TrainRequest, Window,
};

pub use crate::abi::terms::{At, Inputs, NormalDepths, SampleRule, Term, Terms, Topic, Weighted};
pub use crate::abi::{MOST_NEIGHBOURS, NOT_SEEN};

use crate::model::Gaussians;

/// A device that trains Gaussians.
pub trait TrainDevice:
    Edit<Gaussians>
    + Filter3d
    + Lpips<Gaussians>
    + Appearance<Gaussians>
    + Transmittances<Gaussians>
    + Contributions<Gaussians>
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
        + Contributions<Gaussians>
        + Fuse<Gaussians>
        + Palettes
        + Bind
        + Faces
        + Ranks
{
}

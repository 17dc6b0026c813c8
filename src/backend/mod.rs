//! Devices that render and train. The trainer uses them only through these traits, whose operations are whole stages.

mod abilities;
mod appearance;
pub mod cpu;
pub mod cuda;
mod device;
mod drawn_depths;
mod edit;
mod error;
mod faces;
pub mod frame_state;
pub mod gpu;
mod neighbours;
pub mod nvidia;
#[cfg(feature = "bench")]
mod profiler;
pub mod ranks;
mod render;
mod rows;
mod settings;

pub(crate) use abilities::check_absent;
pub use abilities::{Fuse, Lpips, TrainDevice, Transmittances, Worth, Worths};
pub use appearance::{Appearance, AppearanceRule, AppearanceTables, Compensation, TableStep};
pub use device::{
    Device, DeviceInfo, DeviceMemory, Held, LadderState, MemoryEntry, MemoryKind, ModelShape,
    Peaks, Photo, Stage, Stay, Store,
};
pub use drawn_depths::{DrawnDepths, MaskedView, PixelDepth, camera_of};
pub(crate) use edit::GradientRule;
pub use edit::{Adjust, Candidates, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule};
pub(crate) use error::unsupported;
pub use error::{Capability, DeviceError};
pub use faces::{Bind, BoundState, BoundStep, FaceStatistics, Faces, Remesh};
pub use neighbours::{Filter3d, NeighbourLists, Neighbours, Palettes};
#[cfg(feature = "bench")]
pub(crate) use profiler::LANES;
#[cfg(feature = "bench")]
pub use profiler::{CopySpeed, Profiler, RowWords, StageTime, Work};
pub use ranks::{RankOutcome, RankView, Ranks, Sight};
pub use render::{
    AdamStep, LossValues, Measured, MotionReach, Noise, Objective, OtherView, Pending, Rates,
    Reach, Regularisers, Render, Rendered, seen_from,
};
pub(crate) use render::{check_inputs, patches};
pub use rows::Snapshot;
pub(crate) use rows::check_rows;
pub use rows::{CHUNK_ROWS, Rows, chunks};
pub(crate) use settings::ColorRoom;
pub use settings::{
    Drawing, Extra, Footprint, Look, MOST_SAMPLES, RenderSettings, Statistics, Wants, Window,
};

pub use crate::abi::terms::{At, Inputs, NormalDepths, SampleRule, Term, Terms, Topic, Weighted};
pub use crate::abi::{MOST_NEIGHBOURS, NOT_SEEN};

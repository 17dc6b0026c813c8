//! Devices that render and train. The trainer uses them only through these traits, whose operations are whole stages.

mod appearance;
mod appearance_tables;
pub mod cpu;
pub mod cuda;
mod device;
mod drawn_depths;
mod edit;
mod error;
mod faces;
pub mod frame_state;
pub mod gpu;
mod losses;
mod neighbours;
pub mod nvidia;
mod other_view;
#[cfg(feature = "bench")]
mod profiler;
pub mod ranks;
mod render;
mod rows;
mod rows_version;
mod settings;
mod stage;
mod train_device;
pub mod transmittances;
mod viewpoint;
mod worths;

pub use appearance::Appearance;
pub use appearance_tables::{AppearanceRule, AppearanceTables, Compensation, TableStep};
pub use device::Held;
pub use device::{
    Device, DeviceInfo, DeviceMemory, LadderState, MemoryEntry, MemoryKind, Peaks, Photo, Stay,
};
pub use device::{ModelShape, Store};
pub use drawn_depths::{DrawnDepths, MaskedView, PixelDepth, camera_of};
pub(crate) use edit::GradientRule;
pub use edit::{Adjust, Candidates, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule};
pub use error::Capability;
pub use error::DeviceError;
pub(crate) use error::unsupported;
pub use faces::{Bind, BoundState, BoundStep};
pub use faces::{FaceStatistics, Faces, Remesh};
pub(crate) use losses::check_inputs;
pub use losses::{LossValues, Pending};
pub use neighbours::Filter3d;
pub use neighbours::Palettes;
pub use neighbours::{NeighbourLists, Neighbours};
pub(crate) use other_view::patches;
pub use other_view::{OtherView, seen_from};
#[cfg(feature = "bench")]
pub(crate) use profiler::LANES;
#[cfg(feature = "bench")]
pub use profiler::{CopySpeed, Profiler, RowWords, StageTime, Work};
pub use ranks::{RankOutcome, RankView, Ranks, Sight};
pub use render::{
    AdamStep, Measured, MotionReach, Noise, Objective, Rates, Reach, Regularisers, Render, Rendered,
};
pub use rows::Snapshot;
pub(crate) use rows::check_rows;
pub use rows::{CHUNK_ROWS, Rows, chunks};
pub(crate) use settings::ColorRoom;
pub use settings::{
    Drawing, Extra, Footprint, Look, MOST_SAMPLES, RenderSettings, Statistics, Wants, Window,
};
pub use stage::Stage;
pub use train_device::TrainDevice;
pub use transmittances::Transmittances;
pub use worths::Fuse;
pub use worths::Lpips;
pub(crate) use worths::check_absent;
pub use worths::{Worth, Worths};

pub use crate::abi::MOST_NEIGHBOURS;
pub use crate::abi::terms::{At, Inputs, NormalDepths, SampleRule, Term, Terms, Topic, Weighted};

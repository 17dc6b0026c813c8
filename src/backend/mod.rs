//! Devices that render and train. The trainer uses them only through these traits, whose operations are whole stages.

mod appearance;
mod appearance_tables;
mod bind;
mod capability;
pub mod cpu;
pub mod cuda;
mod device;
mod drawn_depths;
mod edit;
mod error;
mod faces;
mod filter_3d;
pub mod frame_state;
mod fuse;
pub mod gpu;
mod held;
mod losses;
mod lpips;
mod neighbours;
pub mod nvidia;
mod other_view;
mod palettes;
#[cfg(feature = "bench")]
mod profiler;
pub mod ranks;
mod render;
mod rows;
mod rows_version;
mod settings;
mod snapshot;
mod stage;
mod store;
mod train_device;
pub mod transmittances;
mod viewpoint;
mod worths;

pub use appearance::Appearance;
pub use appearance_tables::{AppearanceRule, AppearanceTables, Compensation, TableStep};
pub use bind::{Bind, BoundState, BoundStep};
pub use capability::Capability;
pub(crate) use capability::unsupported;
pub use device::{
    Device, DeviceInfo, DeviceMemory, LadderState, MemoryEntry, MemoryKind, Peaks, Photo, Stay,
};
pub use drawn_depths::{DrawnDepths, MaskedView, PixelDepth, camera_of};
pub(crate) use edit::GradientRule;
pub use edit::{Adjust, Candidates, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule};
pub use error::DeviceError;
pub use faces::{FaceStatistics, Faces, Remesh};
pub use filter_3d::Filter3d;
pub use fuse::Fuse;
pub use held::Held;
pub(crate) use losses::check_inputs;
pub use losses::{LossValues, Pending};
pub use lpips::Lpips;
pub use neighbours::{NeighbourLists, Neighbours};
pub(crate) use other_view::patches;
pub use other_view::{OtherView, seen_from};
pub use palettes::Palettes;
#[cfg(feature = "bench")]
pub(crate) use profiler::LANES;
#[cfg(feature = "bench")]
pub use profiler::{CopySpeed, Profiler, RowWords, StageTime, Work};
pub use ranks::{RankOutcome, RankView, Ranks, Sight};
pub use render::{
    AdamStep, Measured, MotionReach, Noise, Objective, Rates, Reach, Regularisers, Render, Rendered,
};
pub(crate) use rows::check_rows;
pub use rows::{CHUNK_ROWS, Rows, chunks};
pub(crate) use settings::ColorRoom;
pub use settings::{
    Drawing, Extra, Footprint, Look, MOST_SAMPLES, RenderSettings, Statistics, Wants, Window,
};
pub use snapshot::Snapshot;
pub use stage::Stage;
pub use store::{ModelShape, Store};
pub use train_device::TrainDevice;
pub use transmittances::Transmittances;
pub(crate) use worths::check_absent;
pub use worths::{Worth, Worths};

pub use crate::abi::MOST_NEIGHBOURS;
pub use crate::abi::terms::{At, Inputs, NormalDepths, SampleRule, Term, Terms, Topic, Weighted};

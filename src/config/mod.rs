//! Options of a training run: declarations, sources and allowed values.

mod declare;
mod densify;
mod error;
mod no_effect;
mod normalize;
mod options;
mod presets;
mod resolve;
mod run_options;
mod scene;
mod schema;
mod splits;
mod strategy;
mod stretch;
mod sugar;
mod triangles;
mod validate;
mod values;

pub use densify::DensifyOptions;
pub use error::ConfigError;
pub use normalize::{Normalized, normalize_args};
pub use options::{Config, OptimizeOptions};
pub use presets::{preset_for_card, preset_names, preset_text};
pub use resolve::{ConfigLayer, Layers, Typed, is_typed, keys_of_file, resolve};
pub use run_options::{
    DeviceChoice, Fragmentation, MemoryOptions, MetricSet, OutputOptions, RunOptions,
};
pub use scene::SceneOptions;
pub use schema::reference_toml;
pub use splits::{TestList, TrainSample};
pub use strategy::StrategyName;
pub use stretch::{changes_run, follows_iterations, nearest_preset};
pub use sugar::{Regularize, SugarOptions, SugarSchedule};
pub use triangles::{SplitBy, TrianglesOptions};
pub use validate::RESET_OPACITY;
pub use values::{
    Color, Compactness, InitRegion, NormalsFrame, Offload, Offset, PrimitiveName, RegReach,
    ResolutionSchedule, TimeBudget, TrainingBackground, parse_switch, value_name,
};

//! Options of a training run: what they are, where they come from, what they may be.

mod changed;
mod color;
mod compactness;
mod declare;
mod densify;
mod error;
mod idle;
mod implied;
mod no_effect;
mod normalize;
mod normalized;
mod options;
mod presets;
mod primitive;
mod primitive_checks;
mod resolution_schedule;
mod resolve;
mod run_options;
mod scene;
mod schema;
mod splits;
mod stages;
mod strategy;
mod stretch;
mod sugar;
mod sugar_args;
mod switch;
mod time_budget;
mod triangles;
mod validate;
mod values;

pub use color::{Color, ParseColorError};
pub use compactness::Compactness;
pub use densify::DensifyOptions;
pub use error::ConfigError;
pub use normalize::normalize_args;
pub use normalized::Normalized;
pub use options::{Config, OptimizeOptions};
pub use presets::{preset_for_card, preset_names, preset_text};
pub use primitive::PrimitiveName;
pub use resolution_schedule::ResolutionSchedule;
pub use resolve::{ConfigLayer, Layers, Typed, resolve};
pub use run_options::{
    DeviceChoice, Fragmentation, MemoryOptions, MetricSet, OutputOptions, RunOptions,
};
pub use scene::SceneOptions;
pub use schema::default_toml;
pub use splits::{ParseTrainSampleError, TestList, TrainSample};
pub use strategy::StrategyName;
pub use stretch::follows_iterations;
pub use sugar::{Regularize, SugarOptions, SugarSchedule};
pub use switch::parse_switch;
pub use time_budget::{ParseTimeError, TimeBudget};
pub use triangles::{SplitBy, TrianglesOptions};
pub use validate::RESET_OPACITY;

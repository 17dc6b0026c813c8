//! Options of a training run: what they are, where they come from, what they may be.

mod color;
mod error;
mod normalize;
mod options;
mod presets;
mod resolve;
mod schema;
mod strategy;
mod sugar;
mod switch;
mod validate;

pub use color::{Color, ParseColorError};
pub use error::ConfigError;
pub use normalize::{Normalized, normalize_args};
pub use options::{
    Config, DensifyOptions, Device, Fragmentation, MemoryOptions, OptimizeOptions, OutputOptions,
    RunOptions, SceneOptions,
};
pub use presets::{preset_names, preset_text};
pub use resolve::{ConfigLayer, Layers, Typed, resolve};
pub use schema::default_toml;
pub use strategy::Strategy;
pub use sugar::{Regularize, SugarOptions, SugarSchedule};

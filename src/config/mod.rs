//! Options of a training run: what they are, where they come from, what they may be.

mod options;

pub use options::{
    Config, DensifyOptions, Device, MemoryOptions, OptimizeOptions, OutputOptions, RunOptions,
    SceneOptions, parse_switch,
};

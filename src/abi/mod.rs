//! What the host and the kernels must agree on: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here; `kernels/build.rs` includes this module and prints
//! [`header`] to `abi.cuh`, where nvcc asserts every size and offset. So this module uses nothing
//! but the standard library.

#[macro_use]
mod declare;
mod arguments;
mod densify;
mod pack;
pub mod probe;
mod quantile;
mod relocate;
mod reorder;
mod smooth;

pub use arguments::*;
pub use declare::{Abi, Arguments, In, Literal, Named, Out, Plain};
pub use densify::{
    COMPACT_BLOCK, COMPACT_SLICES, ChooseArgs, CompactArgs, DENSIFY_BLOCK, DensityCounts, GrowArgs,
    JudgeArgs, ListArgs, OBSERVE_BLOCK, ObserveArgs, PaddingArgs, ResetArgs, SAMPLE_BLOCK,
    SampleArgs, SurveyArgs, TABLES,
};
pub use pack::{
    FORM_BFLOATS, FORM_FIRSTS, FORM_HALVES, FORM_SECONDS, PACK_BLOCK, PackArgs, UnpackArgs,
};
pub use probe::{PROBE_BLOCK, ProbeArgs};
pub use quantile::{DIGITS, DIGITS_BLOCK, DigitsArgs};
pub use relocate::{CopyArgs, DrawArgs, NO_SOURCE, RELOCATE_BLOCK, ShareArgs, WeighArgs};
pub use reorder::{ColumnsArgs, MortonArgs, REORDER_BLOCK};
pub use smooth::{
    DET_MIN_PX4, ResetSmoothedArgs, SAMPLED_FROM, SAMPLED_MARGIN, SMOOTH_BLOCK, SMOOTH_VIEWS,
    SmoothArgs, SmoothView,
};

/// The text of `abi.cuh`.
pub fn header() -> String {
    [
        "// Printed by kernels/build.rs from src/abi/.\n#pragma once\n\
         #include <cstddef>\n#include <cstdint>\n",
        &constants(),
        &structs(),
        &densify::constants(),
        &densify::structs(),
        &pack::constants(),
        &pack::structs(),
        &quantile::constants(),
        &quantile::structs(),
        &relocate::constants(),
        &relocate::structs(),
        &reorder::constants(),
        &reorder::structs(),
        &smooth::constants(),
        &smooth::structs(),
        &probe::constants(),
        &probe::structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;

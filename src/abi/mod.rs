//! What the host and the kernels must agree on: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here; `kernels/build.rs` includes this module and prints
//! [`header`] to `abi.cuh`, where nvcc asserts every size and offset. So this module uses nothing
//! but the standard library.

#[macro_use]
mod declare;
mod appearance;
mod arguments;
mod densify;
mod pack;
pub mod probe;
mod reorder;

pub use appearance::{
    AFFINE_WIDTH, APPEARANCE_BLOCK, COLOR_SHARES, CoastArgs, ColorBwdArgs, CompensateArgs,
    FIT_SUMS, FitArgs, GRID_BWD_BLOCK, GRID_LUMA, GRID_SHARES, GRID_X, GRID_Y, GatherArgs,
    MoveArgs,
};
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
pub use reorder::{ColumnsArgs, MortonArgs, REORDER_BLOCK};

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
        &reorder::constants(),
        &reorder::structs(),
        &appearance::constants(),
        &appearance::structs(),
        &probe::constants(),
        &probe::structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;

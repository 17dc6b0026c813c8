//! What the host and the kernels must agree on: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here; `kernels/build.rs` includes this module and prints
//! [`header`] to `abi.cuh`, where nvcc asserts every size and offset. So this module uses nothing
//! but the standard library.

#[macro_use]
mod declare;
mod arguments;

pub use arguments::*;
pub use declare::{Abi, Arguments, In, Literal, Named, Out, Plain};

/// The text of `abi.cuh`.
pub fn header() -> String {
    [
        "// Printed by kernels/build.rs from src/abi/.\n#pragma once\n\
         #include <cstddef>\n#include <cstdint>\n",
        &constants(),
        &structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;

//! Interface of host and kernels: constants, and one argument struct per kernel.
//!
//! Everything is declared once, here. `kernels/build.rs` includes this module and prints [`header`] to `abi.cuh`,
//! where nvcc asserts every size and offset. So this module depends only on the standard library.

#[macro_use]
mod declare;
mod adam;
mod blend;
mod densify;
mod fuse;
mod loss;
mod normals;
pub mod probe;
mod project;
mod surface;
pub mod terms;
mod triangles;
mod view;

pub use adam::*;
pub use blend::*;
pub use declare::{Abi, Arguments, In, Literal, Named, Out, Plain};
pub use densify::*;
pub use fuse::*;
pub use loss::*;
pub use normals::*;
pub use probe::{PROBE_BLOCK, ProbeArgs};
pub use project::*;
pub use surface::*;
pub use terms::*;
pub use triangles::*;
pub use view::*;

/// Returns the text of `abi.cuh`.
#[allow(unused_qualifications, reason = "each module has its own `constants` and `structs`")]
pub fn header() -> String {
    [
        "// Printed by kernels/build.rs from src/abi/.\n#pragma once\n\
         #include <cstddef>\n#include <cstdint>\n",
        &view::constants(),
        &view::structs(),
        &terms::constants(),
        &terms::structs(),
        &adam::constants(),
        &adam::structs(),
        &project::constants(),
        &project::structs(),
        &blend::constants(),
        &blend::structs(),
        &loss::constants(),
        &loss::structs(),
        &densify::constants(),
        &densify::structs(),
        &normals::constants(),
        &normals::structs(),
        &triangles::constants(),
        &triangles::structs(),
        &surface::constants(),
        &surface::structs(),
        &fuse::constants(),
        &fuse::structs(),
        &probe::constants(),
        &probe::structs(),
    ]
    .concat()
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macros declare for the product")]
mod tests;

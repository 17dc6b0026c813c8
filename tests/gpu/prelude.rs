//! Imports of nearly every test of this program.
#![allow(unused_imports, reason = "each test uses its part")]

pub(crate) use crate::common::prelude::*;
pub(crate) use crate::support::{
    add_shot, assert_measured_alike, assert_near, assert_step_agrees, assert_sums_agree, beside,
    beside_oracle, changed, clear_shot, counts, gradient_errors, layers, noisy_shot, paired,
    paired_parts, shown, small_gaussians, step_over, stepped, strays, wide,
};
pub(crate) use splat::memory::Bytes;

#[cfg(kernels)]
pub(crate) use crate::common::cuda::{self, alone, compact, full, open_compact};
#[cfg(kernels)]
pub(crate) use splat::backend::cuda::{BandPolicy, Cuda, CudaOptions};

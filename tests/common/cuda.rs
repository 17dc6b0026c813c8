//! The CUDA device under test.

use splat::backend::cuda::{Cuda, CudaOptions};

/// The first device. Who asks for the tests that need one wants to know when there is none.
pub fn open() -> Cuda {
    Cuda::open(&CudaOptions::default()).expect("a CUDA device")
}

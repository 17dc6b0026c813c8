//! The CUDA device under test.

use splat::backend::cuda::Cuda;
use splat::memory::Bytes;

/// Device memory that a test may take: the largest scene here needs 20 GiB.
const BUDGET: Bytes = Bytes(32 << 30);

/// The first device. Who asks for the tests that need one wants to know when there is none.
pub fn open() -> Cuda {
    Cuda::open(BUDGET).expect("a CUDA device")
}

//! What a GPU must know of the balls: their kernels, which the product does not hold.

use splat::backend::Capability;
use splat::backend::cuda::primitive::{PrimitiveKernels, StorageKernels};
use splat::backend::cuda::{Code, CudaPrimitive, KernelName};

use super::isotropic::Balls;

const fn kernel(function: &'static str) -> KernelName {
    let image = include_bytes!(env!("SPLAT_TEST_FATBIN"));
    KernelName { code: Code::Fatbin { source: "tests/gpu/isotropic.cu", image }, function }
}

impl CudaPrimitive for Balls {
    const KERNELS: PrimitiveKernels = PrimitiveKernels {
        full: StorageKernels {
            project: kernel("project_balls"),
            project_extended: kernel("project_balls"),
            expect: None,
            step: kernel("step_balls"),
            step_extended: kernel("step_balls"),
            step_views: Some(kernel("step_balls_views")),
            surfels: None,
            vertices: None,
        },
        half: None,
        compact: None,
    };

    const CAPABILITIES: &'static [Capability] = &[];
}

//! The CUDA device under test. The tests of a program run at once on one GPU: most of them share it,
//! and those that fill its memory or compare the driver's figures have it alone.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use splat::backend::DeviceError;
use splat::backend::cuda::{Cuda, CudaOptions};

static GPU: RwLock<()> = RwLock::new(());

/// What a test has of the GPU. Each test runs on a thread of its own.
enum GpuShare {
    Nothing,
    Share(RwLockReadGuard<'static, ()>),
    All,
}

thread_local! {
    static HELD: RefCell<GpuShare> = const { RefCell::new(GpuShare::Nothing) };
}

/// The first device. Who asks for the tests that need one wants to know when there is none.
pub fn open() -> Cuda {
    open_with(&CudaOptions::default()).expect("a CUDA device")
}

pub fn open_with(options: &CudaOptions) -> Result<Cuda, DeviceError> {
    share();
    Cuda::open(options)
}

/// Waits until no other test has the GPU alone. From here to the test's end, none will.
pub fn share() {
    HELD.with_borrow_mut(|held| {
        if let GpuShare::Nothing = held {
            *held = GpuShare::Share(GPU.read().unwrap_or_else(PoisonError::into_inner));
        }
    });
}

/// The GPU without other tests, until this is dropped.
pub struct Alone(RwLockWriteGuard<'static, ()>);

/// Waits until no other test uses the GPU.
pub fn alone() -> Alone {
    // With the share that this thread may hold, it would wait for itself.
    HELD.set(GpuShare::Nothing);
    let all = GPU.write().unwrap_or_else(PoisonError::into_inner);
    HELD.set(GpuShare::All);
    Alone(all)
}

impl Drop for Alone {
    fn drop(&mut self) {
        HELD.set(GpuShare::Nothing);
    }
}

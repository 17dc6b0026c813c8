//! The CUDA device under test. The tests of a program run at once on one GPU: most of them share it,
//! and those that fill its memory or compare the driver's figures have it alone.
#![allow(clippy::cast_possible_truncation, reason = "sizes of a test are small")]

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use splat::backend::cuda::primitive::{PrimitiveKernels, StorageKernels};
use splat::backend::cuda::{Code, Cuda, CudaOptions, CudaPrimitive, KernelName, Model};
use splat::backend::{Capability, DeviceError, Snapshot};
use splat::dataset::View;
use splat::memory::plan::Storage;
use splat::model::{Gaussians, Primitive};

use super::Draws;
use super::isotropic::Balls;
use super::oracle::settings;
use super::prelude::*;
use super::scene::{in_training, rows, tame_gaussians};

static GPU: RwLock<()> = RwLock::new(());

/// A test's share of the GPU. Each test runs on a thread of its own.
enum GpuShare {
    Nothing,
    Share(RwLockReadGuard<'static, ()>),
    All,
}

thread_local! {
    static HELD: RefCell<GpuShare> = const { RefCell::new(GpuShare::Nothing) };
}

/// Opens the first device. Fails without one: whoever runs these tests wants to know.
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

// Compact models and what is compared of them.

pub fn open_compact(storage: Storage) -> Cuda {
    let options = CudaOptions { storage, seed: 11, ..CudaOptions::default() };
    open_with(&options).expect("a CUDA device")
}

pub fn compact() -> Cuda {
    open_compact(Storage::Compact)
}

pub fn full() -> Cuda {
    open_compact(Storage::Full)
}

pub fn snapshot(device: &mut Cuda, model: &mut Model) -> Snapshot<Gaussians> {
    device.snapshot(model).unwrap()
}

/// Values and moments of a Gaussian in training, of sizes that differ by orders of magnitude.
pub fn uneven(count: usize, sh_degree: u32, seed: u64) -> Snapshot<Gaussians> {
    let mut start = in_training(tame_gaussians(count, seed, sh_degree), seed);
    let mut draws = Draws::new(seed + 1);
    let mut sized = |least: f64| {
        let sign = if draws.uniform(0.0, 1.0) < 0.5 { -1.0 } else { 1.0 };
        (sign * 10.0_f64.powf(draws.uniform(least, 0.0))) as f32
    };
    let second = &mut start.second_moments;
    second.groups_mut().into_iter().flatten().for_each(|value| *value = sized(-9.0).abs());
    let first = &mut start.first_moments;
    first.groups_mut().into_iter().flatten().for_each(|value| *value = sized(-5.0));
    start
}

/// Returns a snapshot as a compact model holds it, so that its words hold the values exactly.
pub fn held(start: &Snapshot<Gaussians>) -> Snapshot<Gaussians> {
    let mut device = compact();
    let mut model = device.restore(start.clone()).unwrap();
    snapshot(&mut device, &mut model)
}

pub fn assert_same_rows(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>, what: &str) {
    let (found, expected) = (rows(found), rows(expected));
    assert_eq!(found.len(), expected.len(), "{what}");
    for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{what}: row {row}");
    }
}

/// SH of the parameters or moments, those of a Gaussian one behind the other.
pub fn colors(part: &Gaussians) -> Vec<Vec<f32>> {
    let width = part.sh_rest.len() / part.len().max(1);
    (0..part.len())
        .map(|row| [&part.sh_dc[row * 3..][..3], &part.sh_rest[row * width..][..width]].concat())
        .collect()
}

/// Distance of neighbours in half precision.
pub fn half_step(value: f32) -> f32 {
    (value.abs() * 2.0_f32.powi(-10)).max(2.0_f32.powi(-24))
}

pub fn image(device: &mut Cuda, model: &Model, view: &View) -> Vec<f32> {
    let draw_settings = DrawSettings { pass: Pass::Eval, ..settings(3, 8) };
    let frame = device.show(model, view, &draw_settings).unwrap();
    device.image(&frame).unwrap().rgb
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

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

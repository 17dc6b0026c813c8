//! Compact models and what is compared of them.
#![allow(clippy::cast_possible_truncation, reason = "sizes of a test are small")]

use super::prelude::*;
use splat::backend::Snapshot;
use splat::backend::cuda::{Cuda, CudaOptions, Model};
use splat::dataset::View;
use splat::memory::plan::Storage;
use splat::model::{Gaussians, Primitive};

use super::oracle::settings;
use super::scene::{in_training, rows, tame_gaussians};
use super::{Draws, cuda};

pub fn open(storage: Storage) -> Cuda {
    cuda::open_with(&CudaOptions { storage, seed: 11, ..CudaOptions::default() })
        .expect("a CUDA device")
}

pub fn compact() -> Cuda {
    open(Storage::Compact)
}

pub fn full() -> Cuda {
    open(Storage::Full)
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

/// What a compact model makes of a snapshot: values that its words hold exactly.
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
    let look = Drawing { pass: Pass::Eval, ..settings(3, 8) };
    let frame = device.show(model, view, &look).unwrap();
    device.image(&frame).unwrap().rgb
}

pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

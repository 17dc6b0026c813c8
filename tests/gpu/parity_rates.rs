//! Learning rates of centres that follow sizes, on every backend, against what they are by definition.

use crate::common::oracle::{Counted, Shot, settings, shot};
use crate::common::prelude::*;
use crate::common::scene::{RATES, tame_gaussians};
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{AdamStep, Snapshot, TrainDevice};
use splat::math::adam::RateBySize;
use splat::memory::plan::Storage;
use splat::model::Gaussians;

each_backend!(
    first_steps_of_centres_are_as_long_as_their_sizes_say,
    steps_of_two_views_follow_sizes_as_well,
    without_an_exponent_all_centres_go_as_far,
);

const BY_SIZE: RateBySize = RateBySize { exponent: 0.5, unit: 0.05 };

/// The model after a first step down the gradients of these views.
fn stepped<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
    by_size: Option<RateBySize>,
) -> Snapshot<Gaussians> {
    let mut model = device.upload(gaussians).unwrap();
    let mut sums = Default::default();
    for shot in shots {
        let target = device.target(shot.index, &shot.photo).unwrap();
        let drawing = (&shot.view, &shot.settings);
        device.add_view(&mut model, drawing, (&target, &shot.terms), &mut sums).unwrap();
    }
    device.step(&mut model, sums, &AdamStep { by_size, ..AdamStep::new(1, RATES) }).unwrap();
    device.snapshot(&mut model).unwrap()
}

/// How far a first step moves a coordinate that has a gradient: by the learning rate of its row.
fn assert_lengths<B: TrainDevice>(device: &mut B, views: u64, by_size: Option<RateBySize>) {
    let mut gaussians = tame_gaussians(300, 61, 3);
    // The largest are twenty times as large as the smallest.
    for (row, scales) in gaussians.log_scales.chunks_mut(3).enumerate() {
        let more = 0.01 * (row as f32 - 150.0);
        scales.iter_mut().for_each(|scale| *scale += more);
    }
    let shots: Vec<Shot> = (0..views)
        .map(|at| shot(&gaussians, &view(), settings(3, 62 + at), (62 + at, Counted::Clear)))
        .collect();
    let after = stepped(device, &gaussians, &shots, by_size);
    let firsts = &after.first_moments.means;
    let largest = firsts.iter().fold(0.0_f32, |most, first| most.max(first.abs()));
    let (mut moved, mut factors) = (0, Vec::new());
    for (at, first) in firsts.iter().enumerate() {
        // The root of a tiny gradient's square may vanish.
        if first.abs() < 1e-6 * largest {
            continue;
        }
        let row = at / 3;
        let scales: [f32; 3] = std::array::from_fn(|k| gaussians.log_scales[3 * row + k]);
        let factor = by_size.map_or(1.0, |by_size| by_size.factor(scales.map(f64::from)));
        let length = f64::from(after.parameters.means[at]) - f64::from(gaussians.means[at]);
        let expected = RATES.means * factor;
        // Roots, quotients and powers of single precision, and the rounding of a coordinate up to 4.
        assert!(
            (length.abs() - expected).abs() <= 1e-5 * expected + 5e-7,
            "row {row}: {length:e} instead of {expected:e}"
        );
        moved += 1;
        factors.push(factor);
    }
    assert!(moved > 60, "only {moved} coordinates have moved");
    let range = factors
        .iter()
        .fold([f64::INFINITY, 0.0_f64], |[low, high], &factor| [low.min(factor), high.max(factor)]);
    assert!(by_size.is_none() || range[1] > 3.0 * range[0], "{range:?}");
}

/// Geometry is in single precision in any storage.
fn stored_models_follow_sizes<B: TrainDevice>(open: impl Fn(Storage) -> B) {
    for storage in [Storage::HalfColors, Storage::Compact] {
        for views in [1, 2] {
            assert_lengths(&mut open(storage), views, Some(BY_SIZE));
        }
    }
}

#[test]
fn compact_models_follow_sizes_on_the_processor() {
    stored_models_follow_sizes(|storage| Cpu::<f32>::with_storage(storage, 5));
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn compact_models_follow_sizes_on_a_gpu() {
    stored_models_follow_sizes(crate::common::compact::open);
}

fn first_steps_of_centres_are_as_long_as_their_sizes_say<B: TrainDevice>(device: &mut B) {
    assert_lengths(device, 1, Some(BY_SIZE));
}

fn steps_of_two_views_follow_sizes_as_well<B: TrainDevice>(device: &mut B) {
    assert_lengths(device, 2, Some(BY_SIZE));
}

fn without_an_exponent_all_centres_go_as_far<B: TrainDevice>(device: &mut B) {
    assert_lengths(device, 1, None);
}

//! Density control as a Markov chain: every device draws the Gaussians that the CPU backend draws in
//! double precision, and makes the same of them.

use crate::common::density::{RelocateRule, multiply, relocate};
use crate::common::oracle::{Counted, Shot, settings, shot, step};
#[cfg(kernels)]
use crate::common::prelude::*;
use crate::common::scene::{RATES, in_training, tame_gaussians};
use crate::common::{Draws, view};
use splat::backend::cpu::Cpu;
use splat::backend::{DeviceError, Snapshot, TrainDevice};
use splat::math::{Real, inverse_sigmoid, sigmoid};
use splat::model::{Gaussians, Primitive};

each_backend!(
    the_dead_move_to_the_same_gaussians,
    the_same_gaussians_get_copies,
    nothing_happens_to_a_model_without_gaussians_or_without_living_ones,
    rounds_follow_each_other_with_steps_between,
);

const RULE: RelocateRule = RelocateRule { opacity_min: 0.005, seed: 23, iteration: 700 };

/// Gaussians in training, of which such a share is dead.
fn start(count: usize, dead: f64) -> Snapshot<Gaussians> {
    let mut gaussians = tame_gaussians(count, 31, 3);
    let mut draws = Draws::new(9);
    for logit in &mut gaussians.opacity_logits {
        if draws.uniform(0.0, 1.0) < dead {
            *logit = inverse_sigmoid(draws.uniform(0.0001, 0.0049).to_f32());
        }
    }
    in_training(gaussians, 32)
}

fn is_dead(snapshot: &Snapshot<Gaussians>, row: usize) -> bool {
    sigmoid(f64::from(snapshot.parameters.opacity_logits[row])) <= RULE.opacity_min
}

/// All rows alike: shares within the rounding of double to single precision, everything else, which
/// is copied or stays, bit for bit.
fn assert_same(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>, what: &str) {
    let parts = |s: &Snapshot<Gaussians>| {
        [s.parameters.clone(), s.first_moments.clone(), s.second_moments.clone()]
    };
    for (part, (found, expected)) in parts(found).iter().zip(&parts(expected)).enumerate() {
        for (found, expected) in found.groups().iter().zip(expected.groups()) {
            assert_eq!(found.values.len(), expected.values.len(), "{what}: {}", found.name);
            let shared = part == 0 && ["opacity_logits", "log_scales"].contains(&found.name);
            for (i, (&a, &b)) in found.values.iter().zip(expected.values).enumerate() {
                let rounding = if shared { 1e-6 * b.abs().max(1.0) } else { 0.0 };
                let row = i / found.width;
                assert!(
                    (a - b).abs() <= rounding,
                    "{what}: {} of Gaussian {row}, part {part}: {a} instead of {b}",
                    found.name
                );
            }
        }
    }
    assert_eq!(found.views_seen, expected.views_seen, "{what}");
    assert_eq!(found.gradient_norm_sums, expected.gradient_norm_sums, "{what}");
}

/// What a round leaves of a snapshot, and what it says.
fn after<B: TrainDevice, T>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
    round: impl FnOnce(&mut B, &mut B::Model) -> Result<T, DeviceError>,
) -> (T, Snapshot<Gaussians>) {
    let mut model = device.restore(start.clone()).unwrap();
    let said = round(device, &mut model).unwrap();
    (said, device.snapshot(&mut model).unwrap())
}

fn the_dead_move_to_the_same_gaussians<B: TrainDevice>(device: &mut B) {
    // One that is alive, one that is dead, whole lane blocks and broken ones, and several thread blocks.
    for (count, share) in
        [(1, 0.0), (1, 1.0), (31, 0.5), (32, 0.5), (33, 0.1), (203, 0.3), (1021, 0.95)]
    {
        let start = start(count, share);
        let dead = (0..count).filter(|&row| is_dead(&start, row)).count();
        let (moved, found) = after(device, &start, |device, model| relocate(device, model, &RULE));
        let (expected_moved, expected) =
            after(&mut Cpu::<f64>::new(), &start, |device, model| relocate(device, model, &RULE));
        assert_eq!(moved, expected_moved, "{count} {share}");
        assert_eq!(moved, if dead == count { 0 } else { dead }, "{count} {share}");
        assert_same(&found, &expected, &format!("{count} Gaussians, {dead} dead"));
        assert!(moved == 0 || (0..count).all(|row| !is_dead(&found, row)), "{count} {share}");
    }
}

fn the_same_gaussians_get_copies<B: TrainDevice>(device: &mut B) {
    for (count, births) in [(1, 1), (1, 100), (31, 2), (32, 1), (203, 11), (203, 500), (1021, 51)] {
        let start = start(count, 0.2);
        let (_, found) =
            after(device, &start, |device, model| multiply(device, model, &RULE, births));
        let (_, expected) = after(&mut Cpu::<f64>::new(), &start, |device, model| {
            multiply(device, model, &RULE, births)
        });
        assert_eq!(found.parameters.len(), count + births);
        assert_same(&found, &expected, &format!("{count} Gaussians, {births} births"));
        assert_eq!(found.first_moments.rows(0..count), start.first_moments);
        assert!(found.second_moments.rows(count..count + births).means.iter().all(|&m| m == 0.0));
    }
}

fn nothing_happens_to_a_model_without_gaussians_or_without_living_ones<B: TrainDevice>(
    device: &mut B,
) {
    let nothing = in_training(Gaussians::zeros(3, 0), 1);
    let mut gone = start(40, 0.0);
    gone.parameters.opacity_logits.fill(-30.0);
    for start in [nothing, gone] {
        let (moved, found) = after(device, &start, |device, model| relocate(device, model, &RULE));
        assert_eq!(moved, 0);
        assert_same(&found, &start, "nothing to draw");
        let (_, found) = after(device, &start, |device, model| multiply(device, model, &RULE, 7));
        assert_same(&found, &start, "nothing to draw");
    }
    let start = start(40, 0.5);
    let (_, found) = after(device, &start, |device, model| multiply(device, model, &RULE, 0));
    assert_same(&found, &start, "no births");
}

fn rounds_follow_each_other_with_steps_between<B: TrainDevice>(device: &mut B) {
    let start = start(203, 0.3);
    let shots: Vec<Shot> = (0..3)
        .map(|i| {
            let seed = (60 + i, Counted::Clear);
            shot(&start.parameters, &view(), settings(3, 5), seed)
        })
        .collect();
    let mut model = device.restore(start).unwrap();
    let mut number = 1;
    for round in 1..=4_u32 {
        let rule = RelocateRule { iteration: 100 * round, ..RULE };
        relocate(device, &mut model, &rule).unwrap();
        multiply(device, &mut model, &rule, 37).unwrap();
        for shot in &shots {
            let loss = step(device, &mut model, shot, (number, RATES));
            assert!(loss.total.is_finite());
            number += 1;
        }
    }
    let count = 203 + 4 * 37;
    assert_eq!(device.len(&model), count);
    let after = device.snapshot(&mut model).unwrap();
    for (group, moments) in after.parameters.groups().iter().zip(after.second_moments.groups()) {
        assert_eq!(group.values.len(), count * group.width);
        assert!(group.values.iter().chain(moments.values).all(|value| value.is_finite()));
    }
}

#[cfg(kernels)]
mod compact {
    use super::*;
    use crate::common::compact::{compact, held, snapshot, uneven};

    #[test]
    #[ignore = "needs a CUDA device"]
    fn compact_models_move_and_copy_words_as_they_are() {
        let mut start = uneven(333, 3, 41);
        for logit in start.parameters.opacity_logits.iter_mut().step_by(3) {
            *logit = -7.0;
        }
        let start = held(&start);
        let mut device = compact();
        let mut model = device.restore(start.clone()).unwrap();
        let moved = relocate(&mut device, &mut model, &RULE).unwrap();
        let (expected_moved, expected) =
            after(&mut Cpu::<f32>::new(), &start, |device, model| relocate(device, model, &RULE));
        assert_eq!(moved, expected_moved);
        assert_same(&snapshot(&mut device, &mut model), &expected, "moved");
        multiply(&mut device, &mut model, &RULE, 70).unwrap();
        let (_, expected) = after(&mut Cpu::<f32>::new(), &expected, |device, model| {
            multiply(device, model, &RULE, 70)
        });
        assert_same(&snapshot(&mut device, &mut model), &expected, "copied");
    }
}

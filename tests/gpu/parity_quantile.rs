//! The criterion of GOF: every device finds the same quantile, and the same candidates by it.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use crate::common::Draws;
use crate::common::density::{DensifyRule, densify, score};
use crate::common::scene::{in_training, tame_gaussians};
use splat::backend::cpu::Cpu;
use splat::backend::{Candidates, Edited, Snapshot, TrainDevice};
use splat::math::Real;
use splat::model::Gaussians;

each_backend!(
    candidates_are_those_that_a_sort_finds,
    gradients_of_zero_are_no_candidates_where_the_quantile_is_zero,
    where_not_all_may_grow_the_highest_in_units_of_their_bars_come_first,
    statistics_that_were_never_gathered_leave_the_gradient_alone,
);

const RULE: DensifyRule = DensifyRule {
    gradient_min: 0.5,
    small_max: 0.05,
    opacity_min: 0.0,
    scale_max: None,
    seed: 3,
    iteration: 600,
    with_quantile: true,
};

/// Gaussians of which such a share was seen, with gradients from 0 to 1 of which few are high.
fn start(count: usize, seen: f64) -> Snapshot<Gaussians> {
    let mut start = in_training(tame_gaussians(count, 5, 0), 6);
    let mut draws = Draws::new(count as u64);
    start.absolute_norm_sums = vec![0.0; count];
    for row in 0..count {
        start.views_seen[row] = draws.uniform(1.0, 40.0) as u32;
        let views = f64::from(start.views_seen[row]);
        let mut sum = |power: f64| (views * draws.uniform(0.0, 1.0).powf(power)).to_f32();
        start.gradient_norm_sums[row] = sum(5.0);
        start.absolute_norm_sums[row] = sum(3.0);
        if draws.uniform(0.0, 1.0) >= seen {
            start.views_seen[row] = 0;
            start.gradient_norm_sums[row] = 0.0;
            start.absolute_norm_sums[row] = 0.0;
        }
    }
    start
}

fn means(sums: &[f32], views: &[u32]) -> Vec<f32> {
    sums.iter().zip(views).map(|(sum, &views)| sum / views.max(1) as f32).collect()
}

/// Candidates by the definition: a sort, and linear interpolation between two of its values.
fn candidates(start: &Snapshot<Gaussians>, rule: &DensifyRule) -> usize {
    let gradients = means(&start.gradient_norm_sums, &start.views_seen);
    let absolute = means(&start.absolute_norm_sums, &start.views_seen);
    let bar = rule.gradient_min as f32;
    let above = gradients.iter().filter(|&&gradient| gradient >= bar).count();
    let mut sorted = absolute.clone();
    sorted.sort_by(f32::total_cmp);
    let last = sorted.len() - 1;
    let place = last as f64 * (1.0 - above as f64 / sorted.len() as f64);
    let [low, high] = [place.floor(), place.ceil()].map(|at| f64::from(sorted[at as usize]));
    let quantile = (low + (high - low) * place.fract()) as f32;
    let wanted = |&(&g, &a): &(&f32, &f32)| g >= bar || (a > 0.0 && a >= quantile);
    gradients.iter().zip(&absolute).filter(wanted).count()
}

fn survey<B: TrainDevice>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
    rule: &DensifyRule,
) -> Candidates {
    let model = device.restore(start.clone()).unwrap();
    score(device, &model, rule)
}

/// The same but for the rounding of a mean in single precision, half a unit of 2⁻²³.
fn assert_alike(found: Candidates, expected: Candidates) {
    let known = |c: Candidates| c.absolute_min.unwrap();
    let error = (known(found) / known(expected) - 1.0).abs();
    assert!(error <= f64::from(f32::EPSILON), "{found:?} {expected:?}");
    let absolute_min = expected.absolute_min;
    assert_eq!(Candidates { absolute_min, ..found }, expected);
}

fn candidates_are_those_that_a_sort_finds<B: TrainDevice>(device: &mut B) {
    for count in [1, 2, 33, 1021, 70_001, 1_000_003] {
        let start = start(count, 0.8);
        let bars = if count > 1_000_000 { &[0.5][..] } else { &[0.9, 0.5, 0.01] };
        for &gradient_min in bars {
            let rule = DensifyRule { gradient_min, ..RULE };
            let found = survey(device, &start, &rule);
            assert_eq!(found.count(), candidates(&start, &rule), "{count} at {gradient_min}");
            assert_alike(found, survey(&mut Cpu::<f32>::new(), &start, &rule));
        }
        let plain = DensifyRule { with_quantile: false, ..RULE };
        let more = survey(device, &start, &RULE).count() > survey(device, &start, &plain).count();
        assert!(more || count < 1000, "absolute gradients bring candidates");
    }
}

fn gradients_of_zero_are_no_candidates_where_the_quantile_is_zero<B: TrainDevice>(device: &mut B) {
    let mut start = start(1000, 0.3);
    // More reach the bar than have an absolute gradient at all.
    for row in 0..500 {
        start.gradient_norm_sums[row] = 40.0;
        start.absolute_norm_sums[row] = if row < 100 { 1e-30 } else { 0.0 };
    }
    start.absolute_norm_sums[500..].fill(0.0);
    start.absolute_norm_sums[998] = 1e-38;
    let found = survey(device, &start, &RULE).count();
    assert_eq!(found, candidates(&start, &RULE));
    let gradients = means(&start.gradient_norm_sums, &start.views_seen);
    let by_gradient = gradients.iter().filter(|&&gradient| gradient >= 0.5).count();
    assert!(found <= by_gradient + 1, "{found} of which {by_gradient} by their gradients");
}

fn round<B: TrainDevice>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
    births: usize,
) -> (Edited, Snapshot<Gaussians>) {
    let mut model = device.restore(start.clone()).unwrap();
    let done = densify(device, &mut model, &RULE, births).unwrap();
    (done, device.snapshot(&mut model).unwrap())
}

fn where_not_all_may_grow_the_highest_in_units_of_their_bars_come_first<B: TrainDevice>(
    device: &mut B,
) {
    let start = start(1021, 0.9);
    for births in [0, 1, 60, usize::MAX] {
        let (done, after) = round(device, &start, births);
        let (expected_done, expected) = round(&mut Cpu::<f32>::new(), &start, births);
        assert_eq!(done, expected_done);
        assert_eq!(done.copied + done.split, births.min(candidates(&start, &RULE)));
        // Colours are copied as they are: who grew, and in which order, shows in them.
        assert_eq!(after.parameters.sh_dc, expected.parameters.sh_dc, "{births} births");
        assert_eq!(after.parameters.len(), 1021 + done.copied + done.split);
        assert_eq!(after.absolute_norm_sums, vec![0.0; after.parameters.len()]);
    }
}

fn statistics_that_were_never_gathered_leave_the_gradient_alone<B: TrainDevice>(device: &mut B) {
    let mut start = start(203, 0.9);
    start.absolute_norm_sums.clear();
    let plain = DensifyRule { with_quantile: false, ..RULE };
    let [with, without] = [RULE, plain].map(|rule| survey(device, &start, &rule));
    assert_eq!(with.absolute_min, None);
    assert_eq!((with.small, with.large), (without.small, without.large));
}

/// Once, as it takes long: as many values as matter, with repetitions among them.
fn a_million_values<B: TrainDevice>(device: &mut B) {
    let mut start = start(1_000_000, 0.7);
    for sum in start.absolute_norm_sums.iter_mut().step_by(3) {
        *sum = 2.0;
    }
    let found = survey(device, &start, &RULE);
    assert_eq!(found.count(), candidates(&start, &RULE));
}

#[test]
fn a_million_values_on_the_processor() {
    a_million_values(&mut Cpu::<f32>::new());
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_million_values_on_the_device() {
    a_million_values(&mut crate::common::cuda::open());
}

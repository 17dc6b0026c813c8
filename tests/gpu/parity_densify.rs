//! Density control of every device against the CPU backend in double precision: the same counts,
//! the same Gaussians in the same order.

use crate::common::density::{DensifyRule, densify, score};
use crate::common::oracle::{self, Counted, Shot, settings, shot, step};
use crate::common::prelude::*;
use crate::common::scene::{RATES, tame_gaussians};
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{Adjust, Candidates, Edited, Snapshot, TrainDevice};
use splat::math::sigmoid;
use splat::model::{Gaussians, Primitive};

each_backend!(
    a_round_after_five_views_grows_and_prunes_the_same_gaussians,
    a_round_with_a_grant_grows_those_with_the_highest_gradients,
    a_round_without_candidates_changes_nothing_but_the_statistics,
    rounds_follow_each_other_with_steps_between,
    a_reset_of_the_opacities_lowers_the_same_ones,
);

const ALL: usize = usize::MAX;

fn scene() -> Gaussians {
    tame_gaussians(203, 71, 3)
}

/// Five views along an arc.
fn five_shots(gaussians: &Gaussians) -> Vec<Shot> {
    (0..5_u32)
        .map(|i| {
            let mut view = view();
            view.pose.translation[0] += 0.07 * f64::from(i) - 0.13;
            let shot = shot(gaussians, &view, settings(3, 5), (u64::from(80 + i), Counted::Clear));
            Shot { index: i as usize, ..shot }
        })
        .collect()
}

/// A model after five observed views. Nothing has moved: every device reaches density control with
/// the same parameters.
fn observed<B: TrainDevice>(device: &mut B) -> B::Model {
    let gaussians = scene();
    oracle::observed(device, &gaussians, &five_shots(&gaussians))
}

/// The middle of the widest gap, in ratio, between values in these quantiles; and where it lies.
/// No value is near it, so that single precision cannot move one across.
fn between(values: &[f64], quantiles: [f64; 2]) -> f64 {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|&value| value > 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let [low, high] = quantiles.map(|q| (sorted.len() as f64 * q).round());
    let pairs = sorted.windows(2).enumerate();
    let (_, gap) = pairs
        .filter(|&(i, _)| i as f64 >= low && i as f64 <= high)
        .max_by(|a, b| (a.1[1] / a.1[0]).total_cmp(&(b.1[1] / b.1[0])))
        .expect("values in these quantiles");
    assert!(gap[1] / gap[0] > 1.005, "the values lie too close together: {gap:?}");
    (gap[0] * gap[1]).sqrt()
}

fn mean_gradients(snapshot: &Snapshot<Gaussians>) -> Vec<f64> {
    let seen = snapshot.views_seen.iter().map(|&seen| f64::from(seen.max(1)));
    snapshot.gradient_norm_sums.iter().zip(seen).map(|(&sum, n)| f64::from(sum) / n).collect()
}

fn largest_scales(gaussians: &Gaussians) -> Vec<f64> {
    let largest = |row: &[f32]| f64::from(row.iter().copied().fold(f32::MIN, f32::max)).exp();
    gaussians.log_scales.chunks(3).map(largest).collect()
}

fn opacities(gaussians: &Gaussians) -> Vec<f64> {
    gaussians.opacity_logits.iter().map(|&logit| sigmoid(f64::from(logit))).collect()
}

/// A rule that makes clones, splits and both kinds of removals in the oracle's model, and that no
/// Gaussian is near to.
fn rule() -> DensifyRule {
    let mut oracle = Cpu::<f64>::new();
    let mut model = observed(&mut oracle);
    let snapshot = oracle.snapshot(&mut model).unwrap();
    let scales = largest_scales(&snapshot.parameters);
    // Children are smaller by a factor of 1.6, and must keep away from the limit too.
    let with_children: Vec<f64> = scales.iter().flat_map(|&s| [s, s / 1.6]).collect();
    DensifyRule {
        gradient_min: between(&mean_gradients(&snapshot), [0.55, 0.75]),
        small_max: between(&scales, [0.4, 0.6]),
        opacity_min: between(&opacities(&snapshot.parameters), [0.05, 0.15]),
        scale_max: Some(between(&with_children, [0.9, 0.97])),
        seed: 17,
        iteration: 600,
        with_quantile: false,
    }
}

/// The same Gaussians in the same order: parents and clones bit for bit, children within rounding.
fn assert_same_model(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>) {
    let groups = found.parameters.groups().into_iter().zip(expected.parameters.groups());
    for (found, expected) in groups {
        assert_eq!(found.values.len(), expected.values.len(), "{}", found.name);
        for (i, (&a, &b)) in found.values.iter().zip(expected.values).enumerate() {
            // A child's place is its parent's plus a product of three factors; its scale a
            // difference. Everything else is copied.
            let rounding = match found.name {
                "means" => 1e-5 * b.abs().max(1.0),
                "log_scales" => 1e-6 * b.abs().max(1.0),
                _ => 0.0,
            };
            assert!((a - b).abs() <= rounding, "{} {i}: {a} instead of {b}", found.name);
        }
    }
    // Newborn Gaussians start with moments of zero; all others keep theirs.
    let moments = found.first_moments.groups().into_iter().zip(expected.first_moments.groups());
    for (found, expected) in moments {
        for (i, (a, b)) in found.values.iter().zip(expected.values).enumerate() {
            assert_eq!(*a == 0.0, *b == 0.0, "first moment of {} {i}: {a}, {b}", found.name);
        }
    }
    let count = expected.parameters.len();
    assert_eq!(
        (&found.views_seen, &found.gradient_norm_sums),
        (&vec![0; count], &vec![0.0; count])
    );
}

type Round = (Candidates, Edited, Snapshot<Gaussians>);

fn round<B: TrainDevice>(device: &mut B, rule: &DensifyRule, births: usize) -> Round {
    let mut model = observed(device);
    let survey = score(device, &model, rule);
    let before = device.len(&model);
    let done = densify(device, &mut model, rule, births).unwrap();
    assert_eq!(device.len(&model), before + done.copied + done.split - done.removed);
    (survey, done, device.snapshot(&mut model).unwrap())
}

fn a_round_after_five_views_grows_and_prunes_the_same_gaussians<B: TrainDevice>(device: &mut B) {
    let rule = rule();
    let (survey, done, after) = round(device, &rule, ALL);
    let (oracle_survey, oracle_done, oracle_after) = round(&mut Cpu::<f64>::new(), &rule, ALL);
    assert_eq!(survey, oracle_survey);
    assert_eq!(done, oracle_done);
    assert!(done.copied > 5 && done.split > 5 && done.removed > 5, "{done:?}");
    assert_eq!(survey.count(), done.copied + done.split);
    assert_same_model(&after, &oracle_after);

    // Neither kind of removal hides behind the other.
    for rule in [DensifyRule { opacity_min: 0.0, ..rule }, DensifyRule { scale_max: None, ..rule }]
    {
        let (_, done, after) = round(device, &rule, ALL);
        let (_, oracle_done, oracle_after) = round(&mut Cpu::<f64>::new(), &rule, ALL);
        assert_eq!(done, oracle_done);
        assert!(done.removed > 0);
        assert_same_model(&after, &oracle_after);
    }
}

fn a_round_with_a_grant_grows_those_with_the_highest_gradients<B: TrainDevice>(device: &mut B) {
    let rule = rule();
    let mut oracle = Cpu::<f64>::new();
    let mut model = observed(&mut oracle);
    let gradients = mean_gradients(&oracle.snapshot(&mut model).unwrap());
    // As many births as lie above a wide gap.
    let above = between(&gradients, [0.8, 0.9]);
    let births = gradients.iter().filter(|&&gradient| gradient > above).count();
    let (survey, done, after) = round(device, &rule, births);
    let (_, oracle_done, oracle_after) = round(&mut oracle, &rule, births);
    assert_eq!(done, oracle_done);
    assert_eq!(done.copied + done.split, births);
    assert!(done.copied > 3 && done.split > 3 && survey.count() > births + 10, "{done:?}");
    assert_same_model(&after, &oracle_after);

    let (_, none, _) = round(device, &rule, 0);
    assert_eq!((none.copied, none.split), (0, 0));
}

fn a_round_without_candidates_changes_nothing_but_the_statistics<B: TrainDevice>(device: &mut B) {
    let rule = DensifyRule { gradient_min: 1e9, opacity_min: 0.0, scale_max: None, ..rule() };
    let (survey, done, after) = round(device, &rule, ALL);
    assert_eq!((survey.count(), done), (0, Edited::default()));
    assert_eq!(after.parameters, scene());
    assert!(after.second_moments.means.iter().any(|&m| m > 0.0));
    assert_eq!(after.views_seen, vec![0; 203]);
}

fn rounds_follow_each_other_with_steps_between<B: TrainDevice>(device: &mut B) {
    // Columns grow and shrink across the blocks in which a device may keep them; what is compared
    // is the number of Gaussians and that none is broken.
    let rule = rule();
    let mut oracle = Cpu::<f64>::new();
    let shots = five_shots(&scene());
    let counts = rounds(device, &rule, &shots);
    assert_eq!(counts[0], rounds(&mut oracle, &rule, &shots)[0]);
    assert!(counts.windows(2).all(|pair| pair[0] != pair[1]), "{counts:?}");
}

/// Numbers of Gaussians after each of four rounds.
fn rounds<B: TrainDevice>(device: &mut B, rule: &DensifyRule, shots: &[Shot]) -> Vec<usize> {
    let mut model = observed(device);
    let mut counts = Vec::new();
    for iteration in 1..=4 {
        let rule = DensifyRule { iteration, opacity_min: 0.0, scale_max: None, ..*rule };
        densify(device, &mut model, &rule, 37).unwrap();
        counts.push(device.len(&model));
        for (number, shot) in (10 * iteration..).zip(shots) {
            let loss = step(device, &mut model, shot, (number, RATES));
            assert!(loss.total.is_finite());
        }
    }
    let after = device.snapshot(&mut model).unwrap();
    for (group, moments) in after.parameters.groups().iter().zip(after.second_moments.groups()) {
        assert_eq!(group.values.len(), counts[3] * group.width);
        assert!(group.values.iter().chain(moments.values).all(|value| value.is_finite()));
    }
    assert_eq!(after.views_seen.len(), counts[3]);
    counts
}

fn a_reset_of_the_opacities_lowers_the_same_ones<B: TrainDevice>(device: &mut B) {
    let mut model = observed(device);
    let before = device.snapshot(&mut model).unwrap();
    let ceiling = between(&opacities(&before.parameters), [0.4, 0.6]);
    device.adjust(&mut model, &Adjust::ResetOpacity(ceiling)).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    let (mut lowered, mut kept) = (0, 0);
    for (found, start) in
        after.parameters.opacity_logits.iter().zip(&before.parameters.opacity_logits)
    {
        if sigmoid(f64::from(*start)) < ceiling {
            kept += 1;
            assert_eq!(found, start);
        } else {
            lowered += 1;
            // Rounding of a logit of order 1.
            assert!((sigmoid(f64::from(*found)) - ceiling).abs() < 1e-6);
        }
    }
    assert!(lowered > 50 && kept > 50);
    assert_eq!(after.first_moments.opacity_logits, vec![0.0; 203]);
    assert_eq!(after.second_moments.opacity_logits, vec![0.0; 203]);
    assert_eq!(after.first_moments.means, before.first_moments.means);
    assert_eq!(after.views_seen, before.views_seen);
    assert_eq!(after.parameters.sh_rest, before.parameters.sh_rest);
}

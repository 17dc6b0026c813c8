//! Density control of every device against the CPU backend in double precision: the same counts,
//! the same Gaussians in the same order.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a test are small"
)]

use splat::math::{inverse_sigmoid, sigmoid};

#[cfg(kernels)]
use crate::common::cuda::{held, uneven};
use crate::common::oracle;
use crate::prelude::*;

each_backend!(
    a_densification_step_after_five_views_grows_and_prunes_the_same_gaussians,
    a_densification_step_with_a_grant_grows_those_with_the_highest_gradients,
    a_densification_step_without_candidates_changes_nothing_but_the_statistics,
    densification_steps_follow_each_other_with_steps_between,
    a_reset_of_the_opacities_lowers_the_same_ones,
);

const ALL: usize = usize::MAX;

fn scene() -> Gaussians {
    tame_gaussians(203, 71, 3)
}

/// Five views along an arc, observed by these statistics.
fn five_shots(gaussians: &Gaussians, statistics: Statistics) -> Vec<Shot> {
    let of_view = |i: u32| {
        let mut view = view();
        view.pose.translation[0] += 0.07 * f64::from(i) - 0.13;
        let settings = DrawSettings { statistics, ..settings(3, 5) };
        let shot = shot(gaussians, &view, settings, (u64::from(80 + i), Counted::Clear));
        Shot { index: i as usize, ..shot }
    };
    (0..5).map(of_view).collect()
}

/// A model after five observed views. Nothing has moved: every device reaches density control with
/// the same parameters.
fn observed<B: TrainDevice>(device: &mut B) -> B::Model {
    let gaussians = scene();
    oracle::observed(device, &gaussians, &five_shots(&gaussians, Statistics::Norms))
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

/// A rule that makes clones, splits and both kinds of removals in the oracle's model, and that no Gaussian is near to.
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

/// Asserts the same Gaussians in the same order: parents and clones bit for bit, children within rounding.
fn assert_same_model(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>) {
    for (found, expected) in paired(&found.parameters, &expected.parameters) {
        // A child's place is its parent's plus a product of three factors; its scale a
        // difference. Everything else is copied.
        let rounding = match found.name {
            "means" => 1e-5,
            "log_scales" => 1e-6,
            _ => 0.0,
        };
        let allowed = |value: f64| rounding * value.abs().max(1.0);
        assert_near(found.values, expected.values, allowed, found.name);
    }
    // Newborn Gaussians start with moments of zero; all others keep theirs.
    for (found, expected) in paired(&found.first_moments, &expected.first_moments) {
        let zeros = |values: &[f32]| values.iter().map(|&m| m == 0.0).collect::<Vec<_>>();
        assert_eq!(zeros(found.values), zeros(expected.values), "{}", found.name);
    }
    let count = expected.parameters.len();
    assert_eq!(found.views_seen, vec![0; count]);
    assert_eq!(found.gradient_norm_sums, vec![0.0; count]);
}

type DensifyStep = (Candidates, Edited, Snapshot<Gaussians>);

fn densify_step<B: TrainDevice>(
    device: &mut B,
    rule: &DensifyRule,
    new_gaussians: usize,
) -> DensifyStep {
    let mut model = observed(device);
    let survey = score(device, &model, rule);
    let before = device.len(&model);
    let done = densify(device, &mut model, rule, new_gaussians).unwrap();
    assert_eq!(device.len(&model), before + done.copied + done.split - done.removed);
    (survey, done, device.snapshot(&mut model).unwrap())
}

/// Asserts that a densification step equals the oracle's. Returns its counts.
fn assert_same_densify_step<B: TrainDevice>(
    device: &mut B,
    rule: &DensifyRule,
    new_gaussians: usize,
) -> (Candidates, Edited) {
    let [(survey, done, after), (oracle_survey, oracle_done, oracle_after)] =
        beside_oracle!(device, densify_step(device, rule, new_gaussians));
    assert_eq!((survey, done), (oracle_survey, oracle_done));
    assert_same_model(&after, &oracle_after);
    (survey, done)
}

fn a_densification_step_after_five_views_grows_and_prunes_the_same_gaussians<B: TrainDevice>(
    device: &mut B,
) {
    let rule = rule();
    let (survey, done) = assert_same_densify_step(device, &rule, ALL);
    assert!(done.copied > 5 && done.split > 5 && done.removed > 5, "{done:?}");
    assert_eq!(survey.count(), done.copied + done.split);

    // Neither kind of removal hides behind the other.
    for rule in [DensifyRule { opacity_min: 0.0, ..rule }, DensifyRule { scale_max: None, ..rule }]
    {
        assert!(assert_same_densify_step(device, &rule, ALL).1.removed > 0);
    }
}

fn a_densification_step_with_a_grant_grows_those_with_the_highest_gradients<B: TrainDevice>(
    device: &mut B,
) {
    let rule = rule();
    let mut oracle = Cpu::<f64>::new();
    let mut model = observed(&mut oracle);
    let gradients = mean_gradients(&oracle.snapshot(&mut model).unwrap());
    // As many new Gaussians as lie above a wide gap.
    let above = between(&gradients, [0.8, 0.9]);
    let new_gaussians = gradients.iter().filter(|&&gradient| gradient > above).count();
    let (survey, done) = assert_same_densify_step(device, &rule, new_gaussians);
    assert_eq!(done.copied + done.split, new_gaussians);
    assert!(done.copied > 3 && done.split > 3 && survey.count() > new_gaussians + 10, "{done:?}");

    let (_, none, _) = densify_step(device, &rule, 0);
    assert_eq!((none.copied, none.split), (0, 0));
}

fn a_densification_step_without_candidates_changes_nothing_but_the_statistics<B: TrainDevice>(
    device: &mut B,
) {
    let rule = DensifyRule { gradient_min: 1e9, opacity_min: 0.0, scale_max: None, ..rule() };
    let (survey, done, after) = densify_step(device, &rule, ALL);
    assert_eq!((survey.count(), done), (0, Edited::default()));
    assert_eq!(after.parameters, scene());
    assert!(after.second_moments.means.iter().any(|&m| m > 0.0));
    assert_eq!(after.views_seen, vec![0; 203]);
}

fn densification_steps_follow_each_other_with_steps_between<B: TrainDevice>(device: &mut B) {
    // Columns grow and shrink across the blocks in which a device may keep them; what is compared
    // is the number of Gaussians and that none is broken.
    let rule = rule();
    let shots = five_shots(&scene(), Statistics::Norms);
    let [counts, expected] = beside_oracle!(device, {
        let mut model = observed(device);
        let mut counts = Vec::new();
        for iteration in 1..=4 {
            let rule = DensifyRule { iteration, opacity_min: 0.0, scale_max: None, ..rule };
            densify(device, &mut model, &rule, 37).unwrap();
            counts.push(device.len(&model));
            for (number, shot) in (10 * iteration..).zip(&shots) {
                let loss = step(device, &mut model, shot, (number, RATES));
                assert!(loss.total.is_finite());
            }
        }
        assert_finite(&device.snapshot(&mut model).unwrap(), counts[3]);
        counts
    });
    assert_eq!(counts[0], expected[0]);
    assert!(counts.windows(2).all(|pair| pair[0] != pair[1]), "{counts:?}");
}

fn assert_finite(after: &Snapshot<Gaussians>, count: usize) {
    for (group, moments) in after.parameters.groups().iter().zip(after.second_moments.groups()) {
        assert_eq!(group.values.len(), count * group.width);
        assert!(group.values.iter().chain(moments.values).all(|value| value.is_finite()));
    }
    assert_eq!(after.views_seen.len(), count);
}

fn a_reset_of_the_opacities_lowers_the_same_ones<B: TrainDevice>(device: &mut B) {
    let mut model = observed(device);
    let before = device.snapshot(&mut model).unwrap();
    let ceiling = between(&opacities(&before.parameters), [0.4, 0.6]);
    device.adjust(&mut model, &Adjust::ResetOpacity(ceiling)).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    let (mut lowered, mut kept) = (0, 0);
    let logits = after.parameters.opacity_logits.iter().zip(&before.parameters.opacity_logits);
    for (found, start) in logits {
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

// The criterion of GOF: every device finds the same quantile, and the same candidates by it.

each_backend!(
    candidates_are_those_that_a_sort_finds,
    gradients_of_zero_are_no_candidates_where_the_quantile_is_zero,
    the_highest_in_units_of_their_bars_grow_first,
    statistics_that_were_never_gathered_leave_the_gradient_alone,
    a_million_values,
);

const RULE: DensifyRule =
    DensifyRule { gradient_min: 0.5, small_max: 0.05, with_quantile: true, ..DensifyRule::ALL };

/// Returns Gaussians with a share `seen` that views have seen, and gradients from 0 to 1, few of them high.
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

/// Asserts equality but for the rounding of a mean in single precision, half a unit of 2⁻²³.
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

fn the_highest_in_units_of_their_bars_grow_first<B: TrainDevice>(device: &mut B) {
    let start = start(1021, 0.9);
    for new_gaussians in [0, 1, 60, usize::MAX] {
        let [(done, after), (expected_done, expected)] = beside!(
            device,
            Cpu::<f32>::new(),
            changed(device, &start, |device, model| {
                densify(device, model, &RULE, new_gaussians).unwrap()
            })
        );
        assert_eq!(done, expected_done);
        assert_eq!(done.copied + done.split, new_gaussians.min(candidates(&start, &RULE)));
        // Colours are copied as they are: who grew, and in which order, shows in them.
        let [found, expected] = [&after, &expected].map(|step| &step.parameters.sh_dc);
        assert_eq!(found, expected, "{new_gaussians} new Gaussians");
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

/// As many values as matter, with repetitions among them.
fn a_million_values<B: TrainDevice>(device: &mut B) {
    let mut start = start(1_000_000, 0.7);
    for sum in start.absolute_norm_sums.iter_mut().step_by(3) {
        *sum = 2.0;
    }
    let found = survey(device, &start, &RULE);
    assert_eq!(found.count(), candidates(&start, &RULE));
}

// Density control as a Markov chain: every device draws the Gaussians that the CPU backend draws in
// double precision, and makes the same of them.

each_backend!(
    the_dead_move_to_the_same_gaussians,
    the_same_gaussians_get_copies,
    nothing_happens_to_a_model_without_living_gaussians,
    relocations_follow_each_other_with_steps_between,
);

const RELOCATE_RULE: RelocateRule = RelocateRule { opacity_min: 0.005, seed: 23, iteration: 700 };

/// Returns Gaussians in training with a share `dead` of dead ones.
fn relocate_start(count: usize, dead: f64) -> Snapshot<Gaussians> {
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
    sigmoid(f64::from(snapshot.parameters.opacity_logits[row])) <= RELOCATE_RULE.opacity_min
}

/// All rows alike: shares within the rounding of double to single precision, everything else, which
/// is copied or stays, bit for bit.
fn assert_same(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>, what: &str) {
    for (part, found, expected) in paired_parts(found, expected) {
        let shared = part == 0 && ["opacity_logits", "log_scales"].contains(&found.name);
        let allowed = |value: f64| if shared { 1e-6 * value.abs().max(1.0) } else { 0.0 };
        let what = format_args!("{what}: {} of part {part}", found.name);
        assert_near(found.values, expected.values, allowed, what);
    }
    assert_eq!(found.views_seen, expected.views_seen, "{what}");
    assert_eq!(found.gradient_norm_sums, expected.gradient_norm_sums, "{what}");
}

fn relocated<B: TrainDevice>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
) -> (usize, Snapshot<Gaussians>) {
    changed(device, start, |device, model| relocate(device, model, &RELOCATE_RULE).unwrap())
}

fn multiplied<B: TrainDevice>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
    new_gaussians: usize,
) -> Snapshot<Gaussians> {
    changed(device, start, |device, model| {
        multiply(device, model, &RELOCATE_RULE, new_gaussians).unwrap()
    })
    .1
}

fn the_dead_move_to_the_same_gaussians<B: TrainDevice>(device: &mut B) {
    // One that is alive, one that is dead, whole lane blocks and broken ones, and several thread blocks.
    let cases = [(1, 0.0), (1, 1.0), (31, 0.5), (32, 0.5), (33, 0.1), (203, 0.3), (1021, 0.95)];
    for (count, share) in cases {
        let start = relocate_start(count, share);
        let dead = (0..count).filter(|&row| is_dead(&start, row)).count();
        let [(moved, found), (expected_moved, expected)] =
            beside_oracle!(device, relocated(device, &start));
        assert_eq!(moved, expected_moved, "{count} {share}");
        assert_eq!(moved, if dead == count { 0 } else { dead }, "{count} {share}");
        assert_same(&found, &expected, &format!("{count} Gaussians, {dead} dead"));
        assert!(moved == 0 || (0..count).all(|row| !is_dead(&found, row)), "{count} {share}");
    }
}

fn the_same_gaussians_get_copies<B: TrainDevice>(device: &mut B) {
    for (count, new_gaussians) in
        [(1, 1), (1, 100), (31, 2), (32, 1), (203, 11), (203, 500), (1021, 51)]
    {
        let start = relocate_start(count, 0.2);
        let [found, expected] = beside_oracle!(device, multiplied(device, &start, new_gaussians));
        assert_eq!(found.parameters.len(), count + new_gaussians);
        let what = format!("{count} Gaussians, {new_gaussians} new Gaussians");
        assert_same(&found, &expected, &what);
        assert_eq!(found.first_moments.rows(0..count), start.first_moments);
        assert!(
            found.second_moments.rows(count..count + new_gaussians).means.iter().all(|&m| m == 0.0)
        );
    }
}

fn nothing_happens_to_a_model_without_living_gaussians<B: TrainDevice>(device: &mut B) {
    let nothing = in_training(Gaussians::zeros(3, 0), 1);
    let mut gone = relocate_start(40, 0.0);
    gone.parameters.opacity_logits.fill(-30.0);
    for start in [nothing, gone] {
        let (moved, found) = relocated(device, &start);
        assert_eq!(moved, 0);
        assert_same(&found, &start, "nothing to draw");
        assert_same(&multiplied(device, &start, 7), &start, "nothing to draw");
    }
    let start = relocate_start(40, 0.5);
    assert_same(&multiplied(device, &start, 0), &start, "no new Gaussians");
}

fn relocations_follow_each_other_with_steps_between<B: TrainDevice>(device: &mut B) {
    let start = relocate_start(203, 0.3);
    let of_seed = |seed| shot(&start.parameters, &view(), settings(3, 5), (seed, Counted::Clear));
    let shots = [60, 61, 62].map(of_seed);
    let mut model = device.restore(start).unwrap();
    for cycle in 0..4 {
        let rule = RelocateRule { iteration: 100 * (cycle + 1), ..RELOCATE_RULE };
        relocate(device, &mut model, &rule).unwrap();
        multiply(device, &mut model, &rule, 37).unwrap();
        for (number, shot) in (3 * cycle + 1..).zip(&shots) {
            let loss = step(device, &mut model, shot, (number, RATES));
            assert!(loss.total.is_finite());
        }
    }
    let count = 203 + 4 * 37;
    assert_eq!(device.len(&model), count);
    assert_finite(&device.snapshot(&mut model).unwrap(), count);
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn compact_models_move_and_copy_words_as_they_are() {
    let mut start = uneven(333, 3, 41);
    for logit in start.parameters.opacity_logits.iter_mut().step_by(3) {
        *logit = -7.0;
    }
    let (start, mut device, mut cpu) = (held(&start), compact(), Cpu::<f32>::new());
    let mut model = device.restore(start.clone()).unwrap();
    let moved = relocate(&mut device, &mut model, &RELOCATE_RULE).unwrap();
    let (expected_moved, expected) = relocated(&mut cpu, &start);
    assert_eq!(moved, expected_moved);
    assert_same(&device.snapshot(&mut model).unwrap(), &expected, "moved");
    multiply(&mut device, &mut model, &RELOCATE_RULE, 70).unwrap();
    let expected = multiplied(&mut cpu, &expected, 70);
    assert_same(&device.snapshot(&mut model).unwrap(), &expected, "copied");
}

// Density control by disagreement on every device against the CPU backend in double precision: the same
// Gaussians are drawn, unseen Gaussians are removed, and opacities decay alike.

each_backend!(
    a_densification_step_draws_the_same_gaussians_and_removes_the_unseen,
    a_decay_lowers_opacities_to_its_floor,
);

/// 203 Gaussians, some of them behind the cameras.
fn budget_scene() -> Gaussians {
    let mut gaussians = tame_gaussians(203, 71, 3);
    for row in (0..203).step_by(7) {
        gaussians.means[3 * row + 2] -= 100.0;
    }
    gaussians
}

fn disagreeing<B: TrainDevice>(device: &mut B) -> B::Model {
    let gaussians = budget_scene();
    oracle::observed(device, &gaussians, &five_shots(&gaussians, Statistics::Disagreement))
}

fn a_densification_step_draws_the_same_gaussians_and_removes_the_unseen<B: TrainDevice>(
    device: &mut B,
) {
    let (split, child) =
        (Grow::SplitRandom { shrink: 1.6, key: 9 }, Grow::AddChild { shrink: 1.6, key: 9 });
    let score = ScoreRule::Disagreement { small_max: 0.1, key: 5 };
    let keep = Keep { opacity_min: 1e-4, scale_max: None, unseen: false };
    for (new_gaussians, large) in [(0, split), (40, split), (40, child), (usize::MAX, child)] {
        let found = beside_oracle!(device, {
            let mut model = disagreeing(device);
            let candidates = device.score(&model, &score).unwrap();
            let pick = Pick::Best(new_gaussians);
            let selection = device.select(&mut model, &candidates, pick).unwrap();
            let done = device.edit(&mut model, selection, &EditRule::Grow { large, keep }).unwrap();
            (candidates.count(), done, device.snapshot(&mut model).unwrap())
        });
        let [(candidates, done, after), (expected_candidates, expected_done, expected)] = found;
        assert!(expected_done.removed >= 29 && expected_candidates > 60, "{expected_done:?}");
        assert_eq!((candidates, done), (expected_candidates, expected_done));
        let (of, exact) = (&after.parameters, &expected.parameters);
        // A child's place is its parent's plus a product of three factors.
        assert_near(&of.means, &exact.means, |mean| 1e-5 * mean.abs().max(1.0), "mean");
        assert_eq!(of.opacity_logits, exact.opacity_logits);
        let allowed = |scale: f64| 1e-6 * scale.abs().max(1.0);
        assert_near(&of.log_scales, &exact.log_scales, allowed, "scale");
        assert_eq!(forgotten(&after), forgotten(&expected), "{new_gaussians} new Gaussians");
    }
}

fn forgotten(snapshot: &Snapshot<Gaussians>) -> Vec<usize> {
    let moments = snapshot.second_moments.means.chunks(3).enumerate();
    moments.filter(|(_, moments)| moments.iter().all(|&m| m == 0.0)).map(|(row, _)| row).collect()
}

fn a_decay_lowers_opacities_to_its_floor<B: TrainDevice>(device: &mut B) {
    let mut model = disagreeing(device);
    device.adjust(&mut model, &Adjust::DecayOpacity { factor: 0.5, floor: 0.3 }).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    let (mut floored, mut halved) = (0, 0);
    let logits = opacities(&budget_scene()).into_iter().zip(opacities(&after.parameters));
    for (row, (before, after)) in logits.enumerate() {
        let expected = before.min((0.5 * before).max(0.3));
        // Rounding of a sigmoid and a logit in single precision.
        assert!((after - expected).abs() < 1e-6, "{row}: {after} instead of {expected}");
        floored += usize::from(expected == 0.3);
        halved += usize::from(expected < 0.6 * before);
    }
    assert!(floored > 10 && halved > 10, "{floored} at the floor, {halved} halved");
    for moments in [&after.first_moments, &after.second_moments] {
        let mut values = moments.groups().into_iter().flat_map(|group| group.values);
        assert!(values.all(|&moment| moment == 0.0));
    }
}

//! Gradients, density statistics and whole steps of every device against the CPU backend in double
//! precision.

use crate::common::oracle::{
    Counted, FirstStep, GRADIENT_TOLERANCE, Shot, assert_first_steps_agree, assert_gradients_agree,
    clear_gaussians, gradient_tolerance, gradients, mean_size, observed, settings, shot, step,
};
use crate::common::prelude::*;
use crate::common::scene::{NEAR, RATES, resized, splats, straight, tame_gaussians};
use crate::common::{Draws, view};
use splat::backend::cpu::Cpu;
use splat::backend::{AdamStep, DeviceError, Snapshot, Terms, TrainDevice};
use splat::dataset::View;
use splat::math::Real;
use splat::math::splat::{Ellipse, bounds};
use splat::model::{Gaussians, Primitive};

each_backend!(
    gradients_agree_with_the_oracle,
    gradients_agree_at_every_degree_stored_and_in_use,
    gradients_agree_whatever_the_size_and_the_loss,
    gradients_agree_where_the_jacobian_is_held_to_the_guard_band,
    a_step_goes_down_the_mean_gradient_of_its_views,
    what_density_control_is_told_agrees_with_the_oracle,
    only_frames_that_observe_are_counted,
    ten_steps_take_the_same_way_as_the_oracle,
);

fn gradients_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 1), (8, 2), (60, 3), (200, 4), (200, 5)] {
        for counted in [Counted::Clear, Counted::Some] {
            let gaussians = tame_gaussians(count, seed, 3);
            let shot = shot(&gaussians, &view(), settings(3, seed), (seed, counted));
            let what = format!("{count} Gaussians, {counted:?}");
            assert_first_steps_agree(device, &gaussians, &shot, &what);
        }
    }
}

fn gradients_agree_at_every_degree_stored_and_in_use<B: TrainDevice>(device: &mut B) {
    for stored in 0..=3 {
        for used in 0..=stored {
            let gaussians = tame_gaussians(50, 11, stored);
            let shot = shot(&gaussians, &view(), settings(used, 6), (2, Counted::Some));
            let what = format!("degree {used} of {stored}");
            let step = assert_first_steps_agree(device, &gaussians, &shot, &what);
            // What is not in use takes no gradient at all and stays where it is.
            let unused = (((used + 1) * (used + 1) - 1) * 3) as usize;
            let (name, width, rest) = &gradients(&step.snapshot)[5];
            let after = &step.snapshot.parameters.sh_rest;
            for (i, &gradient) in rest.iter().enumerate().filter(|(i, _)| i % width >= unused) {
                assert_eq!((gradient, after[i]), (0.0, gaussians.sh_rest[i]), "{name} {i}");
            }
        }
    }
}

fn gradients_agree_whatever_the_size_and_the_loss<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [11, 11], [17, 33]]) {
        let view = resized(&view(), size);
        let settings = settings(3, seed);
        let gaussians = clear_gaussians(12, seed, &[(&view, settings)]);
        for lambda_dssim in [0.0, 0.2, 1.0] {
            let mut shot = shot(&gaussians, &view, settings, (seed, Counted::All));
            shot.terms = Terms::photometric(lambda_dssim);
            let found = FirstStep::taken_by(device, &gaussians, &shot).snapshot;
            let expected = FirstStep::of_the_oracle(&gaussians, &shot).snapshot;
            let what = format!("{size:?} px, {lambda_dssim}");
            assert_gradients_agree(&found, &expected, (gradient_tolerance(size), &what));
        }
    }
}

fn gradients_agree_where_the_jacobian_is_held_to_the_guard_band<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let mut gaussians = tame_gaussians(24, 21, 3);
    let mut draws = Draws::new(22);
    for i in 0..gaussians.len() {
        // The image ends at slopes of 0.48 and 0.37, the band at 0.62 and 0.47.
        let depth = draws.uniform(1.0, 2.0);
        let side = if i % 2 == 0 { 1.0 } else { -1.0 };
        let slopes = [draws.uniform(0.64, 0.9), draws.uniform(0.48, 0.7)].map(|s| s * side);
        let mean = [slopes[0] * depth, slopes[1] * depth, depth];
        gaussians.means[i * 3..][..3].copy_from_slice(&mean.map(f64::to_f32));
        let scales = draws.array::<3>(-1.2, -0.3).map(f64::to_f32);
        gaussians.log_scales[i * 3..][..3].copy_from_slice(&scales);
    }
    let shot = shot(&gaussians, &view, settings(3, 3), (4, Counted::Clear));
    let step = assert_first_steps_agree(device, &gaussians, &shot, "outside the guard band");
    let moved = step.snapshot.first_moments.means.chunks(3).filter(|d| d[0] != 0.0).count();
    assert!(moved > 12, "only {moved} of 24 outside the band reach into the image");
}

fn a_step_goes_down_the_mean_gradient_of_its_views<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(70, 31, 3);
    let shots = three_shots(&gaussians);
    let expected = step_over(&mut Cpu::<f64>::new(), &gaussians, &shots).unwrap();
    let found = step_over(device, &gaussians, &shots).unwrap();
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "three views"));
}

/// One step over several views at once.
fn step_over<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
) -> Result<Snapshot<Gaussians>, DeviceError> {
    let mut model = device.upload(gaussians)?;
    let mut gradients = Default::default();
    for shot in shots {
        let target = device.target(shot.index, &shot.photo)?;
        let seen = (&shot.view, &shot.settings);
        device.add_view(&mut model, seen, (&target, &shot.terms), &mut gradients)?.read()?;
    }
    device.step(&mut model, gradients, &AdamStep::new(1, RATES))?;
    device.snapshot(&mut model)
}

/// Views from three sides and of three sizes.
fn three_shots(gaussians: &Gaussians) -> Vec<Shot> {
    let mut aside = view();
    aside.pose.translation = [0.4, -0.2, 0.5];
    let views = [view(), straight(), resized(&aside, [45, 23])];
    let numbered = |(index, view): (usize, &View)| {
        let seed = index as u64;
        let shot = shot(gaussians, view, settings(3, seed), (seed, Counted::Clear));
        Shot { index, ..shot }
    };
    views.iter().enumerate().map(numbered).collect()
}

/// Whether a view sees the splat, where rounding cannot change the answer.
fn surely_seen(ellipse: &Ellipse<f64>, opacity: f64, size: [u32; 2]) -> Option<bool> {
    let mut answers = Vec::new();
    for (shift_px, spread) in [(1e-3, 1e-4), (1e-3, -1e-4), (-1e-3, 1e-4), (-1e-3, -1e-4)] {
        let mut shifted = *ellipse;
        shifted.mean_px = shifted.mean_px.map(|p| p + shift_px);
        shifted.cov_px2 = shifted.cov_px2.map(|c| c * (1.0 + spread));
        answers.push(bounds(&shifted, opacity * (1.0 + spread), size).is_some());
    }
    let near_plane = (ellipse.depth / NEAR - 1.0).abs() < 1e-4;
    (!near_plane && answers.iter().all(|&seen| seen == answers[0])).then_some(answers[0])
}

/// How often these views see each Gaussian; nothing where that is open.
fn sightings(gaussians: &Gaussians, views: &[&View]) -> Vec<Option<u32>> {
    let mut counts = vec![Some(0); gaussians.len()];
    for view in views {
        let size = [view.camera.width, view.camera.height];
        for splat in splats(gaussians, view, &settings(3, 0)) {
            let seen = surely_seen(&splat.ellipse, splat.opacity, size).map(u32::from);
            let count = &mut counts[splat.gaussian];
            *count = count.zip(seen).map(|(count, seen)| count + seen);
        }
    }
    counts
}

fn what_density_control_is_told_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 41), (90, 42), (250, 43)] {
        let gaussians = tame_gaussians(count, seed, 3);
        let shots = three_shots(&gaussians);
        let found = statistics(device, &gaussians, &shots);
        let expected = statistics(&mut Cpu::<f64>::new(), &gaussians, &shots);
        let views: Vec<&View> = shots.iter().map(|shot| &shot.view).collect();
        let sure = sightings(&gaussians, &views);
        let open = sure.iter().filter(|count| count.is_none()).count();
        assert!(open * 20 <= count, "{open} of {count} are borderline");
        for (i, sightings) in sure.iter().enumerate() {
            let Some(sightings) = *sightings else { continue };
            assert_eq!(expected.views_seen[i], sightings, "the oracle's Gaussian {i}");
            assert_eq!(found.views_seen[i], sightings, "Gaussian {i}");
        }
        assert_sums_agree(&found, &expected);
    }
    let gaussians = tame_gaussians(250, 43, 3);
    let counts = sightings(&gaussians, &[&view(), &straight()]);
    for count in 0..=2 {
        assert!(counts.contains(&Some(count)), "no Gaussian is seen {count} times");
    }
}

/// What is left of the views after a step over each.
fn statistics<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
) -> Snapshot<Gaussians> {
    let mut model = observed(device, gaussians, shots);
    device.snapshot(&mut model).unwrap()
}

/// The sums of the norms of the gradients within 1e-3, small ones against a tenth of the mean.
fn assert_sums_agree(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>) {
    let wide = |sums: &[f32]| sums.iter().copied().map(f64::from).collect::<Vec<_>>();
    let (found, expected) = (wide(&found.gradient_norm_sums), wide(&expected.gradient_norm_sums));
    let floor = 0.1 * mean_size(&expected);
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= 1e-3 * expected.max(floor), "{i}: {found:e} instead of {expected:e}");
    }
}

fn only_frames_that_observe_are_counted<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(50, 51, 3);
    let mut shots = three_shots(&gaussians);
    for shot in &mut shots {
        shot.settings.pass = Pass::Train;
    }
    let quiet = statistics(device, &gaussians, &shots);
    assert_eq!((quiet.views_seen, quiet.gradient_norm_sums), (vec![0; 50], vec![0.0; 50]));
    assert!(quiet.first_moments.means.iter().any(|&m| m != 0.0));

    shots[1].settings.pass = Pass::Observe;
    let mixed = statistics(device, &gaussians, &shots);
    let alone = statistics(device, &gaussians, &shots[1..2]);
    assert_eq!(mixed.views_seen, alone.views_seen);
    assert_sums_agree(&mixed, &alone);
    assert!(alone.views_seen.contains(&1));
}

/// Losses and the model after ten steps over three views in turn.
fn ten_steps<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
) -> (Vec<Loss>, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let losses = (1..=10)
        .zip(shots.iter().cycle())
        .map(|(number, shot)| step(device, &mut model, shot, (number, RATES)))
        .collect();
    (losses, device.snapshot(&mut model).unwrap())
}

fn ten_steps_take_the_same_way_as_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 61, 3);
    let shots = three_shots(&gaussians);
    let (found_losses, found) = ten_steps(device, &gaussians, &shots);
    let (expected_losses, expected) = ten_steps(&mut Cpu::<f64>::new(), &gaussians, &shots);
    for (i, (found, expected)) in found_losses.iter().zip(&expected_losses).enumerate() {
        // The masks keep only the first step clear of cuts. After it a pixel in a hundred may part
        // by one quantum of 1/255.
        let error = (found.total - expected.total).abs();
        assert!(error < 4e-5, "step {}: {} instead of {}", i + 1, found.total, expected.total);
    }
    let expected_second = expected.second_moments.groups();
    let rates = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3];
    let groups = found.parameters.groups().into_iter().zip(expected.parameters.groups());
    for (group, ((found, expected), rate)) in groups.zip(rates).enumerate() {
        // Adam moves by the sign of a gradient however small, and a gradient that cancels to
        // rounding may have either sign: such elements part by up to two rates a step. They are
        // few, and the rest stay within a hundredth of what ten steps can move.
        let apart: Vec<f32> =
            found.values.iter().zip(expected.values).map(|(a, b)| (a - b).abs()).collect();
        let strays = apart.iter().filter(|&&apart| apart > 0.1 * rate).count();
        assert!(
            strays * 50 <= apart.len(),
            "{}: {strays} of {} part by more than a hundredth of ten rates",
            found.name,
            apart.len()
        );
        let largest = apart.iter().copied().fold(0.0, f32::max);
        assert!(largest <= 25.0 * rate, "{}: {largest} apart", found.name);

        // What no view moved stays exactly where it was.
        let start = gaussians.groups()[group].values;
        let unmoved = expected_second[group].values.iter().enumerate().filter(|&(_, &m)| m == 0.0);
        for (i, _) in unmoved {
            assert_eq!(found.values[i], start[i], "{}: element {i}", found.name);
        }
    }
}

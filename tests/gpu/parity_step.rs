//! Gradients, density statistics and whole steps of every device against the CPU backend in double precision.

use splat::backend::{CHUNK_ROWS, Rows, chunks};
use splat::config::Config;
use splat::export::{RenderMode, read_ply};
use splat::math::adam::RateBySize;
use splat::math::splat::{Ellipse, bounds};
use splat::memory::TrainingScale;
use splat::train::checkpoint::{Checkpoint, Occasion, StoredCheckpoint};
use splat::train::save::{DeviceModel, write_point_cloud};

use crate::common::scene::{as_in_a_ply, splats};
use crate::prelude::*;
use crate::support::hidden_gaussians;

each_backend!(
    gradients_agree_with_the_oracle,
    gradients_agree_at_every_degree_stored_and_in_use,
    gradients_agree_whatever_the_size_and_the_loss,
    masked_pixels_have_the_loss_and_the_gradients_of_the_oracle,
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
        let (gaussians, mut shot) = clear_shot(size, seed, settings(3, seed));
        for lambda_dssim in [0.0, 0.2, 1.0] {
            shot.terms = Terms::photometric(lambda_dssim);
            let [found, expected] =
                beside_oracle!(device, FirstStep::taken_by(device, &gaussians, &shot).snapshot);
            let what = format!("{size:?} px, {lambda_dssim}");
            assert_gradients_agree(&found, &expected, (gradient_tolerance(size), &what));
        }
    }
}

fn masked_pixels_have_the_loss_and_the_gradients_of_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 3, 3);
    let mut shot = shot(&gaussians, &view(), settings(3, 3), (3, Counted::Some));
    let mut losses = Vec::new();
    for empty_weight in [0.0, 0.03, 0.4, 1.0] {
        let photometric = Term::Photometric { lambda_dssim: 0.2, empty_weight };
        shot.terms = Terms::default().with(photometric, 1.0);
        let what = format!("weight {empty_weight}");
        losses.push(assert_first_steps_agree(device, &gaussians, &shot, &what).loss.total);
    }
    assert!(losses[1..].is_sorted_by(|less, more| less < more), "{losses:?}");
    assert!(losses[0] != losses[1], "{losses:?}");
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
    assert_step_agrees(device, &gaussians, &three_shots(&gaussians, [45, 23]), "three views");
}

/// True if a view sees the splat, where rounding cannot change the answer.
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

/// Times that these views see each Gaussian; nothing where that is open.
fn view_counts(gaussians: &Gaussians, views: &[&View]) -> Vec<Option<u32>> {
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
        let shots = three_shots(&gaussians, [45, 23]);
        let [found, expected] = beside_oracle!(device, statistics(device, &gaussians, &shots));
        let views: Vec<&View> = shots.iter().map(|shot| &shot.view).collect();
        let sure = view_counts(&gaussians, &views);
        let open = sure.iter().filter(|count| count.is_none()).count();
        assert!(open * 20 <= count, "{open} of {count} are borderline");
        for (i, view_counts) in sure.iter().enumerate() {
            let Some(view_counts) = *view_counts else { continue };
            assert_eq!(expected.views_seen[i], view_counts, "the oracle's Gaussian {i}");
            assert_eq!(found.views_seen[i], view_counts, "Gaussian {i}");
        }
        let sums = (&found.gradient_norm_sums, &expected.gradient_norm_sums);
        assert_sums_agree(sums.0, sums.1, 1e-3, "sum");
    }
    let gaussians = tame_gaussians(250, 43, 3);
    let counts = view_counts(&gaussians, &[&view(), &straight()]);
    for count in 0..=2 {
        assert!(counts.contains(&Some(count)), "no Gaussian is seen {count} times");
    }
}

fn statistics<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
) -> Snapshot<Gaussians> {
    let mut model = observed(device, gaussians, shots);
    device.snapshot(&mut model).unwrap()
}

fn only_frames_that_observe_are_counted<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(50, 51, 3);
    let mut shots = three_shots(&gaussians, [45, 23]);
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
    assert_sums_agree(&mixed.gradient_norm_sums, &alone.gradient_norm_sums, 1e-3, "sum");
    assert!(alone.views_seen.contains(&1));
}

fn ten_steps_take_the_same_way_as_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 61, 3);
    let shots = three_shots(&gaussians, [45, 23]);
    let [(found_losses, found), (expected_losses, expected)] = beside_oracle!(device, {
        let mut model = device.upload(&gaussians).unwrap();
        let losses: Vec<f64> = (1..=10)
            .zip(shots.iter().cycle())
            .map(|(number, shot)| step(device, &mut model, shot, (number, RATES)).total)
            .collect();
        (losses, device.snapshot(&mut model).unwrap())
    });
    // The masks keep only the first step clear of cuts. After it a pixel in a hundred may part
    // by one quantum of 1/255.
    assert_near(&found_losses, &expected_losses, |_| 4e-5, "loss of step");
    let expected_second = expected.second_moments.groups();
    let groups = paired(&found.parameters, &expected.parameters);
    for (group, ((found, expected), rate)) in groups.zip(EACH_RATE).enumerate() {
        // Adam moves by the sign of a gradient however small, and a gradient that cancels to
        // rounding may have either sign: such elements part by up to two rates a step. They are
        // few, and the rest stay within a hundredth of what ten steps can move.
        let strays = strays(found.values, expected.values, |_| 0.1 * rate);
        assert!(strays * 50 <= found.values.len(), "{}: {strays} strays", found.name);
        assert_near(found.values, expected.values, |_| 25.0 * rate, found.name);

        // What no view moved stays exactly where it was.
        let start = gaussians.groups()[group].values;
        let unmoved = expected_second[group].values.iter().enumerate().filter(|&(_, &m)| m == 0.0);
        for (i, _) in unmoved {
            assert_eq!(found.values[i], start[i], "{}: element {i}", found.name);
        }
    }
}

// Learning rates of centres that follow sizes, on every backend, against what they are by definition.

each_backend!(first_steps_of_centres_are_as_long_as_their_sizes_say,);

const BY_SIZE: RateBySize = RateBySize { exponent: 0.5, unit: 0.05 };

/// Asserts that a first step moves each coordinate that has a gradient by the learning rate of its row.
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
    let step = AdamStep { by_size, ..AdamStep::new(1, RATES) };
    let (_, after) = stepped(device, &gaussians, &shots, &step);
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
        let error = (length.abs() - expected).abs();
        assert!(error <= 1e-5 * expected + 5e-7, "row {row}: {length:e} for {expected:e}");
        moved += 1;
        factors.push(factor);
    }
    assert!(moved > 60, "only {moved} coordinates have moved");
    factors.sort_by(f64::total_cmp);
    let (low, high) = (factors[0], factors[factors.len() - 1]);
    assert!(by_size.is_none() || high > 3.0 * low, "{low} to {high}");
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
    stored_models_follow_sizes(open_compact);
}

fn first_steps_of_centres_are_as_long_as_their_sizes_say<B: TrainDevice>(device: &mut B) {
    for (views, by_size) in [(1, Some(BY_SIZE)), (2, Some(BY_SIZE)), (1, None)] {
        assert_lengths(device, views, by_size);
    }
}

// Colours that a device may leave behind while no view sees them: whoever reads or moves them finds
// them where dense Adam has them, which is what the CPU backend in double precision does.

each_backend!(
    colours_that_no_view_sees_move_on_as_the_oracles,
    whatever_reads_or_moves_rows_lets_their_colours_catch_up,
    a_view_that_looks_where_no_other_did_sees_the_oracles_colours,
);

/// Gaussians in front of the camera: as many as a GPU handles together.
const SEEN: usize = 32;

/// Some Gaussians that the camera sees, and more behind it, some of them all but transparent.
pub(super) fn gaussians() -> Gaussians {
    let seen = [tame_gaussians(SEEN, 81, 3)];
    together(&seen.into_iter().chain(hidden_gaussians()).collect::<Vec<_>>())
}

fn looking_ahead(gaussians: &Gaussians) -> Shot {
    let mut shot = shot(gaussians, &straight(), settings(3, 8), (9, Counted::Some));
    shot.settings.pass = Pass::Train;
    shot
}

fn steps<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (shot, numbers): (&Shot, std::ops::RangeInclusive<u32>),
) {
    for number in numbers {
        step(device, model, shot, (number, COLOUR_RATES));
    }
}

/// The values of the Gaussians behind the camera, by group.
fn behind(values: &Gaussians, means: &[f32]) -> Vec<(&'static str, Vec<f32>)> {
    let rows: Vec<usize> = (0..values.len()).filter(|row| means[row * 3 + 2] < -2.0).collect();
    let of_rows = |width: usize, values: &[f32]| {
        rows.iter().flat_map(|row| values[row * width..][..width].to_vec()).collect()
    };
    let groups = values.groups();
    groups.iter().map(|group| (group.name, of_rows(group.width, group.values))).collect()
}

/// Values and moments of what is behind the camera agree.
pub(super) fn assert_alike(
    found: &Snapshot<Gaussians>,
    expected: &Snapshot<Gaussians>,
    what: &str,
) {
    let parts = |s: &Snapshot<Gaussians>| {
        let means = s.parameters.means.clone();
        [&s.parameters, &s.first_moments, &s.second_moments].map(|part| behind(part, &means))
    };
    for (found, expected) in parts(found).into_iter().zip(parts(expected)) {
        for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
            assert!(!found.is_empty());
            // Rounding in single precision of up to 300 steps, each a ten-millionth of values
            // and moments of the order of 1.
            let allowed = |value: f64| 3e-5 * value.abs().max(0.1);
            assert_near(&found, &expected, allowed, format_args!("{what}: {name}"));
        }
    }
}

fn colours_that_no_view_sees_move_on_as_the_oracles<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 82);
    let shot = looking_ahead(&start.parameters);
    // From the first step on, when the bias corrections change most, and past the longest time that
    // anything is put off.
    for count in [1, 2, 31, 126, 127, 128, 300] {
        let [found, expected] = beside_oracle!(
            device,
            changed(device, &start, |device, model| steps(device, model, (&shot, 1..=count))).1
        );
        assert_alike(&found, &expected, &format!("{count} steps"));
        let moved = |s: &Snapshot<Gaussians>| behind(&s.parameters, &s.parameters.means)[4].1[0];
        assert_ne!(moved(&found), moved(&start), "momentum moves them");
    }
}

/// Operations on a model with colours that lag behind.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Download,
    Sample,
    Reorder,
    Densify,
}

fn after<B: TrainDevice>(
    device: &mut B,
    (start, shot): (&Snapshot<Gaussians>, &Shot),
    deed: Deed,
) -> Snapshot<Gaussians> {
    let mut model = device.restore(start.clone()).unwrap();
    steps(device, &mut model, (shot, 1..=20));
    match deed {
        Deed::Download | Deed::Sample => {
            let rows: Vec<usize> = (0..start.parameters.len()).collect();
            let parameters = match deed {
                Deed::Sample => device.sample(&mut model, &rows).unwrap(),
                _ => device.download(&mut model).unwrap(),
            };
            return Snapshot { parameters, ..device.snapshot(&mut model).unwrap() };
        }
        Deed::Reorder => {
            let cube = Cube { centre: [0.3, 0.1, -2.0], half_side: 3.0 };
            device.reorder(&mut model, &cube).unwrap();
        }
        Deed::Densify => {
            let rule = DensifyRule {
                gradient_min: 0.02,
                small_max: 0.2,
                opacity_min: 0.005,
                iteration: 100,
                ..DensifyRule::ALL
            };
            let before = device.len(&model);
            let new_gaussians = score(device, &model, &rule).count();
            let done = densify(device, &mut model, &rule, new_gaussians).unwrap();
            assert!(
                new_gaussians > 20 && done.removed > 4,
                "{new_gaussians} born, {} removed",
                done.removed
            );
            assert_ne!(device.len(&model), before);
        }
    }
    // Equal further steps show that all rows are in their places.
    steps(device, &mut model, (shot, 21..=40));
    device.snapshot(&mut model).unwrap()
}

fn whatever_reads_or_moves_rows_lets_their_colours_catch_up<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 83);
    let shot = looking_ahead(&start.parameters);
    for deed in [Deed::Download, Deed::Sample, Deed::Reorder, Deed::Densify] {
        let [found, expected] = beside_oracle!(device, after(device, (&start, &shot), deed));
        assert_alike(&found, &expected, &format!("{deed:?}"));
    }
}

fn a_view_that_looks_where_no_other_did_sees_the_oracles_colours<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 84);
    let shot = looking_ahead(&start.parameters);
    let (back, look) = (looking_back(), settings(3, 8));
    let [(before, found), (_, expected)] = beside_oracle!(device, {
        let mut model = device.restore(start.clone()).unwrap();
        let before = shown(device, &model, &back, &look);
        steps(device, &mut model, (&shot, 1..=90));
        (before, shown(device, &model, &back, &look))
    });
    assert!(strays(&before, &found, |_| 5e-3) > 0, "the colours have moved");
    // Images agree within 1e-4 of colours of the order of 1; these are of the order of 10. A splat
    // at the cut of 1/255 changes a pixel by more, and few pixels are at a cut.
    let strays = strays(&found, &expected, |_| 1e-3);
    assert!(strays * 100 <= found.len(), "{strays} of {}", found.len());
    assert_near(&found, &expected, |_| 10.0 * 2.0 / 255.0, "value");
}

// Models pass between devices, through memory and through a checkpoint's file.

each_backend!(
    a_model_is_the_same_on_the_processor_and_here,
    a_model_goes_through_a_checkpoints_file_bit_for_bit,
    training_goes_on_the_same_way_after_a_change_of_device,
    every_row_of_a_model_of_any_size_comes_back,
    a_model_of_lower_degree_looks_like_one_with_zero_harmonics,
    any_range_of_rows_is_read,
    a_model_of_several_chunks_is_loaded_whole,
);

fn shots(gaussians: &Gaussians) -> Vec<Shot> {
    (0..3_u32)
        .map(|i| {
            let mut view = view();
            view.pose.translation[1] += 0.09 * f64::from(i) - 0.1;
            let shot = shot(gaussians, &view, settings(2, 5), (u64::from(20 + i), Counted::Clear));
            Shot { index: i as usize, ..shot }
        })
        .collect()
}

fn trained<B: TrainDevice>(device: &mut B) -> (B::Model, Vec<Shot>) {
    let gaussians = tame_gaussians(71, 19, 2);
    let shots = shots(&gaussians);
    let mut model = device.upload(&gaussians).unwrap();
    for (number, shot) in (1..=20).zip(shots.iter().cycle()) {
        step(device, &mut model, shot, (number, RATES));
    }
    (model, shots)
}

/// Through `first` to `second`: the same bits, and the same image within rounding.
fn assert_passes_on<A: TrainDevice, B: TrainDevice>(first: &mut A, second: &mut B) {
    let (mut model, shots) = trained(first);
    let snapshot = first.snapshot(&mut model).unwrap();
    assert!(snapshot.second_moments.groups().iter().all(|g| g.values.iter().any(|&v| v > 0.0)));
    assert!(snapshot.views_seen.contains(&20));
    let mut restored = second.restore(snapshot.clone()).unwrap();
    assert_same_bits(&second.snapshot(&mut restored).unwrap(), &snapshot);
    let downloaded = second.download(&mut restored).unwrap();
    assert_eq!(downloaded, snapshot.parameters);
    assert_images_agree(first, &downloaded, &shots[0].view, &shots[0].settings);
    assert_images_agree(second, &downloaded, &shots[0].view, &shots[0].settings);
}

fn assert_same_bits(found: &Snapshot<Gaussians>, expected: &Snapshot<Gaussians>) {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let optional = |s: &Snapshot<Gaussians>| [&s.absolute_norm_sums, &s.filter_3d].map(|v| bits(v));
    assert_eq!(rows(found), rows(expected));
    assert_eq!(optional(found), optional(expected));
}

fn a_model_is_the_same_on_the_processor_and_here<B: TrainDevice>(device: &mut B) {
    assert_passes_on(device, &mut Cpu::<f32>::new());
    assert_passes_on(&mut Cpu::<f32>::new(), device);
}

fn about() -> Checkpoint {
    let train_views = vec!["view.png".to_owned()];
    let config = Config::default();
    let (occasion, training_scale) = (Occasion::Requested, TrainingScale::FULL);
    Checkpoint { iteration: 20, config, train_views, occasion, training_scale, paced: None }
}

fn a_model_goes_through_a_checkpoints_file_bit_for_bit<B: TrainDevice>(device: &mut B) {
    let (mut model, _) = trained(device);
    let folder = tempfile::tempdir().unwrap();
    // Directly after the last step: a device may have postponed a part of it.
    let mut resident = DeviceModel { device: &mut *device, model: &mut model };
    let path = about().write(folder.path(), &mut resident, None).unwrap();
    let ply = folder.path().join("point_cloud.ply");
    write_point_cloud(&ply, RenderMode::default(), device, &mut model, &[]).unwrap();
    let snapshot = device.snapshot(&mut model).unwrap();
    assert_eq!(read_ply(&ply).unwrap(), as_in_a_ply(snapshot.parameters.clone()));
    let mut stored = StoredCheckpoint::open(&path).unwrap();
    let mut here = device.load(&mut stored).unwrap();
    assert_same_bits(&device.snapshot(&mut here).unwrap(), &snapshot);
    let mut processor = Cpu::<f32>::new();
    let mut there = processor.load(&mut stored).unwrap();
    assert_same_bits(&processor.snapshot(&mut there).unwrap(), &snapshot);
}

fn training_goes_on_the_same_way_after_a_change_of_device<B: TrainDevice>(device: &mut B) {
    let (mut model, shots) = trained(device);
    let mut oracle = Cpu::<f64>::new();
    let snapshot = device.snapshot(&mut model).unwrap();
    let mut elsewhere = oracle.restore(snapshot.clone()).unwrap();
    for (number, shot) in (21..=25).zip(&shots) {
        let here = step(device, &mut model, shot, (number, RATES)).total;
        let there = step(&mut oracle, &mut elsewhere, shot, (number, RATES)).total;
        // The masks kept the first step clear of cuts; a pixel in a hundred may part by one quantum.
        assert!((here - there).abs() < 4e-5, "step {number}: {here} here, {there} there");
    }
    // Moments of twenty steps outweigh rounding in the next gradients: nothing changes its sign.
    let here = device.snapshot(&mut model).unwrap();
    let there = oracle.snapshot(&mut elsewhere).unwrap();
    for ((here, there), rate) in paired(&here.parameters, &there.parameters).zip(EACH_RATE) {
        let strays = strays(here.values, there.values, |_| 0.05 * rate);
        assert!(strays * 50 <= here.values.len(), "{}: {strays} strays", here.name);
    }
    assert_eq!(here.views_seen, there.views_seen);
    assert_ne!(here.parameters, snapshot.parameters);
}

fn every_row_of_a_model_of_any_size_comes_back<B: TrainDevice>(device: &mut B) {
    // Around the blocks of 32 in which a device may keep its columns.
    let sizes = [0, 1, 31, 32, 33, 64, 1021, 1025];
    for (count, sh_degree) in sizes.into_iter().flat_map(|n| (0..=3).map(move |degree| (n, degree)))
    {
        let all = numbered(count, sh_degree);
        let mut model = device.restore(all.clone()).unwrap();
        assert_same_bits(&device.snapshot(&mut model).unwrap(), &all);
        let gaussians = all.parameters;
        let mut model = device.upload(&gaussians).unwrap();
        assert_eq!(device.len(&model), count);
        assert_eq!(device.download(&mut model).unwrap(), gaussians);
        let backwards: Vec<usize> = (0..count).rev().collect();
        let sample = device.sample(&mut model, &backwards).unwrap();
        let last = &gaussians.means[count.saturating_sub(1) * 3..];
        assert_eq!(&sample.means[..last.len()], last);
        assert_eq!(sample.sh_rest.len(), gaussians.sh_rest.len());
        let snapshot = device.snapshot(&mut model).unwrap();
        let zeros = Gaussians::zeros(sh_degree, count);
        assert_eq!(snapshot.parameters, gaussians);
        assert_eq!((&snapshot.first_moments, &snapshot.second_moments), (&zeros, &zeros));
        assert_eq!(snapshot.gradient_norm_sums, vec![0.0; count]);
        assert_eq!(snapshot.views_seen, vec![0; count]);
    }
}

/// Every value different from those around it, and from those in the same place of other chunks.
fn numbered(count: usize, sh_degree: u32) -> Snapshot<Gaussians> {
    let mut value = 0_u16;
    let mut next = || {
        // A prime: what is a power of two apart is not alike.
        value = (value + 1) % 65_521;
        f32::from(value) - 3e4
    };
    let mut fill = || {
        let mut host = Gaussians::zeros(sh_degree, count);
        host.groups_mut().into_iter().flatten().for_each(|v| *v = next());
        host
    };
    Snapshot {
        parameters: fill(),
        first_moments: fill(),
        second_moments: fill(),
        gradient_norm_sums: (0..count).map(|_| next()).collect(),
        views_seen: (0..count).map(|row| u32::try_from(row).unwrap() + 5).collect(),
        absolute_norm_sums: (0..count).map(|_| next()).collect(),
        filter_3d: (0..count).map(|_| next()).collect(),
    }
}

fn any_range_of_rows_is_read<B: TrainDevice>(device: &mut B) {
    let mut all = numbered(1021, 2);
    let mut model = device.restore(all.clone()).unwrap();
    for rows in [0..1021, 0..1, 31..33, 32..64, 33..97, 992..1021, 1020..1021, 500..500, 1021..1021]
    {
        let expected = all.read(rows.clone()).unwrap();
        assert_same_bits(&device.read(&mut model, rows.clone()).unwrap(), &expected);
        let parameters = device.read_parameters(&mut model, rows).unwrap();
        assert_eq!(parameters, expected.parameters);
    }
    for rows in [0..1022, 1021..1022, 2000..2001] {
        let error = device.read(&mut model, rows.clone()).unwrap_err();
        assert!(matches!(error, DeviceError::NoSuchRow { len: 1021, .. }), "{rows:?}: {error}");
        assert!(device.read_parameters(&mut model, rows).is_err());
    }
}

fn a_model_of_several_chunks_is_loaded_whole<B: TrainDevice>(device: &mut B) {
    let count = 2 * CHUNK_ROWS + 33;
    let mut all = numbered(count, 1);
    let mut model = device.load(&mut all).unwrap();
    assert_eq!(device.len(&model), count);
    for rows in chunks(count) {
        let expected = all.read(rows.clone()).unwrap();
        assert_same_bits(&device.read(&mut model, rows).unwrap(), &expected);
    }
    assert_same_bits(&device.snapshot(&mut model).unwrap(), &all);
}

fn a_model_of_lower_degree_looks_like_one_with_zero_harmonics<B: TrainDevice>(device: &mut B) {
    let (mut model, shots) = trained(device);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = device.snapshot(&mut model).unwrap();
    let path = about().write(folder.path(), &mut whole.clone(), None).unwrap();
    let mut stored = StoredCheckpoint::open(&path).unwrap();
    stored.lower_sh_degree(1).unwrap();
    let lower = device.load(&mut stored).unwrap();
    // Degree 2 has eight coefficients above the constant one; three are of degree 1.
    for row in whole.parameters.sh_rest.chunks_exact_mut(24) {
        assert!(row[9..].iter().any(|&value| value != 0.0));
        row[9..].fill(0.0);
    }
    let zeroed = device.restore(whole).unwrap();
    for shot in &shots {
        let mut draw = |model: &B::Model, sh_degree| {
            shown(device, model, &shot.view, &DrawSettings { sh_degree, ..shot.settings })
        };
        let (lower, zeroed) = (draw(&lower, 1), draw(&zeroed, 2));
        // Adding zeros changes nothing but, where sums are rounded in another order, the last place.
        assert_near(&lower, &zeroed, |_| 1e-6, "value");
    }
}

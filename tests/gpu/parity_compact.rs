//! Models that keep their state compact: what goes in comes out to the precision of its words, steps
//! are those of full precision up to rounding, and rounding adds up to nothing.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use std::ops::RangeInclusive;

use splat::layout::GAUSSIANS;
use splat::math::compact::{
    NEAREST, QUOTIENT_MAX, decode_bfloat, decode_half, encode_bfloat, encode_half,
};
use splat::memory::plan::{ModelSize, OptionalColumns};

use crate::common::cuda::{
    assert_same_rows, colors, half_step, held, image, largest_difference, snapshot, uneven,
};
use crate::prelude::*;
use crate::support;

/// Largest sum of the sizes of the sixteen basis functions, whose squares add up to 16 / 4π.
const BASIS: f32 = 4.6;

/// Sizes around whole lane blocks, and one that is odd.
const SIZES: [usize; 5] = [0, 1, 32, 33, 1021];

fn size(gaussians: u64, sh_degree: u32, storage: Storage) -> ModelSize {
    let optional = OptionalColumns::NONE;
    ModelSize { gaussians, schema: &GAUSSIANS, sh_degree, storage, optional }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_takes_what_the_plan_says() {
    for (count, sh_degree) in [(1, 0), (33, 1), (1021, 2), (1024, 3)] {
        let mut device = compact();
        let model = device.upload(&tame_gaussians(count, 3, sh_degree)).unwrap();
        assert_eq!(model.storage(), Storage::Compact);
        let size = size(count as u64, sh_degree, Storage::Compact);
        let regions = device.entries().into_iter().filter(|e| e.kind == MemoryKind::Region);
        let held: Vec<_> = regions.map(|entry| (entry.label, entry.bytes)).collect();
        // Columns that a model may lack are not held while it lacks them.
        for row in size.regions().iter().filter(|row| row.bytes > Bytes(0)) {
            assert!(held.contains(&(row.label, row.bytes)), "{row:?} is not in {held:?}");
        }
        let [parameters, others] = device.model_bytes(&model);
        assert_eq!(Bytes(parameters.0 + others.0), size.bytes());
    }
    let million = |storage| size(1 << 20, 3, storage).bytes().0 / (1 << 20);
    let storages = [Storage::Full, Storage::HalfColors, Storage::Compact];
    assert_eq!(storages.map(million), [716, 620, 320]);
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_downloads_what_was_uploaded_to_half_a_step() {
    let mut device = compact();
    for count in SIZES {
        for sh_degree in 0..=3 {
            let host = tame_gaussians(count, 5, sh_degree);
            let mut expected = host.clone();
            let nearest = |value: &mut f32| *value = decode_half(encode_half(*value, NEAREST), 1);
            expected.sh_dc.iter_mut().for_each(nearest);
            expected.sh_rest.iter_mut().for_each(nearest);
            let mut model = device.upload(&host).unwrap();
            let found = device.download(&mut model).unwrap();
            assert_eq!(found, expected, "{count} of degree {sh_degree}");
            let half = |value: f64| f64::from(half_step(value as f32)) / 2.0;
            assert_near(&colors(&found).concat(), &colors(&host).concat(), half, "colour");
            let rows: Vec<usize> = (0..count).rev().collect();
            let sample: Gaussians = device.sample(&mut model, &rows).unwrap();
            let backwards = rows.iter().flat_map(|row| expected.sh_dc[row * 3..][..3].to_vec());
            assert_eq!(sample.sh_dc, backwards.collect::<Vec<_>>());
            let zeros = Gaussians::zeros(sh_degree, count);
            let after: Snapshot<Gaussians> = device.snapshot(&mut model).unwrap();
            assert_eq!([&after.first_moments, &after.second_moments], [&zeros, &zeros]);
        }
    }
}

/// Longer than the memory that rows are packed in.
#[test]
#[ignore = "needs a CUDA device"]
fn moments_are_restored_to_code_precision_and_then_bit_for_bit() {
    let mut sizes: Vec<(usize, u32)> = SIZES.map(|count| (count, 3)).to_vec();
    sizes.extend([(70, 0), (70, 1), (70, 2), (50_003, 3)]);
    for (count, sh_degree) in sizes {
        let start = uneven(count, sh_degree, 7);
        let found = held(&start);
        let geometry = |part: &Gaussians| {
            [&part.means[..], &part.log_scales, &part.quats, &part.opacity_logits].concat()
        };
        assert_eq!(geometry(&found.parameters), geometry(&start.parameters));
        assert_eq!(geometry(&found.second_moments), geometry(&start.second_moments));
        let rounded = |start: f32| decode_bfloat(encode_bfloat(start, NEAREST), 1);
        let expected = geometry(&start.first_moments).into_iter().map(rounded);
        assert!(geometry(&found.first_moments).into_iter().eq(expected), "{count} rows");
        let parts = [
            (&found.first_moments, &start.first_moments, -18),
            (&found.second_moments, &start.second_moments, -34),
        ];
        for (found, start, least) in parts {
            for (row, (found, start)) in colors(found).iter().zip(colors(start)).enumerate() {
                // No scale is more than 16/8 times the largest.
                let most = start.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
                let least = f64::from(2.0 * most * 2.0_f32.powi(least));
                let half = |value: f64| 0.5001 * (value.abs() / 8.0).max(least);
                let what = format_args!("{count} rows of degree {sh_degree}, row {row}, {most}:");
                assert_near(found, &start, half, what);
            }
        }
        assert_eq!(found.views_seen, start.views_seen);
        assert_same_rows(&held(&found), &found, &format!("{count} rows again"));
    }
}

fn shot_of(index: usize, view: &View) -> Shot {
    noisy_shot(index, view, settings(3, 8))
}

/// A model after 24 steps of full precision over two views.
fn trained() -> ([Shot; 2], Snapshot<Gaussians>) {
    let shots = [shot_of(0, &view()), shot_of(1, &straight())];
    let mut device = full();
    let mut model = device.upload(&tame_gaussians(60, 61, 3)).unwrap();
    for (number, shot) in (1..=24).zip(shots.iter().cycle()) {
        step(&mut device, &mut model, shot, (number, RATES));
    }
    let trained = snapshot(&mut device, &mut model);
    (shots, trained)
}

/// Restores a snapshot and takes the 25th step over a view.
fn step_from(start: &Snapshot<Gaussians>, device: &mut Cuda, shot: &Shot) -> Snapshot<Gaussians> {
    changed(device, start, |device, model| step(device, model, shot, (25, RATES))).1
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_step_is_that_of_full_precision_up_to_rounding() {
    let (shots, trained) = trained();
    let start = held(&trained);
    let after = |mut device| step_from(&start, &mut device, &shots[0]);
    let (found, expected) = (after(compact()), after(full()));
    // Of the order of summation alone, which differs from run to run, gradients differ by a millionth
    // of their largest terms.
    assert_mostly_near(&found, &expected, |part, column, value| match (part, column) {
        // Colours, and their moments, which are codes, are compared below.
        (_, 4..) => f32::INFINITY,
        (0, _) => 1e-4 * value.abs() + 1e-7,
        // First moments are rounded to neighbours, which are a 128th apart at most.
        (1, _) => value.abs() / 128.0 + 1e-8,
        _ => 1e-3 * value.abs() + 1e-14,
    });
    let [flat, exact] = [&found, &expected].map(|after| colors(&after.parameters).concat());
    // A step of half precision, and a hundredth of the rate for what was held in bounds.
    let strays = strays(&flat, &exact, |value| f64::from(half_step(value as f32)) + 6e-5);
    assert!(strays * 100 <= flat.len(), "colours: {strays} of {}", flat.len());
    let parts = [
        (&found.first_moments, &expected.first_moments, -18),
        (&found.second_moments, &expected.second_moments, -34),
    ];
    for (found, expected, least) in parts {
        let rows = colors(found).into_iter().zip(colors(expected));
        let strays = rows.map(|(found, expected)| {
            let most = expected.iter().fold(0.0_f32, |a, b| a.max(b.abs()));
            // Whole steps, which are larger where the scale is far above all values.
            let least = f64::from(32.0 * most * 2.0_f32.powi(least));
            support::strays(&found, &expected, |value| 1.01 * (value.abs() / 8.0).max(least))
        });
        let strays: usize = strays.sum();
        assert!(strays * 100 <= 60 * 48, "{strays} moments part");
    }
    assert_ne!(found.parameters.sh_rest, start.parameters.sh_rest);
}

fn photograph(gaussians: &Gaussians, view: &View) -> Arc<Image> {
    let mut device = full();
    let model = device.upload(gaussians).unwrap();
    let byte = |value: f32| (value.clamp(0.0, 1.0) * 255.0).round();
    #[expect(clippy::cast_sign_loss, reason = "held above 0")]
    let rgb = image(&mut device, &model, view).into_iter().map(|v| byte(v) as u8).collect();
    support::image([view.camera.width, view.camera.height], rgb)
}

/// The mean over all values of all rounding errors: were rounding biased, it would add up over the
/// steps and the values; unbiased, it averages out.
#[test]
#[ignore = "needs a CUDA device"]
fn over_many_steps_rounding_does_not_add_up() {
    let truth = tame_gaussians(200, 71, 3);
    let mut start = truth.clone();
    let mut draws = Draws::new(72);
    start.sh_dc.iter_mut().for_each(|value| *value += draws.uniform(-0.6, 0.2) as f32);
    let views = [view(), straight()];
    let shots: Vec<Shot> = views
        .iter()
        .enumerate()
        .map(|(index, view)| Shot { photo: photograph(&truth, view), ..shot_of(index, view) })
        .collect();
    let rates = Rates { sh_dc: 2.5e-3, sh_rest: 1.25e-4, ..AT_REST };
    let train = |device: &mut Cuda| {
        let mut model = device.upload(&start).unwrap();
        let mut losses = Vec::new();
        for (number, shot) in (1..=300).zip(shots.iter().cycle()) {
            losses.push(step(device, &mut model, shot, (number, rates)).total);
        }
        (device.download(&mut model).unwrap(), losses)
    };
    let (found, found_losses) = train(&mut compact());
    let (expected, expected_losses) = train(&mut full());
    let seen: Vec<usize> = (0..start.sh_dc.len())
        .filter(|&i| (expected.sh_dc[i] - start.sh_dc[i]).abs() > 0.02)
        .collect();
    assert!(seen.len() > 150, "only {} colours move", seen.len());
    let mean = |value: &dyn Fn(usize) -> f32| {
        seen.iter().map(|&i| f64::from(value(i))).sum::<f64>() / seen.len() as f64
    };
    let way = mean(&|i| (expected.sh_dc[i] - start.sh_dc[i]).abs());
    let drift = mean(&|i| found.sh_dc[i] - expected.sh_dc[i]);
    let spread = mean(&|i| (found.sh_dc[i] - expected.sh_dc[i]).powi(2)).sqrt();
    // Values whose gradients alternate part by chance; a mean of n of them by 1 / √n of that. A bias
    // of half a step of half precision, 2^-12 of the value a step, would be 0.07 after 300.
    let chance = 4.0 * spread / (seen.len() as f64).sqrt();
    assert!(drift.abs() < chance.max(1e-3), "{drift} of a way of {way}, {chance} by chance");
    assert!(drift.abs() < 0.01, "{drift}");
    assert!(spread < 0.25 * way, "{spread} of a way of {way}");
    let late = |losses: &[f64]| losses[250..].iter().sum::<f64>();
    let ratio = late(&found_losses) / late(&expected_losses);
    assert!((ratio - 1.0).abs() < 0.02, "losses are {ratio} of those of full precision");
}

/// All of the Gaussians, those behind the camera of [`straight`] first.
fn scene(count: usize) -> Gaussians {
    let hidden = support::hidden_gaussians();
    together(&hidden.chain([tame_gaussians(count, 81, 3)]).collect::<Vec<_>>())
}

/// In training, with moments that gradients can have left behind.
fn scene_in_training(seed: u64) -> Snapshot<Gaussians> {
    let mut start = in_training(scene(200), seed);
    start.first_moments.groups_mut().into_iter().flatten().for_each(|value| *value *= 0.1);
    start
}

/// [`scene_in_training`] as a compact model holds it, with no moment lost.
fn held_in_training(seed: u64) -> Snapshot<Gaussians> {
    let held = held(&scene_in_training(seed));
    let moments = [&held.first_moments, &held.second_moments];
    let lost = moments.map(|part| colors(part).concat().iter().filter(|&&m| m == 0.0).count());
    assert_eq!(lost, [0, 0], "moments lost on the way in");
    held
}

#[test]
#[ignore = "needs a CUDA device"]
fn rows_keep_their_colours_and_moments_where_they_are_moved() {
    let start = held_in_training(83);
    let rule = DensifyRule {
        gradient_min: 0.005,
        small_max: 0.2,
        opacity_min: 0.005,
        iteration: 100,
        ..DensifyRule::ALL
    };
    let (mut device, mut cpu) = (compact(), Cpu::<f32>::new());
    let mut model = device.restore(start.clone()).unwrap();
    let mut twin = cpu.restore(start).unwrap();
    let cube = Cube { centre: [0.3, 0.1, -2.0], half_side: 3.0 };
    device.reorder(&mut model, &cube).unwrap();
    cpu.reorder(&mut twin, &cube).unwrap();
    let mut expected: Snapshot<Gaussians> = cpu.snapshot(&mut twin).unwrap();
    assert_same_rows(&snapshot(&mut device, &mut model), &expected, "reorder");

    device.adjust(&mut model, &Adjust::ResetOpacity(0.3)).unwrap();
    cpu.adjust(&mut twin, &Adjust::ResetOpacity(0.3)).unwrap();
    expected = cpu.snapshot(&mut twin).unwrap();
    assert_same_rows(&snapshot(&mut device, &mut model), &expected, "lower opacities");

    let new_gaussians = score(&mut cpu, &twin, &rule).count();
    let done = densify(&mut device, &mut model, &rule, new_gaussians).unwrap();
    assert_eq!(done, densify(&mut cpu, &mut twin, &rule, new_gaussians).unwrap());
    assert!(done.copied > 20 && done.split > 20 && done.removed > 4, "{done:?}");
    expected = cpu.snapshot(&mut twin).unwrap();
    let mut found = snapshot(&mut device, &mut model);
    // Where children are placed, rounding differs.
    let means = std::mem::replace(&mut found.parameters.means, expected.parameters.means.clone());
    assert!(largest_difference(&means, &expected.parameters.means) < 1e-5);
    assert_same_rows(&found, &expected, "densify");
}

const COLORS: Rates = Rates { sh_dc: 5e-2, sh_rest: 6e-2, ..AT_REST };

/// Steps of these numbers, which see nothing of what is behind the camera.
fn look_ahead<B: TrainDevice>(device: &mut B, model: &mut B::Model, numbers: RangeInclusive<u32>) {
    let mut shot = shot_of(0, &straight());
    shot.settings.pass = Pass::Train;
    for number in numbers {
        step(device, model, &shot, (number, COLORS));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn late_colours_are_drawn_as_they_will_be_after_catching_up() {
    let start = held_in_training(84);
    let back = looking_back();
    let mut device = compact();
    let mut model = device.restore(start).unwrap();
    let before = image(&mut device, &model, &back);
    look_ahead(&mut device, &mut model, 1..=90);
    let late = image(&mut device, &model, &back);
    let _: Gaussians = device.download(&mut model).unwrap();
    let caught_up = image(&mut device, &model, &back);
    let moved = largest_difference(&before, &late);
    assert!(moved > 0.01, "colours have moved by {moved}");
    // Coefficients are not above 2: each is rounded by a step of 2^-10 at most.
    let apart = largest_difference(&late, &caught_up);
    assert!(apart < BASIS * 2.0_f32.powi(-10), "{apart}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn colours_that_no_view_sees_move_on_as_the_oracles() {
    let start = held_in_training(85);
    for count in [1, 31, 127, 128, 300] {
        let device = &mut compact();
        let [found, expected] = beside_oracle!(
            device,
            changed(device, &start, |device, model| look_ahead(device, model, 1..=count)).1
        );
        // Sixty-four of the seventy behind the camera share no lane block with others.
        let of = |part: &Gaussians| colors(part)[..64].concat();
        let what = format_args!("{count} steps, value");
        // They were rounded at most three times, by a step each.
        let allowed = |value: f64| f64::from(3.0 * half_step(value.abs().max(0.1) as f32)) + 1e-5;
        assert_near(&of(&found.parameters), &of(&expected.parameters), allowed, what);
        // Codes do not change: scales are multiplied, and rounded to a two millionth.
        let parts = [
            (&found.first_moments, &expected.first_moments),
            (&found.second_moments, &expected.second_moments),
        ];
        for (found, expected) in parts {
            assert_near(&of(found), &of(expected), |value| 3e-5 * value.abs(), what);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_snapshot_of_a_compact_model_restores_to_the_same_image() {
    let start = held(&trained().1);
    for view in [view(), straight()] {
        let mut images = Vec::new();
        for storage in [Storage::Compact, Storage::Full] {
            let mut device = open_compact(storage);
            let mut model = device.restore(start.clone()).unwrap();
            images.push(image(&mut device, &model, &view));
            let again = snapshot(&mut device, &mut model);
            let model = device.restore(again).unwrap();
            images.push(image(&mut device, &model, &view));
        }
        for other in &images[1..] {
            assert!(largest_difference(&images[0], other) < 1e-6);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn rounding_differs_from_step_to_step_and_with_the_seed() {
    let (shots, trained) = trained();
    let start = held(&trained);
    let after = |seed: u64, number: u32| {
        let options = CudaOptions { storage: Storage::Compact, seed, ..CudaOptions::default() };
        let mut device = cuda::open_with(&options).unwrap();
        let mut model = device.restore(start.clone()).unwrap();
        step(&mut device, &mut model, &shots[0], (number, RATES));
        colors(&snapshot(&mut device, &mut model).parameters).concat()
    };
    let differ = |a: &[f32], b: &[f32]| a.iter().zip(b).filter(|(a, b)| a != b).count();
    let first = after(1, 3000);
    // All but what the order of summation changes is the same again.
    assert!(differ(&first, &after(1, 3000)) * 50 < first.len());
    for other in [after(2, 3000), after(1, 3001)] {
        assert!(differ(&first, &other) * 20 > first.len());
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_colour_that_16_bits_cannot_hold_is_reported() {
    let gaussians = tame_gaussians(40, 61, 3);
    let shot = shot_of(0, &straight());
    let mut device = compact();
    let mut model = device.upload(&gaussians).unwrap();
    step(&mut device, &mut model, &shot, (1, Rates { sh_dc: 6e4, ..AT_REST }));
    let _: Gaussians = device.download(&mut model).unwrap();
    let mut model = device.upload(&gaussians).unwrap();
    step(&mut device, &mut model, &shot, (1, Rates { sh_dc: 7e4, ..AT_REST }));
    let result: Result<Gaussians, DeviceError> = device.download(&mut model);
    let Err(DeviceError::NotFinite { group, value, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(group, "colour");
    assert!(value.is_infinite());
    // In full precision it is a number like others.
    let mut device = full();
    let mut model = device.upload(&gaussians).unwrap();
    step(&mut device, &mut model, &shot, (1, Rates { sh_dc: 7e4, ..AT_REST }));
    let _: Gaussians = device.download(&mut model).unwrap();
}

#[test]
#[ignore = "needs a CUDA device"]
fn quotients_of_moments_are_held_to_what_gradients_can_leave_behind() {
    let mut start = in_training(scene(1), 86);
    // Far more than Adam can have: a hundred over a root of one.
    start.first_moments.sh_dc.fill(100.0);
    start.first_moments.sh_rest.fill(0.0);
    start.second_moments.sh_dc.fill(1.0);
    start.second_moments.sh_rest.fill(1.0);
    let mut device = compact();
    let mut model = device.restore(start.clone()).unwrap();
    look_ahead(&mut device, &mut model, 1..=1);
    let moved = device.download(&mut model).unwrap().sh_dc[0] - start.parameters.sh_dc[0];
    // The first step: rate / (1 - beta_1) * sqrt(1 - beta_2), of a moment decayed once.
    let most = 5e-2 / 0.1 * 0.001_f32.sqrt() * 0.9 / 0.999_f32.sqrt() * QUOTIENT_MAX;
    assert!((moved + most).abs() < 1e-3, "{moved} instead of {most}");
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_living_model_turns_compact_in_place_and_back() {
    // More lane blocks than a piece of the conversion's scratch holds.
    for count in [33, 100_003] {
        let start = uneven(count, 3, 91);
        let expected = held(&start);
        let mut device = full();
        let mut model = device.restore(start.clone()).unwrap();
        let before = image(&mut device, &model, &view());
        let was = device.model_bytes(&model);
        let mapped = |device: &mut Cuda| -> u64 {
            let regions = device.entries().into_iter().filter(|e| e.kind == MemoryKind::Region);
            regions.map(|entry| entry.mapped.0).sum()
        };
        let mapped_before = mapped(&mut device);
        let freed = device.compact(&mut model).unwrap();
        assert_eq!(model.storage(), Storage::Compact);
        assert_eq!(mapped(&mut device) + freed.0, mapped_before);
        let is = device.model_bytes(&model);
        let less = was[0].0 + was[1].0 - is[0].0 - is[1].0;
        assert_eq!(less, 396 * count.next_multiple_of(32) as u64);
        // Blocks are up to a 32nd of a region, and granules are 2 MiB.
        assert!(freed.0 + less / 8 + (12 << 20) > less, "{freed:?} of {less}");
        assert_same_rows(&snapshot(&mut device, &mut model), &expected, "compact");
        let apart = largest_difference(&before, &image(&mut device, &model, &view()));
        assert!(apart < BASIS * 2.0_f32.powi(-11), "{apart}");
        assert_eq!(device.compact(&mut model).unwrap(), Bytes(0));

        device.expand(&mut model).unwrap();
        assert_eq!(model.storage(), Storage::Full);
        assert_eq!(device.model_bytes(&model), was);
        assert_same_rows(&snapshot(&mut device, &mut model), &expected, "expand");
    }
}

/// Colours that were left behind in one storage catch up before they are in the other, and training goes on there.
#[test]
#[ignore = "needs a CUDA device"]
fn training_goes_on_through_both_conversions() {
    let start = held_in_training(87);
    let run = |turns: bool| {
        let mut device = full();
        let mut model = device.restore(start.clone()).unwrap();
        look_ahead(&mut device, &mut model, 1..=20);
        if turns {
            device.compact(&mut model).unwrap();
        }
        look_ahead(&mut device, &mut model, 21..=40);
        if turns {
            device.expand(&mut model).unwrap();
        }
        look_ahead(&mut device, &mut model, 41..=60);
        snapshot(&mut device, &mut model)
    };
    let (found, expected) = (run(true), run(false));
    let of = |s: &Snapshot<Gaussians>| colors(&s.parameters)[..64].concat();
    // Values were rounded three times, moments never: they had decayed since they were codes.
    let allowed = |value: f64| f64::from(3.0 * half_step(value.abs().max(0.1) as f32)) + 1e-4;
    assert_near(&of(&found), &of(&expected), allowed, "value");
}

// Models with colours in 16 bits: what goes in comes out, and steps are those of full precision up to the
// rounding of colours.

fn half() -> Cuda {
    open_compact(Storage::HalfColors)
}

fn half_held(start: &Snapshot<Gaussians>) -> Snapshot<Gaussians> {
    changed(&mut half(), start, |_, _| ()).1
}

/// Asserts that at most one value in a hundred is further apart than the tolerance, which goes by part and column.
fn assert_mostly_near(
    found: &Snapshot<Gaussians>,
    expected: &Snapshot<Gaussians>,
    tolerance: impl Fn(usize, usize, f32) -> f32,
) {
    for (at, (part, found, expected)) in paired_parts(found, expected).enumerate() {
        // Each part has six columns.
        let allowed = |value: f64| f64::from(tolerance(part, at % 6, value as f32));
        let strays = strays(found.values, expected.values, allowed);
        assert!(strays * 100 <= found.values.len(), "part {part} of {}: {strays}", found.name);
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn colours_come_back_to_half_a_step_and_all_else_bit_for_bit() {
    for (count, sh_degree) in [(0, 3), (1, 0), (33, 1), (70, 2), (1021, 3)] {
        let start = uneven(count, sh_degree, 7);
        let found = half_held(&start);
        assert_eq!(found.first_moments, start.first_moments, "{count} of degree {sh_degree}");
        assert_eq!(found.second_moments, start.second_moments, "{count} of degree {sh_degree}");
        assert_eq!(found.parameters.means, start.parameters.means);
        assert_eq!(found.parameters.opacity_logits, start.parameters.opacity_logits);
        let [colours, exact] = [&found, &start].map(|s| colors(&s.parameters).concat());
        let half = |value: f64| f64::from(half_step(value as f32)) / 2.0;
        assert_near(&colours, &exact, half, "colour");
        assert_same_rows(&half_held(&found), &found, &format!("{count} rows again"));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_step_is_that_of_full_precision_up_to_the_rounding_of_colours() {
    let (shots, trained) = trained();
    let start = half_held(&trained);
    let after = |mut device| step_from(&start, &mut device, &shots[0]);
    let (found, expected) = (after(half()), after(full()));
    // The order of summation differs from run to run.
    assert_mostly_near(&found, &expected, |part, column, value| match (part, column) {
        (0, 4..) => half_step(value) + 1e-6,
        (0, _) => 1e-4 * value.abs() + 1e-7,
        (1, _) => 1e-3 * value.abs() + 1e-8,
        _ => 1e-3 * value.abs() + 1e-14,
    });
    assert_ne!(found.parameters.sh_rest, start.parameters.sh_rest);
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_model_with_half_colours_draws_as_any_and_turns_compact_and_back() {
    let start = half_held(&uneven(1021, 3, 91));
    let mut device = half();
    let mut model = device.restore(start.clone()).unwrap();
    let drawn = image(&mut device, &model, &view());
    let mut other = full();
    let twin = other.restore(start.clone()).unwrap();
    assert!(largest_difference(&drawn, &image(&mut other, &twin, &view())) < 1e-6);

    device.compact(&mut model).unwrap();
    assert_eq!(model.storage(), Storage::Compact);
    // Colours stay as they are.
    let found = snapshot(&mut device, &mut model);
    assert_eq!(found.parameters, start.parameters);
    assert!(largest_difference(&drawn, &image(&mut device, &model, &view())) < 1e-6);
    device.expand(&mut model).unwrap();
    assert_eq!(model.storage(), Storage::Full);
    assert_same_rows(&snapshot(&mut device, &mut model), &found, "expanded");
}

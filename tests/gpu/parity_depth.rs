//! Inverse depths and absolute gradients of every device against the CPU backend in double precision.

use splat::backend::NOT_SEEN;
use splat::math::linalg::{dot, mul_transposed, sub};

use crate::common::oracle::DEPTH_WEIGHT;
use crate::prelude::*;
use crate::support::with_depth_noise;

each_backend!(
    maps_agree_with_the_oracle,
    images_are_the_same_with_maps_and_without,
    losses_and_gradients_of_inverse_depths_agree_with_the_oracle,
    lists_of_several_chunks_agree_with_the_oracle,
    a_view_without_a_map_has_the_loss_of_its_colours_alone,
    absolute_gradients_agree_with_the_oracle,
    what_is_near_tells_by_the_square_of_its_depth,
);

fn with_depths(settings: DrawSettings) -> DrawSettings {
    DrawSettings { inverse_depth: true, ..settings }
}

fn shot_with_depths(
    gaussians: &Gaussians,
    view: &View,
    settings: DrawSettings,
    (seed, counted): (u64, Counted),
) -> Shot {
    let shot = shot(gaussians, view, with_depths(settings), (seed, counted));
    with_depth_noise(shot, gaussians, seed + 50)
}

fn maps_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // Pass, inverse depths and surfaces.
    let cases = [
        (Pass::Eval, true, false),
        (Pass::Train, true, false),
        (Pass::Eval, false, true),
        (Pass::Train, true, true),
    ];
    for (seed, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [15, 130], [203, 47]]) {
        let view = resized(&view(), size);
        for count in [0, 3, 40, 300] {
            let gaussians = tame_gaussians(count, seed, 3);
            for (pass, inverse_depth, surface) in cases {
                let drawing = DrawSettings { pass, inverse_depth, surface, ..settings(3, seed) };
                // Depth, x and y of the normal, and opacity of each pixel, or else its inverse depth.
                let [found, expected] = beside_oracle!(device, {
                    let model = device.upload(&gaussians).unwrap();
                    let drawn = drawn_either(device, &model, (&view, &drawing));
                    let map = if surface { drawn.surface } else { drawn.inverse_depths };
                    map.expect("it was asked for")
                });
                let clear = clear_pixels(&composite(&gaussians, &view, &drawing));
                // The tolerance of colours times depths of up to 4, or inverse depths of up to 3.
                let (width, tolerance) = if surface { (4, 4e-4) } else { (1, 3e-4) };
                assert_eq!(found.len(), clear.len() * width);
                for (pixel, _) in clear.iter().enumerate().filter(|&(_, &clear)| clear) {
                    let values = pixel * width..(pixel + 1) * width;
                    let what = format_args!("{size:?} px, {count}, {drawing:?}, pixel {pixel}");
                    assert_near(&found[values.clone()], &expected[values], |_| tolerance, what);
                }
            }
        }
    }
}

fn images_are_the_same_with_maps_and_without<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(300, 4, 3);
    let model = device.upload(&gaussians).unwrap();
    for pass in [Pass::Eval, Pass::Train, Pass::Picture] {
        let plain = DrawSettings { pass, ..settings(3, 4) };
        for beside in [with_depths(plain), DrawSettings { surface: true, ..plain }] {
            let [alone, with_map] =
                [plain, beside].map(|drawing| drawn_either(device, &model, (&view(), &drawing)));
            // Colours with a map take equal operations in equal order.
            assert_eq!(alone.rgb, with_map.rgb, "{beside:?}");
            assert_eq!(alone.blended, with_map.blended, "{beside:?}");
            let is_drawn = pass != Pass::Picture;
            let maps = |of: &Rendered| [of.inverse_depths.is_some(), of.surface.is_some()];
            assert_eq!(maps(&alone), [false; 2], "{beside:?}");
            let expected = [beside.inverse_depth && is_drawn, beside.surface && is_drawn];
            assert_eq!(maps(&with_map), expected, "{beside:?}");
        }
    }
}

fn losses_and_gradients_of_inverse_depths_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 1), (8, 2), (60, 3), (200, 4)] {
        for counted in [Counted::Clear, Counted::Some] {
            let gaussians = tame_gaussians(count, seed, 3);
            let shot = shot_with_depths(&gaussians, &view(), settings(3, seed), (seed, counted));
            let what = format!("{count} Gaussians, {counted:?}");
            let found = assert_first_steps_agree(device, &gaussians, &shot, &what).loss;
            let depth_l1 = found.depth_l1.expect("the view has a map");
            let colours = 0.8 * found.l1 + 0.2 * (1.0 - found.ssim);
            assert!((found.total - colours - DEPTH_WEIGHT * depth_l1).abs() < 1e-9, "{found:?}");
            assert!(depth_l1 > 0.05, "{what}: {depth_l1} says nothing");
        }
    }
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [11, 11], [17, 33], [65, 18]]) {
        let (gaussians, shot) = clear_shot(size, seed, with_depths(settings(3, seed)));
        let shot = with_depth_noise(shot, &gaussians, seed + 50);
        assert_first_steps_agree(device, &gaussians, &shot, &format!("{size:?} px"));
    }
}

fn lists_of_several_chunks_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // 256 instances are a chunk: this is two of them and a part.
    let depths = (0..600).map(|i| 1.0 + 4e-3 * i as f32);
    let gaussians = layers(depths, 9, (0.9, 0.009, 0.2), None);
    let view = resized(&straight(), [37, 21]);
    let shot = shot_with_depths(&gaussians, &view, settings(3, 6), (6, Counted::All));
    let step = assert_first_steps_agree(device, &gaussians, &shot, "600 layers");
    assert!(step.snapshot.views_seen.iter().all(|&seen| seen == 1));
}

fn a_view_without_a_map_has_the_loss_of_its_colours_alone<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 12, 3);
    let mut plain = shot(&gaussians, &view(), settings(3, 12), (12, Counted::Clear));
    let before = FirstStep::taken_by(device, &gaussians, &plain);
    // A frame with a map that is compared before leaves nothing behind for the next.
    let deep = shot_with_depths(&gaussians, &view(), settings(3, 12), (12, Counted::Clear));
    FirstStep::taken_by(device, &gaussians, &deep);
    plain.settings.inverse_depth = true;
    let requested = FirstStep::taken_by(device, &gaussians, &plain);
    assert_eq!(requested.loss.depth_l1, None);
    // Sums of pixels in any order.
    assert!((requested.loss.total - before.loss.total).abs() < 1e-9);
    let moments = [&requested, &before].map(|step| &step.snapshot.first_moments.means);
    assert_near(moments[0], moments[1], |value| 1e-4 * value.abs().max(1e-4), "moment");
    // And where nobody compares the map that there is.
    let target = device.target(0, &deep.photo).unwrap();
    let model = device.upload(&gaussians).unwrap();
    let frame = device.draw(&model, &deep.view, &deep.settings).unwrap();
    let (_, loss) = device.compare(&model, frame, &target, &deep.terms).unwrap();
    assert_eq!(loss.read().unwrap().get("depth_l1"), None);
}

/// Views from two sides, with the statistics that are asked for.
fn two_shots(gaussians: &Gaussians, statistics: Statistics, depths: bool) -> Vec<Shot> {
    let views = [view(), straight()];
    let numbered = |(index, view): (usize, &View)| {
        let seed = index as u64;
        let settings = DrawSettings { statistics, ..settings(3, seed) };
        let made = if depths { shot_with_depths } else { shot };
        Shot { index, ..made(gaussians, view, settings, (seed, Counted::Clear)) }
    };
    views.iter().enumerate().map(numbered).collect()
}

fn absolute_gradients_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 41), (90, 42), (250, 43)] {
        let gaussians = tame_gaussians(count, seed, 3);
        for depths in [false, true] {
            let mut sums = Vec::new();
            for statistics in [
                Statistics::Norms,
                Statistics::AbsoluteNorms,
                Statistics::Both,
                Statistics::Disagreement,
            ] {
                let shots = two_shots(&gaussians, statistics, depths);
                let [found, expected] = beside_oracle!(device, {
                    let mut model = observed(device, &gaussians, &shots);
                    device.snapshot(&mut model).unwrap()
                });
                let what = format!("{count} Gaussians, {statistics:?}, {depths}");
                let (found_sums, sums_there) =
                    (&found.absolute_norm_sums, statistics == Statistics::Both);
                assert_eq!(found_sums.len(), if sums_there { count } else { 0 }, "{what}");
                assert_sums_agree(found_sums, &expected.absolute_norm_sums, 1e-3, &what);
                let norms = (&found.gradient_norm_sums, &expected.gradient_norm_sums);
                // A square has twice the relative error of its root, and sums cancel where the pixels hardly
                // disagree.
                let relative = if statistics == Statistics::Disagreement { 1e-2 } else { 1e-3 };
                assert_sums_agree(norms.0, norms.1, relative, &what);
                sums.push(found);
            }
            // One norm is of sums that cancel, the other is not, and a sum of sides exceeds both.
            let (mut cancelling, mut seen) = (0, 0);
            for i in 0..count {
                let norm = sums[0].gradient_norm_sums[i];
                let absolute = sums[1].gradient_norm_sums[i];
                let sides = sums[2].absolute_norm_sums[i];
                assert!(norm <= absolute * 1.001 && absolute <= sides * 1.001, "Gaussian {i}");
                seen += usize::from(absolute > 0.0);
                cancelling += usize::from(norm < 0.9 * absolute);
            }
            assert!(cancelling * 2 > seen || count == 1, "{cancelling} of {seen} cancel");
            assert!(seen > 10 || count == 1, "only {seen} are seen");
        }
    }
}

/// Sums of absolute values hardly depend on the order of their terms: twice the same view tells twice
/// the same but for single precision, and what fades is their share to within it.
fn what_is_near_tells_by_the_square_of_its_depth<B: TrainDevice>(device: &mut B) {
    const FADE_DEPTH: f64 = 1.5;
    let gaussians = tame_gaussians(250, 44, 3);
    let pose = view().pose;
    let mut observed = |statistics, fade_depth| {
        let settings = DrawSettings { statistics, fade_depth, ..settings(3, 7) };
        let shots = [shot(&gaussians, &view(), settings, (7, Counted::Clear))];
        let mut model = observed(device, &gaussians, &shots);
        let snapshot = device.snapshot(&mut model).unwrap();
        let is_both = statistics == Statistics::Both;
        if is_both { snapshot.absolute_norm_sums } else { snapshot.gradient_norm_sums }
    };
    for statistics in [Statistics::AbsoluteNorms, Statistics::Both] {
        let (all, faded) = (observed(statistics, 0.0), observed(statistics, FADE_DEPTH));
        let (mut near, mut far) = (0, 0);
        for (row, (&all, &faded)) in all.iter().zip(&faded).enumerate() {
            let mean = [0, 1, 2].map(|axis| f64::from(gaussians.means[row * 3 + axis]));
            let depth = dot(pose.rotation[2], mean) + pose.translation[2];
            let share = (depth / FADE_DEPTH).min(1.0).powi(2);
            let (all, faded) = (f64::from(all), f64::from(faded));
            assert!((faded - share * all).abs() <= 1e-4 * share * all, "{row}: {faded:e}, {all:e}");
            if all > 0.0 {
                *(if share < 1.0 { &mut near } else { &mut far }) += 1;
            }
        }
        assert!(near > 10 && far > 10, "{near} near, {far} far");
    }
}

// Median depths, and the light that passes to places: every device against the CPU backend in double precision.

each_backend!(
    half_of_the_light_passes_to_the_median_depths,
    light_that_passes_to_places_agrees_with_the_oracle,
    a_wall_is_seen_before_its_middle,
    what_a_view_does_not_see_has_no_transmittance,
);

/// A Gaussian that a ray barely meets counts or not, by rounding: one step of 8 bits.
const BARELY_MET: f32 = 0.005;

fn medians<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, view: &View) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    let drawing = DrawSettings { median: true, ..DrawSettings::DEFAULT };
    drawn_either(device, &model, (view, &drawing)).median_depths.expect("they were asked for")
}

fn transmittances<B: TrainDevice>(
    device: &mut B,
    (gaussians, view): (&Gaussians, &View),
    places: &[[f32; 3]],
) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    device.transmittances(&model, view, &DrawSettings::DEFAULT.settings(), places).unwrap()
}

/// The point that a pixel shows at a depth, world space.
fn place(view: &View, pixel: usize, depth: f64) -> [f32; 3] {
    let width = view.camera.width as usize;
    let at_px = [pixel % width, pixel / width].map(|at| at as f64 + 0.5);
    let [x, y] =
        [0, 1].map(|axis| (at_px[axis] - view.camera.centre_px[axis]) / view.camera.focal_px[axis]);
    let cam = [x * depth, y * depth, depth];
    mul_transposed(&view.pose.rotation, sub(cam, view.pose.translation)).map(|x| x.to_f32())
}

fn half_of_the_light_passes_to_the_median_depths<B: TrainDevice>(device: &mut B) {
    let mut with_depth = 0;
    for (seed, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [64, 50]]) {
        let view = resized(&straight(), size);
        for count in [0, 3, 40, 300] {
            let gaussians = tame_gaussians(count, seed, 3);
            let [found, expected] = beside_oracle!(device, medians(device, &gaussians, &view));
            assert_eq!(found.len(), (size[0] * size[1]) as usize);
            let oracle = &mut Cpu::<f64>::new();
            // Far behind all of them where there is no median.
            let depth = |depth: f32| if depth > 0.0 { f64::from(depth) } else { 1e4 };
            let places: Vec<[f32; 3]> =
                (0..found.len()).map(|pixel| place(&view, pixel, depth(found[pixel]))).collect();
            let passes = transmittances(oracle, (&gaussians, &view), &places);
            for (pixel, &passed) in passes.iter().enumerate() {
                let what = format!("{size:?} px, {count}, {pixel}: {} {passed}", found[pixel]);
                if found[pixel] > 0.0 {
                    with_depth += 1;
                    assert!((passed - 0.5).abs() < BARELY_MET, "{what}");
                } else {
                    assert!(passed > 0.5 - BARELY_MET || expected[pixel] <= 0.0, "{what}");
                }
            }
            let apart = strays(&found, &expected, |_| 1e-3);
            // A few rays barely meet one more, or lose their half where next to nothing is.
            assert!(apart * 50 <= found.len(), "{size:?} px, {count}: {apart} apart");
        }
    }
    assert!(with_depth > 1000, "{with_depth}");
}

fn light_that_passes_to_places_agrees_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [37, 29]);
    let mut draws = Draws::new(7);
    for count in [0, 3, 40, 300] {
        let gaussians = tame_gaussians(count, 5, 3);
        let places: Vec<[f32; 3]> =
            (0..2000).map(|_| draws.array::<3>(-1.0, 4.0).map(f64::to_f32)).collect();
        let [found, expected] =
            beside_oracle!(device, transmittances(device, (&gaussians, &view), &places));
        let what = format_args!("{count} Gaussians, place");
        assert_near(&found, &expected, |_| f64::from(BARELY_MET), what);
        assert!(transmittances(device, (&gaussians, &view), &[]).is_empty());
    }
}

fn a_wall_is_seen_before_its_middle<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [33, 33]);
    let mut wall = gaussian([0.0, 0.0, 2.0], 5.0, 0.95, [0.5; 3]);
    wall.log_scales[2] = 0.02_f32.ln();
    let found = medians(device, &wall, &view);
    // Depth at which the opacity of the wall is 3/4.
    let expected = 2.0 - 0.02 * (2.0_f32 * (0.95_f32 / 0.75).ln()).sqrt();
    let centre = found[16 * 33 + 16];
    assert!((centre - expected).abs() < 1e-4, "{centre} for {expected}");
    let behind = gaussian([0.0, 0.0, 3.0], 0.1, 0.9, [0.5; 3]);
    let both = medians(device, &together(&[wall, behind]), &view);
    assert!((both[16 * 33 + 16] - expected).abs() < 1e-4, "{}", both[16 * 33 + 16]);
}

fn what_a_view_does_not_see_has_no_transmittance<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [37, 29]);
    let gaussians = tame_gaussians(40, 5, 3);
    let places = [[0.0, 0.0, -1.0], [50.0, 0.0, 1.0], [0.0, -50.0, 1.0], [f32::NAN, 0.0, 1.0]];
    assert_eq!(transmittances(device, (&gaussians, &view), &places), [NOT_SEEN; 4]);
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn bands_give_the_medians_and_the_light_of_the_view_at_once() {
    let device = &mut cuda::open();
    let mut draws = Draws::new(8);
    for (seed, size) in (1..).zip([[203, 147], [37, 29], [64, 131], [1, 130], [16, 16]]) {
        let view = resized(&straight(), size);
        let gaussians = tame_gaussians(1500, seed, 3);
        let places: Vec<[f32; 3]> =
            (0..5000).map(|_| draws.array::<3>(-1.0, 4.0).map(f64::to_f32)).collect();
        let bits = |device: &mut _| -> Vec<u32> {
            let depths = medians(device, &gaussians, &view);
            let passes = transmittances(device, (&gaussians, &view), &places);
            depths.into_iter().chain(passes).map(f32::to_bits).collect()
        };
        device.set_bands(BandPolicy::Never);
        let whole = bits(device);
        for bands in [1, 2, 3, u32::MAX] {
            device.set_bands(BandPolicy::AtLeast(bands));
            assert!(bits(device) == whole, "{size:?} px, {bands} bands");
        }
    }
}

//! Requirements on the stages of every backend, as functions of a backend.

use std::slice::from_ref;

use proptest::prelude::*;
use splat::math::blend::{ALPHA_MIN, exponent};
use splat::math::splat::{Ellipse, Rect, Shape, Spans, TILE, bounds, project};

use crate::common::scene::{Pixel, viewpoint};
use crate::prelude::*;
use crate::support::image;

each_backend!(
    an_opaque_gaussian_hides_what_is_behind_it,
    a_gaussian_on_the_axis_lights_the_principal_point,
    what_the_near_plane_cuts_off_takes_neither_colour_nor_gradient,
    images_composite_every_gaussian_in_every_pixel,
    images_of_any_size_are_drawn_and_compared,
    the_first_step_of_adam_moves_every_parameter_by_its_rate,
    gaussians_that_are_not_seen_move_on_by_their_momentum,
    a_view_is_learnt_by_heart,
    a_model_of_no_gaussians_keeps_its_degree,
    a_sample_holds_the_asked_rows_in_their_order,
    reordered_rows_follow_their_keys_with_all_their_values,
    the_order_of_the_rows_does_not_show,
    what_the_mask_excludes_changes_nothing,
    metrics_are_of_the_clamped_image_under_the_mask,
);

const SETTINGS: DrawSettings = DrawSettings {
    pass: Pass::Observe,
    sh_degree: 3,
    background: [0.1, 0.2, 0.3],
    near: NEAR,
    ..DrawSettings::DEFAULT
};

fn draw<B: TrainDevice>(device: &mut B, gaussians: &Gaussians, view: &View) -> Rendered {
    let model = device.upload(gaussians).unwrap();
    let settings = DrawSettings { pass: Pass::Picture, ..SETTINGS };
    let frame = device.show(&model, view, &settings).unwrap();
    device.image(&frame).unwrap()
}

fn pixel(image: &Rendered, x: u32, y: u32) -> [f32; 3] {
    let at = (y * image.width + x) as usize * 3;
    [image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]]
}

fn an_opaque_gaussian_hides_what_is_behind_it<B: TrainDevice>(device: &mut B) {
    // Both are wide: at the principal point the first has the largest opacity, 0.99.
    let front = gaussian([0.0, 0.0, 1.0], 0.5, 0.9999, [1.0, 0.0, 0.0]);
    let behind = gaussian([0.0, 0.0, 2.0], 50.0, 0.9, [0.0, 0.0, 1.0]);
    let image = draw(device, &together(&[behind, front]), &straight());
    let [red, _, blue] = pixel(&image, 17, 15);
    // 0.99 of the first, 0.9 of the remaining hundredth of the second, the rest background. The
    // second is a thousand pixels wide: it falls by 1e-6 over the half pixel from its centre.
    assert!((red - (0.99 + 1e-3 * 0.1)).abs() < 1e-5, "{red}");
    assert!((blue - (0.009 + 1e-3 * 0.3)).abs() < 1e-5, "{blue}");
}

fn a_gaussian_on_the_axis_lights_the_principal_point<B: TrainDevice>(device: &mut B) {
    // Much smaller than a pixel: what is left is the dilation, symmetric around the centre.
    let image = draw(device, &gaussian([0.0, 0.0, 1.0], 1e-5, 0.9, [1.0; 3]), &straight());
    // The principal point (17.3, 15.9) lies in pixel (17, 15), whose centre is (17.5, 15.5).
    let weight = 0.9 * (-0.5_f32 * (0.2 * 0.2 + 0.4 * 0.4) / 0.3).exp();
    let expected = weight + (1.0 - weight) * 0.1;
    assert!((pixel(&image, 17, 15)[0] - expected).abs() < 1e-5);
    let brightest = (0..image.width * image.height)
        .max_by(|&a, &b| image.rgb[a as usize * 3].total_cmp(&image.rgb[b as usize * 3]))
        .unwrap();
    assert_eq!((brightest % image.width, brightest / image.width), (17, 15));
}

fn what_the_near_plane_cuts_off_takes_neither_colour_nor_gradient<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let first = gaussian([0.0, 0.0, 0.5], 0.1, 0.9, [1.0, 0.0, 0.0]);
    let second = gaussian([0.0, 0.0, 1.0], 0.1, 0.8, [0.0, 0.0, 1.0]);
    let both = together(&[first, second.clone()]);
    // Between the camera and the first, between the two, behind both.
    for (near, left) in [(0.49, both.clone()), (0.51, second), (1.01, Gaussians::zeros(3, 0))] {
        let settings = DrawSettings { near, ..SETTINGS };
        let expected = draw(device, &left, &view).rgb;
        let mut model = device.upload(&both).unwrap();
        let frame = device.draw(&model, &view, &settings).unwrap();
        assert!(device.image(&frame).unwrap().rgb == expected, "{near}");

        let shot = noisy_shot(0, &view, settings);
        step_over(device, &mut model, &[shot], &AdamStep::new(1, RATES));
        let after = device.snapshot(&mut model).unwrap();
        let seen = [0.5, 1.0].map(|depth| u32::from(depth > near));
        assert_eq!(after.views_seen, seen, "{near}");
        let moved = after.first_moments.opacity_logits.iter().map(|&m| u32::from(m != 0.0));
        assert!(moved.eq(seen), "{near}");
    }
}

fn images_composite_every_gaussian_in_every_pixel<B: TrainDevice>(device: &mut B) {
    for (count, seed) in [(1, 1), (20, 2), (200, 3), (200, 4)] {
        let gaussians = random_gaussians(count, seed);
        let image = draw(device, &gaussians, &view());
        let expected = composite(&gaussians, &view(), &SETTINGS);
        let pairs = image.rgb.as_chunks::<3>().0.iter().zip(&expected);
        let error = |(found, expected): (&[f32; 3], &Pixel)| {
            (0..3).map(|c| (f64::from(found[c]) - expected.rgb[c]).abs()).fold(0.0, f64::max)
        };
        let errors: Vec<f64> = pairs.map(error).collect();
        // 1e-4 is the noise of single precision over 200 layers. Where an opacity lies within
        // rounding of the cut at 1/255 or a pixel's transmittance of its end, precisions part by
        // one quantum at most: a few pixels in a thousand may.
        let largest = errors.iter().copied().fold(0.0, f64::max);
        let apart = errors.iter().filter(|&&error| error > 1e-4).count();
        assert!(apart * 200 <= errors.len(), "{count} Gaussians: {apart} pixels apart, {largest}");
        assert!(largest < 1.4 / 255.0, "{count} Gaussians: {largest} apart");
    }
}

fn images_of_any_size_are_drawn_and_compared<B: TrainDevice>(device: &mut B) {
    for (width, height) in [(1, 1), (1, 40), (16, 16), (17, 33), (300, 2)] {
        let mut view = straight();
        view.camera = view.camera.resized(width, height);
        let gaussians = random_gaussians(30, 5);
        let mut model = device.upload(&gaussians).unwrap();
        let frame = device.draw(&model, &view, &SETTINGS).unwrap();
        let image = device.image(&frame).unwrap();
        assert_eq!(image.rgb.len(), (width * height * 3) as usize);
        let target = device.target(0, &photo(width, height, None)).unwrap();
        let terms = Terms::photometric(0.2);
        let (frame, loss) = device.compare(&model, frame, &target, &terms).unwrap();
        assert!(loss.read().unwrap().total.is_finite());
        let mut gradients = Default::default();
        device.backward(&mut model, frame, None, &mut gradients).unwrap();
        device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();

        let other = device.target(0, &photo(width + 1, height, None)).unwrap();
        let frame = device.draw(&model, &view, &SETTINGS).unwrap();
        assert!(device.compare(&model, frame, &other, &terms).is_err());
    }
}

fn metrics_are_of_the_clamped_image_under_the_mask<B: TrainDevice>(device: &mut B) {
    let mut view = straight();
    view.camera = view.camera.resized(16, 12);
    let model = device.upload(&Gaussians::zeros(3, 0)).unwrap();
    let mut measured = |render: f32, photo: u8, mask: Option<Vec<u8>>| {
        let settings = DrawSettings { pass: Pass::Eval, background: [render; 3], ..SETTINGS };
        let frame = device.show(&model, &view, &settings).unwrap();
        let rgb = vec![photo; 576];
        let photo = Image { mask, ..Image::clone(&image([16, 12], rgb)) };
        let target = device.target(0, &Arc::new(photo)).unwrap();
        device.measure(&frame, &target).unwrap()
    };
    // 102/255 is 0.4 exactly in decimal; the rest is rounding in single precision.
    let found = measured(0.5, 102, None);
    assert!((found.mse - 0.01).abs() < 1e-8 && (found.l1 - 0.1).abs() < 1e-7, "{found:?}");
    // Both are flat: (2·0.5·0.4 + 1e-4) / (0.5² + 0.4² + 1e-4).
    assert!((found.ssim - 0.4001 / 0.4101).abs() < 1e-5, "{found:?}");
    let found = measured(1.7, 255, None);
    assert!(found.mse == 0.0 && found.l1 == 0.0 && (found.ssim - 1.0).abs() < 1e-6, "{found:?}");
    let mut mask = vec![255; 192];
    mask[..96].fill(0);
    // Half the pixels keep their error of 0.1.
    let found = measured(0.5, 102, Some(mask));
    assert!((found.mse - 0.005).abs() < 1e-8 && (found.l1 - 0.05).abs() < 1e-7, "{found:?}");
    let frame = device.show(&model, &view, &SETTINGS).unwrap();
    let other = device.target(0, &photo(17, 12, None)).unwrap();
    assert!(device.measure(&frame, &other).is_err());
}

fn step_once<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    view: &View,
    target: &Arc<Image>,
    number: u32,
) -> f64 {
    let photo = Arc::clone(target);
    let shot = Shot { photo, ..noisy_shot(0, view, SETTINGS) };
    step_over(device, model, &[shot], &AdamStep::new(number, RATES))[0].total
}

fn the_first_step_of_adam_moves_every_parameter_by_its_rate<B: TrainDevice>(device: &mut B) {
    // With both moments corrected, the first step is rate · sign(gradient).
    let before = gaussian([0.1, -0.1, 1.0], 0.15, 0.6, [0.3, 0.6, 0.9]);
    let view = straight();
    let target = photo(view.camera.width, view.camera.height, None);
    let mut model = device.upload(&before).unwrap();
    step_once(device, &mut model, &view, &target, 1);
    let after = device.download(&mut model).unwrap();
    let rates = EACH_RATE.map(f64::to_f32);
    for ((before, after), rate) in paired(&before, &after).zip(rates) {
        // Isotropic, so that the rotation takes no gradient but rounding, which Adam scales up to
        // a whole step too: at most the rate.
        for (before, after) in before.values.iter().zip(after.values) {
            let moved = (after - before).abs();
            if after == before || rate == rates[2] {
                assert!(moved <= rate * 1.001, "moved by {moved}");
            } else {
                // Rounding of parameters of order 1 in single precision.
                assert!((moved - rate).abs() < 1e-6, "moved by {moved} instead of {rate}");
            }
        }
    }
    assert_ne!(before.means, after.means);
    assert_ne!(before.sh_rest, after.sh_rest);
}

fn gaussians_that_are_not_seen_move_on_by_their_momentum<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let target = photo(view.camera.width, view.camera.height, None);
    let mut model = device.upload(&gaussian([0.1, -0.1, 1.0], 0.1, 0.6, [0.4; 3])).unwrap();
    step_once(device, &mut model, &view, &target, 1);
    let seen = device.download(&mut model).unwrap();
    let mut away = view.clone();
    away.pose.translation = [0.0, 0.0, -50.0];
    step_once(device, &mut model, &away, &target, 2);
    let unseen = device.download(&mut model).unwrap();
    // m = 0.9·0.1 g and v = 0.999·0.001 g², corrected by 1 - 0.9² = 0.19 and 1 - 0.999² = 0.001999.
    let expected = RATES.opacity_logits * (0.09 / 0.19) / (0.000_999_f64 / 0.001_999).sqrt();
    let moved = f64::from((unseen.opacity_logits[0] - seen.opacity_logits[0]).abs());
    // Rounding of a logit of order 1 in single precision.
    assert!((moved - expected).abs() < 1e-6, "moved by {moved} instead of {expected}");
}

fn a_view_is_learnt_by_heart<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let truth = draw(device, &random_gaussians(40, 9), &view);
    let bytes = |v: f32| u8::try_from((v.clamp(0.0, 1.0) * 255.0).floor_i32()).unwrap();
    let rgb = truth.rgb.iter().map(|&v| bytes(v)).collect();
    let target = image([truth.width, truth.height], rgb);
    let mut draws = Draws::new(10);
    let start: Vec<Gaussians> = (0..150)
        .map(|_| {
            let mean =
                [draws.uniform(-0.5, 0.5), draws.uniform(-0.4, 0.4), draws.uniform(0.9, 1.1)];
            gaussian(mean.map(f64::to_f32), 0.05, 0.1, [0.5; 3])
        })
        .collect();
    let mut model = device.upload(&together(&start)).unwrap();
    let losses: Vec<f64> =
        (1..=150).map(|i| step_once(device, &mut model, &view, &target, i)).collect();
    assert!(losses[149] < 0.3 * losses[0], "the loss went from {} to {}", losses[0], losses[149]);
}

fn a_model_of_no_gaussians_keeps_its_degree<B: TrainDevice>(device: &mut B) {
    for sh_degree in 0..=3 {
        let none = Gaussians::zeros(sh_degree, 0);
        let mut model = device.upload(&none).unwrap();
        let snapshot = device.snapshot(&mut model).unwrap();
        for part in [&snapshot.parameters, &snapshot.first_moments, &snapshot.second_moments] {
            assert_eq!(part, &none);
        }
        let mut model = device.restore(snapshot).unwrap();
        assert_eq!(device.download(&mut model).unwrap(), none);
    }
}

fn a_sample_holds_the_asked_rows_in_their_order<B: TrainDevice>(device: &mut B) {
    for sh_degree in 0..=3 {
        let all = tame_gaussians(1021, 14, sh_degree);
        let mut model = device.upload(&all).unwrap();
        let rows = [1020, 0, 31, 32, 32, 33, 1020, 511];
        let sample = device.sample(&mut model, &rows).unwrap();
        for (found, all) in paired(&sample, &all) {
            let expected = rows.iter().flat_map(|row| &all.values[row * all.width..][..all.width]);
            assert!(found.values.iter().eq(expected), "{}", all.name);
        }
        let none = Gaussians::zeros(sh_degree, 0);
        assert_eq!(device.sample(&mut model, &[]).unwrap(), none);
    }
}

/// Off the middle of the random Gaussians, many of which lie outside.
const CUBE: Cube = Cube { centre: [0.1, -0.2, 1.7], half_side: 1.1 };

fn reordered_rows_follow_their_keys_with_all_their_values<B: TrainDevice>(device: &mut B) {
    for count in [0, 1, 31, 32, 33, 1000] {
        let mut gaussians = random_gaussians(count, 21);
        // Every third stands where a few others do, and one nowhere: their keys are equal.
        for row in (9..count).step_by(3) {
            gaussians.means.copy_within(row % 5 * 3..row % 5 * 3 + 3, row * 3);
        }
        if count > 7 {
            gaussians.means[7 * 3 + 1] = f32::NAN;
        }
        let before = in_training(gaussians, 22);
        let mut model = device.restore(before.clone()).unwrap();
        device.reorder(&mut model, &CUBE).unwrap();
        let after = rows(&device.snapshot(&mut model).unwrap());
        let mut expected = rows(&before);
        // The first three values are the centre. Rows of one key keep their order.
        expected.sort_by_key(|row| CUBE.key([0, 1, 2].map(|axis| f32::from_bits(row[axis]))));
        assert!(after == expected, "{count} rows");
        assert_eq!(after == rows(&before), count < 2, "{count} rows");

        device.reorder(&mut model, &CUBE).unwrap();
        let again = rows(&device.snapshot(&mut model).unwrap());
        assert!(again == after, "{count} rows, in order already");
    }
}

fn the_order_of_the_rows_does_not_show<B: TrainDevice>(device: &mut B) {
    let settings = DrawSettings { pass: Pass::Picture, ..SETTINGS };
    let mut model = device.upload(&random_gaussians(200, 23)).unwrap();
    let mut pictures = Vec::new();
    for _ in 0..2 {
        let frame = device.show(&model, &view(), &settings).unwrap();
        pictures.push(device.image(&frame).unwrap());
        device.reorder(&mut model, &CUBE).unwrap();
    }
    // No two depths are equal: every pixel adds up the same colours in the same order.
    assert!(pictures[0] == pictures[1]);
    assert_ne!(device.download(&mut model).unwrap().means, random_gaussians(200, 23).means);
}

fn what_the_mask_excludes_changes_nothing<B: TrainDevice>(device: &mut B) {
    let view = straight();
    let (width, height) = (view.camera.width, view.camera.height);
    let mask: Vec<u8> = (0..width * height).map(|i| if i % width < 20 { 255 } else { 0 }).collect();
    let one = photo(width, height, Some(mask.clone()));
    let mut other = Image::clone(&one);
    for (pixel, _) in other.rgb.chunks_exact_mut(3).zip(&mask).filter(|&(_, &m)| m == 0) {
        pixel.fill(200);
    }
    let after: Vec<Gaussians> = [one, Arc::new(other)]
        .iter()
        .map(|target| {
            let mut model = device.upload(&random_gaussians(30, 12)).unwrap();
            step_once(device, &mut model, &view, target, 1);
            device.download(&mut model).unwrap()
        })
        .collect();
    // A device may add up what pixels and tiles contribute in any order: a few roundings of a
    // gradient, which move a parameter by a part of its rate.
    for (one, other) in paired(&after[0], &after[1]) {
        assert_near(other.values, one.values, |value| 1e-5 * value.abs().max(1.0), one.name);
    }
}

#[test]
fn parameters_that_are_not_numbers_are_reported_with_their_index() {
    let mut device = Cpu::<f32>::new();
    let mut gaussians = random_gaussians(5, 13);
    gaussians.means[3 * 2 + 1] = f32::NAN;
    gaussians.log_scales[3 * 4] = f32::INFINITY;
    let image = draw(&mut device, &gaussians, &view());
    assert!(image.rgb.iter().all(|value| value.is_finite()));

    // A learning rate that overflows shows at once, with the Gaussian that it broke.
    let view = straight();
    // Also where another view comes after the one that saw it.
    let mut away = view.clone();
    away.pose.translation = [0.0, 0.0, -50.0];
    let step = AdamStep::new(1, Rates { means: f64::INFINITY, ..RATES });
    for views in [from_ref(&view), &[view.clone(), away]] {
        let mut model = device.upload(&gaussian([0.1, -0.1, 1.0], 0.1, 0.6, [0.4; 3])).unwrap();
        let mut gradients = Default::default();
        for view in views {
            let shot = noisy_shot(0, view, SETTINGS);
            add_shot(&mut device, &mut model, &shot, &mut gradients);
        }
        let error = device.step(&mut model, gradients, &step).unwrap_err();
        assert!(error.to_string().contains("Gaussian 0: its centre, or"), "{error}");
    }
}

proptest! {
    #[test]
    fn no_pixel_outside_its_bounds_and_no_tile_left_out_shows_a_splat(
        mean in prop::array::uniform2(-30.0_f64..70.0),
        (xx, yy) in (0.3_f64..400.0, 0.3_f64..400.0),
        correlation in -0.99_f64..0.99,
        opacity in 0.004_f64..1.0,
    ) {
        let size = [41, 35];
        let xy = correlation * (xx * yy).sqrt();
        let det = xx * yy - xy * xy;
        let conic = [yy / det, -xy / det, xx / det];
        let ellipse = Ellipse { mean_px: mean, depth: 1.0, cov_px2: [xx, xy, yy], conic, kept: 1.0 };
        let found = bounds(&ellipse, opacity, size);
        for y in 0..size[1] {
            for x in 0..size[0] {
                let offset = [f64::from(x) + 0.5 - mean[0], f64::from(y) + 0.5 - mean[1]];
                if opacity * exponent(conic, offset).exp() < ALPHA_MIN {
                    continue;
                }
                let found = found.as_ref().expect("a visible splat has bounds");
                let p = found.pixels;
                prop_assert!(p.x0 <= x && x < p.x1 && p.y0 <= y && y < p.y1, "{x} {y} {p:?}");
                let tile = Rect::of_tile(x / TILE, y / TILE, size);
                let spans = Spans::new(&ellipse, found.exponent_min, size);
                prop_assert!(spans.columns(tile.y0..tile.y1).contains(&x), "{x} {y}");
            }
        }
    }

    /// Also of splats so long and thin that single precision makes a hyperbola of them.
    #[test]
    fn spans_hold_every_pixel_that_a_splat_reaches_and_no_tile_beyond(
        mean in prop::array::uniform2(-60.0_f64..160.0),
        (long, short) in (-1.0_f64..9.0, -1.0_f64..9.0),
        turn in 0.0_f64..3.2,
        exponent_min in -5.6_f64..-1e-4,
    ) {
        let (sin, cos) = turn.sin_cos();
        let (long, short) = (0.3 + (2.0 * long).exp(), 0.3 + (2.0 * short).exp());
        let conic = [
            cos * cos / long + sin * sin / short,
            sin * cos * (1.0 / long - 1.0 / short),
            sin * sin / long + cos * cos / short,
        ];
        check_spans::<f32>(mean, conic, exponent_min)?;
        check_spans::<f64>(mean, conic, exponent_min)?;
    }
}

/// The spans in some precision of what the numbers are when rounded to it, against the definition.
fn check_spans<R: Real>(
    mean_px: [f64; 2],
    conic: [f64; 3],
    exponent_min: f64,
) -> Result<(), TestCaseError> {
    let size = [100, 70];
    let ellipse = Ellipse {
        mean_px: mean_px.map(R::of),
        depth: R::ONE,
        cov_px2: [R::ZERO; 3],
        conic: conic.map(R::of),
        kept: R::ONE,
    };
    let spans = Spans::new(&ellipse, R::of(exponent_min), size);
    let (mean, conic) = (ellipse.mean_px.map(Real::to_f64), ellipse.conic.map(Real::to_f64));
    let exponent_min = R::of(exponent_min).to_f64();
    // What a margin of some thousandths of a pixel lets in.
    let beyond = 1.01 * exponent_min - 0.01;
    for row in 0..size[1].div_ceil(TILE) {
        let rows = row * TILE..((row + 1) * TILE).min(size[1]);
        let columns = spans.columns(rows.clone());
        for y in rows {
            for x in (0..size[0]).filter(|x| !columns.contains(x)) {
                let offset = [f64::from(x) + 0.5 - mean[0], f64::from(y) + 0.5 - mean[1]];
                prop_assert!(exponent(conic, offset) < exponent_min, "{x} {y} of {columns:?}");
            }
        }
        for x in columns.start / TILE..columns.end.div_ceil(TILE) {
            let tile = Rect::of_tile(x, row, size);
            let listed = columns.start.max(tile.x0) < columns.end.min(tile.x1);
            prop_assert!(!listed || reaches(mean, conic, beyond, tile), "{tile:?}");
        }
    }
    Ok(())
}

/// True if a splat reaches an exponent at some point between the pixel centres of `pixels`. The
/// exponent is concave: where the centre lies outside, its maximum is on the border.
fn reaches(mean: [f64; 2], conic: [f64; 3], exponent_min: f64, pixels: Rect) -> bool {
    let low = [pixels.x0, pixels.y0].map(|p| f64::from(p) + 0.5);
    let high = [pixels.x1, pixels.y1].map(|p| f64::from(p) - 0.5);
    if (0..2).all(|axis| low[axis] <= mean[axis] && mean[axis] <= high[axis]) {
        return true;
    }
    let diagonal = [conic[0], conic[2]];
    (0..2).flat_map(|axis| [(axis, low[axis]), (axis, high[axis])]).any(|(axis, edge)| {
        let other = 1 - axis;
        let mut point = [edge - mean[axis]; 2];
        let best = mean[other] - conic[1] * point[axis] / diagonal[other];
        point[other] = best.max(low[other]).min(high[other]) - mean[other];
        exponent(conic, point) >= exponent_min
    })
}

#[test]
fn a_tile_in_the_corner_of_a_long_thin_splats_box_is_not_listed() {
    let (xx, yy, xy) = (100.0, 100.0, 99.0);
    let det: f64 = xx * yy - xy * xy;
    let conic = [yy / det, -xy / det, xx / det];
    let ellipse =
        Ellipse { mean_px: [24.0, 24.0], depth: 1.0, cov_px2: [xx, xy, yy], conic, kept: 1.0 };
    let found = bounds(&ellipse, 0.9, [48, 48]).unwrap();
    let spans = Spans::new(&ellipse, found.exponent_min, [48, 48]);
    let reached = |x, y| {
        let tile = Rect::of_tile(x, y, [48, 48]);
        let columns = spans.columns(tile.y0..tile.y1);
        columns.start.max(tile.x0) < columns.end.min(tile.x1)
    };
    assert!(reached(0, 0) && reached(1, 1) && reached(2, 2));
    assert!(!reached(2, 0) && !reached(0, 2));
}

#[test]
fn nothing_nearer_than_the_near_plane_is_projected() {
    let at = |near: f64, z: f64| {
        let shape = Shape {
            mean_world: [0.0, 0.0, z],
            log_scale: [-5.0; 3],
            quat: [1.0, 0.0, 0.0, 0.0],
            smoothing: 0.0,
        };
        project(&viewpoint(&straight(), near), &shape)
    };
    for near in [1e-6, NEAR, 30.0] {
        assert!(at(near, near * 1.01).is_some());
        assert!(at(near, near * 0.99).is_none() && at(near, near).is_none());
        assert!(at(near, -1.0).is_none() && at(near, f64::NAN).is_none());
    }
}

//! Photographs made smaller for views that are drawn smaller, on every device: the same bytes, and the same
//! step as with a photograph of the view's size.

use std::sync::Arc;

use crate::common::oracle::{
    Counted, FirstStep, Shot, assert_gradients_agree, assert_losses_agree, gradient_tolerance,
    settings, shot,
};
use crate::common::prelude::*;
use crate::common::scene::{photo, resized, straight, tame_gaussians};
use crate::common::view;
use splat::backend::{DeviceError, Statistics, Term, Terms, TrainDevice};
use splat::dataset::{Image, InverseDepthMap, View};
use splat::math::{Divisor, Real};
use splat::model::Gaussians;

each_backend!(
    a_smaller_photograph_has_these_bytes,
    a_step_is_that_over_a_photograph_of_the_views_size,
    smaller_views_count_as_much_in_disagreement,
    a_photograph_of_another_size_is_refused,
);

/// What its bytes should be, pixel by pixel.
fn shrunk(image: &Image, divisor: Divisor) -> Image {
    let (side, [width, height]) = (divisor.get(), divisor.px([image.width, image.height]));
    let mut small =
        Image { width, height, rgb: Vec::new(), mask: None, depth: None, normals: None };
    let (mut mask, mut values) = (Vec::new(), Vec::new());
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let square: Vec<usize> = (0..side * side)
            .map(|i| ((y * side + i / side) * image.width + x * side + i % side) as usize)
            .collect();
        let mean = |value: &dyn Fn(usize) -> f64| {
            let sum: f64 = square.iter().map(|&pixel| value(pixel)).sum();
            (sum / f64::from(side * side) + 0.5).floor_i32()
        };
        let counts = image.mask.as_ref().is_none_or(|mask| square.iter().all(|&at| mask[at] > 0));
        for channel in 0..3 {
            let mean = mean(&|pixel| f64::from(image.rgb[pixel * 3 + channel]));
            small.rgb.push(if counts { u8::try_from(mean).unwrap() } else { 0 });
        }
        mask.push(if counts { 255 } else { 0 });
        if let Some(map) = &image.depth {
            values.push(u16::try_from(mean(&|pixel| f64::from(map.values[pixel]))).unwrap());
        }
    }
    small.mask = image.mask.as_ref().map(|_| mask);
    small.depth = image.depth.as_ref().map(|map| InverseDepthMap { values, ..*map });
    small
}

/// Noise of this size, of which one pixel in 31 may not count.
fn photograph([width, height]: [u32; 2], has_mask: bool) -> Arc<Image> {
    let pixels = width * height;
    let mask = has_mask.then(|| (0..pixels).map(|i| if i % 31 == 7 { 0 } else { 255 }).collect());
    let mut image = Image::clone(&photo(width, height, mask));
    if let Some(mask) = &image.mask {
        for (pixel, &counts) in image.rgb.chunks_exact_mut(3).zip(mask) {
            pixel.iter_mut().for_each(|value| *value = if counts > 0 { *value } else { 0 });
        }
    }
    let values = (0..pixels).map(|i| u16::try_from(i * 7919 % 65_536).unwrap()).collect();
    image.depth = Some(InverseDepthMap { values, scale: 2.0, offset: 0.125 });
    Arc::new(image)
}

fn a_smaller_photograph_has_these_bytes<B: TrainDevice>(device: &mut B) {
    let nothing = Gaussians::zeros(0, 0);
    let model = device.upload(&nothing).unwrap();
    for (divisor, size) in [
        (Divisor::Two, [90, 66]),
        (Divisor::Two, [91, 67]),
        (Divisor::Four, [183, 134]),
        (Divisor::Four, [64, 64]),
    ] {
        for has_mask in [false, true] {
            let image = photograph(size, has_mask);
            let expected = shrunk(&image, divisor);
            let view = resized(&straight(), divisor.px(size));
            let mut found = Vec::new();
            // On black and white a pixel shows its value and what is left of it, where it counts.
            for background in [[0.0; 3], [1.0; 3]] {
                let inverse_depth = true;
                let settings = Drawing { background, inverse_depth, divisor, ..settings(0, 1) };
                let target = device.target(size[0] as usize, &image).unwrap();
                let frame = device.draw(&model, &view, &settings).unwrap();
                let terms = Terms::photometric(0.0).with(Term::InverseDepth, 1.0);
                let (_, values) = device.compare(&model, frame, &target, &terms).unwrap();
                let values = values.read().unwrap();
                found.push((values.get("l1").unwrap(), values.get("depth_l1").unwrap()));
            }
            let pixels = expected.rgb.len() / 3;
            let counts = |i: usize| expected.mask.as_ref().is_none_or(|mask| mask[i] > 0);
            let map = expected.depth.as_ref().unwrap();
            let mut sums = [0.0; 3];
            for pixel in (0..pixels).filter(|&pixel| counts(pixel)) {
                for &value in &expected.rgb[pixel * 3..][..3] {
                    sums[0] += f64::from(value) / 255.0;
                    sums[1] += 1.0 - f64::from(value) / 255.0;
                }
                sums[2] += f64::from(map.values[pixel]) / 65_536.0 * 2.0 + 0.125;
            }
            let [black, white, depth] =
                [sums[0] / 3.0, sums[1] / 3.0, sums[2]].map(|sum| sum / pixels as f64);
            // One byte that is one off changes the mean by 8e-7 and more; sums of single precision leave
            // a tenth of that.
            for (found, expected) in [(found[0], black), (found[1], white)] {
                assert!((found.0 - expected).abs() < 3e-7, "{size:?}: {} {expected}", found.0);
                assert!((found.1 - depth).abs() < 6e-7, "{size:?}: {} {depth}", found.1);
            }
        }
    }
}

/// A photograph of which this one is made, with columns and rows that fill no square.
fn enlarged(image: &Image, divisor: Divisor) -> Arc<Image> {
    let side = divisor.get();
    let [width, height] = [image.width, image.height].map(|length| length * side + side - 1);
    let from = |at: u32| {
        let [x, y] = [at % width / side, at / width / side];
        (y.min(image.height - 1) * image.width + x.min(image.width - 1)) as usize
    };
    let each = || (0..width * height).map(from);
    Arc::new(Image {
        width,
        height,
        rgb: each().flat_map(|pixel| [0, 1, 2].map(|c| image.rgb[pixel * 3 + c])).collect(),
        mask: image.mask.as_ref().map(|mask| each().map(|pixel| mask[pixel]).collect()),
        depth: None,
        normals: None,
    })
}

/// The same shot with a larger photograph.
fn divided(shot: &Shot, divisor: Divisor) -> Shot {
    let settings = Drawing { divisor, ..shot.settings };
    Shot { photo: enlarged(&shot.photo, divisor), settings, ..shot.clone() }
}

fn a_step_is_that_over_a_photograph_of_the_views_size<B: TrainDevice>(device: &mut B) {
    for (seed, divisor) in [(5, Divisor::Two), (6, Divisor::Four)] {
        for counted in [Counted::Clear, Counted::Some] {
            let gaussians = tame_gaussians(60, seed, 3);
            let small = shot(&gaussians, &view(), settings(3, seed), (seed, counted));
            let found = FirstStep::taken_by(device, &gaussians, &divided(&small, divisor));
            let expected = FirstStep::of_the_oracle(&gaussians, &small);
            let what = format!("{divisor:?}, {counted:?}");
            assert_losses_agree(&found.loss, &expected.loss, (small.size(), &what));
            let tolerance = gradient_tolerance(small.size());
            assert_gradients_agree(&found.snapshot, &expected.snapshot, (tolerance, &what));
            let norms = [&found, &expected].map(|step| &step.snapshot.gradient_norm_sums);
            for (found, expected) in norms[0].iter().zip(norms[1]) {
                assert!((found - expected).abs() <= 1e-3 * expected.max(1e-4), "{what}");
            }
        }
    }
}

fn smaller_views_count_as_much_in_disagreement<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(60, 7, 3);
    let statistics = Statistics::Disagreement;
    let settings = Drawing { statistics, ..settings(3, 7) };
    let small = shot(&gaussians, &view(), settings, (7, Counted::Clear));
    let sums = |step: FirstStep| step.snapshot.gradient_norm_sums;
    let alone = sums(FirstStep::of_the_oracle(&gaussians, &small));
    for divisor in [Divisor::Two, Divisor::Four] {
        let found = sums(FirstStep::taken_by(device, &gaussians, &divided(&small, divisor)));
        // Each pixel stands for a square of them.
        let times = (divisor.get() * divisor.get()) as f32;
        let largest = alone.iter().fold(0.0_f32, |most, &sum| most.max(sum)) * times;
        assert!(largest > 0.0);
        for (&found, &alone) in found.iter().zip(&alone) {
            let expected = alone * times;
            let allowed = 5e-3 * expected + 1e-5 * largest;
            assert!((found - expected).abs() <= allowed, "{found} instead of {expected}");
        }
    }
}

fn a_photograph_of_another_size_is_refused<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&Gaussians::zeros(0, 0)).unwrap();
    let image = photograph([64, 48], false);
    let target = device.target(0, &image).unwrap();
    let settings = Drawing { divisor: Divisor::Two, ..settings(0, 1) };
    let compare = |device: &mut B, view: &View| {
        let frame = device.draw(&model, view, &settings)?;
        device.compare(&model, frame, &target, &Terms::photometric(0.2)).map(drop)
    };
    compare(device, &resized(&straight(), [32, 24])).unwrap();
    match compare(device, &resized(&straight(), [64, 48])) {
        Err(DeviceError::TargetSize { target_px, view_px }) => {
            assert_eq!((target_px, view_px), ([32, 24], [64, 48]));
        }
        other => panic!("{other:?}"),
    }
}

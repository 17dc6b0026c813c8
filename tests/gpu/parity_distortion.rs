//! How far apart along rays lies what pixels are blended of: every device against the CPU backend in
//! double precision.
//!
//! All surfels cover all of the view, none is cut off, and no ray is finished before the last: what is
//! compared is arithmetic, and not which side of an edge rounding falls on.

use crate::common::prelude::*;

use crate::common::Draws;
use crate::common::oracle::{GRADIENT_TOLERANCE, Shot, assert_gradients_agree, settings};
use crate::common::scene::{RATES, gaussian, photo, resized, straight, tame_gaussians, together};
use crate::parity_normals::with_depths;
use splat::backend::cpu::Cpu;
use splat::backend::{
    AdamStep, DeviceError, Footprint, LossValues, NormalDepths, Rendered, Snapshot, Term, Terms,
    TrainDevice,
};
use splat::math::Real;
use splat::math::distortion::{RaySums, distortion};
use splat::model::Gaussians;

each_backend!(
    a_mean_is_that_of_the_maps_that_are_drawn,
    gradients_of_distortion_agree_with_the_oracle,
    gradients_of_several_terms_add_up_as_the_oracles_do,
    a_frame_without_squares_has_no_distortion,
    ellipses_have_no_distortion,
);

/// Of the distortion in the loss: so much that it counts as much as other terms do.
const WEIGHT: f64 = 100.0;

fn with_rays(settings: Drawing) -> Drawing {
    let footprint = Footprint::Surfel;
    Drawing { footprint, inverse_depth: true, inverse_squares: true, surface: true, ..settings }
}

/// Surfels that all cover all of a view, one behind the other, turned this way and that.
pub(super) fn layers(count: u32, seed: u64) -> Gaussians {
    let mut draws = Draws::new(seed);
    let parts: Vec<Gaussians> = (0..count)
        .map(|i| {
            let depth = 1.0 + 2.0 * i as f32 / count as f32;
            let [x, y] = draws.array::<2>(-0.2, 0.2).map(f64::to_f32);
            let color = draws.array::<3>(0.1, 0.9).map(f64::to_f32);
            let mut one = gaussian([x * depth, y * depth, depth], 1.2 * depth, 0.06, color);
            let [a, b] = draws.array::<2>(-0.2, 0.2).map(f64::to_f32);
            one.quats = vec![1.0, a, b, 0.1];
            one.log_scales[0] += 0.3;
            one.log_scales[2] -= 4.0;
            one
        })
        .collect();
    together(&parts)
}

/// A view of them; its photograph excludes every third pixel where it has a mask.
fn shot(size: [u32; 2], seed: u64, has_mask: bool) -> Shot {
    let pixels = size[0] * size[1];
    let mask = (0..pixels).map(|pixel| u8::from(pixel % 3 != 1) * 255).collect();
    Shot {
        index: 0,
        view: resized(&straight(), size),
        photo: photo(size[0], size[1], has_mask.then_some(mask)),
        settings: with_rays(settings(3, seed)),
        terms: Terms::default().with(Term::Distortion, WEIGHT),
    }
}

/// What a view shows before the first step, and what that leaves.
pub(super) fn first_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
) -> (Rendered, LossValues, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let frame = device.draw(&model, &shot.view, &shot.settings).unwrap();
    let drawn = device.image(&frame).unwrap();
    drop(frame);
    let target = device.target(shot.index, &shot.photo).unwrap();
    let (seen, mut gradients) = ((&shot.view, &shot.settings), Default::default());
    let loss = device.add_view(&mut model, seen, (&target, &shot.terms), &mut gradients).unwrap();
    device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
    (drawn, loss.read().unwrap(), device.snapshot(&mut model).unwrap())
}

fn mean_of(values: &LossValues) -> f64 {
    values.get("distortion").expect("the term is on")
}

fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    what: &str,
) {
    let (_, values, found) = first_step(device, gaussians, shot);
    let (_, expected_values, expected) = first_step(&mut Cpu::<f64>::new(), gaussians, shot);
    // What is left of sums of about 1, times c² = 0.04.
    let [mean, expected_mean] = [mean_of(&values), mean_of(&expected_values)];
    assert!((mean - expected_mean).abs() < 1e-7, "{what}: {mean} for {expected_mean}");
    assert!(mean.abs() > 1e-5, "{what}: {mean} says nothing");
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, what));
}

fn a_mean_is_that_of_the_maps_that_are_drawn<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [17, 33], [37, 29], [65, 18]]) {
        for has_mask in [false, true] {
            let shot = shot(size, seed, has_mask);
            let (drawn, values, _) = first_step(device, &layers(24, seed), &shot);
            let map = |map: Option<Vec<f32>>| map.expect("it was asked for");
            let (surface, inverse) = (map(drawn.surface), map(drawn.inverse_depths));
            let squares = map(drawn.inverse_squares);
            let sums = |pixel: usize| RaySums {
                opacity: f64::from(surface[pixel * 4 + 3]),
                inverse_depth: f64::from(inverse[pixel]),
                inverse_square: f64::from(squares[pixel]),
            };
            let counts =
                |pixel: &usize| shot.photo.mask.as_ref().is_none_or(|mask| mask[*pixel] != 0);
            let pixels = squares.len();
            let sum: f64 = (0..pixels).filter(counts).map(|pixel| distortion(sums(pixel))).sum();
            let expected = sum / pixels as f64;
            // A rounding or two of numbers of about 1, times c² = 0.04.
            let error = (mean_of(&values) - expected).abs();
            assert!(error < 1e-8, "{size:?} px, {has_mask}: {error:e} from {expected:e}");
        }
    }
}

fn gradients_of_distortion_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (11..).zip([[1, 1], [17, 33], [37, 29], [65, 18]]) {
        for has_mask in [false, true] {
            let what = format!("{size:?} px, {has_mask}");
            assert_steps_agree(device, &layers(24, seed), &shot(size, seed, has_mask), &what);
        }
    }
}

fn gradients_of_several_terms_add_up_as_the_oracles_do<B: TrainDevice>(device: &mut B) {
    let gaussians = layers(24, 21);
    let normals = Term::DepthNormal { depths: NormalDepths::Opaque };
    for has_mask in [false, true] {
        let mut shot = with_depths(shot([37, 29], 21, has_mask), &gaussians);
        let alone = shot.terms.clone();
        for (terms, what) in [
            (alone.clone().with(Term::InverseDepth, 0.4), "with inverse depths"),
            (alone.clone().with(normals, 0.3), "with normals"),
            (alone.with(Term::InverseDepth, 0.4).with(normals, 0.3), "with both"),
        ] {
            shot.terms = terms;
            assert_steps_agree(device, &gaussians, &shot, what);
        }
    }
}

/// A frame that is compared by other terms has no gradient of squares, drawn or not.
fn a_frame_without_squares_has_no_distortion<B: TrainDevice>(device: &mut B) {
    let gaussians = layers(24, 31);
    let with_squares = shot([37, 29], 31, false);
    let normals = Term::DepthNormal { depths: NormalDepths::Opaque };
    let without = Drawing { inverse_squares: false, ..with_squares.settings };
    let terms = Terms::default().with(normals, 0.3);
    let [drawn, undrawn] = [with_squares.settings, without].map(|settings| {
        let shot = Shot { settings, terms: terms.clone(), ..with_squares.clone() };
        first_step(device, &gaussians, &shot)
    });
    assert!(drawn.0.inverse_squares.is_some() && undrawn.0.inverse_squares.is_none());
    assert_eq!(drawn.1.get("distortion"), None);
    let what = (GRADIENT_TOLERANCE, "with squares and without");
    assert_gradients_agree(&drawn.2, &undrawn.2, what);

    let model = device.upload(&gaussians).unwrap();
    let target = device.target(0, &with_squares.photo).unwrap();
    let frame = device.draw(&model, &with_squares.view, &without).unwrap();
    let refused = device.compare(&model, frame, &target, &with_squares.terms);
    let Err(error @ DeviceError::MissingInput { .. }) = refused else { panic!("not refused") };
    assert!(error.to_string().contains("squares of inverse depths"), "{error}");
}

fn ellipses_have_no_distortion<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&tame_gaussians(9, 1, 3)).unwrap();
    let shot = shot([37, 29], 41, false);
    let ellipses = Drawing { footprint: Footprint::DILATED, ..shot.settings };
    let refused = device.draw(&model, &shot.view, &ellipses);
    let Err(error @ DeviceError::NeedsSurfels { .. }) = refused else { panic!("not refused") };
    assert!(error.to_string().contains("--primitive surfels"), "{error}");
}

#[cfg(kernels)]
mod on_the_device {
    use splat::backend::cuda::BandPolicy;

    use super::*;
    use crate::common::cuda;

    #[test]
    #[ignore = "needs a CUDA device"]
    fn distortions_of_a_view_in_bands_agree_with_the_oracle() {
        let device = &mut cuda::open();
        for bands in [1, 2, u32::MAX] {
            device.set_bands(BandPolicy::AtLeast(bands));
            let what = format!("{bands} bands");
            assert_steps_agree(device, &layers(24, 51), &shot([37, 61], 51, true), &what);
        }
    }
}

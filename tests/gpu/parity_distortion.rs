//! Distortion along rays, and normals of depths against maps: every device against the CPU backend in double
//! precision.
//!
//! All surfels cover all of the view, none is cut off, and no ray is finished before the last: what is
//! compared is arithmetic, and not which side of an edge rounding falls on.

use std::slice::from_ref;

use splat::math::distortion::{RaySums, distortion};
use splat::math::linalg::normalize;

use crate::normals::with_depths;
use crate::prelude::*;

each_backend!(
    a_mean_is_that_of_the_maps_that_are_drawn,
    gradients_of_distortion_agree_with_the_oracle,
    gradients_of_several_terms_add_up_as_the_oracles_do,
    a_frame_without_squares_has_no_distortion,
    ellipses_have_no_distortion,
);

/// Weight of the distortion, so large that its gradients count as much as others'.
const WEIGHT: f64 = 100.0;

/// Surfels that all cover all of a view.
fn surfels(seed: u64) -> Gaussians {
    let depths = (0..24).map(|i| 1.0 + 2.0 * i as f32 / 24.0);
    layers(depths, seed, (1.2, 0.06, 4.0), Some(0.2))
}

fn with_rays(settings: DrawSettings) -> DrawSettings {
    let footprint = Footprint::Surfel;
    DrawSettings {
        footprint,
        inverse_depth: true,
        inverse_squares: true,
        surface: true,
        ..settings
    }
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

/// Draws a view and takes the first step. Returns what was drawn, the terms and the model.
fn first_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
) -> (Rendered, LossValues, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let frame = device.draw(&model, &shot.view, &shot.settings).unwrap();
    let drawn = device.image(&frame).unwrap();
    drop(frame);
    let step = AdamStep::new(1, RATES);
    let values = step_over(device, &mut model, from_ref(shot), &step).remove(0);
    (drawn, values, device.snapshot(&mut model).unwrap())
}

/// Asserts that the mean of a term and all gradients agree with the oracle's. Returns the mean.
fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    (term, tolerance, what): (&str, f64, &str),
) -> f64 {
    let [(_, values, found), (_, expected_values, expected)] =
        beside_oracle!(device, first_step(device, gaussians, shot));
    let [mean, expected_mean] =
        [values, expected_values].map(|values| values.get(term).expect("the term is on"));
    let error = (mean - expected_mean).abs();
    assert!(error < tolerance, "{what}: {mean} for {expected_mean}");
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, what));
    mean
}

fn assert_distortions_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    what: &str,
) {
    // Rounding of sums of about 1, times c² = 0.04.
    let mean = assert_steps_agree(device, gaussians, shot, ("distortion", 1e-7, what));
    assert!(mean.abs() > 1e-5, "{what}: {mean} says nothing");
}

fn a_mean_is_that_of_the_maps_that_are_drawn<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [17, 33], [37, 29], [65, 18]]) {
        for has_mask in [false, true] {
            let shot = shot(size, seed, has_mask);
            let (drawn, values, _) = first_step(device, &surfels(seed), &shot);
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
            let error = (values.get("distortion").unwrap() - expected).abs();
            assert!(error < 1e-8, "{size:?} px, {has_mask}: {error:e} from {expected:e}");
        }
    }
}

fn gradients_of_distortion_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (11..).zip([[1, 1], [17, 33], [37, 29], [65, 18]]) {
        for has_mask in [false, true] {
            let what = format!("{size:?} px, {has_mask}");
            assert_distortions_agree(device, &surfels(seed), &shot(size, seed, has_mask), &what);
        }
    }
}

fn gradients_of_several_terms_add_up_as_the_oracles_do<B: TrainDevice>(device: &mut B) {
    let gaussians = surfels(21);
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
            assert_distortions_agree(device, &gaussians, &shot, what);
        }
    }
}

/// A frame that is compared by other terms has no gradient of squares, drawn or not.
fn a_frame_without_squares_has_no_distortion<B: TrainDevice>(device: &mut B) {
    let gaussians = surfels(31);
    let with_squares = shot([37, 29], 31, false);
    let normals = Term::DepthNormal { depths: NormalDepths::Opaque };
    let without = DrawSettings { inverse_squares: false, ..with_squares.settings };
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
    let ellipses = DrawSettings { footprint: Footprint::DILATED, ..shot.settings };
    let refused = device.draw(&model, &shot.view, &ellipses);
    let Err(error @ DeviceError::NeedsSurfels { .. }) = refused else { panic!("not refused") };
    assert!(error.to_string().contains("--primitive surfels"), "{error}");
}

// Normals of drawn depths against a map of normals: every device against the CPU backend in double precision.
//
// All Gaussians cover all of the view and none is cut off, so that depths have no step and precisions come
// to the same decisions.

each_backend!(
    normals_of_depths_agree_with_the_oracle,
    several_terms_of_inverse_depths_add_up_as_the_oracles_do,
    a_smaller_view_is_compared_with_means_of_the_map,
    a_view_without_a_map_of_normals_reports_none,
);

/// Weight of the normals, so large that their gradients count as much as others'.
const NORMAL_MAP_WEIGHT: f64 = 0.5;

/// Returns tilted normals towards the camera. One pixel in seven has none.
fn map(pixels: usize, seed: u64) -> NormalMap {
    let mut draws = Draws::new(seed);
    let stored = |pixel: usize| {
        let [x, y] = draws.array::<2>(-0.8, 0.8);
        let normal = normalize([x, y, -1.0]).map(|n: f64| (127.0 * n + 0.5).floor_i32());
        let is_none = pixel % 7 == 3;
        normal.map(|n| if is_none { 0 } else { i8::try_from(n).unwrap() })
    };
    NormalMap { values: (0..pixels).flat_map(stored).collect() }
}

/// A view whose photograph has a map of normals and, where it has a mask, excludes one pixel in eleven.
fn normal_map_shot(size: [u32; 2], seed: u64, has_mask: bool) -> Shot {
    let [width, height] = size;
    let mask = (0..width * height).map(|pixel| u8::from(pixel % 11 != 1) * 255).collect();
    let plain = photo(width, height, has_mask.then_some(mask));
    let normals = Some(map((width * height) as usize, seed));
    Shot {
        index: 0,
        view: resized(&straight(), size),
        photo: Arc::new(Image { normals, ..Image::clone(&plain) }),
        settings: DrawSettings { inverse_depth: true, ..settings(3, seed) },
        terms: Terms::default().with(Term::NormalMap, NORMAL_MAP_WEIGHT),
    }
}

fn assert_normals_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    what: &str,
) -> f64 {
    // Slopes are differences of depths that single precision has to 1e-7, times a focal length of 50 px.
    assert_steps_agree(device, gaussians, shot, ("normals", 1e-5, what))
}

fn normals_of_depths_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [17, 33], [37, 29], [65, 18]]) {
        for footprint in [Footprint::DILATED, Footprint::Surfel] {
            for has_mask in [false, true] {
                let mut shot = normal_map_shot(size, seed, has_mask);
                shot.settings.footprint = footprint;
                let what = format!("{size:?} px, {footprint:?}, {has_mask}");
                let mean = assert_normals_agree(device, &surfels(seed), &shot, &what);
                // An image of two rows has no pixel with four beside it.
                assert_eq!(mean > 0.05, size[1] > 2, "{what}: {mean}");
            }
        }
    }
}

fn several_terms_of_inverse_depths_add_up_as_the_oracles_do<B: TrainDevice>(device: &mut B) {
    let gaussians = surfels(21);
    for has_mask in [false, true] {
        let mut shot = with_depths(normal_map_shot([37, 29], 21, has_mask), &gaussians);
        shot.settings = with_rays(shot.settings);
        let alone = shot.terms.clone();
        let normals = Term::DepthNormal { depths: NormalDepths::Opaque };
        for (terms, what) in [
            (alone.clone().with(Term::InverseDepth, 0.4), "with inverse depths"),
            (alone.clone().with(Term::Distortion, 100.0), "with distortion"),
            (alone.with(Term::InverseDepth, 0.4).with(normals, 0.3), "with depths and normals"),
        ] {
            shot.terms = terms;
            assert_normals_agree(device, &gaussians, &shot, what);
        }
    }
}

/// The map in which each pixel of this one is a square.
fn enlarged(map: &NormalMap, [width, height]: [u32; 2], side: u32) -> NormalMap {
    let normals = map.values.as_chunks::<3>().0;
    let from = |at: u32| {
        let [x, y] = [at % (width * side) / side, at / (width * side) / side];
        normals[(y * width + x) as usize]
    };
    NormalMap { values: (0..width * height * side * side).flat_map(from).collect() }
}

fn a_smaller_view_is_compared_with_means_of_the_map<B: TrainDevice>(device: &mut B) {
    let (gaussians, size) = (surfels(31), [37, 29]);
    for divisor in [Divisor::Two, Divisor::Four] {
        let small = normal_map_shot(size, 31, false);
        let [width, height] = size.map(|side| side * divisor.get());
        let plain = photo(width, height, None);
        let mut normals = enlarged(small.photo.normals.as_ref().unwrap(), size, divisor.get());
        let settings = DrawSettings { divisor, ..small.settings };
        let values = |device: &mut B, normals: &NormalMap| {
            let photo = Image { normals: Some(normals.clone()), ..Image::clone(&plain) };
            let shot = Shot { photo: Arc::new(photo), settings, ..small.clone() };
            let (_, values, after) = first_step(device, &gaussians, &shot);
            (values.get("normals").unwrap(), after)
        };
        let (found, after) = values(device, &normals);
        let (_, expected, expected_after) = first_step(&mut Cpu::<f64>::new(), &gaussians, &small);
        let expected = expected.get("normals").unwrap();
        assert!((found - expected).abs() < 1e-5, "{divisor:?}: {found} for {expected}");
        let what = format!("{divisor:?}");
        let mixed =
            Image { normals: Some(map((width * height) as usize, 32)), ..Image::clone(&plain) };
        let mixed = Shot { photo: Arc::new(mixed), settings, ..small.clone() };
        assert!(assert_normals_agree(device, &gaussians, &mixed, &what) > 1e-3, "{what}");
        assert_gradients_agree(&after, &expected_after, (GRADIENT_TOLERANCE, &what));
        // Squares with normals at one pixel of four have none.
        for (at, normal) in normals.values.as_chunks_mut::<3>().0.iter_mut().enumerate() {
            let [x, y] = [at % width as usize, at / width as usize];
            if x % 2 == 1 || y % 2 == 1 {
                *normal = [0; 3];
            }
        }
        assert_eq!(values(device, &normals).0, 0.0, "{divisor:?}");
    }
}

fn a_view_without_a_map_of_normals_reports_none<B: TrainDevice>(device: &mut B) {
    let gaussians = surfels(41);
    let mut shot = normal_map_shot([37, 29], 41, false);
    shot.terms = Terms::photometric(0.2).with(Term::NormalMap, NORMAL_MAP_WEIGHT);
    let (_, with, _) = first_step(device, &gaussians, &shot);
    assert!(with.get("normals").is_some());
    // A frame that was compared before leaves nothing behind for the next.
    shot.photo = Arc::new(Image { normals: None, ..Image::clone(&shot.photo) });
    let (_, without, found) = first_step(device, &gaussians, &shot);
    assert_eq!(without.get("normals"), None);
    shot.terms = Terms::photometric(0.2);
    let (_, alone, expected) = first_step(&mut Cpu::<f64>::new(), &gaussians, &shot);
    assert!((without.total - alone.total).abs() < 1e-5);
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "without a map"));
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn views_in_bands_agree_with_the_oracle() {
    let device = &mut cuda::open();
    let (gaussians, size) = (surfels(51), [37, 61]);
    for bands in [1, 2, u32::MAX] {
        device.set_bands(BandPolicy::AtLeast(bands));
        let what = format!("{bands} bands");
        assert_distortions_agree(device, &gaussians, &shot(size, 51, true), &what);
        assert_normals_agree(device, &gaussians, &normal_map_shot(size, 51, true), &what);
    }
}

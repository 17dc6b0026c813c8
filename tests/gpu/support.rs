//! Shots, steps and comparisons that the tests of several stages share.
#![allow(dead_code, reason = "some are for tests on a GPU only")]

use std::fmt::Display;

use splat::model::Group;

use crate::common::prelude::*;

/// Evaluates an expression with the device, then with another device under the same name. Returns both results.
macro_rules! beside {
    ($device:ident, $other:expr, $run:expr) => {{
        let found = $run;
        let $device = &mut $other;
        [found, $run]
    }};
}
pub(crate) use beside;

/// Evaluates an expression with the device, then with the CPU in double precision under the device's name. Returns
/// the found result and the expected one.
macro_rules! beside_oracle {
    ($device:ident, $run:expr) => {
        $crate::support::beside!($device, Cpu::<f64>::new(), $run)
    };
}
pub(crate) use beside_oracle;

/// A photograph without a mask and without maps.
pub(crate) fn image([width, height]: [u32; 2], rgb: Vec<u8>) -> Arc<Image> {
    Arc::new(Image { width, height, rgb, mask: None, depth: None, normals: None })
}

/// A view whose photograph is noise, compared by colours.
pub(crate) fn noisy_shot(index: usize, view: &View, settings: DrawSettings) -> Shot {
    let photo = photo(view.camera.width, view.camera.height, None);
    Shot { index, view: view.clone(), photo, settings, terms: Terms::photometric(0.2) }
}

/// A dozen Gaussians in a view of this size, whose photograph of noise has no borderline pixel.
pub(crate) fn clear_shot(size: [u32; 2], seed: u64, drawing: DrawSettings) -> (Gaussians, Shot) {
    let view = resized(&view(), size);
    let gaussians = clear_gaussians(12, seed, &[(&view, drawing)]);
    let shot = shot(&gaussians, &view, drawing, (seed, Counted::All));
    (gaussians, shot)
}

/// Discs at these depths, one behind the other, each wider than the view and turned by at most about twice `turn`.
/// `opacity` is at least twice the least that shows at the centre, and more than it anywhere in view.
pub(crate) fn layers(
    depths: impl Iterator<Item = f32>,
    seed: u64,
    (size, opacity, thinner): (f32, f32, f32),
    turn: Option<f64>,
) -> Gaussians {
    let mut draws = Draws::new(seed);
    let layer = |depth: f32| {
        let [x, y] = draws.array::<2>(-0.2, 0.2).map(f64::to_f32);
        let color = draws.array::<3>(0.1, 0.9).map(f64::to_f32);
        let mut one = gaussian([x * depth, y * depth, depth], size * depth, opacity, color);
        if let Some(turn) = turn {
            let [a, b] = draws.array::<2>(-turn, turn).map(f64::to_f32);
            one.quats = vec![1.0, a, b, 0.1];
        }
        // A sphere has no gradient of its rotation: rounding would be compared with zero.
        one.log_scales[0] += 0.3;
        one.log_scales[2] -= thinner;
        one
    };
    together(&depths.map(layer).collect::<Vec<_>>())
}

/// Gaussians as large as those of a trained model: a few tiles each.
pub(crate) fn small_gaussians(count: usize, seed: u64) -> Gaussians {
    let mut gaussians = tame_gaussians(count, seed, 3);
    gaussians.log_scales.iter_mut().for_each(|scale| *scale -= 2.0);
    gaussians
}

/// Adds the gradients of a shot. Returns the values of its terms at pixels.
pub(crate) fn add_shot<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    shot: &Shot,
    gradients: &mut B::Gradients,
) -> LossValues {
    let target = device.target(shot.index, &shot.photo).unwrap();
    let seen = (&shot.view, &shot.settings);
    device.add_view(model, seen, (&target, &shot.terms), gradients).unwrap().read().unwrap()
}

/// Takes one step over all shots. Returns the values of each shot's terms at pixels.
pub(crate) fn step_over<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    shots: &[Shot],
    step: &AdamStep,
) -> Vec<LossValues> {
    let mut gradients = B::Gradients::default();
    let losses = shots.iter().map(|shot| add_shot(device, model, shot, &mut gradients)).collect();
    device.step(model, gradients, step).unwrap();
    losses
}

/// Takes one step over all shots with a new model. Returns the losses and the model.
pub(crate) fn stepped<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
    step: &AdamStep,
) -> (Vec<LossValues>, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    let losses = step_over(device, &mut model, shots, step);
    (losses, device.snapshot(&mut model).unwrap())
}

/// Asserts that the first step over all shots has the oracle's gradients.
pub(crate) fn assert_step_agrees<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
    what: &str,
) {
    let step = AdamStep::new(1, RATES);
    let [(_, found), (_, expected)] =
        beside_oracle!(device, stepped(device, gaussians, shots, &step));
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, what));
}

/// Draws a view of a resident model, colours only.
pub(crate) fn shown<B: TrainDevice>(
    device: &mut B,
    model: &B::Model,
    view: &View,
    settings: &DrawSettings,
) -> Vec<f32> {
    let frame = device.show(model, view, &DrawSettings { pass: Pass::Eval, ..*settings }).unwrap();
    device.image(&frame).unwrap().rgb
}

/// Draws a view of these Gaussians, colours only.
pub(crate) fn shown_of<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    settings: &DrawSettings,
) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    shown(device, &model, view, settings)
}

/// Asserts that each value is within what is allowed for the expected one.
pub(crate) fn assert_near<T: Copy + Into<f64>>(
    found: &[T],
    expected: &[T],
    allowed: impl Fn(f64) -> f64,
    what: impl Display,
) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let (found, expected): (f64, f64) = (found.into(), expected.into());
        let error = (found - expected).abs();
        assert!(error <= allowed(expected), "{what} {i}: {found:e} instead of {expected:e}");
    }
}

/// Asserts that metrics agree but for the rounding of colours in single precision.
pub(crate) fn assert_measured_alike(found: &Measured, expected: &Measured, what: impl Display) {
    let values = |of: &Measured| [of.mse, of.l1, of.ssim];
    let what = format_args!("{what}: mse, l1, ssim");
    assert_near(&values(found), &values(expected), |_| 1e-5, what);
}

/// Counts the values that are further from the expected ones than allowed.
pub(crate) fn strays<T: Copy + Into<f64>>(
    found: &[T],
    expected: &[T],
    allowed: impl Fn(f64) -> f64,
) -> usize {
    assert_eq!(found.len(), expected.len());
    let pairs = found.iter().zip(expected).map(|(&a, &b)| -> (f64, f64) { (a.into(), b.into()) });
    pairs.filter(|&(found, expected)| (found - expected).abs() > allowed(expected)).count()
}

/// Asserts that sums of norms agree within a share of them, small ones against a tenth of the mean.
pub(crate) fn assert_sums_agree(found: &[f32], expected: &[f32], share: f64, what: impl Display) {
    let floor = 0.1 * mean_size(&wide(expected));
    assert_near(found, expected, |sum| share * sum.max(floor), what);
}

/// Returns the relative error of the gradients of each group after one step.
pub(crate) fn gradient_errors<P: Primitive>(
    found: &Snapshot<P>,
    expected: &Snapshot<P>,
) -> Vec<(&'static str, f64)> {
    let pairs = gradients(found).into_iter().zip(gradients(expected));
    pairs.map(|(found, expected)| (found.0, relative_error(&found.2, &expected.2))).collect()
}

/// Restores a snapshot and changes the model. Returns the result of the change and the changed model.
pub(crate) fn changed<B: TrainDevice, T>(
    device: &mut B,
    start: &Snapshot<Gaussians>,
    change: impl FnOnce(&mut B, &mut B::Model) -> T,
) -> (T, Snapshot<Gaussians>) {
    let mut model = device.restore(start.clone()).unwrap();
    let done = change(device, &mut model);
    (done, device.snapshot(&mut model).unwrap())
}

/// Gaussians behind the straight camera, some of them all but transparent.
pub(crate) fn hidden_gaussians() -> impl Iterator<Item = Gaussians> {
    (0..70).map(|i| {
        let opacity = if i % 9 == 4 { 0.001 } else { 0.8 };
        gaussian([0.1 * i as f32 - 3.5, 0.2, -5.0], 0.3, opacity, [0.6; 3])
    })
}

/// Returns the numbers of Gaussians that each pixel of a picture is blended of.
pub(crate) fn counts(image: &Rendered) -> &[u32] {
    image.blended.as_deref().unwrap()
}

/// Pairs the groups of two models.
pub(crate) fn paired<'a, P: Primitive>(
    found: &'a P,
    expected: &'a P,
) -> impl Iterator<Item = (Group<'a>, Group<'a>)> {
    found.groups().into_iter().zip(expected.groups())
}

/// Pairs the groups of the parameters, the first and the second moments of two snapshots, with the number of the part.
pub(crate) fn paired_parts<'a>(
    found: &'a Snapshot<Gaussians>,
    expected: &'a Snapshot<Gaussians>,
) -> impl Iterator<Item = (usize, Group<'a>, Group<'a>)> {
    let parts = |of: &'a Snapshot<Gaussians>| {
        [&of.parameters, &of.first_moments, &of.second_moments].into_iter()
    };
    let parts = parts(found).zip(parts(expected)).enumerate();
    parts.flat_map(|(part, (found, expected))| {
        paired(found, expected).map(move |(found, expected)| (part, found, expected))
    })
}

pub(crate) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Adds a map of noise beside the photograph, in every value so far from what is drawn that no precision takes the
/// error's sign for another.
pub(crate) fn with_depth_noise(shot: Shot, gaussians: &Gaussians, seed: u64) -> Shot {
    let settings = DrawSettings { inverse_depth: true, ..shot.settings };
    let oracle = &mut Cpu::<f64>::new();
    let model = oracle.upload(gaussians).unwrap();
    let frame = oracle.show(&model, &shot.view, &settings).unwrap();
    let drawn = oracle.image(&frame).unwrap().inverse_depths.unwrap();
    let mut draws = Draws::new(seed);
    let (scale, offset) = (2.0, 0.1);
    let value = |inverse_depth: f32| {
        let value = u16::try_from(draws.uniform(0.0, 65_536.0).floor_i32()).unwrap();
        let expected = f32::from(value) / 65_536.0 * scale + offset;
        if (expected - inverse_depth).abs() < 1e-3 { value ^ 0x4000 } else { value }
    };
    let values = drawn.into_iter().map(value).collect();
    let depth = Some(InverseDepthMap { values, scale, offset });
    Shot { photo: Arc::new(Image { depth, ..Image::clone(&shot.photo) }), settings, ..shot }
}

//! Depths and normals of surfaces: what is drawn of them, how they are compared, and the gradients.

use splat::math::linalg::{Quat, dot, mul, rotation};
use splat::math::normals::{
    blended_normal, blended_normal_bwd, facing_normal, facing_normal_bwd, slope, slope_bwd,
    surface_normal, surface_normal_bwd,
};
use splat::math::splat::Shape;

use crate::common::oracle::assert_same_steps;
use crate::prelude::*;
use crate::support::with_depth_noise;

each_backend!(
    discs_that_face_the_camera_disagree_at_the_border_only,
    discs_turn_into_the_surface_that_they_make_up,
    what_was_not_drawn_is_not_compared,
    gradients_of_colours_are_the_same_with_a_surface_and_without,
);

fn with_surface(settings: DrawSettings) -> DrawSettings {
    DrawSettings { surface: true, ..settings }
}

/// Discs side by side at depth 2 of the straight camera, so close that they hide the background, turned
/// by this quaternion from where they face it.
fn wall(quat: Quat<f32>) -> Gaussians {
    let places = (-13_i16..=13).flat_map(|x| (-11_i16..=11).map(move |y| [x, y]));
    let discs: Vec<Gaussians> = places
        .map(|at| {
            let [x, y] = at.map(|i| 0.1 * f32::from(i));
            let mut disc = gaussian([x, y, 2.0], 0.2, 0.5, [0.2, 0.6, 0.4]);
            disc.log_scales[2] = 0.01_f32.ln();
            disc.quats = quat.to_vec();
            disc
        })
        .collect();
    together(&discs)
}

const BORDER: f64 = 1.0 - (35.0 * 27.0) / (37.0 * 29.0);

/// The mean of a model's view, with the gradients of it and of the colours.
fn compared<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (weight, depths): (f64, NormalDepths),
) -> (f64, B::Gradients) {
    let median = depths == NormalDepths::Median;
    let settings = DrawSettings { median, ..with_surface(settings(3, 7)) };
    let mut shot = noisy_shot(0, &straight(), settings);
    shot.terms.add(Term::DepthNormal { depths }, weight);
    let mut gradients = B::Gradients::default();
    let values = add_shot(device, model, &shot, &mut gradients);
    (values.get("dn").unwrap(), gradients)
}

fn discs_that_face_the_camera_disagree_at_the_border_only<B: TrainDevice>(device: &mut B) {
    let mut model = device.upload(&wall([1.0, 0.0, 0.0, 0.0])).unwrap();
    let cases =
        [(NormalDepths::All, BORDER), (NormalDepths::Opaque, 0.0), (NormalDepths::Median, 0.0)];
    for (depths, expected) in cases {
        let (mean, _) = compared(device, &mut model, (0.05, depths));
        // Pixels are finished when 1 to 2e-4 still shine through: their depths, not divided by the
        // opacity, differ by so much.
        assert!((mean - expected).abs() < 2e-4, "{depths:?}: {mean} for {expected}");
    }
}

fn discs_turn_into_the_surface_that_they_make_up<B: TrainDevice>(device: &mut B) {
    // By 0.5 rad about an oblique axis.
    let (sine, cosine) = 0.25_f32.sin_cos();
    let mut model = device.upload(&wall([cosine, 0.8 * sine, -0.6 * sine, 0.0])).unwrap();
    let only_turn = Rates { quats: 0.01, ..AT_REST };
    let mut means = Vec::new();
    for number in 1..=40 {
        let (mean, gradients) = compared(device, &mut model, (100.0, NormalDepths::All));
        device.step(&mut model, gradients, &AdamStep::new(number, only_turn)).unwrap();
        means.push(mean - BORDER);
    }
    // 1 - cos(0.5 rad) is 0.12.
    assert!(means[0] > 0.05, "{means:?}");
    assert!(means[39] < 0.1 * means[0], "{means:?}");
}

fn what_was_not_drawn_is_not_compared<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&tame_gaussians(40, 3, 3)).unwrap();
    let target = device.target(0, &photo(37, 29, None)).unwrap();
    let frame = device.draw(&model, &view(), &settings(3, 3)).unwrap();
    let terms = Terms::photometric(0.2).with(Term::DepthNormal { depths: NormalDepths::All }, 0.05);
    let refused = device.compare(&model, frame, &target, &terms).err();
    let expected = matches!(refused, Some(DeviceError::MissingInput { term: "depth-normal", .. }));
    assert!(expected, "{refused:?}");
}

fn gradients_of_colours_are_the_same_with_a_surface_and_without<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(300, 4, 3);
    // What is drawn and not compared gives no gradient.
    let [plain, beside] = [settings(3, 4), with_surface(settings(3, 4))].map(|settings| {
        let shot = noisy_shot(0, &view(), settings);
        stepped(device, &gaussians, &[shot], &AdamStep::new(1, AT_REST)).1.first_moments
    });
    let groups = [&plain.quats, &plain.means, &plain.sh_dc].into_iter();
    for (plain, beside) in groups.zip([&beside.quats, &beside.means, &beside.sh_dc]) {
        // Sums over pixels in any order.
        assert_near(beside, plain, |value| 1e-4 * value.abs().max(1e-4), "moment");
    }
}

const EXACT: (f64, f64) = (1e-6, 1e-6);

#[test]
fn normals_of_gaussians_face_the_camera_and_agree_with_their_differences() {
    let (mut draws, view) = (Draws::new(31), crate::common::scene::viewpoint(&view(), NEAR));
    for _ in 0..30 {
        let shape = Shape {
            mean_world: draws.array(-0.5, 2.0),
            log_scale: draws.array(-4.0, 0.0),
            quat: draws.array(-1.0, 1.0),
            smoothing: 0.0,
        };
        let normal = facing_normal(&view, &shape);
        let mean_cam =
            splat::math::linalg::add(mul(&view.rotation, shape.mean_world), view.translation);
        assert!((dot(normal, normal) - 1.0).abs() < 1e-12);
        assert!(dot(normal, mean_cam) <= 0.0, "{normal:?} looks away");
        let shortest = (0..3).min_by(|&a, &b| shape.log_scale[a].total_cmp(&shape.log_scale[b]));
        let axis = rotation(shape.quat).map(|row| row[shortest.unwrap()]);
        assert!((dot(normal, mul(&view.rotation, axis)).abs() - 1.0).abs() < 1e-12);

        let d_normal = draws.array(-1.0, 1.0);
        let found = facing_normal_bwd(&view, &shape, d_normal);
        for (k, found) in found.into_iter().enumerate() {
            let moved = |x| Shape { quat: with(shape.quat, k, x), ..shape };
            let f = |x| dot(facing_normal(&view, &moved(x)), d_normal);
            let expected = derivative_between_cuts(shape.quat[k], f);
            assert_relative(found, expected, EXACT, "quaternion");
        }
    }
}

#[test]
fn normals_of_maps_agree_with_their_differences() {
    let mut draws = Draws::new(32);
    for _ in 0..30 {
        let (xy, d_normal) = (draws.array::<2>(-0.65, 0.65), draws.array::<3>(-1.0, 1.0));
        let (slopes, ray) = (draws.array::<2>(-3.0, 3.0), draws.array::<2>(-0.7, 0.7));
        let found = blended_normal_bwd(xy, d_normal);
        let of_slopes = surface_normal_bwd(slopes, ray, d_normal);
        let [before, behind] = draws.array::<2>(0.3, 4.0);
        let of_depths = slope_bwd(40.0, before, behind, 0.01);
        let depth_slope = |before, behind| 0.01 * slope(40.0, before, behind).unwrap();
        for k in 0..2 {
            let expected = derivative(xy[k], |x| dot(blended_normal(with(xy, k, x)), d_normal));
            assert_relative(found[k], expected, EXACT, "x and y");
            let f = |x| dot(surface_normal(with(slopes, k, x), ray), d_normal);
            assert_relative(of_slopes[k], derivative(slopes[k], f), EXACT, "slope");
        }
        let expected = derivative(before, |x| depth_slope(x, behind));
        assert_relative(of_depths[0], expected, EXACT, "depth before");
        let expected = derivative(behind, |x| depth_slope(before, x));
        assert_relative(of_depths[1], expected, EXACT, "depth behind");
    }
    assert_eq!(blended_normal_bwd([0.8, 0.7], [0.3, -0.2, 9.0]), [0.3, -0.2]);
    assert_eq!(slope(40.0, 0.0, 0.0), None);
}

/// A handful of overlapping Gaussians, drawn so that no pixel lies within a difference's step of a
/// cut-off, and no axis within it of another's length or of the line across the view.
fn scene() -> Gaussians {
    nine(&mut Draws::new(10), [-2.6, -1.2])
}

/// Weight of the normals in the objective of the whole pipeline.
const WEIGHT: f64 = 0.4;

#[test]
fn the_whole_pipeline_agrees_with_its_difference_in_every_parameter() {
    for inverse_depth in [false, true] {
        let drawing = DrawSettings { surface: true, inverse_depth, ..COLOURS };
        let terms = Terms::photometric(0.2)
            .with(Term::InverseDepth, if inverse_depth { 0.3 } else { 0.0 })
            .with(Term::DepthNormal { depths: NormalDepths::All }, WEIGHT);
        let mut model = Cpu::<f64>::new().upload(&scene()).unwrap();
        let compared = (&photo(37, 29, None), &terms, &[("dn", WEIGHT)][..]);
        let compared =
            assert_view_differences(&mut model, &drawing, compared, &Parameter::ALL[..4]);
        // Of 8 that are seen: 24 of means and scales, 32 of quaternions, 8 of opacities.
        assert!(compared.iter().zip([20, 20, 26, 7]).all(|(n, least)| *n >= least), "{compared:?}");
    }
}

#[test]
fn a_view_smaller_than_three_pixels_is_all_border() {
    let device = &mut Cpu::<f64>::new();
    for size in [[1, 1], [2, 9], [9, 2]] {
        let view = resized(&straight(), size);
        let mut model = device.upload(&wall([1.0, 0.0, 0.0, 0.0])).unwrap();
        let mut shot = noisy_shot(0, &view, with_surface(settings(3, 1)));
        shot.terms.add(Term::DepthNormal { depths: NormalDepths::All }, 0.05);
        let values = add_shot(device, &mut model, &shot, &mut Default::default());
        assert_eq!(values.get("dn"), Some(1.0));
    }
}

// Maps of surfaces and the comparison of their normals: every device against the CPU backend in double precision.

each_backend!(
    losses_and_gradients_of_normals_agree_with_the_oracle,
    normals_and_inverse_depths_agree_with_the_oracle_together,
    lists_of_several_chunks_agree_with_the_oracle,
    a_view_that_sees_nothing_has_no_surface,
);

const NORMALS_WEIGHT: f64 = 0.3;

const RULES: [NormalDepths; 3] = [NormalDepths::All, NormalDepths::Opaque, NormalDepths::Median];

/// Takes the first step with normals compared. Returns the step and their mean.
pub(super) fn first_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (shot, depths): (&Shot, NormalDepths),
) -> (FirstStep, f64) {
    let terms = shot.terms_drawn().with(Term::DepthNormal { depths }, NORMALS_WEIGHT);
    let settings = DrawSettings { median: depths == NormalDepths::Median, ..shot.settings };
    let shot = Shot { terms, settings, ..shot.clone() };
    let (mut losses, snapshot) = stepped(device, gaussians, &[shot], &AdamStep::new(1, RATES));
    let values = losses.remove(0);
    let mean = values.get("dn").unwrap();
    (FirstStep { loss: values.into(), snapshot }, mean)
}

fn assert_steps_agree<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    what: &str,
) {
    for rule in RULES {
        let [(found, mean), (expected, expected_mean)] =
            beside_oracle!(device, first_step(device, gaussians, (shot, rule)));
        let what = format!("{what}, {rule:?}");
        // At the edge of a surface the slope is as steep as the pixels allow and has a rounding of 1e-6.
        let error = (mean - expected_mean).abs();
        assert!(error < 1e-5, "{what}: {mean} for {expected_mean}");
        assert_same_steps(&found, &expected, (shot.size(), &what));
    }
}

fn losses_and_gradients_of_normals_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [3, 3], [11, 11], [17, 33], [37, 29], [65, 18]])
    {
        let (gaussians, shot) = clear_shot(size, seed, with_surface(settings(3, seed)));
        assert_steps_agree(device, &gaussians, &shot, &format!("{size:?} px"));
    }
}

/// The shot with a map of noise beside the photograph, and all statistics.
pub(super) fn with_depths(shot: Shot, gaussians: &Gaussians) -> Shot {
    let shot = with_depth_noise(shot, gaussians, 72);
    Shot { settings: DrawSettings { statistics: Statistics::Both, ..shot.settings }, ..shot }
}

fn normals_and_inverse_depths_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let (gaussians, shot) = clear_shot([37, 29], 8, with_surface(settings(3, 8)));
    let shot = with_depths(shot, &gaussians);
    assert_steps_agree(device, &gaussians, &shot, "with inverse depths");
}

fn lists_of_several_chunks_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // 256 instances are a chunk: this is two of them and a part.
    let depths = (0..600).map(|i| 1.0 + 4e-3 * i as f32);
    let gaussians = layers(depths, 9, (0.9, 0.009, 0.2), Some(0.3));
    let view = resized(&straight(), [37, 21]);
    let settings = with_surface(settings(3, 6));
    let plain = shot(&gaussians, &view, settings, (6, Counted::All));
    assert_steps_agree(device, &gaussians, &plain, "600 layers");
    let deep = with_depths(plain, &gaussians);
    assert_steps_agree(device, &gaussians, &deep, "600 layers with inverse depths");
}

fn a_view_that_sees_nothing_has_no_surface<B: TrainDevice>(device: &mut B) {
    let behind = gaussian([0.0, 0.0, -3.0], 0.1, 0.5, [0.5; 3]);
    for gaussians in [together(&vec![behind; 40]), tame_gaussians(0, 1, 3)] {
        let settings = with_surface(settings(3, 5));
        let shot = shot(&gaussians, &straight(), settings, (5, Counted::All));
        let (found, mean) = first_step(device, &gaussians, (&shot, NormalDepths::All));
        assert_eq!(mean, 1.0);
        assert!(found.snapshot.first_moments.quats.iter().all(|&moment| moment == 0.0));
        let (_, mean) = first_step(device, &gaussians, (&shot, NormalDepths::Opaque));
        assert_eq!(mean, 0.0);
    }
}

#[cfg(kernels)]
fn bits(device: &mut Cuda, (gaussians, view): (&Gaussians, &View), pass: Pass) -> Vec<u32> {
    let model = device.upload(gaussians).unwrap();
    let settings = with_surface(settings(3, 5));
    let settings = DrawSettings { pass, inverse_depth: true, ..settings };
    let image = drawn_either(device, &model, (view, &settings));
    let beside = [image.inverse_depths, image.surface].into_iter().flatten().flatten();
    image.rgb.into_iter().chain(beside).map(f32::to_bits).collect()
}

/// A view with a photograph of noise, whatever lies near a cut-off: a device against itself.
#[cfg(kernels)]
fn noisy(view: &View) -> Shot {
    noisy_shot(0, view, with_surface(settings(3, 5)))
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn bands_give_the_maps_the_loss_and_the_gradients_of_the_view_at_once() {
    let device = &mut cuda::open();
    for (seed, size) in (1..).zip([[203, 147], [37, 29], [64, 131], [1, 130], [16, 16]]) {
        let view = resized(&straight(), size);
        let gaussians = tame_gaussians(1500, seed, 3);
        let shot = with_depths(noisy(&view), &gaussians);
        device.set_bands(BandPolicy::Never);
        let [shown, trained] =
            [Pass::Eval, Pass::Train].map(|pass| bits(device, (&gaussians, &view), pass));
        assert!(shown == trained, "{size:?} px");
        let wholes = [(); 4].map(|()| first_step(device, &gaussians, (&shot, NormalDepths::All)));
        let apart = |other: &FirstStep| gradient_errors(&other.snapshot, &wholes[0].0.snapshot);
        // Gradients are added up in any order: steps over the whole view say how much that changes.
        let noise: Vec<_> = wholes[1..].iter().map(|(step, _)| apart(step)).collect();
        for bands in [1, 2, 3, u32::MAX] {
            device.set_bands(BandPolicy::AtLeast(bands));
            for pass in [Pass::Eval, Pass::Train] {
                let found = bits(device, (&gaussians, &view), pass);
                assert!(found == shown, "{size:?} px, {bands}");
            }
            let (found, mean) = first_step(device, &gaussians, (&shot, NormalDepths::All));
            assert!((mean - wholes[0].1).abs() < 1e-12, "{size:?} px, {bands}: {mean}");
            for (group, (name, error)) in apart(&found).into_iter().enumerate() {
                let noise = noise.iter().map(|errors| errors[group].1).fold(0.0, f64::max);
                // As of inverse depths: terms of pixels that nearly cancel.
                let what = format!("{size:?} px, {bands} bands, {name}");
                assert!(error <= 4.0 * noise + 2e-5, "{what}: {error:.1e}, not {noise:.1e}");
            }
        }
    }
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_takes_the_gradients_of_one_in_full_precision() {
    // Values that both storages hold exactly.
    let mut device = compact();
    let mut model = device.upload(&tame_gaussians(203, 4, 3)).unwrap();
    let gaussians = device.download(&mut model).unwrap();
    let shot = noisy(&view());
    let [found, expected] = [compact(), full()].map(|mut device| {
        let (step, mean) = first_step(&mut device, &gaussians, (&shot, NormalDepths::All));
        (gradients(&step.snapshot), mean)
    });
    assert!((found.1 - expected.1).abs() < 1e-6, "{} and {}", found.1, expected.1);
    for ((name, _, found), (_, _, expected)) in found.0.iter().zip(&expected.0).take(4) {
        let floor = 0.1 * mean_size(expected);
        // First moments of 8 bits, rounded by chance.
        assert_near(found, expected, |value| 1e-2 * value.abs().max(floor), name);
    }
}

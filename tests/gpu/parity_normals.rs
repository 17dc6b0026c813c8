//! Maps of surfaces and the comparison of their normals: every device against the CPU backend in double
//! precision.

use crate::common::prelude::*;
use std::sync::Arc;

use crate::common::drawing::drawn_either;
use crate::common::oracle::{
    Counted, FirstStep, Shot, assert_gradients_agree, assert_losses_agree, clear_gaussians,
    clear_pixels, gradient_tolerance, settings, shot,
};
use crate::common::scene::{
    RATES, composite, gaussian, resized, straight, tame_gaussians, together,
};
use crate::common::{Draws, view};
use splat::backend::cpu::Cpu;
use splat::backend::{AdamStep, NormalDepths, Statistics, Term, TrainDevice};
use splat::dataset::{Image, InverseDepthMap, View};
use splat::math::Real;
use splat::model::Gaussians;

each_backend!(
    maps_of_surfaces_agree_with_the_oracle,
    losses_and_gradients_of_normals_agree_with_the_oracle,
    normals_and_inverse_depths_agree_with_the_oracle_together,
    lists_of_several_chunks_agree_with_the_oracle,
    a_view_that_sees_nothing_has_no_surface,
);

/// Of the normals in the loss.
const WEIGHT: f64 = 0.3;

/// Which pixels count.
const RULES: [NormalDepths; 3] = [NormalDepths::All, NormalDepths::Opaque, NormalDepths::Median];

fn with_surface(settings: Drawing) -> Drawing {
    Drawing { surface: true, ..settings }
}

/// Depth, x and y of the normal, and opacity of each pixel.
fn maps<B: TrainDevice>(
    device: &mut B,
    (gaussians, view): (&Gaussians, &View),
    settings: &Drawing,
) -> Vec<f32> {
    let model = device.upload(gaussians).unwrap();
    drawn_either(device, &model, (view, settings)).surface.expect("a surface was asked for")
}

fn maps_of_surfaces_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [16, 16], [17, 33], [37, 29], [15, 130], [203, 47]]) {
        let view = resized(&view(), size);
        for count in [0, 3, 40, 300] {
            let gaussians = tame_gaussians(count, seed, 3);
            for (pass, inverse_depth) in [(Pass::Eval, false), (Pass::Train, true)] {
                let settings = with_surface(settings(3, seed));
                let settings = Drawing { pass, inverse_depth, ..settings };
                let found = maps(device, (&gaussians, &view), &settings);
                let expected = maps(&mut Cpu::<f64>::new(), (&gaussians, &view), &settings);
                let clear = clear_pixels(&composite(&gaussians, &view, &settings));
                assert_eq!(found.len(), clear.len() * 4);
                for (pixel, _) in clear.iter().enumerate().filter(|&(_, &clear)| clear) {
                    for channel in pixel * 4..pixel * 4 + 4 {
                        // What colours may differ by, times depths of up to 4.
                        let error = (found[channel] - expected[channel]).abs();
                        let what = format!("{size:?} px, {count}, {pass:?}, value {channel}");
                        assert!(
                            error < 4e-4,
                            "{what}: {} for {}",
                            found[channel],
                            expected[channel]
                        );
                    }
                }
            }
        }
    }
}

/// What the first step leaves where normals are compared, too; with their mean.
pub(super) fn first_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (shot, depths): (&Shot, NormalDepths),
) -> (FirstStep, f64) {
    let mut model = device.upload(gaussians).unwrap();
    let target = device.target(shot.index, &shot.photo).unwrap();
    let terms = shot.terms_drawn().with(Term::DepthNormal { depths }, WEIGHT);
    let drawing = Drawing { median: depths == NormalDepths::Median, ..shot.settings };
    let (seen, mut gradients) = ((&shot.view, &drawing), Default::default());
    let loss = device.add_view(&mut model, seen, (&target, &terms), &mut gradients).unwrap();
    device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
    let snapshot = device.snapshot(&mut model).unwrap();
    let values = loss.read().unwrap();
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
        let (found, mean) = first_step(device, gaussians, (shot, rule));
        let (expected, expected_mean) = first_step(&mut Cpu::<f64>::new(), gaussians, (shot, rule));
        let what = format!("{what}, {rule:?}");
        // Where a depth begins its slope is as steep as the pixels allow and has a rounding of 1e-6.
        let error = (mean - expected_mean).abs();
        assert!(error < 1e-5, "{what}: {mean} for {expected_mean}");
        assert_losses_agree(&found.loss, &expected.loss, (shot.size(), &what));
        let tolerance = gradient_tolerance(shot.size());
        assert_gradients_agree(&found.snapshot, &expected.snapshot, (tolerance, &what));
    }
}

fn losses_and_gradients_of_normals_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, size) in (1..).zip([[1, 1], [3, 2], [3, 3], [11, 11], [17, 33], [37, 29], [65, 18]])
    {
        let view = resized(&view(), size);
        let settings = with_surface(settings(3, seed));
        let gaussians = clear_gaussians(12, seed, &[(&view, settings)]);
        let shot = shot(&gaussians, &view, settings, (seed, Counted::All));
        assert_steps_agree(device, &gaussians, &shot, &format!("{size:?} px"));
    }
}

/// The shot with a map of noise beside the photograph, in every value far from what is drawn.
pub(super) fn with_depths(shot: Shot, gaussians: &Gaussians) -> Shot {
    let settings = Drawing { inverse_depth: true, statistics: Statistics::Both, ..shot.settings };
    let oracle = &mut Cpu::<f64>::new();
    let model = oracle.upload(gaussians).unwrap();
    let frame = oracle.show(&model, &shot.view, &settings).unwrap();
    let drawn = oracle.image(&frame).unwrap().inverse_depths.unwrap();
    let mut draws = Draws::new(72);
    let (scale, offset) = (2.0, 0.1);
    let value = |inverse_depth: f32| {
        let value = u16::try_from(draws.uniform(0.0, 65_536.0).floor_i32()).unwrap();
        let expected = f32::from(value) / 65_536.0 * scale + offset;
        if (expected - inverse_depth).abs() < 1e-3 { value ^ 0x4000 } else { value }
    };
    let depth =
        Some(InverseDepthMap { values: drawn.into_iter().map(value).collect(), scale, offset });
    Shot { photo: Arc::new(Image { depth, ..Image::clone(&shot.photo) }), settings, ..shot }
}

fn normals_and_inverse_depths_agree_with_the_oracle_together<B: TrainDevice>(device: &mut B) {
    let view = resized(&view(), [37, 29]);
    let settings = with_surface(settings(3, 8));
    let gaussians = clear_gaussians(12, 8, &[(&view, settings)]);
    let shot = shot(&gaussians, &view, settings, (8, Counted::All));
    let shot = with_depths(shot, &gaussians);
    assert_steps_agree(device, &gaussians, &shot, "with inverse depths");
}

/// Faint discs that all cover all of a view, one behind the other, turned this way and that.
fn layers(count: u32) -> Gaussians {
    let mut draws = Draws::new(9);
    let parts: Vec<Gaussians> = (0..count)
        .map(|i| {
            let depth = 1.0 + 4e-3 * i as f32;
            let [x, y] = draws.array::<2>(-0.2, 0.2).map(f64::to_f32);
            let color = draws.array::<3>(0.1, 0.9).map(f64::to_f32);
            // Twice the least opacity that shows at the centre, and more than it anywhere in view.
            let mut one = gaussian([x * depth, y * depth, depth], 0.9 * depth, 0.009, color);
            let [a, b] = draws.array::<2>(-0.3, 0.3).map(f64::to_f32);
            one.quats = vec![1.0, a, b, 0.1];
            // What is round has no gradient of its rotation, and rounding would be held against nothing.
            one.log_scales[0] += 0.3;
            one.log_scales[2] -= 0.2;
            one
        })
        .collect();
    together(&parts)
}

fn lists_of_several_chunks_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    // 256 instances are a chunk: this is two of them and a part.
    let gaussians = layers(600);
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
mod on_the_device {
    use splat::backend::Terms;
    use splat::backend::cuda::{BandPolicy, Cuda};

    use super::*;
    use crate::common::compact::{compact, full};
    use crate::common::cuda;
    use crate::common::oracle::{gradients, mean_size, relative_error};
    use crate::common::scene::photo;

    /// The bits of a picture with all that is drawn beside it.
    fn bits(device: &mut Cuda, (gaussians, view): (&Gaussians, &View), pass: Pass) -> Vec<u32> {
        let model = device.upload(gaussians).unwrap();
        let settings = with_surface(settings(3, 5));
        let settings = Drawing { pass, inverse_depth: true, ..settings };
        let image = drawn_either(device, &model, (view, &settings));
        let beside = [image.inverse_depths, image.surface].into_iter().flatten().flatten();
        image.rgb.into_iter().chain(beside).map(f32::to_bits).collect()
    }

    /// A view with a photograph of noise, whatever lies near a cut-off: a device against itself.
    fn noisy(view: &View) -> Shot {
        Shot {
            index: 0,
            view: view.clone(),
            photo: photo(view.camera.width, view.camera.height, None),
            settings: with_surface(settings(3, 5)),
            terms: Terms::photometric(0.2),
        }
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn bands_give_the_maps_the_loss_and_the_gradients_of_the_view_at_once() {
        let device = &mut cuda::open();
        for (seed, size) in (1..).zip([[203, 147], [37, 29], [64, 131], [1, 130], [16, 16]]) {
            let view = resized(&straight(), size);
            let gaussians = tame_gaussians(1500, seed, 3);
            let shot = with_depths(noisy(&view), &gaussians);
            device.set_bands(BandPolicy::Never);
            let [look, train] =
                [Pass::Eval, Pass::Train].map(|pass| bits(device, (&gaussians, &view), pass));
            assert!(look == train, "{size:?} px");
            let wholes =
                [(); 4].map(|()| first_step(device, &gaussians, (&shot, NormalDepths::All)));
            let expected = gradients(&wholes[0].0.snapshot);
            let apart = |other: &FirstStep| -> Vec<f64> {
                let pairs = gradients(&other.snapshot).into_iter().zip(&expected);
                pairs.map(|(found, expected)| relative_error(&found.2, &expected.2)).collect()
            };
            // Gradients are added up in any order: steps over the whole view say how much that changes.
            let noise: Vec<Vec<f64>> = wholes[1..].iter().map(|(step, _)| apart(step)).collect();
            for bands in [1, 2, 3, u32::MAX] {
                device.set_bands(BandPolicy::AtLeast(bands));
                for pass in [Pass::Eval, Pass::Train] {
                    assert!(
                        bits(device, (&gaussians, &view), pass) == look,
                        "{size:?} px, {bands}"
                    );
                }
                let (found, mean) = first_step(device, &gaussians, (&shot, NormalDepths::All));
                assert!((mean - wholes[0].1).abs() < 1e-12, "{size:?} px, {bands}: {mean}");
                for (group, error) in apart(&found).into_iter().enumerate() {
                    let noise = noise.iter().map(|errors| errors[group]).fold(0.0, f64::max);
                    // As of inverse depths: terms of pixels that nearly cancel.
                    let what = format!("{size:?} px, {bands} bands, {}", expected[group].0);
                    assert!(error <= 4.0 * noise + 2e-5, "{what}: {error:.1e}, not {noise:.1e}");
                }
            }
        }
    }

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
            for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                // First moments of 8 bits, rounded by chance.
                let error = (found - expected).abs();
                let limit = 1e-2 * expected.abs().max(floor);
                assert!(error <= limit, "{name} {i}: {found:e} for {expected:e}");
            }
        }
    }
}

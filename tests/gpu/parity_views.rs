//! Steps that take several views, of every device against the CPU backend in double precision.

use crate::common::oracle::{
    AT_REST, Counted, GRADIENT_TOLERANCE, Shot, assert_columns_agree, assert_gradients_agree,
    clear_gaussians, gradients, mean_size, settings, shot,
};
use crate::common::prelude::*;
use crate::common::scene::{RATES, resized, straight, tame_gaussians};
use crate::common::surface::{SurfaceRule, add_rule, masked};
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{
    AdamStep, Footprint, MotionReach, Noise, NormalDepths, Rates, Reach, Regularisers, Snapshot,
    Term, TrainDevice,
};
use splat::dataset::View;
use splat::math::adam::Moments;
use splat::model::{Gaussians, fuse};

use super::parity_late::{assert_alike, gaussians as seen_and_behind};
use super::parity_normals::with_depths;
use super::parity_surface::{CANCELLED, crowd};

each_backend!(
    batches_of_every_size_agree_with_the_oracle,
    sampled_terms_of_several_views_agree_with_the_oracle,
    regularisers_and_noise_come_once_a_step,
    colours_that_no_view_of_a_batch_sees_move_on_as_the_oracles,
);

/// Sizes of batches: today's step, and those of several views.
const BATCHES: [usize; 4] = [1, 2, 5, 8];

/// What a step has to do beside colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Colours,
    InverseDepths,
    /// Depths and normals are drawn and compared.
    Normals,
    /// The opacities' entropy is added to the geometry's gradients.
    Entropy,
    /// The filters of Mip-Splatting.
    Filters,
    /// All of it but the filters.
    All,
}

const KINDS: [Kind; 6] =
    [Kind::Colours, Kind::InverseDepths, Kind::Normals, Kind::Entropy, Kind::Filters, Kind::All];

const MIP: Footprint = Footprint::Ellipse { variance_px2: 0.1, compensates: true };

/// Depth from which on views tell of what they see, world units.
const SAMPLED_FROM: f64 = 0.2;

/// Of the normals, and of the entropy, in the loss.
const WEIGHT: f64 = 0.3;

/// Views from so many places, of sizes that differ.
fn views(count: usize) -> Vec<View> {
    let aside = |i: usize| {
        let at = u8::try_from(i).map(f64::from).unwrap();
        let mut aside = if i.is_multiple_of(2) { view() } else { straight() };
        aside.pose.translation = [0.05 * at - 0.2, 0.1 - 0.03 * at, 0.1 + 0.04 * at];
        let side = u32::try_from(i).unwrap();
        resized(&aside, [37 - 2 * side, 29 + side])
    };
    (0..count).map(aside).collect()
}

/// The Gaussians, and the views of a batch with their photographs and terms.
fn batch(kind: Kind, count: usize, seed: u64) -> (Gaussians, Vec<Shot>) {
    let views = views(count);
    let drawing = |i: usize| {
        let mut drawing = settings(u32::try_from(i % 4).unwrap(), seed + i as u64);
        drawing.surface = matches!(kind, Kind::Normals | Kind::All);
        if kind == Kind::Filters {
            drawing.footprint = MIP;
        }
        drawing
    };
    let compares_maps = matches!(kind, Kind::Normals | Kind::All | Kind::InverseDepths);
    let gaussians = if compares_maps {
        let frames: Vec<_> = views.iter().enumerate().map(|(i, view)| (view, drawing(i))).collect();
        clear_gaussians(6, seed, &frames)
    } else {
        tame_gaussians(70, seed, 3)
    };
    let drawn = if kind == Kind::Filters { smoothed(&gaussians) } else { gaussians.clone() };
    let shots = views.iter().enumerate().map(|(i, view)| {
        let counted = if compares_maps { Counted::All } else { Counted::Clear };
        let mut shot = shot(&drawn, view, drawing(i), (seed + i as u64, counted));
        if matches!(kind, Kind::InverseDepths | Kind::All) {
            shot = with_depths(shot, &gaussians);
        }
        shot.terms = shot.terms_drawn();
        if shot.settings.surface {
            shot.terms.add(
                Term::DepthNormal { depths: [NormalDepths::All, NormalDepths::Opaque][i % 2] },
                WEIGHT,
            );
        }
        if matches!(kind, Kind::Entropy | Kind::All) {
            shot.terms.add(Term::Entropy, WEIGHT);
        }
        Shot { index: i, ..shot }
    });
    let shots = shots.collect();
    (gaussians, shots)
}

/// The Gaussians as they are drawn through their 3D filter.
fn smoothed(gaussians: &Gaussians) -> Gaussians {
    let mut oracle = Cpu::<f64>::new();
    let mut model = oracle.upload(gaussians).unwrap();
    oracle.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    let Snapshot { mut parameters, filter_3d, .. } = oracle.snapshot(&mut model).unwrap();
    fuse(&mut parameters, &filter_3d);
    parameters
}

/// Adds the gradients of these views.
fn add<B: TrainDevice>(device: &mut B, model: &mut B::Model, shots: &[Shot]) -> B::Gradients {
    let mut gradients = B::Gradients::default();
    for Shot { index, view, photo, settings, terms } in shots {
        let target = device.target(*index, photo).unwrap();
        let losses = device.add_view(model, (view, settings), (&target, terms), &mut gradients);
        losses.unwrap().read().unwrap();
    }
    gradients
}

/// What one step over these views left behind.
fn stepped<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    (shots, kind): (&[Shot], Kind),
) -> Snapshot<Gaussians> {
    let mut model = device.upload(gaussians).unwrap();
    if kind == Kind::Filters {
        device.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    }
    let gradients = add(device, &mut model, shots);
    device.step(&mut model, gradients, &AdamStep::new(1, RATES)).unwrap();
    device.snapshot(&mut model).unwrap()
}

fn batches_of_every_size_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    for (seed, kind) in (300..).zip(KINDS) {
        for count in BATCHES {
            let (gaussians, shots) = batch(kind, count, seed);
            let found = stepped(device, &gaussians, (&shots, kind));
            let expected = stepped(&mut Cpu::<f64>::new(), &gaussians, (&shots, kind));
            let what = format!("{count} views, {kind:?}");
            assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, &what));
            // Density control learns of each view's own gradients.
            let expected: Vec<f64> = wide(&expected.gradient_norm_sums);
            let floor = 0.1 * mean_size(&expected);
            for (found, expected) in wide(&found.gradient_norm_sums).iter().zip(&expected) {
                let error = (found - expected).abs();
                assert!(error <= 1e-3 * expected.max(floor), "{what}: {found} for {expected}");
            }
        }
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Weights that are all different.
const RULE: SurfaceRule = SurfaceRule::UNEQUAL;

fn sampled_terms_of_several_views_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let gaussians = crowd(300, 91);
    for count in BATCHES {
        let found = sampled(device, &gaussians, count);
        let expected = sampled(&mut Cpu::<f64>::new(), &gaussians, count);
        let what = format!("{count} views");
        assert_columns_agree(&gradients(&found), &gradients(&expected), CANCELLED, &what);
    }
}

/// What a step left behind by terms at samples alone, each view with samples of its own.
fn sampled<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    count: usize,
) -> Snapshot<Gaussians> {
    let mut model = device.upload(gaussians).unwrap();
    let near = device.neighbours(&model, 16).unwrap();
    let mut gradients = B::Gradients::default();
    for (iteration, side) in (7_001..).zip(0..count) {
        // Of other sizes; what is seen is the same in every precision.
        let side = u32::try_from(side).unwrap();
        let view = resized(&straight(), [48 + side, 40 + side]);
        let rule = SurfaceRule { iteration, ..RULE };
        let seen = (&view, masked(&view));
        add_rule(device, &mut model, seen, (Some(&near), &rule), &mut gradients).unwrap();
    }
    device.step(&mut model, gradients, &AdamStep::new(1, AT_REST)).unwrap();
    device.snapshot(&mut model).unwrap()
}

fn regularisers_and_noise_come_once_a_step<B: TrainDevice>(device: &mut B) {
    let (gaussians, shots) = batch(Kind::Colours, 5, 320);
    for (reach, moved) in [(Reach::All, MotionReach::All), (Reach::Seen, MotionReach::Unseen)] {
        let noise = Noise { rate: 50.0, key: 77, moved };
        let step = AdamStep {
            regularisers: Regularisers { opacity: 0.3, scale: 0.7, reach },
            noise: Some(noise),
            sh_decay: 0.25,
            ..AdamStep::new(1, AT_REST)
        };
        let [found, expected] = [after(device, &gaussians, &shots, &step), {
            after(&mut Cpu::<f64>::new(), &gaussians, &shots, &step)
        }];
        assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "with regularisers"));
        let pairs = found.parameters.means.iter().zip(&expected.parameters.means);
        for ((found, expected), start) in pairs.zip(&gaussians.means) {
            let way = (expected - start).abs();
            assert!((found - expected).abs() <= 1e-3 * way + 1e-6, "{found} for {expected}");
        }
        // Three quarters of a number are rounded once.
        assert_eq!(found.parameters.sh_rest, expected.parameters.sh_rest, "decayed harmonics");
    }
}

/// What this step over the views left behind.
fn after<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shots: &[Shot],
    step: &AdamStep,
) -> Snapshot<Gaussians> {
    let mut model = device.upload(gaussians).unwrap();
    let gradients = add(device, &mut model, shots);
    device.step(&mut model, gradients, step).unwrap();
    device.snapshot(&mut model).unwrap()
}

/// Only colours move, so that rows stay alike on both sides to the bit.
const COLOUR_RATES: Rates = Rates { sh_dc: 5e-3, sh_rest: 6e-3, ..AT_REST };

/// Steps of batches of these sizes, all over views that look ahead.
fn batches<B: TrainDevice>(device: &mut B, sizes: &[u32]) -> Snapshot<Gaussians> {
    let gaussians = seen_and_behind();
    let start = crate::common::scene::in_training(gaussians.clone(), 82);
    let mut model = device.restore(start).unwrap();
    let mut shot = shot(&gaussians, &straight(), settings(3, 8), (9, Counted::Some));
    shot.settings.pass = Pass::Train;
    let mut images = 0;
    for &size in sizes {
        images += size;
        let gradients = add(device, &mut model, &vec![shot.clone(); size as usize]);
        let moments = Moments::of_batch(images, size);
        let step = AdamStep { moments, ..AdamStep::new(images, COLOUR_RATES) };
        device.step(&mut model, gradients, &step).unwrap();
    }
    device.snapshot(&mut model).unwrap()
}

/// With steps of other decays among them, before which all colours have to catch up, and more steps
/// than the tables reach back.
fn colours_that_no_view_of_a_batch_sees_move_on_as_the_oracles<B: TrainDevice>(device: &mut B) {
    let few = [2, 2, 2, 1, 1, 3, 3, 3, 8].repeat(2);
    let many = vec![2; 140];
    for (what, sizes) in [("batches of other sizes", few), ("many batches", many)] {
        let found = batches(device, &sizes);
        let expected = batches(&mut Cpu::<f64>::new(), &sizes);
        assert_alike(&found, &expected, what);
    }
}

#[cfg(kernels)]
mod on_the_device {
    use crate::common::compact::{compact, full};
    use crate::common::cuda;
    use crate::common::oracle::relative_error;
    use splat::backend::cuda::Cuda;
    use splat::backend::{DeviceError, MemoryKind, Peaks};
    use splat::memory::Bytes;

    use super::*;

    /// First moments have 16 bits in the geometry and 8 in the colours, and are rounded by chance.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_compact_model_takes_the_gradients_of_one_in_full_precision() {
        for (seed, kind) in (340..).zip(KINDS) {
            for count in BATCHES {
                let (gaussians, shots) = batch(kind, count, seed);
                // Values that both storages hold exactly.
                let mut device = compact();
                let mut model = device.upload(&gaussians).unwrap();
                let gaussians = device.download(&mut model).unwrap();
                let [found, expected] = [compact(), full()]
                    .map(|mut device| gradients(&stepped(&mut device, &gaussians, (&shots, kind))));
                for (group, ((name, _, found), (_, _, expected))) in
                    found.iter().zip(&expected).enumerate()
                {
                    let what = format!("{count} views, {kind:?}, {name}");
                    if group < 4 {
                        let floor = 0.1 * mean_size(expected);
                        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
                            let error = (found - expected).abs();
                            let limit = 1e-2 * expected.abs().max(floor);
                            assert!(error <= limit, "{what} {i}: {found:e} for {expected:e}");
                        }
                    } else {
                        // Codes are an eighth of their value apart.
                        let error = relative_error(found, expected);
                        assert!(error < 0.1, "{what}: {error}");
                    }
                }
            }
        }
    }

    #[test]
    #[ignore = "needs a CUDA device"]
    fn nine_views_are_more_than_a_step_takes() {
        let (gaussians, mut shots) = batch(Kind::Colours, 8, 360);
        let mut device = cuda::open();
        let mut model = device.upload(&gaussians).unwrap();
        let mut sums = add(&mut device, &mut model, &shots);
        let Shot { view, photo, settings, terms, .. } = shots.remove(0);
        let target = device.target(8, &photo).unwrap();
        let added = device.add_view(&mut model, (&view, &settings), (&target, &terms), &mut sums);
        assert!(matches!(added, Err(DeviceError::TooManyViews { most: 8 })));
        // The eight that there are still make a step.
        device.step(&mut model, sums, &AdamStep::new(1, RATES)).unwrap();
    }

    /// Bytes of all blocks with this label.
    fn held(device: &mut Cuda, label: &str) -> u64 {
        let memory = device.memory(Peaks::Keep).unwrap();
        let blocks = memory.entries.iter().filter(|entry| entry.kind == MemoryKind::Block);
        blocks.filter(|entry| entry.label == label).map(|entry| entry.bytes).sum::<Bytes>().0
    }

    /// 4 bytes a Gaussian and 48 a splat that there is room for.
    #[test]
    #[ignore = "needs a CUDA device"]
    fn a_view_of_a_batch_keeps_its_gradients_alone() {
        let (gaussians, shots) = batch(Kind::Colours, 5, 370);
        let mut device = cuda::open();
        let mut model = device.upload(&gaussians).unwrap();
        let one = add(&mut device, &mut model, &shots[..1]);
        let each = ["splat of each Gaussian", "gradients of splats"].map(|label| {
            let bytes = held(&mut device, label);
            assert!(bytes > 0, "{label}");
            bytes
        });
        assert_eq!(held(&mut device, "splats"), 0);
        drop(one);
        let all = add(&mut device, &mut model, &shots);
        for (label, bytes) in ["splat of each Gaussian", "gradients of splats"].iter().zip(each) {
            assert_eq!(held(&mut device, label), 5 * bytes, "{label}");
        }
        for label in ["splats", "image", "gradient of the image", "instances"] {
            assert_eq!(held(&mut device, label), 0, "{label}");
        }
        device.step(&mut model, all, &AdamStep::new(1, RATES)).unwrap();
        assert_eq!(held(&mut device, "gradients of splats"), 0);
    }
}

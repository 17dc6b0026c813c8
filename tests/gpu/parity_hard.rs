//! Scenes that break renderers, on every device against the CPU backend in double precision.

use crate::common::oracle::{assert_agrees, draw};
use crate::common::scene::without;
use crate::prelude::*;
#[cfg(kernels)]
use splat::backend::cuda::driver::CudaDevice;

each_backend!(
    one_gaussian_is_drawn_and_moved,
    no_gaussians_at_all_are_drawn_and_moved,
    where_none_is_visible_the_background_shows_and_nothing_moves,
    behind_an_opaque_wall_nothing_takes_a_gradient,
    gaussians_smaller_than_any_pixel_are_drawn_and_moved,
    extremely_thin_gaussians_are_drawn_and_moved,
    gaussians_larger_than_the_scene_cover_every_tile,
    quaternions_of_any_length_turn_alike,
);

fn one_gaussian_is_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut one = gaussian([0.1, -0.15, 1.3], 0.12, 0.7, [0.9, 0.4, 0.2]);
    one.log_scales[1] -= 0.7;
    one.quats = vec![0.8, 0.3, -0.4, 0.2];
    let step = assert_agrees(device, &one, &view(), "one Gaussian");
    assert_eq!(step.snapshot.views_seen, [1]);
}

fn no_gaussians_at_all_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    for sh_degree in [0, 3] {
        let none = Gaussians::zeros(sh_degree, 0);
        let settings = settings(sh_degree, 2);
        assert_nothing_moves(device, &none, &view(), &settings);
        let mut model = device.upload(&none).unwrap();
        let rule = DensifyRule { opacity_min: 0.005, ..DensifyRule::ALL };
        assert_eq!(score(device, &model, &rule).count(), 0);
        densify(device, &mut model, &rule, 10).unwrap();
        device.adjust(&mut model, &Adjust::ResetOpacity(0.01)).unwrap();
        let snapshot = device.snapshot(&mut model).unwrap();
        assert_eq!(snapshot.parameters, none);
        let restored = device.restore(snapshot).unwrap();
        assert_eq!(device.len(&restored), 0);
    }
}

fn where_none_is_visible_the_background_shows_and_nothing_moves<B: TrainDevice>(device: &mut B) {
    let aside = gaussian([9.0, 1.0, 2.0], 0.1, 0.9, [0.5; 3]);
    let below = gaussian([-0.5, 14.0, 3.0], 0.2, 0.8, [0.6; 3]);
    let transparent = gaussian([0.0, 0.0, 1.5], 0.3, 0.0038, [0.7; 3]);
    // Just below an opacity of 1/255.
    let barely = gaussian([0.0, 0.0, 1.0], 0.1, 0.0039, [1.0; 3]);
    let too_near = gaussian([0.0, 0.0, 0.009], 0.01, 0.9, [0.8; 3]);
    let none_visible = together(&[aside, below, transparent, barely, too_near]);
    assert_nothing_moves(device, &none_visible, &straight(), &settings(3, 3));
    let mut behind = tame_gaussians(77, 4, 3);
    behind.means.iter_mut().skip(2).step_by(3).for_each(|z| *z = -z.abs());
    assert_nothing_moves(device, &behind, &straight(), &settings(3, 4));
}

/// The image is the background, the loss the oracle's, and a step leaves every bit where it is.
fn assert_nothing_moves<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    view: &View,
    settings: &DrawSettings,
) {
    let image = draw(device, gaussians, view, settings);
    assert!(image.rgb.chunks(3).all(|pixel| pixel == settings.background));
    assert!(counts(&image).iter().all(|&count| count == 0));
    let shot = shot(gaussians, view, *settings, (5, Counted::All));
    let found = FirstStep::taken_by(device, gaussians, &shot);
    let expected = FirstStep::of_the_oracle(gaussians, &shot);
    assert_losses_agree(&found.loss, &expected.loss, (shot.size(), "nothing in view"));
    let mut untouched = device.upload(gaussians).unwrap();
    assert_eq!(found.snapshot, device.snapshot(&mut untouched).unwrap());
    assert_eq!(found.snapshot.parameters, *gaussians);
    let moments = [&found.snapshot.first_moments, &found.snapshot.second_moments];
    assert_eq!(moments, [&Gaussians::zeros(gaussians.sh_degree, gaussians.len()); 2]);
}

fn behind_an_opaque_wall_nothing_takes_a_gradient<B: TrainDevice>(device: &mut B) {
    // Transmittances of 0.01 and 0.0005 behind the first two; the third would leave less than
    // 0.0001, so that it and all behind it are left out of every pixel.
    let wall = [(0.5, 0.9999), (0.6, 0.95), (0.7, 0.9)].map(|(depth, opacity)| {
        let mut one = gaussian([0.0, 0.01, depth], 9.0, opacity, [0.3, 0.6, 0.9]);
        // Not a sphere, whose rotation takes no gradient but rounding.
        one.log_scales[0] += depth;
        one.log_scales[1] -= 0.3;
        one.quats = vec![0.9, 0.1, -0.2, depth];
        one
    });
    let mut behind = tame_gaussians(50, 6, 3);
    for mean in behind.means.chunks_mut(3) {
        mean[2] = mean[2].abs() + 1.0;
    }
    let all = together(&[together(&wall), behind]);
    let image = draw(device, &all, &straight(), &settings(3, 5));
    assert!(counts(&image).iter().all(|&count| count == 2));
    let step = assert_agrees(device, &all, &straight(), "a wall");
    for (name, width, gradients) in gradients(&step.snapshot) {
        assert!(gradients[2 * width..].iter().all(|&d| d == 0.0), "{name} behind the wall");
    }
    // The first is held to an opacity of 0.99, and the flat wall's place does not matter.
    assert!(step.snapshot.first_moments.sh_dc[0] != 0.0);
    assert!(step.snapshot.first_moments.opacity_logits[1] != 0.0);
    assert_eq!(step.snapshot.first_moments.opacity_logits[0], 0.0);
    // They are seen none the less: their bounds meet the image.
    assert!(step.snapshot.views_seen[3..].contains(&1));
}

fn gaussians_smaller_than_any_pixel_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut points = tame_gaussians(90, 7, 3);
    for (i, scales) in points.log_scales.chunks_mut(3).enumerate() {
        // Not spheres, whose rotation takes no gradient but rounding.
        let turn = 0.01 * i as f32;
        scales.copy_from_slice(&[-30.0 - turn, -30.7 + turn, -29.6]);
    }
    let step = assert_agrees(device, &points, &view(), "points");
    // e^-30 of a unit is far below the dilation: only their form does not matter.
    assert!(step.snapshot.first_moments.means.iter().any(|&d| d != 0.0));
    assert!(step.snapshot.parameters.log_scales.iter().all(|s| s.is_finite()));
}

fn extremely_thin_gaussians_are_drawn_and_moved<B: TrainDevice>(device: &mut B) {
    let mut flat = tame_gaussians(60, 8, 3);
    for (i, scales) in flat.log_scales.chunks_mut(3).enumerate() {
        scales[i % 3] = scales[(i + 1) % 3] + 1e-8_f32.ln();
    }
    assert_agrees(device, &flat, &view(), "discs");
}

fn gaussians_larger_than_the_scene_cover_every_tile<B: TrainDevice>(device: &mut B) {
    let view = resized(&straight(), [101, 77]);
    let mut huge = tame_gaussians(40, 9, 3);
    let mut draws = Draws::new(10);
    for i in 0..huge.len() {
        huge.means[i * 3 + 2] = huge.means[i * 3 + 2].abs() + 0.5;
        let scales = draws.array::<3>(2.0, 5.0).map(f64::to_f32);
        huge.log_scales[i * 3..][..3].copy_from_slice(&scales);
        // Faint enough that the last still shows.
        huge.opacity_logits[i] = draws.uniform(-3.5, -1.0).to_f32();
    }
    let image = draw(device, &huge, &view, &settings(3, 6));
    assert!(counts(&image).iter().all(|&count| count > 20), "{:?}", counts(&image).iter().min());
    assert_agrees(device, &huge, &view, "huge Gaussians");
}

fn quaternions_of_any_length_turn_alike<B: TrainDevice>(device: &mut B) {
    let mut gaussians = tame_gaussians(80, 11, 3);
    let mut draws = Draws::new(12);
    for quat in gaussians.quats.chunks_mut(4) {
        let length = 10_f64.powf(draws.uniform(-3.0, 3.0)).to_f32();
        for q in quat {
            *q *= length;
        }
    }
    let shot = shot(&gaussians, &view(), settings(3, 7), (8, Counted::Clear));
    let mut found = FirstStep::taken_by(device, &gaussians, &shot).snapshot;
    let mut expected = FirstStep::of_the_oracle(&gaussians, &shot).snapshot;
    // The gradient shrinks as the quaternion grows: times the length, all weigh alike.
    for step in [&mut found, &mut expected] {
        let rows = step.first_moments.quats.chunks_mut(4).zip(gaussians.quats.chunks(4));
        for (gradient, quat) in rows {
            let length = quat.iter().map(|q| q * q).sum::<f32>().sqrt();
            gradient.iter_mut().for_each(|d| *d *= length);
        }
    }
    assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, "lengths of 1e-3 to 1e3"));
}

// Gaussians that are not finite, on every device.

each_backend_anew!(
    a_broken_gaussian_harms_no_other_and_is_reported,
    a_broken_gaussian_that_has_no_seen_neighbour_is_reported,
    a_colour_beyond_all_numbers_is_reported,
);

fn try_step<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    shot: &Shot,
    step: &AdamStep,
) -> Result<(), DeviceError> {
    let target = device.target(shot.index, &shot.photo)?;
    let (seen, mut gradients) = ((&shot.view, &shot.settings), Default::default());
    let loss = device.add_view(model, seen, (&target, &shot.terms), &mut gradients)?;
    let stepped = device.step(model, gradients, step);
    loss.read()?;
    stepped
}

/// The index that the device names within two iterations, and the Gaussians of these rows after the first.
fn reported<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    rows: &[usize],
) -> (Option<usize>, Gaussians) {
    let mut model = device.upload(gaussians).unwrap();
    let first = try_step(device, &mut model, shot, &AdamStep::new(1, RATES));
    // A device may refuse to hand out a broken model as a whole.
    let after = device.sample(&mut model, rows).unwrap();
    let outcome = first.and_then(|()| try_step(device, &mut model, shot, &AdamStep::new(2, RATES)));
    let index = match outcome {
        Err(DeviceError::NotFinite { index, .. }) => Some(index),
        Err(other) => panic!("{other}"),
        Ok(()) => None,
    };
    (index, after)
}

/// The Gaussians with a number that is not finite in each of these rows: of each group, and of each kind.
fn each_broken(whole: &Gaussians, rows: &[usize]) -> Vec<(Gaussians, String)> {
    let mut found = Vec::new();
    for (group, of_whole) in whole.groups().into_iter().enumerate() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut broken = whole.clone();
            for (element, row) in rows.iter().enumerate() {
                let at = row * of_whole.width + element % of_whole.width;
                broken.groups_mut()[group][at] = value;
            }
            found.push((broken, format!("{} of {value}", of_whole.name)));
        }
    }
    found
}

/// Two Gaussians that the view sees well.
const BROKEN: [usize; 2] = [5, 17];

fn a_broken_gaussian_harms_no_other_and_is_reported<B: TrainDevice>(open: impl Fn() -> B) {
    let mut whole = tame_gaussians(40, 13, 3);
    for (i, index) in BROKEN.into_iter().enumerate() {
        whole.means[index * 3..][..3].copy_from_slice(&[0.1 - 0.2 * i as f32, 0.05, 1.0]);
    }
    let healthy = without(&whole, &BROKEN);
    let rows: Vec<usize> = (0..whole.len()).filter(|row| !BROKEN.contains(row)).collect();
    let settings = settings(3, 9);
    let shot = shot(&healthy, &view(), settings, (10, Counted::Clear));
    let expected = FirstStep::of_the_oracle(&healthy, &shot).snapshot.parameters;
    let pixels = composite(&healthy, &view(), &settings);
    let image = draw(&mut open(), &healthy, &view(), &settings).rgb;
    assert_ne!(draw(&mut open(), &whole, &view(), &settings).rgb, image, "the two are not seen");
    assert_eq!(reported(&mut open(), &whole, &shot, &rows).0, None);

    for (broken, what) in each_broken(&whole, &BROKEN) {
        let mut device = open();
        let found = draw(&mut device, &broken, &view(), &settings).rgb;
        for (i, _) in pixels.iter().enumerate().filter(|(_, pixel)| !pixel.borderline) {
            for c in i * 3..i * 3 + 3 {
                // Left out, they change nothing but, on some devices, the order of sums.
                let error = (found[c] - image[c]).abs();
                assert!(error < 1e-6, "{what}: pixel {i} is {error} apart");
            }
        }
        let (index, after) = reported(&mut device, &broken, &shot, &rows);
        assert_eq!(index, Some(BROKEN[0]), "{what}");
        assert_moved_alike(&after, &expected, &what);
    }
}

/// Alone, and alone in the lanes that a GPU handles together.
fn a_broken_gaussian_that_has_no_seen_neighbour_is_reported<B: TrainDevice>(open: impl Fn() -> B) {
    let settings = settings(3, 9);
    let ahead = gaussian([0.0, 0.05, 1.0], 0.1, 0.8, [0.5; 3]);
    let behind = gaussian([0.0, 0.05, -9.0], 0.1, 0.8, [0.5; 3]);
    let shot = shot(&ahead, &view(), settings, (10, Counted::Clear));
    for neighbours in [0, 40] {
        let mut parts = vec![behind.clone(); neighbours];
        parts.push(ahead.clone());
        let whole = together(&parts);
        assert_eq!(reported(&mut open(), &whole, &shot, &[]).0, None);
        for (broken, what) in each_broken(&whole, &[neighbours]) {
            let (index, _) = reported(&mut open(), &broken, &shot, &[]);
            assert_eq!(index, Some(neighbours), "{what}, {neighbours} others");
        }
    }
}

fn a_colour_beyond_all_numbers_is_reported<B: TrainDevice>(open: impl Fn() -> B) {
    let whole = gaussian([0.0, 0.05, 1.0], 0.1, 0.8, [0.5; 3]);
    let shot = shot(&whole, &view(), settings(3, 9), (10, Counted::Clear));
    let mut broken = whole;
    broken.sh_dc.fill(3e38);
    broken.sh_rest.fill(3e38);
    let mut device = open();
    let model = device.upload(&broken).unwrap();
    // In double precision the sum is a number.
    let image = shown(&mut device, &model, &shot.view, &shot.settings);
    let held = image.iter().any(|&value| value.abs() > 1e30);
    let (index, _) = reported(&mut open(), &broken, &shot, &[]);
    assert_eq!(index, (!held).then_some(0));
}

/// The others took the oracle's step. Adam's first goes by the gradient's sign, so that gradients
/// that cancel to rounding may part by two rates; they are few.
fn assert_moved_alike(found: &Gaussians, expected: &Gaussians, what: &str) {
    for ((found, expected), rate) in paired(found, expected).zip(EACH_RATE) {
        assert!(found.values.iter().all(|value| value.is_finite()), "{what}: {}", found.name);
        let strays = strays(found.values, expected.values, |_| 0.01 * rate);
        let share = strays as f64 / found.values.len() as f64;
        assert!(share < 0.02, "{what}: {strays} strays in {}", found.name);
    }
}

// A device's memory in the steady state. It is measured alone: tests that run beside it would
// take and give back memory of the same device.

each_backend_anew!(two_hundred_iterations_take_no_more_memory);

fn two_hundred_iterations_take_no_more_memory<B: TrainDevice>(open: impl Fn() -> B) {
    #[cfg(kernels)]
    let _alone = alone();
    let device = &mut open();
    let gaussians = tame_gaussians(1021, 91, 3);
    let shots = [(0, [37, 29]), (1, [203, 47]), (2, [64, 131])].map(|(index, size)| {
        let counted = (index as u64, Counted::Clear);
        let shot = shot(&gaussians, &resized(&view(), size), settings(3, 5), counted);
        Shot { index, ..shot }
    });
    let mut model = device.upload(&gaussians).unwrap();
    // Nothing moves, so that every round over the views asks for the same.
    let run = |device: &mut B, model: &mut B::Model, from: u32, to: u32| {
        for (number, shot) in (from..to).zip(shots.iter().cycle()) {
            step(device, model, shot, (number, AT_REST));
        }
        device.synchronize().unwrap();
    };
    run(device, &mut model, 1, 10);
    let before = held(device, &model);
    run(device, &mut model, 10, 211);
    assert_eq!(held(device, &model), before);
}

type MemoryInUse = (Vec<(&'static str, [Bytes; 2])>, [Bytes; 2], Option<Bytes>);

/// Bytes and peaks of what the device holds, the model's share, and what the driver has left.
fn held<B: TrainDevice>(device: &mut B, model: &B::Model) -> MemoryInUse {
    let entries = device.entries();
    // Only a device with a driver has memory of its own.
    #[cfg(kernels)]
    let left = (!entries.is_empty()).then(|| CudaDevice::open(0).unwrap().free().unwrap());
    #[cfg(not(kernels))]
    let left = None;
    let entries = entries.iter().map(|entry| (entry.label, [entry.bytes, entry.peak])).collect();
    (entries, device.model_bytes(model), left)
}

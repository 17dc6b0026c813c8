//! Gaussians that are not finite, on every device.

use crate::common::oracle::{Counted, FirstStep, Shot, draw, settings, shot};
use crate::common::prelude::*;
use crate::common::scene::{RATES, composite, gaussian, tame_gaussians, together, without};
use crate::common::view;
use splat::backend::{AdamStep, DeviceError, TrainDevice};
use splat::model::{Gaussians, Primitive};

each_backend_anew!(
    a_gaussian_that_is_not_finite_harms_no_other_and_is_reported,
    a_broken_gaussian_that_has_no_seen_neighbour_is_reported,
    a_colour_that_is_not_finite_though_its_coefficients_are_is_reported,
);

/// One iteration, and what the device has to say against it.
fn try_step<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    shot: &Shot,
    step: &AdamStep,
) -> Result<(), DeviceError> {
    let target = device.target(shot.index, &shot.photo)?;
    let mut gradients = Default::default();
    let loss = device.add_view(
        model,
        (&shot.view, &shot.settings),
        (&target, &shot.terms),
        &mut gradients,
    )?;
    let stepped = device.step(model, gradients, step);
    loss.read()?;
    stepped
}

/// The index that the device names within two iterations, and the Gaussians of these rows after
/// the first.
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

/// Two Gaussians that the view sees well.
const BROKEN: [usize; 2] = [5, 17];

fn a_gaussian_that_is_not_finite_harms_no_other_and_is_reported<B: TrainDevice>(
    open: impl Fn() -> B,
) {
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

    let groups = whole.groups();
    for (group, (name, width)) in groups.iter().map(|g| (g.name, g.width)).enumerate() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let what = format!("{name} of {value}");
            let mut broken = whole.clone();
            for (element, index) in BROKEN.into_iter().enumerate() {
                broken.groups_mut()[group][index * width + element % width] = value;
            }
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
        let groups: Vec<(&str, usize)> = whole.groups().iter().map(|g| (g.name, g.width)).collect();
        for (group, (name, width)) in groups.into_iter().enumerate() {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut broken = whole.clone();
                broken.groups_mut()[group][neighbours * width] = value;
                let (index, _) = reported(&mut open(), &broken, &shot, &[]);
                assert_eq!(index, Some(neighbours), "{name} of {value}, {neighbours} others");
            }
        }
    }
}

fn a_colour_that_is_not_finite_though_its_coefficients_are_is_reported<B: TrainDevice>(
    open: impl Fn() -> B,
) {
    let whole = gaussian([0.0, 0.05, 1.0], 0.1, 0.8, [0.5; 3]);
    let shot = shot(&whole, &view(), settings(3, 9), (10, Counted::Clear));
    let mut broken = whole;
    broken.sh_dc.fill(3e38);
    broken.sh_rest.fill(3e38);
    let mut device = open();
    let model = device.upload(&broken).unwrap();
    let frame = device.show(&model, &shot.view, &shot.settings).unwrap();
    // In double precision the sum is a number.
    let held = device.image(&frame).unwrap().rgb.iter().any(|&value| value.abs() > 1e30);
    let (index, _) = reported(&mut open(), &broken, &shot, &[]);
    assert_eq!(index, (!held).then_some(0));
}

/// The others took the oracle's step. Adam's first goes by the gradient's sign, so that gradients
/// that cancel to rounding may part by two rates; they are few.
fn assert_moved_alike(found: &Gaussians, expected: &Gaussians, what: &str) {
    let rates = [1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3];
    for ((found, expected), rate) in found.groups().iter().zip(expected.groups()).zip(rates) {
        assert!(found.values.iter().all(|value| value.is_finite()), "{what}: {}", found.name);
        let apart = found.values.iter().zip(expected.values).map(|(a, b)| (a - b).abs());
        let strays = apart.filter(|&apart| apart > 0.01 * rate).count();
        let share = strays as f64 / found.values.len() as f64;
        assert!(share < 0.02, "{what}: {strays} strays in {}", found.name);
    }
}

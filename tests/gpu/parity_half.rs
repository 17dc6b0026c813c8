//! Models with colours in 16 bits: what goes in comes out, and steps are those of full precision up to the
//! rounding of colours.
#![allow(clippy::cast_possible_truncation, reason = "numbers of a test are small")]

use crate::common::compact::{
    assert_same_rows, colors, full, half_step, image, largest_difference, open, snapshot, uneven,
};
use crate::common::oracle::{Shot, settings, step};
use crate::common::prelude::*;
use crate::common::scene::{RATES, photo, straight, tame_gaussians};
use crate::common::view;
use splat::backend::cuda::Cuda;
use splat::backend::{Snapshot, Terms};
use splat::memory::plan::Storage;
use splat::model::{Gaussians, Primitive};

fn half() -> Cuda {
    open(Storage::HalfColors)
}

/// What such a model makes of a snapshot.
fn held(start: &Snapshot<Gaussians>) -> Snapshot<Gaussians> {
    let mut device = half();
    let mut model = device.restore(start.clone()).unwrap();
    snapshot(&mut device, &mut model)
}

fn shot(index: usize, view: &splat::dataset::View) -> Shot {
    let photo = photo(view.camera.width, view.camera.height, None);
    Shot {
        index,
        view: view.clone(),
        photo,
        settings: settings(3, 8),
        terms: Terms::photometric(0.2),
    }
}

/// Shares of values that lie further apart than the tolerance, by part and column.
fn assert_near(
    found: &Snapshot<Gaussians>,
    expected: &Snapshot<Gaussians>,
    tolerance: impl Fn(usize, usize, f32) -> f32,
) {
    let parts = |s: &Snapshot<Gaussians>| {
        [s.parameters.clone(), s.first_moments.clone(), s.second_moments.clone()]
    };
    for (part, (found, expected)) in parts(found).iter().zip(parts(expected)).enumerate() {
        let columns = found.groups().into_iter().zip(expected.groups()).enumerate();
        for (column, (found, expected)) in columns {
            let pairs = found.values.iter().zip(expected.values);
            let strays =
                pairs.filter(|(a, b)| (*a - *b).abs() > tolerance(part, column, **b)).count();
            assert!(strays * 100 <= found.values.len(), "part {part} of {}: {strays}", found.name);
        }
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn colours_come_back_to_half_a_step_and_all_else_bit_for_bit() {
    for (count, sh_degree) in [(0, 3), (1, 0), (33, 1), (70, 2), (1021, 3)] {
        let start = uneven(count, sh_degree, 7);
        let found = held(&start);
        assert_eq!(found.first_moments, start.first_moments, "{count} of degree {sh_degree}");
        assert_eq!(found.second_moments, start.second_moments, "{count} of degree {sh_degree}");
        assert_eq!(found.parameters.means, start.parameters.means);
        assert_eq!(found.parameters.opacity_logits, start.parameters.opacity_logits);
        let pairs = colors(&found.parameters).concat().into_iter();
        for (found, start) in pairs.zip(colors(&start.parameters).concat()) {
            assert!((found - start).abs() <= half_step(start) / 2.0, "{found} for {start}");
        }
        assert_same_rows(&held(&found), &found, &format!("{count} rows again"));
    }
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_step_is_that_of_full_precision_up_to_the_rounding_of_colours() {
    let gaussians = tame_gaussians(60, 61, 3);
    let shots = [shot(0, &view()), shot(1, &straight())];
    let mut device = full();
    let mut model = device.upload(&gaussians).unwrap();
    for (number, shot) in (1..=24).zip(shots.iter().cycle()) {
        step(&mut device, &mut model, shot, (number, RATES));
    }
    let start = held(&snapshot(&mut device, &mut model));
    let after = |device: &mut Cuda| {
        let mut model = device.restore(start.clone()).unwrap();
        step(device, &mut model, &shots[0], (25, RATES));
        snapshot(device, &mut model)
    };
    let (found, expected) = (after(&mut half()), after(&mut full()));
    // The order of summation differs from run to run.
    assert_near(&found, &expected, |part, column, value| match (part, column) {
        (0, 4..) => half_step(value) + 1e-6,
        (0, _) => 1e-4 * value.abs() + 1e-7,
        (1, _) => 1e-3 * value.abs() + 1e-8,
        _ => 1e-3 * value.abs() + 1e-14,
    });
    assert_ne!(found.parameters.sh_rest, start.parameters.sh_rest);
}

#[test]
#[ignore = "needs a CUDA device"]
fn a_model_with_half_colours_draws_as_any_and_turns_compact_and_back() {
    let start = held(&uneven(1021, 3, 91));
    let mut device = half();
    let mut model = device.restore(start.clone()).unwrap();
    let drawn = image(&mut device, &model, &view());
    let mut other = full();
    let twin = other.restore(start.clone()).unwrap();
    assert!(largest_difference(&drawn, &image(&mut other, &twin, &view())) < 1e-6);

    device.compact(&mut model).unwrap();
    assert_eq!(model.storage(), Storage::Compact);
    // Colours stay as they are.
    let found = snapshot(&mut device, &mut model);
    assert_eq!(found.parameters, start.parameters);
    assert!(largest_difference(&drawn, &image(&mut device, &model, &view())) < 1e-6);
    device.expand(&mut model).unwrap();
    assert_eq!(model.storage(), Storage::Full);
    assert_same_rows(&snapshot(&mut device, &mut model), &found, "expanded");
}

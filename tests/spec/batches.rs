//! Steps down the mean gradient of several views.

use crate::common::oracle::Groups;
use crate::common::prelude::*;

const RULE: SurfaceRule = SurfaceRule { samples: 501, ..SurfaceRule::UNEQUAL };

fn stepped(gaussians: &Gaussians, shots: &[&Shot], rates: Rates) -> Snapshot<Gaussians> {
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(gaussians).unwrap();
    let mut gradients = Default::default();
    for shot in shots {
        let target = device.target(shot.index, &shot.photo).unwrap();
        let seen = (&shot.view, &shot.settings);
        device.add_view(&mut model, seen, (&target, &shot.terms), &mut gradients).unwrap();
    }
    device.step(&mut model, gradients, &AdamStep::new(1, rates)).unwrap();
    device.snapshot(&mut model).unwrap()
}

#[test]
fn several_views_of_one_photograph_step_as_one() {
    let gaussians = tame_gaussians(40, 31, 3);
    let shots = three_shots(&gaussians, [31, 23]);
    let one = stepped(&gaussians, &[&shots[0]], RATES);
    for count in [2, 3, 5, 8] {
        let several = stepped(&gaussians, &vec![&shots[0]; count], RATES);
        let groups = several.parameters.groups().into_iter().zip(one.parameters.groups());
        for ((found, expected), start) in groups.zip(gaussians.groups()) {
            let step = |after: &[f32]| -> Vec<f64> {
                after.iter().zip(start.values).map(|(a, b)| f64::from(*a) - f64::from(*b)).collect()
            };
            let (found, expected) = (step(found.values), step(expected.values));
            let error = relative_error(&found, &expected);
            assert!(error < 1e-6, "{count} views, {}: {error:e}", start.name);
        }
        // Each view is observed by its own gradients.
        let sums = several.gradient_norm_sums.iter().zip(&one.gradient_norm_sums);
        for (found, expected) in sums {
            let expected = expected * f32::from(u8::try_from(count).unwrap());
            assert!((found - expected).abs() <= 1e-6 * expected, "{found} for {expected}");
        }
    }
}

#[test]
fn a_step_takes_the_mean_of_the_views_gradients() {
    let gaussians = tame_gaussians(40, 32, 3);
    let shots = three_shots(&gaussians, [31, 23]);
    let all = gradients(&stepped(&gaussians, &shots.iter().collect::<Vec<_>>(), AT_REST));
    let each: Vec<_> =
        shots.iter().map(|shot| gradients(&stepped(&gaussians, &[shot], AT_REST))).collect();
    assert_are_means(&all, &each);
}

/// Asserts that gradients are the means of those of each view. Returns the number of gradients that are not zero.
fn assert_are_means(all: &Groups, each: &[Groups]) -> usize {
    let mut moved = 0;
    for (group, (name, _, found)) in all.iter().enumerate() {
        let mean = |i: usize| each.iter().map(|view| view[group].2[i]).sum::<f64>() / 3.0;
        let expected: Vec<f64> = (0..found.len()).map(mean).collect();
        // Snapshots have single precision.
        assert!(relative_error(found, &expected) < 1e-6, "{name}");
        moved += expected.iter().filter(|&&d| d != 0.0).count();
    }
    moved
}

#[test]
fn surface_terms_of_several_views_are_averaged() {
    let gaussians = tame_gaussians(40, 34, 3);
    let shots = three_shots(&gaussians, [31, 23]);
    let of = |shots: &[&Shot]| -> Result<Snapshot<Gaussians>, DeviceError> {
        let mut device = Cpu::<f64>::new();
        let mut model = device.upload(&gaussians)?;
        let near = device.neighbours(&model, 16)?;
        let mut gradients = Default::default();
        for shot in shots {
            let seen = (&shot.view, masked(&shot.view));
            add_rule(&mut device, &mut model, seen, (Some(&near), &RULE), &mut gradients)?;
        }
        device.step(&mut model, gradients, &AdamStep::new(1, AT_REST))?;
        device.snapshot(&mut model)
    };
    let all = gradients(&of(&shots.iter().collect::<Vec<_>>()).unwrap());
    let each: Vec<_> = shots.iter().map(|shot| gradients(&of(&[shot]).unwrap())).collect();
    let moved = assert_are_means(&all, &each);
    assert!(moved > 100, "only {moved} gradients");
}

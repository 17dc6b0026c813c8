//! Colours that a device may leave behind while no view sees them: whoever reads or moves them finds
//! them where dense Adam has them, which is what the CPU backend in double precision does.

use crate::common::oracle::{AT_REST, Counted, Shot, settings, shot, step};
use crate::common::prelude::*;
use crate::common::scene::{gaussian, in_training, straight, tame_gaussians, together};
use splat::backend::cpu::Cpu;
use splat::backend::{DensifyRule, Grant, Rates, Snapshot, TrainDevice};
use splat::math::morton::Cube;
use splat::model::{Gaussians, Primitive};

each_backend!(
    colours_that_no_view_sees_move_on_as_the_oracles,
    whatever_reads_or_moves_rows_lets_their_colours_catch_up,
    a_view_that_looks_where_no_other_did_sees_the_oracles_colours,
);

/// Gaussians in front of the camera: as many as a GPU handles together.
const SEEN: usize = 32;

/// Only colours move, so that rows stay alike on both sides to the bit.
const RATES: Rates = Rates { sh_dc: 5e-3, sh_rest: 6e-3, ..AT_REST };

/// Some Gaussians that the camera sees, and more behind it, some of them all but transparent.
pub(super) fn gaussians() -> Gaussians {
    let behind = (0..70).map(|i| {
        let opacity = if i % 9 == 4 { 0.001 } else { 0.8 };
        gaussian([0.1 * i as f32 - 3.5, 0.2, -5.0], 0.3, opacity, [0.6; 3])
    });
    together(&[tame_gaussians(SEEN, 81, 3)].into_iter().chain(behind).collect::<Vec<_>>())
}

fn looking_ahead(gaussians: &Gaussians) -> Shot {
    let mut shot = shot(gaussians, &straight(), settings(3, 8), (9, Counted::Some));
    shot.settings.pass = Pass::Train;
    shot
}

/// Steps of these numbers.
fn steps<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    (shot, numbers): (&Shot, std::ops::RangeInclusive<u32>),
) {
    for number in numbers {
        step(device, model, shot, (number, RATES));
    }
}

/// The values of the Gaussians behind the camera, by group.
fn behind(values: &Gaussians, means: &[f32]) -> Vec<(&'static str, Vec<f32>)> {
    let rows: Vec<usize> = (0..values.len()).filter(|row| means[row * 3 + 2] < -2.0).collect();
    let of_rows = |width: usize, values: &[f32]| {
        rows.iter().flat_map(|row| values[row * width..][..width].to_vec()).collect()
    };
    let groups = values.groups();
    groups.iter().map(|group| (group.name, of_rows(group.width, group.values))).collect()
}

/// Values and moments of what is behind the camera agree.
pub(super) fn assert_alike(
    found: &Snapshot<Gaussians>,
    expected: &Snapshot<Gaussians>,
    what: &str,
) {
    let parts = |s: &Snapshot<Gaussians>| {
        let means = s.parameters.means.clone();
        [&s.parameters, &s.first_moments, &s.second_moments].map(|part| behind(part, &means))
    };
    for (found, expected) in parts(found).into_iter().zip(parts(expected)) {
        for ((name, found), (_, expected)) in found.into_iter().zip(expected) {
            assert_eq!(found.len(), expected.len(), "{what}: {name}");
            assert!(!found.is_empty());
            for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
                // Rounding in single precision of up to 300 steps, each a ten-millionth of values
                // and moments of the order of 1.
                assert!(
                    (found - expected).abs() <= 3e-5 * expected.abs().max(0.1),
                    "{what}: {name} {i} is {found} instead of {expected}"
                );
            }
        }
    }
}

fn colours_that_no_view_sees_move_on_as_the_oracles<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 82);
    let shot = looking_ahead(&start.parameters);
    // From the first step on, when the bias corrections change most, and past the longest time that
    // anything is put off.
    for count in [1, 2, 31, 126, 127, 128, 300] {
        let oracle = &mut Cpu::<f64>::new();
        let mut model = device.restore(start.clone()).unwrap();
        let mut twin = oracle.restore(start.clone()).unwrap();
        steps(device, &mut model, (&shot, 1..=count));
        steps(oracle, &mut twin, (&shot, 1..=count));
        let (found, expected) =
            (device.snapshot(&mut model).unwrap(), oracle.snapshot(&mut twin).unwrap());
        assert_alike(&found, &expected, &format!("{count} steps"));
        let moved = |s: &Snapshot<Gaussians>| behind(&s.parameters, &s.parameters.means)[4].1[0];
        assert_ne!(moved(&found), moved(&start), "momentum moves them");
    }
}

/// What is done to a model of which something is behind.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Download,
    Sample,
    Reorder,
    Densify,
}

fn after<B: TrainDevice>(
    device: &mut B,
    (start, shot): (&Snapshot<Gaussians>, &Shot),
    deed: Deed,
) -> Snapshot<Gaussians> {
    let mut model = device.restore(start.clone()).unwrap();
    steps(device, &mut model, (shot, 1..=20));
    match deed {
        Deed::Download => {
            let parameters = device.download(&mut model).unwrap();
            return Snapshot { parameters, ..device.snapshot(&mut model).unwrap() };
        }
        Deed::Sample => {
            let rows: Vec<usize> = (0..start.parameters.len()).collect();
            let parameters = device.sample(&mut model, &rows).unwrap();
            return Snapshot { parameters, ..device.snapshot(&mut model).unwrap() };
        }
        Deed::Reorder => {
            let cube = Cube { centre: [0.3, 0.1, -2.0], half_side: 3.0 };
            device.reorder(&mut model, &cube).unwrap();
        }
        Deed::Densify => {
            let rule = DensifyRule {
                gradient_min: 0.02,
                clone_scale_max: 0.2,
                opacity_min: 0.005,
                scale_max: None,
                seed: 3,
                iteration: 100,
                criterion: splat::backend::Criterion::Gradient,
            };
            let before = device.len(&model);
            let births = device.survey(&model, &rule).unwrap().births();
            let done = device.densify(&mut model, &rule, Grant { births }).unwrap();
            assert!(births > 20 && done.pruned > 4, "{births} born, {} removed", done.pruned);
            assert_ne!(device.len(&model), before);
        }
    }
    // What has moved is where it belongs, if it goes on from there alike.
    steps(device, &mut model, (shot, 21..=40));
    device.snapshot(&mut model).unwrap()
}

fn whatever_reads_or_moves_rows_lets_their_colours_catch_up<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 83);
    let shot = looking_ahead(&start.parameters);
    for deed in [Deed::Download, Deed::Sample, Deed::Reorder, Deed::Densify] {
        let found = after(device, (&start, &shot), deed);
        let expected = after(&mut Cpu::<f64>::new(), (&start, &shot), deed);
        assert_alike(&found, &expected, &format!("{deed:?}"));
    }
}

fn a_view_that_looks_where_no_other_did_sees_the_oracles_colours<B: TrainDevice>(device: &mut B) {
    let start = in_training(gaussians(), 84);
    let shot = looking_ahead(&start.parameters);
    let mut back = straight();
    back.pose.rotation = [[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]];
    let look = Drawing { pass: Pass::Eval, ..settings(3, 8) };
    let oracle = &mut Cpu::<f64>::new();
    let mut model = device.restore(start.clone()).unwrap();
    let mut twin = oracle.restore(start).unwrap();
    let frame = device.show(&model, &back, &look).unwrap();
    let before = device.image(&frame).unwrap().rgb;
    steps(device, &mut model, (&shot, 1..=90));
    steps(oracle, &mut twin, (&shot, 1..=90));
    let frame = device.show(&model, &back, &look).unwrap();
    let found = device.image(&frame).unwrap().rgb;
    let frame = oracle.show(&twin, &back, &look).unwrap();
    let expected = oracle.image(&frame).unwrap().rgb;
    let apart = |a: &[f32], b: &[f32]| -> Vec<f32> {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).collect()
    };
    assert!(apart(&before, &found).iter().any(|&d| d > 5e-3), "the colours have moved");
    let apart = apart(&found, &expected);
    // Images agree within 1e-4 of colours of the order of 1; these are of the order of 10. A splat
    // at the cut of 1/255 changes a pixel by more, and few pixels are at a cut.
    let strays = apart.iter().filter(|&&d| d > 1e-3).count();
    assert!(strays * 100 <= apart.len(), "{strays} of {}", apart.len());
    let largest = apart.iter().copied().fold(0.0, f32::max);
    assert!(largest < 10.0 * 2.0 / 255.0, "{largest}");
}

//! Density control by disagreement on every device against the CPU backend in double precision: the same
//! Gaussians are drawn, those that no view has seen go, and opacities fade alike.

use crate::common::oracle::{self, Counted, Shot, settings, shot};
use crate::common::prelude::*;
use crate::common::scene::tame_gaussians;
use crate::common::view;
use splat::backend::cpu::Cpu;
use splat::backend::{
    Adjust, EditRule, Edited, Grow, Keep, Pick, ScoreRule, Snapshot, Statistics, TrainDevice,
};
use splat::math::sigmoid;
use splat::model::Gaussians;

each_backend!(
    a_round_draws_the_same_gaussians_and_removes_the_unseen,
    a_fade_lowers_opacities_to_its_floor,
);

/// Of 203 Gaussians some are behind the cameras.
fn scene() -> Gaussians {
    let mut gaussians = tame_gaussians(203, 71, 3);
    for row in (0..203).step_by(7) {
        gaussians.means[3 * row + 2] -= 100.0;
    }
    gaussians
}

/// Five views along an arc.
fn shots(gaussians: &Gaussians) -> Vec<Shot> {
    let of_view = |i: u32| {
        let mut view = view();
        view.pose.translation[0] += 0.07 * f64::from(i) - 0.13;
        let settings = Drawing { statistics: Statistics::Disagreement, ..settings(3, 5) };
        let shot = shot(gaussians, &view, settings, (u64::from(80 + i), Counted::Clear));
        Shot { index: i as usize, ..shot }
    };
    (0..5).map(of_view).collect()
}

type Round = (usize, Edited, Snapshot<Gaussians>);

fn round<B: TrainDevice>(device: &mut B, births: usize, large: Grow) -> Round {
    let gaussians = scene();
    let mut model = oracle::observed(device, &gaussians, &shots(&gaussians));
    let score = ScoreRule::Disagreement { small_max: 0.1, key: 5 };
    let candidates = device.score(&model, &score).unwrap();
    let selection = device.select(&mut model, &candidates, Pick::Best(births)).unwrap();
    let rule =
        EditRule::Grow { large, keep: Keep { opacity_min: 1e-4, scale_max: None, unseen: false } };
    let done = device.edit(&mut model, selection, &rule).unwrap();
    (candidates.count(), done, device.snapshot(&mut model).unwrap())
}

fn a_round_draws_the_same_gaussians_and_removes_the_unseen<B: TrainDevice>(device: &mut B) {
    let (split, child) =
        (Grow::SplitRandom { shrink: 1.6, key: 9 }, Grow::AddChild { shrink: 1.6, key: 9 });
    for (births, large) in [(0, split), (40, split), (40, child), (usize::MAX, child)] {
        let (candidates, done, after) = round(device, births, large);
        let (expected_candidates, expected_done, expected) =
            round(&mut Cpu::<f64>::new(), births, large);
        assert!(expected_done.removed >= 29 && expected_candidates > 60, "{expected_done:?}");
        assert_eq!((candidates, done), (expected_candidates, expected_done));
        let places = after.parameters.means.iter().zip(&expected.parameters.means);
        for (i, (&found, &expected)) in places.enumerate() {
            // A child's place is its parent's plus a product of three factors.
            assert!((found - expected).abs() <= 1e-5 * expected.abs().max(1.0), "mean {i}");
        }
        assert_eq!(after.parameters.opacity_logits, expected.parameters.opacity_logits);
        let scales = after.parameters.log_scales.iter().zip(&expected.parameters.log_scales);
        for (i, (&found, &expected)) in scales.enumerate() {
            assert!((found - expected).abs() <= 1e-6 * expected.abs().max(1.0), "scale {i}");
        }
        assert_eq!(forgotten(&after), forgotten(&expected), "{births} births");
    }
}

/// Rows whose centres have no moments.
fn forgotten(snapshot: &Snapshot<Gaussians>) -> Vec<usize> {
    let moments = snapshot.second_moments.means.chunks(3).enumerate();
    moments.filter(|(_, moments)| moments.iter().all(|&m| m == 0.0)).map(|(row, _)| row).collect()
}

fn a_fade_lowers_opacities_to_its_floor<B: TrainDevice>(device: &mut B) {
    let gaussians = scene();
    let mut model = oracle::observed(device, &gaussians, &shots(&gaussians));
    device.adjust(&mut model, &Adjust::FadeOpacity { factor: 0.5, floor: 0.3 }).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    let (mut floored, mut halved) = (0, 0);
    let logits = gaussians.opacity_logits.iter().zip(&after.parameters.opacity_logits);
    for (row, (&before, &after)) in logits.enumerate() {
        let (before, after) = (sigmoid(f64::from(before)), sigmoid(f64::from(after)));
        let expected = before.min((0.5 * before).max(0.3));
        // Rounding of a sigmoid and a logit in single precision.
        assert!((after - expected).abs() < 1e-6, "{row}: {after} instead of {expected}");
        floored += usize::from(expected == 0.3);
        halved += usize::from(expected < 0.6 * before);
    }
    assert!(floored > 10 && halved > 10, "{floored} at the floor, {halved} halved");
    for moments in [&after.first_moments, &after.second_moments] {
        for values in [
            &moments.means,
            &moments.log_scales,
            &moments.quats,
            &moments.opacity_logits,
            &moments.sh_dc,
            &moments.sh_rest,
        ] {
            assert!(values.iter().all(|&moment| moment == 0.0));
        }
    }
}

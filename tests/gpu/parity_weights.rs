//! Blend weights of every device against those that images by the definition tell, and what a prune to a
//! number of Gaussians keeps.

use crate::common::prelude::*;
use crate::common::scene::{gaussian, in_training, tame_gaussians, together};
use crate::common::{assert_relative, view};
use splat::backend::cpu::Cpu;
use splat::backend::{
    Candidates, DeviceError, EditRule, Edited, Grow, Keep, Pick, RenderSettings, ScoreRule,
    Snapshot, TrainDevice,
};
use splat::dataset::View;
use splat::math::Real;
use splat::model::{Gaussians, Primitive};

each_backend!(
    weights_are_what_a_white_gaussian_among_black_ones_shows,
    a_prune_keeps_the_heaviest_of_three_views,
    of_equal_weights_the_first_rows_stay,
    weights_and_gradients_have_rules_of_their_own,
);

const SETTINGS: RenderSettings = RenderSettings { sh_degree: 0, ..RenderSettings::DEFAULT };

/// Three views along an arc.
fn views() -> [View; 3] {
    [-0.2, 0.0, 0.3].map(|moved| {
        let mut view = view();
        view.pose.translation[0] += moved;
        view
    })
}

/// The sums of weights over the views.
fn weights<B: TrainDevice>(device: &mut B, model: &mut B::Model) -> Vec<f32> {
    let views = views();
    // What was there before does not count.
    for _ in 0..2 {
        device.weigh(model, &views.each_ref(), &SETTINGS).unwrap();
    }
    device.snapshot(model).unwrap().gradient_norm_sums
}

/// The same by definition: of all Gaussians black but one, the image is that one's weight.
fn weights_by_images(gaussians: &Gaussians) -> Vec<f64> {
    let mut device = Cpu::<f64>::new();
    let shade = |white: usize| {
        let mut shaded = gaussians.clone();
        shaded.sh_dc.fill(-10.0);
        shaded.sh_rest.fill(0.0);
        // A colour of 1.
        shaded.sh_dc[white * 3..][..3].fill((0.5 / splat::math::sh::C0).to_f32());
        shaded
    };
    (0..gaussians.len())
        .map(|row| {
            let model = device.upload(&shade(row)).unwrap();
            let sum = |view: &View| {
                let look = splat::backend::Look::IMAGE;
                let frame = device.render(&model, view, &SETTINGS, look).unwrap();
                let image = device.image(&frame).unwrap();
                image.rgb.chunks(3).map(|pixel| f64::from(pixel[0])).sum::<f64>()
            };
            views().iter().map(sum).sum()
        })
        .collect()
}

fn weights_are_what_a_white_gaussian_among_black_ones_shows<B: TrainDevice>(device: &mut B) {
    let mut gaussians = tame_gaussians(33, 5, 3);
    // Some are black themselves: what they hide counts as much.
    gaussians.sh_dc[..15].fill(-10.0);
    gaussians.sh_rest.fill(0.0);
    let mut model = device.upload(&gaussians).unwrap();
    let found = weights(device, &mut model);
    let expected = weights_by_images(&gaussians);
    assert!(expected.iter().filter(|&&weight| weight > 1.0).count() > 5, "{expected:?}");
    for (row, (&found, &expected)) in found.iter().zip(&expected).enumerate() {
        // A pixel of a borderline splat is seen in one precision alone: 1/255 of its weight.
        assert_relative(f64::from(found), expected, (5e-3, 1.0), &format!("Gaussian {row}"));
    }
}

fn retained<B: TrainDevice>(
    device: &mut B,
    model: &mut B::Model,
    target: usize,
) -> Result<Edited, DeviceError> {
    let candidates = device.score(model, &ScoreRule::Weight)?;
    assert_eq!(candidates.count(), device.len(model));
    let selection = device.select(model, &candidates, Pick::Best(target))?;
    device.edit(model, selection, &EditRule::Retain)
}

fn a_prune_keeps_the_heaviest_of_three_views<B: TrainDevice>(device: &mut B) {
    for (count, target) in [(203, 150), (203, 32), (64, 1), (64, 63), (31, 31), (1, 5)] {
        let start = in_training(tame_gaussians(count, 71, 3), 8);
        let mut model = device.restore(start.clone()).unwrap();
        let weight = weights(device, &mut model);
        let mut rows: Vec<usize> = (0..count).collect();
        rows.sort_by(|&a, &b| weight[b].total_cmp(&weight[a]));
        let mut stay = rows[..target.min(count)].to_vec();
        stay.sort_unstable();

        let done = retained(device, &mut model, target).unwrap();
        let removed = count - stay.len();
        assert_eq!(done, Edited { removed, ..Edited::default() });
        let after = device.snapshot(&mut model).unwrap();
        let parts = |s: &Snapshot<Gaussians>| {
            [s.parameters.clone(), s.first_moments.clone(), s.second_moments.clone()]
        };
        for (found, expected) in parts(&after).iter().zip(&parts(&start)) {
            assert_eq!(found.len(), stay.len());
            for (found, expected) in found.groups().iter().zip(expected.groups()) {
                let rows = stay
                    .iter()
                    .flat_map(|&row| &expected.values[row * expected.width..][..expected.width]);
                assert!(found.values.iter().eq(rows), "{}: {count} to {target}", found.name);
            }
        }
        assert!(after.gradient_norm_sums.iter().all(|&sum| sum == 0.0));
        assert!(after.views_seen.iter().all(|&seen| seen == 0));
    }
}

fn of_equal_weights_the_first_rows_stay<B: TrainDevice>(device: &mut B) {
    // Nobody sees those behind the cameras, and the one before them is worth more.
    let hidden = |x: f32| gaussian([x, 0.0, -5.0], 0.1, 0.9, [0.5; 3]);
    let seen = gaussian([0.0, 0.0, 3.0], 0.3, 0.9, [0.5; 3]);
    let all = together(&[hidden(0.0), hidden(1.0), hidden(2.0), seen, hidden(3.0)]);
    let mut model = device.upload(&all).unwrap();
    device.weigh(&mut model, &views().each_ref(), &SETTINGS).unwrap();
    assert_eq!(retained(device, &mut model, 3).unwrap().removed, 2);
    let means = device.download(&mut model).unwrap().means;
    assert_eq!(means, [0.0, 0.0, -5.0, 1.0, 0.0, -5.0, 0.0, 0.0, 3.0]);
}

fn weights_and_gradients_have_rules_of_their_own<B: TrainDevice>(device: &mut B) {
    let mut model = device.upload(&tame_gaussians(5, 1, 0)).unwrap();
    let grow = EditRule::Grow {
        large: Grow::Copy,
        keep: Keep { opacity_min: 0.0, scale_max: None, unseen: true },
    };
    let by_gradient = ScoreRule::Gradient { min: 0.0, small_max: 1.0 };
    for (rule, edit) in [(ScoreRule::Weight, grow), (by_gradient, EditRule::Retain)] {
        let candidates: Candidates = device.score(&model, &rule).unwrap();
        let selection = device.select(&mut model, &candidates, Pick::Best(2)).unwrap();
        let refused = device.edit(&mut model, selection, &edit);
        assert!(matches!(refused, Err(DeviceError::UnsuitedEdit)), "{rule:?}");
    }
    assert_eq!(device.len(&model), 5);
    // An empty model has no weights.
    let mut model = device.upload(&Gaussians::zeros(0, 0)).unwrap();
    device.weigh(&mut model, &views().each_ref(), &SETTINGS).unwrap();
    assert_eq!(device.len(&model), 0);
}

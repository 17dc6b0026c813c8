//! Density control of small models, by the definition.

use super::super::project::project;
use super::*;
use crate::backend::Footprint;
use crate::backend::cpu::splat::DrawnView;
use crate::backend::viewpoint::viewpoint;
use crate::dataset::{Camera, Pose, View};
use crate::math::random::RandomUse;
use crate::model::Gaussians;

/// Gaussians in a row, all of opacity 1/2, with these largest scales and mean gradients.
fn model(rows: &[(f32, f32)]) -> Model<f32> {
    let mut host = Gaussians::zeros(1, rows.len());
    for (i, &(scale, _)) in rows.iter().enumerate() {
        host.means[i * 3] = i as f32;
        host.log_scales[i * 3..][..3].copy_from_slice(&[scale.ln(), -6.0, -7.0]);
        host.quats[i * 4..][..4].copy_from_slice(&[0.9, 0.1, -0.2, 0.3]);
        host.sh_rest[i * 9] = i as f32 + 0.5;
    }
    let mut model = Model::new(&host);
    for (i, &(_, gradient)) in rows.iter().enumerate() {
        model.views_seen[i] = 4;
        model.gradient_norm_sums[i] = gradient * 4.0;
    }
    for column in &mut model.columns {
        column.first_moments.fill(1.0);
        column.second_moments.fill(2.0);
    }
    model
}

const RULE: ScoreRule = ScoreRule::Gradient { min: 0.5, small_max: 0.1 };

const KEEP: Keep = Keep { opacity_min: 0.005, scale_max: None, unseen: true };

fn scored(model: &Model<f32>) -> Candidates {
    score(model, &RULE, &RULE.by_gradient().unwrap())
}

/// A round with at most so many births.
fn densify(model: &mut Model<f32>, keep: &Keep, births: usize) -> Edited {
    let selected = select(model, &scored(model), births).unwrap();
    let key = RandomStream::new(3, 600, RandomUse::Split).key();
    edit(model, &selected, &Grow::SplitRandom { shrink: 1.6, key }, keep).0
}

const ALL: usize = usize::MAX;

#[test]
fn statistics_are_gradient_norms_in_half_images_and_fade_near_the_camera() {
    let gaussians = {
        let mut host = Gaussians::zeros(0, 2);
        host.means = vec![9.0, 9.0, -1.0, 0.0, 0.0, 2.0];
        host.quats[4] = 1.0;
        host.log_scales[3..].fill(-2.0);
        host
    };
    let view = View {
        name: String::new(),
        camera: Camera { width: 4, height: 2, focal_px: [3.0; 2], centre_px: [2.0, 1.0] },
        pose: Pose {
            rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            translation: [0.0; 3],
        },
    };
    let observed = |statistics, fade_depth| {
        let mut model = Model::<f64>::new(&gaussians);
        let viewpoint = viewpoint(&view, 0.01, Footprint::DILATED);
        let (splats, _) = project(&model, &DrawnView::new(viewpoint, &Drawing::DEFAULT));
        let gradient = ScreenGradient {
            d_mean_px: [3.0, -4.0],
            d_mean_abs: [5.0, 24.0],
            squares: 0.5,
            pixels: 3.0,
            ..ScreenGradient::default()
        };
        for _ in 0..2 {
            let settings = Drawing { observe: Some(statistics), fade_depth, ..Drawing::DEFAULT };
            observe(&mut model, &splats, &[gradient], [4, 2], &settings);
        }
        assert_eq!(model.views_seen, [0, 2]);
        (model.gradient_norm_sums, model.absolute_norm_sums)
    };
    // Half the image is 2 by 1 px.
    let norm = 2.0 * 52.0_f64.sqrt();
    // At a depth of 2.
    for (fade_depth, fade) in [(0.0, 1.0), (1.9, 1.0), (2.0, 1.0), (4.0, 0.25), (16.0, 0.015625)] {
        let observed = |statistics| observed(statistics, fade_depth);
        assert_eq!(observed(Statistics::Norms), (vec![0.0, fade * norm], vec![]));
        assert_eq!(observed(Statistics::AbsoluteNorms), (vec![0.0, fade * 52.0], vec![]));
        let both = (vec![0.0, fade * norm], vec![0.0, fade * 68.0]);
        assert_eq!(observed(Statistics::Both), both);
        // Twice 1/2, of an image of 8 px, whatever the depth: it is no gradient of a centre.
        assert_eq!(observed(Statistics::Disagreement), (vec![0.0, 64.0], vec![]));
    }
}

#[test]
fn pixels_that_pull_an_opacity_both_ways_disagree() {
    let gradient = |shares: [f64; 4], pixels: f64| ScreenGradient::<f64> {
        // Of the opacity, which is 1/2: its logarithm's gradient is half as large.
        d_opacity: 2.0 * shares.iter().sum::<f64>(),
        squares: shares.iter().map(|share| share * share).sum(),
        pixels,
        ..ScreenGradient::default()
    };
    assert_eq!(disagreement(&gradient([0.5, -0.5, 0.5, -0.5], 4.0), 0.5, 1.0), 1.0);
    assert_eq!(disagreement(&gradient([0.5; 4], 4.0), 0.5, 1.0), 0.0);
    // By the definition: the mean is 1/4.
    assert_eq!(disagreement(&gradient([1.0, 0.0, 0.0, 0.0], 4.0), 0.5, 1.0), 0.75);
    // The loss is summed over the pixels of the image: its size makes no difference.
    let small = disagreement(&gradient([0.5, -0.5, 0.25, 0.0], 4.0), 0.5, 8.0);
    let large = disagreement(&gradient([0.25, -0.25, 0.125, 0.0], 4.0), 0.5, 16.0);
    assert_eq!(small, large);
    // Each pixel of a view of half the size stands for four: half the size counts twice for it.
    let whole = disagreement(
        &ScreenGradient {
            squares: 4.0 * (0.125_f64.powi(2) * 2.0 + 0.0625_f64.powi(2)),
            ..gradient([0.5, -0.5, 0.25, 0.0], 16.0)
        },
        0.5,
        32.0,
    );
    let half = disagreement(&gradient([0.5, -0.5, 0.25, 0.0], 4.0), 0.5, 8.0 * 2.0);
    assert_eq!(whole, half);
}

#[test]
fn draws_without_replacement_follow_the_weights() {
    // Of weights 1, 2 and 5 the chance to come first is 1/8, 2/8 and 5/8.
    let weights = [1.0_f64, 2.0, 5.0];
    let mut first = [0; 3];
    for seed in 0..4000 {
        let stream = RandomStream::new(seed, 600, RandomUse::Multiply);
        let numbers = [0, 1, 2].map(|row| drawn(weights[row], stream, row));
        let best = (0..3).max_by(|&a, &b| numbers[a].total_cmp(&numbers[b])).unwrap();
        first[best] += 1;
    }
    for (count, weight) in first.into_iter().zip(weights) {
        // Four standard deviations of a share of 4000 draws are at most 0.032.
        let share = f64::from(count) / 4000.0;
        assert!((share - weight / 8.0).abs() < 0.032, "{first:?}");
    }
}

#[test]
fn what_no_view_has_seen_goes_where_it_is_not_to_stay_but_not_the_newborn() {
    let rows = [(0.05, 0.9), (0.05, 0.1), (0.5, 0.9)];
    for (unseen, survivors) in
        [(true, vec![0.0, 1.0, 2.0, 0.0, 2.0]), (false, vec![0.0, 2.0, 0.0, 2.0])]
    {
        let mut model = model(&rows);
        model.views_seen[1] = 0;
        let selected = select(&model, &scored(&model), ALL).unwrap();
        edit(&mut model, &selected, &Grow::Copy, &Keep { unseen, ..KEEP });
        let places: Vec<f32> =
            (0..model.len()).map(|row| model.row(Parameter::Means, row)[0]).collect();
        assert_eq!(places, survivors);
    }
}

#[test]
fn opacities_fade_by_a_factor_to_a_floor_and_lower_ones_stay() {
    let mut model = model(&[(0.05, 0.0); 3]);
    let logits = [0.5, 0.012, 0.004].map(|opacity: f32| inverse_sigmoid(opacity));
    model.column_mut(Parameter::OpacityLogits).values.copy_from_slice(&logits);
    fade_opacity(&mut model, 0.5, 0.01);
    let column = model.column(Parameter::OpacityLogits);
    for (found, expected) in column.values.iter().zip([0.25, 0.01, 0.004]) {
        // Rounding of sigmoid(logit(x)) in single precision.
        assert!((sigmoid(*found) - expected).abs() < 1e-7, "{found}");
    }
    for column in &model.columns {
        let moments = column.first_moments.iter().chain(&column.second_moments);
        assert!(moments.copied().all(|moment| moment == 0.0), "all are forgotten");
    }
}

#[test]
fn a_parent_that_stays_keeps_place_size_and_moments_beside_its_child() {
    let rows = [(0.5, 0.9), (0.05, 0.1)];
    let (mut model, before) = (model(&rows), model(&rows));
    let selected = select(&model, &scored(&model), ALL).unwrap();
    let key = RandomStream::new(3, 600, RandomUse::Split).key();
    let (done, kept) = edit(&mut model, &selected, &Grow::AddChild { shrink: 1.6, key }, &KEEP);
    assert_eq!(kept, [true; 3]);
    assert_eq!((done, model.len()), (Edited { split: 1, ..Edited::default() }, 3));
    for (column, before) in model.columns.iter().zip(&before.columns) {
        let parent = 0..column.width;
        assert_eq!(column.values[parent.clone()], before.values[parent.clone()]);
        assert!(column.first_moments[parent].iter().all(|&moment| moment == 1.0));
        assert!(column.first_moments[2 * column.width..].iter().all(|&moment| moment == 0.0));
    }
    let ratio = model.triple(Parameter::LogScales, 0)[0] - model.triple(Parameter::LogScales, 2)[0];
    assert!((ratio - 1.6_f32.ln()).abs() < 1e-6, "{ratio}");
    assert_ne!(model.triple(Parameter::Means, 2), model.triple(Parameter::Means, 0));
    assert_eq!(model.row(Parameter::ShRest, 2), model.row(Parameter::ShRest, 0));
}

#[test]
fn small_gaussians_are_cloned_large_ones_split_and_others_stay() {
    let rows = [(0.05, 0.9), (0.5, 0.9), (0.05, 0.1), (0.5, 0.1), (0.1, 0.5)];
    let mut model = model(&rows);
    let candidates = scored(&model);
    assert_eq!((candidates.small, candidates.large), (2, 1));
    let done = densify(&mut model, &KEEP, ALL);
    assert_eq!(done, Edited { copied: 2, split: 1, ..Edited::default() });
    assert_eq!(model.len(), 8);
    assert_eq!((model.views_seen.clone(), model.gradient_norm_sums[0]), (vec![0; 8], 0.0));

    // Clones, in the order of their originals with the second child between: 0, 1's, 4.
    for (copy, original) in [(5, 0), (7, 4)] {
        for parameter in Parameter::ALL {
            assert_eq!(model.row(parameter, copy), model.row(parameter, original));
        }
    }
    let moments = |row: usize| {
        let column = model.column(Parameter::ShRest);
        (column.first_moments[row * 9], column.second_moments[row * 9 + 8])
    };
    assert_eq!((moments(0), moments(2)), ((1.0, 2.0), (1.0, 2.0)));
    // Newborn Gaussians, both children of the split among them, start with fresh moments.
    assert_eq!((moments(1), moments(5), moments(6)), ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)));
}

#[test]
fn growth_takes_no_more_memory_than_the_newborn_need() {
    let mut model = model(&[(0.05, 0.9); 1000]);
    model.gradient_norm_sums[10..].fill(0.0);
    densify(&mut model, &KEEP, ALL);
    for column in &model.columns {
        for values in [&column.values, &column.first_moments, &column.second_moments] {
            assert_eq!(values.capacity(), 1010 * column.width);
        }
    }
}

#[test]
fn children_lie_within_their_parent_and_are_smaller_by_a_factor_of_1_6() {
    let rows = vec![(0.5, 0.9); 2000];
    let mut model = model(&rows);
    densify(&mut model, &KEEP, ALL);
    let turn = rotation([0.9_f32, 0.1, -0.2, 0.3]);
    let mut squares = [0.0_f64; 3];
    for child in 0..4000 {
        let parent = child % 2000;
        let mut offset = model.triple(Parameter::Means, child);
        offset[0] -= parent as f32;
        let along = crate::math::linalg::mul_transposed(&turn, offset);
        for (axis, scale) in [0.5, (-6.0_f32).exp(), (-7.0_f32).exp()].iter().enumerate() {
            squares[axis] += f64::from((along[axis] / scale).powi(2)) / 4000.0;
        }
        let shrunk = model.triple(Parameter::LogScales, child)[0];
        assert!((shrunk - (0.5_f32 / 1.6).ln()).abs() < 1e-6);
    }
    // Four standard errors of the variance of 4,000 normal draws; along the short axes the
    // coordinates up to 2,000 have a rounding as large as the offset.
    assert!((squares[0] - 1.0).abs() < 4.0 * (2.0_f64 / 4000.0).sqrt(), "{squares:?}");
    // The two children are drawn apart.
    assert_ne!(model.triple(Parameter::Means, 0)[1..], model.triple(Parameter::Means, 2000)[1..]);
}

#[test]
fn where_not_all_may_grow_the_highest_gradients_come_first() {
    let rows = [(0.05, 0.6), (0.5, 0.8), (0.05, 0.7), (0.05, 0.9), (0.05, 0.1)];
    let mut model = model(&rows);
    let done = densify(&mut model, &KEEP, 2);
    assert_eq!(done, Edited { copied: 1, split: 1, ..Edited::default() });
    assert_eq!(model.len(), 7);
    assert_eq!(model.row(Parameter::Means, 6)[0], 3.0);
    assert_eq!(densify(&mut model, &KEEP, 0), Edited::default());
}

#[test]
fn growth_copies_large_ones_and_refuses_candidates_of_another_model() {
    let mut model = model(&[(0.05, 0.9), (0.5, 0.9)]);
    let candidates = scored(&model);
    let selected = select(&model, &candidates, ALL).unwrap();
    let (done, _) = edit(&mut model, &selected, &Grow::Copy, &KEEP);
    assert_eq!(done, Edited { copied: 2, ..Edited::default() });
    assert_eq!(model.row(Parameter::Means, 3), model.row(Parameter::Means, 1));
    let stale = select(&model, &candidates, ALL);
    assert!(matches!(stale, Err(DeviceError::StaleCandidates { counted: 2, found: 0 })));
}

#[test]
fn quantiles_are_those_of_a_sort_and_what_is_no_number_comes_last() {
    assert_eq!(quantile(vec![3.0_f32, 1.0, 2.0, 0.0, 4.0], 2), 2.4);
    assert_eq!(quantile(vec![3.0_f32, 1.0], 0), 3.0);
    assert_eq!(quantile(vec![7.0_f64], 1), 7.0);
    assert_eq!(quantile(vec![f32::NAN, 1.0, 2.0, -f32::NAN], 3), 1.75);
}

#[test]
fn pruning_drops_transparent_and_large_gaussians_and_keeps_the_order() {
    let mut model = model(&[(0.05, 0.0), (3.0, 0.0), (0.05, 0.0), (0.2, 0.0)]);
    model.column_mut(Parameter::OpacityLogits).values[2] = inverse_sigmoid(0.0049);
    let keep = Keep { scale_max: Some(1.0), ..KEEP };
    assert_eq!(densify(&mut model, &keep, ALL).removed, 2);
    assert_eq!(model.len(), 2);
    assert_eq!([model.row(Parameter::Means, 0)[0], model.row(Parameter::Means, 1)[0]], [0.0, 3.0]);
    assert_eq!(model.row(Parameter::ShRest, 1)[0], 3.5);
    assert_eq!(model.column(Parameter::ShRest).first_moments.len(), 18);
}

#[test]
fn a_reset_lowers_high_opacities_only_and_forgets_their_moments() {
    let mut model = model(&[(0.05, 0.0); 2]);
    model.column_mut(Parameter::OpacityLogits).values[1] = -6.0;
    reset_opacity(&mut model, 0.01);
    let column = model.column(Parameter::OpacityLogits);
    // Rounding of sigmoid(logit(0.01)) in single precision.
    assert!((sigmoid(column.values[0]) - 0.01).abs() < 1e-8);
    assert_eq!(column.values[1], -6.0);
    assert_eq!((column.first_moments[0], column.second_moments[1]), (0.0, 0.0));
    assert_eq!(model.column(Parameter::Means).first_moments[0], 1.0);
}

//! Contributions and weights of Gaussians on every device: against images without each of them, and against the CPU
//! backend in double precision.

use std::slice::from_ref;

use splat::backend::Contribution;
use splat::math::inverse_sigmoid;

use crate::common::scene::without;
use crate::prelude::*;

each_backend!(
    contributions_are_what_images_without_a_gaussian_show,
    absent_gaussians_contribute_what_they_would_add,
    contributions_agree_with_the_oracle,
    pixels_under_a_mask_do_not_count,
    what_lies_behind_an_opaque_wall_contributes_nothing,
    what_has_the_colour_of_what_lies_behind_it_changes_little,
    as_many_are_left_out_or_not_as_there_are,
);

const SETTINGS: RenderSettings =
    RenderSettings { background: [0.1, 0.4, 0.7], ..RenderSettings::DEFAULT };

fn aside(along: f64) -> View {
    let mut view = view();
    view.pose.translation[0] += along;
    view
}

fn views() -> [View; 2] {
    [-0.2, 0.3].map(aside)
}

fn noise(view: &View, mask: Option<Vec<u8>>) -> Arc<Image> {
    photo(view.camera.width, view.camera.height, mask)
}

/// Returns the contribution of each Gaussian in these views, and each view's likeness to the photograph.
fn judged<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    absent: &[bool],
    views: &[View],
    image: &Arc<Image>,
) -> (Vec<Contribution>, Vec<Measured>) {
    let model = device.upload(gaussians).unwrap();
    let mut sums = device.no_contributions(&model, absent).unwrap();
    let mut judge = |view: &View| {
        let target = device.upload_target(Photo { image, stay: Stay::Transient }).unwrap();
        device.add_contributions(&model, view, &SETTINGS, &target, &mut sums).unwrap()
    };
    let measured = views.iter().map(&mut judge).collect();
    (device.read_contributions(&sums).unwrap(), measured)
}

/// Gaussians so transparent that light reaches all that lie behind others.
fn clear_gaussians(count: usize) -> Gaussians {
    let mut gaussians = tame_gaussians(count, 5, 0);
    for logit in &mut gaussians.opacity_logits {
        *logit = logit.min(inverse_sigmoid(0.4));
    }
    gaussians
}

/// Returns the images of the views on a screen, [views, h, w, 3].
fn shown(gaussians: &Gaussians, views: &[View]) -> Vec<f64> {
    let mut device = Cpu::<f64>::new();
    let model = device.upload(gaussians).unwrap();
    let draw = |view: &View| {
        let frame = device.render(&model, view, &SETTINGS, RenderRequest::IMAGE).unwrap();
        device.image(&frame).unwrap().rgb
    };
    let values = views.iter().flat_map(draw);
    values.map(|value| f64::from(value).clamp(0.0, 1.0)).collect()
}

fn squares(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| (one - other).powi(2)).sum()
}

fn truths(image: &Image, views: usize) -> Vec<f64> {
    let truth = image.rgb.iter().map(|&value| f64::from(value) / 255.0);
    truth.collect::<Vec<_>>().repeat(views)
}

/// A pixel of a borderline splat is seen in one precision alone: of its weight, 1/255, that changes the
/// error by as much. A handful of them may be.
const BORDERLINE: f64 = 0.02;

/// Tolerance and floor of sums of squared changes: a handful of borderline pixels, with (1/255)² in each channel.
const SQUARED: (f64, f64) = (5e-3, 5e-4 / 5e-3);

/// Compares contributions with images in which a Gaussian is left out, or no longer left out. Returns the compared
/// contributions and the change of the images' error for each.
fn assert_equal_to_images<B: TrainDevice>(
    device: &mut B,
    count: usize,
    left_out: &[usize],
) -> Vec<(Contribution, f64)> {
    let (gaussians, views) = (clear_gaussians(count), views());
    let image = noise(&views[0], None);
    let absent: Vec<bool> = (0..count).map(|row| left_out.contains(&row)).collect();
    let (found, measured) = judged(device, &gaussians, &absent, &views, &image);
    let truth = truths(&image, views.len());
    let drawn = shown(&without(&gaussians, left_out), &views);
    let before = squares(&drawn, &truth);
    let values = image.rgb.len() as f64;
    let all: f64 = measured.iter().map(|measured| measured.mse * values).sum();
    // Sums of thousands of squares that single precision rounds.
    assert_relative(all, before, (1e-4, 1.0), "the views");
    let compared = (0..count).filter(|&row| left_out.is_empty() || absent[row]);
    let contribution_of = |row: usize| {
        let others = left_out.iter().copied().filter(|&other| other != row);
        let toggled: Vec<usize> = others.chain((!absent[row]).then_some(row)).collect();
        let changed = shown(&without(&gaussians, &toggled), &views);
        let (change, what) = (squares(&changed, &truth) - before, format!("Gaussian {row}"));
        let found = found[row];
        assert_relative(found.error_change.into(), change, (5e-3, BORDERLINE / 5e-3), &what);
        let squared = squares(&changed, &drawn);
        assert_relative(found.squared_change.into(), squared, SQUARED, &what);
        (found, change)
    };
    compared.map(contribution_of).collect()
}

fn contributions_are_what_images_without_a_gaussian_show<B: TrainDevice>(device: &mut B) {
    let compared = assert_equal_to_images(device, 25, &[]);
    let is_seen = |(found, change): &&(Contribution, f64)| found.weight > 1.0 && change.abs() > 0.1;
    assert!(compared.iter().filter(is_seen).count() > 5, "{compared:?}");
    for (found, _) in compared {
        assert!(found.weight_max <= found.weight && found.weight_max <= 0.4 + 1e-6, "{found:?}");
    }
}

fn absent_gaussians_contribute_what_they_would_add<B: TrainDevice>(device: &mut B) {
    let left_out: Vec<usize> = (0..50).filter(|row| row % 2 == 1).collect();
    let compared = assert_equal_to_images(device, 50, &left_out);
    assert!(compared.iter().filter(|(_, change)| change.abs() > 0.1).count() > 2, "{compared:?}");
}

fn contributions_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let views = views();
    let image = noise(&views[0], None);
    for (count, seed) in [(0, 1), (3, 2), (40, 3), (300, 4)] {
        let gaussians = tame_gaussians(count, seed, 0);
        let absent: Vec<bool> = (0..count).map(|row| row % 5 == 2).collect();
        let [(found, measured), (expected, by_oracle)] =
            beside_oracle!(device, judged(device, &gaussians, &absent, &views, &image));
        for (found, expected) in measured.iter().zip(&by_oracle) {
            assert_relative(found.mse, expected.mse, (1e-4, 1e-3), "a view");
        }
        assert_eq!(found.len(), count);
        for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let what = format!("{count}, Gaussian {row}");
            let pairs = [
                (found.weight, expected.weight, BORDERLINE),
                // A pixel at the edge of a needle counts or not.
                (found.weight_max, expected.weight_max, 1.0 / 255.0),
                // What lies behind is found as a difference, over 1/1000 of the light at least.
                (found.error_change, expected.error_change, BORDERLINE),
                (found.squared_change, expected.squared_change, SQUARED.0 * SQUARED.1),
            ];
            for (found, expected, floor) in pairs {
                assert_relative(found.into(), expected.into(), (5e-3, floor / 5e-3), &what);
            }
        }
    }
}

fn sums(contribution: &Contribution) -> [f32; 3] {
    [contribution.weight, contribution.error_change, contribution.squared_change]
}

fn pixels_under_a_mask_do_not_count<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(40, 6, 0);
    let [view, _] = views();
    let pixels = (view.camera.width * view.camera.height) as usize;
    let absent = [false; 40];
    let halves = [0, 1].map(|half| (0..pixels).map(|at| u8::from(at % 2 == half) * 255).collect());
    let [odd, even] = halves.map(|mask: Vec<u8>| {
        judged(device, &gaussians, &absent, from_ref(&view), &noise(&view, Some(mask))).0
    });
    let whole = judged(device, &gaussians, &absent, from_ref(&view), &noise(&view, None)).0;
    for (row, whole) in whole.iter().enumerate() {
        let what = format!("Gaussian {row}");
        // Each pixel is in one of the halves; sums are rounded.
        for ((odd, even), whole) in sums(&odd[row]).iter().zip(sums(&even[row])).zip(sums(whole)) {
            assert_relative((odd + even).into(), whole.into(), (1e-4, 1.0), &what);
        }
        assert_eq!(odd[row].weight_max.max(even[row].weight_max), whole.weight_max, "{what}");
    }
    let hidden = noise(&view, Some(vec![0; pixels]));
    let none = judged(device, &gaussians, &absent, &[view], &hidden).0;
    assert_eq!(none, vec![Contribution::default(); 40]);
}

fn what_lies_behind_an_opaque_wall_contributes_nothing<B: TrainDevice>(device: &mut B) {
    let wall = |depth: f32| gaussian([0.0, 0.0, depth], 30.0, 0.999, [0.5; 3]);
    let hidden = gaussian([0.0, 0.0, 4.0], 0.3, 0.9, [1.0, 0.0, 0.0]);
    // Each wall lets 1/100 pass: behind the second a pixel is finished.
    let all = together(&[wall(1.0), wall(2.0), wall(3.0), hidden]);
    let view = straight();
    let (found, _) = judged(device, &all, &[false; 4], from_ref(&view), &noise(&view, None));
    assert!((found[0].weight_max - 0.99).abs() < 1e-5, "{found:?}");
    // The transmittance of 1e-4 behind it is, by rounding, the least that there may be or less.
    assert!(found[1].weight_max < 0.01, "{found:?}");
    assert_eq!(found[3], Contribution::default());
    // Without the first two walls the third is in front.
    let (found, _) =
        judged(device, &all, &[true, true, false, false], from_ref(&view), &noise(&view, None));
    assert!((found[2].weight_max - 0.99).abs() < 1e-5, "{found:?}");
    assert!((found[0].weight_max - 0.99).abs() < 1e-5, "{found:?}");
}

fn what_has_the_colour_of_what_lies_behind_it_changes_little<B: TrainDevice>(device: &mut B) {
    let wall = gaussian([0.0, 0.0, 4.0], 30.0, 0.95, [0.5; 3]);
    let alike = gaussian([-0.3, 0.0, 2.0], 0.1, 0.9, [0.5; 3]);
    let other = gaussian([0.3, 0.0, 2.0], 0.1, 0.9, [1.0, 0.0, 0.0]);
    let view = straight();
    let all = together(&[wall, alike, other]);
    let (found, _) = judged(device, &all, &[false; 3], from_ref(&view), &noise(&view, None));
    let [_, alike, other] = found[..] else { unreachable!() };
    assert!(alike.weight_max.min(other.weight_max) > 0.8, "{found:?}");
    assert!((alike.weight / other.weight - 1.0).abs() < 0.1, "{found:?}");
    // The wall lets 1/20 of the background pass: of 3/4 in squares, 1/1000 is left.
    assert!(alike.squared_change < 1e-2 * other.squared_change, "{found:?}");
}

fn as_many_are_left_out_or_not_as_there_are<B: TrainDevice>(device: &mut B) {
    let model = device.upload(&tame_gaussians(5, 1, 0)).unwrap();
    for count in [0, 4, 6] {
        let refused = device.no_contributions(&model, &vec![false; count]);
        assert!(matches!(refused, Err(DeviceError::NoSuchRow { len: 5, .. })), "{count}");
    }
    let mut sums = device.no_contributions(&model, &[false; 5]).unwrap();
    let smaller = photo(7, 5, None);
    let target = device.upload_target(Photo { image: &smaller, stay: Stay::Transient }).unwrap();
    let refused = device.add_contributions(&model, &view(), &SETTINGS, &target, &mut sums);
    assert!(matches!(refused, Err(DeviceError::TargetSize { .. })));
    assert_eq!(device.read_contributions(&sums).unwrap(), [Contribution::default(); 5]);
}

#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn bands_give_the_contributions_of_the_view_at_once() {
    let device = &mut cuda::open();
    for (seed, size) in (1..).zip([[203, 147], [37, 29], [64, 131], [16, 16]]) {
        let view = resized(&straight(), size);
        let (gaussians, image) = (tame_gaussians(1500, seed, 0), noise(&view, None));
        let absent: Vec<bool> = (0..1500).map(|row| row % 7 == 3).collect();
        device.set_bands(BandPolicy::Never);
        let views = [view];
        let (whole, at_once) = judged(device, &gaussians, &absent, &views, &image);
        for bands in [1, 2, 3, u32::MAX] {
            device.set_bands(BandPolicy::AtLeast(bands));
            let (found, measured) = judged(device, &gaussians, &absent, &views, &image);
            assert_eq!(measured, at_once, "{size:?} px, {bands} bands");
            for (row, (found, whole)) in found.iter().zip(&whole).enumerate() {
                let what = format!("{size:?} px, {bands} bands, Gaussian {row}");
                assert_eq!(found.weight_max, whole.weight_max, "{what}");
                // Warps add in any order.
                for (found, whole) in sums(found).into_iter().zip(sums(whole)) {
                    assert_relative(found.into(), whole.into(), (1e-4, 1.0), &what);
                }
            }
        }
    }
}

// Blend weights of every device against those that images by the definition tell, and what a prune to a
// number of Gaussians keeps.

each_backend!(
    weights_are_what_a_white_gaussian_among_black_ones_shows,
    a_prune_keeps_the_heaviest_of_three_views,
    of_equal_weights_the_first_rows_stay,
    weights_and_gradients_have_rules_of_their_own,
);

const WEIGHTS_SETTINGS: RenderSettings = RenderSettings { sh_degree: 0, ..RenderSettings::DEFAULT };

fn weights_views() -> [View; 3] {
    [-0.2, 0.0, 0.3].map(aside)
}

fn weights<B: TrainDevice>(device: &mut B, model: &mut B::Model) -> Vec<f32> {
    let views = weights_views();
    // A second pass starts from zero.
    for _ in 0..2 {
        device.weigh(model, &views.each_ref(), &WEIGHTS_SETTINGS).unwrap();
    }
    device.snapshot(model).unwrap().gradient_norm_sums
}

/// Returns the weights by definition: if all Gaussians are black but one, the image is that one's weight.
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
                let frame =
                    device.render(&model, view, &WEIGHTS_SETTINGS, RenderRequest::IMAGE).unwrap();
                let image = device.image(&frame).unwrap();
                image.rgb.chunks(3).map(|pixel| f64::from(pixel[0])).sum::<f64>()
            };
            weights_views().iter().map(sum).sum()
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
        assert_eq!(after.parameters.len(), stay.len());
        for (_, found, expected) in paired_parts(&after, &start) {
            let row = |&row: &usize| &expected.values[row * expected.width..][..expected.width];
            let rows = stay.iter().flat_map(row);
            assert!(found.values.iter().eq(rows), "{}: {count} to {target}", found.name);
        }
        assert!(after.gradient_norm_sums.iter().all(|&sum| sum == 0.0));
        assert!(after.views_seen.iter().all(|&seen| seen == 0));
    }
}

fn of_equal_weights_the_first_rows_stay<B: TrainDevice>(device: &mut B) {
    // No view sees the Gaussians behind the cameras; the one in front contributes more.
    let hidden = |x: f32| gaussian([x, 0.0, -5.0], 0.1, 0.9, [0.5; 3]);
    let seen = gaussian([0.0, 0.0, 3.0], 0.3, 0.9, [0.5; 3]);
    let all = together(&[hidden(0.0), hidden(1.0), hidden(2.0), seen, hidden(3.0)]);
    let mut model = device.upload(&all).unwrap();
    device.weigh(&mut model, &weights_views().each_ref(), &WEIGHTS_SETTINGS).unwrap();
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
    device.weigh(&mut model, &weights_views().each_ref(), &WEIGHTS_SETTINGS).unwrap();
    assert_eq!(device.len(&model), 0);
}

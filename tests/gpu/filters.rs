//! The filters of Mip-Splatting, the regularisers and the random motion of MCMC: gradients against
//! differences in double precision, and every device against the oracle.

use std::slice::from_ref;

use splat::backend::Reach;
use splat::math::filter::{kept_on_screen, kept_on_screen_bwd};
use splat::math::linalg::{add, dot, mul, sub};
use splat::math::splat::{EllipseGradient, Shape, project, project_bwd};
use splat::math::{inverse_sigmoid, sigmoid};
use splat::model::fuse;

use crate::common::oracle::assert_projection_differences;
use crate::common::scene::filtered_viewpoint;
use crate::prelude::*;
use crate::support::shown_of;

each_backend!(
    filters_are_of_the_nearest_view_and_largest_focal_length,
    without_a_view_that_samples_anything_filters_are_zero,
    a_reset_lowers_opacities_as_they_are_through_the_filter,
    fused_gaussians_look_like_the_raw_ones_with_their_filter,
    steps_through_the_filters_agree_with_the_oracle,
    regularisers_act_on_all_gaussians_or_on_those_that_are_seen,
    noise_moves_transparent_gaussians_as_the_oracle_does,
    harmonics_of_what_is_seen_decay,
    scales_of_what_is_seen_stay_below_a_share_of_the_distance,
    filters_move_with_their_gaussians_and_are_zero_after_densification,
);

/// Depth from which on views tell of what they see, world units.
pub(super) const SAMPLED_FROM: f64 = 0.2;

pub(super) const MIP: Footprint = Footprint::Ellipse { variance_px2: 0.1, compensates: true };

/// As in `gradients.rs`: six digits.
const EXACT: (f64, f64) = (1e-6, 1e-6);

#[test]
fn the_share_kept_on_the_screen_agrees_with_its_difference() {
    let mut draws = Draws::new(31);
    for _ in 0..40 {
        let det = 10.0_f64.powf(draws.uniform(-5.5, 3.0));
        let widened = det + draws.uniform(0.02, 2.0);
        let [d_det, d_widened] = kept_on_screen_bwd(det, widened, 1.0);
        let log = |det: f64, widened: f64| kept_on_screen(det, widened).ln();
        // In units of the determinants themselves: they span nine orders of magnitude.
        let expected = derivative(0.0, |x| log(det * x.exp(), widened));
        assert_relative(d_det * det, expected, EXACT, "determinant before");
        let expected = derivative(0.0, |x| log(det, widened * x.exp()));
        assert_relative(d_widened * widened, expected, EXACT, "determinant after");
    }
}

#[test]
fn projection_through_the_filters_agrees_with_its_difference() {
    let mut draws = Draws::new(32);
    for case in 0..60 {
        let filter = if case % 3 == 0 { Footprint::DILATED } else { MIP };
        let view = filtered_viewpoint(&view(), NEAR, filter);
        let shape = Shape {
            mean_world: [
                draws.uniform(-1.0, 1.0),
                draws.uniform(-1.0, 1.0),
                draws.uniform(0.8, 3.0),
            ],
            log_scale: draws.array(-4.0, -0.5),
            quat: draws.array(-1.0, 1.0),
            smoothing: if case % 3 == 1 { 0.0 } else { draws.uniform(0.005, 0.2) },
        };
        let d = EllipseGradient {
            d_mean_px: draws.array(-1.0, 1.0),
            d_conic: draws.array(-1.0, 1.0),
            d_log_kept: draws.uniform(-1.0, 1.0),
            d_depth: draws.uniform(-1.0, 1.0),
        };
        assert_projection_differences(&view, &shape, &d);
    }
}

#[test]
fn a_splat_without_area_keeps_nothing_and_passes_no_gradient() {
    let point = filtered_viewpoint(&view(), NEAR, MIP);
    // Two scales of a millionth of a pixel: a determinant far below 1e-6 px⁴.
    let shape = Shape {
        mean_world: [0.1, -0.1, 2.0],
        log_scale: [-3.0, -17.0, -17.0],
        quat: [0.9, 0.1, 0.3, -0.2],
        smoothing: 0.0,
    };
    assert_eq!(project(&point, &shape).unwrap().kept, 0.0);
    let d =
        EllipseGradient { d_mean_px: [0.0; 2], d_conic: [0.0; 3], d_log_kept: 1.0, d_depth: 0.0 };
    let found = project_bwd(&point, &shape, &d).unwrap();
    assert_eq!((found.d_log_scale, found.d_quat), ([0.0; 3], [0.0; 4]));
    // A 3D filter gives it an area again.
    assert!(project(&point, &Shape { smoothing: 0.05, ..shape }).unwrap().kept > 0.0);
}

/// A dozen Gaussians of all opacities in front of the camera.
fn dozen() -> Gaussians {
    let mut draws = Draws::new(33);
    let mut all = Gaussians::zeros(1, 12);
    for i in 0..12 {
        let depth = draws.uniform(0.8, 3.0);
        let mean = [draws.uniform(-0.3, 0.3) * depth, draws.uniform(-0.25, 0.25) * depth, depth];
        all.means[i * 3..][..3].copy_from_slice(&mean.map(f64::to_f32));
        all.opacity_logits[i] = draws.uniform(-1.0, 3.0).to_f32();
        for axis in 0..3 {
            all.log_scales[i * 3 + axis] = draws.uniform(-4.0, -1.5).to_f32();
            all.sh_dc[i * 3 + axis] = draws.uniform(-0.3, 1.2).to_f32();
        }
        all.quats[i * 4..][..4].copy_from_slice(&draws.array::<4>(-1.0, 1.0).map(f64::to_f32));
    }
    all
}

#[test]
fn the_pipeline_with_filters_agrees_with_its_differences() {
    let drawing = DrawSettings { pass: Pass::Train, sh_degree: 1, footprint: MIP, ..COLOURS };
    let mut device = Cpu::<f64>::new();
    let mut model = device.upload(&dozen()).unwrap();
    device.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    assert!(model.filter_3d.iter().all(|&filter| filter > 0.005));
    let compared = (&photo(37, 29, None), &Terms::photometric(0.2), &[][..]);
    let compared = assert_view_differences(&mut model, &drawing, compared, &Parameter::ALL);
    let compared: usize = compared.iter().sum();
    assert!(compared > 80, "only {compared} gradients were large enough to tell");
}

/// Three views that look at overlapping parts of space, two of them alike but for the focal length.
fn three_views() -> [View; 3] {
    let mut views = [view(), view(), view()];
    views[1].pose.translation = [0.6, 0.1, -0.8];
    views[1].camera.focal_px = [90.0, 97.0];
    views[2].pose.translation = [-1.4, 0.4, 0.9];
    views[2].camera.width = 61;
    views
}

fn far_away() -> View {
    let mut view = view();
    view.pose.translation = [0.0, 0.0, -1e4];
    view
}

/// The depth of the nearest view that samples a place, and whether a decision was close.
fn sampled(views: &[View], mean: [f64; 3]) -> (Option<f64>, bool) {
    let (mut nearest, mut close) = (None::<f64>, false);
    for View { camera, pose, .. } in views {
        let [x, y, z] = add(mul(&pose.rotation, mean), pose.translation);
        let mut inside = z > SAMPLED_FROM;
        close |= (z - SAMPLED_FROM).abs() < 1e-5;
        for (axis, along) in [(0, x), (1, y)] {
            let side = f64::from([camera.width, camera.height][axis]);
            let at = along / z * camera.focal_px[axis] + camera.centre_px[axis];
            let beyond = (at - side / 2.0).abs() - 0.65 * side;
            inside &= beyond <= 0.0;
            close |= beyond.abs() < 1e-3;
        }
        if inside {
            nearest = Some(nearest.map_or(z, |nearest| nearest.min(z)));
        }
    }
    (nearest, close)
}

fn filters_are_of_the_nearest_view_and_largest_focal_length<B: TrainDevice>(device: &mut B) {
    // More views than a block of a device looks at at once, the last of which are the three.
    for (count, others) in [(1000, 0), (1000, 64), (1, 0), (33, 127)] {
        let mut gaussians = Gaussians::zeros(0, count);
        let mut draws = Draws::new(34);
        gaussians.means.iter_mut().for_each(|x| *x = draws.uniform(-2.5, 2.5).to_f32());
        gaussians.quats.iter_mut().for_each(|x| *x = 1.0);
        let views: Vec<View> = (0..others).map(|_| far_away()).chain(three_views()).collect();
        let mut model = device.upload(&gaussians).unwrap();
        let all: Vec<&View> = views.iter().collect();
        device.update_filter_3d(&mut model, &all, SAMPLED_FROM).unwrap();
        let found = device.snapshot(&mut model).unwrap().filter_3d;
        assert_eq!(found.len(), count);
        let means = gaussians.means.as_chunks::<3>().0;
        let depths: Vec<(Option<f64>, bool)> =
            means.iter().map(|mean| sampled(&views, mean.map(f64::from))).collect();
        let farthest = depths.iter().filter_map(|&(depth, _)| depth).fold(0.0, f64::max);
        let unseen = depths.iter().filter(|(depth, _)| depth.is_none()).count();
        assert!(count < 1000 || (100..900).contains(&unseen), "{unseen} of {count} are unseen");
        for (row, (&found, &(depth, close))) in found.iter().zip(&depths).enumerate() {
            let expected = depth.unwrap_or(farthest) / 90.0 * 0.2_f64.sqrt();
            let error = (f64::from(found) - expected).abs();
            // Single precision; and a border may count a Gaussian in or out.
            assert!(close || error <= 2e-6 * expected.max(0.01), "{row}: {found} {expected}");
        }
    }
}

fn without_a_view_that_samples_anything_filters_are_zero<B: TrainDevice>(device: &mut B) {
    let mut model = device.upload(&tame_gaussians(40, 35, 0)).unwrap();
    assert!(!device.optional(&model).filter_3d);
    device.update_filter_3d(&mut model, &[], SAMPLED_FROM).unwrap();
    assert!(device.optional(&model).filter_3d);
    assert_eq!(device.snapshot(&mut model).unwrap().filter_3d, vec![0.0; 40]);
    device.update_filter_3d(&mut model, &[&far_away()], SAMPLED_FROM).unwrap();
    assert_eq!(device.snapshot(&mut model).unwrap().filter_3d, vec![0.0; 40]);
    let mut none = device.upload(&Gaussians::zeros(2, 0)).unwrap();
    device.update_filter_3d(&mut none, &[&view()], SAMPLED_FROM).unwrap();
    assert!(device.snapshot(&mut none).unwrap().filter_3d.is_empty());
}

fn through_the_filter(snapshot: &Snapshot<Gaussians>) -> Vec<f64> {
    let Snapshot { parameters, filter_3d, .. } = snapshot;
    let scales = parameters.log_scales.as_chunks::<3>().0;
    let kept = scales.iter().zip(filter_3d).map(|(log_scale, &filter)| {
        let scale = log_scale.map(|l| f64::from(l).exp());
        scale.map(|s| s / s.hypot(f64::from(filter))).iter().product::<f64>()
    });
    let logits = parameters.opacity_logits.iter();
    logits.zip(kept).map(|(&logit, kept)| sigmoid(f64::from(logit)) * kept).collect()
}

fn a_reset_lowers_opacities_as_they_are_through_the_filter<B: TrainDevice>(device: &mut B) {
    let mut gaussians = tame_gaussians(500, 36, 0);
    gaussians.opacity_logits.iter_mut().step_by(3).for_each(|logit| *logit -= 5.0);
    let mut model = device.upload(&gaussians).unwrap();
    device.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    let shot = noisy_shot(0, &view(), settings(0, 1));
    step_over(device, &mut model, &[shot], &AdamStep::new(1, AT_REST));
    let before = device.snapshot(&mut model).unwrap();
    assert!(before.first_moments.opacity_logits.iter().any(|&moment| moment != 0.0));
    device.adjust(&mut model, &Adjust::ResetOpacity(0.01)).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    let (opacities, lowered) = (through_the_filter(&before), through_the_filter(&after));
    let mut stayed = 0;
    for (row, (&before_it, &after_it)) in opacities.iter().zip(&lowered).enumerate() {
        let expected = before_it.min(0.01);
        assert!((after_it - expected).abs() <= 1e-5 * expected, "{row}: {after_it} {expected}");
        let [old, new] = [&before, &after].map(|s| s.parameters.opacity_logits[row]);
        stayed += usize::from(old.to_bits() == new.to_bits());
    }
    assert!((50..450).contains(&stayed), "{stayed} of 500 stayed");
    for moments in [&after.first_moments, &after.second_moments] {
        assert!(moments.opacity_logits.iter().all(|&moment| moment == 0.0));
        assert!(moments.means.iter().any(|&moment| moment != 0.0));
    }
    assert_eq!(after.filter_3d, before.filter_3d);
}

fn fused_gaussians_look_like_the_raw_ones_with_their_filter<B: TrainDevice>(device: &mut B) {
    for filter in [Footprint::DILATED, MIP] {
        let settings = DrawSettings { footprint: filter, ..settings(3, 40) };
        let mut model = device.upload(&tame_gaussians(80, 37, 3)).unwrap();
        device.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
        let raw = shown(device, &model, &view(), &settings);
        let Snapshot { mut parameters, filter_3d, .. } = device.snapshot(&mut model).unwrap();
        let unfiltered = shown_of(device, &parameters, &view(), &settings);
        fuse(&mut parameters, &filter_3d);
        let fused = shown_of(device, &parameters, &view(), &settings);
        let wrong = |image: &[f32], limit: f32| {
            let pairs = image.chunks(3).zip(raw.chunks(3));
            pairs.filter(|(a, b)| a.iter().zip(*b).any(|(a, b)| (a - b).abs() > limit)).count()
        };
        assert!(wrong(&unfiltered, 1e-2) > 100);
        // Rounding may take a splat's opacity over the cut of 1/255, in a pixel or two.
        assert!(wrong(&fused, 1e-5) <= 2, "{} pixels differ with {filter:?}", wrong(&fused, 1e-5));
    }
}

/// A step of a smoothed model over a view; its loss and what it left.
fn smoothed_step<B: TrainDevice>(
    device: &mut B,
    gaussians: &Gaussians,
    shot: &Shot,
    step: &AdamStep,
) -> (Loss, Snapshot<Gaussians>) {
    let mut model = device.upload(gaussians).unwrap();
    device.update_filter_3d(&mut model, &[&shot.view], SAMPLED_FROM).unwrap();
    let loss = step_over(device, &mut model, from_ref(shot), step).remove(0);
    (loss.into(), device.snapshot(&mut model).unwrap())
}

/// Returns the Gaussians as they are drawn through their 3D filter.
pub(super) fn smoothed(gaussians: &Gaussians) -> Gaussians {
    let mut oracle = Cpu::<f64>::new();
    let mut model = oracle.upload(gaussians).unwrap();
    oracle.update_filter_3d(&mut model, &[&view()], SAMPLED_FROM).unwrap();
    let Snapshot { mut parameters, filter_3d, .. } = oracle.snapshot(&mut model).unwrap();
    fuse(&mut parameters, &filter_3d);
    parameters
}

/// A view of the smoothed Gaussians with a photograph in which no pixel is borderline.
fn smoothed_shot(gaussians: &Gaussians, footprint: Footprint, seed: u64) -> Shot {
    let settings = DrawSettings { footprint, ..settings(3, seed) };
    shot(&smoothed(gaussians), &view(), settings, (seed, Counted::Clear))
}

fn steps_through_the_filters_agree_with_the_oracle<B: TrainDevice>(device: &mut B) {
    let cases = [(1, 41, MIP), (60, 42, MIP), (200, 43, MIP), (120, 44, Footprint::DILATED)];
    for (count, seed, filter) in cases {
        let gaussians = tame_gaussians(count, seed, 3);
        let shot = smoothed_shot(&gaussians, filter, seed);
        let step = AdamStep::new(1, RATES);
        let [(loss, found), (expected_loss, expected)] =
            beside_oracle!(device, smoothed_step(device, &gaussians, &shot, &step));
        let what = format!("{count} Gaussians with {filter:?}");
        assert_losses_agree(&loss, &expected_loss, (shot.size(), &what));
        assert_gradients_agree(&found, &expected, (GRADIENT_TOLERANCE, &what));
    }
}

fn regularisers_act_on_all_gaussians_or_on_those_that_are_seen<B: TrainDevice>(device: &mut B) {
    let gaussians = tame_gaussians(150, 45, 1);
    // Nothing is seen: the regularisers alone have gradients.
    let shot = noisy_shot(0, &far_away(), settings(1, 3));
    for (reach, share) in [(Reach::All, 1.0), (Reach::Seen, 0.0)] {
        let regularisers = Regularisers { opacity: 0.3, scale: 0.7, reach };
        let step = AdamStep { regularisers, ..AdamStep::new(1, RATES) };
        let (_, after) = stepped(device, &gaussians, from_ref(&shot), &step);
        for (name, _, found) in gradients(&after) {
            let expected = |at: usize| match name {
                "log_scales" => share * 0.7 / 450.0 * f64::from(gaussians.log_scales[at]).exp(),
                "opacity_logits" => {
                    let opacity = sigmoid(f64::from(gaussians.opacity_logits[at]));
                    share * 0.3 / 150.0 * opacity * (1.0 - opacity)
                }
                _ => 0.0,
            };
            let expected: Vec<f64> = (0..found.len()).map(expected).collect();
            // 1 - opacity of single precision, for opacities up to 0.995.
            assert_near(&found, &expected, |value| 3e-5 * value, name);
        }
    }
}

fn is_before(view: &View, place: &[f32; 3]) -> bool {
    let pose = &view.pose;
    dot(pose.rotation[2], place.map(f64::from)) + pose.translation[2] > 0.0
}

fn noise_moves_transparent_gaussians_as_the_oracle_does<B: TrainDevice>(device: &mut B) {
    let mut gaussians = tame_gaussians(321, 46, 3);
    // Opacities around the 0.005 where the motion ends, and every third Gaussian behind the camera.
    let mut draws = Draws::new(47);
    for (row, logit) in gaussians.opacity_logits.iter_mut().enumerate() {
        *logit = inverse_sigmoid(draws.uniform(0.001, 0.05)).to_f32();
        if row % 3 == 0 {
            gaussians.means[3 * row + 2] *= -1.0;
        }
    }
    let shot = smoothed_shot(&gaussians, MIP, 48);
    let still = AdamStep::new(1, AT_REST);
    let cases = [(None, 100, 0), (Some(1e3), 50, 50), (Some(0.02), 50, 50)];
    for (longest, least_far, least_at_rest) in cases {
        let moved = longest.map_or(MotionReach::All, |longest| MotionReach::Unseen { longest });
        let noise = Some(Noise { rate: 7.0, key: 0x1234_5678_9abc_def0, moved });
        let step = AdamStep { noise, ..still };
        let [(_, found), (_, expected)] =
            beside_oracle!(device, smoothed_step(device, &gaussians, &shot, &step));
        let means = [&found, &expected].map(|s| s.parameters.means.as_chunks::<3>().0);
        let starts = gaussians.means.as_chunks::<3>().0;
        let (mut far, mut at_rest, mut longest_found) = (0, 0, 0.0_f64);
        for (row, start) in starts.iter().enumerate() {
            let of = |mean: [f32; 3]| [0, 1, 2].map(|k| f64::from(mean[k]) - f64::from(start[k]));
            let [found, expected] = means.map(|means| of(means[row]));
            let length = dot(expected, expected).sqrt();
            far += usize::from(length > 1e-2);
            longest_found = longest_found.max(length);
            let rests = means[0][row] == *start;
            at_rest += usize::from(rests);
            let may_rest = is_before(&shot.view, start) || length < 1e-6;
            assert!(may_rest || !rests, "{moved:?}: row {row} is behind the camera");
            for axis in 0..3 {
                let error = (found[axis] - expected[axis]).abs();
                // Normal numbers of single precision, a gate a hundred times as steep as the opacity that
                // it is of, and the rounding of a coordinate.
                let tolerance = 1e-4 * length + 1e-6;
                assert!(error <= tolerance, "{moved:?} {row}: {found:?} instead of {expected:?}");
            }
        }
        assert!(far > least_far, "{moved:?}: only {far} of 321 have moved");
        assert!(at_rest >= least_at_rest, "{moved:?}: only {at_rest} are at rest");
        // Without a bound, some move further than the smaller one. The margin is rounding of coordinates.
        assert_eq!(longest_found <= 0.020_01, longest == Some(0.02), "{moved:?}: {longest_found}");
        assert_eq!(found.parameters.log_scales, gaussians.log_scales);
    }
    let (_, resting) = smoothed_step(device, &gaussians, &shot, &still);
    assert_eq!(resting.parameters, gaussians);
}

/// Gaussians of which every third is behind the camera, and a view of them.
fn partly_behind() -> (Gaussians, Shot) {
    let mut gaussians = tame_gaussians(130, 52, 3);
    for row in (0..130).step_by(3) {
        gaussians.means[3 * row + 2] *= -1.0;
    }
    let shot = smoothed_shot(&gaussians, MIP, 53);
    (gaussians, shot)
}

fn harmonics_of_what_is_seen_decay<B: TrainDevice>(device: &mut B) {
    let (gaussians, shot) = partly_behind();
    let step = AdamStep { sh_decay: 0.25, ..AdamStep::new(1, AT_REST) };
    let [(_, found), (_, expected)] =
        beside_oracle!(device, smoothed_step(device, &gaussians, &shot, &step));
    // Three quarters of a number are rounded once.
    assert_eq!(found.parameters, expected.parameters);
    assert_eq!(found.parameters.sh_dc, gaussians.sh_dc);
    let rows = found.parameters.sh_rest.chunks(45).zip(gaussians.sh_rest.chunks(45));
    let places = gaussians.means.as_chunks::<3>().0;
    let mut decayed = 0;
    for ((row, (found, start)), place) in rows.enumerate().zip(places) {
        let expected: Vec<f32> = start.iter().map(|value| 0.75 * value).collect();
        decayed += usize::from(found == expected);
        assert!(is_before(&shot.view, place) || found == start, "row {row} is behind the camera");
    }
    assert!(decayed > 30, "{decayed} have decayed");
}

fn scales_of_what_is_seen_stay_below_a_share_of_the_distance<B: TrainDevice>(device: &mut B) {
    const LIMIT: f64 = 0.02;
    let (gaussians, shot) = partly_behind();
    let step = AdamStep { scale_limit: LIMIT, ..AdamStep::new(1, AT_REST) };
    let (_, found) = smoothed_step(device, &gaussians, &shot, &step);
    let rows = found.parameters.log_scales.chunks(3).zip(gaussians.log_scales.chunks(3));
    let mut limited = 0;
    for ((found, start), mean) in rows.zip(gaussians.means.as_chunks::<3>().0) {
        if found == start {
            continue;
        }
        limited += 1;
        assert!(is_before(&shot.view, mean), "{mean:?} is behind the camera");
        let offset = sub(mean.map(f64::from), shot.view.pose.centre_world());
        let most = LIMIT.ln() + 0.5 * dot(offset, offset).ln();
        for (&found, &start) in found.iter().zip(start) {
            // Two logarithms in single precision.
            assert!((f64::from(found) - f64::from(start).min(most)).abs() < 1e-5, "{found} {most}");
        }
    }
    assert!(limited > 30, "{limited} are limited");
    let log_scales = gaussians.log_scales.clone();
    let others = Gaussians { log_scales, ..found.parameters };
    assert_eq!(others, gaussians, "nothing else moves");
}

fn filters_move_with_their_gaussians_and_are_zero_after_densification<B: TrainDevice>(
    device: &mut B,
) {
    let gaussians = tame_gaussians(203, 49, 2);
    let mut model = device.upload(&gaussians).unwrap();
    device.update_filter_3d(&mut model, &three_views().each_ref(), SAMPLED_FROM).unwrap();
    let mut before = device.snapshot(&mut model).unwrap();
    before.absolute_norm_sums = (0_u16..203).map(|row| f32::from(row) * 0.5).collect();
    let mut model = device.restore(before.clone()).unwrap();
    device.reorder(&mut model, &Cube { centre: [0.0, 0.0, 2.0], half_side: 3.0 }).unwrap();
    let after = device.snapshot(&mut model).unwrap();
    assert_ne!(after.parameters, before.parameters);
    let rows = |s: &Snapshot<Gaussians>| {
        let bits = |row: usize| {
            let mean = &s.parameters.means[row * 3..][..3];
            let more = [s.filter_3d[row], s.absolute_norm_sums[row]];
            mean.iter().chain(&more).map(|value| value.to_bits()).collect::<Vec<_>>()
        };
        let mut rows: Vec<_> = (0..203).map(bits).collect();
        rows.sort_unstable();
        rows
    };
    assert_eq!(rows(&after), rows(&before));
    let rule = DensifyRule { gradient_min: 1e9, opacity_min: 0.5, ..DensifyRule::ALL };
    let done = densify(device, &mut model, &rule, 9).unwrap();
    let left = device.snapshot(&mut model).unwrap();
    assert!(done.removed > 20 && left.parameters.len() == 203 - done.removed);
    let zeros = vec![0.0; left.parameters.len()];
    assert_eq!((&left.filter_3d, &left.absolute_norm_sums), (&zeros, &zeros));
    let bytes = device.model_bytes(&model).into_iter().map(|bytes| bytes.0).sum::<u64>();
    let plain = device.upload(&left.parameters).unwrap();
    let without = device.model_bytes(&plain).into_iter().map(|bytes| bytes.0).sum::<u64>();
    assert!(bytes >= without + 8 * left.parameters.len() as u64);
}

/// First moments of the geometry in 16 bits, everything else of a first step as in full precision: a
/// value is rounded by up to 1/128 of itself.
#[cfg(kernels)]
#[test]
#[ignore = "needs a CUDA device"]
fn a_compact_model_takes_the_same_steps_through_the_filters() {
    let gaussians = tame_gaussians(200, 50, 3);
    let shot = smoothed_shot(&gaussians, MIP, 51);
    let regularisers = Regularisers { opacity: 0.01, scale: 0.01, ..Default::default() };
    let noise = Some(Noise { rate: 1e-3, key: 77, moved: MotionReach::All });
    let step = AdamStep { regularisers, noise, ..AdamStep::new(1, RATES) };
    let device = &mut compact();
    let [(loss, found), (expected_loss, expected)] =
        beside_oracle!(device, smoothed_step(device, &gaussians, &shot, &step));
    // Colours in half precision move the loss by a few units of 1e-4.
    assert!((loss.total - expected_loss.total).abs() < 1e-3);
    for (name, error) in gradient_errors(&found, &expected).into_iter().take(4) {
        assert!(error < 2e-2, "{name} is {error:.1e} off");
    }
    // The rate, where rounding turns the step's sign, twice, and the error of the noise.
    let (found, expected) = (&found.parameters.means, &expected.parameters.means);
    assert_near(found, expected, |_| 2.1e-3, "mean");
}

//! Stage `densify`: adaptive density control (Kerbl et al. 2023, section 5).

use super::project::Splat;
use crate::backend::cpu::model::{Model, ModelColumn, Parameter};
use crate::backend::edit::SPLIT_SHRINK;
use crate::backend::{Criterion, Densified, DensifyRule, Drawing, Grant, Statistics, Survey};
use crate::math::blend::ScreenGradient;
use crate::math::linalg::{Vec3, add, mul, rotation};
use crate::math::quantile::{between, place};
use crate::math::random::{Purpose, Stream};
use crate::math::{Real, inverse_sigmoid, sigmoid};

/// What becomes of a Gaussian whose gradient is high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GrowthKind {
    Clone,
    Split,
}

/// Share of its gradient that a splat at this depth tells (Pixel-GS, Zhang et al. 2024).
fn faded<R: Real>(depth: R, fade_depth: R) -> R {
    if fade_depth <= R::ZERO {
        return R::ONE;
    }
    let share = (depth / fade_depth).min(R::ONE);
    share * share
}

/// Adds one view to the statistics where it is observed: the norm of the centre's gradient, half the
/// image being 1, or what the statistics ask for.
pub(crate) fn observe<R: Real>(
    model: &mut Model<R>,
    splats: &[Splat<R>],
    screen: &[ScreenGradient<R>],
    (size, settings): ([u32; 2], &Drawing),
) {
    let Some(statistics) = settings.observe else { return };
    let fade_depth = R::of(settings.fade_depth);
    if statistics == Statistics::Both {
        model.enable_absolute_norms();
    }
    let half = size.map(|side| R::of(f64::from(side) / 2.0));
    for (splat, gradient) in splats.iter().zip(screen) {
        let fade = faded(splat.ellipse.depth, fade_depth);
        let scale = half.map(|half| fade * half);
        let [x, y] = [0, 1].map(|axis| gradient.d_mean_px[axis] * scale[axis]);
        let [absolute_x, absolute_y] = [0, 1].map(|axis| gradient.d_mean_abs[axis] * scale[axis]);
        let norm = match statistics {
            Statistics::Norms | Statistics::Both => (x * x + y * y).sqrt(),
            Statistics::AbsoluteNorms => (absolute_x * absolute_x + absolute_y * absolute_y).sqrt(),
        };
        model.gradient_norm_sums[splat.gaussian] += norm;
        if statistics == Statistics::Both {
            model.absolute_norm_sums[splat.gaussian] += absolute_x + absolute_y;
        }
        model.views_seen[splat.gaussian] += 1;
    }
}

/// Counts the candidates.
pub(crate) fn survey<R: Real>(model: &Model<R>, rule: &DensifyRule) -> Survey {
    let mut survey = Survey::default();
    for (_, growth) in candidates(model, rule, &Thresholds::new(model, rule)) {
        match growth {
            GrowthKind::Clone => survey.clones += 1,
            GrowthKind::Split => survey.splits += 1,
        }
    }
    survey
}

/// One round: grow as far as granted, prune, forget the statistics.
pub(crate) fn densify<R: Real>(
    model: &mut Model<R>,
    rule: &DensifyRule,
    grant: Grant,
) -> Densified {
    let thresholds = Thresholds::new(model, rule);
    let mut chosen = candidates(model, rule, &thresholds);
    let refused = chosen.len().saturating_sub(grant.births);
    if refused > 0 {
        // A stable sort: equal scores keep the order of the Gaussians.
        chosen.sort_by(|&(a, _), &(b, _)| {
            let (a, b) = (thresholds.score(model, a), thresholds.score(model, b));
            b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
        });
        chosen.truncate(grant.births);
        chosen.sort_by_key(|&(index, _)| index);
    }
    reserve_rows(model, chosen.len());
    let mut done = Densified { refused, ..Densified::default() };
    for (index, growth) in chosen {
        match growth {
            GrowthKind::Clone => {
                append_copy(model, index);
                done.cloned += 1;
            }
            GrowthKind::Split => {
                split(model, rule, index);
                done.split += 1;
            }
        }
    }
    done.pruned = prune(model, rule);
    if done.cloned + done.split + done.pruned > 0 {
        model.invalidate_rows();
    }
    model.forget_statistics();
    done
}

/// Lowers every opacity to at most `ceiling` and forgets the opacities' moments.
pub(crate) fn reset_opacity<R: Real>(model: &mut Model<R>, ceiling: f64) {
    let ceiling = inverse_sigmoid(R::of(ceiling));
    let column = model.column_mut(Parameter::OpacityLogits);
    for logit in &mut column.values {
        *logit = logit.min(ceiling);
    }
    column.first_moments.fill(R::ZERO);
    column.second_moments.fill(R::ZERO);
}

/// The Gaussians that should grow, in the order of their indices.
fn candidates<R: Real>(
    model: &Model<R>,
    rule: &DensifyRule,
    thresholds: &Thresholds<R>,
) -> Vec<(usize, GrowthKind)> {
    (0..model.len())
        .filter(|&index| thresholds.admit(model, index))
        .map(|index| {
            let small = largest_scale(model, index) <= R::of(rule.clone_scale_max);
            (index, if small { GrowthKind::Clone } else { GrowthKind::Split })
        })
        .collect()
}

/// Mean over the views that saw the Gaussian.
fn mean_gradient<R: Real>(model: &Model<R>, index: usize) -> R {
    let seen = R::of(f64::from(model.views_seen[index].max(1)));
    model.gradient_norm_sums[index] / seen
}

/// The same of the absolute gradients.
fn mean_absolute<R: Real>(model: &Model<R>, index: usize) -> R {
    let seen = R::of(f64::from(model.views_seen[index].max(1)));
    model.absolute_norm_sums[index] / seen
}

/// What makes a Gaussian a candidate.
struct Thresholds<R> {
    /// Mean norm of the gradient.
    gradient: R,
    /// Mean absolute gradient, where that counts, too.
    absolute: Option<R>,
}

impl<R: Real> Thresholds<R> {
    fn new(model: &Model<R>, rule: &DensifyRule) -> Self {
        let gradient = R::of(rule.gradient_min);
        // Before any view was observed there are no absolute gradients.
        let counts = rule.criterion == Criterion::Quantile && !model.absolute_norm_sums.is_empty();
        let absolute = counts.then(|| {
            let above = (0..model.len()).filter(|&i| mean_gradient(model, i) >= gradient).count();
            quantile((0..model.len()).map(|index| mean_absolute(model, index)).collect(), above)
        });
        Self { gradient, absolute }
    }

    /// Whether a Gaussian should grow. A mean absolute gradient of 0 is none, however low the bar.
    fn admit(&self, model: &Model<R>, index: usize) -> bool {
        let by_absolute = |bar| {
            let absolute = mean_absolute(model, index);
            absolute > R::ZERO && absolute >= bar
        };
        mean_gradient(model, index) >= self.gradient || self.absolute.is_some_and(by_absolute)
    }

    /// How much a candidate should grow: its gradient, or where absolute ones count, too, the larger
    /// of the two in units of their bars, times both bars, so that a bar of 0 does no harm.
    fn score(&self, model: &Model<R>, index: usize) -> R {
        let gradient = mean_gradient(model, index);
        match self.absolute {
            Some(bar) => (gradient * bar).max(mean_absolute(model, index) * self.gradient),
            None => gradient,
        }
    }
}

/// The quantile 1 - `above / n` of these values, which are not below 0; there is one at least. What
/// is no number comes last.
fn quantile<R: Real>(mut values: Vec<R>, above: usize) -> R {
    let place = place(values.len(), above);
    let (_, low, behind) = values.select_nth_unstable_by(place.rank, ascending);
    let low = low.to_f64();
    let high = behind.iter().copied().min_by(ascending).map_or(low, R::to_f64);
    R::of(between(low, high, place.share))
}

fn ascending<R: Real>(a: &R, b: &R) -> std::cmp::Ordering {
    a.abs().to_f64().total_cmp(&b.abs().to_f64())
}

fn largest_scale<R: Real>(model: &Model<R>, index: usize) -> R {
    let [a, b, c] = model.triple(Parameter::LogScales, index);
    a.max(b).max(c).exp()
}

/// Two children where the parent's density is: drawn from it, smaller, with fresh moments. The
/// first takes the parent's place.
fn split<R: Real>(model: &mut Model<R>, rule: &DensifyRule, parent: usize) {
    let stream = Stream::new(rule.seed, u64::from(rule.iteration), Purpose::Split);
    let shape = model.shape(parent);
    let turn = rotation(shape.quat);
    let place = |child: u64| -> Vec3<R> {
        let offset = [0, 1, 2].map(|axis| {
            let draw = stream.normal((parent as u64 * 2 + child) * 3 + axis as u64);
            R::of(draw) * shape.log_scale[axis].exp()
        });
        add(shape.mean_world, mul(&turn, offset))
    };
    let shrunk = shape.log_scale.map(|s| s - R::of(SPLIT_SHRINK.ln()));
    append_copy(model, parent);
    let last = model.len() - 1;
    for (child, index) in [(0, parent), (1, last)] {
        model.column_mut(Parameter::Means).values[index * 3..][..3].copy_from_slice(&place(child));
        model.column_mut(Parameter::LogScales).values[index * 3..][..3].copy_from_slice(&shrunk);
    }
    forget_row(model, parent);
}

/// Zeros the moments of a Gaussian.
pub(crate) fn forget_row<R: Real>(model: &mut Model<R>, row: usize) {
    for column in &mut model.columns {
        let row = row * column.width..(row + 1) * column.width;
        column.first_moments[row.clone()].fill(R::ZERO);
        column.second_moments[row].fill(R::ZERO);
    }
}

/// Gives a Gaussian the parameters of another.
pub(crate) fn copy_row<R: Real>(model: &mut Model<R>, from: usize, to: usize) {
    for ModelColumn { width, values, .. } in &mut model.columns {
        values.copy_within(from * *width..(from + 1) * *width, to * *width);
    }
}

/// Appends a copy of each of these Gaussians, with moments and statistics of zero.
pub(crate) fn append_copies<R: Real>(model: &mut Model<R>, sources: &[usize]) {
    if !sources.is_empty() {
        model.invalidate_rows();
    }
    reserve_rows(model, sources.len());
    for &source in sources {
        append_copy(model, source);
    }
    let count = model.len();
    model.gradient_norm_sums.resize(count, R::ZERO);
    model.views_seen.resize(count, 0);
    for column in [&mut model.absolute_norm_sums, &mut model.filter_3d] {
        if !column.is_empty() {
            column.resize(count, R::ZERO);
        }
    }
}

/// Makes room for exactly so many births: growing step by step would double each column.
fn reserve_rows<R: Real>(model: &mut Model<R>, births: usize) {
    for ModelColumn { width, values, first_moments, second_moments } in &mut model.columns {
        for column in [values, first_moments, second_moments] {
            column.reserve_exact(births * *width);
        }
    }
}

/// Appends a copy of a Gaussian with fresh moments to every column.
fn append_copy<R: Real>(model: &mut Model<R>, index: usize) {
    for ModelColumn { width, values, first_moments, second_moments } in &mut model.columns {
        values.extend_from_within(index * *width..(index + 1) * *width);
        first_moments.resize(values.len(), R::ZERO);
        second_moments.resize(values.len(), R::ZERO);
    }
}

/// Removes what is transparent or too large, newborn Gaussians included; the order is kept.
fn prune<R: Real>(model: &mut Model<R>, rule: &DensifyRule) -> usize {
    let keep: Vec<bool> = (0..model.len())
        .map(|index| {
            let opacity = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
            let fits = rule.scale_max.is_none_or(|max| largest_scale(model, index) <= R::of(max));
            opacity >= R::of(rule.opacity_min) && fits
        })
        .collect();
    for ModelColumn { width, values, first_moments, second_moments } in &mut model.columns {
        for column in [values, first_moments, second_moments] {
            retain_rows(column, *width, &keep);
        }
    }
    keep.iter().filter(|&&keep| !keep).count()
}

/// Moves the kept rows to the front, in place.
fn retain_rows<T: Copy>(values: &mut Vec<T>, width: usize, keep: &[bool]) {
    let mut end = 0;
    for (row, _) in keep.iter().enumerate().filter(|&(_, &keep)| keep) {
        values.copy_within(row * width..(row + 1) * width, end);
        end += width;
    }
    values.truncate(end);
}

#[cfg(test)]
mod tests {
    use super::super::project::project;
    use super::*;
    use crate::backend::ScreenFilter;
    use crate::backend::viewpoint::viewpoint;
    use crate::dataset::{Camera, Pose, View};
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

    const RULE: DensifyRule = DensifyRule {
        gradient_min: 0.5,
        clone_scale_max: 0.1,
        opacity_min: 0.005,
        scale_max: None,
        seed: 3,
        iteration: 600,
        criterion: Criterion::Gradient,
    };

    const ALL: Grant = Grant { births: usize::MAX };

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
            let viewpoint = viewpoint(&view, 0.01, ScreenFilter::DILATION);
            let (splats, _) = project(&model, &viewpoint, &Drawing::DEFAULT);
            let gradient = ScreenGradient {
                d_mean_px: [3.0, -4.0],
                d_mean_abs: [5.0, 24.0],
                ..ScreenGradient::default()
            };
            for _ in 0..2 {
                let settings =
                    Drawing { observe: Some(statistics), fade_depth, ..Drawing::DEFAULT };
                observe(&mut model, &splats, &[gradient], ([4, 2], &settings));
            }
            assert_eq!(model.views_seen, [0, 2]);
            (model.gradient_norm_sums, model.absolute_norm_sums)
        };
        // Half the image is 2 by 1 px.
        let norm = 2.0 * 52.0_f64.sqrt();
        // At a depth of 2.
        for (fade_depth, fade) in
            [(0.0, 1.0), (1.9, 1.0), (2.0, 1.0), (4.0, 0.25), (16.0, 0.015625)]
        {
            let observed = |statistics| observed(statistics, fade_depth);
            assert_eq!(observed(Statistics::Norms), (vec![0.0, fade * norm], vec![]));
            assert_eq!(observed(Statistics::AbsoluteNorms), (vec![0.0, fade * 52.0], vec![]));
            let both = (vec![0.0, fade * norm], vec![0.0, fade * 68.0]);
            assert_eq!(observed(Statistics::Both), both);
        }
    }

    #[test]
    fn small_gaussians_are_cloned_large_ones_split_and_others_stay() {
        let rows = [(0.05, 0.9), (0.5, 0.9), (0.05, 0.1), (0.5, 0.1), (0.1, 0.5)];
        let mut model = model(&rows);
        assert_eq!(survey(&model, &RULE), Survey { clones: 2, splits: 1 });
        let done = densify(&mut model, &RULE, ALL);
        assert_eq!(done, Densified { cloned: 2, split: 1, refused: 0, pruned: 0 });
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
        densify(&mut model, &RULE, ALL);
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
        densify(&mut model, &RULE, ALL);
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
        assert_ne!(
            model.triple(Parameter::Means, 0)[1..],
            model.triple(Parameter::Means, 2000)[1..]
        );
    }

    #[test]
    fn where_not_all_may_grow_the_highest_gradients_come_first() {
        let rows = [(0.05, 0.6), (0.5, 0.8), (0.05, 0.7), (0.05, 0.9), (0.05, 0.1)];
        let mut model = model(&rows);
        let done = densify(&mut model, &RULE, Grant { births: 2 });
        assert_eq!(done, Densified { cloned: 1, split: 1, refused: 2, pruned: 0 });
        assert_eq!(model.len(), 7);
        assert_eq!(model.row(Parameter::Means, 6)[0], 3.0);
        assert_eq!(densify(&mut model, &RULE, Grant { births: 0 }), Densified::default());
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
        let rule = DensifyRule { scale_max: Some(1.0), ..RULE };
        assert_eq!(densify(&mut model, &rule, ALL).pruned, 2);
        assert_eq!(model.len(), 2);
        assert_eq!(
            [model.row(Parameter::Means, 0)[0], model.row(Parameter::Means, 1)[0]],
            [0.0, 3.0]
        );
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
}

//! Stage `densify`: adaptive density control (Kerbl et al. 2023, section 5).

use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::cpu::primitive::Splat;
use crate::backend::{
    Candidates, DeviceError, DrawSettings, Edited, GradientRule, Grow, Keep, ScoreRule, Statistics,
};
use crate::math::blend::ScreenGradient;
use crate::math::linalg::{Vec3, add, mul, rotation};
use crate::math::quantile::{between, place};
use crate::math::random::RandomStream;
use crate::math::{Real, inverse_sigmoid, sigmoid};
use crate::model::Primitive;

/// Size class of a candidate relative to the rule's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// A candidate for densification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growing {
    pub(crate) row: usize,
    pub(crate) size: Size,
}

/// Returns the factor by which gradients of splats near the camera are scaled (Pixel-GS, Zhang et al. 2024).
fn faded<R: Real>(depth: R, fade_depth: R) -> R {
    if fade_depth <= R::ZERO {
        return R::ONE;
    }
    let share = (depth / fade_depth).min(R::ONE);
    share * share
}

/// Returns Σ (g - mean g)² over the pixels of a view, where g is a pixel's gradient of the log-opacity. The loss is
/// rescaled from a mean over `area` pixels to a sum.
fn disagreement<R: Real>(gradient: &ScreenGradient<R>, opacity: R, area: R) -> R {
    let sum = gradient.d_opacity * opacity * area;
    let squares = gradient.squares * area * area;
    (squares - sum * sum / gradient.pixels).max(R::ZERO)
}

/// Returns a random key. The rows with the highest keys are a weighted sample without replacement (Efraimidis and
/// Spirakis 2006): the weight divided by an exponential random number.
fn drawn<R: Real>(weight: R, stream: RandomStream, row: usize) -> R {
    let exponential = -(1.0 - stream.uniform(row as u64)).ln();
    R::of(weight.to_f64() / exponential)
}

/// Adds one observed view to the statistics: the norm of the centre's gradient in units of half the image, or the
/// requested alternative.
pub(crate) fn observe<R: Real, P: Primitive>(
    model: &mut Model<R, P>,
    splats: &[Splat<R>],
    screen: &[ScreenGradient<R>],
    size: [u32; 2],
    settings: &DrawSettings,
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
            Statistics::Disagreement if gradient.pixels <= R::ZERO => continue,
            Statistics::Disagreement => {
                // A pixel of a downscaled view counts `divisor`² times. The result is quadratic in `area`.
                let drawn = f64::from(size[0]) * f64::from(size[1]);
                let area = R::of(drawn * f64::from(settings.divisor.get()));
                disagreement(gradient, splat.opacity, area)
            }
        };
        model.gradient_norm_sums[splat.row] += norm;
        if statistics == Statistics::Both {
            model.absolute_norm_sums[splat.row] += absolute_x + absolute_y;
        }
        model.views_seen[splat.row] += 1;
    }
}

/// Finds the thresholds of candidates and counts the candidates.
pub(crate) fn score<R: Real>(
    model: &Model<R>,
    rule: &ScoreRule,
    gradient: &GradientRule,
) -> Candidates {
    let thresholds = Thresholds::new(model, gradient);
    let found = candidates(model, &thresholds);
    let small = found.iter().filter(|growing| growing.size == Size::Small).count();
    Candidates {
        rule: *rule,
        absolute_min: thresholds.absolute.map(R::to_f64),
        small,
        large: found.len() - small,
    }
}

/// Returns the `max_count` candidates with the highest scores, in row order.
pub(crate) fn select<R: Real>(
    model: &Model<R>,
    candidates: &Candidates,
    max_count: usize,
) -> Result<Vec<Growing>, DeviceError> {
    let gradient = candidates.rule.by_gradient().ok_or(DeviceError::UnsuitedEdit)?;
    let counted = candidates.count();
    if max_count.min(counted) == 0 {
        return Ok(Vec::new());
    }
    let thresholds = Thresholds::known(&gradient, candidates.absolute_min);
    let mut selected = self::candidates(model, &thresholds);
    if selected.len() != counted {
        return Err(DeviceError::StaleCandidates { counted, found: selected.len() });
    }
    if selected.len() > max_count {
        // The sort is stable: equal scores keep the order of the rows.
        selected.sort_by(|a, b| {
            let (a, b) = (thresholds.score(model, a.row), thresholds.score(model, b.row));
            b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
        });
        selected.truncate(max_count);
        selected.sort_by_key(|growing| growing.row);
    }
    Ok(selected)
}

/// Densifies the selected rows, prunes, and resets the statistics. Also returns which rows were kept, of the old
/// rows and one new row per selected row.
pub(crate) fn edit<R: Real>(
    model: &mut Model<R>,
    selected: &[Growing],
    large: &Grow,
    keep: &Keep,
) -> (Edited, Vec<bool>) {
    let before = model.len();
    model.reserve_rows(selected.len());
    let mut done = Edited::default();
    for &Growing { row, size } in selected {
        match (size, large) {
            (Size::Large, &Grow::SplitRandom { shrink, key }) => {
                split(model, row, shrink, RandomStream::of_key(key));
                done.split += 1;
            }
            (Size::Large, &Grow::AddChild { shrink, key }) => {
                add_child(model, row, shrink, RandomStream::of_key(key));
                done.split += 1;
            }
            (Size::Small, _) | (Size::Large, Grow::Copy) => {
                model.append_copy(row);
                done.copied += 1;
            }
        }
    }
    let kept = prune(model, keep, before);
    done.removed = kept.iter().filter(|&&kept| !kept).count();
    if done.copied + done.split + done.removed > 0 {
        model.invalidate_rows();
    }
    model.forget_statistics();
    (done, kept)
}

/// Removes all other rows and resets the statistics.
pub(crate) fn retain<R: Real>(model: &mut Model<R>, selected: &[Growing]) -> Edited {
    let mut keep = vec![false; model.len()];
    for growing in selected {
        keep[growing.row] = true;
    }
    model.retain_rows(&keep);
    let removed = keep.len() - selected.len();
    if removed > 0 {
        model.invalidate_rows();
    }
    model.forget_statistics();
    Edited { removed, ..Edited::default() }
}

/// Lowers every opacity to at most `ceiling` and zeros the moments of opacities.
pub(crate) fn reset_opacity<R: Real>(model: &mut Model<R>, ceiling: f64) {
    let ceiling = inverse_sigmoid(R::of(ceiling));
    let column = model.column_mut(Parameter::OpacityLogits);
    for logit in &mut column.values {
        *logit = logit.min(ceiling);
    }
    model.forget_moments(Parameter::OpacityLogits as usize);
}

/// Multiplies every opacity by a factor, bounded below by `floor`, and zeros all moments.
pub(crate) fn decay_opacity<R: Real>(model: &mut Model<R>, factor: f64, floor: f64) {
    let (factor, floor) = (R::of(factor), R::of(floor));
    let column = model.column_mut(Parameter::OpacityLogits);
    for logit in &mut column.values {
        let decayed = (factor * sigmoid(*logit)).max(floor);
        *logit = logit.min(inverse_sigmoid(decayed));
    }
    model.forget_all_moments();
}

/// Returns the candidates, in row order.
fn candidates<R: Real>(model: &Model<R>, thresholds: &Thresholds<R>) -> Vec<Growing> {
    (0..model.len())
        .filter(|&row| thresholds.admit(model, row))
        .map(|row| {
            let small = largest_scale(model, row) <= thresholds.small_max;
            Growing { row, size: if small { Size::Small } else { Size::Large } }
        })
        .collect()
}

/// Returns the mean gradient norm over the views that saw the Gaussian.
fn mean_gradient<R: Real>(model: &Model<R>, index: usize) -> R {
    let seen = R::of(f64::from(model.views_seen[index].max(1)));
    model.gradient_norm_sums[index] / seen
}

/// Returns the mean absolute gradient over the views that saw the Gaussian.
fn mean_absolute<R: Real>(model: &Model<R>, index: usize) -> R {
    let seen = R::of(f64::from(model.views_seen[index].max(1)));
    model.absolute_norm_sums[index] / seen
}

/// Thresholds of a candidate.
struct Thresholds<R> {
    /// Minimum mean gradient norm.
    gradient: R,
    /// Minimum mean absolute gradient, if used.
    absolute: Option<R>,
    /// Largest scale of a small candidate.
    small_max: R,
    /// Random stream that draws candidates, if they are not ranked by gradient.
    drawn_by: Option<RandomStream>,
}

impl<R: Real> Thresholds<R> {
    fn new(model: &Model<R>, rule: &GradientRule) -> Self {
        let gradient = R::of(rule.min);
        // There are no absolute gradients before the first observed view.
        let counts = rule.with_quantile && !model.absolute_norm_sums.is_empty();
        let absolute = counts.then(|| {
            let above = (0..model.len()).filter(|&i| mean_gradient(model, i) >= gradient).count();
            quantile((0..model.len()).map(|index| mean_absolute(model, index)).collect(), above)
        });
        Self { absolute, ..Self::known(rule, None) }
    }

    /// Restores the thresholds of a previous search.
    fn known(rule: &GradientRule, absolute_min: Option<f64>) -> Self {
        let absolute = absolute_min.map(R::of);
        Self {
            gradient: R::of(rule.min),
            absolute,
            small_max: R::of(rule.small_max),
            drawn_by: rule.drawn_by.map(RandomStream::of_key),
        }
    }

    /// True if a Gaussian is a candidate. A mean absolute gradient of 0 never qualifies.
    fn admit(&self, model: &Model<R>, index: usize) -> bool {
        let by_absolute = |bar| {
            let absolute = mean_absolute(model, index);
            absolute > R::ZERO && absolute >= bar
        };
        mean_gradient(model, index) >= self.gradient || self.absolute.is_some_and(by_absolute)
    }

    /// Returns the score of a candidate: its gradient, or the larger of both gradients relative to their thresholds.
    /// Scaled by both thresholds, so that a threshold of 0 does not divide.
    fn score(&self, model: &Model<R>, index: usize) -> R {
        if let Some(stream) = self.drawn_by {
            return drawn(model.gradient_norm_sums[index], stream, index);
        }
        let gradient = mean_gradient(model, index);
        match self.absolute {
            Some(bar) => (gradient * bar).max(mean_absolute(model, index) * self.gradient),
            None => gradient,
        }
    }
}

/// Returns the quantile 1 - `above / n` of values that are at least 0. NaN sorts last. Requires a value.
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

/// Replaces a Gaussian by two smaller ones, drawn from its density, with zero moments. The first takes its row.
fn split<R: Real>(model: &mut Model<R>, parent: usize, shrink: f64, stream: RandomStream) {
    let children = [0, 1].map(|child| Child::of(model, parent, child, shrink, stream));
    model.append_copy(parent);
    for (child, row) in children.iter().zip([parent, model.len() - 1]) {
        child.place(model, row);
    }
    model.forget_row(parent);
}

/// Appends one smaller child and keeps the parent unchanged.
fn add_child<R: Real>(model: &mut Model<R>, parent: usize, shrink: f64, stream: RandomStream) {
    let child = Child::of(model, parent, 1, shrink, stream);
    model.append_copy(parent);
    child.place(model, model.len() - 1);
}

/// Position and size of a child.
struct Child<R> {
    mean_world: Vec3<R>,
    log_scale: Vec3<R>,
}

impl<R: Real> Child<R> {
    /// Draws child `number` from its parent's density.
    fn of(model: &Model<R>, parent: usize, number: u64, shrink: f64, stream: RandomStream) -> Self {
        let shape = model.shape(parent);
        let offset = [0, 1, 2].map(|axis| {
            let draw = stream.normal((model.number(parent) * 2 + number) * 3 + axis as u64);
            R::of(draw) * shape.log_scale[axis].exp()
        });
        Self {
            mean_world: add(shape.mean_world, mul(&rotation(shape.quat), offset)),
            log_scale: shape.log_scale.map(|s| s - R::of(shrink.ln())),
        }
    }

    fn place(&self, model: &mut Model<R>, row: usize) {
        let values = [(Parameter::Means, self.mean_world), (Parameter::LogScales, self.log_scale)];
        for (parameter, value) in values {
            model.column_mut(parameter).values[row * 3..][..3].copy_from_slice(&value);
        }
    }
}

/// Removes Gaussians that are transparent or too large, and old rows (below `before`) that no view has seen, if the
/// rule says so. Keeps the order. Returns which rows were kept.
fn prune<R: Real>(model: &mut Model<R>, rule: &Keep, before: usize) -> Vec<bool> {
    let keep: Vec<bool> = (0..model.len())
        .map(|index| {
            let opacity = sigmoid(model.row(Parameter::OpacityLogits, index)[0]);
            let fits = rule.scale_max.is_none_or(|max| largest_scale(model, index) <= R::of(max));
            let seen = rule.unseen || index >= before || model.views_seen[index] > 0;
            opacity >= R::of(rule.opacity_min) && fits && seen
        })
        .collect();
    model.retain_rows(&keep);
    keep
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Footprint;
    use crate::backend::cpu::primitive::DrawnView;
    use crate::backend::cpu::stage::project::project;
    use crate::backend::settings::viewpoint;
    use crate::dataset::{Camera, Pose, View};
    use crate::math::random::RandomUse;
    use crate::model::Gaussians;

    /// Creates a row of Gaussians of opacity 1/2 with these largest scales and mean gradients.
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

    /// Runs a densification step with at most `max_count` new Gaussians.
    fn densify(model: &mut Model<f32>, keep: &Keep, max_count: usize) -> Edited {
        let selected = select(model, &scored(model), max_count).unwrap();
        let key = RandomStream::new(3, 600, RandomUse::Split).key();
        edit(model, &selected, &Grow::SplitRandom { shrink: 1.6, key }, keep).0
    }

    const ALL: usize = usize::MAX;

    /// Returns the first coordinate of each centre.
    fn firsts(model: &Model<f32>) -> Vec<f32> {
        (0..model.len()).map(|row| model.row(Parameter::Means, row)[0]).collect()
    }

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
            let (splats, _) = project(&model, &DrawnView::new(viewpoint, &DrawSettings::DEFAULT));
            let gradient = ScreenGradient {
                d_mean_px: [3.0, -4.0],
                d_mean_abs: [5.0, 24.0],
                squares: 0.5,
                pixels: 3.0,
                ..ScreenGradient::default()
            };
            for _ in 0..2 {
                let settings =
                    DrawSettings { observe: Some(statistics), fade_depth, ..DrawSettings::DEFAULT };
                observe(&mut model, &splats, &[gradient], [4, 2], &settings);
            }
            assert_eq!(model.views_seen, [0, 2]);
            (model.gradient_norm_sums, model.absolute_norm_sums)
        };
        // Half the image is 2 by 1 px.
        let norm = 2.0 * 52.0_f64.sqrt();
        // The depth is 2.
        for (fade_depth, fade) in
            [(0.0, 1.0), (1.9, 1.0), (2.0, 1.0), (4.0, 0.25), (16.0, 0.015625)]
        {
            let observed = |statistics| observed(statistics, fade_depth);
            assert_eq!(observed(Statistics::Norms), (vec![0.0, fade * norm], vec![]));
            assert_eq!(observed(Statistics::AbsoluteNorms), (vec![0.0, fade * 52.0], vec![]));
            let both = (vec![0.0, fade * norm], vec![0.0, fade * 68.0]);
            assert_eq!(observed(Statistics::Both), both);
            // 2 · 1/2 in an image of 8 px. The depth has no effect: it is no gradient of a centre.
            assert_eq!(observed(Statistics::Disagreement), (vec![0.0, 64.0], vec![]));
        }
    }

    #[test]
    fn pixels_that_pull_an_opacity_both_ways_disagree() {
        let gradient = |shares: [f64; 4], pixels: f64| ScreenGradient::<f64> {
            // The opacity is 1/2, so the gradient of its logarithm is half as large.
            d_opacity: 2.0 * shares.iter().sum::<f64>(),
            squares: shares.iter().map(|share| share * share).sum(),
            pixels,
            ..ScreenGradient::default()
        };
        assert_eq!(disagreement(&gradient([0.5, -0.5, 0.5, -0.5], 4.0), 0.5, 1.0), 1.0);
        assert_eq!(disagreement(&gradient([0.5; 4], 4.0), 0.5, 1.0), 0.0);
        // By definition, with a mean of 1/4.
        assert_eq!(disagreement(&gradient([1.0, 0.0, 0.0, 0.0], 4.0), 0.5, 1.0), 0.75);
        // The loss is a sum over pixels: the image size has no effect.
        let small = disagreement(&gradient([0.5, -0.5, 0.25, 0.0], 4.0), 0.5, 8.0);
        let large = disagreement(&gradient([0.25, -0.25, 0.125, 0.0], 4.0), 0.5, 16.0);
        assert_eq!(small, large);
        // Each pixel of a half-size view stands for four.
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
        // With weights 1, 2 and 5 the chances to come first are 1/8, 2/8 and 5/8.
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
    fn prune_removes_unseen_rows_but_no_new_ones() {
        let rows = [(0.05, 0.9), (0.05, 0.1), (0.5, 0.9)];
        for (unseen, survivors) in
            [(true, vec![0.0, 1.0, 2.0, 0.0, 2.0]), (false, vec![0.0, 2.0, 0.0, 2.0])]
        {
            let mut model = model(&rows);
            model.views_seen[1] = 0;
            let selected = select(&model, &scored(&model), ALL).unwrap();
            edit(&mut model, &selected, &Grow::Copy, &Keep { unseen, ..KEEP });
            assert_eq!(firsts(&model), survivors);
        }
    }

    #[test]
    fn opacities_decay_by_a_factor_to_a_floor_and_lower_ones_stay() {
        let mut model = model(&[(0.05, 0.0); 3]);
        let logits = [0.5, 0.012, 0.004].map(|opacity: f32| inverse_sigmoid(opacity));
        model.column_mut(Parameter::OpacityLogits).values.copy_from_slice(&logits);
        decay_opacity(&mut model, 0.5, 0.01);
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
    fn kept_parent_does_not_change_beside_its_child() {
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
        let ratio =
            model.triple(Parameter::LogScales, 0)[0] - model.triple(Parameter::LogScales, 2)[0];
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

        // Clones keep the order of their originals; the second child of row 1 is in between.
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
        // New Gaussians, including both children of the split, start with zero moments.
        assert_eq!((moments(1), moments(5), moments(6)), ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)));
    }

    #[test]
    fn densify_reserves_exact_memory() {
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
        // Four standard errors of the variance of 4,000 normal draws. The short axes are not tested: coordinates up to
        // 2,000 round by as much as the offset.
        assert!((squares[0] - 1.0).abs() < 4.0 * (2.0_f64 / 4000.0).sqrt(), "{squares:?}");
        // The two children are drawn independently.
        assert_ne!(
            model.triple(Parameter::Means, 0)[1..],
            model.triple(Parameter::Means, 2000)[1..]
        );
    }

    #[test]
    fn limited_densify_takes_the_highest_gradients() {
        let rows = [(0.05, 0.6), (0.5, 0.8), (0.05, 0.7), (0.05, 0.9), (0.05, 0.1)];
        let mut model = model(&rows);
        let done = densify(&mut model, &KEEP, 2);
        assert_eq!(done, Edited { copied: 1, split: 1, ..Edited::default() });
        assert_eq!(model.len(), 7);
        assert_eq!(model.row(Parameter::Means, 6)[0], 3.0);
        assert_eq!(densify(&mut model, &KEEP, 0), Edited::default());
    }

    #[test]
    fn copy_clones_large_ones_and_stale_candidates_fail() {
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
    fn quantiles_match_a_sort_with_nan_last() {
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
        assert_eq!(firsts(&model), [0.0, 3.0]);
        assert_eq!(model.row(Parameter::ShRest, 1)[0], 3.5);
        assert_eq!(model.column(Parameter::ShRest).first_moments.len(), 18);
    }

    #[test]
    fn reset_lowers_high_opacities_and_zeros_their_moments() {
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

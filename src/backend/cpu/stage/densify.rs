//! Stage `densify`: adaptive density control (Kerbl et al. 2023, section 5).

#[cfg(test)]
mod tests;

use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::cpu::splat::Splat;
use crate::backend::{
    Candidates, DeviceError, Drawing, Edited, GradientRule, Grow, Keep, ScoreRule, Statistics,
};
use crate::math::blend::ScreenGradient;
use crate::math::linalg::{Vec3, add, mul, rotation};
use crate::math::quantile::{between, place};
use crate::math::random::RandomStream;
use crate::math::{Real, inverse_sigmoid, sigmoid};
use crate::model::Primitive;

/// Whether a candidate's scale is within the rule's bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

/// A Gaussian that may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growing {
    pub(crate) row: usize,
    pub(crate) size: Size,
}

/// Share of its gradient that a splat at this depth tells (Pixel-GS, Zhang et al. 2024).
fn faded<R: Real>(depth: R, fade_depth: R) -> R {
    if fade_depth <= R::ZERO {
        return R::ONE;
    }
    let share = (depth / fade_depth).min(R::ONE);
    share * share
}

/// How much the pixels of a view disagree about the opacity: with g what each gives to the gradient of its
/// logarithm, the sum over them of (g - mean g)², of a loss that is summed over `area` pixels, not averaged.
fn disagreement<R: Real>(gradient: &ScreenGradient<R>, opacity: R, area: R) -> R {
    let sum = gradient.d_opacity * opacity * area;
    let squares = gradient.squares * area * area;
    (squares - sum * sum / gradient.pixels).max(R::ZERO)
}

/// A number whose order draws rows without replacement in proportion to their weights, when those with the
/// highest numbers are taken (Efraimidis and Spirakis 2006): the weight by a number that is distributed
/// exponentially.
fn drawn<R: Real>(weight: R, stream: RandomStream, row: usize) -> R {
    let exponential = -(1.0 - stream.uniform(row as u64)).ln();
    R::of(weight.to_f64() / exponential)
}

/// Adds one view to the statistics where it is observed: the norm of the centre's gradient, half the
/// image being 1, or what the statistics ask for.
pub(crate) fn observe<R: Real, P: Primitive>(
    model: &mut Model<R, P>,
    splats: &[Splat<R>],
    screen: &[ScreenGradient<R>],
    size: [u32; 2],
    settings: &Drawing,
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
                // A pixel of a smaller view is a square of the photograph's, and counts as often: times the
                // square of what is put to the area.
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

/// Finds what makes a candidate, and counts the candidates.
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

/// So many of the candidates, those with the highest scores, in the order of their rows.
pub(crate) fn select<R: Real>(
    model: &Model<R>,
    candidates: &Candidates,
    births: usize,
) -> Result<Vec<Growing>, DeviceError> {
    let gradient = candidates.rule.by_gradient().ok_or(DeviceError::UnsuitedEdit)?;
    let counted = candidates.count();
    if births.min(counted) == 0 {
        return Ok(Vec::new());
    }
    let thresholds = Thresholds::known(&gradient, candidates.absolute_min);
    let mut selected = self::candidates(model, &thresholds);
    if selected.len() != counted {
        return Err(DeviceError::StaleCandidates { counted, found: selected.len() });
    }
    if selected.len() > births {
        // A stable sort: equal scores keep the order of the Gaussians.
        selected.sort_by(|a, b| {
            let (a, b) = (thresholds.score(model, a.row), thresholds.score(model, b.row));
            b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
        });
        selected.truncate(births);
        selected.sort_by_key(|growing| growing.row);
    }
    Ok(selected)
}

/// Grows the selected rows, removes what is not to be kept, forgets the statistics. Says, too, which rows were
/// kept: of those before, and of one that each of the selected has added.
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

/// Removes all rows but these, forgets the statistics.
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

/// Lowers every opacity to at most `ceiling` and forgets the opacities' moments.
pub(crate) fn reset_opacity<R: Real>(model: &mut Model<R>, ceiling: f64) {
    let ceiling = inverse_sigmoid(R::of(ceiling));
    let column = model.column_mut(Parameter::OpacityLogits);
    for logit in &mut column.values {
        *logit = logit.min(ceiling);
    }
    model.forget_moments(Parameter::OpacityLogits as usize);
}

/// Multiplies every opacity by a factor, but not to below a floor, and forgets all moments.
pub(crate) fn fade_opacity<R: Real>(model: &mut Model<R>, factor: f64, floor: f64) {
    let (factor, floor) = (R::of(factor), R::of(floor));
    let column = model.column_mut(Parameter::OpacityLogits);
    for logit in &mut column.values {
        let faded = (factor * sigmoid(*logit)).max(floor);
        *logit = logit.min(inverse_sigmoid(faded));
    }
    model.forget_all_moments();
}

/// The Gaussians that should grow, in the order of their indices.
fn candidates<R: Real>(model: &Model<R>, thresholds: &Thresholds<R>) -> Vec<Growing> {
    (0..model.len())
        .filter(|&row| thresholds.admit(model, row))
        .map(|row| {
            let small = largest_scale(model, row) <= thresholds.small_max;
            Growing { row, size: if small { Size::Small } else { Size::Large } }
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
    /// Largest scale of a small one.
    small_max: R,
    /// What candidates are drawn by, where they are not ranked.
    drawn_by: Option<RandomStream>,
}

impl<R: Real> Thresholds<R> {
    fn new(model: &Model<R>, rule: &GradientRule) -> Self {
        let gradient = R::of(rule.min);
        // Before any view was observed there are no absolute gradients.
        let counts = rule.with_quantile && !model.absolute_norm_sums.is_empty();
        let absolute = counts.then(|| {
            let above = (0..model.len()).filter(|&i| mean_gradient(model, i) >= gradient).count();
            quantile((0..model.len()).map(|index| mean_absolute(model, index)).collect(), above)
        });
        Self { absolute, ..Self::known(rule, None) }
    }

    /// Those that candidates were found by.
    fn known(rule: &GradientRule, absolute_min: Option<f64>) -> Self {
        let absolute = absolute_min.map(R::of);
        Self {
            gradient: R::of(rule.min),
            absolute,
            small_max: R::of(rule.small_max),
            drawn_by: rule.drawn_by.map(RandomStream::of_key),
        }
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
fn split<R: Real>(model: &mut Model<R>, parent: usize, shrink: f64, stream: RandomStream) {
    let children = [0, 1].map(|child| Child::of(model, parent, child, shrink, stream));
    model.append_copy(parent);
    for (child, row) in children.iter().zip([parent, model.len() - 1]) {
        child.place(model, row);
    }
    model.forget_row(parent);
}

/// The second of these children, beside the parent, which stays as it is.
fn add_child<R: Real>(model: &mut Model<R>, parent: usize, shrink: f64, stream: RandomStream) {
    let child = Child::of(model, parent, 1, shrink, stream);
    model.append_copy(parent);
    child.place(model, model.len() - 1);
}

/// Where a child lies, and how large it is.
struct Child<R> {
    mean_world: Vec3<R>,
    log_scale: Vec3<R>,
}

impl<R: Real> Child<R> {
    /// The child of this number, drawn where its parent's density is.
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

/// Removes what is transparent or too large, newborn Gaussians included, and of the first rows, those before the
/// round, what no view has seen; the order is kept. Says which were kept.
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

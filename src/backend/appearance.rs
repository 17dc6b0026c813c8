//! Tables that model the colour changes of the training views' cameras, learned beside the model.

use crate::math::Real;
use crate::math::adam::{AdamCoefficients, BETA_1, BETA_2, Moments, bias_corrections};
use crate::math::appearance::{AFFINE_WIDTH, GRID_WIDTH, IDENTITY};

/// A map that changes the colours of a view before they are compared with the photograph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compensation {
    /// One affine map of colours: the exposure compensation of 3D Gaussian splatting.
    Exposure,
    /// A bilateral grid of affine maps (Wang et al. 2024).
    BilateralGrid,
}

impl Compensation {
    /// Returns the number of values in a view's table.
    pub fn width(self) -> usize {
        match self {
            Self::Exposure => AFFINE_WIDTH,
            Self::BilateralGrid => GRID_WIDTH,
        }
    }
}

/// The tables of all training views on the host, in the precision of the computation.
#[derive(Clone, Debug, PartialEq)]
pub struct AppearanceTables<R = f32> {
    /// Kind of the maps.
    pub kind: Compensation,
    /// Number of the last step of each view's table; `[views]`.
    pub steps: Vec<u32>,
    /// The maps, [views, [`Compensation::width`]].
    pub values: Vec<R>,
    /// Adam's running means of their gradients, before bias correction.
    pub first_moments: Vec<R>,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: Vec<R>,
}

impl<R: Copy> AppearanceTables<R> {
    /// Converts to another precision.
    pub(super) fn cast<T>(&self, convert: impl Fn(R) -> T) -> AppearanceTables<T> {
        let column = |values: &[R]| values.iter().map(|&value| convert(value)).collect();
        AppearanceTables {
            kind: self.kind,
            steps: self.steps.clone(),
            values: column(&self.values),
            first_moments: column(&self.first_moments),
            second_moments: column(&self.second_moments),
        }
    }
}

impl AppearanceTables {
    /// Creates tables of `views` views that change nothing.
    pub fn identity(kind: Compensation, views: usize) -> Self {
        let len = views * kind.width();
        Self {
            kind,
            steps: vec![0; views],
            values: IDENTITY.iter().copied().cycle().take(len).collect(),
            first_moments: vec![0.0; len],
            second_moments: vec![0.0; len],
        }
    }

    /// Copies the table of a view from `other`, which is of the same kind.
    pub fn take_view(&mut self, view: usize, other: &Self, others_view: usize) {
        let width = self.kind.width();
        let (to, from) = (view * width..(view + 1) * width, others_view * width);
        let from = from..from + width;
        self.steps[view] = other.steps[others_view];
        self.values[to.clone()].copy_from_slice(&other.values[from.clone()]);
        self.first_moments[to.clone()].copy_from_slice(&other.first_moments[from.clone()]);
        self.second_moments[to].copy_from_slice(&other.second_moments[from]);
    }
}

/// Schedule of the tables' Adam. The rate rises linearly from a hundredth during the warm-up and falls log-linearly
/// over the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppearanceRule {
    /// Learning rate at the start, before the factor of the warm-up.
    pub rate_init: f64,
    /// Learning rate at the end.
    pub rate_final: f64,
    /// Iterations of the run.
    pub iterations: u32,
    /// Iterations of the warm-up.
    pub warm_up: u32,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight of the grid's total variation in the loss. Only bilateral grids use it.
    pub total_variation: f64,
}

/// Factor of the learning rate at the start of the warm-up.
const WARM_UP_START: f64 = 0.01;

impl AppearanceRule {
    /// Returns the learning rate of an iteration, from 1.
    pub fn rate(&self, iteration: u32) -> f64 {
        let passed = |of: u32| (f64::from(iteration) / f64::from(of.max(1))).min(1.0);
        let warmth = if self.warm_up == 0 {
            1.0
        } else {
            WARM_UP_START + (1.0 - WARM_UP_START) * passed(self.warm_up)
        };
        let t = passed(self.iterations);
        let (first, last) = (self.rate_init, self.rate_final);
        let rate = if first > 0.0 && last > 0.0 {
            (first.ln() * (1.0 - t) + last.ln() * t).exp()
        } else {
            first * (1.0 - t) + last * t
        };
        warmth * rate
    }
}

/// One step of the table of the view that an iteration trains on.
#[derive(Clone, Copy, Debug)]
pub struct TableStep {
    /// Index of the view among the training views.
    pub view: usize,
    /// Number of the iteration, from 1.
    pub number: u32,
    /// Schedule of the learning rate.
    pub rule: AppearanceRule,
}

impl TableStep {
    /// Returns the coefficients of a step with a gradient.
    pub(super) fn coefficients<R: Real>(&self) -> AdamCoefficients<R> {
        let moments = Moments { epsilon: self.rule.epsilon, ..Moments::of_step(self.number) };
        AdamCoefficients::new(&moments, self.rule.rate(self.number))
    }
}

/// Effect of the steps without a gradient on a table. As in dense Adam, tables move by their momentum while other
/// views train; the moves are applied when their own view comes again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LazyTableStep<R> {
    /// Move of a value in units of its first moment over the root of its second.
    pub(super) drift: R,
    /// Factor of the first moment.
    pub(super) decay_1: R,
    /// Factor of the second moment.
    pub(super) decay_2: R,
    pub(super) epsilon: R,
}

/// Steps after which a momentum is negligible: 0.9³⁰⁰ is 2e-14.
const MOMENTUM_ENDS: u32 = 300;

impl<R: Real> LazyTableStep<R> {
    /// Combines the steps after `done` up to and including `last`. Returns `None` if there is none.
    pub(super) fn new(rule: &AppearanceRule, done: u32, last: u32) -> Option<Self> {
        if last <= done {
            return None;
        }
        let mut drift = 0.0;
        for missed in 1..=(last - done).min(MOMENTUM_ENDS) {
            let number = done + missed;
            let [first_correction, second_correction] = bias_corrections(number);
            let power = f64::from(missed);
            let shrunk = (BETA_1 / BETA_2.sqrt()).powf(power);
            drift += rule.rate(number) * shrunk * second_correction.sqrt() / first_correction;
        }
        let missed = f64::from(last - done);
        Some(Self {
            drift: R::of(drift),
            decay_1: R::of(BETA_1.powf(missed)),
            decay_2: R::of(BETA_2.powf(missed)),
            epsilon: R::of(rule.epsilon),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::assert_near;

    const RULE: AppearanceRule = AppearanceRule {
        rate_init: 2e-3,
        rate_final: 2e-5,
        iterations: 30_000,
        warm_up: 1000,
        epsilon: 1e-15,
        total_variation: 10.0,
    };

    #[test]
    fn rates_warm_up_and_fall_log_linearly() {
        // Rounding of exp(ln(x)).
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12);
        for (iteration, expected) in [
            (0, 2e-5),
            (500, 2e-3 * 0.505 * 0.01_f64.powf(1.0 / 60.0)),
            (15_000, 2e-4),
            (30_000, 2e-5),
            (60_000, 2e-5),
        ] {
            near(RULE.rate(iteration), expected);
        }
        near(AppearanceRule { warm_up: 0, ..RULE }.rate(0), 2e-3);
        let frozen = AppearanceRule { rate_init: 0.0, rate_final: 0.0, ..RULE };
        assert_eq!(frozen.rate(7), 0.0);
    }

    /// Takes steps of dense Adam without a gradient, one by one.
    fn dense(mut table: [f64; 3], rule: &AppearanceRule, done: u32, last: u32) -> [f64; 3] {
        for number in done + 1..=last {
            let [value, first, second] = &mut table;
            (*first, *second) = (*first * BETA_1, *second * BETA_2);
            let [first_correction, second_correction] = bias_corrections(number);
            let root = (*second / second_correction).sqrt();
            *value -= rule.rate(number) * (*first / first_correction) / (root + rule.epsilon);
        }
        table
    }

    #[test]
    fn a_lazy_table_step_equals_dense_adam() {
        for (done, last) in [(1, 2), (3, 50), (700, 745), (990, 1400), (20_000, 20_500)] {
            let (value, first, second) = (0.25, -3e-4, 5e-7);
            let lazy_step = LazyTableStep::<f64>::new(&RULE, done, last).unwrap();
            let moved = value - lazy_step.drift * first / (second.sqrt() + lazy_step.epsilon);
            let found = [moved, first * lazy_step.decay_1, second * lazy_step.decay_2];
            let expected = dense([value, first, second], &RULE, done, last);
            for (found, expected) in found.into_iter().zip(expected) {
                // Rounding over up to 500 steps; epsilon is 1e-12 of the root.
                assert_near(found / expected, 1.0, 1e-9, (done, last));
            }
        }
        assert_eq!(LazyTableStep::<f64>::new(&RULE, 7, 7), None);
        assert_eq!(LazyTableStep::<f64>::new(&RULE, 7, 0), None);
    }
}

//! What the cameras of the training views did to their colours, learned beside the model.

use super::frame_state::{Compensated, Drawn, Scored, Shown};
use super::{DeviceError, Render};
use crate::math::Real;
use crate::math::adam::{BETA_1, BETA_2, bias_corrections};
use crate::math::appearance::{AFFINE_WIDTH, GRID_WIDTH, IDENTITY};
use crate::model::Primitive;

/// What changes the colours of a view before they are compared with its photograph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compensation {
    /// One affine map of colours, as 3D Gaussian splatting's exposure compensation has it.
    Exposure,
    /// A bilateral grid of such maps (Wang et al. 2024).
    BilateralGrid,
}

impl Compensation {
    /// Values of a view's table.
    pub fn width(self) -> usize {
        match self {
            Self::Exposure => AFFINE_WIDTH,
            Self::BilateralGrid => GRID_WIDTH,
        }
    }
}

/// The tables of all training views on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct AppearanceTables {
    /// What they hold.
    pub kind: Compensation,
    /// Steps of the run that each view's table has taken; `[views]`.
    pub steps: Vec<u32>,
    /// The maps, [views, [`Compensation::width`]].
    pub values: Vec<f32>,
    /// Adam's running means of their gradients, before bias correction.
    pub first_moments: Vec<f32>,
    /// Adam's running means of the squared gradients, before bias correction.
    pub second_moments: Vec<f32>,
}

impl AppearanceTables {
    /// Tables of so many views that change nothing.
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

    /// Takes over another's table of a view. Both are of one kind.
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

/// How tables learn: by Adam, at a rate that rises linearly from a hundredth during the warm-up and
/// falls log-linearly over the run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppearanceRule {
    /// Learning rate at the start, but for the warm-up.
    pub rate_init: f64,
    /// The same at the end.
    pub rate_final: f64,
    /// Iterations of the run.
    pub iterations: u32,
    /// Iterations of the warm-up.
    pub warm_up: u32,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Weight of the grid's total variation in the loss; of bilateral grids only.
    pub total_variation: f64,
}

/// Share of the learning rate that a warm-up begins with.
const COLD: f64 = 0.01;

impl AppearanceRule {
    /// Learning rate of an iteration, from 1.
    pub fn rate(&self, iteration: u32) -> f64 {
        let passed = |of: u32| (f64::from(iteration) / f64::from(of.max(1))).min(1.0);
        let warmth =
            if self.warm_up == 0 { 1.0 } else { COLD + (1.0 - COLD) * passed(self.warm_up) };
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
    /// The view, by its place among those trained on.
    pub view: usize,
    /// Number of the iteration, from 1.
    pub number: u32,
    /// How tables learn.
    pub rule: AppearanceRule,
}

/// Devices that learn what cameras did to the colours of their photographs.
pub trait Appearance<P: Primitive>: Render<P> {
    /// What changes the colours of the training views, with its moments.
    type Tables;

    /// Puts the tables of the training views on the device.
    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<Self::Tables, DeviceError>;

    /// The tables as they are now.
    fn read_tables(&mut self, tables: &Self::Tables) -> Result<AppearanceTables, DeviceError>;

    /// Changes a frame's colours as the view's camera changed them, beside those drawn. The view's
    /// table first catches up on the steps since it moved last: by its momentum, as in dense Adam.
    ///
    /// The frame was drawn with [`super::Wants::compensation`], or it is
    /// [`DeviceError::NoRoomForColors`].
    fn compensate(
        &mut self,
        tables: &mut Self::Tables,
        frame: Self::Frame<Drawn>,
        step: &TableStep,
    ) -> Result<Self::Frame<Compensated>, DeviceError>;

    /// Moves the table of the frame's view, and no other, down the gradient, and turns the gradient
    /// that the frame holds into that of what was drawn. A table moves once in an iteration.
    fn learn(
        &mut self,
        tables: &mut Self::Tables,
        frame: Self::Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Self::Frame<Scored<Drawn>>, DeviceError>;

    /// Changes the colours by which a frame is measured: clamped to 0..1 and mapped by the affine map
    /// that brings them nearest to the photograph's by least squares. Masked pixels do not count.
    ///
    /// The frame was drawn with [`super::Look::corrects_colors`], or it is
    /// [`DeviceError::NoRoomForColors`].
    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError>;
}

/// What steps without a gradient do to a table. As in dense Adam, tables move on by their momentum in
/// the iterations that train on other views; they do so when their own view comes again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LazyTableStep<R> {
    /// By how much a value moves, in units of its first moment over the root of its second.
    pub(super) drift: R,
    /// What becomes of the first moment.
    pub(super) decay_1: R,
    /// What becomes of the second moment.
    pub(super) decay_2: R,
    pub(super) epsilon: R,
}

/// Steps after which nothing is left of a momentum: 0.9³⁰⁰ is 2e-14.
const MOMENTUM_ENDS: u32 = 300;

impl<R: Real> LazyTableStep<R> {
    /// From behind step `done` up to and with step `last`; nothing where there is none.
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

/// What a step with a gradient takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stride<R> {
    /// Learning rate over the first moment's bias correction.
    pub(super) rate: R,
    /// 1 / √(bias correction of the second moment).
    pub(super) inverse_root_correction: R,
    pub(super) beta_1: R,
    pub(super) beta_2: R,
    pub(super) one_less_beta_1: R,
    pub(super) one_less_beta_2: R,
    pub(super) epsilon: R,
}

impl<R: Real> Stride<R> {
    pub(super) fn new(step: &TableStep) -> Self {
        let [first_correction, second_correction] = bias_corrections(step.number);
        Self {
            rate: R::of(step.rule.rate(step.number) / first_correction),
            inverse_root_correction: R::of(1.0 / second_correction.sqrt()),
            beta_1: R::of(BETA_1),
            beta_2: R::of(BETA_2),
            // In double precision: 1 - 0.999 in single precision is 1e-5 of itself off.
            one_less_beta_1: R::of(1.0 - BETA_1),
            one_less_beta_2: R::of(1.0 - BETA_2),
            epsilon: R::of(step.rule.epsilon),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        near(RULE.rate(0), 2e-5);
        near(RULE.rate(500), 2e-3 * 0.505 * 0.01_f64.powf(1.0 / 60.0));
        near(RULE.rate(15_000), 2e-4);
        near(RULE.rate(30_000), 2e-5);
        near(RULE.rate(60_000), 2e-5);
        near(AppearanceRule { warm_up: 0, ..RULE }.rate(0), 2e-3);
        let frozen = AppearanceRule { rate_init: 0.0, rate_final: 0.0, ..RULE };
        assert_eq!(frozen.rate(7), 0.0);
    }

    /// Steps of dense Adam without a gradient, one by one.
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
    fn a_table_that_catches_up_is_where_dense_adam_would_have_it() {
        for (done, last) in [(1, 2), (3, 50), (700, 745), (990, 1400), (20_000, 20_500)] {
            let (value, first, second) = (0.25, -3e-4, 5e-7);
            let lazy_step = LazyTableStep::<f64>::new(&RULE, done, last).unwrap();
            let moved = value - lazy_step.drift * first / (second.sqrt() + lazy_step.epsilon);
            let found = [moved, first * lazy_step.decay_1, second * lazy_step.decay_2];
            let expected = dense([value, first, second], &RULE, done, last);
            for (found, expected) in found.into_iter().zip(expected) {
                // Rounding over up to 500 steps; epsilon is 1e-12 of the root.
                assert!(
                    (found / expected - 1.0).abs() < 1e-9,
                    "{done} to {last}: {found} {expected}"
                );
            }
        }
        assert_eq!(LazyTableStep::<f64>::new(&RULE, 7, 7), None);
        assert_eq!(LazyTableStep::<f64>::new(&RULE, 7, 0), None);
    }
}

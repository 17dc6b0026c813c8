//! Adam on one value.

use crate::layout::Rate;
use crate::math::Real;
use crate::math::adam::Moments;
use crate::math::compact::{HALF_MAX, HELD_UNIT, held_quotient};

/// What Adam needs besides gradient and moments.
#[derive(Clone, Copy)]
pub(super) struct Constants<R> {
    beta_1: R,
    beta_2: R,
    one_less_beta_1: R,
    one_less_beta_2: R,
    /// Learning rate over the first moment's bias correction.
    rate: R,
    /// 1 / √(bias correction of the second moment).
    inverse_root_correction: R,
    epsilon: R,
}

impl<R: Real> Constants<R> {
    pub(super) fn new(moments: &Moments, rate: f64) -> Self {
        let Moments { betas, corrections: [first_correction, second_correction], epsilon } =
            *moments;
        let [beta_1, beta_2] = betas.map(R::of);
        // In double precision: 1 - 0.999 in single precision is 1e-5 of itself off.
        let [one_less_beta_1, one_less_beta_2] = betas.map(|beta| R::of(1.0 - beta));
        Self {
            beta_1,
            beta_2,
            one_less_beta_1,
            one_less_beta_2,
            rate: R::of(rate / first_correction),
            inverse_root_correction: R::of(1.0 / second_correction.sqrt()),
            epsilon: R::of(epsilon),
        }
    }

    /// Those of a row whose centre's rate is multiplied by `factor`.
    pub(super) fn of_row(self, rate: Rate, factor: Option<&R>) -> Self {
        match factor {
            Some(&factor) if rate == Rate::Means => Self { rate: self.rate * factor, ..self },
            _ => self,
        }
    }

    /// value -= rate · m̂ / (√v̂ + ε), with the bias-corrected moments m̂ and v̂.
    pub(super) fn apply(&self, value: &mut R, first: &mut R, second: &mut R, d: R) {
        *first = self.beta_1 * *first + self.one_less_beta_1 * d;
        *second = self.beta_2 * *second + self.one_less_beta_2 * d * d;
        let root = second.sqrt() * self.inverse_root_correction;
        *value -= self.rate * *first / (root + self.epsilon);
    }

    /// The same of a value that is going to be kept in 16 bits, whose moments were in 8: the quotient is held
    /// to what gradients can make it, and what is too large becomes infinite.
    pub(super) fn apply_held(&self, value: &mut R, first: &mut R, second: &mut R, d: R) {
        *first = self.beta_1 * *first + self.one_less_beta_1 * d;
        *second = self.beta_2 * *second + self.one_less_beta_2 * d * d;
        let unit = R::of_f32(HELD_UNIT) / self.inverse_root_correction;
        *value -= self.rate * unit * held_quotient(*first, *second);
        if value.abs() > R::of_f32(HALF_MAX) {
            *value = *value / R::ZERO;
        }
    }
}

//! The learning rate of a centre as a function of the size of its Gaussian.
//!
//! Adam moves every centre by about its learning rate, whatever its gradient: of a Gaussian as large as a
//! wall that is next to nothing, of one as small as a pixel it is far. A rate that grows with the size lets
//! the former arrive and the latter rest.

use serde::{Deserialize, Serialize};

use super::Real;
use super::linalg::Vec3;

/// Greatest factor of a rate; the least is its inverse.
pub const MOST: f64 = 10.0;

/// How the rates of centres follow sizes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct RateBySize {
    /// Exponent of the size.
    pub exponent: f64,
    /// Size of the Gaussians whose rate stays as it is, world units.
    pub unit: f64,
}

impl RateBySize {
    /// Factor of the rate of a Gaussian with these log-scales: (s / `unit`)^`exponent`, at most [`MOST`] and at
    /// least its inverse, with the geometric mean s of its two largest scales. The smallest says nothing of
    /// how far a disc may be moved, and a surfel has none.
    pub fn factor<R: Real>(&self, log_scale: Vec3<R>) -> R {
        let [x, y, z] = log_scale;
        let smallest = x.min(y).min(z);
        let log_size = R::of(0.5) * (x + y + z - smallest);
        let log_most = R::of(MOST.ln());
        let log_factor = R::of(self.exponent).mul_add(log_size, R::of(self.offset()));
        log_factor.min(log_most).max(-log_most).exp()
    }

    /// Logarithm of the factor of a Gaussian of size 1.
    pub fn offset(&self) -> f64 {
        -self.exponent * self.unit.ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: RateBySize = RateBySize { exponent: 0.5, unit: 0.02 };

    fn factor(scales: [f64; 3]) -> f64 {
        ROOT.factor(scales.map(f64::ln))
    }

    #[test]
    fn a_gaussian_of_the_unit_keeps_its_rate_and_larger_ones_have_more() {
        for (scales, expected) in [
            ([0.02; 3], 1.0),
            ([0.08; 3], 2.0),
            ([0.005; 3], 0.5),
            ([0.01, 0.04, 0.02], 2f64.sqrt().sqrt()),
        ] {
            // Rounding of logarithms and of a power.
            assert!((factor(scales) / expected - 1.0).abs() < 1e-12, "{scales:?}");
        }
    }

    #[test]
    fn the_smallest_scale_says_nothing() {
        for smallest in [1e-9, 1e-3, 0.019] {
            assert!((factor([0.02, smallest, 0.02]) - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn factors_are_held_between_a_tenth_and_ten() {
        assert!((factor([1e9; 3]) / MOST - 1.0).abs() < 1e-12);
        assert!((factor([1e-9; 3]) * MOST - 1.0).abs() < 1e-12);
        let none = RateBySize { exponent: 0.0, unit: 0.02 };
        assert_eq!(none.factor([1.0_f32, -2.0, 3.0]), 1.0);
    }
}

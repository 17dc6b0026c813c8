//! Adam (Kingma and Ba 2015), shared by all backends.

use serde::{Deserialize, Serialize};

use super::compact::{HALF_MAX, HELD_UNIT, held_quotient};
use super::linalg::{Vec3, cross, dot, sub};
use super::{Real, inverse_sigmoid, sigmoid, sigmoid_bwd};

/// Decay of the running mean of the gradient.
pub const BETA_1: f64 = 0.9;

/// Decay of the running mean of the squared gradient.
pub const BETA_2: f64 = 0.999;

/// Added to the root of the second moment; prevents a division by zero.
pub const EPSILON: f64 = 1e-15;

/// Returns the bias corrections 1 - β^number of both moments after step `number` (from 1).
pub fn bias_corrections(number: u32) -> [f64; 2] {
    let power = i32::try_from(number).unwrap_or(i32::MAX);
    [BETA_1, BETA_2].map(|beta| 1.0 - beta.powi(power))
}

/// Coefficients of one step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Moments {
    /// Decays of the first and of the second moment.
    pub betas: [f64; 2],
    /// Divisors of both moments (bias correction).
    pub corrections: [f64; 2],
    /// Added to the root of the second moment.
    pub epsilon: f64,
}

impl Moments {
    /// Returns the coefficients of step `number` (from 1).
    pub fn of_step(number: u32) -> Self {
        let corrections = bias_corrections(number);
        Self { betas: [BETA_1, BETA_2], corrections, epsilon: EPSILON }
    }

    /// Returns the coefficients of a step along the mean gradient of `views` images, after `images` images in all.
    ///
    /// The moments decay as in `views` steps of one image. The rates grow by [`batch_rate`] (Grendel, Zhao et al.
    /// 2025, section 4.2).
    pub fn of_batch(images: u32, views: u32) -> Self {
        let one = Self::of_step(images);
        let power = i32::try_from(views).unwrap_or(i32::MAX);
        Self {
            betas: one.betas.map(|beta| beta.powi(power)),
            epsilon: one.epsilon / f64::from(views).sqrt(),
            ..one
        }
    }
}

/// [`Moments`] with one learning rate, in the precision of the computation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamCoefficients<R> {
    pub(crate) beta_1: R,
    pub(crate) beta_2: R,
    pub(crate) one_less_beta_1: R,
    pub(crate) one_less_beta_2: R,
    /// Learning rate over the first moment's bias correction.
    pub(crate) rate: R,
    /// 1 / √(bias correction of the second moment).
    pub(crate) inverse_root_correction: R,
    pub(crate) epsilon: R,
}

impl<R: Real> AdamCoefficients<R> {
    pub(crate) fn new(moments: &Moments, rate: f64) -> Self {
        let Moments { betas, corrections: [first_correction, second_correction], epsilon } =
            *moments;
        let [beta_1, beta_2] = betas.map(R::of);
        // In single precision, 1 - 0.999 has a relative error of 1e-5.
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

    /// Updates one value: value -= rate · m̂ / (√v̂ + ε), with the bias-corrected moments m̂ and v̂.
    pub(crate) fn apply(&self, value: &mut R, first: &mut R, second: &mut R, d: R) {
        *first = self.beta_1 * *first + self.one_less_beta_1 * d;
        *second = self.beta_2 * *second + self.one_less_beta_2 * d * d;
        let root = second.sqrt() * self.inverse_root_correction;
        *value -= self.rate * *first / (root + self.epsilon);
    }

    /// Updates a value that is stored in 16 bits with 8-bit moments. The quotient is clamped to what gradients can
    /// produce; a value that overflows becomes infinite.
    pub(crate) fn apply_held(&self, value: &mut R, first: &mut R, second: &mut R, d: R) {
        *first = self.beta_1 * *first + self.one_less_beta_1 * d;
        *second = self.beta_2 * *second + self.one_less_beta_2 * d * d;
        let unit = R::of_f32(HELD_UNIT) / self.inverse_root_correction;
        *value -= self.rate * unit * held_quotient(*first, *second);
        if value.abs() > R::of_f32(HALF_MAX) {
            *value = *value / R::ZERO;
        }
    }
}

/// Returns the factor of the learning rates for a batch of `views` images.
pub fn batch_rate(views: u32) -> f64 {
    f64::from(views).sqrt()
}

// The learning rate of a centre as a function of the size of its Gaussian.
//
// Adam moves every centre by about its learning rate, whatever its gradient. That is little for a Gaussian as large
// as a wall and far for a Gaussian as small as a pixel.

/// Largest factor of a rate; the smallest is its inverse.
pub const MOST: f64 = 10.0;

/// Power law of a centre's learning rate over the size of its Gaussian.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct RateBySize {
    /// Exponent of the size.
    pub exponent: f64,
    /// Size at which the factor is 1, world units.
    pub unit: f64,
}

impl RateBySize {
    /// Returns (s / `unit`)^`exponent` with s the geometric mean of the two largest scales, held to 1 / [`MOST`] to
    /// [`MOST`]. The smallest scale does not limit how far a disc can move, and a surfel has none.
    pub fn factor<R: Real>(&self, log_scale: Vec3<R>) -> R {
        let [x, y, z] = log_scale;
        let smallest = x.min(y).min(z);
        let log_size = R::of(0.5) * (x + y + z - smallest);
        let log_most = R::of(MOST.ln());
        let log_factor = R::of(self.exponent).mul_add(log_size, R::of(self.offset()));
        log_factor.min(log_most).max(-log_most).exp()
    }

    /// Returns the logarithm of the factor at size 1.
    pub fn offset(&self) -> f64 {
        -self.exponent * self.unit.ln()
    }
}

// Size of the triangles at a vertex, for rates of vertices.

/// Smallest mean area, world units squared.
const AREA_MIN: f64 = 1e-20;

/// Returns the logarithm of each vertex's size: the root of the mean area of its triangles. A vertex without
/// triangles gets 0.
pub fn log_sizes<R: Real>(
    rows: usize,
    faces: &[[u32; 3]],
    place: impl Fn(usize) -> Vec3<R>,
) -> Vec<R> {
    let mut sums = vec![(R::ZERO, R::ZERO); rows];
    for face in faces {
        let area = area(face.map(|row| place(row as usize)));
        for &row in face {
            let (sum, count) = &mut sums[row as usize];
            *sum += area;
            *count += R::ONE;
        }
    }
    sums.into_iter().map(|(sum, count)| log_size(sum, count)).collect()
}

fn log_size<R: Real>(sum: R, count: R) -> R {
    let is_used = count > R::ZERO;
    if is_used { R::HALF * (sum / count).max(R::of(AREA_MIN)).ln() } else { R::ZERO }
}

/// Returns the area of a triangle, world units squared.
fn area<R: Real>([a, b, c]: [Vec3<R>; 3]) -> R {
    let normal = cross(sub(b, a), sub(c, a));
    R::HALF * dot(normal, normal).sqrt()
}

// Opacities above a floor (MeshSplatting, Held et al. 2025): floor + (1 - floor) sigmoid(logit).

/// Smallest and, from 1, largest share between floor and 1 that has a logit.
const SHARE_MIN: f64 = 1e-6;

/// Returns the opacity of a logit above a floor.
pub fn floored<R: Real>(logit: R, floor: R) -> R {
    floor + (R::ONE - floor) * sigmoid(logit)
}

/// Returns `d_logit` of [`floored`].
pub fn floored_bwd<R: Real>(logit: R, floor: R, d_opacity: R) -> R {
    sigmoid_bwd(sigmoid(logit), d_opacity * (R::ONE - floor))
}

/// Returns the logit of the mean of two opacities, which is independent of the floor.
pub fn mean_logit<R: Real>(logits: [R; 2]) -> R {
    let share = (sigmoid(logits[0]) + sigmoid(logits[1])) * R::HALF;
    inverse_sigmoid(share.max(R::of(SHARE_MIN)).min(R::of(1.0 - SHARE_MIN)))
}

/// Returns the logit of an opacity after its floor rises. Opacities below the new floor rise to just above it.
pub fn raised_logit<R: Real>(logit: R, before: R, after: R) -> R {
    let least = R::of(SHARE_MIN);
    let opacity = floored(logit, before).max(after + least).min(R::ONE - least);
    inverse_sigmoid((opacity - after) / (R::ONE - after + least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, central};

    #[test]
    fn batch_of_one_equals_a_step() {
        for images in [1, 2, 999, 30_000] {
            assert_eq!(Moments::of_batch(images, 1), Moments::of_step(images));
        }
        assert_eq!(batch_rate(1), 1.0);
    }

    #[test]
    fn moments_of_a_constant_gradient_are_independent_of_batch_size() {
        let after = |views: u32| {
            let (mut first, mut second, mut images) = (0.0, 0.0, 0);
            while images < 24 {
                images += views;
                let Moments { betas: [beta_1, beta_2], .. } = Moments::of_batch(images, views);
                first = beta_1 * first + (1.0 - beta_1) * 0.3;
                second = beta_2 * second + (1.0 - beta_2) * 0.09;
            }
            let [one, two] = Moments::of_batch(images, views).corrections;
            [first / one, second / two]
        };
        for views in [1, 2, 3, 4, 6, 8] {
            // Rounding of a few dozen operations.
            for (found, expected) in after(views).into_iter().zip([0.3, 0.09]) {
                assert_near(found, expected, 1e-14, views);
            }
        }
    }

    #[test]
    fn rate_grows_with_the_two_largest_scales_within_bounds() {
        for (scales, expected) in [
            ([0.02; 3], 1.0),
            ([0.08; 3], 2.0),
            ([0.005; 3], 0.5),
            ([0.01, 0.04, 0.02], 2f64.sqrt().sqrt()),
            ([0.02, 1e-9, 0.02], 1.0),
            ([0.02, 1e-3, 0.02], 1.0),
            ([0.02, 0.019, 0.02], 1.0),
            ([1e9; 3], MOST),
            ([1e-9; 3], 1.0 / MOST),
        ] {
            let by_root = RateBySize { exponent: 0.5, unit: 0.02 };
            // Rounding of logarithms and of a power.
            assert_near(by_root.factor(scales.map(f64::ln)) / expected, 1.0, 1e-12, scales);
        }
        let none = RateBySize { exponent: 0.0, unit: 0.02 };
        assert_eq!(none.factor([1.0_f32, -2.0, 3.0]), 1.0);
    }

    #[test]
    fn vertex_size_is_the_root_of_the_mean_triangle_area() {
        let places: [Vec3<f64>; 6] =
            [[0.0; 3], [2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [2.0, 16.0, 0.0], [5.0; 3], [5.0; 3]];
        // Areas of 4 and 16.
        let faces = [[0, 1, 2], [0, 3, 1], [4, 4, 4]];
        let sizes = log_sizes(6, &faces, |row| places[row]);
        let expected = [10.0, 10.0, 4.0, 16.0, AREA_MIN, 1.0].map(|area: f64| 0.5 * area.ln());
        for (row, (found, expected)) in sizes.into_iter().zip(expected).enumerate() {
            assert_near(found, expected, 1e-12, row);
        }
    }

    #[test]
    fn raised_logit_keeps_opacities_above_the_floor() {
        for (logit, before, after) in [(0.3, 0.0, 0.1), (2.0, 0.1, 0.4), (4.0, 0.5, 0.9)] {
            let raised: f64 = raised_logit(logit, before, after);
            assert_near(floored(raised, after), floored(logit, before), 2e-6, logit);
        }
        assert_near(floored(raised_logit(-3.0, 0.0, 0.2), 0.2), 0.2, 2e-6, "below the floor");
        // Saturated opacities have finite logits.
        for logit in [-200.0, 200.0] {
            assert!(raised_logit::<f64>(logit, 0.99, 0.9999).is_finite());
            assert!(raised_logit::<f64>(logit, 0.9999, 0.9999).is_finite());
        }
    }

    #[test]
    fn mean_logit_is_independent_of_the_floor() {
        for floor in [0.0, 0.3, 0.9999] {
            let mean = floored(mean_logit([-1.0, 2.0]), floor);
            let expected: f64 = 0.5 * (floored(-1.0, floor) + floored(2.0, floor));
            assert_near(mean, expected, 1e-15, floor);
        }
        assert!(mean_logit([200.0_f32, 300.0]).is_finite());
    }

    #[test]
    fn gradient_matches_finite_differences() {
        let (logit, floor) = (0.7, 0.3);
        let expected = 2.0 * central(1e-5, |h| floored(logit + h, floor));
        assert_near(floored_bwd(logit, floor, 2.0), expected, 1e-9, "logit");
    }
}

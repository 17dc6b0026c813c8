//! Depth distortion (2D Gaussian splatting, Huang et al. 2024, equation 13): the spread along a ray of the splats
//! that a pixel blends.
//!
//! It is the sum of `w_i w_j (m_i - m_j)²` over all pairs j < i, with weights w and depths z mapped to m = f / (f -
//! n) (1 - n / z), which is 0 at the depth n and 1 at f. As m is affine in 1 / z, the sum is c² (A `I_2` - `I_1`²)
//! with c = f n / (f - n), A the sum of the weights, `I_1` the sum of w / z and `I_2` the sum of w / z². Three sums
//! per ray are enough.

use super::Real;

/// Depth that is mapped to 0, world units along the view axis, as in the authors' program.
pub const NEAR: f64 = 0.2;

/// Depth that is mapped to 1, world units.
pub const FAR: f64 = 100.0;

/// Factor c between inverse and mapped depths, world units.
const FALL: f64 = FAR * NEAR / (FAR - NEAR);

/// Sums over the splats of a pixel's ray.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaySums<R> {
    /// Sum of the weights: the pixel's opacity.
    pub opacity: R,
    /// Sum of the weights over the depths, per world unit.
    pub inverse_depth: R,
    /// Sum of the weights over the squared depths.
    pub inverse_square: R,
}

/// Returns the distortion, in squared mapped depths; 0 if all splats have one depth.
#[inline]
pub fn distortion<R: Real>(sums: RaySums<R>) -> R {
    let RaySums { opacity, inverse_depth, inverse_square } = sums;
    R::of(FALL * FALL) * (opacity * inverse_square - inverse_depth * inverse_depth)
}

/// Returns the gradients of [`distortion`].
#[inline]
pub fn distortion_bwd<R: Real>(sums: RaySums<R>, d_distortion: R) -> RaySums<R> {
    let d = R::of(FALL * FALL) * d_distortion;
    RaySums {
        opacity: d * sums.inverse_square,
        inverse_depth: -(d * (sums.inverse_depth + sums.inverse_depth)),
        inverse_square: d * sums.opacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, central};
    use crate::math::random::{RandomStream, RandomUse};

    /// Returns weights and depths of a ray, front to back. The weights add up to at most 1.
    fn ray(stream: u64, count: u64) -> Vec<[f64; 2]> {
        let stream = RandomStream::new(3, stream, RandomUse::Sample);
        let mut left = 1.0;
        let stopped = |i: u64| {
            let weight = left * 0.6 * stream.uniform(2 * i);
            left -= weight;
            [weight, 0.3 + 8.0 * stream.uniform(2 * i + 1)]
        };
        (0..count).map(stopped).collect()
    }

    fn sums(ray: &[[f64; 2]]) -> RaySums<f64> {
        let sum = |of: fn(f64) -> f64| ray.iter().map(|&[weight, depth]| weight * of(depth)).sum();
        RaySums {
            opacity: sum(|_| 1.0),
            inverse_depth: sum(|depth| 1.0 / depth),
            inverse_square: sum(|depth| 1.0 / (depth * depth)),
        }
    }

    #[test]
    fn distortion_is_the_sum_over_all_pairs() {
        let mapped = |depth: f64| FAR / (FAR - NEAR) * (1.0 - NEAR / depth);
        assert!(mapped(NEAR).abs() < 1e-15 && (mapped(FAR) - 1.0).abs() < 1e-15);
        for count in [0, 1, 2, 5, 40] {
            let ray = ray(count, count);
            let mut expected = 0.0;
            for (i, &[weight, depth]) in ray.iter().enumerate() {
                for &[before, nearer] in &ray[..i] {
                    expected += weight * before * (mapped(depth) - mapped(nearer)).powi(2);
                }
            }
            let found = distortion(sums(&ray));
            // Rounding of sums of about ten numbers below 4.
            assert_near(found, expected, 1e-15, count);
            assert!(count < 2 || found > 1e-5, "{count}: {found} says nothing");
        }
    }

    #[test]
    fn equal_depths_have_no_distortion() {
        for depth in [0.1, 0.2, 3.0, 500.0] {
            let ray = [0.3, 0.2, 0.4].map(|weight| [weight, depth]);
            let scale = (FALL / depth).powi(2);
            assert!(distortion(sums(&ray)).abs() < 1e-15 * scale, "{depth}");
        }
    }

    type Sum = fn(&mut RaySums<f64>) -> &mut f64;

    #[test]
    fn gradient_matches_finite_differences() {
        let at = sums(&ray(9, 7));
        let d = distortion_bwd(at, 0.7);
        let moved: [(f64, Sum); 3] = [
            (d.opacity, |sums| &mut sums.opacity),
            (d.inverse_depth, |sums| &mut sums.inverse_depth),
            (d.inverse_square, |sums| &mut sums.inverse_square),
        ];
        for (found, of) in moved {
            // Central differences of a polynomial of degree 2 are exact except for rounding.
            let expected = central(1e-3, |step| {
                let mut sums = at;
                *of(&mut sums) += step;
                0.7 * distortion(sums)
            });
            assert_near(found, expected, 1e-12, found);
            assert!(found.abs() > 1e-3, "{found} says nothing");
        }
    }
}

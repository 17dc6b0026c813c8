//! Density control by Markov chain Monte Carlo (Kheradmand et al. 2024, "3D Gaussian Splatting as Markov Chain Monte
//! Carlo"): draws of Gaussians to copy, and the values of the copies.
//!
//! Everything is in double precision and drawn in integers, so that all devices draw the same Gaussians.

use super::linalg::{Vec3, mul, mul_transposed, rotation};
use super::random::RandomStream;
use super::splat::Shape;
use super::{Real, inverse_sigmoid, sigmoid};

/// Largest number of Gaussians that share one Gaussian.
pub const SHARES_MAX: u32 = 51;

/// Largest opacity in computations: 1 minus single precision's epsilon, as in gsplat.
pub const OPACITY_MAX: f64 = 1.0 - 1.0 / (1 << 23) as f64;

/// Weight of an opacity of 1 in a draw.
const WEIGHT_OF_ONE: f64 = 65_536.0;

/// True if the opacity is not above `opacity_min`, or NaN.
pub fn is_dead(logit: f64, opacity_min: f64) -> bool {
    let alive = sigmoid(logit) > opacity_min;
    !alive
}

/// Returns a Gaussian's weight in a draw: its opacity in 65,536ths, 0 for NaN.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from 0 to 65,536, and NaN becomes 0"
)]
pub fn weight(logit: f64) -> u64 {
    (sigmoid(logit) * WEIGHT_OF_ONE) as u64
}

/// Maps 64 random bits to an index below `total`, which must not be 0. The bias is below `total / 2^64`.
pub fn place(bits: u64, total: u64) -> u64 {
    let scaled = (u128::from(bits) * u128::from(total)) >> 64;
    u64::try_from(scaled).unwrap_or(0)
}

/// Values of each Gaussian among those that replace one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpacityShare {
    /// Opacity logit.
    pub logit: f64,
    /// Summand of the log-scales.
    pub log_growth: f64,
}

/// Returns the values of a Gaussian and its `copies`, which together look like the original (equation 9): with n
/// Gaussians, o' = 1 - (1 - o)^(1/n), and scales change by o / Σ C(n, k) (-1)^(k-1) o'^k / √k over k from 1 to n (the
/// paper's double sum with its inner binomials added up). The opacity is then held to at least `opacity_min`.
pub fn share(logit: f64, copies: u32, opacity_min: f64) -> OpacityShare {
    let shares = copies.saturating_add(1).min(SHARES_MAX);
    let n = f64::from(shares);
    let whole = sigmoid(logit).min(OPACITY_MAX);
    let part = -((-whole).ln_1p() / n).exp_m1();
    let (mut term, mut sum) = (-1.0, 0.0);
    for k in 1..=shares {
        let k = f64::from(k);
        term *= -part * ((n - k + 1.0) / k);
        sum += term / k.sqrt();
    }
    let held = part.max(opacity_min).min(OPACITY_MAX);
    OpacityShare { logit: inverse_sigmoid(held), log_growth: (whole / sum).ln() }
}

// Random motion of nearly transparent Gaussians (Kheradmand et al. 2024, section 4.1).

/// Steepness of the sigmoid that ends the motion as opacity grows, and the opacity at its middle.
const STEEPNESS: f64 = 100.0;

const OPACITY_MOVED: f64 = 0.005;

/// Returns three independent standard normal numbers by the Box-Muller transform in single precision, as on a device.
pub fn standard_normals(stream: RandomStream, index: u64) -> Vec3<f32> {
    let [x, y] = pair(stream.bits(2 * index));
    [x, y, pair(stream.bits(2 * index + 1))[0]]
}

/// Returns two of them from 64 random bits.
#[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
fn pair(bits: u64) -> [f32; 2] {
    // 2^-32, without rounding.
    const UNIT: f32 = f32::EPSILON * f32::EPSILON * 16_384.0;
    // Above 0, because the logarithm of 0 is infinite.
    let first = ((bits >> 32) as u32 as f32 + 0.5) * UNIT;
    let second = bits as u32 as f32 * UNIT;
    let radius = (-2.0 * first.ln()).sqrt();
    let (sin, cos) = (std::f32::consts::TAU * second).sin_cos();
    [radius * cos, radius * sin]
}

/// Returns the random offset of a Gaussian in units of the motion's rate: sigmoid(-100 (opacity - 0.005)) Σ n, with Σ
/// the covariance of the raw scales.
pub fn jitter<R: Real>(shape: &Shape<R>, opacity: R, normals: Vec3<f32>) -> Vec3<R> {
    let gate = sigmoid(-R::of(STEEPNESS) * (opacity - R::of(OPACITY_MOVED)));
    let turn = rotation(shape.quat);
    let along = mul_transposed(&turn, normals.map(R::of_f32));
    let scaled: Vec3<R> = std::array::from_fn(|axis| {
        let scale = shape.log_scale[axis].exp();
        scale * scale * along[axis]
    });
    mul(&turn, scaled).map(|offset| gate * offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::RandomUse;

    #[test]
    fn share_matches_equation_9() {
        for (whole, copies) in [(0.3_f64, 1_u32), (0.9, 2), (0.02, 7), (0.7, 20)] {
            let n = copies + 1;
            let part = 1.0 - (1.0 - whole).powf(1.0 / f64::from(n));
            let mut sum = 0.0;
            for i in 1..=n {
                let mut binomial = 1.0;
                for k in 0..i {
                    let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
                    let k_f = f64::from(k);
                    sum += binomial * sign * part.powf(k_f + 1.0) / (k_f + 1.0).sqrt();
                    binomial *= f64::from(i - 1 - k) / (k_f + 1.0);
                }
            }
            let found = share(inverse_sigmoid(whole), copies, 0.0);
            assert!((sigmoid(found.logit) - part).abs() < 1e-12);
            // Terms of up to a thousand cancel.
            assert!((found.log_growth - (whole / sum).ln()).abs() < 1e-10, "{whole} {copies}");
        }
    }

    #[test]
    fn shares_together_cover_as_much_as_the_original() {
        for whole in [0.006, 0.1, 0.5, 0.95, OPACITY_MAX] {
            for copies in [1, 2, 5, 20, 50] {
                let found = share(inverse_sigmoid(whole), copies, 0.0);
                let (part, n) = (sigmoid(found.logit), f64::from(copies + 1));
                // Along an axis, in units of the new scale: 800 steps of a smooth function.
                let covered: f64 = (-400..=400)
                    .map(|i| f64::from(i) / 40.0)
                    .map(|x: f64| 1.0 - (1.0 - part * (-0.5 * x * x).exp()).powf(n))
                    .sum::<f64>()
                    / 40.0;
                let before = whole * std::f64::consts::TAU.sqrt();
                let ratio = covered * found.log_growth.exp() / before;
                assert!((ratio - 1.0).abs() < 1e-6, "{whole} {copies}: {ratio}");
            }
        }
    }

    #[test]
    fn shares_stay_within_their_bounds() {
        let least = share(inverse_sigmoid(0.006), 50, 0.005);
        assert!((sigmoid(least.logit) - 0.005).abs() < 1e-15);
        assert_eq!(share(1.0, 50, 0.005), share(1.0, 5000, 0.005), "51 shares at most");
        for extreme in [-700.0, -20.0, 40.0, 800.0] {
            let share = share(extreme, 3, 0.005);
            assert!(share.logit.is_finite() && share.log_growth.is_finite(), "{extreme}");
        }
    }

    #[test]
    fn weights_are_opacities_and_nan_is_dead() {
        assert_eq!(
            [weight(0.0), weight(800.0), weight(-800.0), weight(f64::NAN)],
            [32_768, 65_536, 0, 0]
        );
        assert!(is_dead(f64::NAN, 0.005) && is_dead(inverse_sigmoid(0.005) - 1e-9, 0.005));
        assert!(!is_dead(inverse_sigmoid(0.005) + 1e-9, 0.005));
        assert_eq!([place(0, 7), place(u64::MAX, 7), place(1 << 63, 7)], [0, 6, 3]);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one_and_are_independent() {
        let stream = RandomStream::new(5, 9, RandomUse::Noise);
        let n = 100_000;
        let draws: Vec<Vec3<f32>> = (0..n).map(|i| standard_normals(stream, i)).collect();
        let mean = |of: &dyn Fn(&Vec3<f32>) -> f32| {
            draws.iter().map(|draw| f64::from(of(draw))).sum::<f64>() / n as f64
        };
        for a in 0..3 {
            // Four standard errors: 4/√n of a mean and of a product, 4·√(2/n) of a variance.
            assert!(mean(&|draw| draw[a]).abs() < 0.013, "axis {a}");
            for b in 0..3 {
                let expected = if a == b { 1.0 } else { 0.0 };
                assert!((mean(&|draw| draw[a] * draw[b]) - expected).abs() < 0.018, "{a} {b}");
            }
        }
        // Bits for which a logarithm could fail.
        for bits in [0, u64::MAX, 0xffff_ffff, 0xffff_ffff_0000_0000] {
            assert!(pair(bits).iter().all(|v| v.is_finite() && v.abs() < 7.0), "{bits}");
        }
    }

    #[test]
    fn noise_moves_only_transparent_gaussians() {
        let half = std::f64::consts::FRAC_1_SQRT_2;
        let shape = Shape {
            mean_world: [0.0; 3],
            log_scale: [0.5_f64.ln(), 0.1_f64.ln(), 0.01_f64.ln()],
            // A quarter turn about z: the first axis becomes y, the second -x.
            quat: [half, 0.0, 0.0, half],
            smoothing: 0.3,
        };
        let found = jitter(&shape, 0.005, [-1.0, 2.0, 3.0]);
        for (found, expected) in found.into_iter().zip([-0.5 * 0.01, 0.5 * 0.5, 1.5e-4]) {
            assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        }
        // A factor of e^-9.5 remains at an opacity of 0.1.
        assert!(jitter(&shape, 0.1, [1.0; 3]).iter().all(|v| v.abs() < 2e-5));
    }
}

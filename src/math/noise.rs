//! Random motion of Gaussians that are nearly transparent (Kheradmand et al. 2024, section 4.1).

use super::linalg::{Vec3, mul, mul_transposed, rotation};
use super::random::RandomStream;
use super::splat::Shape;
use super::{Real, sigmoid};

/// How sharply motion ends as opacity grows, and where.
const STEEPNESS: f64 = 100.0;
const OPACITY_MOVED: f64 = 0.005;

/// Three independent standard normal numbers, by Box and Muller's transform in single precision, as
/// a device draws them.
pub fn standard_normals(stream: RandomStream, index: u64) -> Vec3<f32> {
    let [x, y] = pair(stream.bits(2 * index));
    [x, y, pair(stream.bits(2 * index + 1))[0]]
}

/// Two of them, of 64 random bits.
#[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
fn pair(bits: u64) -> [f32; 2] {
    // 2^-32, without rounding.
    const UNIT: f32 = f32::EPSILON * f32::EPSILON * 16_384.0;
    // Never 0, whose logarithm is infinite.
    let first = ((bits >> 32) as u32 as f32 + 0.5) * UNIT;
    let second = bits as u32 as f32 * UNIT;
    let radius = (-2.0 * first.ln()).sqrt();
    let (sin, cos) = (std::f32::consts::TAU * second).sin_cos();
    [radius * cos, radius * sin]
}

/// By how much a Gaussian of this shape and opacity moves, in units of the motion's rate:
/// sigmoid(-100 (opacity - 0.005)) Σ n, Σ of its raw scales.
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
        // The bits at which a logarithm could fail.
        for bits in [0, u64::MAX, 0xffff_ffff, 0xffff_ffff_0000_0000] {
            assert!(pair(bits).iter().all(|v| v.is_finite() && v.abs() < 7.0), "{bits}");
        }
    }

    #[test]
    fn noise_moves_transparent_gaussians_along_their_axes_and_no_opaque_one() {
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
        // e^-9.5 of it is left at an opacity of 0.1.
        assert!(jitter(&shape, 0.1, [1.0; 3]).iter().all(|v| v.abs() < 2e-5));
    }
}

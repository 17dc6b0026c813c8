//! Where a ray meets the surface at which the density of Gaussians passes a level (SuGaR: Guédon and
//! Lepetit 2024, section 4.2).

use super::Real;
use super::field::{DensityKernel, DensityKernelGradient, density, density_bwd};
use super::linalg::{Vec3, add, dot, length, mul_transposed, normalize, scale, sub};

/// Samples along a ray.
pub const RAY_SAMPLES: usize = 21;

/// How far they reach to each side, in standard deviations of the front Gaussian along the ray.
pub const RAY_REACH: f64 = 3.0;

/// The least slope of the density, over the front Gaussian's standard deviation, that has a direction.
const SLOPE_MIN: f64 = 1e-8;

/// A point of a level set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelPoint<R> {
    /// Offset from the place that the ray's samples lie around, world units.
    pub offset: Vec3<R>,
    /// Unit normal, world space, towards lower densities: outwards.
    pub normal: Vec3<R>,
}

/// Standard deviation of a Gaussian along a unit direction of the world: |S Rᵀ d|, world units.
pub fn deviation_along<R: Real>(kernel: &DensityKernel<R>, direction: Vec3<R>) -> R {
    let turned = mul_transposed(&kernel.axes, direction);
    length([0, 1, 2].map(|axis| kernel.scale[axis] * turned[axis]))
}

/// min(1, Σ o e^(-q/2)) at an offset from the centres' common place; `from[k]` is that place seen from the
/// centre of Gaussian k.
pub fn density_of<R: Real>(kernels: &[DensityKernel<R>], from: &[Vec3<R>], offset: Vec3<R>) -> R {
    let sum: R = kernels.iter().zip(from).map(|(k, &f)| density(k, add(f, offset)).1).sum();
    sum.min(R::ONE)
}

/// The Gaussian that adds most to the density at the place; the first where none adds any.
pub fn front<R: Real>(kernels: &[DensityKernel<R>], from: &[Vec3<R>]) -> usize {
    let mut best = (0, R::ZERO);
    for (index, (kernel, &offset)) in kernels.iter().zip(from).enumerate() {
        let (_, here) = density(kernel, offset);
        if here > best.1 {
            best = (index, here);
        }
    }
    best.0
}

/// The first point of a ray at which the density of these Gaussians rises above a level.
///
/// The ray passes a place along the unit `direction`, away from the camera; `from[k]` is that place
/// seen from the centre of Gaussian k, world units, and `deviation` how far the samples are spread. There
/// is none where the density is not below the level at the first sample, or above it at no other. Between
/// two samples the density is taken as linear. Normals that look away from the camera are turned over.
pub fn level_point<R: Real>(
    kernels: &[DensityKernel<R>],
    from: &[Vec3<R>],
    direction: Vec3<R>,
    deviation: R,
    level: R,
) -> Option<LevelPoint<R>> {
    let reach = R::of(RAY_REACH) * deviation;
    let step = R::of(2.0) * reach / R::of((RAY_SAMPLES - 1) as f64);
    let along = |index: usize| R::of(index as f64) * step - reach;
    let sampled = |t: R| density_of(kernels, from, scale(direction, t));
    let mut before = sampled(along(0));
    if before >= level {
        return None;
    }
    for index in 1..RAY_SAMPLES {
        let here = sampled(along(index));
        if here > level {
            let share = (level - before) / (here - before);
            let offset = scale(direction, along(index - 1) + share * step);
            let normal = outward(kernels, from, offset, direction, deviation)?;
            return Some(LevelPoint { offset, normal });
        }
        before = here;
    }
    None
}

/// The unit direction of falling density at an offset; none where it does not fall.
fn outward<R: Real>(
    kernels: &[DensityKernel<R>],
    from: &[Vec3<R>],
    offset: Vec3<R>,
    direction: Vec3<R>,
    deviation: R,
) -> Option<Vec3<R>> {
    let mut slope = [R::ZERO; 3];
    for (kernel, &from) in kernels.iter().zip(from) {
        let place = add(from, offset);
        let (whitened, here) = density(kernel, place);
        let ignored = &mut DensityKernelGradient::default();
        slope = sub(slope, density_bwd(kernel, place, whitened, here, R::ONE, ignored));
    }
    // NaN has no direction either.
    let has_direction = length(slope) * deviation >= R::of(SLOPE_MIN);
    if !has_direction {
        return None;
    }
    let normal = normalize(slope);
    let faces_away = dot(normal, direction) > R::ZERO;
    Some(if faces_away { scale(normal, -R::ONE) } else { normal })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::splat::Shape;

    fn ball(centre: Vec3<f64>, deviation: f64, opacity: f64) -> DensityKernel<f64> {
        let shape = Shape {
            mean_world: centre,
            log_scale: [deviation.ln(); 3],
            quat: [1.0, 0.0, 0.0, 0.0],
            smoothing: 0.0,
        };
        DensityKernel::new(&shape, (opacity / (1.0 - opacity)).ln())
    }

    #[test]
    fn a_gaussians_level_set_is_where_its_density_is_the_level() {
        // o e^(-t²/2s²) = L at t = s √(2 ln(o/L)).
        for (opacity, level) in [(0.9, 0.3), (0.6, 0.3), (0.99, 0.1), (0.8, 0.5)] {
            let kernel = ball([0.0; 3], 0.2, opacity);
            let found = level_point(&[kernel], &[[0.0; 3]], [0.0, 0.0, 1.0], 0.2, level).unwrap();
            let exact = -0.2 * (2.0_f64 * (opacity / level).ln()).sqrt();
            // The density is not linear between samples of 0.3 standard deviations: one of a hundred.
            assert!((found.offset[2] - exact).abs() < 0.01 * 0.2, "{found:?} {exact}");
            assert!((found.normal[2] + 1.0).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn a_ray_that_starts_inside_or_stays_outside_has_no_point() {
        let kernel = ball([0.0; 3], 0.2, 0.9);
        let at =
            |from: Vec3<f64>, level| level_point(&[kernel], &[from], [0.0, 0.0, 1.0], 0.2, level);
        assert_eq!(at([0.0, 0.0, 0.6], 0.3), None);
        assert_eq!(at([0.5, 0.0, 0.0], 0.3), None);
        assert_eq!(at([0.0; 3], 0.95), None);
        assert!(at([0.1, 0.0, 0.0], 0.3).is_some());
    }

    #[test]
    fn a_flat_gaussian_has_its_plane_as_level_set() {
        let shape = Shape {
            mean_world: [1.0, 2.0, 3.0],
            log_scale: [0.5_f64.ln(), 0.5_f64.ln(), 0.01_f64.ln()],
            quat: [1.0, 0.3, 0.0, 0.0],
            smoothing: 0.0,
        };
        let kernel = DensityKernel::new(&shape, 3.0);
        let direction = normalize([0.2, 0.3, 1.0]);
        let deviation = deviation_along(&kernel, direction);
        let found = level_point(&[kernel], &[[0.0; 3]], direction, deviation, 0.3).unwrap();
        let facing = dot(found.normal, kernel.normal()).abs();
        // The level set of so flat a Gaussian is as flat: a thickness of a fiftieth of its width.
        assert!(facing > 0.999 && dot(found.normal, direction) < 0.0, "{found:?} {facing}");
        assert_eq!(front(&[ball([0.0; 3], 0.1, 0.5), kernel], &[[1.0, 0.0, 0.0], [0.0; 3]]), 1);
    }
}

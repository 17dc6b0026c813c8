//! How much light passes Gaussians along a ray, and the depth by which half of it is stopped
//! (Geometry-Grounded Gaussian Splatting, arXiv:2601.17835).
//!
//! A Gaussian is a solid that is there by chance: light on its way to a place passes it with the
//! probability T = √(1 - G) up to its peak on the ray, G being its opacity times its falloff, and
//! T = (1 - Ĝ) / √(1 - G) behind the peak, where it is Ĝ. Far behind that is 1 - Ĝ, as when blending.
//! So T falls along the ray without a jump, for one Gaussian and for the product over all. The depth
//! at which the product is one half is the ray's median depth.
//!
//! All is in camera axes; a ray is given by its slopes x/z and y/z, and places on it by their depth z.

use super::blend::{ALPHA_MAX, ALPHA_MIN};
use super::linalg::{Mat3, Vec3, add, dot, mat_mul, mul, rotation, scale, sub, transpose};
use super::splat::{Shape, Viewpoint};
use super::widening::smoothed;
use super::{Real, field, sigmoid};

/// Depths at which the transmittance is looked at in a round of the search.
pub const ABSCISSAE: usize = 16;

/// Rounds of the search that leave a fifteenth of the interval each.
pub const NARROWINGS: u32 = 2;

/// Rounds in which an interval that does not hold the median is moved.
pub const MOVES: u32 = 4;

/// Steps of Newton's method after the search.
pub const NEWTON_STEPS: u32 = 2;

/// How far about a Gaussian's peak the search begins and ends, in its standard deviations on the ray.
pub const REACH: f64 = 3.0;

/// The search begins about the Gaussian that takes what passes below this, in the order of the centres.
pub const FROM: f64 = 0.9;

/// It ends about the one that takes it below this, or else the last.
pub const TO: f64 = 0.1;

/// Least slope of the logarithm at the median, per share of its depth: below, the place is arbitrary.
pub const SLOPE_MIN: f64 = 1e-4;

/// A Gaussian as the rays of a view meet it.
#[derive(Clone, Copy, Debug)]
pub struct RayGaussian<R> {
    /// Centre in camera axes.
    pub mean_cam: Vec3<R>,
    /// From offsets in camera axes to standard deviations: S⁻¹ Rᵀ.
    pub whitening: Mat3<R>,
    /// Opacity, of which the 3D filter leaves a share. The screen's filter has no part in it.
    pub opacity: R,
}

/// A Gaussian along one ray.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OnRay<R> {
    /// Depth of its peak, world units.
    pub depth: R,
    /// Inverse variance along the ray, per squared world unit of depth.
    pub sharpness: R,
    /// Opacity at the peak.
    pub peak: R,
}

impl<R: Real> RayGaussian<R> {
    /// From raw parameters.
    pub fn new(view: &Viewpoint<R>, shape: &Shape<R>, opacity_logit: R) -> Self {
        let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
        let axes = transpose(&mat_mul(&view.rotation, &rotation(shape.quat)));
        let (wide, kept) = smoothed(shape.log_scale.map(Real::exp), shape.smoothing);
        let over = |axis: usize| R::ONE / wide[axis].max(R::of(field::SCALE_MIN));
        let whitening = [0, 1, 2].map(|axis| scale(axes[axis], over(axis)));
        Self { mean_cam, whitening, opacity: sigmoid(opacity_logit) * kept }
    }

    /// Along the ray of these slopes.
    ///
    /// Measured from the centre's depth, where the ray is near the centre: from the camera, single
    /// precision would lose the Gaussian's thickness among the digits of its distance.
    #[inline]
    pub fn on_ray(&self, [x, y]: [R; 2]) -> OnRay<R> {
        let depth = self.mean_cam[2];
        let direction = [x, y, R::ONE];
        let from = mul(&self.whitening, sub(scale(direction, depth), self.mean_cam));
        let along = mul(&self.whitening, direction);
        let sharpness = dot(along, along);
        let behind = -dot(from, along) / sharpness;
        let nearest = add(from, scale(along, behind));
        let peak = self.opacity * (-R::HALF * dot(nearest, nearest)).exp();
        OnRay { depth: depth + behind, sharpness, peak }
    }
}

impl<R: Real> OnRay<R> {
    /// Whether the ray meets it at all, as in blending.
    #[inline]
    pub fn is_met(&self) -> bool {
        self.peak >= R::of(ALPHA_MIN)
    }

    /// What passes all of it.
    #[inline]
    pub fn passed(&self) -> R {
        R::ONE - self.peak.min(R::of(ALPHA_MAX))
    }

    /// Opacity at a depth, before it is held below 1.
    #[inline]
    fn opacity(&self, depth: R) -> R {
        let offset = depth - self.depth;
        self.peak * (-R::HALF * self.sharpness * offset * offset).exp()
    }

    /// T² at a depth: of a product of these no logarithm is needed until the end.
    #[inline]
    pub fn squared_transmittance(&self, depth: R) -> R {
        let here = R::ONE - self.opacity(depth).min(R::of(ALPHA_MAX));
        if depth <= self.depth {
            return here;
        }
        let passed = self.passed();
        passed * (passed / here)
    }

    /// ln T at a depth.
    pub fn log_transmittance(&self, depth: R) -> R {
        R::HALF * self.squared_transmittance(depth).ln()
    }

    /// The derivative of [`Self::log_transmittance`] by the depth, never above 0; 0 where the opacity is
    /// held below 1.
    #[inline]
    pub fn log_slope(&self, depth: R) -> R {
        let opacity = self.opacity(depth);
        if opacity >= R::of(ALPHA_MAX) {
            return R::ZERO;
        }
        let offset = (depth - self.depth).abs();
        -R::HALF * opacity * self.sharpness * offset / (R::ONE - opacity)
    }
}

/// The depth at which half of the light has been stopped by the Gaussians that a ray meets, which come
/// in the order of their centres' depths.
///
/// None where more than half passes all of them, or where it falls so slowly that the depth is arbitrary.
pub fn median_depth<R: Real>(met: &[OnRay<R>]) -> Option<R> {
    let mut interval = first_interval(met)?;
    let mut narrowings = 0;
    for _ in 0..NARROWINGS + MOVES {
        interval = match narrowed(met, interval) {
            Ok(narrower) => {
                narrowings += 1;
                narrower
            }
            Err(moved) => moved,
        };
        if narrowings == NARROWINGS {
            return polished(met, interval);
        }
    }
    None
}

/// Where the search begins: about the Gaussians at which most and little of the light is left.
fn first_interval<R: Real>(met: &[OnRay<R>]) -> Option<[R; 2]> {
    let [from, to] = [FROM, TO].map(R::of);
    let mut left = R::ONE;
    let mut interval: Option<[R; 2]> = None;
    for on_ray in met {
        let before = left;
        left = left * on_ray.passed();
        let reach = R::of(REACH) / on_ray.sharpness.sqrt();
        if left < from && before >= to {
            let end = on_ray.depth + reach;
            interval = Some(match interval {
                Some([low, high]) => [low, high.max(end)],
                None => [on_ray.depth - reach, end],
            });
        }
    }
    interval.filter(|_| left < R::HALF)
}

/// The part of an interval in which the transmittance falls to one half, or else the interval beside it
/// that may hold the place.
fn narrowed<R: Real>(met: &[OnRay<R>], [low, high]: [R; 2]) -> Result<[R; 2], [R; 2]> {
    let width = high - low;
    let step = width / R::of((ABSCISSAE - 1) as f64);
    let at = |index: usize| low + R::of(index as f64) * step;
    let mut squared = [R::ONE; ABSCISSAE];
    for on_ray in met {
        for (index, product) in squared.iter_mut().enumerate() {
            *product = *product * on_ray.squared_transmittance(at(index));
        }
    }
    let quarter = R::HALF * R::HALF;
    match squared.iter().position(|&product| product <= quarter) {
        Some(0) => Err([low - R::TWO * width, low]),
        Some(index) => Ok([at(index - 1), at(index)]),
        None => Err([high, high + R::TWO * width]),
    }
}

/// The median in a narrow interval, by Newton's method.
fn polished<R: Real>(met: &[OnRay<R>], [low, high]: [R; 2]) -> Option<R> {
    let mut depth = R::HALF * (low + high);
    let mut slope = R::ZERO;
    for _ in 0..NEWTON_STEPS {
        let mut squared = R::ONE;
        slope = R::ZERO;
        for on_ray in met {
            squared = squared * on_ray.squared_transmittance(depth);
            slope += on_ray.log_slope(depth);
        }
        let excess = R::HALF * (R::TWO * R::TWO * squared).ln();
        if slope < R::ZERO && excess.is_finite() {
            depth = (depth - excess / slope).max(low).min(high);
        }
    }
    (depth > R::ZERO && -slope * depth >= R::of(SLOPE_MIN)).then_some(depth)
}

//! Transmittance of Gaussians along a ray, and the median depth, at which half of the light is stopped
//! (Geometry-Grounded Gaussian Splatting, arXiv:2601.17835).
//!
//! A Gaussian is a stochastic solid. With G its opacity times its falloff, and Ĝ the value of G at the Gaussian's
//! peak on the ray, the transmittance up to a point is T = √(1 - G) in front of the peak and T = (1 - Ĝ) / √(1 - G)
//! behind it. Far behind, T is 1 - Ĝ, as in blending. T is continuous for one Gaussian and for the product over all.
//! The median depth is where the product is one half.
//!
//! Everything is in camera axes. A ray is given by its slopes x/z and y/z, a point on it by its depth z.

use super::blend::{ALPHA_MAX, ALPHA_MIN};
use super::field::{GEOMETRY, SCALE_MIN};
use super::linalg::{
    Mat3, Vec3, add, dot, mat_mul, mul, mul_transposed, rotation, rotation_bwd, scale, sub,
    transpose,
};
use super::splat::projection::{smoothed, smoothed_bwd};
use super::splat::{Shape, Viewpoint};
use super::{Real, sigmoid, sigmoid_bwd};

/// Number of depths at which one pass of the search evaluates the transmittance.
pub const ABSCISSAE: usize = 16;

/// Number of search passes that each keep a fifteenth of the interval.
pub const NARROWINGS: u32 = 2;

/// Largest number of search passes that move an interval without the median.
pub const MOVES: u32 = 4;

/// Number of Newton steps after the search.
pub const NEWTON_STEPS: u32 = 5;

/// Margin of the search around the first and last Gaussian's peaks, in their standard deviations along the ray.
pub const REACH: f64 = 3.0;

/// Transmittance below which the search begins, in the order of the centres.
pub const FROM: f64 = 0.9;

/// Transmittance below which the search ends.
pub const TO: f64 = 0.1;

/// Smallest slope of the logarithm at the median, per relative depth. Below, the depth is arbitrary.
pub const SLOPE_MIN: f64 = 1e-4;

/// Smallest slope of the logarithm, per relative depth, of a median that has a gradient. Below, the light fades over
/// ten times the depth, as in haze, and the gradient, which is divided by the slope, has no bound.
pub const FALL_MIN: f64 = 0.1;

/// Squared distance in standard deviations beyond which no ray meets a Gaussian: an opacity of 1 falls below
/// [`ALPHA_MIN`] at 11.1.
const MISS_DISTANCE2: f64 = 12.0;

/// A Gaussian in a view's camera axes.
#[derive(Clone, Copy, Debug)]
pub struct RayGaussian<R> {
    /// Centre in camera axes.
    pub mean_cam: Vec3<R>,
    /// Matrix from offsets in camera axes to standard deviations: S⁻¹ Rᵀ.
    pub whitening: Mat3<R>,
    /// Opacity with the 3D filter, without the screen filter.
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
    /// Converts raw parameters.
    pub fn new(view: &Viewpoint<R>, shape: &Shape<R>, opacity_logit: R) -> Self {
        let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
        let axes = transpose(&mat_mul(&view.rotation, &rotation(shape.quat)));
        let (wide, kept) = smoothed(shape.log_scale.map(Real::exp), shape.smoothing);
        let over = |axis: usize| R::ONE / wide[axis].max(R::of(SCALE_MIN));
        let whitening = [0, 1, 2].map(|axis| scale(axes[axis], over(axis)));
        Self { mean_cam, whitening, opacity: sigmoid(opacity_logit) * kept }
    }

    /// Intersects the Gaussian with the ray of these slopes.
    #[inline]
    pub fn on_ray(&self, slopes: [R; 2]) -> OnRay<R> {
        let (depth, sharpness, distance2) = self.nearest_on_ray(slopes);
        self.with_peak(depth, sharpness, distance2)
    }

    /// Intersects the Gaussian with the ray of these slopes; `None` if the ray does not meet it. Rejects most misses
    /// without `exp`.
    #[inline]
    pub fn met_on_ray(&self, slopes: [R; 2]) -> Option<OnRay<R>> {
        let (depth, sharpness, distance2) = self.nearest_on_ray(slopes);
        if distance2 > R::of(MISS_DISTANCE2) {
            return None;
        }
        Some(self.with_peak(depth, sharpness, distance2)).filter(OnRay::is_met)
    }

    /// Returns the depth of the peak on the ray, the sharpness along the ray, and the squared distance of the peak from
    /// the centre in standard deviations.
    ///
    /// Offsets are relative to the ray's point at the centre's depth, because single precision would lose a thin
    /// Gaussian's thickness in its distance from the camera.
    #[inline]
    fn nearest_on_ray(&self, [x, y]: [R; 2]) -> (R, R, R) {
        let depth = self.mean_cam[2];
        let direction = [x, y, R::ONE];
        let from = mul(&self.whitening, sub(scale(direction, depth), self.mean_cam));
        let along = mul(&self.whitening, direction);
        let sharpness = dot(along, along);
        let behind = -dot(from, along) / sharpness;
        let nearest = add(from, scale(along, behind));
        (depth + behind, sharpness, dot(nearest, nearest))
    }

    #[inline]
    fn with_peak(&self, depth: R, sharpness: R, distance2: R) -> OnRay<R> {
        OnRay { depth, sharpness, peak: self.opacity * (-R::HALF * distance2).exp() }
    }

    /// Adds the gradients of ln T at a depth on the ray of these slopes, times `d_log`.
    ///
    /// The peak moves along the ray with the Gaussian, but has no gradient there, because the opacity is largest.
    pub fn log_transmittance_bwd(
        &self,
        slopes: [R; 2],
        depth: R,
        d_log: R,
        sums: &mut RayGaussianGradient<R>,
    ) {
        let Some(on_ray) = self.met_on_ray(slopes) else { return };
        let by_opacity = on_ray.log_transmittance_bwd(depth);
        for (at, d_opacity) in [depth, on_ray.depth].into_iter().zip(by_opacity) {
            let offset = self.offset(slopes, at);
            let whitened = mul(&self.whitening, offset);
            let falloff = (-R::HALF * dot(whitened, whitened)).exp();
            sums.d_opacity += d_log * d_opacity * falloff;
            let d_exponent = d_log * d_opacity * self.opacity * falloff;
            let d_whitened = scale(whitened, d_exponent);
            sums.d_mean_cam = add(sums.d_mean_cam, mul_transposed(&self.whitening, d_whitened));
            for (row, d) in sums.d_whitening.iter_mut().zip(d_whitened) {
                *row = add(*row, scale(offset, -d));
            }
        }
    }

    /// Returns the offset from the centre to a depth on the ray of these slopes.
    fn offset(&self, [x, y]: [R; 2], depth: R) -> Vec3<R> {
        let [mean_x, mean_y, mean_z] = self.mean_cam;
        let behind = depth - mean_z;
        [x * mean_z - mean_x + x * behind, y * mean_z - mean_y + y * behind, behind]
    }

    /// Returns the gradients of the raw parameters of [`Self::new`]: centre, log-scales, quaternion as stored,
    /// opacity logit.
    pub fn new_bwd(
        view: &Viewpoint<R>,
        shape: &Shape<R>,
        opacity_logit: R,
        d: &RayGaussianGradient<R>,
    ) -> [R; GEOMETRY] {
        let Self { whitening, .. } = Self::new(view, shape, opacity_logit);
        let (wide, kept) = smoothed(shape.log_scale.map(Real::exp), shape.smoothing);
        let least = R::of(SCALE_MIN);
        let d_log_wide = [0, 1, 2].map(|axis| {
            // A scale below the minimum has no gradient.
            let counts = wide[axis] > least;
            if counts { -dot(whitening[axis], d.d_whitening[axis]) } else { R::ZERO }
        });
        let opacity = sigmoid(opacity_logit);
        let d_log_kept = d.d_opacity * opacity * kept;
        let [a, b, c] = smoothed_bwd(wide, shape.smoothing, d_log_wide, d_log_kept);
        let over = |axis: usize| scale(d.d_whitening[axis], R::ONE / wide[axis].max(least));
        let d_turned = transpose(&[0, 1, 2].map(over));
        let d_rotation = mat_mul(&transpose(&view.rotation), &d_turned);
        let [q0, q1, q2, q3] = rotation_bwd(shape.quat, &d_rotation);
        let [x, y, z] = mul_transposed(&view.rotation, d.d_mean_cam);
        [x, y, z, a, b, c, q0, q1, q2, q3, sigmoid_bwd(opacity, d.d_opacity * kept)]
    }
}

impl<R: Real> OnRay<R> {
    /// True if the ray meets the Gaussian, by the threshold of blending.
    #[inline]
    pub fn is_met(&self) -> bool {
        self.peak >= R::of(ALPHA_MIN)
    }

    /// Returns the transmittance behind the whole Gaussian.
    #[inline]
    pub fn passed(&self) -> R {
        R::ONE - self.peak.min(R::of(ALPHA_MAX))
    }

    /// Returns the opacity at a depth, before it is clamped.
    #[inline]
    fn opacity(&self, depth: R) -> R {
        let offset = depth - self.depth;
        self.peak * (-R::HALF * self.sharpness * offset * offset).exp()
    }

    /// Returns T² at a depth. A product of squares needs no root and no logarithm.
    #[inline]
    pub fn squared_transmittance(&self, depth: R) -> R {
        let here = R::ONE - self.opacity(depth).min(R::of(ALPHA_MAX));
        if depth <= self.depth {
            return here;
        }
        let passed = self.passed();
        passed * (passed / here)
    }

    /// Returns ln T at a depth.
    pub fn log_transmittance(&self, depth: R) -> R {
        R::HALF * self.squared_transmittance(depth).ln()
    }

    /// Returns the derivative of [`Self::log_transmittance`] by the depth: at most 0, and 0 where the opacity is
    /// clamped.
    #[inline]
    pub fn log_slope(&self, depth: R) -> R {
        let opacity = self.opacity(depth);
        if opacity >= R::of(ALPHA_MAX) {
            return R::ZERO;
        }
        let offset = (depth - self.depth).abs();
        -R::HALF * opacity * self.sharpness * offset / (R::ONE - opacity)
    }

    /// Returns the derivatives of [`Self::log_transmittance`] by the opacity at the depth and at the peak; 0 for a
    /// clamped opacity.
    #[inline]
    pub fn log_transmittance_bwd(&self, depth: R) -> [R; 2] {
        let most = R::of(ALPHA_MAX);
        let over = |opacity: R| {
            if opacity < most { R::ONE / (R::ONE - opacity) } else { R::ZERO }
        };
        let here = R::HALF * over(self.opacity(depth));
        if depth <= self.depth { [-here, R::ZERO] } else { [here, -over(self.peak)] }
    }
}

/// Returns the depth at which the Gaussians of a ray, ordered by their centres' depths, have stopped half of the light.
///
/// `None` if more than half passes all of them, if the transmittance is so flat that the depth is arbitrary, or if
/// the depth is not beyond `near` (world units).
pub fn median_depth<R: Real>(met: &[OnRay<R>], near: R) -> Option<R> {
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
            return polished(met, interval).filter(|&depth| depth > near);
        }
    }
    None
}

/// Returns the initial search interval; `None` if the transmittance stays above [`FROM`].
fn first_interval<R: Real>(met: &[OnRay<R>]) -> Option<[R; 2]> {
    let [from, to] = [FROM, TO].map(R::of);
    let mut left = R::ONE;
    let mut interval: Option<[R; 2]> = None;
    for on_ray in met {
        let before = left;
        left *= on_ray.passed();
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

/// Returns the part of an interval in which the transmittance falls to one half, or else (`Err`) the neighbouring
/// interval that may contain it.
fn narrowed<R: Real>(met: &[OnRay<R>], [low, high]: [R; 2]) -> Result<[R; 2], [R; 2]> {
    let width = high - low;
    let step = width / R::of((ABSCISSAE - 1) as f64);
    let at = |index: usize| low + R::of(index as f64) * step;
    let mut squared = [R::ONE; ABSCISSAE];
    for on_ray in met {
        for (index, product) in squared.iter_mut().enumerate() {
            *product *= on_ray.squared_transmittance(at(index));
        }
    }
    let quarter = R::HALF * R::HALF;
    match squared.iter().position(|&product| product <= quarter) {
        Some(0) => Err([low - R::TWO * width, low]),
        Some(index) => Ok([at(index - 1), at(index)]),
        None => Err([high, high + R::TWO * width]),
    }
}

/// Refines the median in a narrow interval by Newton's method.
fn polished<R: Real>(met: &[OnRay<R>], [low, high]: [R; 2]) -> Option<R> {
    let mut depth = R::HALF * (low + high);
    let mut slope = R::ZERO;
    for _ in 0..NEWTON_STEPS {
        let mut squared = R::ONE;
        slope = R::ZERO;
        for on_ray in met {
            squared *= on_ray.squared_transmittance(depth);
            slope += on_ray.log_slope(depth);
        }
        let excess = R::HALF * (R::TWO * R::TWO * squared).ln();
        if slope < R::ZERO && excess.is_finite() {
            depth = (depth - excess / slope).max(low).min(high);
        }
    }
    (-slope * depth >= R::of(SLOPE_MIN)).then_some(depth)
}

// Gradients of the median depth t, where F = Σ ln T over the ray's Gaussians is ln ½: ∂t/∂θ = -(∂F/∂θ) / (∂F/∂t).

/// Gradients of a [`RayGaussian`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RayGaussianGradient<R> {
    /// Gradient of the centre in camera axes.
    pub d_mean_cam: Vec3<R>,
    /// Gradient of the matrix to standard deviations.
    pub d_whitening: Mat3<R>,
    /// Gradient of the opacity.
    pub d_opacity: R,
}

impl<R: Real> RayGaussianGradient<R> {
    /// Adds another ray's gradients.
    pub fn add(&mut self, other: &Self) {
        self.d_mean_cam = add(self.d_mean_cam, other.d_mean_cam);
        for (row, other) in self.d_whitening.iter_mut().zip(other.d_whitening) {
            *row = add(*row, other);
        }
        self.d_opacity += other.d_opacity;
    }
}

/// Returns the negative derivative of the Gaussians' ln T by the depth; at a median never 0.
pub fn fall<R: Real>(met: impl Iterator<Item = OnRay<R>>, depth: R) -> R {
    met.map(|on_ray| -on_ray.log_slope(depth)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, central, five_point};
    use crate::math::random::{RandomStream, RandomUse};

    fn ray(stream: &RandomStream, number: u64, count: u64) -> Vec<OnRay<f64>> {
        let mut met: Vec<OnRay<f64>> = (0..count)
            .map(|index| {
                let unit = |value| stream.uniform(3 * (100 * number + index) + value);
                let deviation = 0.01 * 30_f64.powf(unit(1));
                let peak = 0.01 + 0.989 * unit(2);
                OnRay { depth: 1.0 + 2.0 * unit(0), sharpness: deviation.powi(-2), peak }
            })
            .collect();
        met.sort_by(|a, b| a.depth.total_cmp(&b.depth));
        met
    }

    fn log_transmittance(met: &[OnRay<f64>], depth: f64) -> f64 {
        met.iter().map(|on_ray| on_ray.log_transmittance(depth)).sum()
    }

    /// Returns the depth of transmittance one half by bisection; `None` if the transmittance stays above.
    fn by_bisection(met: &[OnRay<f64>]) -> Option<f64> {
        let half = 0.5_f64.ln();
        let (mut low, mut high) = (-10.0, 20.0);
        if log_transmittance(met, high) >= half {
            return None;
        }
        for _ in 0..100 {
            let middle = 0.5 * (low + high);
            if log_transmittance(met, middle) > half { low = middle } else { high = middle }
        }
        Some(high)
    }

    #[test]
    fn medians_match_bisection() {
        let stream = RandomStream::new(1, 0, RandomUse::Sample);
        let mut found_some = 0;
        for number in 0..1000 {
            let met = ray(&stream, number, 1 + number % 12);
            let (found, expected) = (median_depth(&met, 0.0), by_bisection(&met));
            assert_eq!(found.is_some(), expected.is_some(), "{number}: {found:?} {expected:?}");
            let (Some(found), Some(expected)) = (found, expected) else { continue };
            found_some += 1;
            let thinnest =
                met.iter().map(|on_ray| 1.0 / on_ray.sharpness.sqrt()).fold(1.0, f64::min);
            // Newton's method starts in a fifteenth of a fifteenth of the interval.
            let error = (found - expected).abs() / thinnest;
            assert!(error < 1e-3, "{number}: {found} for {expected}, {error} deviations");
            let to_single = |&OnRay { depth, sharpness, peak }: &OnRay<f64>| {
                let [depth, sharpness, peak] = [depth, sharpness, peak].map(f64::to_f32);
                OnRay { depth, sharpness, peak }
            };
            let single: Vec<OnRay<f32>> = met.iter().map(to_single).collect();
            let in_single = median_depth(&single, 0.0).map(f64::from);
            // Single precision resolves a hundred thousandth of a deviation of a hundredth.
            let error = in_single.map(|depth| (log_transmittance(&met, depth).exp() - 0.5).abs());
            assert!(error.is_some_and(|error| error < 1e-3), "{number}: {in_single:?} {expected}");
        }
        assert!(found_some > 500, "{found_some}");
    }

    #[test]
    fn slope_matches_finite_differences() {
        let stream = RandomStream::new(2, 0, RandomUse::Sample);
        for number in 0..200 {
            let on_ray = ray(&stream, number, 1)[0];
            let deviation = 1.0 / on_ray.sharpness.sqrt();
            let depth = on_ray.depth + deviation * (6.0 * stream.uniform(100_000 + number) - 3.0);
            let step = 1e-5 * deviation;
            let expected = central(step, |by| on_ray.log_transmittance(depth + by));
            let error = (on_ray.log_slope(depth) - expected).abs() * deviation;
            // The slope jumps at the opacity's clamp and at the peak.
            let is_smooth = (on_ray.opacity(depth) - ALPHA_MAX).abs() > 1e-4
                && (depth - on_ray.depth).abs() > 2.0 * step;
            assert!(error < 1e-6 * (1.0 + expected.abs() * deviation) || !is_smooth, "{error}");
        }
    }

    #[test]
    fn median_of_a_wall_is_at_opacity_three_quarters() {
        for (peak, deviation) in [(0.8, 0.1), (0.95, 0.01), (0.99, 0.3)] {
            let wall = OnRay { depth: 2.0, sharpness: 1.0 / (deviation * deviation), peak };
            let median = median_depth(&[wall], 0.0).unwrap();
            assert_near(wall.opacity(median), 0.75, 1e-6, peak);
            assert_eq!(median_depth(&[wall], 2.0), None);
            let before = deviation * (2.0_f64 * (peak / 0.75).ln()).sqrt();
            assert_near(2.0 - median, before, 1e-6 * deviation, peak);
            assert_near(wall.log_transmittance(20.0), (1.0 - peak).ln(), 1e-12, peak);
        }
    }

    #[test]
    fn nearly_empty_rays_have_no_median() {
        let thin = OnRay { depth: 2.0, sharpness: 100.0, peak: 0.45 };
        assert_eq!(median_depth::<f64>(&[], 0.0), None);
        assert_eq!(median_depth(&[thin], 0.0), None);
        assert!(median_depth(&[thin, OnRay { depth: 2.5, ..thin }], 0.0).is_some());
    }

    #[test]
    fn on_ray_matches_the_density() {
        let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let view = Viewpoint { rotation, centre_world: [-0.1, 0.2, -0.3], ..view() };
        let shape = Shape {
            mean_world: [0.3, 0.1, 2.0],
            log_scale: [-1.0, -2.0, -3.0],
            quat: [0.9, 0.1, -0.3, 0.2],
            smoothing: 0.02,
        };
        let kernel = crate::math::field::DensityKernel::new(&shape, 2.0);
        let slopes = view.slopes([20, 14]);
        let on_ray = RayGaussian::new(&view, &shape, 2.0).on_ray(slopes);
        // Opacity and scales with the 3D filter, written out.
        let (wide, kept) = smoothed(kernel.scale, shape.smoothing);
        for depth in [1.5, 2.0, 2.2, 2.5, 3.0] {
            let place = sub([slopes[0] * depth, slopes[1] * depth, depth], view.translation);
            let axes = transpose(&kernel.axes);
            let along = mul(&axes, sub(place, shape.mean_world));
            let in_deviations: Vec3<f64> = [0, 1, 2].map(|axis| along[axis] / wide[axis]);
            let distance2 = dot(in_deviations, in_deviations);
            let expected = kernel.opacity * kept * (-0.5 * distance2).exp();
            assert_near(on_ray.opacity(depth), expected, 1e-12, depth);
        }
    }

    const COUNT: usize = 6;

    type Row = [f64; GEOMETRY];

    fn view() -> Viewpoint<f64> {
        let (sine, cosine) = 0.3_f64.sin_cos();
        Viewpoint {
            rotation: [[cosine, 0.0, sine], [0.0, 1.0, 0.0], [-sine, 0.0, cosine]],
            translation: [0.1, -0.2, 0.3],
            centre_world: [0.0; 3],
            focal_px: [50.0; 2],
            centre_px: [16.0; 2],
            size: [32; 2],
            near: 0.01,
            variance_px2: 0.3,
            compensates: false,
            cuts_sides: false,
        }
    }

    fn parts(row: &Row, smoothing: f64) -> (Shape<f64>, f64) {
        let [x, y, z, a, b, c, q0, q1, q2, q3, logit] = *row;
        let (mean_world, log_scale, quat) = ([x, y, z], [a, b, c], [q0, q1, q2, q3]);
        (Shape { mean_world, log_scale, quat, smoothing }, logit)
    }

    /// Returns Gaussians that all lie near the ray.
    fn rows(stream: &RandomStream, number: u64) -> Vec<Row> {
        let value = |at: usize, value: usize| {
            let unit = 2.0 * stream.uniform(1000 * number + (20 * at + value) as u64) - 1.0;
            match value {
                0 | 1 => 0.1 * unit,
                2 => 2.5 + 0.6 * unit,
                3..=5 => -1.7 + 0.5 * unit,
                6 => 1.0 + 0.3 * unit,
                10 => 1.0 + unit,
                _ => unit,
            }
        };
        (0..COUNT).map(|at| std::array::from_fn(|number| value(at, number))).collect()
    }

    /// Returns the median to the last digit, by bisection around the search's result.
    fn median(rows: &[Row], slopes: [f64; 2], smoothing: f64) -> Option<f64> {
        let met = met(rows, slopes, smoothing);
        let excess = |depth| log_transmittance(&met, depth) - 0.5_f64.ln();
        let mut depth = median_depth(&met, 0.0)?;
        for _ in 0..NEWTON_STEPS {
            depth += excess(depth) / fall(met.iter().copied(), depth);
        }
        (excess(depth).abs() < 1e-13).then_some(depth)
    }

    fn gaussian(row: &Row, smoothing: f64) -> RayGaussian<f64> {
        let (shape, logit) = parts(row, smoothing);
        RayGaussian::new(&view(), &shape, logit)
    }

    fn met(rows: &[Row], slopes: [f64; 2], smoothing: f64) -> Vec<OnRay<f64>> {
        let rays = rows.iter().map(|row| gaussian(row, smoothing).on_ray(slopes));
        let mut met: Vec<_> = rays.filter(OnRay::is_met).collect();
        met.sort_by(|a, b| a.depth.total_cmp(&b.depth));
        met
    }

    #[test]
    fn gradients_of_the_median_match_finite_differences() {
        let (stream, view) = (RandomStream::new(7, 0, RandomUse::Sample), view());
        let mut compared = 0;
        for (number, smoothing) in (0..40).zip([0.0, 0.1].into_iter().cycle()) {
            let rows = rows(&stream, number);
            let slopes = [0.26 + 0.1 * stream.uniform(90_000 + number), -0.07];
            let Some(depth) = median(&rows, slopes, smoothing) else { continue };
            let d_depth = 0.7;
            let all = met(&rows, slopes, smoothing);
            if all.len() < COUNT {
                continue;
            }
            let d_log = d_depth / fall(all.into_iter(), depth);
            for (index, row) in rows.iter().enumerate() {
                let mut sums = RayGaussianGradient::default();
                gaussian(row, smoothing).log_transmittance_bwd(slopes, depth, d_log, &mut sums);
                let (shape, logit) = parts(row, smoothing);
                let found = RayGaussian::new_bwd(&view, &shape, logit, &sums);
                for (value, found) in found.into_iter().enumerate() {
                    let expected = five_point(1e-4, |h| {
                        let mut rows = rows.clone();
                        rows[index][value] += h;
                        d_depth * median(&rows, slopes, smoothing).expect("a median")
                    });
                    let tolerance = 1e-6 * expected.abs().max(1e-3);
                    assert_near(found, expected, tolerance, (number, index, value));
                    compared += 1;
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }

    #[test]
    fn clamped_opacities_have_no_gradient() {
        let wall = OnRay { depth: 2.0, sharpness: 100.0, peak: 0.995 };
        assert_eq!(wall.log_transmittance_bwd(2.0), [0.0, 0.0]);
        let behind = wall.log_transmittance_bwd(2.2);
        assert!(behind[0] > 0.0 && behind[1] == 0.0, "{behind:?}");
    }
}

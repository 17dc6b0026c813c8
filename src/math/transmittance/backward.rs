//! Gradients of the median depth, which is where the transmittances of all Gaussians on a ray make one
//! half: with F = Σ ln T, ∂t/∂θ = -(∂F/∂θ) / (∂F/∂t) at the median t.

use super::{OnRay, RayGaussian};
use crate::math::blend::ALPHA_MAX;
use crate::math::field::{GEOMETRY, SCALE_MIN};
use crate::math::linalg::{
    Mat3, Vec3, add, dot, mat_mul, mul, mul_transposed, rotation_bwd, scale, transpose,
};
use crate::math::splat::{Shape, Viewpoint};
use crate::math::widening::{smoothed, smoothed_bwd};
use crate::math::{Real, sigmoid, sigmoid_bwd};

/// Gradients of a [`RayGaussian`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RayGaussianGradient<R> {
    /// Of the centre in camera axes.
    pub d_mean_cam: Vec3<R>,
    /// Of the matrix to standard deviations.
    pub d_whitening: Mat3<R>,
    /// Of the opacity.
    pub d_opacity: R,
}

impl<R: Real> RayGaussianGradient<R> {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.d_mean_cam = add(self.d_mean_cam, other.d_mean_cam);
        for (row, other) in self.d_whitening.iter_mut().zip(other.d_whitening) {
            *row = add(*row, other);
        }
        self.d_opacity += other.d_opacity;
    }
}

/// How fast the logarithm of the transmittance of these Gaussians falls at a depth; at a median never 0.
pub fn fall<R: Real>(met: impl Iterator<Item = OnRay<R>>, depth: R) -> R {
    met.map(|on_ray| -on_ray.log_slope(depth)).sum()
}

impl<R: Real> OnRay<R> {
    /// Derivatives of [`Self::log_transmittance`] by the opacity at the depth and by that at the peak. An
    /// opacity that is held below 1 has none.
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

impl<R: Real> RayGaussian<R> {
    /// Adds the gradients of ln T at a depth on the ray of these slopes, times `d_log`.
    ///
    /// The peak moves along the ray with the Gaussian, but its opacity is largest there: the move changes
    /// nothing.
    pub fn log_transmittance_bwd(
        &self,
        slopes: [R; 2],
        depth: R,
        d_log: R,
        sums: &mut RayGaussianGradient<R>,
    ) {
        let on_ray = self.on_ray(slopes);
        if !on_ray.is_met() {
            return;
        }
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

    /// From the centre to a depth on the ray of these slopes.
    fn offset(&self, [x, y]: [R; 2], depth: R) -> Vec3<R> {
        let [mean_x, mean_y, mean_z] = self.mean_cam;
        let behind = depth - mean_z;
        [x * mean_z - mean_x + x * behind, y * mean_z - mean_y + y * behind, behind]
    }

    /// Gradients of the raw parameters that [`Self::new`] takes: centre, log-scales, quaternion as stored,
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
            // A scale below the least gets no gradient.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::transmittance::{NEWTON_STEPS, median_depth};

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
        }
    }

    fn parts(row: &Row, smoothing: f64) -> (Shape<f64>, f64) {
        let [x, y, z, a, b, c, q0, q1, q2, q3, logit] = *row;
        let (mean_world, log_scale, quat) = ([x, y, z], [a, b, c], [q0, q1, q2, q3]);
        (Shape { mean_world, log_scale, quat, smoothing }, logit)
    }

    /// Gaussians along the ray, near enough that it meets all.
    fn rows(stream: &RandomStream, number: u64) -> Vec<Row> {
        let unit = |at: usize, value: usize| {
            2.0 * stream.uniform(1000 * number + (20 * at + value) as u64) - 1.0
        };
        (0..COUNT)
            .map(|at| {
                std::array::from_fn(|value| {
                    let unit = unit(at, value);
                    match value {
                        0 | 1 => 0.1 * unit,
                        2 => 2.5 + 0.6 * unit,
                        3..=5 => -1.7 + 0.5 * unit,
                        6 => 1.0 + 0.3 * unit,
                        10 => 1.0 + unit,
                        _ => unit,
                    }
                })
            })
            .collect()
    }

    /// The median to the last digit: by halving about what the search finds.
    fn median(rows: &[Row], slopes: [f64; 2], smoothing: f64) -> Option<f64> {
        let met = met(rows, slopes, smoothing);
        let found = median_depth(&met, 0.0)?;
        let half = 0.5_f64.ln();
        let excess =
            |depth| met.iter().map(|on_ray| on_ray.log_transmittance(depth)).sum::<f64>() - half;
        let mut depth = found;
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
    fn gradients_of_the_median_agree_with_its_differences() {
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
                    let moved = |h: f64| {
                        let mut rows = rows.clone();
                        rows[index][value] += h;
                        d_depth * median(&rows, slopes, smoothing).expect("a median")
                    };
                    let h = 1e-4;
                    let expected = (8.0 * (moved(h) - moved(-h))
                        - (moved(2.0 * h) - moved(-2.0 * h)))
                        / (12.0 * h);
                    let error = (found - expected).abs() / expected.abs().max(1e-3);
                    assert!(error < 1e-6, "{number}, {index}, {value}: {found} for {expected}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 1000, "{compared}");
    }

    #[test]
    fn what_is_held_below_one_has_no_gradient() {
        let wall = OnRay { depth: 2.0, sharpness: 100.0, peak: 0.995 };
        assert_eq!(wall.log_transmittance_bwd(2.0), [0.0, 0.0]);
        let behind = wall.log_transmittance_bwd(2.2);
        assert!(behind[0] > 0.0 && behind[1] == 0.0, "{behind:?}");
    }
}

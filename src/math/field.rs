//! The density of Gaussians as a field in space, and the surface that it implies (SuGaR: Guédon and Lepetit 2024,
//! section 4.1).
//!
//! The field is sampled around each Gaussian and summed over the neighbours of that Gaussian. Scales and opacities
//! are raw, without a 3D filter. A Gaussian's normal is its axis of the smallest scale.
//!
//! Positions are offsets from centres: single precision would lose the offset of a sample in a small Gaussian far
//! from the origin.

use super::linalg::{
    Mat3, Quat, Vec3, add, dot, length, mul, mul_transposed, normalize, rotation, rotation_bwd,
    scale, sub,
};
use super::normals::shortest_axis;
use super::splat::{Shape, Viewpoint};
use super::{Real, sigmoid};

/// Smallest scale that divides an offset, and smallest thickness of a surface, world units.
pub const SCALE_MIN: f64 = 1e-8;

/// Squared Mahalanobis distance beyond which a Gaussian has no density and no gradient. The reference clamps the
/// distance to this value; e^-5e7 is 0 in every precision.
pub const DISTANCE2_MAX: f64 = 1e8;

/// Standard deviation of the samples within a Gaussian, in units of its scales.
pub const SPREAD: f64 = 1.5;

/// Smallest thickness whose square divides a normal's weight, world units.
pub const WEIGHED_THICKNESS_MIN: f64 = 1e-6;

/// Smallest sum of normal weights that divides them.
pub const WEIGHT_SUM_MIN: f64 = 1e-6;

/// Factor of the densities that distances are computed from, so that a few Gaussians seldom reach 1.
pub const DISTANCE_DENSITY_FACTOR: f64 = 1.0 / 16.0;

/// Smallest density that a distance is computed from.
pub const DENSITY_MIN: f64 = 1e-16;

/// Offset of the arguments of the entropy's logarithms.
const ENTROPY_EPSILON: f64 = 1e-10;

/// Largest counted difference of distances, in units of `unit` (the reference: ten times the scene's extent, for a
/// difference in tenths of the extent).
pub const DISTANCE_ERROR_MAX: f64 = 100.0;

/// Distance below which a centre belongs to a surface, in standard deviations of the Gaussian.
const NEAR_SURFACE: f64 = 2.0;

/// Smallest root that divides a distance's derivative. Nearer to a density of 1, single precision has too few digits,
/// and the derivative has no bound.
const ROOT_MIN: f64 = 1e-3;

/// Number of geometry values of a Gaussian: centre 3, log-scales 3, quaternion 4, opacity logit.
pub const GEOMETRY: usize = 11;

/// A Gaussian of the density field.
#[derive(Clone, Copy, Debug)]
pub struct DensityKernel<R> {
    /// Centre in the world.
    pub mean_world: Vec3<R>,
    /// Scales, world units.
    pub scale: Vec3<R>,
    /// Rotation to the world; the columns are the Gaussian's axes.
    pub axes: Mat3<R>,
    /// Opacity without a filter.
    pub opacity: R,
    /// Index of the axis with the smallest scale; the first of equal ones.
    pub thin: usize,
}

impl<R: Real> DensityKernel<R> {
    /// Converts raw parameters.
    pub fn new(shape: &Shape<R>, opacity_logit: R) -> Self {
        let scale = shape.log_scale.map(Real::exp);
        let thin = shortest_axis(scale);
        let (axes, opacity) = (rotation(shape.quat), sigmoid(opacity_logit));
        Self { mean_world: shape.mean_world, scale, axes, opacity, thin }
    }

    /// Returns the smallest scale, world units.
    pub fn thickness(&self) -> R {
        self.scale[self.thin]
    }

    /// Returns the axis of the smallest scale, a unit vector in the world with an arbitrary sign.
    pub fn normal(&self) -> Vec3<R> {
        self.axes.map(|row| row[self.thin])
    }

    /// Returns the inverse scales, with scales held to at least [`SCALE_MIN`].
    fn inverse_scale(&self) -> Vec3<R> {
        self.scale.map(|s| R::ONE / s.max(R::of(SCALE_MIN)))
    }
}

/// Gradients of a [`DensityKernel`]'s raw parameters, with the axes instead of the quaternion.
#[derive(Clone, Copy, Debug, Default)]
pub struct DensityKernelGradient<R> {
    /// Gradient of the centre.
    pub d_mean_world: Vec3<R>,
    /// Gradient of the logarithms of the scales.
    pub d_log_scale: Vec3<R>,
    /// Gradient of the rotation.
    pub d_axes: Mat3<R>,
    /// Gradient of the opacity logit.
    pub d_opacity_logit: R,
}

impl<R: Real> DensityKernelGradient<R> {
    /// Returns the gradients of centre, log-scales, quaternion as stored, and opacity logit.
    pub fn row(&self, quat: Quat<R>) -> [R; GEOMETRY] {
        let ([x, y, z], [a, b, c]) = (self.d_mean_world, self.d_log_scale);
        let [q0, q1, q2, q3] = rotation_bwd(quat, &self.d_axes);
        [x, y, z, a, b, c, q0, q1, q2, q3, self.d_opacity_logit]
    }
}

/// Returns a sample's offset along its Gaussian's axes, world units, from three standard normal numbers.
pub fn sample_along<R: Real>(kernel: &DensityKernel<R>, normals: Vec3<R>) -> Vec3<R> {
    [0, 1, 2].map(|axis| R::of(SPREAD) * kernel.scale[axis] * normals[axis])
}

/// Returns the sample's offset from its Gaussian's centre in world axes.
pub fn sample_offset<R: Real>(kernel: &DensityKernel<R>, along: Vec3<R>) -> Vec3<R> {
    mul(&kernel.axes, along)
}

/// Adds the gradients of a sample's own Gaussian, from those of the sample's position in the world and of its
/// distance from the Gaussian's middle plane, which is `along[thin]`.
pub fn sample_bwd<R: Real>(
    kernel: &DensityKernel<R>,
    along: Vec3<R>,
    d_place: Vec3<R>,
    d_distance: R,
    d_kernel: &mut DensityKernelGradient<R>,
) {
    d_kernel.d_mean_world = add(d_kernel.d_mean_world, d_place);
    let mut d_along = mul_transposed(&kernel.axes, d_place);
    d_along[kernel.thin] += d_distance;
    for i in 0..3 {
        d_kernel.d_log_scale[i] += d_along[i] * along[i];
        d_kernel.d_axes[i] = add(d_kernel.d_axes[i], scale(along, d_place[i]));
    }
}

/// Returns the whitened offset y = S⁻¹ Rᵀ `offset` from a Gaussian's centre, and the density o e^(-|y|²/2) there.
pub fn density<R: Real>(kernel: &DensityKernel<R>, offset: Vec3<R>) -> (Vec3<R>, R) {
    let turned = mul_transposed(&kernel.axes, offset);
    let inverse = kernel.inverse_scale();
    let whitened = [0, 1, 2].map(|axis| turned[axis] * inverse[axis]);
    let distance2 = dot(whitened, whitened);
    // Written so that NaN has no density.
    let density = if distance2 <= R::of(DISTANCE2_MAX) {
        kernel.opacity * (-R::HALF * distance2).exp()
    } else {
        R::ZERO
    };
    (whitened, density)
}

/// Returns `d_offset` of [`density`] and adds to the other gradients, except the centre's.
pub fn density_bwd<R: Real>(
    kernel: &DensityKernel<R>,
    offset: Vec3<R>,
    whitened: Vec3<R>,
    density: R,
    d_density: R,
    d_kernel: &mut DensityKernelGradient<R>,
) -> Vec3<R> {
    // Every gradient has the density as a factor, but the other factors may be infinite.
    if density <= R::ZERO {
        return [R::ZERO; 3];
    }
    let d_exponent = d_density * density;
    d_kernel.d_opacity_logit += d_exponent * (R::ONE - kernel.opacity);
    let inverse = kernel.inverse_scale();
    let d_turned = [0, 1, 2].map(|axis| -d_exponent * whitened[axis] * inverse[axis]);
    for i in 0..3 {
        // A scale below the minimum has no gradient.
        if kernel.scale[i] > R::of(SCALE_MIN) {
            d_kernel.d_log_scale[i] += d_exponent * whitened[i] * whitened[i];
        }
        d_kernel.d_axes[i] = add(d_kernel.d_axes[i], scale(d_turned, offset[i]));
    }
    mul(&kernel.axes, d_turned)
}

/// Returns the thickness of the surface that `count` Gaussians form, world units: their mean thickness.
pub fn surface_thickness<R: Real>(sum: R, count: usize) -> R {
    let (mean, least) = (sum / R::of(count as f64), R::of(SCALE_MIN));
    // NaN stays NaN.
    if mean < least { least } else { mean }
}

/// Returns `d_log_scale` of the smallest scale of one of `count` Gaussians, of [`surface_thickness`].
pub fn surface_thickness_bwd<R: Real>(
    kernel: &DensityKernel<R>,
    beta: R,
    count: usize,
    d_beta: R,
) -> R {
    // An infinite thickness has no influence, so its gradient is 0.
    let depends = beta > R::of(SCALE_MIN) && d_beta != R::ZERO;
    if depends { d_beta * kernel.thickness() / R::of(count as f64) } else { R::ZERO }
}

/// Returns the density at a distance from a surface of thickness `beta`: e^(-distance² / (2 beta²)).
pub fn surface_density<R: Real>(distance: R, beta: R) -> R {
    let ratio = distance / beta;
    // Written so that NaN gives 0, which has no gradient.
    if ratio * ratio <= R::of(DISTANCE2_MAX) { (-R::HALF * ratio * ratio).exp() } else { R::ZERO }
}

/// Returns `d_distance` and `d_beta` of [`surface_density`], which gave `target`.
pub fn surface_density_bwd<R: Real>(distance: R, beta: R, target: R, d_target: R) -> [R; 2] {
    if target <= R::ZERO {
        return [R::ZERO; 2];
    }
    let ratio = distance / beta;
    let d_distance = -d_target * target * ratio / beta;
    [d_distance, -d_distance * ratio]
}

/// Returns -1, 0 or 1; 0 for NaN.
pub fn sign<R: Real>(x: R) -> R {
    if x > R::ZERO {
        R::ONE
    } else if x < R::ZERO {
        -R::ONE
    } else {
        R::ZERO
    }
}

/// Returns a neighbour's normal, flipped to the side of the sample's Gaussian, and the sign of the flip: 1, -1, or 0
/// if the normals are perpendicular, in which case the normal becomes 0.
pub fn aligned<R: Real>(normal: Vec3<R>, own: Vec3<R>) -> (Vec3<R>, R) {
    let side = sign(dot(normal, own));
    (scale(normal, side), side)
}

/// Returns the weight of a neighbour's normal before normalisation. It grows with the neighbour's density at the
/// sample and with the sample's distance from the neighbour's middle plane. It has no gradient.
pub fn normal_weight<R: Real>(kernel: &DensityKernel<R>, offset: Vec3<R>, density: R) -> R {
    // The offset may be infinite where the density is 0.
    if density <= R::ZERO {
        return R::ZERO;
    }
    let thickness = kernel.thickness().max(R::of(WEIGHED_THICKNESS_MIN));
    density * dot(offset, kernel.normal()).abs() / (thickness * thickness)
}

/// Returns the normalisation factor of weights with this sum.
pub fn normal_weight_factor<R: Real>(sum: R) -> R {
    R::ONE / sum.max(R::of(WEIGHT_SUM_MIN))
}

/// Adds the gradient of a Gaussian's normal to the gradient of its axes.
pub fn normal_bwd<R: Real>(
    kernel: &DensityKernel<R>,
    d_normal: Vec3<R>,
    d_kernel: &mut DensityKernelGradient<R>,
) {
    for (row, d) in d_kernel.d_axes.iter_mut().zip(d_normal) {
        row[kernel.thin] += d;
    }
}

/// Returns the entropy of an opacity in nats, from its logit: -o ln(o + ε) - (1 - o) ln(1 - o + ε).
pub fn entropy<R: Real>(opacity_logit: R) -> R {
    let [o, rest, epsilon] = entropy_parts(opacity_logit);
    -o * (o + epsilon).ln() - rest * (rest + epsilon).ln()
}

/// Returns `d_opacity_logit` of [`entropy`].
pub fn entropy_bwd<R: Real>(opacity_logit: R, d_entropy: R) -> R {
    let [o, rest, epsilon] = entropy_parts(opacity_logit);
    let (sum, rest_sum) = (o + epsilon, rest + epsilon);
    let d_opacity = rest_sum.ln() + rest / rest_sum - sum.ln() - o / sum;
    d_entropy * d_opacity * o * rest
}

/// Returns o, 1 - o without cancellation, and ε.
fn entropy_parts<R: Real>(opacity_logit: R) -> [R; 3] {
    [sigmoid(opacity_logit), sigmoid(-opacity_logit), R::of(ENTROPY_EPSILON)]
}

/// Returns the distance from the surface that a density implies, world units: beta √(-2 ln density), 0 for a density
/// of at least 1.
pub fn distance<R: Real>(density: R, beta: R) -> R {
    beta * distance_root(density)
}

fn distance_root<R: Real>(density: R) -> R {
    let held = density.max(R::of(DENSITY_MIN)).min(R::ONE);
    (-R::TWO * held.ln()).max(R::ZERO).sqrt()
}

/// Returns `d_density` and `d_beta` of [`distance`].
///
/// Above a density of 1, the gradient passes, so that the density can fall again (the reference divides the density
/// by itself there). Near 1, where the root has no derivative, the slope is clamped to the steepest that single
/// precision can represent.
pub fn distance_bwd<R: Real>(density: R, beta: R, d_distance: R) -> [R; 2] {
    let root = distance_root(density);
    let d_density = if density > R::of(DENSITY_MIN) {
        -d_distance * beta / (density * root.max(R::of(ROOT_MIN)))
    } else {
        R::ZERO
    };
    [d_density, d_distance * root]
}

/// Returns the difference of the implied distance and the absolute measured `height`, in units of `unit`, at most
/// [`DISTANCE_ERROR_MAX`].
pub fn distance_error<R: Real>(distance: R, height: R, unit: R) -> R {
    let error = (distance - height.abs()).abs() / unit;
    // NaN stays NaN.
    if error > R::of(DISTANCE_ERROR_MAX) { R::of(DISTANCE_ERROR_MAX) } else { error }
}

/// Returns `d_distance` and `d_height` of [`distance_error`]; 0 where the error was clamped.
pub fn distance_error_bwd<R: Real>(distance: R, height: R, unit: R, d_error: R) -> [R; 2] {
    let difference = distance - height.abs();
    if difference.abs() > R::of(DISTANCE_ERROR_MAX) * unit {
        return [R::ZERO; 2];
    }
    let d_distance = d_error * sign(difference) / unit;
    [d_distance, -d_distance * sign(height)]
}

/// Returns a Gaussian's standard deviation towards a position, world units: |S Rᵀ v| with v the unit direction.
pub fn deviation_towards<R: Real>(kernel: &DensityKernel<R>, place_world: Vec3<R>) -> R {
    deviation_along(kernel, normalize(sub(place_world, kernel.mean_world)))
}

/// True if a Gaussian whose centre has this distance from a surface along a view belongs to the surface.
pub fn is_near_surface<R: Real>(height: R, deviation: R) -> bool {
    height.abs() < R::of(NEAR_SURFACE) * deviation
}

// Intersection of a ray with a level set of the density (SuGaR: Guédon and Lepetit 2024, section 4.2).

/// Number of samples along a ray.
pub const RAY_SAMPLES: usize = 21;

/// Reach of the samples to each side, in standard deviations of the front Gaussian along the ray.
pub const RAY_REACH: f64 = 3.0;

/// Smallest slope of the density, per standard deviation of the front Gaussian, that defines a normal.
const SLOPE_MIN: f64 = 1e-8;

/// A point of a level set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelPoint<R> {
    /// Offset from the position around which the ray is sampled, world units.
    pub offset: Vec3<R>,
    /// Unit normal in world space, towards lower density.
    pub normal: Vec3<R>,
}

/// Returns a Gaussian's standard deviation along a unit direction, world units: |S Rᵀ d|.
pub fn deviation_along<R: Real>(kernel: &DensityKernel<R>, direction: Vec3<R>) -> R {
    let turned = mul_transposed(&kernel.axes, direction);
    length([0, 1, 2].map(|axis| kernel.scale[axis] * turned[axis]))
}

/// Returns min(1, Σ o e^(-q/2)) at `offset` from a common position; `from[k]` is that position relative to the centre
/// of Gaussian k.
pub fn density_of<R: Real>(kernels: &[DensityKernel<R>], from: &[Vec3<R>], offset: Vec3<R>) -> R {
    let sum: R = kernels.iter().zip(from).map(|(k, &f)| density(k, add(f, offset)).1).sum();
    sum.min(R::ONE)
}

/// Returns the index of the Gaussian with the largest density at the position; 0 if all densities are 0.
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

/// Returns the first point of a ray at which the density of these Gaussians rises above `level`.
///
/// The ray passes a position along the unit `direction`, away from the camera; `from[k]` is that position relative to
/// the centre of Gaussian k, world units. `deviation` scales the spread of the samples. `None` if the density at the
/// first sample is not below the level, or at no later sample above it. The density is taken as linear between
/// samples. Normals are flipped towards the camera.
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

/// Returns the unit direction of falling density at an offset; `None` if the density is flat.
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
        let discarded = &mut DensityKernelGradient::default();
        slope = sub(slope, density_bwd(kernel, place, whitened, here, R::ONE, discarded));
    }
    // Written so that NaN has no direction.
    let has_direction = length(slope) * deviation >= R::of(SLOPE_MIN);
    if !has_direction {
        return None;
    }
    let normal = normalize(slope);
    let faces_away = dot(normal, direction) > R::ZERO;
    Some(if faces_away { scale(normal, -R::ONE) } else { normal })
}

// Bilinear lookup of a view's map at a point. Beyond the centres of the border's pixels, the border's values hold.

/// Returns the image position of a point in camera space, px; `None` if it lies outside the image or not beyond
/// [`Viewpoint::near`].
pub fn place_px<R: Real>(view: &Viewpoint<R>, [x, y, z]: Vec3<R>) -> Option<[R; 2]> {
    // Written so that NaN is rejected too.
    if !(z > view.near && z.is_finite()) {
        return None;
    }
    let slope = [x / z, y / z];
    let place = [0, 1].map(|axis| view.focal_px[axis] * slope[axis] + view.centre_px[axis]);
    let is_inside =
        |axis: usize| place[axis] >= R::ZERO && place[axis] <= R::of(f64::from(view.size[axis]));
    (is_inside(0) && is_inside(1)).then_some(place)
}

/// Returns `d_point_cam` of [`place_px`], for points that have an image position.
pub fn place_px_bwd<R: Real>(view: &Viewpoint<R>, [x, y, z]: Vec3<R>, d_place: [R; 2]) -> Vec3<R> {
    let [d_x, d_y] = [0, 1].map(|axis| d_place[axis] * view.focal_px[axis] / z);
    [d_x, d_y, -(d_x * x + d_y * y) / z]
}

/// The four pixels around an image position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PixelQuad<R> {
    /// Column and row of the first pixel.
    pub low: [u32; 2],
    /// Column and row of the last pixel; equal to the first beyond the border's centres.
    pub high: [u32; 2],
    /// Fraction of the way from the first to the last pixel.
    pub share: [R; 2],
}

/// Returns the pixels around a position in an image of this size.
pub fn cell<R: Real>(place_px: [R; 2], size: [u32; 2]) -> PixelQuad<R> {
    let mut cell = PixelQuad { low: [0; 2], high: [0; 2], share: [R::ZERO; 2] };
    for axis in 0..2 {
        let (place, last) = (place_px[axis] - R::HALF, size[axis].saturating_sub(1));
        if place > R::ZERO {
            let low = u32::try_from(place.floor_i32()).unwrap_or(0).min(last);
            cell.low[axis] = low;
            cell.high[axis] = (low + 1).min(last);
            if low < last {
                cell.share[axis] = place - R::of(f64::from(low));
            }
        }
    }
    cell
}

impl<R: Real> PixelQuad<R> {
    /// Returns the four pixels, row by row.
    pub fn pixels(&self) -> [[u32; 2]; 4] {
        let ([x0, y0], [x1, y1]) = (self.low, self.high);
        [[x0, y0], [x1, y0], [x0, y1], [x1, y1]]
    }

    /// Returns the bilinear weights of the four pixels.
    pub fn weights(&self) -> [R; 4] {
        let [x, y] = self.share;
        let (left, above) = (R::ONE - x, R::ONE - y);
        [left * above, x * above, left * y, x * y]
    }
}

/// Returns the interpolated value and its slopes along x and y, per px, from the values of the four pixels.
pub fn between<R: Real>(cell: &PixelQuad<R>, [a, b, c, d]: [R; 4]) -> (R, [R; 2]) {
    let [x, y] = cell.share;
    let (above, below) = (a + x * (b - a), c + x * (d - c));
    let along_x = (b - a) + y * ((d - c) - (b - a));
    (above + y * (below - above), [along_x, below - above])
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
    fn level_point_has_the_density_of_the_level() {
        // o e^(-t²/2s²) = L at t = s √(2 ln(o/L)).
        for (opacity, level) in [(0.9, 0.3), (0.6, 0.3), (0.99, 0.1), (0.8, 0.5)] {
            let kernel = ball([0.0; 3], 0.2, opacity);
            let found = level_point(&[kernel], &[[0.0; 3]], [0.0, 0.0, 1.0], 0.2, level).unwrap();
            let exact = -0.2 * (2.0_f64 * (opacity / level).ln()).sqrt();
            // Linear interpolation between samples 0.3 standard deviations apart errs by a hundredth of one.
            assert!((found.offset[2] - exact).abs() < 0.01 * 0.2, "{found:?} {exact}");
            assert!((found.normal[2] + 1.0).abs() < 1e-12, "{found:?}");
        }
    }

    #[test]
    fn ray_that_starts_inside_or_stays_outside_has_no_point() {
        let kernel = ball([0.0; 3], 0.2, 0.9);
        let at =
            |from: Vec3<f64>, level| level_point(&[kernel], &[from], [0.0, 0.0, 1.0], 0.2, level);
        assert_eq!(at([0.0, 0.0, 0.6], 0.3), None);
        assert_eq!(at([0.5, 0.0, 0.0], 0.3), None);
        assert_eq!(at([0.0; 3], 0.95), None);
        assert!(at([0.1, 0.0, 0.0], 0.3).is_some());
    }

    #[test]
    fn flat_gaussian_has_its_plane_as_level_set() {
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
        // The level set is as flat as the Gaussian, whose thickness is a fiftieth of its width.
        assert!(facing > 0.999 && dot(found.normal, direction) < 0.0, "{found:?} {facing}");
        assert_eq!(front(&[ball([0.0; 3], 0.1, 0.5), kernel], &[[1.0, 0.0, 0.0], [0.0; 3]]), 1);
    }

    const SIZE: [u32; 2] = [5, 4];

    #[test]
    fn a_pixel_centre_reads_that_pixel_and_a_midpoint_the_mean_of_two() {
        let value = |[x, y]: [u32; 2]| f64::from(x * x + 10 * y);
        let at = |place| {
            let cell = cell(place, SIZE);
            between(&cell, cell.pixels().map(value))
        };
        for pixel in (0..5).flat_map(|x| (0..4).map(move |y| [x, y])) {
            let centre = pixel.map(|i| f64::from(i) + 0.5);
            assert_eq!(at(centre).0, value(pixel), "{pixel:?}");
        }
        assert_eq!(at([2.0, 1.0]), (7.5, [3.0, 10.0]));
        // A quarter of the way along both axes.
        assert_eq!(at([2.75, 1.75]), (4.0 + 0.25 * 5.0 + 12.5, [5.0, 10.0]));
    }

    #[test]
    fn border_values_extend_outwards() {
        for (place, pixel) in [
            ([0.0, 0.2], [0, 0]),
            ([0.5, 0.5], [0, 0]),
            ([5.0, 0.3], [4, 0]),
            ([4.7, 4.0], [4, 3]),
            ([4.5, 3.5], [4, 3]),
        ] {
            let cell = cell::<f64>(place, SIZE);
            assert_eq!(cell.pixels(), [pixel; 4], "{place:?}");
            assert_eq!(cell.weights(), [1.0, 0.0, 0.0, 0.0]);
            assert_eq!(between(&cell, [7.0; 4]), (7.0, [0.0; 2]));
        }
        // A 1x1 image is all border.
        assert_eq!(cell([0.9, 0.1], [1, 1]).pixels(), [[0, 0]; 4]);
    }

    #[test]
    fn weights_reproduce_the_interpolated_value() {
        let cell = cell([2.3, 1.9], SIZE);
        let values = [0.3, -1.2, 2.5, 0.7];
        let sum: f64 = cell.weights().iter().zip(values).map(|(w, v)| w * v).sum();
        // Rounding of a few terms of order 1.
        assert!((between(&cell, values).0 - sum).abs() < 1e-15);
        assert!((cell.weights().iter().sum::<f64>() - 1.0).abs() < 1e-15);
    }
}

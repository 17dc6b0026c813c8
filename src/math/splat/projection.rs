//! Projection of a Gaussian in the world to an ellipse on the screen (EWA splatting, Zwicker et al. 2001).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::math::Real;
use crate::math::blend::ALPHA_MIN;
use crate::math::linalg::{
    Mat3, Quat, Sym2, Vec3, add, cross, dot, mat_mul, mul, mul_transposed, rotation, rotation_bwd,
    scale, transpose,
};

/// Variance in px² added to every splat, so that no splat falls between pixel centres.
pub const DILATION_PX2: f64 = 0.3;

/// Margin beyond the image within which the Jacobian is evaluated, as a share of half the side. Farther out,
/// linearisation would stretch a splat without bound.
const GUARD_BAND: f64 = 0.3;

/// Margin of [`Viewpoint::sides`], as a share of half the side.
const SIDE_MARGIN: f64 = 2.0;

/// A pinhole camera with its pose, in the precision of the computation.
#[derive(Clone, Copy, Debug)]
pub struct Viewpoint<R> {
    /// Rotation from world to camera axes.
    pub rotation: Mat3<R>,
    /// Translation in camera axes.
    pub translation: Vec3<R>,
    /// Position of the camera in the world.
    pub centre_world: Vec3<R>,
    /// Focal lengths, px.
    pub focal_px: [R; 2],
    /// Principal point, px.
    pub centre_px: [R; 2],
    /// Image size, px.
    pub size: [u32; 2],
    /// Depth that a Gaussian must exceed to be drawn, world units along the view axis. Towards 0 the Jacobian grows
    /// as 1/z², and one splat can cover the image.
    pub near: R,
    /// Variance added to every splat along both axes, px².
    pub variance_px2: R,
    /// True if that variance lowers a splat's opacity as it widens the splat.
    pub compensates: bool,
    /// True if centres far beside the image are not drawn, see [`Self::sides`].
    pub cuts_sides: bool,
}

/// Bounds of x/z or y/z.
#[derive(Clone, Copy, Debug)]
pub struct SlopeRange<R> {
    /// Lower bound.
    pub low: R,
    /// Upper bound.
    pub high: R,
}

impl<R: Real> SlopeRange<R> {
    /// True if `along / z` is within the bounds, for a positive z.
    fn contains(&self, along: R, z: R) -> bool {
        along >= self.low * z && along <= self.high * z
    }
}

impl<R: Real> Viewpoint<R> {
    /// Returns the bounds within which the Jacobian is evaluated, along x and y.
    pub fn guard(&self) -> [SlopeRange<R>; 2] {
        self.with_margin(GUARD_BAND)
    }

    /// Returns the bounds of the centres that are drawn, along x and y; infinite if all are. Far beside the image the
    /// Jacobian does not describe the Gaussian: a large one would cover the whole image as haze.
    pub fn sides(&self) -> [SlopeRange<R>; 2] {
        self.with_margin(if self.cuts_sides { SIDE_MARGIN } else { f64::INFINITY })
    }

    /// Returns the bounds of the image with a margin, a share of half the image.
    fn with_margin(&self, share: f64) -> [SlopeRange<R>; 2] {
        [0, 1].map(|axis| {
            let size = R::of(f64::from(self.size[axis]));
            let margin = R::of(share) * R::HALF * size;
            SlopeRange {
                low: -(self.centre_px[axis] + margin) / self.focal_px[axis],
                high: (size - self.centre_px[axis] + margin) / self.focal_px[axis],
            }
        })
    }

    /// Returns the index of a pixel in the image.
    pub fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.size[0] as usize + x as usize
    }

    /// Returns the slopes x/z and y/z of the ray through the centre of a pixel.
    pub fn slopes(&self, pixel: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let place = R::of(f64::from(pixel[axis])) + R::HALF;
            (place - self.centre_px[axis]) / self.focal_px[axis]
        })
    }
}

/// Raw parameters of a Gaussian's position and shape.
#[derive(Clone, Copy, Debug)]
pub struct Shape<R> {
    /// Centre in the world.
    pub mean_world: Vec3<R>,
    /// Natural logarithms of the scales, world units.
    pub log_scale: Vec3<R>,
    /// Rotation (w, x, y, z), of any length but zero.
    pub quat: Quat<R>,
    /// Standard deviation of the 3D filter, world units; 0 without a filter.
    pub smoothing: R,
}

/// Projected ellipse of a Gaussian.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Ellipse<R> {
    /// Centre, px.
    pub mean_px: [R; 2],
    /// Depth along the view axis, world units.
    pub depth: R,
    /// Covariance with the screen filter, px².
    pub cov_px2: Sym2<R>,
    /// Inverse of the covariance.
    pub conic: Sym2<R>,
    /// Share of the opacity that both filters keep.
    pub kept: R,
}

/// Intermediate values of the projection, for both passes.
struct Chain<R> {
    mean_cam: Vec3<R>,
    /// x/z and y/z clamped to the guard band.
    slope: [R; 2],
    /// True if `slope` was not clamped.
    inside: [bool; 2],
    /// J, 2x3.
    jacobian: [[R; 3]; 2],
    /// Rotation from the Gaussian's axes to the camera's.
    cam_from_axes: Mat3<R>,
    /// Scales with the 3D filter.
    scale: Vec3<R>,
    /// Share of the opacity that the 3D filter keeps.
    kept_in_space: R,
    /// J · `cam_from_axes` · diag(scale): its Gram matrix is the covariance.
    root: [[R; 3]; 2],
}

fn chain<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Option<Chain<R>> {
    let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
    let [x, y, z] = mean_cam;
    // Written so that NaN is rejected too.
    if !(z > view.near && z.is_finite()) {
        return None;
    }
    let [across, down] = view.sides();
    if !(across.contains(x, z) && down.contains(y, z)) {
        return None;
    }
    let guard = view.guard();
    let raw = [x / z, y / z];
    let slope = [0, 1].map(|i| raw[i].max(guard[i].low).min(guard[i].high));
    let inside = [0, 1].map(|i| raw[i] >= guard[i].low && raw[i] <= guard[i].high);
    let over_z = [view.focal_px[0] / z, view.focal_px[1] / z];
    let jacobian =
        [[over_z[0], R::ZERO, -over_z[0] * slope[0]], [R::ZERO, over_z[1], -over_z[1] * slope[1]]];
    let cam_from_axes = mat_mul(&view.rotation, &rotation(shape.quat));
    let (scale, kept_in_space) = smoothed(shape.log_scale.map(Real::exp), shape.smoothing);
    let root = jacobian.map(|row| {
        let turned = mul_transposed(&cam_from_axes, row);
        [turned[0] * scale[0], turned[1] * scale[1], turned[2] * scale[2]]
    });
    Some(Chain { mean_cam, slope, inside, jacobian, cam_from_axes, scale, kept_in_space, root })
}

/// Projects a Gaussian; `None` if its centre is not beyond [`Viewpoint::near`] or lies outside [`Viewpoint::sides`], or if
/// a parameter is not finite.
pub fn project<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Option<Ellipse<R>> {
    ellipse(view, &chain(view, shape)?)
}

fn ellipse<R: Real>(view: &Viewpoint<R>, chain: &Chain<R>) -> Option<Ellipse<R>> {
    let [x, y, z] = chain.mean_cam;
    let Covariance { cov: [xx, xy, yy], det, sharp_det } = covariance(view, &chain.root);
    let mean_px = [
        view.focal_px[0] * x / z + view.centre_px[0],
        view.focal_px[1] * y / z + view.centre_px[1],
    ];
    let finite = det.is_finite() && mean_px[0].is_finite() && mean_px[1].is_finite();
    if !finite {
        return None;
    }
    let conic = [yy / det, -xy / det, xx / det];
    let on_screen = if view.compensates { kept_on_screen(sharp_det, det) } else { R::ONE };
    let kept = chain.kept_in_space * on_screen;
    Some(Ellipse { mean_px, depth: z, cov_px2: [xx, xy, yy], conic, kept })
}

/// A Aᵀ with the screen filter's variance on its diagonal, and its determinants with and without the filter.
struct Covariance<R> {
    cov: Sym2<R>,
    det: R,
    sharp_det: R,
}

/// Returns A Aᵀ with the screen filter's variance on its diagonal, and the determinants.
///
/// For long thin splats xx yy - xy² would cancel in single precision. Lagrange's identity |a|² |b|² - (a·b)² = |a x
/// b|² leaves a sum of positive terms.
fn covariance<R: Real>(view: &Viewpoint<R>, root: &[Vec3<R>; 2]) -> Covariance<R> {
    let [a, b] = *root;
    let variance = view.variance_px2;
    let (aa, bb) = (dot(a, a), dot(b, b));
    let area = cross(a, b);
    let sharp_det = dot(area, area);
    let det = sharp_det + variance * (aa + bb) + variance * variance;
    Covariance { cov: [aa + variance, dot(a, b), bb + variance], det, sharp_det }
}

/// Gradients of [`Shape`].
#[derive(Clone, Copy, Debug)]
pub struct ShapeGradient<R> {
    /// Gradient of the centre in the world.
    pub d_mean_world: Vec3<R>,
    /// Gradient of the logarithms of the scales.
    pub d_log_scale: Vec3<R>,
    /// Gradient of the quaternion as stored.
    pub d_quat: Quat<R>,
}

/// Gradients of [`Ellipse`].
#[derive(Clone, Copy, Debug)]
pub struct EllipseGradient<R> {
    /// Gradient of the centre, per px.
    pub d_mean_px: [R; 2],
    /// Gradient of the conic; xy counted once.
    pub d_conic: Sym2<R>,
    /// Gradient of the logarithm of the kept share of the opacity.
    pub d_log_kept: R,
    /// Gradient of the depth.
    pub d_depth: R,
}

/// Returns `d_shape` of [`project`]; `None` exactly if [`project`] returns `None`.
pub fn project_bwd<R: Real>(
    view: &Viewpoint<R>,
    shape: &Shape<R>,
    d_ellipse: &EllipseGradient<R>,
) -> Option<ShapeGradient<R>> {
    let chain = chain(view, shape)?;
    ellipse(view, &chain)?;
    let Covariance { cov, det, sharp_det } = covariance(view, &chain.root);
    let d_cov = conic_bwd(cov, det, d_ellipse.d_conic);

    // cov = A Aᵀ with A = J T diag(s): d_A = 2 G A, where the off-diagonal of G is half of d_xy.
    let (g_xx, g_xy, g_yy) = (R::TWO * d_cov[0], d_cov[1], R::TWO * d_cov[2]);
    let [a, b] = chain.root;
    let mut d_root = [
        [0, 1, 2].map(|j| g_xx * a[j] + g_xy * b[j]),
        [0, 1, 2].map(|j| g_xy * a[j] + g_yy * b[j]),
    ];
    let d_log_kept = d_ellipse.d_log_kept;
    if view.compensates {
        let [d_sharp_det, d_det] = kept_on_screen_bwd(sharp_det, det, d_log_kept);
        let through_det = det_bwd([a, b], view.variance_px2, d_sharp_det + d_det, d_det);
        d_root = [add(d_root[0], through_det[0]), add(d_root[1], through_det[1])];
    }
    let d_log_wide = [0, 1, 2].map(|j| d_root[0][j] * a[j] + d_root[1][j] * b[j]);
    let d_log_scale = smoothed_bwd(chain.scale, shape.smoothing, d_log_wide, d_log_kept);
    let d_turned = d_root.map(|row| [0, 1, 2].map(|j| row[j] * chain.scale[j]));

    let d_cam_from_axes: Mat3<R> = [0, 1, 2].map(|i| {
        [0, 1, 2]
            .map(|j| chain.jacobian[0][i] * d_turned[0][j] + chain.jacobian[1][i] * d_turned[1][j])
    });
    let d_jacobian = d_turned.map(|row| mul(&chain.cam_from_axes, row));
    let d_rotation: Mat3<R> = mat_mul(&transpose(&view.rotation), &d_cam_from_axes);
    let d_quat = rotation_bwd(shape.quat, &d_rotation);

    let mut d_mean_cam = mean_bwd(view, &chain, d_ellipse.d_mean_px, &d_jacobian);
    d_mean_cam[2] += d_ellipse.d_depth;
    Some(ShapeGradient {
        d_mean_world: mul_transposed(&view.rotation, d_mean_cam),
        d_log_scale,
        d_quat,
    })
}

/// Returns `d_cov` (xx, xy, yy; xy counted once) of the inverse of a matrix with this determinant.
fn conic_bwd<R: Real>([xx, xy, yy]: Sym2<R>, det: R, d_conic: Sym2<R>) -> Sym2<R> {
    let inverse_det = R::ONE / det;
    let shared = (d_conic[0] * yy - d_conic[1] * xy + d_conic[2] * xx) * inverse_det;
    [
        (d_conic[2] - shared * yy) * inverse_det,
        (R::TWO * shared * xy - d_conic[1]) * inverse_det,
        (d_conic[0] - shared * xx) * inverse_det,
    ]
}

/// Returns `d_root` of the determinants of A Aᵀ. Both contain |a x b|²; the filtered one also contains the variance
/// times |a|² + |b|². Like the determinants, it has no difference of products.
fn det_bwd<R: Real>([a, b]: [Vec3<R>; 2], variance: R, d_area: R, d_det: R) -> [Vec3<R>; 2] {
    let area = cross(a, b);
    let (d_area, d_det) = (R::TWO * d_area, R::TWO * d_det * variance);
    [
        add(scale(cross(b, area), d_area), scale(a, d_det)),
        add(scale(cross(area, a), d_area), scale(b, d_det)),
    ]
}

/// Returns `d_mean_cam` through the projected centre and through the Jacobian's entries f/z and -f u/z.
fn mean_bwd<R: Real>(
    view: &Viewpoint<R>,
    chain: &Chain<R>,
    d_mean_px: [R; 2],
    d_jacobian: &[[R; 3]; 2],
) -> Vec3<R> {
    let z = chain.mean_cam[2];
    let mut d_mean_cam = [R::ZERO; 3];
    for axis in 0..2 {
        let over_z = view.focal_px[axis] / z;
        let along = chain.mean_cam[axis] / z;
        d_mean_cam[axis] += d_mean_px[axis] * over_z;
        d_mean_cam[2] -= d_mean_px[axis] * over_z * along;

        let (d_diagonal, d_last) = (d_jacobian[axis][axis], d_jacobian[axis][2]);
        d_mean_cam[2] += (d_last * chain.slope[axis] - d_diagonal) * over_z / z;
        if chain.inside[axis] {
            let d_slope = -d_last * over_z;
            d_mean_cam[axis] += d_slope / z;
            d_mean_cam[2] -= d_slope * along / z;
        }
    }
    d_mean_cam
}

// Coverage of a splat: the pixels and tiles that it may reach, and its span in rows of pixels.

/// Side of a tile, px.
pub const TILE: u32 = 16;

/// A rectangle of pixels or tiles: `x0..x1` by `y0..y1`.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Rect {
    /// First column.
    pub x0: u32,
    /// First row.
    pub y0: u32,
    /// Column after the last.
    pub x1: u32,
    /// Row after the last.
    pub y1: u32,
}

impl Rect {
    /// True if the rectangle contains nothing.
    pub fn is_empty(&self) -> bool {
        self.x0 >= self.x1 || self.y0 >= self.y1
    }

    /// Returns the intersection of two rectangles.
    #[inline]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            x0: self.x0.max(other.x0),
            y0: self.y0.max(other.y0),
            x1: self.x1.min(other.x1),
            y1: self.y1.min(other.y1),
        }
    }

    /// Returns the tiles that contain these pixels.
    pub fn tiles(&self) -> Self {
        Self {
            x0: self.x0 / TILE,
            y0: self.y0 / TILE,
            x1: self.x1.div_ceil(TILE),
            y1: self.y1.div_ceil(TILE),
        }
    }

    /// Returns the pixels of tile (`x`, `y`) in an image of this size.
    pub fn of_tile(x: u32, y: u32, size: [u32; 2]) -> Self {
        Self {
            x0: x * TILE,
            y0: y * TILE,
            x1: ((x + 1) * TILE).min(size[0]),
            y1: ((y + 1) * TILE).min(size[1]),
        }
    }
}

/// Visible extent of a splat at its opacity.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<R> {
    /// Pixels outside which its opacity is below [`ALPHA_MIN`]; may be empty between pixel centres.
    pub pixels: Rect,
    /// Exponent below which its opacity is certainly below [`ALPHA_MIN`].
    pub exponent_min: R,
}

/// Returns the bounds of an ellipse, or `None` if it is invisible.
///
/// The opacity falls to 1/255 where ½ dᵀ C d = ln(255 o), which reaches √(2 ln(255 o) cov) along each axis. A splat
/// is visible if this box, rounded up to whole pixels, meets the image, even if it contains no pixel centre. Density
/// statistics are averaged over visible splats.
pub fn bounds<R: Real>(ellipse: &Ellipse<R>, opacity: R, size: [u32; 2]) -> Option<Bounds<R>> {
    let exponent_min = exponent_min(opacity)?;
    let reach = (opacity / R::of(ALPHA_MIN)).ln();
    // Margins against rounding: bounds may be too wide, because every pixel is tested again, but never too narrow.
    let extent = [ellipse.cov_px2[0], ellipse.cov_px2[2]]
        .map(|variance| (R::TWO * reach * variance).sqrt() * R::of(1.0 + 1e-5) + R::of(1e-3));
    let mut spans = [(0, 0); 2];
    for axis in 0..2 {
        let (mean, extent, side) = (ellipse.mean_px[axis], extent[axis], size[axis]);
        let limit = R::of(f64::from(side));
        let radius = R::of(f64::from(extent.ceil_i32()));
        if !(mean + radius > R::ZERO && mean - radius < limit) {
            return None;
        }
        spans[axis] = (
            pixel_index((mean - extent - R::HALF).ceil_i32(), side),
            pixel_index((mean + extent - R::HALF).floor_i32().saturating_add(1), side),
        );
    }
    let pixels = Rect { x0: spans[0].0, x1: spans[0].1, y0: spans[1].0, y1: spans[1].1 };
    Some(Bounds { pixels, exponent_min })
}

/// Returns an exponent below which a splat of this opacity is certainly invisible; `None` if it always is.
pub(super) fn exponent_min<R: Real>(opacity: R) -> Option<R> {
    if opacity < R::of(ALPHA_MIN) || !opacity.is_finite() {
        return None;
    }
    let reach = (opacity / R::of(ALPHA_MIN)).ln();
    // The margin covers rounding: below it the search stops, above it the exact test decides.
    Some(-reach * R::of(1.0 + 1e-4) - R::of(1e-4))
}

/// Clamps an index to `0..=side`.
fn pixel_index(index: i32, side: u32) -> u32 {
    u32::try_from(index).unwrap_or(0).min(side)
}

/// Spans of columns that an ellipse covers in rows of pixels. Heights are relative to the centre and grow downwards.
#[derive(Clone, Copy, Debug)]
pub struct Spans<R> {
    /// Size of the image, px.
    size: [u32; 2],
    /// Height of the centre in the image.
    mean_y_px: R,
    /// Shift of the span's middle to the right per px of height.
    shear: R,
    /// Square of half the span through the centre.
    half_px2: R,
    /// Decrease of that square per px² of height.
    taper: R,
    /// Height of the rightmost point; the leftmost is opposite.
    tip_px: R,
    /// First column of a splat without extent, with a margin for rounding.
    left_px: R,
    /// Last column of a splat without extent, with a margin for rounding.
    right_px: R,
}

impl<R: Real> Spans<R> {
    /// Returns the spans of a splat down to an exponent, in an image of this size.
    pub fn new(ellipse: &Ellipse<R>, exponent_min: R, size: [u32; 2]) -> Self {
        let [xx, xy, yy] = ellipse.conic;
        let mean = ellipse.mean_px;
        // Kahan's difference of products, because rounded products would cancel for a long thin splat.
        let square = xy * xy;
        let det = xx.mul_add(yy, -square) - xy.mul_add(xy, -square);
        let inverse = R::ONE / xx;
        // Margins of a few units in the last place of single precision, here and below: for a far centre or a steep
        // shear, rounding exceeds a thousandth of a pixel.
        let reach = R::of(-2.000_004) * exponent_min;
        let shear = -xy * inverse;
        let height = R::of(f64::from(size[1]));
        let lever = mean[0].abs() + shear.abs() * (mean[1].abs() + height);
        let margin = R::of(4e-7) * lever + R::of(1e-3);
        Self {
            size,
            mean_y_px: mean[1],
            shear,
            half_px2: reach * inverse,
            taper: det * inverse * inverse,
            // After rounding a conic may be a hyperbola, whose tips are infinitely far.
            tip_px: -xy * (reach / (yy * det.max(R::ZERO))).sqrt(),
            left_px: mean[0] - R::HALF - margin,
            right_px: mean[0] + R::HALF + margin,
        }
    }

    /// Returns the columns of pixels whose centres the splat reaches between the centres of the first and last of
    /// these rows.
    pub fn columns(&self, rows: Range<u32>) -> Range<u32> {
        let low = R::of(f64::from(rows.start)) + R::HALF - self.mean_y_px;
        let high = R::of(f64::from(rows.end)) - R::HALF - self.mean_y_px;
        let [nearest, left, right] =
            [R::ZERO, -self.tip_px, self.tip_px].map(|height| height.max(low).min(high));
        if self.half_px2_at(nearest) < R::ZERO {
            return 0..0;
        }
        let half = |height| self.half_px2_at(height).max(R::ZERO).sqrt();
        let first = self.left_px + self.shear * left - half(left);
        let end = self.right_px + self.shear * right + half(right);
        // An overflow on the way, or NaN, gives whole rows.
        let width = R::of(f64::from(self.size[0]));
        pixel_index(first.ceil_i32(), self.size[0])
            ..pixel_index(end.min(width).floor_i32(), self.size[0])
    }

    fn half_px2_at(&self, height: R) -> R {
        self.half_px2 - self.taper * height * height
    }
}

// Share of the opacity that filters keep, on the screen and in space.

/// Smallest determinant of a covariance, px⁴. Below, a splat is invisible. It is also added to denominators (as in
/// Mip-Splatting's rasteriser).
pub const DET_MIN_PX4: f64 = 1e-6;

/// Returns the share of its opacity that a splat keeps when it is widened, from the determinants of its covariance
/// before and after (px⁴).
pub fn kept_on_screen<R: Real>(det: R, widened: R) -> R {
    kept_squared(det, widened).map_or(R::ZERO, Real::sqrt)
}

fn kept_squared<R: Real>(det: R, widened: R) -> Option<R> {
    let least = R::of(DET_MIN_PX4);
    (det > least && widened > least).then(|| det / (widened + least) + least)
}

/// Returns the gradients of both determinants from the gradient of the share's logarithm; 0 if the share is 0.
pub fn kept_on_screen_bwd<R: Real>(det: R, widened: R, d_log_kept: R) -> [R; 2] {
    let Some(squared) = kept_squared(det, widened) else { return [R::ZERO; 2] };
    let inverse = R::ONE / (widened + R::of(DET_MIN_PX4));
    let d_det = R::HALF * d_log_kept / squared * inverse;
    [d_det, -d_det * det * inverse]
}

/// Returns the scales √(s² + f²) with a 3D filter of standard deviation f (world units), and the share of its opacity
/// that the Gaussian keeps: Π s / √(s² + f²).
pub fn smoothed<R: Real>(scale: Vec3<R>, smoothing: R) -> (Vec3<R>, R) {
    let variance = smoothing * smoothing;
    // Without a filter, or if its square underflows, the scales keep all their digits.
    if variance <= R::ZERO {
        return (scale, R::ONE);
    }
    let wide = scale.map(|s| (s * s + variance).sqrt());
    (wide, scale[0] / wide[0] * (scale[1] / wide[1]) * (scale[2] / wide[2]))
}

/// Returns the gradients of the log-scales, from those of the smoothed log-scales and of the share's logarithm.
///
/// With l = ln s: ∂ ln √(s² + f²) / ∂l = s² / (s² + f²), and ∂ ln(kept) / ∂l = f² / (s² + f²).
pub fn smoothed_bwd<R: Real>(
    wide: Vec3<R>,
    smoothing: R,
    d_log_wide: Vec3<R>,
    d_log_kept: R,
) -> Vec3<R> {
    if smoothing * smoothing <= R::ZERO {
        return d_log_wide;
    }
    [0, 1, 2].map(|axis| {
        let share = smoothing / wide[axis];
        let lost = share * share;
        d_log_wide[axis] * (R::ONE - lost) + d_log_kept * lost
    })
}

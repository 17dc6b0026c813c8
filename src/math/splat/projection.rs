//! From a Gaussian in the world to an ellipse on the screen (EWA splatting, Zwicker et al. 2001).

use serde::{Deserialize, Serialize};

use crate::math::Real;
use crate::math::linalg::{
    Mat3, Quat, Sym2, Vec3, add, cross, dot, mat_mul, mul, mul_transposed, rotation, rotation_bwd,
    scale, transpose,
};
use crate::math::widening::{kept_on_screen, kept_on_screen_bwd, smoothed, smoothed_bwd};

/// Variance in px² added to every splat, so that none falls between pixel centres.
pub const DILATION_PX2: f64 = 0.3;

/// How far beyond the image's border the Jacobian is still evaluated, as a share of half its
/// width: farther out the linearisation would stretch a splat without bound.
const GUARD_BAND: f64 = 0.3;

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
    /// Depth that a Gaussian must exceed to be drawn, world units along the view axis.
    ///
    /// Towards 0 the projection's Jacobian grows as 1/z² and one splat can cover the image.
    pub near: R,
    /// Variance added to every splat along both axes, px².
    pub variance_px2: R,
    /// Whether opacity falls as a splat is widened by it.
    pub compensates: bool,
}

/// Bounds of x/z or y/z within which the Jacobian is evaluated.
#[derive(Clone, Copy, Debug)]
pub struct Guard<R> {
    /// The lower.
    pub low: R,
    /// The upper.
    pub high: R,
}

impl<R: Real> Viewpoint<R> {
    /// Where the Jacobian is evaluated along x and y.
    pub fn guard(&self) -> [Guard<R>; 2] {
        [0, 1].map(|axis| {
            let size = R::of(f64::from(self.size[axis]));
            let margin = R::of(GUARD_BAND) * R::HALF * size;
            Guard {
                low: -(self.centre_px[axis] + margin) / self.focal_px[axis],
                high: (size - self.centre_px[axis] + margin) / self.focal_px[axis],
            }
        })
    }

    /// Slopes x/z and y/z of the ray through the centre of a pixel.
    pub fn slopes(&self, pixel: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let place = R::of(f64::from(pixel[axis])) + R::HALF;
            (place - self.centre_px[axis]) / self.focal_px[axis]
        })
    }
}

/// A Gaussian's shape and place, raw parameters.
#[derive(Clone, Copy, Debug)]
pub struct Shape<R> {
    /// Centre in the world.
    pub mean_world: Vec3<R>,
    /// Natural logarithms of the scales, world units.
    pub log_scale: Vec3<R>,
    /// Rotation (w, x, y, z), of any length but zero.
    pub quat: Quat<R>,
    /// Standard deviation of its 3D filter, world units; 0 without one.
    pub smoothing: R,
}

/// The ellipse that a Gaussian projects to.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Ellipse<R> {
    /// Centre, px.
    pub mean_px: [R; 2],
    /// Depth along the view axis, world units.
    pub depth: R,
    /// Covariance, the screen filter included, px².
    pub cov_px2: Sym2<R>,
    /// Its inverse.
    pub conic: Sym2<R>,
    /// The share of the Gaussian's opacity that both filters leave.
    pub kept: R,
}

/// What forward and backward share: everything between the shape and its ellipse.
struct Chain<R> {
    mean_cam: Vec3<R>,
    /// x/z and y/z clamped to the guard band, and whether they were inside.
    slope: [R; 2],
    inside: [bool; 2],
    /// J, 2x3.
    jacobian: [[R; 3]; 2],
    /// Rotation from the Gaussian's axes to the camera's.
    cam_from_axes: Mat3<R>,
    /// With the 3D filter.
    scale: Vec3<R>,
    /// The share of the opacity that the filter leaves.
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

/// Projects a Gaussian; `None` if it is not beyond [`Viewpoint::near`] or a parameter is
/// not finite.
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

/// A Aᵀ with the screen filter's variance on its diagonal, its determinant, and that without the
/// filter.
struct Covariance<R> {
    cov: Sym2<R>,
    det: R,
    sharp_det: R,
}

/// A Aᵀ with the screen filter's variance on its diagonal, and the determinants.
///
/// For long thin splats xx yy - xy² would cancel all digits of single precision. Lagrange's
/// identity |a|² |b|² - (a·b)² = |a x b|² leaves a sum of positive terms.
fn covariance<R: Real>(view: &Viewpoint<R>, root: &[Vec3<R>; 2]) -> Covariance<R> {
    let [a, b] = *root;
    let variance = view.variance_px2;
    let (aa, bb) = (dot(a, a), dot(b, b));
    let area = cross(a, b);
    let sharp_det = dot(area, area);
    let det = sharp_det + variance * (aa + bb) + variance * variance;
    Covariance { cov: [aa + variance, dot(a, b), bb + variance], det, sharp_det }
}

/// Gradients of [`Shape`], raw parameters.
#[derive(Clone, Copy, Debug)]
pub struct ShapeGradient<R> {
    /// Of the centre in the world.
    pub d_mean_world: Vec3<R>,
    /// Of the logarithms of the scales.
    pub d_log_scale: Vec3<R>,
    /// Of the quaternion as stored.
    pub d_quat: Quat<R>,
}

/// Gradients of [`Ellipse`].
#[derive(Clone, Copy, Debug)]
pub struct EllipseGradient<R> {
    /// Of the centre, per px.
    pub d_mean_px: [R; 2],
    /// Of the conic; xy counted once.
    pub d_conic: Sym2<R>,
    /// Of the logarithm of the kept share of the opacity.
    pub d_log_kept: R,
    /// Of the depth.
    pub d_depth: R,
}

/// `d_shape` of [`project`].
///
/// `None` exactly where [`project`] gives `None`.
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

/// `d_cov` (xx, xy, yy; xy counted once) of the inverse of a matrix with this determinant.
fn conic_bwd<R: Real>([xx, xy, yy]: Sym2<R>, det: R, d_conic: Sym2<R>) -> Sym2<R> {
    let inverse_det = R::ONE / det;
    let shared = (d_conic[0] * yy - d_conic[1] * xy + d_conic[2] * xx) * inverse_det;
    [
        (d_conic[2] - shared * yy) * inverse_det,
        (R::TWO * shared * xy - d_conic[1]) * inverse_det,
        (d_conic[0] - shared * xx) * inverse_det,
    ]
}

/// `d_root` of the determinants of A Aᵀ, of which |a x b|² is in both, and the variance times
/// |a|² + |b|² in the second. Like the determinants themselves, without a difference of products.
fn det_bwd<R: Real>([a, b]: [Vec3<R>; 2], variance: R, d_area: R, d_det: R) -> [Vec3<R>; 2] {
    let area = cross(a, b);
    let (d_area, d_det) = (R::TWO * d_area, R::TWO * d_det * variance);
    [
        add(scale(cross(b, area), d_area), scale(a, d_det)),
        add(scale(cross(area, a), d_area), scale(b, d_det)),
    ]
}

/// `d_mean_cam` through the projected centre and through the Jacobian's entries f/z and -f u/z.
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

//! Whether the depths that Gaussians draw and the normals that they draw are of one surface (depth-normal
//! consistency; 2D Gaussian splatting, Huang et al. 2024, equation 14, as SuGaR took it over).
//!
//! A Gaussian's normal is its shortest axis, turned towards the camera. What is blended of the normals
//! has only x and y, from which z follows; what is blended is not divided by the opacity here.
//! All is in camera axes, z along the view.

use super::Real;
use super::linalg::{
    Mat3, Quat, Vec3, add, dot, mul, mul_transposed, normalize, normalize_bwd, rotation,
    rotation_bwd,
};
use super::splat::{Shape, Viewpoint};

/// Which axis is the shortest; of equal ones the first.
#[inline]
pub fn shortest_axis<R: Real>(log_scale: Vec3<R>) -> usize {
    let first = usize::from(log_scale[1] < log_scale[0]);
    if log_scale[2] < log_scale[first] { 2 } else { first }
}

/// The shape with its third axis the shortest, whatever its scales are: that of a surfel.
#[inline]
pub fn flat<R: Real>(shape: &Shape<R>) -> Shape<R> {
    Shape { log_scale: [R::ONE, R::ONE, R::ZERO], ..*shape }
}

/// The Gaussian's shortest axis in camera axes, before it is turned, and the sign that turns it towards
/// the camera; an axis across the line of sight stays.
fn axis_cam<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> (Vec3<R>, R) {
    let axis = shortest_axis(shape.log_scale);
    let axis_cam = mul(&view.rotation, rotation(shape.quat).map(|row| row[axis]));
    let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
    let sign = if dot(axis_cam, mean_cam) > R::ZERO { -R::ONE } else { R::ONE };
    (axis_cam, sign)
}

/// Unit normal of a Gaussian, in camera axes and towards the camera.
pub fn facing_normal<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Vec3<R> {
    let (axis, sign) = axis_cam(view, shape);
    axis.map(|a| a * sign)
}

/// `d_quat` of [`facing_normal`]; which axis it is and where it is turned to have no gradient.
pub fn facing_normal_bwd<R: Real>(
    view: &Viewpoint<R>,
    shape: &Shape<R>,
    d_normal: Vec3<R>,
) -> Quat<R> {
    let (_, sign) = axis_cam(view, shape);
    let d_axis = mul_transposed(&view.rotation, d_normal.map(|d| d * sign));
    let mut d_rotation: Mat3<R> = [[R::ZERO; 3]; 3];
    for (row, d) in d_rotation.iter_mut().zip(d_axis) {
        row[shortest_axis(shape.log_scale)] = d;
    }
    rotation_bwd(shape.quat, &d_rotation)
}

/// Normal of a pixel from what is blended of the normals' x and y. What is not blended counts as facing
/// the camera; x and y longer than 1 give a normal across the view.
#[inline]
pub fn blended_normal<R: Real>([x, y]: [R; 2]) -> Vec3<R> {
    [x, y, -(R::ONE - (x * x + y * y).min(R::ONE)).sqrt()]
}

/// `d_xy` of [`blended_normal`]; no gradient passes z where it was clamped to 0.
#[inline]
pub fn blended_normal_bwd<R: Real>([x, y]: [R; 2], d_normal: Vec3<R>) -> [R; 2] {
    let squared = R::ONE - (x * x + y * y);
    let through_z = if squared > R::ZERO { d_normal[2] / squared.sqrt() } else { R::ZERO };
    [d_normal[0] + x * through_z, d_normal[1] + y * through_z]
}

/// How steeply depth rises along an axis of the image: the difference of the depths of the two pixels
/// beside one, over their mean and over the two pixels' distance at depth 1. `None` if neither has
/// a depth.
#[inline]
pub fn slope<R: Real>(focal_px: R, before: R, after: R) -> Option<R> {
    let sum = before + after;
    (sum > R::ZERO).then(|| focal_px * (after - before) / sum)
}

/// `d_before` and `d_after` of a [`slope`] that exists.
#[inline]
pub fn slope_bwd<R: Real>(focal_px: R, before: R, after: R, d_slope: R) -> [R; 2] {
    let sum = before + after;
    let d = R::TWO * focal_px * d_slope / sum;
    [-d * (after / sum), d * (before / sum)]
}

/// Least opacity of a pixel that shows a surface: through a more transparent one, mostly the background is seen.
pub const OPAQUE_MIN: f64 = 0.5;

/// Most that the depths of two pixels side by side on one surface differ, in widths of a pixel at the nearer
/// depth: a surface that is seen at less than 14 degrees has no normal.
pub const STEP_MAX: f64 = 4.0;

/// True if two depths side by side are of one surface, and not on both sides of an outline. A depth that is
/// missing is 0, and of no surface.
#[inline]
pub fn is_smooth<R: Real>(focal_px: R, depth: R, beside: R) -> bool {
    let nearer = depth.min(beside);
    nearer > R::ZERO && focal_px * (beside - depth).abs() <= R::of(STEP_MAX) * nearer
}

/// Normal of the surface that a map of depths shows, from its slopes along x and y and the pixel's ray,
/// x/z and y/z.
///
/// With the points P = z (ray, 1) of the four pixels beside one, this is the direction of their
/// difference downwards times their difference to the right. Written out, that product is (q a, p b,
/// -(p q + q a rx + p b ry)), where a and b are the differences of the depths and p and q the lengths in
/// the world of two pixels at their mean depths; divided by p q, nothing is left that cancels.
#[inline]
pub fn surface_normal<R: Real>(slopes: [R; 2], ray: [R; 2]) -> Vec3<R> {
    normalize(upright(slopes, ray))
}

/// `d_slopes` of [`surface_normal`].
#[inline]
pub fn surface_normal_bwd<R: Real>(slopes: [R; 2], ray: [R; 2], d_normal: Vec3<R>) -> [R; 2] {
    let d = normalize_bwd(upright(slopes, ray), d_normal);
    [d[0] - ray[0] * d[2], d[1] - ray[1] * d[2]]
}

/// The normal before it is brought to length 1; never 0.
#[inline]
fn upright<R: Real>([along_x, along_y]: [R; 2], ray: [R; 2]) -> Vec3<R> {
    [along_x, along_y, -(R::ONE + along_x * ray[0] + along_y * ray[1])]
}

/// What a component of a stored normal is multiplied by.
pub const STORED_ONE: f64 = 127.0;

/// Least squared length of a stored vector that is a normal: half of a unit normal's length.
pub const STORED_SQUARE_MIN: f64 = STORED_ONE * STORED_ONE / 4.0;

/// The unit normal that a map has at a pixel, from its components times [`STORED_ONE`]; nothing where these
/// are short. Means over pixels without normals, or with opposite ones, are short.
#[inline]
pub fn mapped_normal<R: Real>(stored: [i8; 3]) -> Option<Vec3<R>> {
    let vector = stored.map(|component| R::of(f64::from(component)));
    (dot(vector, vector) >= R::of(STORED_SQUARE_MIN)).then(|| normalize(vector))
}

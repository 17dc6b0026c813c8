//! Depth-normal consistency (2D Gaussian splatting, Huang et al. 2024, equation 14, in SuGaR's version): agreement of
//! the normals that Gaussians draw with the surface that their depths form.
//!
//! A Gaussian's normal is its shortest axis, flipped towards the camera. Only x and y are blended, not divided by the
//! opacity; z follows from them. All vectors are in camera axes, z along the view.

use super::Real;
use super::linalg::{
    Mat3, Quat, Vec3, add, dot, mul, mul_transposed, normalize, normalize_bwd, rotation,
    rotation_bwd,
};
use super::splat::{Shape, Viewpoint};

/// Returns the index of the shortest axis by scales or log-scales; the first of equal ones.
#[inline]
pub fn shortest_axis<R: Real>(scale: Vec3<R>) -> usize {
    let first = usize::from(scale[1] < scale[0]);
    if scale[2] < scale[first] { 2 } else { first }
}

/// Returns the shape with its third axis as the shortest, which is a surfel's normal.
#[inline]
pub fn flat<R: Real>(shape: &Shape<R>) -> Shape<R> {
    Shape { log_scale: [R::ONE, R::ONE, R::ZERO], ..*shape }
}

/// Returns the Gaussian's shortest axis in camera axes, and the sign that flips it towards the camera (1 for an axis
/// across the line of sight).
fn axis_cam<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> (Vec3<R>, R) {
    let axis = shortest_axis(shape.log_scale);
    let axis_cam = mul(&view.rotation, rotation(shape.quat).map(|row| row[axis]));
    let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
    let sign = if dot(axis_cam, mean_cam) > R::ZERO { -R::ONE } else { R::ONE };
    (axis_cam, sign)
}

/// Returns the unit normal of a Gaussian, in camera axes and towards the camera.
pub fn facing_normal<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Vec3<R> {
    let (axis, sign) = axis_cam(view, shape);
    axis.map(|a| a * sign)
}

/// Returns `d_quat` of [`facing_normal`]. The choice of axis and sign has no gradient.
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

/// Returns a pixel's normal from the blended x and y of normals. The transparent share counts as facing the camera.
/// If x and y are longer than 1, z is 0.
#[inline]
pub fn blended_normal<R: Real>([x, y]: [R; 2]) -> Vec3<R> {
    [x, y, -(R::ONE - (x * x + y * y).min(R::ONE)).sqrt()]
}

/// Returns `d_xy` of [`blended_normal`]; no gradient passes z where it was clamped to 0.
#[inline]
pub fn blended_normal_bwd<R: Real>([x, y]: [R; 2], d_normal: Vec3<R>) -> [R; 2] {
    let squared = R::ONE - (x * x + y * y);
    let through_z = if squared > R::ZERO { d_normal[2] / squared.sqrt() } else { R::ZERO };
    [d_normal[0] + x * through_z, d_normal[1] + y * through_z]
}

/// Returns the slope of the depth along an image axis: the difference of the depths of a pixel's two neighbours over
/// their mean and over their distance at depth 1. `None` if neither has a depth.
#[inline]
pub fn slope<R: Real>(focal_px: R, before: R, after: R) -> Option<R> {
    let sum = before + after;
    (sum > R::ZERO).then(|| focal_px * (after - before) / sum)
}

/// Returns `d_before` and `d_after` of a [`slope`] that exists.
#[inline]
pub fn slope_bwd<R: Real>(focal_px: R, before: R, after: R, d_slope: R) -> [R; 2] {
    let sum = before + after;
    let d = R::TWO * focal_px * d_slope / sum;
    [-d * (after / sum), d * (before / sum)]
}

/// Smallest opacity of a pixel that shows a surface. Lower opacities mostly show the background.
pub const OPAQUE_MIN: f64 = 0.5;

/// Largest depth difference of neighbouring pixels on one surface, in pixel widths at the nearer depth. Surfaces seen
/// at less than 14 degrees have no normal.
pub const STEP_MAX: f64 = 4.0;

/// True if two neighbouring depths lie on one surface, not across an outline. A missing depth is 0 and on no surface.
#[inline]
pub fn is_smooth<R: Real>(focal_px: R, depth: R, beside: R) -> bool {
    let nearer = depth.min(beside);
    nearer > R::ZERO && focal_px * (beside - depth).abs() <= R::of(STEP_MAX) * nearer
}

/// Returns the unit normal of a depth map's surface from its slopes along x and y and the pixel's ray (x/z, y/z).
///
/// With P = z (ray, 1) the points of a pixel's four neighbours, the normal has the direction of the cross product of
/// the vertical and the horizontal difference of P: (q a, p b, -(p q + q a rx + p b ry)), where a and b are the depth
/// differences and p and q the world lengths of two pixels at the mean depths. Divided by p q, no term cancels.
#[inline]
pub fn surface_normal<R: Real>(slopes: [R; 2], ray: [R; 2]) -> Vec3<R> {
    normalize(upright(slopes, ray))
}

/// Returns `d_slopes` of [`surface_normal`].
#[inline]
pub fn surface_normal_bwd<R: Real>(slopes: [R; 2], ray: [R; 2], d_normal: Vec3<R>) -> [R; 2] {
    let d = normalize_bwd(upright(slopes, ray), d_normal);
    [d[0] - ray[0] * d[2], d[1] - ray[1] * d[2]]
}

/// Returns the normal before normalisation, which is never 0.
#[inline]
fn upright<R: Real>([along_x, along_y]: [R; 2], ray: [R; 2]) -> Vec3<R> {
    [along_x, along_y, -(R::ONE + along_x * ray[0] + along_y * ray[1])]
}

/// Factor of a stored normal's components.
pub const STORED_ONE: f64 = 127.0;

/// Smallest squared length of a stored vector that is a normal: half the length of a unit normal.
pub const STORED_SQUARE_MIN: f64 = STORED_ONE * STORED_ONE / 4.0;

/// Returns the unit normal of a map's pixel, from its components times [`STORED_ONE`]; `None` if the vector is short.
/// Means over pixels without normals, or with opposite ones, are short.
#[inline]
pub fn mapped_normal<R: Real>(stored: [i8; 3]) -> Option<Vec3<R>> {
    let vector = stored.map(|component| R::of(f64::from(component)));
    (dot(vector, vector) >= R::of(STORED_SQUARE_MIN)).then(|| normalize(vector))
}

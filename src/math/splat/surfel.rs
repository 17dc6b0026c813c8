//! From a flat Gaussian in the world to what rays meet of it: a surfel (2D Gaussian splatting, Huang et al.
//! 2024, section 4).
//!
//! A Gaussian without its third scale is a disc: the places m + s₁ u e₁ + s₂ v e₂ in camera axes, with a
//! density of e^-(u² + v²)/2. The ray of a pixel meets its plane in one place. The paper finds u and v by
//! intersecting two planes for each pixel. Here the homography from pixels to (u, v) is inverted once, and
//! taken about the projected centre, where u and v are 0. With d the pixel less that centre,
//!
//! u = (a·d) / (1 + g·d), v = (b·d) / (1 + g·d), and the depth there is z / (1 + g·d),
//!
//! z being the centre's depth, n = e₁ x e₂, and with x and y of these vectors times z / (f n·m)
//!
//! a = (e₂ x m) / s₁, b = (m x e₁) / s₂, g = n.
//!
//! Where a disc is seen from its edge, or from afar, it would fall between the centres of pixels. There the
//! Gaussian of variance ½ px² about the projected centre is taken, whichever of both is larger
//! (section 4.2), at the centre's depth.

use serde::{Deserialize, Serialize};

use super::coverage::Bounds;
use super::projection::{Ellipse, Shape, ShapeGradient, Viewpoint};
use super::{bounds, coverage};
use crate::math::Real;
use crate::math::linalg::{
    Mat3, Vec3, add, cross, dot, length, mat_mul, mul, mul_transposed, rotation, rotation_bwd,
    scale, transpose,
};

/// Least cosine between the normal and the line of sight: a disc nearer to its edge is not seen.
pub const SURFEL_FACING_MIN: f64 = 1e-5;

/// A surfel on the screen; see the head of this file.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Surfel<R> {
    /// Centre, px.
    pub mean_px: [R; 2],
    /// Depth of the centre along the view axis, world units.
    pub depth: R,
    /// a: slope of u at the centre, per px.
    pub along_u: [R; 2],
    /// b: slope of v at the centre, per px.
    pub along_v: [R; 2],
    /// g: relative slope of the inverse depth, per px.
    pub tilt: [R; 2],
}

/// Gradients of [`Surfel`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SurfelGradient<R> {
    /// Of the centre, per px.
    pub d_mean_px: [R; 2],
    /// Of the centre's depth.
    pub d_depth: R,
    /// Of the slope of u.
    pub d_along_u: [R; 2],
    /// Of the slope of v.
    pub d_along_v: [R; 2],
    /// Of the relative slope of the inverse depth.
    pub d_tilt: [R; 2],
}

/// What forward and backward share.
struct SurfelChain<R> {
    mean_cam: Vec3<R>,
    /// The disc's axes and its normal, camera axes.
    axes: [Vec3<R>; 3],
    /// Their normal times the centre.
    facing: R,
    inverse_scale: [R; 2],
    /// a, b and g before they are brought to pixels.
    in_space: [Vec3<R>; 3],
    /// z / (f n·m), x and y.
    per_px: [R; 2],
}

fn chain<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Option<SurfelChain<R>> {
    let mean_cam = add(mul(&view.rotation, shape.mean_world), view.translation);
    let z = mean_cam[2];
    // Written so that NaN is rejected too.
    if !(z > view.near && z.is_finite()) {
        return None;
    }
    let cam_from_axes = mat_mul(&view.rotation, &rotation(shape.quat));
    let [first, second] = [0, 1].map(|axis| cam_from_axes.map(|row| row[axis]));
    let normal = cross(first, second);
    let facing = dot(normal, mean_cam);
    let is_facing = facing.abs() > R::of(SURFEL_FACING_MIN) * length(mean_cam);
    if !is_facing {
        return None;
    }
    let inverse_scale = [0, 1].map(|axis| (-shape.log_scale[axis]).exp());
    let in_space = [
        scale(cross(second, mean_cam), inverse_scale[0]),
        scale(cross(mean_cam, first), inverse_scale[1]),
        normal,
    ];
    let per_px = view.focal_px.map(|focal| z / (focal * facing));
    let axes = [first, second, normal];
    Some(SurfelChain { mean_cam, axes, facing, inverse_scale, in_space, per_px })
}

/// Projects a flat Gaussian; `None` if it is not beyond [`Viewpoint::near`], is seen from its edge, or a
/// parameter is not finite.
pub fn project_surfel<R: Real>(view: &Viewpoint<R>, shape: &Shape<R>) -> Option<Surfel<R>> {
    surfel(view, &chain(view, shape)?)
}

fn surfel<R: Real>(view: &Viewpoint<R>, chain: &SurfelChain<R>) -> Option<Surfel<R>> {
    let SurfelChain { mean_cam: [x, y, z], per_px, .. } = *chain;
    let mean_px = [
        view.focal_px[0] * x / z + view.centre_px[0],
        view.focal_px[1] * y / z + view.centre_px[1],
    ];
    let [along_u, along_v, tilt] =
        chain.in_space.map(|vector| [vector[0] * per_px[0], vector[1] * per_px[1]]);
    let finite = [mean_px, along_u, along_v, tilt].as_flattened().iter().all(|v| v.is_finite());
    finite.then_some(Surfel { mean_px, depth: z, along_u, along_v, tilt })
}

/// `d_shape` of [`project_surfel`]; the third scale has none.
///
/// `None` exactly where [`project_surfel`] gives `None`.
pub fn project_surfel_bwd<R: Real>(
    view: &Viewpoint<R>,
    shape: &Shape<R>,
    d_surfel: &SurfelGradient<R>,
) -> Option<ShapeGradient<R>> {
    let chain = chain(view, shape)?;
    surfel(view, &chain)?;
    let SurfelChain { mean_cam, axes: [first, second, normal], facing, .. } = chain;
    let z = mean_cam[2];
    let SurfelGradient { d_mean_px, d_depth, d_along_u, d_along_v, d_tilt } = *d_surfel;

    // Through z / (f n·m), which x and y of all three have in common.
    let mut d_mean_cam = [R::ZERO, R::ZERO, d_depth];
    let d_per_px = [0, 1].map(|k| {
        chain.in_space[0][k] * d_along_u[k]
            + chain.in_space[1][k] * d_along_v[k]
            + chain.in_space[2][k] * d_tilt[k]
    });
    let d_log_per_px = d_per_px[0] * chain.per_px[0] + d_per_px[1] * chain.per_px[1];
    d_mean_cam[2] += d_log_per_px / z;
    let d_facing = -d_log_per_px / facing;

    let to_space = |d: [R; 2]| [d[0] * chain.per_px[0], d[1] * chain.per_px[1], R::ZERO];
    let [d_u, d_v] = [to_space(d_along_u), to_space(d_along_v)];
    let d_log_scale = [-dot(chain.in_space[0], d_u), -dot(chain.in_space[1], d_v), R::ZERO];
    // Of the cross products: c = a x b gives d_a = b x d_c and d_b = d_c x a.
    let [d_u, d_v] = [scale(d_u, chain.inverse_scale[0]), scale(d_v, chain.inverse_scale[1])];
    let d_normal = add(to_space(d_tilt), scale(mean_cam, d_facing));
    d_mean_cam = add(d_mean_cam, add(cross(d_u, second), cross(first, d_v)));
    d_mean_cam = add(d_mean_cam, scale(normal, d_facing));
    let d_first = add(cross(d_v, mean_cam), cross(second, d_normal));
    let d_second = add(cross(mean_cam, d_u), cross(d_normal, first));

    let over_z = view.focal_px.map(|focal| focal / z);
    for axis in 0..2 {
        let d_along = d_mean_px[axis] * over_z[axis];
        d_mean_cam[axis] += d_along;
        d_mean_cam[2] -= d_along * mean_cam[axis] / z;
    }
    let d_cam_from_axes: Mat3<R> = [0, 1, 2].map(|i| [d_first[i], d_second[i], R::ZERO]);
    let d_rotation = mat_mul(&transpose(&view.rotation), &d_cam_from_axes);
    Some(ShapeGradient {
        d_mean_world: mul_transposed(&view.rotation, d_mean_cam),
        d_log_scale,
        d_quat: rotation_bwd(shape.quat, &d_rotation),
    })
}

/// Where a ray meets a surfel.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<R> {
    /// -½ (u² + v²), or that of the filter where it is larger.
    pub exponent: R,
    /// The depth there over that of the centre: 1 / (1 + g·d).
    pub depth_share: R,
    /// u and v; `None` where the filter decides.
    pub on_disc: Option<[R; 2]>,
}

impl<R: Real> Surfel<R> {
    /// Where the ray through the place at this offset from the centre meets it.
    #[inline]
    pub fn meet(&self, offset_px: [R; 2]) -> Meeting<R> {
        let along = |slope: [R; 2]| slope[0] * offset_px[0] + slope[1] * offset_px[1];
        let filtered = -(offset_px[0] * offset_px[0] + offset_px[1] * offset_px[1]);
        let inverse_share = R::ONE + along(self.tilt);
        if inverse_share > R::ZERO {
            let depth_share = R::ONE / inverse_share;
            let on_disc = [along(self.along_u) * depth_share, along(self.along_v) * depth_share];
            let exponent = -R::HALF * (on_disc[0] * on_disc[0] + on_disc[1] * on_disc[1]);
            if exponent >= filtered {
                return Meeting { exponent, depth_share, on_disc: Some(on_disc) };
            }
        }
        Meeting { exponent: filtered, depth_share: R::ONE, on_disc: None }
    }

    /// Adds to the gradients of the surfel those of a meeting; `d_inverse_share` is that of 1 + g·d besides
    /// what the exponent gives it. Returns the gradient of the centre that the exponent alone gives.
    #[inline]
    pub fn meet_bwd(
        &self,
        offset_px: [R; 2],
        meeting: &Meeting<R>,
        d_exponent: R,
        d_inverse_share: R,
        sums: &mut SurfelGradient<R>,
    ) -> [R; 2] {
        let Some([u, v]) = meeting.on_disc else {
            let d_mean_px = offset_px.map(|d| R::TWO * d * d_exponent);
            add_two(&mut sums.d_mean_px, d_mean_px);
            return d_mean_px;
        };
        let share = meeting.depth_share;
        // Of a·d, b·d and 1 + g·d.
        let d_u = -u * d_exponent * share;
        let d_v = -v * d_exponent * share;
        let d_inverse = -(u * d_u + v * d_v);
        let d_mean_of = |d_inverse: R| {
            [0, 1].map(|k| {
                -(self.along_u[k] * d_u + self.along_v[k] * d_v + self.tilt[k] * d_inverse)
            })
        };
        let all = d_inverse + d_inverse_share;
        add_two(&mut sums.d_mean_px, d_mean_of(all));
        add_two(&mut sums.d_along_u, offset_px.map(|d| d * d_u));
        add_two(&mut sums.d_along_v, offset_px.map(|d| d * d_v));
        add_two(&mut sums.d_tilt, offset_px.map(|d| d * all));
        d_mean_of(d_inverse)
    }

    /// An ellipse that contains all places where the exponent is at least `exponent_min`, at which its own
    /// exponent is that; `None` where the disc reaches behind the camera before.
    ///
    /// (a·d)² + (b·d)² ≤ t² (1 + g·d)² with t² = -2 `exponent_min` is an ellipse where
    /// K = a aᵀ + b bᵀ - t² g gᵀ is positive definite. If the filter's circle does not lie in it, the
    /// circle's squared radius is added along all axes.
    pub fn cover(&self, exponent_min: R) -> Option<Ellipse<R>> {
        let Self { along_u: a, along_v: b, tilt: g, .. } = *self;
        let reach2 = -R::TWO * exponent_min;
        let area = |p: [R; 2], q: [R; 2]| p[0] * q[1] - p[1] * q[0];
        let k = |i: usize, j: usize| a[i] * a[j] + b[i] * b[j] - reach2 * g[i] * g[j];
        let [xx, xy, yy] = [k(0, 0), k(0, 1), k(1, 1)];
        // Without the difference of products that xx yy - xy² would be.
        let [of_disc, of_u, of_v] = [area(a, b), area(a, g), area(b, g)];
        let det = of_disc * of_disc - reach2 * (of_u * of_u + of_v * of_v);
        if !(det > R::ZERO && xx > R::ZERO && yy > R::ZERO) {
            return None;
        }
        let inverse = [yy / det, -xy / det, xx / det];
        let turned = [inverse[0] * g[0] + inverse[1] * g[1], inverse[1] * g[0] + inverse[2] * g[1]];
        let shift = turned.map(|t| reach2 * t);
        let widened = R::ONE + reach2 * (g[0] * turned[0] + g[1] * turned[1]);
        let mut cov = inverse.map(|entry| entry * widened);
        let radius = R::HALF.sqrt() + ((shift[0] * shift[0] + shift[1] * shift[1]) / reach2).sqrt();
        let radius2 = radius * radius;
        // The smaller eigenvalue is at least that: neither root nor difference is needed.
        let (mut cov_det, trace) = (widened * widened / det, cov[0] + cov[2]);
        let holds_the_circle = cov_det >= radius2 * trace;
        if !holds_the_circle {
            cov_det += radius2 * (trace + radius2);
            cov[0] += radius2;
            cov[2] += radius2;
        }
        let det = cov_det;
        let conic = [cov[2] / det, -cov[1] / det, cov[0] / det];
        let mean_px = [self.mean_px[0] + shift[0], self.mean_px[1] + shift[1]];
        let finite = det > R::ZERO
            && det.is_finite()
            && mean_px.iter().chain(&conic).all(|value| value.is_finite());
        let kept = R::ONE;
        finite.then_some(Ellipse { mean_px, depth: self.depth, cov_px2: cov, conic, kept })
    }

    /// What covers it at this opacity, and where it can be seen; `None` if it cannot at all.
    pub fn bounds(&self, opacity: R, size: [u32; 2]) -> Option<(Ellipse<R>, Bounds<R>)> {
        let exponent_min = coverage::exponent_min(opacity)?;
        let cover = self.cover(exponent_min)?;
        Some((cover, bounds(&cover, opacity, size)?))
    }
}

fn add_two<R: Real>(sums: &mut [R; 2], values: [R; 2]) {
    sums[0] += values[0];
    sums[1] += values[1];
}

#[cfg(test)]
mod tests;

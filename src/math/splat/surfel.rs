//! Projection of a flat Gaussian (surfel), and its intersection with rays (2D Gaussian splatting, Huang et al. 2024,
//! section 4).
//!
//! A Gaussian without its third scale is a disc: the points m + s₁ u e₁ + s₂ v e₂ in camera axes, with density
//! e^(-½ (u² + v²)). The ray of a pixel meets its plane in one point. The paper intersects two planes per pixel to find
//! u and v. Here the homography from pixels to (u, v) is inverted once, about the projected centre, where both are 0.
//! With d the pixel minus that centre,
//!
//! u = (a·d) / (1 + g·d), v = (b·d) / (1 + g·d), and the depth is z / (1 + g·d),
//!
//! where z is the centre's depth and n = e₁ x e₂. With x and y of these vectors times z / (f n·m),
//!
//! a = (e₂ x m) / s₁, b = (m x e₁) / s₂, g = n.
//!
//! A disc that is seen edge-on or from afar would fall between pixel centres. So the larger density of the disc and
//! of a Gaussian of variance ½ px² about the projected centre, at the centre's depth, is taken (section 4.2).

use serde::{Deserialize, Serialize};

use super::bounds;
use super::projection::{self, Bounds, Ellipse, Shape, ShapeGradient, Viewpoint};
use crate::math::Real;
use crate::math::linalg::{
    Mat3, Vec3, add, add_to, cross, dot, length, mat_mul, mul, mul_transposed, rotation,
    rotation_bwd, scale, transpose,
};

/// Smallest cosine between the normal and the line of sight of a visible disc.
pub const SURFEL_FACING_MIN: f64 = 1e-5;

/// A surfel on the screen (see the module documentation).
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
    /// Gradient of the centre, per px.
    pub d_mean_px: [R; 2],
    /// Gradient of the centre's depth.
    pub d_depth: R,
    /// Gradient of the slope of u.
    pub d_along_u: [R; 2],
    /// Gradient of the slope of v.
    pub d_along_v: [R; 2],
    /// Gradient of the relative slope of the inverse depth.
    pub d_tilt: [R; 2],
}

/// Intermediate values of the projection, for both passes.
struct SurfelChain<R> {
    mean_cam: Vec3<R>,
    /// Axes of the disc and its normal, camera axes.
    axes: [Vec3<R>; 3],
    /// Dot product of normal and centre.
    facing: R,
    inverse_scale: [R; 2],
    /// a, b and g in space, before their scaling to pixels.
    in_space: [Vec3<R>; 3],
    /// z / (f n·m) along x and y.
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

/// Projects a flat Gaussian; `None` if it is not beyond [`Viewpoint::near`], is seen edge-on, or a parameter is not
/// finite.
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

/// Returns `d_shape` of [`project_surfel`], with 0 for the third scale; `None` exactly if [`project_surfel`] returns
/// `None`.
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

    // Through the common factor z / (f n·m).
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
    // Cross products: c = a x b gives d_a = b x d_c and d_b = d_c x a.
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

/// Intersection of a ray with a surfel.
#[derive(Clone, Copy, Debug)]
pub struct Meeting<R> {
    /// -½ (u² + v²), or the filter's exponent if that is larger.
    pub exponent: R,
    /// Depth of the intersection over the depth of the centre: 1 / (1 + g·d).
    pub depth_share: R,
    /// u and v; `None` if the filter decides.
    pub on_disc: Option<[R; 2]>,
}

impl<R: Real> Surfel<R> {
    /// Intersects the ray at this offset from the centre with the surfel.
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

    /// Adds the gradients of an intersection to `sums`. `d_inverse_share` is the gradient of 1 + g·d besides the
    /// exponent's part. Returns the gradient of the centre that the exponent alone gives.
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
            add_to(&mut sums.d_mean_px, &d_mean_px);
            return d_mean_px;
        };
        let share = meeting.depth_share;
        // Gradients of a·d, b·d and 1 + g·d.
        let d_u = -u * d_exponent * share;
        let d_v = -v * d_exponent * share;
        let d_inverse = -(u * d_u + v * d_v);
        let d_mean_of = |d_inverse: R| {
            [0, 1].map(|k| {
                -(self.along_u[k] * d_u + self.along_v[k] * d_v + self.tilt[k] * d_inverse)
            })
        };
        let all = d_inverse + d_inverse_share;
        add_to(&mut sums.d_mean_px, &d_mean_of(all));
        add_to(&mut sums.d_along_u, &offset_px.map(|d| d * d_u));
        add_to(&mut sums.d_along_v, &offset_px.map(|d| d * d_v));
        add_to(&mut sums.d_tilt, &offset_px.map(|d| d * all));
        d_mean_of(d_inverse)
    }

    /// Returns an ellipse that contains all points whose exponent is at least `exponent_min`, with `exponent_min` as
    /// its own exponent on the border; `None` if the disc reaches behind the camera.
    ///
    /// (a·d)² + (b·d)² ≤ t² (1 + g·d)² with t² = -2 `exponent_min` is an ellipse if K = a aᵀ + b bᵀ - t² g gᵀ is
    /// positive definite. If it does not contain the filter's circle, the circle's squared radius is added along all
    /// axes.
    pub fn cover(&self, exponent_min: R) -> Option<Ellipse<R>> {
        let Self { along_u: a, along_v: b, tilt: g, .. } = *self;
        let reach2 = -R::TWO * exponent_min;
        let area = |p: [R; 2], q: [R; 2]| p[0] * q[1] - p[1] * q[0];
        let k = |i: usize, j: usize| a[i] * a[j] + b[i] * b[j] - reach2 * g[i] * g[j];
        let [xx, xy, yy] = [k(0, 0), k(0, 1), k(1, 1)];
        // Avoids the difference of products xx yy - xy².
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
        // A lower bound of the smaller eigenvalue, which needs neither root nor difference.
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

    /// Returns the covering ellipse at this opacity and its bounds; `None` if the surfel is invisible.
    pub fn bounds(&self, opacity: R, size: [u32; 2]) -> Option<(Ellipse<R>, Bounds<R>)> {
        let exponent_min = projection::exponent_min(opacity)?;
        let cover = self.cover(exponent_min)?;
        Some((cover, bounds(&cover, opacity, size)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::{assert_near, central};
    use crate::math::linalg::{normalize, sub};
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::splat::triangle::tests::view;

    /// Returns flat Gaussians in front of the camera, from a tenth of a pixel to half of the image.
    fn shapes() -> Vec<Shape<f64>> {
        let stream = RandomStream::new(5, 0, RandomUse::Initialise);
        let draw =
            |i: u64, k: u64, low: f64, high: f64| low + (high - low) * stream.uniform(i * 16 + k);
        (0..200)
            .map(|i| Shape {
                mean_world: [0, 1, 2].map(|k| draw(i, k, -0.8, 0.8)),
                log_scale: [draw(i, 3, -6.5, -0.8), draw(i, 4, -6.5, -0.8), draw(i, 5, -20.0, 3.0)],
                quat: [6, 7, 8, 9].map(|k| draw(i, k, -1.0, 1.0)),
                smoothing: 0.0,
            })
            .collect()
    }

    /// Returns offsets from the centre of a surfel, up to the border of the image.
    fn offsets(i: u64) -> impl Iterator<Item = [f64; 2]> {
        let stream = RandomStream::new(6, i, RandomUse::Initialise);
        (0..40).map(move |k| {
            let size = 60.0 * stream.uniform(3 * k + 2).powi(3);
            [0, 1].map(|axis| (2.0 * stream.uniform(3 * k + axis) - 1.0) * size)
        })
    }

    #[test]
    fn ray_meets_a_surfel_in_its_plane() {
        let view = view();
        let mut met = 0;
        for (i, shape) in (0..).zip(shapes()) {
            let Some(surfel) = project_surfel(&view, &shape) else { continue };
            let axes = mat_mul(&view.rotation, &rotation(shape.quat));
            let [first, second, normal] = [0, 1, 2].map(|axis| axes.map(|row| row[axis]));
            let mean = add(mul(&view.rotation, shape.mean_world), view.translation);
            for offset in offsets(i) {
                let meeting = surfel.meet(offset);
                let Some([u, v]) = meeting.on_disc else { continue };
                let slope = |i: usize| {
                    (surfel.mean_px[i] + offset[i] - view.centre_px[i]) / view.focal_px[i]
                };
                let ray = [slope(0), slope(1), 1.0];
                let depth = dot(normal, mean) / dot(normal, ray);
                let on_plane = sub(scale(ray, depth), mean);
                // Rounding of intersections at grazing angles.
                let tolerance = 1e-8 * (1.0 + u.abs() + v.abs());
                assert_near(u, dot(on_plane, first) / shape.log_scale[0].exp(), tolerance, "u");
                assert_near(v, dot(on_plane, second) / shape.log_scale[1].exp(), tolerance, "v");
                let shown = meeting.depth_share * surfel.depth;
                assert!((shown / depth - 1.0).abs() < 1e-9, "{shown} {depth}");
                met += 1;
            }
        }
        assert!(met > 1000, "{met}");
    }

    #[test]
    fn filter_decides_behind_the_camera_and_below_a_pixel() {
        let tilted = Surfel {
            mean_px: [0.0; 2],
            depth: 2.0,
            along_u: [0.01, 0.0],
            along_v: [0.0, 0.01],
            tilt: [0.02, 0.0],
        };
        // At an offset of -60 px the plane is behind the camera.
        let meeting = tilted.meet([-60.0, 0.0]);
        assert!(meeting.on_disc.is_none());
        assert!((meeting.exponent + 3600.0).abs() < 1e-12 && meeting.depth_share == 1.0);
        let tiny = Surfel { along_u: [50.0, 0.0], along_v: [0.0, 50.0], ..tilted };
        // exp(-d²) is a Gaussian of variance one half.
        assert!((tiny.meet([0.3, 0.4]).exponent + 0.25).abs() < 1e-15);
    }

    fn apart(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] - b[0], a[1] - b[1]]
    }

    /// Returns a sum with fixed weights over intersections and the surfel's depth, to differentiate.
    fn value(surfel: &Surfel<f64>, places: &[[f64; 2]]) -> f64 {
        let of_place = |(k, &place): (usize, &[f64; 2])| {
            let meeting = surfel.meet(apart(place, surfel.mean_px));
            let weight = 0.3 + 0.1 * k as f64;
            weight * meeting.exponent.exp()
                + 0.2 * surfel.depth * meeting.depth_share
                + 0.1 / (surfel.depth * meeting.depth_share)
        };
        places.iter().enumerate().map(of_place).sum()
    }

    fn value_bwd(surfel: &Surfel<f64>, places: &[[f64; 2]]) -> SurfelGradient<f64> {
        let mut sums = SurfelGradient::default();
        for (k, &place) in places.iter().enumerate() {
            let offset = apart(place, surfel.mean_px);
            let meeting = surfel.meet(offset);
            let weight = 0.3 + 0.1 * k as f64;
            let (depth, share) = (surfel.depth, meeting.depth_share);
            let d_depth_here = 0.2 - 0.1 / (depth * share).powi(2);
            sums.d_depth += d_depth_here * share;
            let d_inverse_share = -d_depth_here * depth * share * share;
            let d_exponent = weight * meeting.exponent.exp();
            surfel.meet_bwd(offset, &meeting, d_exponent, d_inverse_share, &mut sums);
        }
        sums
    }

    #[test]
    fn gradients_match_finite_differences() {
        let view = view();
        let (mut compared, mut on_discs) = (0, 0);
        for shape in shapes() {
            let Some(surfel) = project_surfel(&view, &shape) else { continue };
            let places: Vec<[f64; 2]> = [[0.4, -0.3], [2.1, 1.2], [-1.4, 0.7], [0.1, 0.2]]
                .map(|offset: [f64; 2]| [0, 1].map(|i| surfel.mean_px[i] + offset[i]))
                .to_vec();
            // There is a kink where disc and filter are equal.
            let is_at_kink = places.iter().any(|&place| {
                let offset = apart(place, surfel.mean_px);
                let along = |s: [f64; 2]| s[0] * offset[0] + s[1] * offset[1];
                let filtered = -along(offset);
                let inverse = 1.0 + along(surfel.tilt);
                let disc = -0.5 * (along(surfel.along_u).powi(2) + along(surfel.along_v).powi(2))
                    / (inverse * inverse);
                (disc - filtered).abs() < 1e-3 * filtered.abs()
            });
            if is_at_kink || surfel.along_u[0].abs() + surfel.along_v[0].abs() > 40.0 {
                continue;
            }
            on_discs += usize::from(surfel.meet([0.4, -0.3]).on_disc.is_some());
            let d = project_surfel_bwd(&view, &shape, &value_bwd(&surfel, &places)).unwrap();
            let shifted = |change: &dyn Fn(&mut Shape<f64>, f64)| {
                central(1e-6, |h| {
                    let mut moved = shape;
                    change(&mut moved, h);
                    value(&project_surfel(&view, &moved).unwrap(), &places)
                })
            };
            for k in 0..3 {
                assert_close(d.d_mean_world[k], shifted(&|s, h| s.mean_world[k] += h));
                assert_close(d.d_log_scale[k], shifted(&|s, h| s.log_scale[k] += h));
            }
            for k in 0..4 {
                assert_close(d.d_quat[k], shifted(&|s, h| s.quat[k] += h));
            }
            compared += 1;
        }
        assert!(compared > 100 && on_discs > 50, "{compared} {on_discs}");
    }

    /// Asserts a relative error below 1e-5: differences over 1e-6 have an error of its square times the third
    /// derivative, which is large for small distant surfels.
    fn assert_close(found: f64, expected: f64) {
        assert_near(found, expected, 1e-5 * (1.0 + expected.abs()), "gradient");
    }

    #[test]
    fn cover_contains_all_visible_points() {
        let view = view();
        let (mut covered, mut seen) = (0, 0);
        for (i, shape) in (0..).zip(shapes()) {
            let Some(surfel) = project_surfel(&view, &shape) else { continue };
            for exponent_min in [-0.5, -2.0, -5.5] {
                let Some(cover) = surfel.cover(exponent_min) else { continue };
                covered += 1;
                for offset in offsets(i) {
                    if surfel.meet(offset).exponent < exponent_min {
                        continue;
                    }
                    seen += 1;
                    let d = [0, 1].map(|i| surfel.mean_px[i] + offset[i] - cover.mean_px[i]);
                    let inside = crate::math::blend::exponent(cover.conic, d);
                    assert!(inside >= exponent_min * (1.0 + 1e-9), "{inside} {exponent_min}");
                }
            }
        }
        assert!(covered > 300 && seen > 1000, "{covered} {seen}");
    }

    #[test]
    fn large_disc_is_covered_tightly() {
        // Seen frontally there is no perspective: the cover is the disc.
        let surfel = Surfel {
            mean_px: [10.0, 20.0],
            depth: 2.0,
            along_u: [0.1, 0.0],
            along_v: [0.0, 0.2],
            tilt: [0.0; 2],
        };
        let cover = surfel.cover(-4.0).unwrap();
        assert!((cover.cov_px2[0] - 100.0).abs() < 1e-9 && (cover.cov_px2[2] - 25.0).abs() < 1e-9);
        assert_eq!(cover.mean_px, surfel.mean_px);
    }

    #[test]
    fn surfels_behind_the_camera_or_edge_on_are_invisible() {
        let view = Viewpoint { rotation: rotation([1.0, 0.0, 0.0, 0.0]), ..view() };
        let shape = Shape {
            mean_world: [0.0, 0.3, -2.0],
            log_scale: [0.0, 0.0, 0.0],
            // The disc is level: its second axis is along the view.
            quat: [0.5_f64.sqrt(), 0.5_f64.sqrt(), 0.0, 0.0],
            smoothing: 0.0,
        };
        let level = project_surfel(&view, &shape).unwrap();
        assert!(level.cover(-5.0).is_none());
        let small = Shape { log_scale: [-3.0; 3], ..shape };
        assert!(project_surfel(&view, &small).unwrap().cover(-5.0).is_some());
        // The camera's centre is in the disc's plane.
        let from_edge = Shape { mean_world: [-0.1, 0.2, -2.0], ..small };
        assert!(project_surfel(&view, &from_edge).is_none());
        let towards = normalize(add(shape.mean_world, view.translation));
        assert!(towards[2] > 0.0);
    }

    #[test]
    fn third_scale_is_ignored() {
        let view = view();
        for shape in shapes().into_iter().take(20) {
            let log_scale = [shape.log_scale[0], shape.log_scale[1], f64::NEG_INFINITY];
            let other = Shape { log_scale, ..shape };
            let [a, b] = [shape, other].map(|s| project_surfel(&view, &s).map(|s| s.along_u));
            assert_eq!(a, b);
        }
    }
}

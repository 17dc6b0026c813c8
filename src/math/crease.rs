//! How far two triangles at an edge are from one plane (normal consistency), and the derivative of
//! that.

use super::Real;
use super::linalg::{Vec3, add, cross, dot, length, scale, sub};

/// Two triangles of one edge: its ends, then the corner of each triangle that is not one of them.
pub type Hinge<R> = [Vec3<R>; 4];

/// What the angle between two triangles follows from; nothing where one has no area.
struct Fold<R> {
    /// From the first end of the edge to the others.
    along: Vec3<R>,
    to_first: Vec3<R>,
    to_second: Vec3<R>,
    /// Unit normals, both on one side where the triangles lie in one plane.
    units: [Vec3<R>; 2],
    /// 1 over the lengths of the products that they are made of.
    inverses: [R; 2],
    cosine: R,
}

fn fold<R: Real>([a, b, first, second]: &Hinge<R>) -> Option<Fold<R>> {
    let [along, to_first, to_second] = [b, first, second].map(|corner| sub(*corner, *a));
    let products = [cross(along, to_first), cross(to_second, along)];
    let inverses = products.map(|product| R::ONE / length(product));
    if inverses.iter().any(|inverse| !inverse.is_finite()) {
        return None;
    }
    let units = [0, 1].map(|i| scale(products[i], inverses[i]));
    let cosine = dot(units[0], units[1]);
    Some(Fold { along, to_first, to_second, units, inverses, cosine })
}

/// 1 - cos of the angle by which two triangles are folded: 0 where they lie in one plane, 2 where one
/// lies on the other. It does not depend on the order of their corners. 0 where one has no area.
pub fn crease<R: Real>(hinge: &Hinge<R>) -> R {
    fold(hinge).map_or(R::ZERO, |fold| R::ONE - fold.cosine)
}

/// Gradients of the corners of [`crease`], times `weight`.
pub fn crease_bwd<R: Real>(hinge: &Hinge<R>, weight: R) -> Hinge<R> {
    let Some(fold) = fold(hinge) else { return [[R::ZERO; 3]; 4] };
    let [n, m] = fold.units;
    let d_product = |own: Vec3<R>, other: Vec3<R>, inverse: R| {
        scale(sub(scale(own, fold.cosine), other), weight * inverse)
    };
    let [d_n, d_m] = [d_product(n, m, fold.inverses[0]), d_product(m, n, fold.inverses[1])];
    let d_along = add(cross(fold.to_first, d_n), cross(d_m, fold.to_second));
    let [d_first, d_second] = [cross(d_n, fold.along), cross(fold.along, d_m)];
    let d_start = scale(add(add(d_along, d_first), d_second), -R::ONE);
    [d_start, d_along, d_first, d_second]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    /// Two triangles about the x axis, folded by an angle.
    fn folded(angle: f64) -> Hinge<f64> {
        let second = [0.7, -2.0 * angle.cos(), 2.0 * angle.sin()];
        [[0.0; 3], [1.5, 0.0, 0.0], [0.3, 1.0, 0.0], second]
    }

    #[test]
    fn a_folded_quad_has_its_angle() {
        for degrees in [0.0_f64, 30.0, 90.0, 150.0, 180.0] {
            let angle = degrees.to_radians();
            let hinge = folded(angle);
            let [a, b, first, second] = hinge;
            for same in [hinge, [b, a, first, second], [a, b, second, first]] {
                assert!((crease(&same) - (1.0 - angle.cos())).abs() < 1e-12, "{degrees}");
            }
        }
    }

    #[test]
    fn the_derivative_is_that_of_differences() {
        let stream = RandomStream::new(7, 0, RandomUse::Sample);
        for case in 0..20_u64 {
            let hinge: Hinge<f64> = std::array::from_fn(|corner| {
                std::array::from_fn(|axis| {
                    stream.normal(case * 12 + 3 * corner as u64 + axis as u64)
                })
            });
            let found = crease_bwd(&hinge, 0.5);
            for (corner, axis) in (0..12).map(|i| (i / 3, i % 3)) {
                let moved = |by: f64| {
                    let mut hinge = hinge;
                    hinge[corner][axis] += by;
                    crease(&hinge)
                };
                let expected = 0.5 * (moved(1e-6) - moved(-1e-6)) / 2e-6;
                let error = (found[corner][axis] - expected).abs() / (1.0 + expected.abs());
                assert!(error < 1e-7, "{corner} {axis}: {:?} {expected}", found[corner][axis]);
            }
        }
    }

    #[test]
    fn a_triangle_without_an_area_has_no_crease() {
        let mut hinge = folded(1.0).map(|corner| corner.map(|x: f64| x.to_f32()));
        hinge[3] = hinge[0];
        assert_eq!(crease(&hinge), 0.0);
        assert_eq!(crease_bwd(&hinge, 1.0), [[0.0; 3]; 4]);
    }
}

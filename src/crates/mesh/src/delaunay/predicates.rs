//! Signs that decide about a triangulation, exact for every point that [`super::order`] lets pass.
//!
//! Each takes a rounded determinant where its error bound allows, else Shewchuk's adaptive one
//! ("Adaptive precision floating-point arithmetic and fast robust geometric predicates", 1997).

use geometry_predicates::{insphere, orient3d};

use crate::mesh::Vec3;
use crate::vector::{dot, sub};

/// Bound of the error of the rounded orientation, over the product of the largest differences
/// along each axis: Shewchuk's 7.77e-16 times the 6 products of the permanent, and the rounding of
/// the bound itself.
const ORIENTATION_ERROR: f64 = 5.2e-15;

/// The same for the in-sphere determinant, whose permanent has 24 products with the largest squared
/// distance (1.78e-15 each), with room for the rounding of that distance.
const IN_SPHERE_ERROR: f64 = 1.3e-13;

/// The corners of the face opposite to a corner, so that the corner lies where the face's normal
/// points if the tetrahedron is positive.
pub(crate) const OPPOSITE: [[usize; 3]; 4] = [[2, 1, 3], [0, 2, 3], [1, 0, 3], [0, 1, 2]];

/// The larger of two numbers: one instruction, unlike `f64::max`, which minds NaN.
#[inline]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// Above zero where `d` lies on the side that (b - a) x (c - a) points to, 0 in the plane.
///
/// The sign is exact, the size is not.
#[inline]
pub(crate) fn orientation(a: Vec3, b: Vec3, c: Vec3, d: Vec3) -> f64 {
    let (u, v, w) = (sub(a, d), sub(b, d), sub(c, d));
    let determinant = w[0] * (v[1] * u[2] - v[2] * u[1])
        + w[1] * (v[2] * u[0] - v[0] * u[2])
        + w[2] * (v[0] * u[1] - v[1] * u[0]);
    let widest = |axis: usize| larger(larger(u[axis].abs(), v[axis].abs()), w[axis].abs());
    if determinant.abs() > ORIENTATION_ERROR * widest(0) * widest(1) * widest(2) {
        return determinant;
    }
    exact_orientation(a, b, c, d)
}

/// [`orientation`] where rounding may hide it, apart so that the usual way stays short.
#[cold]
#[inline(never)]
fn exact_orientation(a: Vec3, b: Vec3, c: Vec3, d: Vec3) -> f64 {
    orient3d(b, a, c, d)
}

/// Above zero where `e` lies inside the sphere through the corners of a positive tetrahedron, 0 on
/// it.
///
/// The sign is exact, the size is not.
#[inline]
fn in_sphere(corners: &[Vec3; 4], e: Vec3) -> f64 {
    let [a, b, c, d] = corners;
    let (a, b, c, d) = (sub(*a, e), sub(*b, e), sub(*c, e), sub(*d, e));
    let minor = |p: Vec3, q: Vec3| p[0] * q[1] - q[0] * p[1];
    let (ab, bc, cd, da) = (minor(a, b), minor(b, c), minor(c, d), minor(d, a));
    let (ac, bd) = (minor(a, c), minor(b, d));
    let abc = a[2] * bc - b[2] * ac + c[2] * ab;
    let bcd = b[2] * cd - c[2] * bd + d[2] * bc;
    let cda = c[2] * da + d[2] * ac + a[2] * cd;
    let dab = d[2] * ab + a[2] * bd + b[2] * da;
    let squares = [dot(a, a), dot(b, b), dot(c, c), dot(d, d)];
    let determinant = (squares[2] * dab - squares[3] * abc) + (squares[0] * bcd - squares[1] * cda);
    let widest = |axis: usize| {
        larger(larger(a[axis].abs(), b[axis].abs()), larger(c[axis].abs(), d[axis].abs()))
    };
    let farthest = larger(larger(squares[0], squares[1]), larger(squares[2], squares[3]));
    if determinant.abs() > IN_SPHERE_ERROR * widest(0) * widest(1) * widest(2) * farthest {
        return determinant;
    }
    exact_in_sphere(corners, e)
}

/// [`in_sphere`] where rounding may hide it, apart so that the usual way stays short.
#[cold]
#[inline(never)]
fn exact_in_sphere(corners: &[Vec3; 4], e: Vec3) -> f64 {
    insphere(corners[1], corners[0], corners[2], corners[3], e)
}

/// Whether a point lies inside the sphere of a positive tetrahedron, never undecided.
///
/// Points on the sphere are told apart by a symbolic perturbation (Devillers and Teillaud,
/// "Perturbations for Delaunay and weighted Delaunay 3D triangulations", 2011): each point's lift
/// |x|² gains an infinitesimal, and that of a higher name is infinitely larger than that of a
/// lower one. The coefficient of a corner's gain is the orientation with the point in the corner's
/// place; that of the point's own gain puts it outside. So the triangulation is unique, whatever
/// the order of insertion.
#[inline]
pub(super) fn is_inside(names: [u32; 4], corners: &[Vec3; 4], name: u32, point: Vec3) -> bool {
    let side = in_sphere(corners, point);
    if side == 0.0 { perturbed_inside(names, corners, name, point) } else { side > 0.0 }
}

/// [`is_inside`] of a point on the sphere.
#[cold]
#[inline(never)]
fn perturbed_inside(names: [u32; 4], corners: &[Vec3; 4], name: u32, point: Vec3) -> bool {
    let mut descending = [0, 1, 2, 3];
    descending.sort_unstable_by_key(|&corner: &usize| std::cmp::Reverse(names[corner]));
    for corner in descending.into_iter().take_while(|&corner| names[corner] > name) {
        let [a, b, c] = OPPOSITE[corner].map(|other| corners[other]);
        let coefficient = orientation(a, b, c, point);
        if coefficient != 0.0 {
            return coefficient > 0.0;
        }
    }
    false
}

/// Whether three points lie on a line: exact.
pub(super) fn are_collinear(a: Vec3, b: Vec3, c: Vec3) -> bool {
    [(0, 1), (1, 2), (2, 0)].iter().all(|&(u, v)| {
        let flat = |point: Vec3| [point[u], point[v]];
        geometry_predicates::orient2d(flat(a), flat(b), flat(c)) == 0.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Determinant of rows, exact for whole numbers under 2^20.
    fn determinant<const N: usize>(rows: [[i128; N]; N]) -> i128 {
        fn expand(rows: &[Vec<i128>]) -> i128 {
            if rows.len() == 1 {
                return rows[0][0];
            }
            (0..rows.len())
                .map(|column| {
                    let minor: Vec<Vec<i128>> = rows[1..]
                        .iter()
                        .map(|row| {
                            let kept = row.iter().enumerate().filter(|&(at, _)| at != column);
                            kept.map(|(_, &value)| value).collect()
                        })
                        .collect();
                    let sign = if column % 2 == 0 { 1 } else { -1 };
                    sign * rows[0][column] * expand(&minor)
                })
                .sum()
        }
        expand(&rows.map(|row| row.to_vec()))
    }

    fn whole(point: [i32; 3]) -> Vec3 {
        point.map(f64::from)
    }

    fn sign(value: f64) -> i128 {
        if value > 0.0 {
            1
        } else if value < 0.0 {
            -1
        } else {
            0
        }
    }

    fn true_orientation(points: [[i32; 3]; 4]) -> i128 {
        let row = |k: usize| {
            std::array::from_fn(|axis| i128::from(points[k][axis]) - i128::from(points[0][axis]))
        };
        determinant::<3>([row(1), row(2), row(3)]).signum()
    }

    /// Above zero inside, for either orientation of the corners.
    fn true_side(corners: [[i32; 3]; 4], point: [i32; 3]) -> i128 {
        let rows = corners.map(|corner| {
            let [x, y, z]: [i128; 3] =
                std::array::from_fn(|axis| i128::from(corner[axis]) - i128::from(point[axis]));
            [x, y, z, x * x + y * y + z * z]
        });
        // The lift's plane through the corners lies over the point inside: the sign of this
        // determinant over that of the orientation.
        -determinant::<4>(rows).signum() * true_orientation(corners)
    }

    fn positive(mut corners: [[i32; 3]; 4]) -> [[i32; 3]; 4] {
        if true_orientation(corners) < 0 {
            corners.swap(0, 1);
        }
        corners
    }

    fn place(limit: i32) -> impl Strategy<Value = [i32; 3]> {
        [-limit..limit, -limit..limit, -limit..limit]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn orientations_of_whole_points_are_exact(
            points in [place(6), place(6), place(6), place(6)],
        ) {
            let [a, b, c, d] = points.map(whole);
            prop_assert_eq!(sign(orientation(a, b, c, d)), true_orientation(points));
        }

        #[test]
        fn sides_of_a_sphere_of_whole_points_are_exact(
            corners in [place(3), place(3), place(3), place(3)],
            point in place(3),
            stretch in 1..100_000,
        ) {
            prop_assume!(true_orientation(corners) != 0);
            let corners = positive(corners);
            let expected = true_side(corners, point);
            let stretched = |p: [i32; 3]| p.map(|x| x * stretch);
            let side = in_sphere(&corners.map(stretched).map(whole), whole(stretched(point)));
            prop_assert_eq!(sign(side), expected);
        }

        /// A common offset of 2^52 leaves the last bit to tell the points apart, and the
        /// differences exact: the filters must give way.
        #[test]
        fn large_offsets_do_not_change_a_sign(
            corners in [place(3), place(3), place(3), place(3)],
            point in place(3),
        ) {
            prop_assume!(true_orientation(corners) != 0);
            let corners = positive(corners);
            let far = |p: [i32; 3]| whole(p).map(|x| x + 4_503_599_627_370_496.0);
            let side = in_sphere(&corners.map(far), far(point));
            prop_assert_eq!(sign(side), true_side(corners, point));
        }

        /// Differences that f64 cannot hold: x on a unit cube's corners, moved by 2^-70 to 2^-90
        /// where x is 0. The first order of the determinant, linear in the moves, has its sign.
        #[test]
        fn differences_that_do_not_fit_are_exact(
            moved in 0..4_usize,
            exponent in 70..90_i32,
            outward in any::<bool>(),
        ) {
            let mut corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
            let mut point = [1.0, 1.0, 0.0];
            let sign_of_step: f64 = if outward { 1.0 } else { -1.0 };
            let step = sign_of_step * 2_f64.powi(-exponent);
            // The sphere is x(x-1) + y(y-1) + z(z-1) = 0; moving the point along z by s changes
            // the left side by about -s. Another corner of the cube takes the fourth's place.
            point[2] = step;
            prop_assert_eq!(sign(in_sphere(&corners, point)), sign(step));
            corners.swap(0, moved);
            let flipped = if moved == 0 { 1.0 } else { -1.0 };
            let [a, b, c, d] = corners;
            prop_assert_eq!(sign(orientation(a, b, c, d)), sign(flipped));
        }
    }

    #[test]
    fn points_on_a_sphere_are_told_apart_by_their_names() {
        let corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let point = [1.0, 1.0, 1.0];
        assert!(!is_inside([0, 1, 2, 3], &corners, 4, point));
        // Highest is the corner at 0 itself; the opposite corner in its place turns the
        // tetrahedron over.
        assert!(!is_inside([9, 1, 2, 3], &corners, 4, point));
        // (1,1,1) in the place of (1,0,0) leaves it positive.
        assert!(is_inside([0, 9, 2, 3], &corners, 4, point));
    }

    #[test]
    fn only_points_on_one_line_are_collinear() {
        let (a, b) = ([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]);
        assert!(are_collinear([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [7.0, 7.0, 7.0]));
        assert!(!are_collinear([0.0; 3], a, [b[0], b[1], b[2] + 1e-16]));
    }
}

//! Flat Gaussians bound to triangles (SuGaR, Guédon and Lepetit 2024, section 4.3): position and rotation of a
//! Gaussian on its triangle, and their derivatives.
//!
//! A triangle's axes are its normal, the direction of its first edge, and their cross product. A bound Gaussian is
//! thin along the normal. Its other axes are rotated in the plane by the angle of a complex number.

use super::Real;
use super::linalg::{Quat, Vec3, add, cross, dot, length, quaternion, scale, sub};

/// Number of Gaussians on each triangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerTriangle {
    /// In the middle.
    One,
    /// Near the corners.
    Three,
    /// In the middle and near the corners.
    Four,
    /// Near the corners and near the middles of the edges.
    Six,
}

/// Barycentric weights of a triangle's corners.
type Weights = [f64; 3];

const MIDDLE: [Weights; 1] = [[1.0 / 3.0; 3]];

const INNER_CORNERS: [Weights; 3] = permuted(0.5, 0.25);

const CORNERS: [Weights; 3] = permuted(2.0 / 3.0, 1.0 / 6.0);

const EDGES: [Weights; 3] = permuted(1.0 / 6.0, 5.0 / 12.0);

const FOUR: [Weights; 4] = [MIDDLE[0], CORNERS[0], CORNERS[1], CORNERS[2]];

const SIX: [Weights; 6] = [CORNERS[0], CORNERS[1], CORNERS[2], EDGES[0], EDGES[1], EDGES[2]];

/// Returns the weights with `one` at each corner in turn and `others` at the other corners.
const fn permuted(one: f64, others: f64) -> [Weights; 3] {
    [[one, others, others], [others, one, others], [others, others, one]]
}

impl PerTriangle {
    /// All variants, fewest Gaussians first.
    pub const ALL: [Self; 4] = [Self::One, Self::Three, Self::Four, Self::Six];

    /// Returns the number of Gaussians.
    pub const fn count(self) -> usize {
        self.weights().len()
    }

    /// Returns the barycentric weights of each Gaussian's centre.
    pub const fn weights(self) -> &'static [[f64; 3]] {
        match self {
            Self::One => &MIDDLE,
            Self::Three => &INNER_CORNERS,
            Self::Four => &FOUR,
            Self::Six => &SIX,
        }
    }

    /// Returns the initial standard deviation as a share of the shortest edge: circles of this radius touch each
    /// other and the edges of an equilateral triangle.
    pub fn radius(self) -> f64 {
        let root = 3.0_f64.sqrt();
        match self {
            Self::One => 1.0 / (2.0 * root),
            Self::Three => 1.0 / (2.0 * (root + 1.0)),
            Self::Four => 1.0 / (4.0 * root),
            Self::Six => 1.0 / (4.0 + 2.0 * root),
        }
    }
}

/// Learned parameters of a Gaussian on its triangle.
#[derive(Clone, Copy, Debug)]
pub struct FlatForm<R> {
    /// Logarithms of the scales in the plane.
    pub log_scales: [R; 2],
    /// Complex number, of any length, whose angle rotates the axes in the plane.
    pub turn: [R; 2],
}

/// Position and rotation of a bound Gaussian.
#[derive(Clone, Copy, Debug)]
pub struct BoundPlace<R> {
    /// Centre in the world.
    pub mean: Vec3<R>,
    /// A unit quaternion.
    pub quat: Quat<R>,
}

/// Gradients of a bound Gaussian's parameters.
#[derive(Clone, Copy, Debug)]
pub struct BoundGradient<R> {
    /// Gradient of the centre.
    pub d_mean: Vec3<R>,
    /// Gradient of the log-scales: along the normal, and in the plane.
    pub d_log_scale: Vec3<R>,
    /// Gradient of the quaternion.
    pub d_quat: Quat<R>,
}

/// Gradients of the triangle and of [`FlatForm`].
#[derive(Clone, Copy, Debug)]
pub struct FlatGradient<R> {
    /// Gradient of the triangle's corners.
    pub d_corners: [Vec3<R>; 3],
    /// Gradient of the logarithms of the scales in the plane.
    pub d_log_scales: [R; 2],
    /// Gradient of the complex number.
    pub d_turn: [R; 2],
}

/// Axes of a triangle: the world's if the triangle has no area; then nothing depends on the corners.
struct TriangleAxes<R> {
    normal: Vec3<R>,
    /// Direction from the second corner to the first.
    along: Vec3<R>,
    across: Vec3<R>,
    /// 1 over the length of that edge; 0 without an area.
    per_length: R,
    /// 1 over twice the area; 0 without an area.
    per_area: R,
}

fn triangle_axes<R: Real>(corners: &[Vec3<R>; 3]) -> TriangleAxes<R> {
    let [a, b, c] = *corners;
    let (edge, product) = (sub(a, b), cross(sub(b, a), sub(c, a)));
    let (long, wide) = (length(edge), length(product));
    let (per_length, per_area) = (R::ONE / long, R::ONE / wide);
    if !(long > R::ZERO && wide > R::ZERO && per_length.is_finite() && per_area.is_finite()) {
        let unit = |axis| std::array::from_fn(|i| if i == axis { R::ONE } else { R::ZERO });
        let (per_length, per_area) = (R::ZERO, R::ZERO);
        return TriangleAxes {
            normal: unit(0),
            along: unit(1),
            across: unit(2),
            per_length,
            per_area,
        };
    }
    let (normal, along) = (scale(product, per_area), scale(edge, per_length));
    TriangleAxes { normal, along, across: cross(normal, along), per_length, per_area }
}

/// Returns 1 over the length of a complex number; 0 if its length is 0.
fn per_length<R: Real>([p, q]: [R; 2]) -> R {
    let squared = p * p + q * q;
    if squared > R::ZERO { R::ONE / squared.sqrt() } else { R::ZERO }
}

/// Returns the position and rotation of a Gaussian with these barycentric weights.
pub fn place<R: Real>(
    corners: &[Vec3<R>; 3],
    weights: Vec3<R>,
    form: &FlatForm<R>,
) -> BoundPlace<R> {
    let axes = triangle_axes(corners);
    let inverse = per_length(form.turn);
    let [p, q] = if inverse > R::ZERO { form.turn.map(|x| x * inverse) } else { [R::ONE, R::ZERO] };
    let first = add(scale(axes.along, p), scale(axes.across, q));
    let second = sub(scale(axes.across, p), scale(axes.along, q));
    let [a, b, c] = *corners;
    let mean = add(add(scale(a, weights[0]), scale(b, weights[1])), scale(c, weights[2]));
    BoundPlace { mean, quat: quaternion([axes.normal, first, second]) }
}

/// Returns the gradients of the triangle and the form of a Gaussian that [`place`] rotated to `quat`.
///
/// The gradient of the quaternion is first turned into one of a rotation vector, then into gradients of the normal,
/// the edge and the angle.
pub fn place_bwd<R: Real>(
    corners: &[Vec3<R>; 3],
    weights: Vec3<R>,
    form: &FlatForm<R>,
    quat: Quat<R>,
    gradient: &BoundGradient<R>,
) -> FlatGradient<R> {
    let axes = triangle_axes(corners);
    let d_rotation = rotation_vector_bwd(quat, gradient.d_quat);
    let d_angle = dot(d_rotation, axes.normal);
    let inverse = per_length(form.turn);
    let d_angle_over = d_angle * inverse * inverse;
    let [p, q] = form.turn;
    // Rotations about the in-plane axes move the normal; rotations about the normal move the edge.
    let d_product = scale(cross(d_rotation, axes.normal), axes.per_area);
    let d_edge = scale(axes.across, d_angle * axes.per_length);
    let [a, b, c] = *corners;
    let d_ab = cross(sub(c, a), d_product);
    let d_ac = cross(d_product, sub(b, a));
    let of_mean = |corner: usize| scale(gradient.d_mean, weights[corner]);
    let [_, d_first, d_second] = gradient.d_log_scale;
    FlatGradient {
        d_corners: [
            add(of_mean(0), sub(d_edge, add(d_ab, d_ac))),
            add(of_mean(1), sub(d_ab, d_edge)),
            add(of_mean(2), d_ac),
        ],
        d_log_scales: [d_first, d_second],
        d_turn: [-d_angle_over * q, d_angle_over * p],
    }
}

/// Returns the gradient of a rotation vector in the world that rotates a unit quaternion further. The quaternion's
/// derivative by the vector r is half the product of (0, r) and the quaternion.
fn rotation_vector_bwd<R: Real>([w, x, y, z]: Quat<R>, d_quat: Quat<R>) -> Vec3<R> {
    let [d_w, d_x, d_y, d_z] = d_quat;
    let (axis, d_axis) = ([x, y, z], [d_x, d_y, d_z]);
    let sum = add(sub(scale(d_axis, w), scale(axis, d_w)), cross(axis, d_axis));
    scale(sum, R::HALF)
}

// Normal consistency: the deviation of two neighbouring triangles from one plane, and its derivative.

/// Two triangles with a common edge: the edge's ends, then the opposite corner of each triangle.
pub type Hinge<R> = [Vec3<R>; 4];

struct Fold<R> {
    /// Vector from the edge's first end to the second.
    along: Vec3<R>,
    to_first: Vec3<R>,
    to_second: Vec3<R>,
    /// Unit normals, equal if the triangles lie in one plane.
    units: [Vec3<R>; 2],
    /// 1 over the lengths of the cross products.
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

/// Returns 1 - cos of the angle between two triangles: 0 in one plane, 2 if folded onto each other, 0 if one has no
/// area. It is independent of the order of the corners.
pub fn crease<R: Real>(hinge: &Hinge<R>) -> R {
    fold(hinge).map_or(R::ZERO, |fold| R::ONE - fold.cosine)
}

/// Returns the gradients of [`crease`] by the corners, times `weight`.
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
    use crate::math::differences::{assert_near, central, gradient};
    use crate::math::linalg::{rotation, rotation_bwd};
    use crate::math::random::{RandomStream, RandomUse};

    const CORNERS_AT: [Vec3<f64>; 3] = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];

    fn normals(seed: u64) -> impl FnMut() -> f64 {
        let (stream, mut next) = (RandomStream::new(seed, 0, RandomUse::Sample), 0);
        move || {
            next += 1;
            stream.normal(next)
        }
    }

    #[test]
    fn unit_triangle_matches_the_reference() {
        let form = FlatForm { log_scales: [-1.0, -2.0], turn: [3.0, 0.0] };
        for per_triangle in PerTriangle::ALL {
            assert_eq!(per_triangle.count(), per_triangle.weights().len());
            for weights in per_triangle.weights() {
                assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-15);
                let placed = place(&CORNERS_AT, *weights, &form);
                let expected = [weights[1], weights[2], 0.0];
                for (found, expected) in placed.mean.into_iter().zip(expected) {
                    assert_near(found, expected, 1e-15, per_triangle);
                }
                // Columns: the normal, the direction from the second corner to the first, and their cross product.
                let columns = [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]];
                let found = rotation(placed.quat);
                for (row, column) in (0..9).map(|i| (i / 3, i % 3)) {
                    assert_near(found[row][column], columns[column][row], 1e-12, (row, column));
                }
            }
        }
        // A rotation by 90 degrees.
        let turned = FlatForm { turn: [0.0, 0.5], ..form };
        let found = rotation(place(&CORNERS_AT, [1.0 / 3.0; 3], &turned).quat);
        let first = [found[0][1], found[1][1], found[2][1]];
        assert!((first[1] + 1.0).abs() < 1e-12, "{first:?}");
    }

    /// Returns a function of the placed Gaussian with gradients `mean` and, through the rotation, `turns`.
    fn objective(mean: &Vec3<f64>, turns: &[f64; 9], placed: &BoundPlace<f64>) -> f64 {
        let matrix = rotation(placed.quat);
        let by_rotation: f64 = matrix.iter().flatten().zip(turns).map(|(m, t)| m * t).sum();
        dot(*mean, placed.mean) + by_rotation
    }

    #[test]
    fn place_bwd_matches_finite_differences() {
        let mut next = normals(3);
        for per_triangle in PerTriangle::ALL {
            for &weights in per_triangle.weights() {
                // Three corners and a complex number.
                let at: [f64; 11] = std::array::from_fn(|_| next());
                let d_mean = std::array::from_fn(|_| next());
                let turns: [f64; 9] = std::array::from_fn(|_| next());
                let unpack = |at: &[f64; 11]| {
                    let corners =
                        std::array::from_fn(|i| [at[3 * i], at[3 * i + 1], at[3 * i + 2]]);
                    (corners, FlatForm { log_scales: [0.0; 2], turn: [at[9], at[10]] })
                };
                let value = |at: &[f64; 11]| {
                    let (corners, form) = unpack(at);
                    objective(&d_mean, &turns, &place(&corners, weights, &form))
                };
                let (corners, form) = unpack(&at);
                let quat = place(&corners, weights, &form).quat;
                let d_matrix = [0, 3, 6].map(|i| [turns[i], turns[i + 1], turns[i + 2]]);
                let d_quat = rotation_bwd(quat, &d_matrix);
                let d_placed = BoundGradient { d_mean, d_log_scale: [9.0, 2.0, 3.0], d_quat };
                let found = place_bwd(&corners, weights, &form, quat, &d_placed);
                assert_eq!(found.d_log_scales, [2.0, 3.0]);
                let flat = found.d_corners.as_flattened().iter().chain(&found.d_turn);
                let compared = flat.zip(gradient(1e-6, at, |at| value(&at)));
                for (i, (&found, expected)) in compared.enumerate() {
                    assert_near(found, expected, 1e-7 * (1.0 + expected.abs()), (per_triangle, i));
                }
            }
        }
    }

    #[test]
    fn quaternions_match_the_axes() {
        let mut next = normals(5);
        for _ in 0..200 {
            let corners: [Vec3<f64>; 3] = std::array::from_fn(|_| std::array::from_fn(|_| next()));
            let form = FlatForm { log_scales: [0.0; 2], turn: [next(), next()] };
            let axes = triangle_axes(&corners);
            let quat = place(&corners, [1.0, 0.0, 0.0], &form).quat;
            assert!((quat.iter().map(|q| q * q).sum::<f64>() - 1.0).abs() < 1e-12);
            let normal = rotation(quat).map(|row| row[0]);
            assert!(length(sub(normal, axes.normal)) < 1e-12);
        }
    }

    #[test]
    fn degenerate_triangle_has_no_rotation_gradient() {
        let line = [[0.0_f32; 3], [1.0, 0.0, 0.0], [2.0, 0.0, 0.0]];
        let form = FlatForm { log_scales: [0.0; 2], turn: [0.0; 2] };
        let placed = place(&line, [1.0 / 3.0; 3], &form);
        assert_eq!(placed.mean[1..], [0.0, 0.0]);
        let gradient =
            BoundGradient { d_mean: [1.0; 3], d_log_scale: [0.0; 3], d_quat: [1.0, 2.0, 3.0, 4.0] };
        let found = place_bwd(&line, [1.0, 0.0, 0.0], &form, placed.quat, &gradient);
        assert_eq!(found.d_corners, [[1.0; 3], [0.0; 3], [0.0; 3]]);
        assert_eq!(found.d_turn, [0.0; 2]);
    }

    /// Returns two triangles about the x axis, folded by an angle.
    fn folded(angle: f64) -> Hinge<f64> {
        let second = [0.7, -2.0 * angle.cos(), 2.0 * angle.sin()];
        [[0.0; 3], [1.5, 0.0, 0.0], [0.3, 1.0, 0.0], second]
    }

    #[test]
    fn crease_matches_the_fold_angle() {
        for degrees in [0.0_f64, 30.0, 90.0, 150.0, 180.0] {
            let angle = degrees.to_radians();
            let hinge = folded(angle);
            let [a, b, first, second] = hinge;
            for same in [hinge, [b, a, first, second], [a, b, second, first]] {
                assert_near(crease(&same), 1.0 - angle.cos(), 1e-12, degrees);
            }
        }
    }

    #[test]
    fn crease_bwd_matches_finite_differences() {
        let stream = RandomStream::new(7, 0, RandomUse::Sample);
        for case in 0..20_u64 {
            let draw = |at: u64| stream.normal(case * 12 + at);
            let hinge: Hinge<f64> =
                [0, 3, 6, 9].map(|corner| [0, 1, 2].map(|axis| draw(corner + axis)));
            let found = crease_bwd(&hinge, 0.5);
            for (corner, axis) in (0..12).map(|i| (i / 3, i % 3)) {
                let expected = 0.5
                    * central(1e-6, |by| {
                        let mut hinge = hinge;
                        hinge[corner][axis] += by;
                        crease(&hinge)
                    });
                let tolerance = 1e-7 * (1.0 + expected.abs());
                assert_near(found[corner][axis], expected, tolerance, (case, corner, axis));
            }
        }
    }

    #[test]
    fn degenerate_triangle_has_no_crease() {
        let mut hinge = folded(1.0).map(|corner| corner.map(|x: f64| x.to_f32()));
        hinge[3] = hinge[0];
        assert_eq!(crease(&hinge), 0.0);
        assert_eq!(crease_bwd(&hinge, 1.0), [[0.0; 3]; 4]);
    }
}

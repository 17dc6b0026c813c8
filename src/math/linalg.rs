//! Small vectors and matrices, and the rules that carry gradients through them.

use super::Real;

/// A point, direction or colour.
pub type Vec3<R> = [R; 3];

/// A quaternion (w, x, y, z).
pub type Quat<R> = [R; 4];

/// A symmetric 2x2 matrix (xx, xy, yy).
pub type Sym2<R> = [R; 3];

/// A 3x3 matrix in rows.
pub type Mat3<R> = [[R; 3]; 3];

/// Returns a + b.
#[inline]
pub fn add<R: Real>(a: Vec3<R>, b: Vec3<R>) -> Vec3<R> {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// Adds values to sums, one by one.
#[inline]
pub fn add_to<R: Real>(sums: &mut [R], values: &[R]) {
    for (sum, &value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// Returns a - b.
#[inline]
pub fn sub<R: Real>(a: Vec3<R>, b: Vec3<R>) -> Vec3<R> {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Returns s a.
#[inline]
pub fn scale<R: Real>(a: Vec3<R>, s: R) -> Vec3<R> {
    [a[0] * s, a[1] * s, a[2] * s]
}

/// Returns a · b.
#[inline]
pub fn dot<R: Real>(a: Vec3<R>, b: Vec3<R>) -> R {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Returns a x b.
#[inline]
pub fn cross<R: Real>(a: Vec3<R>, b: Vec3<R>) -> Vec3<R> {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Returns |a|.
#[inline]
pub fn length<R: Real>(a: Vec3<R>) -> R {
    dot(a, a).sqrt()
}

/// Returns a / |a|; the zero vector stays zero.
#[inline]
pub fn normalize<R: Real>(a: Vec3<R>) -> Vec3<R> {
    let length = length(a);
    if length > R::ZERO { scale(a, R::ONE / length) } else { a }
}

/// Returns `d_a` of `normalize(a)`: the part of `d_unit` across the direction, over the length.
#[inline]
pub fn normalize_bwd<R: Real>(a: Vec3<R>, d_unit: Vec3<R>) -> Vec3<R> {
    let length = length(a);
    if length <= R::ZERO {
        return d_unit;
    }
    let unit = scale(a, R::ONE / length);
    scale(sub(d_unit, scale(unit, dot(unit, d_unit))), R::ONE / length)
}

/// Returns M v.
#[inline]
pub fn mul<R: Real>(m: &Mat3<R>, v: Vec3<R>) -> Vec3<R> {
    [dot(m[0], v), dot(m[1], v), dot(m[2], v)]
}

/// Returns Mᵀ v.
#[inline]
pub fn mul_transposed<R: Real>(m: &Mat3<R>, v: Vec3<R>) -> Vec3<R> {
    add(add(scale(m[0], v[0]), scale(m[1], v[1])), scale(m[2], v[2]))
}

/// Returns A B.
#[inline]
pub fn mat_mul<R: Real>(a: &Mat3<R>, b: &Mat3<R>) -> Mat3<R> {
    [mul_transposed(b, a[0]), mul_transposed(b, a[1]), mul_transposed(b, a[2])]
}

/// Returns Mᵀ.
#[inline]
pub fn transpose<R: Real>(m: &Mat3<R>) -> Mat3<R> {
    [[m[0][0], m[1][0], m[2][0]], [m[0][1], m[1][1], m[2][1]], [m[0][2], m[1][2], m[2][2]]]
}

/// Returns the rotation matrix of a quaternion (w, x, y, z). The zero quaternion gives the identity.
pub fn rotation<R: Real>(quat: Quat<R>) -> Mat3<R> {
    let [w, x, y, z] = normalized_quat(quat).0;
    let (one, two) = (R::ONE, R::TWO);
    [
        [one - two * (y * y + z * z), two * (x * y - w * z), two * (x * z + w * y)],
        [two * (x * y + w * z), one - two * (x * x + z * z), two * (y * z - w * x)],
        [two * (x * z - w * y), two * (y * z + w * x), one - two * (x * x + y * y)],
    ]
}

/// Returns the unit quaternion of a rotation with these columns.
pub fn quaternion<R: Real>(columns: [Vec3<R>; 3]) -> Quat<R> {
    let m = |row: usize, column: usize| columns[column][row];
    let quarter = R::HALF * R::HALF;
    let trace = m(0, 0) + m(1, 1) + m(2, 2);
    let twice = |squared: R| squared.max(R::ZERO).sqrt() * R::TWO;
    if trace > R::ZERO {
        let s = twice(R::ONE + trace);
        let [x, y, z] = [m(2, 1) - m(1, 2), m(0, 2) - m(2, 0), m(1, 0) - m(0, 1)];
        [quarter * s, x / s, y / s, z / s]
    } else if m(0, 0) > m(1, 1) && m(0, 0) > m(2, 2) {
        let s = twice(R::ONE + m(0, 0) - m(1, 1) - m(2, 2));
        let [w, y, z] = [m(2, 1) - m(1, 2), m(0, 1) + m(1, 0), m(0, 2) + m(2, 0)];
        [w / s, quarter * s, y / s, z / s]
    } else if m(1, 1) > m(2, 2) {
        let s = twice(R::ONE + m(1, 1) - m(0, 0) - m(2, 2));
        let [w, x, z] = [m(0, 2) - m(2, 0), m(0, 1) + m(1, 0), m(1, 2) + m(2, 1)];
        [w / s, x / s, quarter * s, z / s]
    } else {
        let s = twice(R::ONE + m(2, 2) - m(0, 0) - m(1, 1));
        let [w, x, y] = [m(1, 0) - m(0, 1), m(0, 2) + m(2, 0), m(1, 2) + m(2, 1)];
        [w / s, x / s, y / s, quarter * s]
    }
}

/// Returns `d_quat` of [`rotation`], normalisation included.
pub fn rotation_bwd<R: Real>(quat: Quat<R>, d_m: &Mat3<R>) -> Quat<R> {
    let (unit, inverse_length) = normalized_quat(quat);
    let [w, x, y, z] = unit;
    let two = R::TWO;
    let d_unit = [
        two * (x * (d_m[2][1] - d_m[1][2])
            + y * (d_m[0][2] - d_m[2][0])
            + z * (d_m[1][0] - d_m[0][1])),
        two * (w * (d_m[2][1] - d_m[1][2])
            + y * (d_m[0][1] + d_m[1][0])
            + z * (d_m[0][2] + d_m[2][0]))
            - two * two * x * (d_m[1][1] + d_m[2][2]),
        two * (w * (d_m[0][2] - d_m[2][0])
            + x * (d_m[0][1] + d_m[1][0])
            + z * (d_m[1][2] + d_m[2][1]))
            - two * two * y * (d_m[0][0] + d_m[2][2]),
        two * (w * (d_m[1][0] - d_m[0][1])
            + x * (d_m[0][2] + d_m[2][0])
            + y * (d_m[1][2] + d_m[2][1]))
            - two * two * z * (d_m[0][0] + d_m[1][1]),
    ];
    let along = (0..4).map(|i| unit[i] * d_unit[i]).sum::<R>();
    std::array::from_fn(|i| (d_unit[i] - unit[i] * along) * inverse_length)
}

/// Returns the unit quaternion and 1 / |quat|; the identity and 0 for the zero quaternion.
#[inline]
fn normalized_quat<R: Real>(quat: Quat<R>) -> (Quat<R>, R) {
    let squared = quat.iter().map(|&q| q * q).sum::<R>();
    if squared <= R::ZERO {
        return ([R::ONE, R::ZERO, R::ZERO, R::ZERO], R::ZERO);
    }
    let inverse_length = R::ONE / squared.sqrt();
    (quat.map(|q| q * inverse_length), inverse_length)
}

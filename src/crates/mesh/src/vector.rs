//! Functions of small vectors.

use crate::mesh::Vec3;

/// a + b.
#[inline]
pub fn add(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// a - b.
#[inline]
pub fn sub(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// s a.
#[inline]
pub fn scale(a: Vec3, s: f64) -> Vec3 {
    [a[0] * s, a[1] * s, a[2] * s]
}

/// a · b.
#[inline]
pub fn dot(a: Vec3, b: Vec3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// a x b.
#[inline]
pub fn cross(a: Vec3, b: Vec3) -> Vec3 {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// |a|.
#[inline]
pub fn length(a: Vec3) -> f64 {
    dot(a, a).sqrt()
}

/// a / |a|; the zero vector stays zero.
#[inline]
pub fn normalize(a: Vec3) -> Vec3 {
    let length = length(a);
    if length > 0.0 { scale(a, 1.0 / length) } else { a }
}

/// M v, M in rows.
#[inline]
pub fn mul(m: &[Vec3; 3], v: Vec3) -> Vec3 {
    [dot(m[0], v), dot(m[1], v), dot(m[2], v)]
}

/// Mᵀ v, M in rows.
#[inline]
pub fn mul_transposed(m: &[Vec3; 3], v: Vec3) -> Vec3 {
    add(add(scale(m[0], v[0]), scale(m[1], v[1])), scale(m[2], v[2]))
}

/// A B, both in rows.
#[inline]
pub fn mat_mul(a: &[Vec3; 3], b: &[Vec3; 3]) -> [Vec3; 3] {
    [mul_transposed(b, a[0]), mul_transposed(b, a[1]), mul_transposed(b, a[2])]
}

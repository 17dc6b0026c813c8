//! Vectors, corners of faces and boxes around places.

use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f64s;

/// Returns the corners of a face of a checked mesh.
#[inline]
pub fn corners(mesh: &Mesh, face: [u32; 3]) -> [Vec3; 3] {
    face.map(|vertex| to_f64s(mesh.vertices[vertex as usize]))
}

/// Returns (b - a) x (c - a): along the normal, twice as long as the area.
#[inline]
pub fn doubled_area([a, b, c]: [Vec3; 3]) -> Vec3 {
    cross(sub(b, a), sub(c, a))
}

/// Returns the area of a triangle.
#[inline]
pub fn area(corners: [Vec3; 3]) -> f64 {
    0.5 * length(doubled_area(corners))
}

/// Returns the mean of three places.
#[inline]
pub fn centroid([a, b, c]: [Vec3; 3]) -> Vec3 {
    scale(add(add(a, b), c), 1.0 / 3.0)
}

/// Returns six times the signed volume of the tetrahedron of the origin and a triangle.
#[inline]
pub fn six_volumes([a, b, c]: [Vec3; 3]) -> f64 {
    dot(a, cross(b, c))
}

/// An axis-aligned box, world space; empty where `low > high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Least coordinates.
    pub low: Vec3,
    /// Greatest coordinates.
    pub high: Vec3,
}

impl Bounds {
    /// The box without a place.
    pub const EMPTY: Self = Self { low: [f64::INFINITY; 3], high: [f64::NEG_INFINITY; 3] };

    /// Returns the box of some places.
    pub fn of(places: impl IntoIterator<Item = Vec3>) -> Self {
        let join = |bounds: Self, place| bounds.joined(Self { low: place, high: place });
        places.into_iter().fold(Self::EMPTY, join)
    }

    /// Returns the box around this one and another.
    pub fn joined(self, other: Self) -> Self {
        Self {
            low: std::array::from_fn(|axis| self.low[axis].min(other.low[axis])),
            high: std::array::from_fn(|axis| self.high[axis].max(other.high[axis])),
        }
    }

    /// True if a place is in it.
    pub fn holds(&self, place: Vec3) -> bool {
        (0..3).all(|axis| self.low[axis] <= place[axis] && place[axis] <= self.high[axis])
    }

    /// Returns the box of a mesh's vertices that faces use.
    pub fn of_faces(mesh: &Mesh) -> Self {
        Self::of(mesh.faces.iter().flat_map(|&face| corners(mesh, face)))
    }

    /// Returns the length along each axis; zero for the empty box.
    pub fn sides(&self) -> Vec3 {
        std::array::from_fn(|axis| (self.high[axis] - self.low[axis]).max(0.0))
    }

    /// Returns the longest side.
    pub fn longest_side(&self) -> f64 {
        self.sides().into_iter().fold(0.0, f64::max)
    }

    /// Returns the length of the diagonal.
    pub fn diagonal(&self) -> f64 {
        length(self.sides())
    }
}

/// Returns a + b.
#[inline]
pub fn add(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// Returns a - b.
#[inline]
pub fn sub(a: Vec3, b: Vec3) -> Vec3 {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Returns s a.
#[inline]
pub fn scale(a: Vec3, s: f64) -> Vec3 {
    [a[0] * s, a[1] * s, a[2] * s]
}

/// Returns a · b.
#[inline]
pub fn dot(a: Vec3, b: Vec3) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Returns a x b.
#[inline]
pub fn cross(a: Vec3, b: Vec3) -> Vec3 {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

/// Returns |a|.
#[inline]
pub fn length(a: Vec3) -> f64 {
    dot(a, a).sqrt()
}

/// Returns a / |a|; the zero vector stays zero.
#[inline]
pub fn normalize(a: Vec3) -> Vec3 {
    let length = length(a);
    if length > 0.0 { scale(a, 1.0 / length) } else { a }
}

/// Returns M v, M in rows.
#[inline]
pub fn mul(m: &[Vec3; 3], v: Vec3) -> Vec3 {
    [dot(m[0], v), dot(m[1], v), dot(m[2], v)]
}

/// Returns Mᵀ v, M in rows.
#[inline]
pub fn mul_transposed(m: &[Vec3; 3], v: Vec3) -> Vec3 {
    add(add(scale(m[0], v[0]), scale(m[1], v[1])), scale(m[2], v[2]))
}

/// Returns A B, both in rows.
#[inline]
pub fn mat_mul(a: &[Vec3; 3], b: &[Vec3; 3]) -> [Vec3; 3] {
    [mul_transposed(b, a[0]), mul_transposed(b, a[1]), mul_transposed(b, a[2])]
}

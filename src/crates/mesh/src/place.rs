//! What follows from the places of a face's corners, and boxes around them.

use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f64s;
use crate::vector::{add, cross, dot, length, scale, sub};

/// The corners of a face of a checked mesh.
#[inline]
pub fn corners(mesh: &Mesh, face: [u32; 3]) -> [Vec3; 3] {
    face.map(|vertex| to_f64s(mesh.vertices[vertex as usize]))
}

/// (b - a) x (c - a): along the normal, twice as long as the area.
#[inline]
pub fn doubled_area([a, b, c]: [Vec3; 3]) -> Vec3 {
    cross(sub(b, a), sub(c, a))
}

/// Area of a triangle.
#[inline]
pub fn area(corners: [Vec3; 3]) -> f64 {
    0.5 * length(doubled_area(corners))
}

/// The mean of three places.
#[inline]
pub fn centroid([a, b, c]: [Vec3; 3]) -> Vec3 {
    scale(add(add(a, b), c), 1.0 / 3.0)
}

/// Six times the signed volume of the tetrahedron of the origin and a triangle.
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
    /// The box of some places.
    pub fn of(places: impl IntoIterator<Item = Vec3>) -> Self {
        let empty = Self { low: [f64::INFINITY; 3], high: [f64::NEG_INFINITY; 3] };
        places.into_iter().fold(empty, |bounds, place| Self {
            low: std::array::from_fn(|axis| bounds.low[axis].min(place[axis])),
            high: std::array::from_fn(|axis| bounds.high[axis].max(place[axis])),
        })
    }

    /// Whether a place is in it.
    pub fn holds(&self, place: Vec3) -> bool {
        (0..3).all(|axis| self.low[axis] <= place[axis] && place[axis] <= self.high[axis])
    }

    /// The box of a mesh's vertices that faces use.
    pub fn of_faces(mesh: &Mesh) -> Self {
        Self::of(mesh.faces.iter().flat_map(|&face| corners(mesh, face)))
    }

    /// Length along each axis; zero of the empty box.
    pub fn sides(&self) -> Vec3 {
        std::array::from_fn(|axis| (self.high[axis] - self.low[axis]).max(0.0))
    }

    /// The longest side.
    pub fn longest_side(&self) -> f64 {
        self.sides().into_iter().fold(0.0, f64::max)
    }

    /// Length of the diagonal.
    pub fn diagonal(&self) -> f64 {
        length(self.sides())
    }
}

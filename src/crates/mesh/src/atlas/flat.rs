//! Charts on a plane.

use super::rectangle::{Place, least_rectangle};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::corners;
use crate::vector::{cross, dot, length, normalize, sub};

/// A piece of a mesh on its plane, in world units from its least coordinates; wider than high.
pub(super) struct FlatChart {
    /// Its faces, in ascending order.
    pub(super) faces: Vec<u32>,
    /// Which of its places the faces have.
    pub(super) corners: Vec<[u32; 3]>,
    pub(super) places: Vec<Place>,
    pub(super) size: [f64; 2],
}

/// The faces of a piece over vertices of its own.
pub(super) struct LocalFaces {
    /// Vertices of the faces, in ascending order.
    pub(super) vertices: Vec<u32>,
    /// Which of them each face has.
    pub(super) corners: Vec<[u32; 3]>,
}

impl LocalFaces {
    pub(super) fn of(mesh: &Mesh, faces: &[u32]) -> Self {
        Self::over(faces.iter().map(|&face| mesh.faces[face as usize]))
    }

    fn over(faces: impl Iterator<Item = [u32; 3]> + Clone) -> Self {
        let mut vertices: Vec<u32> = faces.clone().flatten().collect();
        vertices.sort_unstable();
        vertices.dedup();
        let local = |vertex: u32| to_u32(vertices.partition_point(|&v| v < vertex));
        let corners = faces.map(|face| face.map(local)).collect();
        Self { vertices, corners }
    }

    /// Their places on a plane that is seen along a direction: faces that show their front run from x to y.
    pub(super) fn along(&self, mesh: &Mesh, direction: Vec3) -> Vec<Place> {
        let helper = if direction[2].abs() < 0.9 { [0.0, 0.0, 1.0] } else { [1.0, 0.0, 0.0] };
        // x, y and the direction are right-handed.
        let x = normalize(cross(helper, direction));
        let y = cross(direction, x);
        let place = |&vertex: &u32| {
            let place = mesh.vertices[vertex as usize].map(f64::from);
            [dot(x, place), dot(y, place)]
        };
        self.vertices.iter().map(place).collect()
    }
}

impl FlatChart {
    /// Faces with their corners among some places.
    pub(super) fn new(faces: Vec<u32>, corners: Vec<[u32; 3]>, mut places: Vec<Place>) -> Self {
        let size = least_rectangle(&mut places);
        Self { faces, corners, places, size }
    }

    /// Faces as they are seen along a direction.
    pub(super) fn along(mesh: &Mesh, faces: Vec<u32>, direction: Vec3) -> Self {
        let local = LocalFaces::of(mesh, &faces);
        let places = local.along(mesh, direction);
        Self::new(faces, local.corners, places)
    }

    /// A face in its own shape.
    pub(super) fn alone(mesh: &Mesh, face: u32) -> Self {
        let places = true_shape(corners(mesh, mesh.faces[face as usize]));
        Self::new(vec![face], vec![[0, 1, 2]], places.to_vec())
    }

    /// Some of the faces as they lie; `faces` are in ascending order.
    pub(super) fn part(&self, faces: Vec<u32>) -> Self {
        let old = faces.iter().filter_map(|face| self.faces.binary_search(face).ok());
        let local = LocalFaces::over(old.map(|at| self.corners[at]));
        let places = local.vertices.iter().map(|&place| self.places[place as usize]).collect();
        Self::new(faces, local.corners, places)
    }
}

/// The corners of a triangle on its plane; they run from x to y.
pub(super) fn true_shape([a, b, c]: [Vec3; 3]) -> [Place; 3] {
    let (side, other) = (sub(b, a), sub(c, a));
    let along = length(side);
    if along == 0.0 {
        return [[0.0; 2], [0.0; 2], [length(other), 0.0]];
    }
    [[0.0; 2], [along, 0.0], [dot(other, side) / along, length(cross(side, other)) / along]]
}

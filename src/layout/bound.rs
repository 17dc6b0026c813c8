//! Gaussians that are bound to a mesh: the mesh, its learned values and their gradients.

use super::slot::{Count, Lifetime};
use crate::abi::SURFACE_WIDTH;

/// Alignment of the forms of bound Gaussians, in values: a thread loads a form at once.
const FORMS_ALIGNED: u64 = 4;

/// Values of a vertex, and of a Gaussian's form.
const VERTEX_WIDTH: u64 = 3;
const FORM_WIDTH: u64 = 4;

/// A vertex has its position, the next position and two moments; a form has its values and two moments.
const VERTEX_PARTS: u64 = 4;
const FORM_PARTS: u64 = 3;

slots! {
    BoundCount {
        pub BOUND_MESH: u32 = "bound mesh", Parameters, BoundCount::Mesh, 1,
            "triangles that Gaussians are bound to, and their edges";
        pub BOUND_VALUES: f32 = "bound values", Parameters, BoundCount::Values, 1,
            "vertices and forms of bound Gaussians, with their moments";
        pub BOUND_GRADIENTS: f32 = "bound gradients", Surface, BoundCount::Gaussians, SURFACE_WIDTH,
            "gradients of bound Gaussians";
    }
}

/// Sizes of a mesh and of the Gaussians that are bound to its triangles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoundSizes {
    /// Vertices of the mesh.
    pub vertices: u64,
    /// Triangles.
    pub faces: u64,
    /// Pairs of triangles at an edge.
    pub hinges: u64,
    /// Gaussians on all triangles.
    pub gaussians: u64,
}

impl BoundSizes {
    /// Returns the sizes of a closed surface: each edge belongs to two triangles, and V - E + F = 2.
    pub fn closed(faces: u64, per_triangle: u64) -> Self {
        Self {
            vertices: faces / 2 + 2,
            faces,
            hinges: faces + faces / 2,
            gaussians: faces * per_triangle,
        }
    }

    /// Returns the first value of the Gaussians' forms, after all values of the vertices.
    pub fn forms_start(&self) -> u64 {
        (VERTEX_PARTS * VERTEX_WIDTH * self.vertices).next_multiple_of(FORMS_ALIGNED)
    }
}

/// Index spaces of bound Gaussians.
#[derive(Clone, Copy, Debug)]
pub enum BoundCount {
    /// Words of the faces and hinges, and of their lists by vertex.
    Mesh,
    /// Values and moments of the vertices and forms.
    Values,
    /// Number of Gaussians.
    Gaussians,
}

impl Count for BoundCount {
    type Sizes = BoundSizes;

    const LIFETIME: Lifetime = Lifetime::Model;

    fn of(self, sizes: &BoundSizes) -> u64 {
        let BoundSizes { vertices, faces, hinges, gaussians } = *sizes;
        match self {
            // The corners exist twice: by face, and listed by vertex. Lists have one start more than vertices.
            Self::Mesh => 2 * (3 * faces + 4 * hinges) + 2 * (vertices + 1),
            Self::Values => sizes.forms_start() + FORM_PARTS * FORM_WIDTH * gaussians,
            Self::Gaussians => gaussians,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_mesh_has_half_as_many_vertices_as_faces_and_half_more_hinges() {
        // A tetrahedron with three Gaussians on each side.
        let sizes = BoundSizes::closed(4, 3);
        assert_eq!(sizes, BoundSizes { vertices: 4, faces: 4, hinges: 6, gaussians: 12 });
        assert_eq!(BOUND_MESH.bytes(&sizes), 4 * (12 + 24 + 5 + 12 + 5 + 24));
        assert_eq!(BOUND_VALUES.bytes(&sizes), 4 * (4 * 12 + 3 * 48));
        assert_eq!(BoundSizes { vertices: 1, ..sizes }.forms_start(), 12);
    }
}

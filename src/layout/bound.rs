//! Gaussians that are bound to a mesh: the mesh, what is learned of it, and gradients.

use super::slot::{Count, Lifetime};
use crate::abi::SURFACE_WIDTH;

/// Forms of bound Gaussians begin at a multiple of so many values, so that a thread loads one at once.
const FORMS_ALIGNED: u64 = 4;

/// Values of a vertex, and of a Gaussian's form.
const VERTEX_WIDTH: u64 = 3;
const FORM_WIDTH: u64 = 4;

/// A vertex has its place, the next one and two moments; a form has itself and two moments.
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

/// A mesh and the Gaussians that are bound to its triangles.
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
    /// Of a closed surface of so many triangles: each has three edges, which it shares, and V - E + F
    /// is nearly nothing beside them.
    pub fn closed(faces: u64, per_triangle: u64) -> Self {
        Self {
            vertices: faces / 2 + 2,
            faces,
            hinges: faces + faces / 2,
            gaussians: faces * per_triangle,
        }
    }

    /// Where the forms of the Gaussians begin, in values, after all of the vertices'.
    pub fn forms_start(&self) -> u64 {
        (VERTEX_PARTS * VERTEX_WIDTH * self.vertices).next_multiple_of(FORMS_ALIGNED)
    }
}

/// Index spaces of bound Gaussians.
#[derive(Clone, Copy, Debug)]
pub enum BoundCount {
    /// Faces and hinges, and the lists of both of each vertex.
    Mesh,
    /// Values and moments of all that is learned of the mesh and of forms on it.
    Values,
    /// One for each Gaussian.
    Gaussians,
}

impl Count for BoundCount {
    type Sizes = BoundSizes;

    const LIFETIME: Lifetime = Lifetime::Model;

    fn of(self, sizes: &BoundSizes) -> u64 {
        let BoundSizes { vertices, faces, hinges, gaussians } = *sizes;
        match self {
            // The corners twice: of each face, and listed by vertex. Lists have a start more than vertices.
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

//! Models on the host.

mod bound;
mod gaussians;
mod initialise;
mod primitive;
mod surfels;

use crate::math::adam::log_sizes;

pub use bound::{BoundColumns, BoundTopology, TooManyBound, VertexLists};
pub use gaussians::{
    FLAT_LOG_SCALE, Field, Gaussians, fuse, make_rotations_unit, sh_rest_count, unit_rotation,
};
pub use initialise::{from_points, random_points, thinned};
pub use primitive::{Group, Primitive};
pub use surfels::{THICKENED, flatten, thicken};

// A mesh of triangles that is trained and drawn as such (MeshSplatting, Held et al. 2025).

/// Vertices with their opacities and colours, and the triangles between them.
///
/// A vertex is a row of Gaussians: its place is the centre. In training all of its scales are the size of its
/// triangles, by which only rates of positions go; its rotation is not looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct TriangleMesh {
    /// The vertices.
    pub vertices: Gaussians,
    /// Three vertices of each triangle.
    pub faces: Vec<[u32; 3]>,
}

impl TriangleMesh {
    /// Has the scales of each vertex say how large its triangles are, as a run of training needs them.
    pub fn size_vertices(&mut self) {
        let means = self.vertices.means.as_chunks::<3>().0;
        let sizes = log_sizes(means.len(), &self.faces, |row| means[row]);
        self.vertices.log_scales = sizes.into_iter().flat_map(|size| [size; 3]).collect();
    }
}

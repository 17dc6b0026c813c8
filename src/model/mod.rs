//! Models on the host.

mod bound;
mod gaussians;
mod initialise;
mod primitive;

use crate::math::adam::log_sizes;

pub use bound::{BoundColumns, BoundTopology, TooManyBound, VertexLists};
pub use gaussians::{
    FLAT_LOG_SCALE, Field, Gaussians, THICKENED, flatten, fuse, make_rotations_unit, sh_rest_count,
    thicken, unit_rotation,
};
pub use initialise::{from_points, random_points, thinned};
pub use primitive::{Group, Primitive};

// A mesh of triangles that is trained and drawn as such (MeshSplatting, Held et al. 2025).

/// A mesh of vertices with opacities and colours.
///
/// A vertex is a row of Gaussians at the position of the centre. In training the scales hold the size of the vertex'
/// triangles, which only the learning rates of positions use. The rotation is ignored.
#[derive(Clone, Debug, PartialEq)]
pub struct TriangleMesh {
    /// The vertices.
    pub vertices: Gaussians,
    /// Three vertices of each triangle.
    pub faces: Vec<[u32; 3]>,
}

impl TriangleMesh {
    /// Sets the scales of each vertex to the size of its triangles, as training needs them.
    pub fn size_vertices(&mut self) {
        let means = self.vertices.means.as_chunks::<3>().0;
        let sizes = log_sizes(means.len(), &self.faces, |row| means[row]);
        self.vertices.log_scales = sizes.into_iter().flat_map(|size| [size; 3]).collect();
    }
}

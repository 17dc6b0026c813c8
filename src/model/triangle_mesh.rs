//! A mesh of triangles that is trained and drawn as such (MeshSplatting, Held et al. 2025).

use super::Gaussians;

/// Vertices with their opacities and colours, and the triangles between them.
///
/// A vertex is a row of Gaussians: its place is the centre; scales and rotation are not looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct TriangleMesh {
    /// The vertices.
    pub vertices: Gaussians,
    /// Three vertices of each triangle.
    pub faces: Vec<[u32; 3]>,
}

//! A triangle mesh.

/// A place, direction or difference, in the space that its name says.
pub type Vec3 = [f64; 3];

/// Triangles over shared vertices.
///
/// Places are in world space, in the scene's unit. Seen from outside, the corners of a face run
/// counter-clockwise, so that its normal, `(b - a) x (c - a)`, points outwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Mesh {
    /// Place of each vertex, world space.
    pub vertices: Vec<[f32; 3]>,
    /// Three vertices of each face.
    pub faces: Vec<[u32; 3]>,
    /// Unit normal of each vertex, or empty.
    pub normals: Vec<[f32; 3]>,
    /// Colour of each vertex, sRGB, 0 to 1, or empty.
    pub colors: Vec<[f32; 3]>,
}

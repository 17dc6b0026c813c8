//! Triangles between the rows of a model, and what views have shown of them.

use super::slot::{CallLen, ModelLen};

/// Corners of a triangle, and ends of an edge.
const CORNERS: u32 = 3;
const ENDS: u32 = 2;

/// Words of a triangle with what views have shown of it.
pub(super) const FACE_WORDS: u32 = CORNERS + 3;

/// Triangles of a closed surface for each vertex: V - E + F is next to nothing beside them.
pub const FACES_PER_VERTEX: u64 = 2;

slots! {
    ModelLen {
        pub FACES: u32 = "faces", Parameters, ModelLen, CORNERS, "triangles";
        pub FACE_WEIGHTS: f32 = "faces", Parameters, ModelLen, 1, "triangles";
        pub FACE_REACHES: f32 = "faces", Parameters, ModelLen, 1, "triangles";
        pub FACE_GRADIENT_NORMS: f32 = "faces", Parameters, ModelLen, 1, "triangles";
    }
    CallLen {
        pub MIDPOINTS: u32 = "midpoints", Round, CallLen, ENDS, "edges that are split";
    }
}

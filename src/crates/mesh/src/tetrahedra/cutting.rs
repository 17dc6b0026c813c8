//! How to cut.

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cutting {
    /// Halvings of each crossing edge, at most 31.
    pub bisections: u32,
    /// What becomes of faces that long edges hold.
    pub long_edges: LongEdges,
}

impl Default for Cutting {
    fn default() -> Self {
        Self { bisections: 8, long_edges: LongEdges::Keep }
    }
}

/// What becomes of faces whose corners lie on long edges, which span what no point has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LongEdges {
    /// They stay: the surface is closed.
    #[default]
    Keep,
    /// They go where an edge is longer than this, world units; by default
    /// [`LongEdges::MEDIANS`] medians of the crossing edges.
    Drop(Option<f64>),
}

impl LongEdges {
    /// The longest edge that holds a face of an open surface, in medians.
    pub const MEDIANS: f64 = 20.0;
}

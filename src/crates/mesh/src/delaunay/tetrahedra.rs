//! What a triangulation is.

/// No neighbour: the face is on the convex hull.
pub const OUTSIDE: u32 = u32::MAX;

/// The Delaunay tetrahedra of points.
///
/// The sphere through the corners of each holds no point. Where more than four points lie on a
/// sphere, the choice depends on the points' places alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delaunay {
    /// Indices of the corners [a, b, c, d], with (b - a) x (c - a) · (d - a) > 0.
    pub tetrahedra: Vec<[u32; 4]>,
    /// The tetrahedron across the face opposite to each corner, [`OUTSIDE`] on the hull; empty
    /// where they were not asked for.
    pub neighbours: Vec<[u32; 4]>,
    /// Points that equal an earlier one and so are no corner, each with the first such, sorted.
    pub duplicates: Vec<[u32; 2]>,
}

/// What to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The tetrahedra alone, which takes less memory: under 320 bytes a point, the points'
    /// own included.
    Tetrahedra,
    /// Their neighbours, too.
    Neighbours,
}

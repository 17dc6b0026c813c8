//! Why there is no surface.

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CutError {
    /// Not a label a point.
    #[error("{labels} labels for {points} points: give one for each")]
    Labels {
        /// Labels given.
        labels: usize,
        /// Points that they are for.
        points: usize,
    },
    /// A tetrahedron with a corner that is no point.
    #[error("tetrahedron {tetrahedron} names point {corner} of {points}: triangulate these points")]
    Corner {
        /// The tetrahedron.
        tetrahedron: usize,
        /// Its corner.
        corner: u32,
        /// Points given.
        points: usize,
    },
    /// No edge crosses the surface.
    #[error(
        "no surface: {inside} of {points} points are inside, and no edge leads outside; see \
         whether the views see the scene"
    )]
    OneSide {
        /// Points inside.
        inside: usize,
        /// Points given.
        points: usize,
    },
    /// All faces lie on long edges.
    #[error("nothing is left of {faces} faces: the longest edge of {longest} is too short")]
    NothingLeft {
        /// Faces before.
        faces: usize,
        /// The longest edge allowed, world units.
        longest: f64,
    },
}

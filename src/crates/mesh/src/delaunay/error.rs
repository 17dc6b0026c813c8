//! Why there is no triangulation.

use crate::mesh::Vec3;

/// Why there is no triangulation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DelaunayError {
    /// A coordinate that is not finite, or too large for exact arithmetic.
    #[error(
        "point {index} at {point:?} is not finite or is beyond 1e45: drop such points before \
         triangulating"
    )]
    UnfitPoint {
        /// Its index.
        index: usize,
        /// Its place.
        point: Vec3,
    },
    /// More points than names.
    #[error("{count} points to triangulate, but at most {most} fit: thin them out")]
    TooManyPoints {
        /// Points given.
        count: usize,
        /// Points that fit.
        most: usize,
    },
    /// Fewer than four distinct points, or all in one plane.
    #[error(
        "{distinct} distinct points lie in one plane, so that no tetrahedron spans them: add \
         points off the plane, such as the corners of a box around them"
    )]
    Flat {
        /// Distinct points.
        distinct: usize,
    },
    /// More tetrahedra than links.
    #[error("the points span more than {most} tetrahedra: thin them out")]
    TooManyTetrahedra {
        /// Tetrahedra that fit.
        most: usize,
    },
    /// The memory was refused.
    #[error("no memory for {bytes} bytes of tetrahedra: thin the points out")]
    Memory {
        /// Bytes wanted.
        bytes: u64,
    },
}

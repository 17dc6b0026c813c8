//! Delaunay tetrahedra of points in space: exact, in parallel, and the same whatever the order of
//! the points and the number of threads.

mod finish;
pub(crate) mod hilbert;
mod homes;
mod insertion;
mod order;
pub(crate) mod predicates;
mod schedule;
mod slots;
#[cfg(test)]
mod tests;

use order::Order;
use schedule::Shares;

use crate::mesh::Vec3;

/// Points that one thread inserts before the work is shared.
const ALONE: usize = 100_000;

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

/// The Delaunay tetrahedra of points of any unit, by as many threads as the current pool of
/// threads has.
///
/// The tetrahedra are sorted: the same points give the same bits with any number of threads, and a
/// shuffle of them the same tetrahedra in the same order, but for the indices. Coordinates nearer
/// to 0 than 2^-120 count as 0.
///
/// # Errors
/// If points are not finite, too many, or all in one plane.
pub fn delaunay(points: &[Vec3], want: Want) -> Result<Delaunay, DelaunayError> {
    delaunay_by(points, want, Shares { pieces: rayon::current_num_threads(), alone: ALONE })
}

fn delaunay_by(points: &[Vec3], want: Want, shares: Shares) -> Result<Delaunay, DelaunayError> {
    let order = Order::of(points)?;
    let slots = schedule::triangulate(&order, shares)?;
    Ok(finish::finish(order, slots, want))
}

//! Delaunay tetrahedra of points in space: exact, in parallel, and the same whatever the order of
//! the points and the number of threads.

mod error;
mod finish;
mod ground;
mod hilbert;
mod homes;
mod insertion;
mod order;
pub(crate) mod predicates;
mod schedule;
mod slots;
#[cfg(test)]
mod tests;
mod tetrahedra;

pub use error::DelaunayError;
pub use tetrahedra::{Delaunay, OUTSIDE, Want};

use order::Order;
use schedule::Shares;

use crate::mesh::Vec3;

/// Points that one thread inserts before the work is shared.
const ALONE: usize = 100_000;

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

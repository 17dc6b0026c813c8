//! Delaunay tetrahedra of points in space: exact, in parallel, and the same whatever the order of
//! the points and the number of threads.

mod ground;
mod insertion;
mod order;
pub(crate) mod predicates;
mod schedule;
#[cfg(test)]
mod tests;

use insertion::{GHOST, Slots};
use order::Order;
use rayon::prelude::*;
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
    Ok(finish(order, slots, want))
}

// Why there is no triangulation.

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

// What a triangulation is.

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

// From slots to the tetrahedra that are handed out.

/// Exchanges of two pairs of corners, which bring the named corner to the front and keep the sign.
const TO_FRONT: [[usize; 4]; 4] = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]];

/// Turns of the last three corners, which keep the sign.
const TURNS: [[usize; 4]; 3] = [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]];

/// Drops ghosts and empty slots, sorts, and exchanges names for indices.
fn finish(order: Order, mut slots: Slots, want: Want) -> Delaunay {
    let Order { points, input_from_name, duplicates, .. } = order;
    let names = points.len();
    drop(points);
    slots.drop_stamps();
    let (mut corners, mut links) = slots.into_words();
    if want == Want::Tetrahedra {
        links = Vec::new();
        corners.par_iter_mut().for_each(|corners| *corners = permuted(*corners, upright(*corners)));
    } else {
        corners.par_iter_mut().zip(&mut links).for_each(|(corners, links)| {
            let permutation = upright(*corners);
            *corners = permuted(*corners, permutation);
            *links = permuted(*links, permutation);
        });
    }
    let slot_from_tetrahedron = sorted(&corners, names);
    let neighbours = neighbours(&links, &slot_from_tetrahedron);
    drop(links);
    let index = |name: u32| input_from_name[name as usize];
    let tetrahedra =
        slot_from_tetrahedron.par_iter().map(|&slot| corners[slot as usize].map(index)).collect();
    Delaunay { tetrahedra, neighbours, duplicates }
}

/// The order of corners of equal sign that puts the least first, and the least of the others
/// second.
fn upright(corners: [u32; 4]) -> [usize; 4] {
    let lesser =
        |a: usize, b: usize, corners: &[u32; 4]| if corners[b] < corners[a] { b } else { a };
    let least = lesser(lesser(0, 1, &corners), lesser(2, 3, &corners), &corners);
    let front = TO_FRONT[least];
    let corners = permuted(corners, front);
    let second = lesser(lesser(1, 2, &corners), 3, &corners);
    permuted(front, TURNS[second - 1])
}

#[inline]
fn permuted<T: Copy>(values: [T; 4], order: [usize; 4]) -> [T; 4] {
    [values[order[0]], values[order[1]], values[order[2]], values[order[3]]]
}

/// Slots of the finite tetrahedra, sorted by their corners, whose least comes first.
fn sorted(corners: &[[u32; 4]], names: usize) -> Vec<u32> {
    let is_finite = |corners: &[u32; 4]| corners.iter().all(|&corner| corner < GHOST);
    // Counting sort by the first corner, of which each has about seven tetrahedra.
    let mut ends = vec![0_u32; names + 1];
    for corners in corners.iter().filter(|corners| is_finite(corners)) {
        ends[corners[0] as usize + 1] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    let mut slots = vec![0; total as usize];
    for (slot, corners) in (0..).zip(corners).filter(|(_, corners)| is_finite(corners)) {
        // The start of the name's bucket moves to its end.
        let end = &mut ends[corners[0] as usize];
        slots[*end as usize] = slot;
        *end += 1;
    }
    slots
        .par_chunk_by_mut(|&a, &b| corners[a as usize][0] == corners[b as usize][0])
        .for_each(|bucket| bucket.sort_unstable_by_key(|&slot| corners[slot as usize]));
    slots
}

/// Links of slots as neighbours of tetrahedra; none for no links.
fn neighbours(links: &[[u32; 4]], slot_from_tetrahedron: &[u32]) -> Vec<[u32; 4]> {
    let mut tetrahedron_from_slot = vec![OUTSIDE; links.len()];
    if links.is_empty() {
        return Vec::new();
    }
    for (tetrahedron, &slot) in (0..).zip(slot_from_tetrahedron) {
        tetrahedron_from_slot[slot as usize] = tetrahedron;
    }
    let neighbour = |link: u32| tetrahedron_from_slot[(link >> 2) as usize];
    let all = |[a, b, c, d]: [u32; 4]| [neighbour(a), neighbour(b), neighbour(c), neighbour(d)];
    slot_from_tetrahedron.par_iter().map(|&slot| all(links[slot as usize])).collect()
}

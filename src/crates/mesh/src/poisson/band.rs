//! Which nodes of a level are solved for: those of occupied cells and one ring around them.
//!
//! One more ring keeps the coarser level's values and borders them.

use std::ops::Range;

use rayon::prelude::*;

use super::pyramid::WIDER;
use super::sorted::SortedPoints;
use crate::bricks::{Bricks, NO_BRICK, morton, neighbour};
use crate::narrow::{to_index, to_u32};

/// A bit a node of a brick: word z, bit 8 y + x.
pub(super) type Mask = [u64; 8];

/// Nodes before the lower corner of an occupied cell that are solved for; behind it, one more.
const RING: i32 = 1;

/// Cells that a brick's rows reach into each neighbour.
const REACH: usize = 4;

/// Rows of cells along an axis: 4 of each neighbour and 8 of the brick.
const ROWS: usize = 16;

/// Bits of a row of cells, the brick's first cell at bit 4.
type Rows = [[u32; ROWS]; ROWS];

/// Bricks of a level and the nodes in them that are solved for.
pub(super) struct Band {
    pub(super) bricks: Bricks,
    pub(super) unknown: Vec<Mask>,
    /// Points in each brick of cells.
    pub(super) ranges: Vec<Range<usize>>,
}

impl Band {
    /// All nodes of a level, all of them solved for.
    pub(super) fn dense(points: &SortedPoints, level: u32) -> Self {
        let a_side = (1_u32 << level) / 8 + 1;
        let place = |i: u32| [i % a_side, i / a_side % a_side, i / a_side / a_side];
        let bricks = Bricks::of_keys((0..a_side.pow(3)).map(|i| morton::key(place(i))).collect());
        let whole = |brick| within_domain(&bricks, brick, level);
        let unknown = (0..bricks.len()).map(whole).collect();
        let ranges = points.ranges(&bricks, level);
        Self { bricks, unknown, ranges }
    }

    /// The nodes near the points.
    pub(super) fn near(points: &SortedPoints, level: u32) -> Self {
        let wide = Bricks::of_keys(points.bricks_around(level, RING + 1, RING + 2));
        let ranges = points.ranges(&wide, level);
        let occupied: Vec<Mask> =
            ranges.par_iter().map(|range| occupied(points, level, range)).collect();
        let kept: Vec<u64> = (0..wide.len())
            .into_par_iter()
            .filter(|&brick| {
                let rows = rows(&occupied, wide.neighbours(brick));
                dilated(&rows, RING + 1).iter().any(|&word| word != 0)
            })
            .map(|brick| wide.keys()[brick])
            .collect();
        let bricks = Bricks::of_keys(kept);
        let masks = |&key: &u64| {
            let brick = wide.keys().binary_search(&key).unwrap_or(0);
            let solved = dilated(&rows(&occupied, wide.neighbours(brick)), RING);
            let within = within_domain(&wide, brick, level);
            std::array::from_fn(|z| solved[z] & within[z])
        };
        let unknown = bricks.keys().par_iter().map(masks).collect();
        let ranges = points.ranges(&bricks, level);
        Self { bricks, unknown, ranges }
    }
}

/// The cells of a brick that hold points.
fn occupied(points: &SortedPoints, level: u32, range: &Range<usize>) -> Mask {
    let mut mask = [0; 8];
    for &key in &points.keys[range.clone()] {
        let [x, y, z] = points.cell_in_brick(key, level).map(to_index);
        mask[z] |= 1 << (8 * y + x);
    }
    mask
}

/// Cells of a brick and of the neighbours' nearest four, as rows along x.
fn rows(masks: &[Mask], ids: &[u32; 27]) -> Rows {
    let mut rows = [[0; ROWS]; ROWS];
    for (z, plane) in rows.iter_mut().enumerate() {
        for (y, row) in plane.iter_mut().enumerate() {
            // The brick's own rows are 4..12: a brick further is 8 more.
            let (z_cell, y_cell) = (z + REACH, y + REACH);
            let byte = |x: i32| {
                let offset = [x, step(y_cell / 8), step(z_cell / 8)];
                match ids[neighbour(offset)] {
                    NO_BRICK => 0,
                    id => to_u32(to_byte(masks[id as usize][z_cell % 8], y_cell % 8)),
                }
            };
            *row = byte(-1) >> REACH | byte(0) << REACH | (byte(1) & 0xf) << (REACH + 8);
        }
    }
    rows
}

/// The brick that the third of a range of three bricks is: before, the same, behind.
const fn step(third: usize) -> i32 {
    match third {
        0 => -1,
        1 => 0,
        _ => 1,
    }
}

/// The row y of a plane's bits.
const fn to_byte(plane: u64, y: usize) -> usize {
    (plane >> (8 * y) & 0xff) as usize
}

/// Nodes from `ring` before the lower corner of a cell that is set to `ring + 1` behind it.
fn dilated(rows: &Rows, ring: i32) -> Mask {
    // Node n is reached by the cells n - ring - 1 to n + ring.
    let cells = (-ring - 1)..=ring;
    let shifted = |row: u32, by: i32| if by < 0 { row << -by } else { row >> by };
    let along_x: Vec<[u32; ROWS]> = rows
        .iter()
        .map(|plane| plane.map(|row| cells.clone().fold(0, |sum, by| sum | shifted(row, by))))
        .collect();
    let at = |node: usize, by: i32| to_index(step_by(node + REACH, by));
    std::array::from_fn(|z| {
        let mut word = 0;
        for y in 0..8 {
            let mut row = 0;
            for dz in cells.clone() {
                for dy in cells.clone() {
                    row |= along_x[at(z, dz)][at(y, dy)];
                }
            }
            word |= u64::from(row >> REACH & 0xff) << (8 * y);
        }
        word
    })
}

fn step_by(start: usize, by: i32) -> i32 {
    i32::try_from(start).unwrap_or(0) + by
}

/// The nodes of a brick that lie in the domain: up to 2^level an axis.
pub(super) fn within_domain(bricks: &Bricks, brick: usize, level: u32) -> Mask {
    within(bricks.place(brick), [0, 1 << level])
}

/// The nodes of a brick that lie in the surface's cube, in the middle of the domain.
pub(super) fn within_cube(place: [u32; 3], level: u32) -> Mask {
    within(place, cube_span(level))
}

/// The first and last node of the surface's cube along an axis of the domain: corners of bricks.
pub(super) const fn cube_span(level: u32) -> [u32; 2] {
    let margin = ((1 << WIDER) - 1) << (level - WIDER - 1);
    [margin, (1 << level) - margin]
}

/// The nodes of a brick from the first to the last of a span, the same for each axis.
fn within(place: [u32; 3], span: [u32; 2]) -> Mask {
    let is_in = |axis: usize, node: u32| (span[0]..=span[1]).contains(&(8 * place[axis] + node));
    let row = (0..8).filter(|&x| is_in(0, x)).fold(0_u64, |row, x| row | 1 << x);
    let plane = (0..8).filter(|&y| is_in(1, y)).fold(0, |plane, y| plane | row << (8 * y));
    [0, 1, 2, 3, 4, 5, 6, 7].map(|z| if is_in(2, z) { plane } else { 0 })
}

/// Whether a node of a brick is set.
#[inline]
pub(super) const fn is_set(mask: &Mask, node: usize) -> bool {
    mask[node / 64] >> (node % 64) & 1 == 1
}

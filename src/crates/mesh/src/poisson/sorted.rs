//! Points in the order of the Z-curve, so that those of any cell of any level lie together.

use std::ops::Range;

use rayon::prelude::*;

use crate::bricks::{Bricks, OWN, morton};
use crate::cube::Cube;
use crate::narrow::{to_index, to_u32};
use crate::points::OrientedPoints;

/// Bits of a cell's place within its brick.
const BITS_IN_BRICK: u32 = 9;

/// Points an occupied cell of the chosen depth holds at least, on average.
const POINTS_A_CELL: f64 = 1.5;

/// Points by their cells.
pub(super) struct SortedPoints {
    pub(super) cube: Cube,
    /// Key of each point's cell of the finest level that keys tell apart, ascending.
    pub(super) keys: Vec<u64>,
    pub(super) points: OrientedPoints,
}

impl SortedPoints {
    /// Points of one cell keep their order.
    pub(super) fn new(points: &OrientedPoints, cube: Cube) -> Self {
        let mut order: Vec<(u64, u32)> = points
            .places
            .par_iter()
            .enumerate()
            .map(|(row, &place)| (cube.key(place, morton::AXIS_BITS), to_u32(row)))
            .collect();
        order.par_sort_unstable();
        let pick = |column: &[[f32; 3]]| -> Vec<[f32; 3]> {
            order.par_iter().map(|&(_, row)| column[row as usize]).collect()
        };
        let points = OrientedPoints {
            places: pick(&points.places),
            normals: pick(&points.normals),
            colors: pick(&points.colors),
        };
        Self { cube, keys: order.into_iter().map(|(key, _)| key).collect(), points }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The finest level whose occupied cells hold 1.5 points on average, up to `deepest`; the coarsest if
    /// there is none.
    pub(super) fn finest_full(&self, deepest: u32) -> u32 {
        let is_full = |level: u32| {
            let shift = 3 * (morton::AXIS_BITS - level);
            let changes = self.keys.par_windows(2).filter(|w| w[0] >> shift != w[1] >> shift);
            self.len() as f64 >= POINTS_A_CELL * (changes.count() + 1) as f64
        };
        (super::COARSEST + 1..=deepest)
            .rev()
            .find(|&level| is_full(level))
            .unwrap_or(super::COARSEST)
    }

    /// The points in each brick of cells of a level.
    pub(super) fn ranges(&self, bricks: &Bricks, level: u32) -> Vec<Range<usize>> {
        bricks
            .keys()
            .par_iter()
            .map(|&key| {
                let start = self.keys.partition_point(|&k| brick_key(k, level) < key);
                let count = self.keys[start..].partition_point(|&k| brick_key(k, level) == key);
                start..start + count
            })
            .collect()
    }

    /// Keys of the bricks with a node `below` before or `above` behind the lower corner of an occupied
    /// cell, and some that are next to such; without order, several times.
    pub(super) fn bricks_around(&self, level: u32, below: i32, above: i32) -> Vec<u64> {
        let last = (1_i32 << level) / 8;
        let brick = |key: u64| brick_key(key, level);
        let runs: Vec<&[u64]> = self.keys.chunk_by(|&a, &b| brick(a) == brick(b)).collect();
        runs.par_iter()
            .flat_map_iter(|run| {
                let mut low = [7; 3];
                let mut high = [0; 3];
                for &key in *run {
                    let at = self.cell_in_brick(key, level);
                    for axis in 0..3 {
                        low[axis] = at[axis].min(low[axis]);
                        high[axis] = at[axis].max(high[axis]);
                    }
                }
                let place = morton::cell(brick(run[0])).map(u32::cast_signed);
                let span = move |axis: usize| {
                    let first = place[axis] + (low[axis] - below).div_euclid(8);
                    let end = place[axis] + (high[axis] + above).div_euclid(8);
                    first.max(0)..=end.min(last)
                };
                span(2).flat_map(move |z| {
                    span(1).flat_map(move |y| {
                        span(0).map(move |x| morton::key([x, y, z].map(i32::unsigned_abs)))
                    })
                })
            })
            .collect()
    }

    /// A cell's coordinates in its brick, from the key of a point in it.
    #[inline]
    pub(super) fn cell_in_brick(&self, key: u64, level: u32) -> [i32; 3] {
        let local = key >> (3 * (morton::AXIS_BITS - level)) & ((1 << BITS_IN_BRICK) - 1);
        morton::cell(local).map(u32::cast_signed)
    }

    /// Calls for each point in the cells `first..=last` an axis, counted from the brick's first, with
    /// its row and its cell there; first and last lie up to a brick outside.
    pub(super) fn for_points_near(
        &self,
        level: u32,
        ids: &[u32; 27],
        ranges: &[Range<usize>],
        cells: [i32; 2],
        mut each: impl FnMut(usize, [i32; 3]),
    ) {
        let decoded = Self::decoded();
        let shift = 3 * (morton::AXIS_BITS - level);
        for (number, &id) in (0_i32..).zip(ids) {
            let Some(range) = ranges.get(id as usize) else { continue };
            let offset = [8 * (number % 3 - 1), 8 * (number / 3 % 3 - 1), 8 * (number / 9 - 1)];
            for row in range.clone() {
                let local = decoded[(self.keys[row] >> shift & 511) as usize];
                let cell: [i32; 3] = std::array::from_fn(|a| i32::from(local[a]) + offset[a]);
                let is_near = |c: &i32| (cells[0]..=cells[1]).contains(c);
                if to_index(number) == OWN || cell.iter().all(is_near) {
                    each(row, cell);
                }
            }
        }
    }

    /// The coordinates of the 512 cells of a brick, in the order of their keys.
    const fn decoded() -> &'static [[u8; 3]; 512] {
        const DECODED: [[u8; 3]; 512] = {
            let mut table = [[0; 3]; 512];
            let mut key = 0;
            while key < 512 {
                let [x, y, z] = morton::cell(key as u64);
                table[key] = [x.to_le_bytes()[0], y.to_le_bytes()[0], z.to_le_bytes()[0]];
                key += 1;
            }
            table
        };
        &DECODED
    }

    /// How far a point lies in its cell, 0 to 1 an axis.
    #[inline]
    pub(super) fn offset_in_cell(&self, row: usize, level: u32) -> [f64; 3] {
        let cells = f64::from(1_u32 << level);
        self.cube.unit(self.points.places[row]).map(|u| {
            let at = (u * cells).clamp(0.0, cells);
            at - at.floor().min(cells - 1.0)
        })
    }
}

/// The key of a point's brick. Levels of less than 8 cells a side are one brick.
fn brick_key(point_key: u64, level: u32) -> u64 {
    point_key.checked_shr(3 * (morton::AXIS_BITS - level) + BITS_IN_BRICK).unwrap_or(0)
}

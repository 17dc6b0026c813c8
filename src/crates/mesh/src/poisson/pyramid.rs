//! The solution level by level, its value at any node of any level, and the points in the order of their cells.

use std::ops::Range;

use rayon::prelude::*;

use super::operator::{Band, is_set, within_domain};
use crate::bricks::{
    self, BLOCK_NODES, BRICK_NODES, Block, Bricks, OWN, block_index, for_nodes, node_index,
};
use crate::cubes::Cube;
use crate::mesh::Vec3;
use crate::narrow::{floor_i32, to_f32, to_index, to_u32};
use crate::points::OrientedPoints;

/// Nodes along a side of the patch that a fine brick is interpolated from.
const PATCH: usize = 5;

/// Values at 5³ nodes, x fastest.
type Patch = [f32; PATCH * PATCH * PATCH];

pub(super) struct Solved {
    pub(super) bricks: Bricks,
    /// `[bricks, 512]`; all nodes of a brick have a value, 0 outside the domain.
    pub(super) x: Vec<f32>,
}

/// The solved levels, the coarsest first, which holds all its nodes.
#[derive(Default)]
pub(super) struct Pyramid {
    pub(super) levels: Vec<Solved>,
}

impl Pyramid {
    /// Computes the values of a brick of `level` from the finest coarser level that has each.
    pub(super) fn prolonged(&self, level: u32, place: [i32; 3], values: &mut [f32]) {
        let patch = self.patch(level - 1, place.map(|p| 4 * p));
        for_nodes(|node, x, y, z| values[node] = between(&patch, [x - 1, y - 1, z - 1]));
    }

    /// Returns the start values of a level: all its bricks' values, prolonged; 0 outside the domain.
    pub(super) fn start(&self, level: u32, band: &Band) -> Vec<f32> {
        let mut x = vec![0.0; band.bricks.len() * BRICK_NODES];
        if level > COARSEST {
            x.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, x)| {
                self.prolonged(level, band.bricks.place(brick).map(u32::cast_signed), x);
                let within = within_domain(&band.bricks, brick, level);
                x.iter_mut()
                    .enumerate()
                    .filter(|(n, _)| !is_set(&within, *n))
                    .for_each(|(_, x)| *x = 0.0);
            });
        }
        x
    }

    /// Returns the values at the 5³ nodes from `first` on, of the finest level up to `level` that has each.
    fn patch(&self, level: u32, first: [i32; 3]) -> Patch {
        let mut patch = [0.0; PATCH * PATCH * PATCH];
        let mut known = [false; PATCH * PATCH * PATCH];
        let bricks_low = first.map(|f| f.div_euclid(8));
        let bricks_high = first.map(|f| (f + 4).div_euclid(8));
        let mut is_whole = true;
        let solved = &self.levels[to_index(level.cast_signed() - COARSEST.cast_signed())];
        for octant in 0..8 {
            let is_high = [octant & 1 == 1, octant >> 1 & 1 == 1, octant >> 2 == 1];
            let place =
                std::array::from_fn(|a| if is_high[a] { bricks_high[a] } else { bricks_low[a] });
            if (0..3).any(|a| is_high[a] && bricks_high[a] == bricks_low[a]) {
                continue;
            }
            match solved.bricks.find(place) {
                Some(brick) => {
                    copy(&solved.x[brick * BRICK_NODES..], place, first, &mut patch, &mut known)
                }
                None => is_whole = false,
            }
        }
        if !is_whole && level > COARSEST {
            let coarse_first = first.map(|f| f.div_euclid(2));
            let coarse = self.patch(level - 1, coarse_first);
            let odd: [usize; 3] = std::array::from_fn(|a| to_index(first[a] - 2 * coarse_first[a]));
            for (at, value) in patch.iter_mut().enumerate().filter(|(at, _)| !known[*at]) {
                let node = [at % PATCH, at / PATCH % PATCH, at / (PATCH * PATCH)];
                *value = between(&coarse, std::array::from_fn(|a| node[a] + odd[a]));
            }
        }
        patch
    }
}

/// Copies the nodes of a patch that a brick holds.
fn copy(
    brick: &[f32],
    place: [i32; 3],
    first: [i32; 3],
    patch: &mut Patch,
    known: &mut [bool; PATCH * PATCH * PATCH],
) {
    for (at, value) in patch.iter_mut().enumerate() {
        let node = [at % PATCH, at / PATCH % PATCH, at / (PATCH * PATCH)];
        let local: [i32; 3] =
            std::array::from_fn(|a| first[a] - 8 * place[a] + node[a].to_le_bytes()[0] as i32);
        if local.iter().all(|l| (0..8).contains(l)) {
            let [x, y, z] = local.map(to_index);
            *value = brick[node_index(x, y, z)];
            known[at] = true;
        }
    }
}

/// Returns the value at a half node: `node` counts half nodes of the patch.
#[inline]
fn between(patch: &Patch, node: [usize; 3]) -> f32 {
    let low = node.map(|n| n / 2);
    let high = node.map(|n| n.div_ceil(2));
    let at = |x: usize, y: usize, z: usize| patch[(z * PATCH + y) * PATCH + x];
    let row = |y: usize, z: usize| 0.5 * (at(low[0], y, z) + at(high[0], y, z));
    let plane = |z: usize| 0.5 * (row(low[1], z) + row(high[1], z));
    0.5 * (plane(low[2]) + plane(high[2]))
}

/// Levels by which the domain of the equations is larger than the cube of the surface: twice as wide.
///
/// At the domain's border the function is free (Neumann's condition), so that neither side of the surface is taken for
/// the outside. With a border as near as the cube's, an open surface would run to the border instead of closing.
pub(super) const WIDER: u32 = 1;

/// Coarsest level of the domain, which is solved everywhere.
pub(super) const COARSEST: u32 = SHALLOWEST + WIDER;

/// Least depth.
pub const SHALLOWEST: u32 = 4;

/// Largest depth.
pub const DEEPEST: u32 = 16;

/// Returns the hats of a cell's eight corners at an offset in the cell, 0 to 1; x in the lowest bit.
#[inline]
pub(super) fn hats(offset: [f64; 3]) -> [f64; 8] {
    let [x, y, z] = offset.map(|t| [1.0 - t, t]);
    std::array::from_fn(|c| x[c & 1] * y[c >> 1 & 1] * z[c >> 2])
}

/// Sums the values that points carry at the nodes -1 to 8 of a brick, each times the hat of the node, in the order of
/// the points.
pub(super) fn sum_in_block<const K: usize>(
    points: &SortedPoints,
    level: u32,
    ids: &[u32; 27],
    ranges: &[Range<usize>],
    carried: impl Fn(usize) -> [f64; K],
    sums: &mut [[f64; K]],
) {
    sums.fill([0.0; K]);
    points.for_points_near(level, ids, ranges, [-2, 8], |row, cell| {
        let carried = carried(row);
        let hats = hats(points.offset_in_cell(row, level));
        for (corner, hat) in hats.into_iter().enumerate() {
            let bit = |axis: usize| i32::from(corner >> axis & 1 == 1);
            let at: [i32; 3] = std::array::from_fn(|a| cell[a] + bit(a) + 1);
            if at.iter().all(|a| (0..10).contains(a)) {
                let [x, y, z] = at.map(to_index);
                let sum = &mut sums[block_index(x, y, z)];
                for (sum, carried) in sum.iter_mut().zip(carried) {
                    *sum += hat * carried;
                }
            }
        }
    });
}

/// K values at each node of a level that lies near points; 0 elsewhere.
pub(super) struct NodeField<const K: usize> {
    level: u32,
    bricks: Bricks,
    /// `[bricks, 512]` each.
    planes: [Vec<f32>; K],
}

impl<const K: usize> NodeField<K> {
    /// Sums the values that the points carry.
    pub(super) fn of_points(
        points: &SortedPoints,
        level: u32,
        carried: impl Fn(usize) -> [f64; K] + Sync,
    ) -> Self {
        let bricks = Bricks::of_keys(points.bricks_around(level, 0, 1));
        let ranges = points.ranges(&bricks, level);
        let parts: Vec<[Vec<f32>; K]> = (0..bricks.len())
            .into_par_iter()
            .map_init(
                || vec![[0.0; K]; BLOCK_NODES],
                |sums, brick| {
                    sum_in_block(points, level, bricks.neighbours(brick), &ranges, &carried, sums);
                    let mut planes = std::array::from_fn(|_| vec![0.0; BRICK_NODES]);
                    for_nodes(|node, x, y, z| {
                        let sums = sums[block_index(x, y, z)];
                        planes
                            .iter_mut()
                            .zip(sums)
                            .for_each(|(plane, sum)| plane[node] = to_f32(sum));
                    });
                    planes
                },
            )
            .collect();
        let planes = std::array::from_fn(|plane| {
            let mut values = Vec::with_capacity(parts.len() * BRICK_NODES);
            parts.iter().for_each(|part| values.extend_from_slice(&part[plane]));
            values
        });
        Self { level, bricks, planes }
    }

    pub(super) fn level(&self) -> u32 {
        self.level
    }

    pub(super) fn reader(&self) -> Reader<'_, K> {
        let planes = self.planes.each_ref().map(Vec::as_slice);
        Reader::new(self.level, &self.bricks, planes)
    }
}

pub(super) struct Reader<'a, const K: usize> {
    cells: f64,
    bricks: &'a Bricks,
    planes: [&'a [f32]; K],
    place: [i32; 3],
    blocks: Vec<Block>,
}

impl<'a, const K: usize> Reader<'a, K> {
    pub(super) fn new(level: u32, bricks: &'a Bricks, planes: [&'a [f32]; K]) -> Self {
        let cells = f64::from(1_u32 << level);
        Self { cells, bricks, planes, place: [-1; 3], blocks: vec![[0.0; BLOCK_NODES]; K] }
    }

    /// Returns the values at a place in units of the cube; 0 if no node is near.
    pub(super) fn at(&mut self, unit: Vec3) -> [f64; K] {
        let at = unit.map(|u| (u * self.cells).clamp(0.0, self.cells));
        let cell = at.map(|a| floor_i32(a.min(self.cells - 1.0)));
        let place = cell.map(|c| c / 8);
        if place != self.place {
            self.place = place;
            match self.bricks.find(place) {
                Some(brick) => {
                    for (block, plane) in self.blocks.iter_mut().zip(self.planes) {
                        self.bricks.gather(plane, brick, 0.0, block);
                    }
                }
                None => self.blocks.iter_mut().for_each(|block| block.fill(0.0)),
            }
        }
        let [x, y, z] = cell.map(|c| to_index(c % 8) + 1);
        let hats = hats(std::array::from_fn(|a| at[a] - f64::from(cell[a])));
        std::array::from_fn(|plane| {
            let block = &self.blocks[plane];
            let corner = |c: usize| block[block_index(x + (c & 1), y + (c >> 1 & 1), z + (c >> 2))];
            hats.iter().enumerate().map(|(c, hat)| hat * f64::from(corner(c))).sum()
        })
    }
}

/// Bits of a cell's place within its brick.
const BITS_IN_BRICK: u32 = 9;

/// Least mean number of points of the occupied cells of the chosen depth.
const POINTS_A_CELL: f64 = 1.5;

/// Points in the order of the Z-curve, so that those of any cell of any level lie together.
pub(super) struct SortedPoints {
    pub(super) cube: Cube,
    /// Key of each point's cell of the finest level of keys, ascending.
    pub(super) keys: Vec<u64>,
    pub(super) points: OrientedPoints,
}

impl SortedPoints {
    /// Sorts points. Points of one cell keep their order.
    pub(super) fn new(points: &OrientedPoints, cube: Cube) -> Self {
        let mut order: Vec<(u64, u32)> = points
            .places
            .par_iter()
            .enumerate()
            .map(|(row, &place)| (cube.key(place, bricks::AXIS_BITS), to_u32(row)))
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

    /// Returns the finest level whose occupied cells hold 1.5 points on average, up to `deepest`; else the coarsest.
    pub(super) fn finest_full(&self, deepest: u32) -> u32 {
        let is_full = |level: u32| {
            let shift = 3 * (bricks::AXIS_BITS - level);
            let changes = self.keys.par_windows(2).filter(|w| w[0] >> shift != w[1] >> shift);
            self.len() as f64 >= POINTS_A_CELL * (changes.count() + 1) as f64
        };
        (COARSEST + 1..=deepest).rev().find(|&level| is_full(level)).unwrap_or(COARSEST)
    }

    /// Returns the points in each brick of cells of a level.
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

    /// Returns keys, unsorted and repeated, of the bricks with a node `below` before or `above` behind the lower
    /// corner of an occupied cell, and of some next to them.
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
                let place = bricks::cell(brick(run[0])).map(u32::cast_signed);
                let span = move |axis: usize| {
                    let first = place[axis] + (low[axis] - below).div_euclid(8);
                    let end = place[axis] + (high[axis] + above).div_euclid(8);
                    first.max(0)..=end.min(last)
                };
                span(2).flat_map(move |z| {
                    span(1).flat_map(move |y| {
                        span(0).map(move |x| bricks::key([x, y, z].map(i32::unsigned_abs)))
                    })
                })
            })
            .collect()
    }

    /// Returns a cell's coordinates in its brick, from the key of a point in it.
    #[inline]
    pub(super) fn cell_in_brick(&self, key: u64, level: u32) -> [i32; 3] {
        let local = key >> (3 * (bricks::AXIS_BITS - level)) & ((1 << BITS_IN_BRICK) - 1);
        bricks::cell(local).map(u32::cast_signed)
    }

    /// Calls `each` for each point in the cells `first..=last` along each axis, counted from the brick's first, with
    /// its row and its cell there. First and last lie at most a brick outside.
    pub(super) fn for_points_near(
        &self,
        level: u32,
        ids: &[u32; 27],
        ranges: &[Range<usize>],
        cells: [i32; 2],
        mut each: impl FnMut(usize, [i32; 3]),
    ) {
        let decoded = Self::decoded();
        let shift = 3 * (bricks::AXIS_BITS - level);
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

    /// Returns the coordinates of the 512 cells of a brick, in the order of their keys.
    const fn decoded() -> &'static [[u8; 3]; 512] {
        const DECODED: [[u8; 3]; 512] = {
            let mut table = [[0; 3]; 512];
            let mut key = 0;
            while key < 512 {
                let [x, y, z] = bricks::cell(key as u64);
                table[key] = [x.to_le_bytes()[0], y.to_le_bytes()[0], z.to_le_bytes()[0]];
                key += 1;
            }
            table
        };
        &DECODED
    }

    /// Returns the position of a point in its cell, 0 to 1 along each axis.
    #[inline]
    pub(super) fn offset_in_cell(&self, row: usize, level: u32) -> [f64; 3] {
        let cells = f64::from(1_u32 << level);
        self.cube.unit(self.points.places[row]).map(|u| {
            let at = (u * cells).clamp(0.0, cells);
            at - at.floor().min(cells - 1.0)
        })
    }
}

/// Returns the key of a point's brick. Levels of less than 8 cells a side are one brick.
fn brick_key(point_key: u64, level: u32) -> u64 {
    point_key.checked_shr(3 * (bricks::AXIS_BITS - level) + BITS_IN_BRICK).unwrap_or(0)
}

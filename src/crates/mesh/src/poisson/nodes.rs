//! Sums of what points carry, shared out to the nodes of a level by trilinear hats, and back.

use std::ops::Range;

use rayon::prelude::*;

use super::sorted::SortedPoints;
use crate::bricks::{BLOCK_NODES, BRICK_NODES, Block, Bricks, SIDE, block_index, node_index};
use crate::mesh::Vec3;
use crate::narrow::{floor_i32, to_f32, to_index};

/// The hats of a cell's eight corners at an offset in the cell, 0 to 1; x in the lowest bit.
#[inline]
pub(super) fn hats(offset: [f64; 3]) -> [f64; 8] {
    let [x, y, z] = offset.map(|t| [1.0 - t, t]);
    std::array::from_fn(|c| x[c & 1] * y[c >> 1 & 1] * z[c >> 2])
}

/// Sums at the nodes -1 to 8 of a brick, in the order of the points: what each point carries times the
/// hat of the node.
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
    /// Sums of what the points carry.
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
                    std::array::from_fn(|plane| inner(|i| to_f32(sums[i][plane])))
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

    /// A reader with a memory of the last brick that it read.
    pub(super) fn reader(&self) -> Reader<'_, K> {
        let planes = self.planes.each_ref().map(Vec::as_slice);
        Reader::new(self.level, &self.bricks, planes)
    }
}

/// Interpolates values at nodes.
pub(super) struct Reader<'a, const K: usize> {
    cells: f64,
    bricks: &'a Bricks,
    planes: [&'a [f32]; K],
    /// The brick that was read last.
    place: [i32; 3],
    blocks: Vec<Block>,
}

impl<'a, const K: usize> Reader<'a, K> {
    pub(super) fn new(level: u32, bricks: &'a Bricks, planes: [&'a [f32]; K]) -> Self {
        let cells = f64::from(1_u32 << level);
        Self { cells, bricks, planes, place: [-1; 3], blocks: vec![[0.0; BLOCK_NODES]; K] }
    }

    /// Values at a place in units of the cube; 0 where no node is near.
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

/// The values of a brick's own nodes, from those of its block.
pub(super) fn inner(value: impl Fn(usize) -> f32) -> Vec<f32> {
    let mut own = vec![0.0; BRICK_NODES];
    for z in 0..SIDE {
        for y in 0..SIDE {
            for x in 0..SIDE {
                own[node_index(x, y, z)] = value(block_index(x + 1, y + 1, z + 1));
            }
        }
    }
    own
}

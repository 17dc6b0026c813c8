//! The solution level by level, and its value at any node of any level.

use rayon::prelude::*;

use super::band::{Band, is_set, within_domain};
use super::levels::COARSEST;
use crate::bricks::{BRICK_NODES, Bricks, SIDE, node_index};
use crate::narrow::to_index;

/// Nodes along a side of what a fine brick is prolonged from.
const PATCH: usize = 5;

/// Values at 5³ nodes, x fastest.
type Patch = [f32; PATCH * PATCH * PATCH];

/// A level's nodes with their values.
pub(super) struct Solved {
    pub(super) bricks: Bricks,
    /// `[bricks, 512]`; all of a brick's nodes have a value, 0 outside the domain.
    pub(super) x: Vec<f32>,
}

/// The levels that are solved, the coarsest first; it holds all its nodes.
#[derive(Default)]
pub(super) struct Pyramid {
    pub(super) levels: Vec<Solved>,
}

impl Pyramid {
    /// Values of a brick of `level` as the finest of the coarser levels that has them gives them.
    pub(super) fn prolonged(&self, level: u32, place: [i32; 3], values: &mut [f32]) {
        let patch = self.patch(level - 1, place.map(|p| 4 * p));
        interpolate(&patch, place.map(|_| 0), values);
    }

    /// The start of a level: all its bricks' values, prolonged; 0 outside the domain.
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

    /// Values at the 5³ nodes from `first` on, of the finest level up to `level` that has each.
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

/// Copies what a brick holds of a patch.
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

/// The value half-way steps into a patch: `node` counts half nodes.
#[inline]
fn between(patch: &Patch, node: [usize; 3]) -> f32 {
    let low = node.map(|n| n / 2);
    let high = node.map(|n| n.div_ceil(2));
    let at = |x: usize, y: usize, z: usize| patch[(z * PATCH + y) * PATCH + x];
    let row = |y: usize, z: usize| 0.5 * (at(low[0], y, z) + at(high[0], y, z));
    let plane = |z: usize| 0.5 * (row(low[1], z) + row(high[1], z));
    0.5 * (plane(low[2]) + plane(high[2]))
}

/// A brick's values, half-way steps into a patch from `from` on.
fn interpolate(patch: &Patch, from: [usize; 3], values: &mut [f32]) {
    for z in 0..SIDE {
        for y in 0..SIDE {
            for x in 0..SIDE {
                let node = [x + from[0], y + from[1], z + from[2]];
                values[node_index(x, y, z)] = between(patch, node);
            }
        }
    }
}

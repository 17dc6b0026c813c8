//! Bricks that the surface passes, also where no points are.
//!
//! A cell's face that the surface passes belongs to two cells; where they lie in two bricks, both have to
//! be there, or the surface would end. So a sign change on a brick's face calls its neighbour, whose
//! values are those of the finest level that has them.

use std::collections::HashMap;

use rayon::prelude::*;

use super::band::{cube_span, is_set, within_cube};
use super::pyramid::COARSEST;
use super::pyramid::{Pyramid, Solved};
use crate::bricks::{BLOCK_NODES, BRICK_NODES, Block, Bricks, SIDE, block_index, morton};
use crate::narrow::{to_index, to_u32};
use crate::watch::{Stopped, Watch};

/// The bricks to draw the surface from.
pub(super) struct Followed {
    pub(super) bricks: Bricks,
    /// `[bricks, 512]`; NaN outside the cube.
    pub(super) values: Vec<f32>,
    /// True if more bricks were called than granted, so that the surface ends somewhere.
    pub(super) is_cut: bool,
    /// True if the surface reaches the cube, and ends there.
    pub(super) meets_cube: bool,
}

/// A growing set of bricks.
struct Found<'a> {
    pyramid: &'a Pyramid,
    level: u32,
    iso: f32,
    ids: HashMap<u64, u32>,
    keys: Vec<u64>,
    values: Vec<f32>,
}

/// The bricks of the finest level, and those into which the surface at `iso` leaves them; up to `granted`.
pub(super) fn follow(
    pyramid: &Pyramid,
    finest: Solved,
    level: u32,
    iso: f32,
    granted: usize,
    watch: &Watch<'_>,
) -> Result<Followed, Stopped> {
    let mut finest = finest;
    finest.x.par_chunks_mut(BRICK_NODES).zip(finest.bricks.keys()).for_each(|(values, &key)| {
        hide_outside(morton::cell(key), level, values);
    });
    let keys = finest.bricks.keys().to_vec();
    let ids = keys.iter().enumerate().map(|(id, &key)| (key, to_u32(id))).collect();
    let mut found = Found { pyramid, level, iso, ids, keys, values: finest.x };
    let mut fresh = 0..found.keys.len();
    let (mut is_cut, mut meets_cube) = (false, false);
    while !fresh.is_empty() && !is_cut {
        watch.check()?;
        let calls: Vec<(Vec<u64>, bool)> = fresh
            .clone()
            .into_par_iter()
            .map_init(|| [0.0; BLOCK_NODES], |block, id| found.called_by(id, block))
            .collect();
        meets_cube |= calls.iter().any(|(_, meets)| *meets);
        let mut called: Vec<u64> = calls.into_iter().flat_map(|(called, _)| called).collect();
        called.par_sort_unstable();
        called.dedup();
        fresh = found.keys.len()..found.keys.len() + called.len();
        is_cut = fresh.end > granted;
        if is_cut {
            called.truncate(granted.saturating_sub(fresh.start));
        }
        found.add(&called);
    }
    let (bricks, values) = found.finish();
    Ok(Followed { bricks, values, is_cut, meets_cube })
}

impl Found<'_> {
    fn place(&self, id: usize) -> [i32; 3] {
        morton::cell(self.keys[id]).map(u32::cast_signed)
    }

    /// Bricks that the surface enters from this one and that are not there, and where it passes the
    /// brick at all, those that hold the upper corners of its cells; and whether it meets the cube here.
    fn called_by(&self, id: usize, block: &mut Block) -> (Vec<u64>, bool) {
        let place = self.place(id);
        if !self.holds_cube(place) {
            return (Vec::new(), false);
        }
        self.gather(id, block);
        let mut called = Vec::new();
        let mut meets_cube = false;
        let mut call = |offset: [i32; 3]| {
            let there: [i32; 3] = std::array::from_fn(|a| place[a] + offset[a]);
            if self.holds_cube(there) {
                let key = morton::key(there.map(i32::unsigned_abs));
                if !self.ids.contains_key(&key) {
                    called.push(key);
                }
            }
        };
        // The cells of a brick use its nodes 0 to 8, at 1 to 9 of the block.
        if !self.passes(block, [[1, 9]; 3]) {
            return (called, false);
        }
        let faces = cube_span(self.level).map(u32::cast_signed);
        for axis in 0..3 {
            for (side, at) in [(-1, 1), (1, 9)] {
                let mut span = [[1, 9]; 3];
                span[axis] = [at, at];
                if self.passes(block, span) {
                    let mut offset = [0; 3];
                    offset[axis] = side;
                    call(offset);
                    meets_cube |= at == 1 && faces.contains(&(8 * place[axis]));
                }
            }
        }
        for upper in 1..8 {
            call([upper & 1, upper >> 1 & 1, upper >> 2]);
        }
        (called, meets_cube)
    }

    /// True if known nodes of this part of a block lie on both sides of the surface.
    fn passes(&self, block: &Block, span: [[usize; 2]; 3]) -> bool {
        let (mut inside, mut outside) = (false, false);
        for z in span[2][0]..=span[2][1] {
            for y in span[1][0]..=span[1][1] {
                for x in span[0][0]..=span[0][1] {
                    let value = block[block_index(x, y, z)];
                    inside |= value < self.iso;
                    outside |= value >= self.iso;
                }
            }
        }
        inside && outside
    }

    /// The brick's nodes and those behind it, which cost little where its neighbours are there.
    fn gather(&self, id: usize, block: &mut Block) {
        let place = self.place(id);
        let mut fetched = [0.0; BRICK_NODES];
        for upper in 0..8 {
            let offset = [upper & 1, upper >> 1 & 1, upper >> 2];
            let there: [i32; 3] = std::array::from_fn(|a| place[a] + offset[a]);
            let values = match self.ids.get(&morton::key(there.map(i32::unsigned_abs))) {
                Some(&id) => &self.values[id as usize * BRICK_NODES..][..BRICK_NODES],
                None => {
                    self.fill(there, &mut fetched);
                    &fetched
                }
            };
            let count = offset.map(|o| if o == 1 { 1 } else { SIDE });
            let start = offset.map(|o| to_index(8 * o) + 1);
            for z in 0..count[2] {
                for y in 0..count[1] {
                    let to = block_index(start[0], start[1] + y, start[2] + z);
                    let from = (z * SIDE + y) * SIDE;
                    block[to..to + count[0]].copy_from_slice(&values[from..from + count[0]]);
                }
            }
        }
    }

    /// True if a brick has nodes of the surface's cube.
    fn holds_cube(&self, place: [i32; 3]) -> bool {
        place.iter().all(|&p| p >= 0)
            && within_cube(place.map(i32::unsigned_abs), self.level).iter().any(|&word| word != 0)
    }

    /// Values of a brick that is not there; NaN outside the cube.
    fn fill(&self, place: [i32; 3], values: &mut [f32]) {
        if self.level > COARSEST {
            self.pyramid.prolonged(self.level, place, values);
        }
        hide_outside(place.map(i32::unsigned_abs), self.level, values);
    }

    fn add(&mut self, called: &[u64]) {
        let start = self.values.len();
        self.values.resize(start + called.len() * BRICK_NODES, 0.0);
        let mut added = self.values.split_off(start);
        added.par_chunks_mut(BRICK_NODES).zip(called).for_each(|(values, &key)| {
            self.fill(morton::cell(key).map(u32::cast_signed), values);
        });
        self.values.append(&mut added);
        for &key in called {
            self.ids.insert(key, to_u32(self.keys.len()));
            self.keys.push(key);
        }
    }

    /// The bricks in order.
    fn finish(self) -> (Bricks, Vec<f32>) {
        let bricks = Bricks::of_keys(self.keys.clone());
        let mut values = vec![0.0; bricks.len() * BRICK_NODES];
        values.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, values)| {
            let id = self.ids.get(&bricks.keys()[brick]).map_or(0, |&id| id as usize);
            values.copy_from_slice(&self.values[id * BRICK_NODES..][..BRICK_NODES]);
        });
        (bricks, values)
    }
}

/// Makes the values of a brick's nodes outside the surface's cube NaN.
fn hide_outside(place: [u32; 3], level: u32, values: &mut [f32]) {
    let within = within_cube(place, level);
    let outside = values.iter_mut().enumerate().filter(|(node, _)| !is_set(&within, *node));
    outside.for_each(|(_, value)| *value = f32::NAN);
}

//! Outliers by how full the cells around them are.

use rayon::prelude::*;

use crate::bricks::morton;
use crate::cube::Cube;

/// A cell with fewer points than this is thin.
const THIN_BELOW: usize = 3;

/// A neighbour with this many points vouches for a thin cell.
const VOUCHES_FROM: usize = 8;

/// Which points to keep, by the cells of a cube with `2^level` a side: a point goes whose cell holds fewer
/// than 3 points and has no neighbour, of 26, with 8.
///
/// `level` is two below the depth that is to be solved.
pub fn outliers_by_cells(places: &[[f32; 3]], cube: &Cube, level: u32) -> Vec<bool> {
    let keys: Vec<u64> = places.par_iter().map(|&place| cube.key(place, level)).collect();
    let mut sorted = keys.clone();
    sorted.par_sort_unstable();
    let mut cells: Vec<(u64, usize)> = Vec::new();
    for run in sorted.chunk_by(|a, b| a == b) {
        cells.push((run[0], run.len()));
    }
    let count =
        |key: u64| cells.binary_search_by_key(&key, |cell| cell.0).map_or(0, |i| cells[i].1);
    let lost: Vec<u64> = cells
        .par_iter()
        .filter(|(key, held)| *held < THIN_BELOW && !is_vouched_for(*key, level, &count))
        .map(|(key, _)| *key)
        .collect();
    keys.par_iter().map(|key| lost.binary_search(key).is_err()).collect()
}

fn is_vouched_for(key: u64, level: u32, count: &impl Fn(u64) -> usize) -> bool {
    let [x, y, z] = morton::cell(key);
    let near = |c: u32| c.saturating_sub(1)..=(c + 1).min((1 << level) - 1);
    near(z).any(|z| near(y).any(|y| near(x).any(|x| count(morton::key([x, y, z])) >= VOUCHES_FROM)))
}

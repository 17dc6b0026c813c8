//! Which bricks there are, and which lie next to which.

use rayon::prelude::*;

use super::morton;
use crate::narrow::to_u32;

/// Nodes along a side of a brick.
pub const SIDE: usize = 8;

/// Nodes of a brick.
pub const BRICK_NODES: usize = SIDE * SIDE * SIDE;

/// Stands for a neighbour that is not there.
pub const NO_BRICK: u32 = u32::MAX;

/// The brick itself among its [`neighbours`](Bricks::neighbours).
pub const OWN: usize = 13;

/// The node's place in its brick, from its coordinates there, each below 8; x runs fastest.
#[inline]
pub const fn node_index(x: usize, y: usize, z: usize) -> usize {
    (z * SIDE + y) * SIDE + x
}

/// A neighbour's place among the 27, from its offset in bricks, each -1, 0 or 1; x runs fastest.
#[inline]
pub const fn neighbour(offset: [i32; 3]) -> usize {
    ((offset[2] + 1) * 9 + (offset[1] + 1) * 3 + offset[0] + 1).unsigned_abs() as usize
}

/// The bricks of one level, in the order of their keys along the Z-curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bricks {
    /// Ascending, each once.
    keys: Vec<u64>,
    /// Ids of the 27 bricks around each, itself in the middle.
    neighbours: Vec<[u32; 27]>,
}

impl Bricks {
    /// The bricks of these keys, in any order and number.
    pub fn of_keys(mut keys: Vec<u64>) -> Self {
        keys.par_sort_unstable();
        keys.dedup();
        let neighbours = keys.par_iter().map(|&key| around(&keys, key)).collect();
        Self { keys, neighbours }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The keys, ascending.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// The brick's place, in bricks.
    pub fn place(&self, brick: usize) -> [u32; 3] {
        morton::cell(self.keys[brick])
    }

    /// Ids of the 27 bricks around, [`NO_BRICK`] where there is none.
    pub fn neighbours(&self, brick: usize) -> &[u32; 27] {
        &self.neighbours[brick]
    }

    /// The brick at this place, in bricks.
    pub fn find(&self, place: [i32; 3]) -> Option<usize> {
        find(&self.keys, place)
    }
}

fn find(keys: &[u64], place: [i32; 3]) -> Option<usize> {
    if place.iter().any(|&p| !(0..1 << morton::AXIS_BITS).contains(&p)) {
        return None;
    }
    keys.binary_search(&morton::key(place.map(i32::unsigned_abs))).ok()
}

fn around(keys: &[u64], key: u64) -> [u32; 27] {
    let centre = morton::cell(key).map(u32::cast_signed);
    let mut ids = [NO_BRICK; 27];
    for z in -1..=1 {
        for y in -1..=1 {
            for x in -1..=1 {
                let place = [centre[0] + x, centre[1] + y, centre[2] + z];
                if let Some(id) = find(keys, place) {
                    ids[neighbour([x, y, z])] = to_u32(id);
                }
            }
        }
    }
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bricks_know_their_neighbours_and_their_borders() {
        let places = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [3, 0, 0]];
        let bricks = Bricks::of_keys(places.iter().map(|&p| morton::key(p)).collect());
        let id = |p: [i32; 3]| to_u32(bricks.find(p).unwrap());
        let first = bricks.neighbours(id([0, 0, 0]) as usize);
        assert_eq!(first[OWN], id([0, 0, 0]));
        assert_eq!(first[neighbour([1, 0, 0])], id([1, 0, 0]));
        assert_eq!(first[neighbour([1, 1, 0])], id([1, 1, 0]));
        assert_eq!(first.iter().filter(|&&i| i != NO_BRICK).count(), 3);
        assert_eq!(bricks.find([-1, 0, 0]), None);
        assert_eq!(bricks.neighbours(id([3, 0, 0]) as usize)[neighbour([-1, 0, 0])], NO_BRICK);
    }
}

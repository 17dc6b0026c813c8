//! A sparse lattice of nodes: bricks of 8³ nodes, found by their key.

use rayon::prelude::*;

use crate::narrow::to_u32;

/// Nodes along a side of a block: -1 to 8 of its brick.
pub const BLOCK: usize = SIDE + 2;

/// Nodes of a block.
pub const BLOCK_NODES: usize = BLOCK * BLOCK * BLOCK;

/// Values at the nodes -1 to 8 along each axis of a brick, x fastest.
pub type Block = [f32; BLOCK_NODES];

/// Returns a node's index in a block; coordinates are those in the brick plus one, each below 10.
#[inline]
pub const fn block_index(x: usize, y: usize, z: usize) -> usize {
    (z * BLOCK + y) * BLOCK + x
}

impl Bricks {
    /// Copies a brick and the ring around it out of values at all bricks' nodes, `[bricks, 512]`. Nodes of bricks that
    /// are not there get `missing`.
    pub fn gather(&self, values: &[f32], brick: usize, missing: f32, block: &mut Block) {
        let ids = self.neighbours(brick);
        for z in 0..BLOCK {
            let (z_brick, z_node) = step(z);
            for y in 0..BLOCK {
                let (y_brick, y_node) = step(y);
                let row = &mut block[block_index(0, y, z)..][..BLOCK];
                let start = node_index(0, y_node, z_node);
                let id = |x: i32| ids[neighbour([x, y_brick, z_brick])];
                row[0] = value(values, id(-1), start + SIDE - 1, missing);
                match id(0) {
                    NO_BRICK => row[1..=SIDE].fill(missing),
                    id => row[1..=SIDE]
                        .copy_from_slice(&values[id as usize * BRICK_NODES + start..][..SIDE]),
                }
                row[BLOCK - 1] = value(values, id(1), start, missing);
            }
        }
    }
}

/// Returns the brick that a coordinate of a block lies in, and the node there.
#[inline]
const fn step(coordinate: usize) -> (i32, usize) {
    match coordinate {
        0 => (-1, SIDE - 1),
        9 => (1, 0),
        inner => (0, inner - 1),
    }
}

#[inline]
fn value(values: &[f32], id: u32, node: usize, missing: f32) -> f32 {
    if id == NO_BRICK { missing } else { values[id as usize * BRICK_NODES + node] }
}

/// Nodes along a side of a brick.
pub const SIDE: usize = 8;

/// Nodes of a brick.
pub const BRICK_NODES: usize = SIDE * SIDE * SIDE;

/// Stands for a neighbour that is not there.
pub const NO_BRICK: u32 = u32::MAX;

/// The brick itself among its [`neighbours`](Bricks::neighbours).
pub const OWN: usize = 13;

/// Returns a node's index in its brick, from its coordinates there, each below 8; x runs fastest.
#[inline]
pub const fn node_index(x: usize, y: usize, z: usize) -> usize {
    (z * SIDE + y) * SIDE + x
}

/// Calls `each` for each node of a brick, with its coordinates in the block.
#[inline]
pub(crate) fn for_nodes(mut each: impl FnMut(usize, usize, usize, usize)) {
    for z in 0..SIDE {
        for y in 0..SIDE {
            for x in 0..SIDE {
                each(node_index(x, y, z), x + 1, y + 1, z + 1);
            }
        }
    }
}

/// Returns a neighbour's index among the 27, from its offset in bricks, each -1, 0 or 1; x runs fastest.
#[inline]
pub const fn neighbour(offset: [i32; 3]) -> usize {
    ((offset[2] + 1) * 9 + (offset[1] + 1) * 3 + offset[0] + 1).unsigned_abs() as usize
}

/// Returns the offset in bricks of a neighbour of this index.
pub(crate) const fn neighbour_offset(index: i32) -> [i32; 3] {
    [index % 3 - 1, index / 3 % 3 - 1, index / 9 - 1]
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
    /// Sorts these keys, which may repeat.
    pub fn of_keys(mut keys: Vec<u64>) -> Self {
        keys.par_sort_unstable();
        keys.dedup();
        let neighbours = keys.par_iter().map(|&key| around(&keys, key)).collect();
        Self { keys, neighbours }
    }

    /// Returns the number of bricks.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys, ascending.
    pub fn keys(&self) -> &[u64] {
        &self.keys
    }

    /// Returns the brick's place, in bricks.
    pub fn place(&self, brick: usize) -> [u32; 3] {
        cell(self.keys[brick])
    }

    /// Ids of the 27 bricks around, [`NO_BRICK`] where there is none.
    pub fn neighbours(&self, brick: usize) -> &[u32; 27] {
        &self.neighbours[brick]
    }

    /// Returns the brick at this place, in bricks.
    pub fn find(&self, place: [i32; 3]) -> Option<usize> {
        find(&self.keys, place)
    }
}

fn find(keys: &[u64], place: [i32; 3]) -> Option<usize> {
    if place.iter().any(|&p| !(0..1 << AXIS_BITS).contains(&p)) {
        return None;
    }
    keys.binary_search(&key(place.map(i32::unsigned_abs))).ok()
}

fn around(keys: &[u64], key: u64) -> [u32; 27] {
    let centre = cell(key).map(u32::cast_signed);
    let mut ids = [NO_BRICK; 27];
    for (number, id) in (0..).zip(&mut ids) {
        let offset = neighbour_offset(number);
        if let Some(found) = find(keys, std::array::from_fn(|a| centre[a] + offset[a])) {
            *id = to_u32(found);
        }
    }
    ids
}

// Places along the Z-curve (Morton 1966): 21 bits an axis, x in the lowest.
//
// Shifting a key right by three bits gives the key of the cell twice as large that holds it, so that one sort serves
// every level.

/// Bits of an axis.
pub const AXIS_BITS: u32 = 21;

/// Returns the key of a cell; each coordinate is below 2^21.
#[inline]
pub const fn key(cell: [u32; 3]) -> u64 {
    spread(cell[0]) | spread(cell[1]) << 1 | spread(cell[2]) << 2
}

/// Returns the cell of a key.
#[inline]
pub const fn cell(key: u64) -> [u32; 3] {
    [gather(key), gather(key >> 1), gather(key >> 2)]
}

/// Returns 21 bits with two zeros before each.
pub(crate) const fn spread(x: u32) -> u64 {
    let mut bits = (x & 0x1f_ffff) as u64;
    bits = (bits | bits << 32) & 0x001f_0000_0000_ffff;
    bits = (bits | bits << 16) & 0x001f_0000_ff00_00ff;
    bits = (bits | bits << 8) & 0x100f_00f0_0f00_f00f;
    bits = (bits | bits << 4) & 0x10c3_0c30_c30c_30c3;
    (bits | bits << 2) & 0x1249_2492_4924_9249
}

/// Joins every third bit.
const fn gather(key: u64) -> u32 {
    let mut bits = key & 0x1249_2492_4924_9249;
    bits = (bits | bits >> 2) & 0x10c3_0c30_c30c_30c3;
    bits = (bits | bits >> 4) & 0x100f_00f0_0f00_f00f;
    bits = (bits | bits >> 8) & 0x001f_0000_ff00_00ff;
    bits = (bits | bits >> 16) & 0x001f_0000_0000_ffff;
    ((bits | bits >> 32) & 0x1f_ffff) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::node_places;

    #[test]
    fn a_block_holds_its_brick_and_the_ring_around() {
        let places = [[1, 1, 1], [0, 1, 1], [2, 1, 1], [1, 2, 1], [2, 2, 2]];
        let bricks = Bricks::of_keys(places.iter().map(|&p| key(p)).collect());
        // Each node's value encodes its place.
        let number = |n: [usize; 3]| (n[0] + 32 * n[1] + 1024 * n[2]) as f32;
        let values: Vec<f32> = node_places(&bricks).map(number).collect();
        let mut block = [0.0; BLOCK_NODES];
        let middle = bricks.find([1, 1, 1]).unwrap();
        bricks.gather(&values, middle, -1.0, &mut block);
        for (index, &found) in block.iter().enumerate() {
            let at = [index % 10 + 7, index / 10 % 10 + 7, index / 100 + 7];
            let there = bricks.find(at.map(|a| to_u32(a / 8).cast_signed())).is_some();
            assert_eq!(found, if there { number(at) } else { -1.0 });
        }
    }

    #[test]
    fn bricks_know_their_neighbours_and_their_borders() {
        let places = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [3, 0, 0]];
        let bricks = Bricks::of_keys(places.iter().map(|&p| key(p)).collect());
        let id = |p: [i32; 3]| to_u32(bricks.find(p).unwrap());
        let first = bricks.neighbours(id([0, 0, 0]) as usize);
        assert_eq!(first[OWN], id([0, 0, 0]));
        assert_eq!(first[neighbour([1, 0, 0])], id([1, 0, 0]));
        assert_eq!(first[neighbour([1, 1, 0])], id([1, 1, 0]));
        assert_eq!(first.iter().filter(|&&i| i != NO_BRICK).count(), 3);
        assert_eq!(bricks.find([-1, 0, 0]), None);
        assert_eq!(bricks.neighbours(id([3, 0, 0]) as usize)[neighbour([-1, 0, 0])], NO_BRICK);
    }

    #[test]
    fn the_bits_of_the_axes_take_turns() {
        for bit in 0..AXIS_BITS {
            assert_eq!(key([1 << bit, 0, 0]), 1 << (3 * bit));
        }
    }

    proptest! {
        #[test]
        fn a_key_gives_back_its_cell(x in 0_u32..1 << 21, y in 0_u32..1 << 21, z in 0_u32..1 << 21) {
            prop_assert_eq!(cell(key([x, y, z])), [x, y, z]);
            prop_assert_eq!(key([x, y, z]) >> 3, key([x / 2, y / 2, z / 2]));
        }
    }
}

//! A brick's values with one ring of nodes around them, as a thread block keeps them.

use super::lattice::{BRICK_NODES, Bricks, NO_BRICK, SIDE, neighbour, node_index};

/// Nodes along a side of a block: -1 to 8 of its brick.
pub const BLOCK: usize = SIDE + 2;

/// Nodes of a block.
pub const BLOCK_NODES: usize = BLOCK * BLOCK * BLOCK;

/// Values at the nodes -1 to 8 along each axis of a brick, x fastest.
pub type Block = [f32; BLOCK_NODES];

/// A node's place in a block; coordinates are those in the brick plus one, each below 10.
#[inline]
pub const fn block_index(x: usize, y: usize, z: usize) -> usize {
    (z * BLOCK + y) * BLOCK + x
}

impl Bricks {
    /// Copies a brick and the ring around it out of values at all bricks' nodes, `[bricks, 512]`.
    /// Nodes of bricks that are not there get `missing`.
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

/// Which brick a coordinate of a block lies in, and which of its nodes it is.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bricks::morton;
    use crate::narrow::to_u32;

    #[test]
    fn a_block_holds_its_brick_and_the_ring_around() {
        let places = [[1, 1, 1], [0, 1, 1], [2, 1, 1], [1, 2, 1], [2, 2, 2]];
        let bricks = Bricks::of_keys(places.iter().map(|&p| morton::key(p)).collect());
        // Each node's value says where it lies.
        let number = |n: [usize; 3]| (n[0] + 32 * n[1] + 1024 * n[2]) as f32;
        let mut values = vec![0.0; bricks.len() * BRICK_NODES];
        for brick in 0..bricks.len() {
            let place = bricks.place(brick).map(|p| p as usize * SIDE);
            for node in 0..BRICK_NODES {
                let at = [node % 8 + place[0], node / 8 % 8 + place[1], node / 64 + place[2]];
                values[brick * BRICK_NODES + node] = number(at);
            }
        }
        let mut block = [0.0; BLOCK_NODES];
        let middle = bricks.find([1, 1, 1]).unwrap();
        bricks.gather(&values, middle, -1.0, &mut block);
        for (index, &found) in block.iter().enumerate() {
            let at = [index % 10 + 7, index / 10 % 10 + 7, index / 100 + 7];
            let there = bricks.find(at.map(|a| to_u32(a / 8).cast_signed())).is_some();
            assert_eq!(found, if there { number(at) } else { -1.0 });
        }
    }
}

//! A sparse lattice of nodes: bricks of 8³ nodes, found by their place.

mod block;
mod lattice;
pub mod morton;

pub use block::{BLOCK, BLOCK_NODES, Block, block_index};
pub use lattice::{BRICK_NODES, Bricks, NO_BRICK, OWN, SIDE, neighbour, node_index};

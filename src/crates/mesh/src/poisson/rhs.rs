//! The equations' right side: how the points' normals pull.
//!
//! The normals make up a vector field `V = sum_j v_j phi_j`, `v_j = h^-3 sum over points of a n phi_j(p)`.
//! `b_i` is the integral of `grad phi_i · V`; divided by h like the left side. On a coarser level it is the
//! finer one's, restricted by (1/2, 1, 1/2) an axis: exact, since the coarse hats are sums of fine ones.

use rayon::prelude::*;

use super::band::{Band, is_set};
use super::hats::Products;
use super::nodes::sum_in_block;
use super::sorted::SortedPoints;
use crate::bricks::{BLOCK_NODES, BRICK_NODES, Bricks, SIDE, block_index, node_index};
use crate::narrow::{to_f32, to_f64s};
use crate::vector::{normalize, scale};

/// The right side on the finest level, `[bricks, 512]`; 0 at nodes that are not solved for.
pub(super) fn finest(points: &SortedPoints, areas: &[f32], band: &Band, level: u32) -> Vec<f32> {
    let cells_a_face = 4.0_f64.powi(level.cast_signed());
    let carried = |row: usize| {
        let normal = normalize(to_f64s(points.points.normals[row]));
        scale(normal, f64::from(areas[row]) * cells_a_face)
    };
    let mut b = vec![0.0; band.bricks.len() * BRICK_NODES];
    b.par_chunks_mut(BRICK_NODES).enumerate().for_each_init(
        || vec![[0.0; 3]; BLOCK_NODES],
        |sums, (brick, b)| {
            let ids = band.bricks.neighbours(brick);
            sum_in_block(points, level, ids, &band.ranges, carried, sums);
            divergence(band, brick, level, sums, b);
        },
    );
    b
}

/// Minus the divergence of V, weakly, at a brick's nodes that are solved for.
fn divergence(band: &Band, brick: usize, level: u32, sums: &[[f64; 3]], b: &mut [f32]) {
    let products = band.bricks.place(brick).map(|place| Products::of_brick(place, level));
    for (node, b) in b.iter_mut().enumerate() {
        if !is_set(&band.unknown[brick], node) {
            continue;
        }
        let at = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
        let [px, py, pz] = [products[0][at[0]], products[1][at[1]], products[2][at[2]]];
        let mut sum = 0.0;
        for z in 0..3 {
            for y in 0..3 {
                for x in 0..3 {
                    let v = sums[block_index(at[0] + x, at[1] + y, at[2] + z)];
                    sum += f64::from(px.derivative[x] * py.mass[y] * pz.mass[z]) * v[0];
                    sum += f64::from(px.mass[x] * py.derivative[y] * pz.mass[z]) * v[1];
                    sum += f64::from(px.mass[x] * py.mass[y] * pz.derivative[z]) * v[2];
                }
            }
        }
        *b = to_f32(sum);
    }
}

/// The right side of the level above, from that of the finer level.
pub(super) fn restricted(coarse: &Band, fine: &Bricks, fine_b: &[f32]) -> Vec<f32> {
    let mut b = vec![0.0; coarse.bricks.len() * BRICK_NODES];
    b.par_chunks_mut(BRICK_NODES).enumerate().for_each_init(
        || [0.0; BLOCK_NODES],
        |block, (brick, b)| {
            let place = coarse.bricks.place(brick).map(u32::cast_signed);
            for octant in 0..8_usize {
                let half: [usize; 3] = [octant & 1, octant >> 1 & 1, octant >> 2];
                let child = std::array::from_fn(|a| 2 * place[a] + i32::from(half[a] == 1));
                // A node that is solved for has bricks all around: without one, there is nothing.
                if let Some(child) = fine.find(child) {
                    fine.gather(fine_b, child, 0.0, block);
                    restrict_octant(block, half, b);
                }
            }
            for (node, b) in b.iter_mut().enumerate() {
                if !is_set(&coarse.unknown[brick], node) {
                    *b = 0.0;
                }
            }
        },
    );
    b
}

/// The eighth of a coarse brick's nodes that lies in one fine brick.
fn restrict_octant(block: &[f32; BLOCK_NODES], half: [usize; 3], b: &mut [f32]) {
    const SHARE: [f32; 3] = [0.5, 1.0, 0.5];
    for z in 0..4 {
        for y in 0..4 {
            for x in 0..4 {
                let mut sum = 0.0;
                for (k, zs) in SHARE.iter().enumerate() {
                    for (j, ys) in SHARE.iter().enumerate() {
                        for (i, xs) in SHARE.iter().enumerate() {
                            let at = block_index(2 * x + i, 2 * y + j, 2 * z + k);
                            sum += xs * ys * zs * block[at];
                        }
                    }
                }
                // Half, since each level's right side is divided by its own cell.
                b[node_index(4 * half[0] + x, 4 * half[1] + y, 4 * half[2] + z)] = 0.5 * sum;
            }
        }
    }
}

//! The equations' left side, applied to a brick without a matrix.
//!
//! In units of the cell, divided by h: `(smm + msm + mms) x + alpha/h² sum_c A_c phi_c (phi_c · x)`,
//! s, m: stiffness and mass an axis. See Kazhdan and Hoppe, "Screened Poisson Surface Reconstruction",
//! 2013, equation 6.

use super::band::{Band, is_set};
use super::hats::{MASS_ASIDE, Products};
use super::screen::Screen;
use crate::bricks::{BLOCK, BLOCK_NODES, BRICK_NODES, Block, SIDE, block_index, node_index};

/// Nodes of a plane of a block.
const PLANE: usize = BLOCK * BLOCK;

/// The left side of one level's equations.
pub(super) struct Operator<'a> {
    pub(super) level: u32,
    pub(super) band: &'a Band,
    pub(super) screen: &'a Screen,
}

impl Operator<'_> {
    /// The left side at the brick's nodes that are solved for, 0 at the others; x is 0 outside the cube.
    pub(super) fn apply(&self, brick: usize, x: &Block, out: &mut [f32]) {
        let place = self.band.bricks.place(brick);
        let [px, py, pz] = place.map(|place| Products::of_brick(place, self.level));
        let (mut mass_z, mut stiff_z) = ([0.0; SIDE * PLANE], [0.0; SIDE * PLANE]);
        for (z, products) in pz.iter().enumerate() {
            let (m, s) = (products.mass[1], products.stiffness[1]);
            for at in z * PLANE..(z + 1) * PLANE {
                let (own, aside) = (x[at + PLANE], x[at] + x[at + 2 * PLANE]);
                mass_z[at] = m * own + MASS_ASIDE * aside;
                stiff_z[at] = s * own - aside;
            }
        }
        let mut sums = [0.0; BLOCK_NODES];
        if self.screen.touches(brick) {
            self.screen.add(brick, x, &mut sums);
        }
        for z in 0..SIDE {
            for y in 0..SIDE {
                let (m, s) = (py[y].mass[1], py[y].stiffness[1]);
                let (mut mass, mut stiff) = ([0.0; BLOCK], [0.0; BLOCK]);
                for i in 0..BLOCK {
                    let at = (z * BLOCK + y) * BLOCK + i;
                    let (own_m, own_s) = (mass_z[at + BLOCK], stiff_z[at + BLOCK]);
                    let aside_m = mass_z[at] + mass_z[at + 2 * BLOCK];
                    let aside_s = stiff_z[at] + stiff_z[at + 2 * BLOCK];
                    mass[i] = m * own_m + MASS_ASIDE * aside_m;
                    stiff[i] = s * own_m - aside_m + m * own_s + MASS_ASIDE * aside_s;
                }
                let row = &mut out[node_index(0, y, z)..][..SIDE];
                let points = &sums[block_index(1, y + 1, z + 1)..][..SIDE];
                for i in 0..SIDE {
                    let (m, s) = (px[i].mass[1], px[i].stiffness[1]);
                    row[i] =
                        m * stiff[i + 1] + MASS_ASIDE * (stiff[i] + stiff[i + 2]) + s * mass[i + 1]
                            - (mass[i] + mass[i + 2])
                            + points[i];
                }
            }
        }
        let mask = &self.band.unknown[brick];
        for (node, out) in out.iter_mut().enumerate().take(BRICK_NODES) {
            if !is_set(mask, node) {
                *out = 0.0;
            }
        }
    }
}

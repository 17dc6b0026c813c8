//! The equations' left side, applied to a brick without a matrix.
//!
//! In units of the cell, divided by h: `(smm + msm + mms) x + alpha/h² sum_c A_c phi_c (phi_c · x)`,
//! s, m: stiffness and mass an axis. See Kazhdan and Hoppe, "Screened Poisson Surface Reconstruction",
//! 2013, equation 6.

use rayon::prelude::*;

use super::band::{Band, is_set};
use super::pyramid::sum_in_block;
use super::sorted::SortedPoints;
use crate::bricks::{
    BLOCK, BLOCK_NODES, BRICK_NODES, Block, Bricks, NO_BRICK, SIDE, block_index, node_index,
};
use crate::narrow::{to_f32, to_f64s, to_index};
use crate::vector::{normalize, scale};

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

// Products of trilinear hats, integrated: what the equations are made of.
//
// In one dimension, in cells, with hats at i and j = i - 1, i, i + 1: mass (1, 4, 1)/6, stiffness
// (-1, 2, -1), derivative of i's times j's (1/2, 0, -1/2). Hats at the cube's border are halved, so
// that there the diagonals are 2/6, 1 and -1/2 or 1/2: the border is free (Neumann's condition).

/// Mass, stiffness and derivative of the hat of a node with those of the nodes before, itself, behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Products {
    pub(super) mass: [f32; 3],
    pub(super) stiffness: [f32; 3],
    pub(super) derivative: [f32; 3],
}

/// A sixth: the mass of two hats next to each other.
pub(super) const MASS_ASIDE: f32 = 1.0 / 6.0;

impl Products {
    /// Of a node along one axis; the last is 2^level.
    pub(super) const fn of(node: u32, level: u32) -> Self {
        let (mass, stiffness, derivative) = if node == 0 {
            (2.0 / 6.0, 1.0, -0.5)
        } else if node == 1 << level {
            (2.0 / 6.0, 1.0, 0.5)
        } else {
            (4.0 / 6.0, 2.0, 0.0)
        };
        Self {
            mass: [MASS_ASIDE, mass, MASS_ASIDE],
            stiffness: [-1.0, stiffness, -1.0],
            derivative: [0.5, derivative, -0.5],
        }
    }

    /// Of the eight nodes of a brick at this place along one axis.
    pub(super) fn of_brick(place: u32, level: u32) -> [Self; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|node| Self::of(8 * place + node, level))
    }
}

// The equations' right side: how the points' normals pull.
//
// The normals make up a vector field `V = sum_j v_j phi_j`, `v_j = h^-3 sum over points of a n phi_j(p)`.
// `b_i` is the integral of `grad phi_i · V`; divided by h like the left side. On a coarser level it is the
// finer one's, restricted by (1/2, 1, 1/2) an axis: exact, since the coarse hats are sums of fine ones.

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

// The points of a level as the equations see them: one a cell.

/// A cell's point, as a brick sees it whose nodes it touches.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The cell's lower corner in the brick's block.
    corner: u16,
    /// Where in the cell, 0 to 1 an axis.
    offset: [f32; 3],
    /// alpha A / h²: A is the area of the cell's points.
    weight: f32,
}

/// The points of a level, sorted by brick.
pub(super) struct Screen {
    /// For each brick the points that touch its nodes, those of its neighbours too.
    held: Vec<Held>,
    /// Where each brick's start; one more than there are bricks.
    starts: Vec<usize>,
}

/// The point of one cell: its place in the brick, in the cell, and its area.
struct Mean {
    cell: [i32; 3],
    offset: [f64; 3],
    area: f64,
}

impl Screen {
    /// One point a cell, the mean of its members by area; `alpha` is how much passing near the points
    /// counts against the gradient.
    pub(super) fn new(
        points: &SortedPoints,
        areas: &[f32],
        band: &Band,
        level: u32,
        alpha: f64,
    ) -> Self {
        let means: Vec<Vec<Mean>> = band
            .ranges
            .par_iter()
            .map(|range| {
                let rows: Vec<usize> = range.clone().collect();
                let cell = |&row: &usize| points.cell_in_brick(points.keys[row], level);
                let cells = rows.chunk_by(|a, b| cell(a) == cell(b));
                cells.map(|rows| mean_of(points, areas, level, cell(&rows[0]), rows)).collect()
            })
            .collect();
        let factor = alpha * 4.0_f64.powi(level.cast_signed());
        let lists: Vec<Vec<Held>> = (0..band.bricks.len())
            .into_par_iter()
            .map(|brick| {
                let mut list = Vec::new();
                for (number, &id) in (0_i32..14).zip(band.bricks.neighbours(brick)) {
                    if id == NO_BRICK {
                        continue;
                    }
                    let brick = [number % 3 - 1, number / 3 % 3 - 1, number / 9 - 1];
                    list.extend(means[id as usize].iter().filter_map(|m| held(m, brick, factor)));
                }
                list
            })
            .collect();
        let mut starts = vec![0];
        for list in &lists {
            starts.push(starts[starts.len() - 1] + list.len());
        }
        Self { held: lists.concat(), starts }
    }

    /// Adds the points' part of the equations to a brick's block of sums.
    #[inline]
    pub(super) fn add(&self, brick: usize, x: &Block, sums: &mut Block) {
        for held in &self.held[self.starts[brick]..self.starts[brick + 1]] {
            let corner = held.corner as usize;
            let [[ax, bx], [ay, by], [az, bz]] = held.offset.map(|t| [1.0 - t, t]);
            let row = [ay * az, by * az, ay * bz, by * bz];
            let at = [0, 10, 100, 110].map(|step| corner + step);
            let mut value = 0.0;
            for (k, &at) in at.iter().enumerate() {
                value += row[k] * (ax * x[at] + bx * x[at + 1]);
            }
            value *= held.weight;
            for (k, &at) in at.iter().enumerate() {
                sums[at] += ax * row[k] * value;
                sums[at + 1] += bx * row[k] * value;
            }
        }
    }

    /// True if a brick's nodes are touched by a point.
    pub(super) fn touches(&self, brick: usize) -> bool {
        self.starts[brick + 1] > self.starts[brick]
    }
}

fn mean_of(
    points: &SortedPoints,
    areas: &[f32],
    level: u32,
    cell: [i32; 3],
    rows: &[usize],
) -> Mean {
    let mut sum = [0.0; 3];
    let mut area = 0.0;
    for &row in rows {
        let own = f64::from(areas[row]);
        let offset = points.offset_in_cell(row, level);
        area += own;
        sum = std::array::from_fn(|a| sum[a] + own * offset[a]);
    }
    Mean { cell, offset: sum.map(|s| (s / area).clamp(0.0, 1.0)), area }
}

/// Returns a point of a brick at this distance in bricks, seen from here; none if it touches no node here.
fn held(mean: &Mean, brick: [i32; 3], factor: f64) -> Option<Held> {
    let cell: [i32; 3] = std::array::from_fn(|a| mean.cell[a] + 8 * brick[a]);
    if !cell.iter().all(|c| (-1..8).contains(c)) {
        return None;
    }
    let [x, y, z] = cell.map(|c| to_index(c + 1));
    Some(Held {
        corner: u16::try_from(block_index(x, y, z)).ok()?,
        offset: mean.offset.map(to_f32),
        weight: to_f32(factor * mean.area),
    })
}

//! The equations of a level, applied to a brick without a matrix, and their solution; the solution level by level, its
//! value at any node of any level, and the points in the order of their cells.
//!
//! The left side in units of the cell, divided by h: `(smm + msm + mms) x + alpha/h² sum_c A_c phi_c (phi_c · x)`,
//! with s, m the stiffness and mass along an axis (Kazhdan and Hoppe, "Screened Poisson Surface Reconstruction", 2013,
//! equation 6).

use std::ops::Range;

use rayon::prelude::*;

use super::PoissonError;
use crate::Watch;
use crate::bricks::{
    self, BLOCK, BLOCK_NODES, BRICK_NODES, Block, Bricks, NO_BRICK, OWN, SIDE, block_index,
    for_nodes, neighbour, neighbour_offset, node_index,
};
use crate::cubes::Cube;
use crate::mesh::Vec3;
use crate::narrow::{floor_i32, to_f32, to_f64s, to_index, to_u32};
use crate::place::{normalize, scale};
use crate::points::OrientedPoints;

const PLANE: usize = BLOCK * BLOCK;

pub(super) struct Operator<'a> {
    pub(super) level: u32,
    pub(super) band: &'a Band,
    pub(super) screen: &'a Screen,
}

impl Operator<'_> {
    /// Computes the left side at the brick's solved nodes, 0 at the others; x is 0 outside the domain.
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
        fill_others(&self.band.unknown[brick], out, 0.0);
    }
}

// Integrals of products of trilinear hats. In one dimension, in cells, with hats at i and j = i - 1, i, i + 1: mass
// (1, 4, 1)/6, stiffness (-1, 2, -1), derivative of i's times j's (1/2, 0, -1/2). Hats at the domain's border are
// halved, so that there the diagonals are 2/6, 1 and -1/2 or 1/2: the border is free (Neumann's condition).

/// Mass, stiffness and derivative of a node's hat with those of the previous node, itself and the next.
#[derive(Clone, Copy, Debug)]
struct Products {
    mass: [f32; 3],
    stiffness: [f32; 3],
    derivative: [f32; 3],
}

const MASS_ASIDE: f32 = 1.0 / 6.0;

impl Products {
    /// Returns the products of a node along one axis; the last node is 2^level.
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

    /// Returns the products of the eight nodes of a brick along one axis.
    fn of_brick(place: u32, level: u32) -> [Self; 8] {
        [0, 1, 2, 3, 4, 5, 6, 7].map(|node| Self::of(8 * place + node, level))
    }
}

// The right side. The normals make up a vector field `V = sum_j v_j phi_j`, `v_j = h^-3 sum over points of a n
// phi_j(p)`. `b_i` is the integral of `grad phi_i · V`, divided by h like the left side. On a coarser level it is the
// finer one's, restricted by (1/2, 1, 1/2) along each axis: exact, because the coarse hats are sums of fine ones.

/// Computes the right side on the finest level, `[bricks, 512]`; 0 at nodes that are not solved.
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

/// Computes minus the weak divergence of V at a brick's solved nodes.
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

/// Computes the right side of a level from that of the next finer level.
pub(super) fn restricted(coarse: &Band, fine: &Bricks, fine_b: &[f32]) -> Vec<f32> {
    let mut b = vec![0.0; coarse.bricks.len() * BRICK_NODES];
    b.par_chunks_mut(BRICK_NODES).enumerate().for_each_init(
        || [0.0; BLOCK_NODES],
        |block, (brick, b)| {
            let place = coarse.bricks.place(brick).map(u32::cast_signed);
            for octant in 0..8_usize {
                let half: [usize; 3] = [octant & 1, octant >> 1 & 1, octant >> 2];
                let child = std::array::from_fn(|a| 2 * place[a] + i32::from(half[a] == 1));
                // A solved node has bricks all around. Without one, there is nothing to add.
                if let Some(child) = fine.find(child) {
                    fine.gather(fine_b, child, 0.0, block);
                    restrict_octant(block, half, b);
                }
            }
            fill_others(&coarse.unknown[brick], b, 0.0);
        },
    );
    b
}

/// Restricts to the eighth of a coarse brick's nodes that lies in one fine brick.
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
                // The factor 0.5: each level's right side is divided by its own cell.
                b[node_index(4 * half[0] + x, 4 * half[1] + y, 4 * half[2] + z)] = 0.5 * sum;
            }
        }
    }
}

/// The point of a cell in a brick whose nodes it touches.
#[derive(Clone, Copy, Debug)]
struct CellPoint {
    /// Lower corner of the cell in the brick's block.
    corner: u16,
    /// Position in the cell, 0 to 1 along each axis.
    offset: [f32; 3],
    /// alpha A / h², with A the area of the cell's points.
    weight: f32,
}

/// The points of a level, one per cell, sorted by brick.
pub(super) struct Screen {
    /// Points that touch each brick's nodes, including those of its neighbours.
    points: Vec<CellPoint>,
    /// First point of each brick, and the end.
    starts: Vec<usize>,
}

/// Mean of a cell's points: the cell in its brick, the position in the cell, and the area.
struct Mean {
    cell: [i32; 3],
    offset: [f64; 3],
    area: f64,
}

impl Screen {
    /// Averages the points of each cell by area; `alpha` is the weight of passing near the points against following
    /// the gradient.
    pub(super) fn new(
        points: &SortedPoints,
        areas: &[f32],
        band: &Band,
        level: u32,
        alpha: f64,
    ) -> Self {
        let means_of = |range: &Range<usize>| -> Vec<Mean> {
            let rows: Vec<usize> = range.clone().collect();
            let cell = |&row: &usize| points.cell_in_brick(points.keys[row], level);
            let cells = rows.chunk_by(|a, b| cell(a) == cell(b));
            cells.map(|rows| mean_of(points, areas, level, cell(&rows[0]), rows)).collect()
        };
        let means: Vec<Vec<Mean>> = band.ranges.par_iter().map(means_of).collect();
        let factor = alpha * 4.0_f64.powi(level.cast_signed());
        let list_of = |brick: usize| {
            let mut list = Vec::new();
            for (number, &id) in (0_i32..14).zip(band.bricks.neighbours(brick)) {
                let Some(near) = means.get(id as usize) else { continue };
                let brick = neighbour_offset(number);
                list.extend(near.iter().filter_map(|mean| touching(mean, brick, factor)));
            }
            list
        };
        let lists: Vec<Vec<CellPoint>> =
            (0..band.bricks.len()).into_par_iter().map(list_of).collect();
        let mut starts = vec![0];
        for list in &lists {
            starts.push(starts[starts.len() - 1] + list.len());
        }
        Self { points: lists.concat(), starts }
    }

    /// Adds the points' part of the equations to a brick's block of sums.
    #[inline]
    pub(super) fn add(&self, brick: usize, x: &Block, sums: &mut Block) {
        for point in &self.points[self.starts[brick]..self.starts[brick + 1]] {
            let corner = point.corner as usize;
            let [[ax, bx], [ay, by], [az, bz]] = point.offset.map(|t| [1.0 - t, t]);
            let row = [ay * az, by * az, ay * bz, by * bz];
            let at = [0, 10, 100, 110].map(|step| corner + step);
            let mut value = 0.0;
            for (k, &at) in at.iter().enumerate() {
                value += row[k] * (ax * x[at] + bx * x[at + 1]);
            }
            value *= point.weight;
            for (k, &at) in at.iter().enumerate() {
                sums[at] += ax * row[k] * value;
                sums[at + 1] += bx * row[k] * value;
            }
        }
    }

    /// True if a point touches a brick's nodes.
    fn touches(&self, brick: usize) -> bool {
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

/// Returns the point of a cell in a brick at this distance in bricks; none if it touches no node of this brick.
fn touching(mean: &Mean, brick: [i32; 3], factor: f64) -> Option<CellPoint> {
    let cell: [i32; 3] = std::array::from_fn(|a| mean.cell[a] + 8 * brick[a]);
    if !cell.iter().all(|c| (-1..8).contains(c)) {
        return None;
    }
    let [x, y, z] = cell.map(|c| to_index(c + 1));
    Some(CellPoint {
        corner: u16::try_from(block_index(x, y, z)).ok()?,
        offset: mean.offset.map(to_f32),
        weight: to_f32(factor * mean.area),
    })
}

// A level is solved at the nodes of occupied cells and in one ring around them. One more ring holds the coarser
// level's values as the border.
/// A bit per node of a brick: word z, bit 8 y + x.
type Mask = [u64; 8];

/// Rings of solved nodes before the lower corner of an occupied cell; behind it, one more.
const RING: i32 = 1;

/// Cells of each neighbour that rows of cells include.
const REACH: usize = 4;

/// Rows of cells along an axis: 4 of each neighbour and 8 of the brick.
const ROWS: usize = 16;

/// Bits of a row of cells, the brick's first cell at bit 4.
type Rows = [[u32; ROWS]; ROWS];

pub(super) struct Band {
    pub(super) bricks: Bricks,
    pub(super) unknown: Vec<Mask>,
    /// Points in each brick of cells.
    ranges: Vec<Range<usize>>,
}

impl Band {
    /// Takes all nodes of a level, all of them solved.
    pub(super) fn dense(points: &SortedPoints, level: u32) -> Self {
        let a_side = (1_u32 << level) / 8 + 1;
        let place = |i: u32| [i % a_side, i / a_side % a_side, i / a_side / a_side];
        let bricks = Bricks::of_keys((0..a_side.pow(3)).map(|i| bricks::key(place(i))).collect());
        let whole = |brick| within_domain(&bricks, brick, level);
        let unknown = (0..bricks.len()).map(whole).collect();
        let ranges = points.ranges(&bricks, level);
        Self { bricks, unknown, ranges }
    }

    /// Takes the nodes near the points.
    pub(super) fn near(points: &SortedPoints, level: u32) -> Self {
        let wide = Bricks::of_keys(points.bricks_around(level, RING + 1, RING + 2));
        let ranges = points.ranges(&wide, level);
        let occupied: Vec<Mask> =
            ranges.par_iter().map(|range| occupied(points, level, range)).collect();
        let near =
            |brick: usize, ring: i32| dilated(&rows(&occupied, wide.neighbours(brick)), ring);
        let is_kept = |&brick: &usize| near(brick, RING + 1) != [0; 8];
        let kept = (0..wide.len()).into_par_iter().filter(is_kept);
        let bricks = Bricks::of_keys(kept.map(|brick| wide.keys()[brick]).collect());
        let masks = |&key: &u64| {
            let brick = wide.keys().binary_search(&key).unwrap_or(0);
            let (solved, within) = (near(brick, RING), within_domain(&wide, brick, level));
            std::array::from_fn(|z| solved[z] & within[z])
        };
        let unknown = bricks.keys().par_iter().map(masks).collect();
        let ranges = points.ranges(&bricks, level);
        Self { bricks, unknown, ranges }
    }
}

/// Returns the cells of a brick that hold points.
fn occupied(points: &SortedPoints, level: u32, range: &Range<usize>) -> Mask {
    let mut mask = [0; 8];
    for &key in &points.keys[range.clone()] {
        let [x, y, z] = points.cell_in_brick(key, level).map(to_index);
        mask[z] |= 1 << (8 * y + x);
    }
    mask
}

/// Returns the cells of a brick and of the neighbours' nearest four, as rows along x.
fn rows(masks: &[Mask], ids: &[u32; 27]) -> Rows {
    let mut rows = [[0; ROWS]; ROWS];
    for (z, plane) in rows.iter_mut().enumerate() {
        for (y, row) in plane.iter_mut().enumerate() {
            // The brick's own rows are 4..12; the next brick is 8 rows further.
            let (z_cell, y_cell) = (z + REACH, y + REACH);
            let byte = |x: i32| {
                let offset = [x, [-1, 0, 1][y_cell / 8], [-1, 0, 1][z_cell / 8]];
                match ids[neighbour(offset)] {
                    NO_BRICK => 0,
                    id => (masks[id as usize][z_cell % 8] >> (8 * (y_cell % 8)) & 0xff) as u32,
                }
            };
            *row = byte(-1) >> REACH | byte(0) << REACH | (byte(1) & 0xf) << (REACH + 8);
        }
    }
    rows
}

/// Returns the nodes from `ring` before the lower corner of a set cell to `ring + 1` behind it.
fn dilated(rows: &Rows, ring: i32) -> Mask {
    // The cells n - ring - 1 to n + ring reach node n.
    let cells = (-ring - 1)..=ring;
    let shifted = |row: u32, by: i32| if by < 0 { row << -by } else { row >> by };
    let along_x: Vec<[u32; ROWS]> = rows
        .iter()
        .map(|plane| plane.map(|row| cells.clone().fold(0, |sum, by| sum | shifted(row, by))))
        .collect();
    let at = |node: usize, by: i32| to_index(to_u32(node + REACH).cast_signed() + by);
    std::array::from_fn(|z| {
        let mut word = 0;
        for y in 0..8 {
            let mut row = 0;
            for dz in cells.clone() {
                for dy in cells.clone() {
                    row |= along_x[at(z, dz)][at(y, dy)];
                }
            }
            word |= u64::from(row >> REACH & 0xff) << (8 * y);
        }
        word
    })
}

/// Returns the nodes of a brick that lie in the domain: up to 2^level along each axis.
fn within_domain(bricks: &Bricks, brick: usize, level: u32) -> Mask {
    within(bricks.place(brick), [0, 1 << level])
}

/// Returns the nodes of a brick that lie in the surface's cube, in the middle of the domain.
pub(super) fn within_cube(place: [u32; 3], level: u32) -> Mask {
    within(place, cube_span(level))
}

/// Returns the first and last node of the surface's cube along an axis of the domain: corners of bricks.
pub(super) const fn cube_span(level: u32) -> [u32; 2] {
    let margin = ((1 << WIDER) - 1) << (level - WIDER - 1);
    [margin, (1 << level) - margin]
}

/// Returns the nodes of a brick from the first to the last of a span, along each axis.
fn within(place: [u32; 3], span: [u32; 2]) -> Mask {
    let is_in = |axis: usize, node: u32| (span[0]..=span[1]).contains(&(8 * place[axis] + node));
    let row = (0..8).filter(|&x| is_in(0, x)).fold(0_u64, |row, x| row | 1 << x);
    let plane = (0..8).filter(|&y| is_in(1, y)).fold(0, |plane, y| plane | row << (8 * y));
    [0, 1, 2, 3, 4, 5, 6, 7].map(|z| if is_in(2, z) { plane } else { 0 })
}

#[inline]
const fn is_set(mask: &Mask, node: usize) -> bool {
    mask[node / 64] >> (node % 64) & 1 == 1
}

/// Replaces the values of nodes that are not set.
pub(super) fn fill_others(mask: &Mask, values: &mut [f32], filling: f32) {
    let others = values.iter_mut().enumerate().filter(|(node, _)| !is_set(mask, *node));
    others.for_each(|(_, value)| *value = filling);
}

// Conjugate gradients (Hestenes and Stiefel 1952) on one level.

/// Steps after which a level fails unless it is below [`MAX_RESIDUAL`].
const MAX_STEPS: usize = 60;

/// Largest residual of a solved level, as a share of the right side.
const MAX_RESIDUAL: f64 = 1e-3;

/// Residual below which more steps change nothing in f32.
const MIN_RESIDUAL: f64 = 1e-7;

/// Figures of a level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelReport {
    /// Level: the surface's cube has 2^level cells a side.
    pub level: u32,
    /// Bricks of the level.
    pub bricks: usize,
    /// Solved nodes.
    pub unknowns: u64,
    /// Steps taken.
    pub steps: usize,
    /// |b - A x| / |b|.
    pub residual: f64,
}

/// Sums the squares of values brick by brick, in the order of the bricks.
fn sum_of_squares(values: &[f32]) -> f64 {
    values.par_chunks(BRICK_NODES).map(squares).collect::<Vec<_>>().iter().sum()
}

fn squares(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum()
}

impl Operator<'_> {
    /// Computes out = A x at the solved nodes, and returns the sum of x out, brick by brick.
    fn apply_all(&self, x: &[f32], out: &mut [f32]) -> f64 {
        let parts = out.par_chunks_mut(BRICK_NODES).enumerate().map_init(
            || [0.0; BLOCK_NODES],
            |block, (brick, out)| {
                self.band.bricks.gather(x, brick, 0.0, block);
                self.apply(brick, block, out);
                let own = &x[brick * BRICK_NODES..][..BRICK_NODES];
                own.iter().zip(&*out).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>()
            },
        );
        parts.collect::<Vec<_>>().iter().sum()
    }

    /// Takes `steps` steps from `x`, more while the residual is above 1e-3; `b` becomes the residual.
    pub(super) fn solve(
        &self,
        x: &mut [f32],
        b: &mut [f32],
        steps: usize,
        watch: &Watch<'_>,
    ) -> Result<LevelReport, PoissonError> {
        let whole = sum_of_squares(b);
        let mut product = vec![0.0; x.len()];
        self.apply_all(x, &mut product);
        b.par_iter_mut().zip(&product).for_each(|(r, ax)| *r -= ax);
        let mut squared = sum_of_squares(b);
        let mut direction = b.to_vec();
        let mut taken = 0;
        // 0 if both are 0. NaN, from points that are NaN, stays NaN.
        let share = |squared: f64| if squared == 0.0 { 0.0 } else { (squared / whole).sqrt() };
        while taken < steps.max(MAX_STEPS) {
            let residual = share(squared);
            let is_done = taken >= steps && residual <= MAX_RESIDUAL;
            if is_done || residual <= MIN_RESIDUAL || residual.is_nan() {
                break;
            }
            watch.check()?;
            let curvature = self.apply_all(&direction, &mut product);
            if curvature <= 0.0 {
                break;
            }
            let along = to_f32(squared / curvature);
            let parts = x
                .par_chunks_mut(BRICK_NODES)
                .zip(b.par_chunks_mut(BRICK_NODES))
                .zip(direction.par_chunks(BRICK_NODES).zip(product.par_chunks(BRICK_NODES)))
                .map(|((x, r), (p, ap))| {
                    x.iter_mut().zip(p).for_each(|(x, p)| *x += along * p);
                    r.iter_mut().zip(ap).for_each(|(r, ap)| *r -= along * ap);
                    squares(r)
                });
            let next = parts.collect::<Vec<_>>().iter().sum::<f64>();
            let kept = to_f32(next / squared);
            direction
                .par_chunks_mut(BRICK_NODES)
                .zip(b.par_chunks(BRICK_NODES))
                .for_each(|(p, r)| p.iter_mut().zip(r).for_each(|(p, r)| *p = r + kept * *p));
            squared = next;
            taken += 1;
        }
        let residual = share(squared);
        if residual > MAX_RESIDUAL || residual.is_nan() {
            let level = self.level - WIDER;
            return Err(PoissonError::NotConverged { level, steps: taken, residual });
        }
        let unknowns = self.band.unknown.iter().flatten().map(|w| u64::from(w.count_ones())).sum();
        let bricks = self.band.bricks.len();
        let level = self.level - WIDER;
        Ok(LevelReport { level, bricks, unknowns, steps: taken, residual })
    }
}

// The solution at any node of any level.

/// Nodes along a side of the patch that a fine brick is interpolated from.
const PATCH: usize = 5;

/// Values at 5³ nodes, x fastest.
type Patch = [f32; PATCH * PATCH * PATCH];

pub(super) struct Solved {
    pub(super) bricks: Bricks,
    /// `[bricks, 512]`; all nodes of a brick have a value, 0 outside the domain.
    pub(super) x: Vec<f32>,
}

/// The solved levels, the coarsest first, which holds all its nodes.
#[derive(Default)]
pub(super) struct Pyramid {
    pub(super) levels: Vec<Solved>,
}

impl Pyramid {
    /// Computes the values of a brick of `level` from the finest coarser level that has each.
    pub(super) fn prolonged(&self, level: u32, place: [i32; 3], values: &mut [f32]) {
        let patch = self.patch(level - 1, place.map(|p| 4 * p));
        for_nodes(|node, x, y, z| values[node] = between(&patch, [x - 1, y - 1, z - 1]));
    }

    /// Returns the start values of a level: all its bricks' values, prolonged; 0 outside the domain.
    pub(super) fn start(&self, level: u32, band: &Band) -> Vec<f32> {
        let mut x = vec![0.0; band.bricks.len() * BRICK_NODES];
        if level > COARSEST {
            x.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, x)| {
                self.prolonged(level, band.bricks.place(brick).map(u32::cast_signed), x);
                fill_others(&within_domain(&band.bricks, brick, level), x, 0.0);
            });
        }
        x
    }

    /// Returns the values at the 5³ nodes from `first` on, of the finest level up to `level` that has each.
    fn patch(&self, level: u32, first: [i32; 3]) -> Patch {
        let mut patch = [0.0; PATCH * PATCH * PATCH];
        let mut known = [false; PATCH * PATCH * PATCH];
        let bricks_low = first.map(|f| f.div_euclid(8));
        let bricks_high = first.map(|f| (f + 4).div_euclid(8));
        let mut is_whole = true;
        let solved = &self.levels[to_index(level.cast_signed() - COARSEST.cast_signed())];
        for octant in 0..8 {
            let is_high = |a: usize| octant >> a & 1 == 1;
            let place =
                std::array::from_fn(|a| if is_high(a) { bricks_high[a] } else { bricks_low[a] });
            if (0..3).any(|a| is_high(a) && bricks_high[a] == bricks_low[a]) {
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

/// Copies the nodes of a patch that a brick holds.
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

/// Returns the value at a half node: `node` counts half nodes of the patch.
#[inline]
fn between(patch: &Patch, node: [usize; 3]) -> f32 {
    let low = node.map(|n| n / 2);
    let high = node.map(|n| n.div_ceil(2));
    let at = |x: usize, y: usize, z: usize| patch[(z * PATCH + y) * PATCH + x];
    let row = |y: usize, z: usize| 0.5 * (at(low[0], y, z) + at(high[0], y, z));
    let plane = |z: usize| 0.5 * (row(low[1], z) + row(high[1], z));
    0.5 * (plane(low[2]) + plane(high[2]))
}

/// Levels by which the domain of the equations is larger than the cube of the surface: twice as wide.
///
/// At the domain's border the function is free (Neumann's condition), so that neither side of the surface is taken for
/// the outside. With a border as near as the cube's, an open surface would run to the border instead of closing.
pub(super) const WIDER: u32 = 1;

/// Coarsest level of the domain, which is solved everywhere.
pub(super) const COARSEST: u32 = SHALLOWEST + WIDER;

/// Least depth.
pub const SHALLOWEST: u32 = 4;

/// Largest depth.
pub const DEEPEST: u32 = 16;

/// Returns the hats of a cell's eight corners at an offset in the cell, 0 to 1; x in the lowest bit.
#[inline]
pub(super) fn hats(offset: [f64; 3]) -> [f64; 8] {
    let [x, y, z] = offset.map(|t| [1.0 - t, t]);
    std::array::from_fn(|c| x[c & 1] * y[c >> 1 & 1] * z[c >> 2])
}

/// Sums the values that points carry at the nodes -1 to 8 of a brick, each times the hat of the node, in the order of
/// the points.
fn sum_in_block<const K: usize>(
    points: &SortedPoints,
    level: u32,
    ids: &[u32; 27],
    ranges: &[Range<usize>],
    carried: impl Fn(usize) -> [f64; K],
    sums: &mut [[f64; K]],
) {
    sums.fill([0.0; K]);
    points.for_points_near(level, ids, ranges, [-2, 8], |row, cell| {
        let carried = carried(row);
        let hats = hats(points.offset_in_cell(row, level));
        for (corner, hat) in hats.into_iter().enumerate() {
            let bit = |axis: usize| i32::from(corner >> axis & 1 == 1);
            let at: [i32; 3] = std::array::from_fn(|a| cell[a] + bit(a) + 1);
            if at.iter().all(|a| (0..10).contains(a)) {
                let [x, y, z] = at.map(to_index);
                let sum = &mut sums[block_index(x, y, z)];
                for (sum, carried) in sum.iter_mut().zip(carried) {
                    *sum += hat * carried;
                }
            }
        }
    });
}

/// K values at each node of a level that lies near points; 0 elsewhere.
pub(super) struct NodeField<const K: usize> {
    pub(super) level: u32,
    bricks: Bricks,
    /// `[bricks, 512]` each.
    planes: [Vec<f32>; K],
}

impl<const K: usize> NodeField<K> {
    /// Sums the values that the points carry.
    pub(super) fn of_points(
        points: &SortedPoints,
        level: u32,
        carried: impl Fn(usize) -> [f64; K] + Sync,
    ) -> Self {
        let bricks = Bricks::of_keys(points.bricks_around(level, 0, 1));
        let ranges = points.ranges(&bricks, level);
        let parts: Vec<[Vec<f32>; K]> = (0..bricks.len())
            .into_par_iter()
            .map_init(
                || vec![[0.0; K]; BLOCK_NODES],
                |sums, brick| {
                    sum_in_block(points, level, bricks.neighbours(brick), &ranges, &carried, sums);
                    let mut planes = [(); K].map(|()| vec![0.0; BRICK_NODES]);
                    for_nodes(|node, x, y, z| {
                        for (plane, sum) in planes.iter_mut().zip(sums[block_index(x, y, z)]) {
                            plane[node] = to_f32(sum);
                        }
                    });
                    planes
                },
            )
            .collect();
        let planes = std::array::from_fn(|plane| {
            parts.iter().map(|part| part[plane].as_slice()).collect::<Vec<_>>().concat()
        });
        Self { level, bricks, planes }
    }

    pub(super) fn reader(&self) -> Reader<'_, K> {
        let planes = self.planes.each_ref().map(Vec::as_slice);
        Reader::new(self.level, &self.bricks, planes)
    }
}

pub(super) struct Reader<'a, const K: usize> {
    cells: f64,
    bricks: &'a Bricks,
    planes: [&'a [f32]; K],
    place: [i32; 3],
    blocks: Vec<Block>,
}

impl<'a, const K: usize> Reader<'a, K> {
    pub(super) fn new(level: u32, bricks: &'a Bricks, planes: [&'a [f32]; K]) -> Self {
        let cells = f64::from(1_u32 << level);
        Self { cells, bricks, planes, place: [-1; 3], blocks: vec![[0.0; BLOCK_NODES]; K] }
    }

    /// Returns the values at a place in units of the cube; 0 if no node is near.
    pub(super) fn at(&mut self, unit: Vec3) -> [f64; K] {
        let at = unit.map(|u| (u * self.cells).clamp(0.0, self.cells));
        let cell = at.map(|a| floor_i32(a.min(self.cells - 1.0)));
        let place = cell.map(|c| c / 8);
        if place != self.place {
            self.place = place;
            let brick = self.bricks.find(place);
            for (block, plane) in self.blocks.iter_mut().zip(self.planes) {
                match brick {
                    Some(brick) => self.bricks.gather(plane, brick, 0.0, block),
                    None => block.fill(0.0),
                }
            }
        }
        let [x, y, z] = cell.map(|c| to_index(c % 8) + 1);
        let hats = hats(std::array::from_fn(|a| at[a] - f64::from(cell[a])));
        std::array::from_fn(|plane| {
            let block = &self.blocks[plane];
            let corner = |c: usize| block[block_index(x + (c & 1), y + (c >> 1 & 1), z + (c >> 2))];
            hats.iter().enumerate().map(|(c, hat)| hat * f64::from(corner(c))).sum()
        })
    }
}

/// Bits of a cell's place within its brick.
const BITS_IN_BRICK: u32 = 9;

/// Least mean number of points of the occupied cells of the chosen depth.
const POINTS_A_CELL: f64 = 1.5;

/// Coordinates of the 512 cells of a brick, in the order of their keys.
static CELLS: [[u8; 3]; 512] = {
    let mut table = [[0; 3]; 512];
    let mut key = 0;
    while key < 512 {
        let [x, y, z] = bricks::cell(key as u64);
        table[key] = [x.to_le_bytes()[0], y.to_le_bytes()[0], z.to_le_bytes()[0]];
        key += 1;
    }
    table
};

/// Points in the order of the Z-curve, so that those of any cell of any level lie together.
pub(super) struct SortedPoints {
    pub(super) cube: Cube,
    /// Key of each point's cell of the finest level of keys, ascending.
    pub(super) keys: Vec<u64>,
    pub(super) points: OrientedPoints,
}

impl SortedPoints {
    /// Sorts points. Points of one cell keep their order.
    pub(super) fn new(points: &OrientedPoints, cube: Cube) -> Self {
        let key = |(row, &place)| (cube.key(place, bricks::AXIS_BITS), to_u32(row));
        let mut order: Vec<(u64, u32)> = points.places.par_iter().enumerate().map(key).collect();
        order.par_sort_unstable();
        let pick = |column: &[[f32; 3]]| -> Vec<[f32; 3]> {
            order.par_iter().map(|&(_, row)| column[row as usize]).collect()
        };
        let points = OrientedPoints {
            places: pick(&points.places),
            normals: pick(&points.normals),
            colors: pick(&points.colors),
        };
        Self { cube, keys: order.into_iter().map(|(key, _)| key).collect(), points }
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns the finest level whose occupied cells hold 1.5 points on average, up to `deepest`; else the coarsest.
    pub(super) fn finest_full(&self, deepest: u32) -> u32 {
        let is_full = |level: u32| {
            let shift = 3 * (bricks::AXIS_BITS - level);
            let changes = self.keys.par_windows(2).filter(|w| w[0] >> shift != w[1] >> shift);
            self.len() as f64 >= POINTS_A_CELL * (changes.count() + 1) as f64
        };
        (COARSEST + 1..=deepest).rev().find(|&level| is_full(level)).unwrap_or(COARSEST)
    }

    /// Returns the points in each brick of cells of a level.
    fn ranges(&self, bricks: &Bricks, level: u32) -> Vec<Range<usize>> {
        let range = |&key: &u64| {
            let start = self.keys.partition_point(|&k| brick_key(k, level) < key);
            let count = self.keys[start..].partition_point(|&k| brick_key(k, level) == key);
            start..start + count
        };
        bricks.keys().par_iter().map(range).collect()
    }

    /// Returns keys, unsorted and repeated, of the bricks with a node `below` before or `above` behind the lower
    /// corner of an occupied cell, and of some next to them.
    fn bricks_around(&self, level: u32, below: i32, above: i32) -> Vec<u64> {
        let last = (1_i32 << level) / 8;
        let brick = |key: u64| brick_key(key, level);
        let runs: Vec<&[u64]> = self.keys.chunk_by(|&a, &b| brick(a) == brick(b)).collect();
        runs.par_iter()
            .flat_map_iter(|run| {
                let mut low = [7; 3];
                let mut high = [0; 3];
                for &key in *run {
                    let at = self.cell_in_brick(key, level);
                    for axis in 0..3 {
                        low[axis] = at[axis].min(low[axis]);
                        high[axis] = at[axis].max(high[axis]);
                    }
                }
                let place = bricks::cell(brick(run[0])).map(u32::cast_signed);
                let span = move |axis: usize| {
                    let first = place[axis] + (low[axis] - below).div_euclid(8);
                    let end = place[axis] + (high[axis] + above).div_euclid(8);
                    first.max(0)..=end.min(last)
                };
                span(2).flat_map(move |z| {
                    span(1).flat_map(move |y| {
                        span(0).map(move |x| bricks::key([x, y, z].map(i32::unsigned_abs)))
                    })
                })
            })
            .collect()
    }

    /// Returns a cell's coordinates in its brick, from the key of a point in it.
    #[inline]
    fn cell_in_brick(&self, key: u64, level: u32) -> [i32; 3] {
        let local = key >> (3 * (bricks::AXIS_BITS - level)) & ((1 << BITS_IN_BRICK) - 1);
        bricks::cell(local).map(u32::cast_signed)
    }

    /// Calls `each` for each point in the cells `first..=last` along each axis, counted from the brick's first, with
    /// its row and its cell there. First and last lie at most a brick outside.
    fn for_points_near(
        &self,
        level: u32,
        ids: &[u32; 27],
        ranges: &[Range<usize>],
        cells: [i32; 2],
        mut each: impl FnMut(usize, [i32; 3]),
    ) {
        let shift = 3 * (bricks::AXIS_BITS - level);
        for (number, &id) in (0_i32..).zip(ids) {
            let Some(range) = ranges.get(id as usize) else { continue };
            let offset = neighbour_offset(number).map(|bricks| 8 * bricks);
            for row in range.clone() {
                let local = CELLS[(self.keys[row] >> shift & 511) as usize];
                let cell: [i32; 3] = std::array::from_fn(|a| i32::from(local[a]) + offset[a]);
                let is_near = |c: &i32| (cells[0]..=cells[1]).contains(c);
                if to_index(number) == OWN || cell.iter().all(is_near) {
                    each(row, cell);
                }
            }
        }
    }

    /// Returns the position of a point in its cell, 0 to 1 along each axis.
    #[inline]
    fn offset_in_cell(&self, row: usize, level: u32) -> [f64; 3] {
        let cells = f64::from(1_u32 << level);
        self.cube.unit(self.points.places[row]).map(|u| {
            let at = (u * cells).clamp(0.0, cells);
            at - at.floor().min(cells - 1.0)
        })
    }
}

/// Returns the key of a point's brick. Levels of less than 8 cells a side are one brick.
fn brick_key(point_key: u64, level: u32) -> u64 {
    point_key.checked_shr(3 * (bricks::AXIS_BITS - level) + BITS_IN_BRICK).unwrap_or(0)
}

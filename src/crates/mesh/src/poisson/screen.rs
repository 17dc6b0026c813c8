//! The points of a level as the equations see them: one a cell.

use rayon::prelude::*;

use super::band::Band;
use super::sorted::SortedPoints;
use crate::bricks::{Block, NO_BRICK, block_index};
use crate::narrow::{to_f32, to_index};

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

    /// Whether a brick's nodes are touched by a point.
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

/// A point of a brick so many bricks away, as seen from here; none if it touches no node here.
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

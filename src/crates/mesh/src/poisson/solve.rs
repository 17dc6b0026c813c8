//! Conjugate gradients (Hestenes and Stiefel 1952) on one level.

use rayon::prelude::*;

use super::PoissonError;
use super::operator::Operator;
use super::pyramid::WIDER;
use crate::bricks::{BLOCK_NODES, BRICK_NODES};
use crate::narrow::to_f32;
use crate::watch::Watch;

/// Steps after which a level that has not come below [`WORST_RESIDUAL`] is given up.
const STEPS_AT_MOST: usize = 60;

/// Residual, as a share of the right side, that a level must come below.
const WORST_RESIDUAL: f64 = 1e-3;

/// Residual below which more steps change nothing in f32.
const BEST_RESIDUAL: f64 = 1e-7;

/// How a level went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelReport {
    /// The surface's cube has 2^level cells a side.
    pub level: u32,
    /// Bricks of the level.
    pub bricks: usize,
    /// Nodes that were solved for.
    pub unknowns: u64,
    /// Steps taken.
    pub steps: usize,
    /// |b - A x| / |b|.
    pub residual: f64,
}

/// Sum over bricks, in their order, of what each gives.
fn sum_of(parts: &[f64]) -> f64 {
    parts.iter().sum()
}

fn squares(values: &[f32]) -> f64 {
    values.iter().map(|&v| f64::from(v) * f64::from(v)).sum()
}

impl Operator<'_> {
    /// out = A x at the nodes that are solved for, and for each brick the sum of x out.
    fn apply_all(&self, x: &[f32], out: &mut [f32]) -> Vec<f64> {
        out.par_chunks_mut(BRICK_NODES)
            .enumerate()
            .map_init(
                || [0.0; BLOCK_NODES],
                |block, (brick, out)| {
                    self.band.bricks.gather(x, brick, 0.0, block);
                    self.apply(brick, block, out);
                    let own = &x[brick * BRICK_NODES..][..BRICK_NODES];
                    own.iter().zip(&*out).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
                },
            )
            .collect()
    }

    /// Takes `steps` steps from `x` on, more while the residual is above 1e-3; `b` becomes the residual.
    pub(super) fn solve(
        &self,
        x: &mut [f32],
        b: &mut [f32],
        steps: usize,
        watch: &Watch<'_>,
    ) -> Result<LevelReport, PoissonError> {
        let whole = sum_of(&b.par_chunks(BRICK_NODES).map(squares).collect::<Vec<_>>());
        let mut product = vec![0.0; x.len()];
        self.apply_all(x, &mut product);
        let parts = b.par_chunks_mut(BRICK_NODES).zip(product.par_chunks(BRICK_NODES));
        let parts = parts.map(|(r, ax)| {
            r.iter_mut().zip(ax).for_each(|(r, ax)| *r -= ax);
            squares(r)
        });
        let mut squared = sum_of(&parts.collect::<Vec<_>>());
        let mut direction = b.to_vec();
        let mut taken = 0;
        // Zero where both are; NaN, of points that are NaN, stays.
        let share = |squared: f64| if squared == 0.0 { 0.0 } else { (squared / whole).sqrt() };
        while taken < steps.max(STEPS_AT_MOST) {
            let residual = share(squared);
            let is_done = taken >= steps && residual <= WORST_RESIDUAL;
            if is_done || residual <= BEST_RESIDUAL || residual.is_nan() {
                break;
            }
            watch.check()?;
            let curvature = sum_of(&self.apply_all(&direction, &mut product));
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
            let next = sum_of(&parts.collect::<Vec<_>>());
            let kept = to_f32(next / squared);
            direction
                .par_chunks_mut(BRICK_NODES)
                .zip(b.par_chunks(BRICK_NODES))
                .for_each(|(p, r)| p.iter_mut().zip(r).for_each(|(p, r)| *p = r + kept * *p));
            squared = next;
            taken += 1;
        }
        let residual = share(squared);
        if residual > WORST_RESIDUAL || residual.is_nan() {
            let level = self.level - WIDER;
            return Err(PoissonError::NotConverged { level, steps: taken, residual });
        }
        let unknowns = self.band.unknown.iter().flatten().map(|w| u64::from(w.count_ones())).sum();
        let bricks = self.band.bricks.len();
        let level = self.level - WIDER;
        Ok(LevelReport { level, bricks, unknowns, steps: taken, residual })
    }
}

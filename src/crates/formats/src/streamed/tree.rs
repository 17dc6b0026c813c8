//! The boxes into which a scene of several levels is cut.

use rayon::prelude::*;

use crate::quaternion::matrix;
use crate::splats::SplatColumns;
use splat_mesh::narrow::to_f32;

use super::meta::StreamedBound;

/// Standard deviations that a box holds of each Gaussian.
const DEVIATIONS: f64 = 3.0;

/// Rows of which one thread looks at so many.
const ROWS_AT_A_TIME: usize = 65_536;

/// A row of a level, and where it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LevelRow {
    pub(super) level: u32,
    pub(super) row: u32,
    pub(super) place: [f32; 3],
}

/// Where nodes are split.
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitRule {
    /// With more Gaussians than these, of all levels.
    pub(super) most_rows: usize,
    /// Or wider than this, scene units ...
    pub(super) most_extent: f64,
    /// ... and with at least so many.
    pub(super) least_rows: usize,
}

/// A node: two children, or rows.
#[derive(Debug)]
pub(super) enum SplitNode {
    Inner(Box<[Self; 2]>),
    Leaf(Vec<LevelRow>),
}

/// Splits at the median of the longest axis of all centres.
pub(super) fn split(rows: &mut [LevelRow], rule: &SplitRule) -> SplitNode {
    let nowhere = || [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
    let each = |pick: fn(f32, f32) -> f32, a: [f32; 3], b: [f32; 3]| -> [f32; 3] {
        std::array::from_fn(|i| pick(a[i], b[i]))
    };
    let around = |a: [[f32; 3]; 2], b: [[f32; 3]; 2]| {
        [each(f32::min, a[0], b[0]), each(f32::max, a[1], b[1])]
    };
    let [low, high] = rows
        .par_iter()
        .with_min_len(ROWS_AT_A_TIME)
        .map(|row| [row.place; 2])
        .reduce(nowhere, around);
    let extents: [f64; 3] = std::array::from_fn(|i| f64::from(high[i]) - f64::from(low[i]));
    let longest = (1..3).fold(0, |best, i| if extents[i] > extents[best] { i } else { best });
    let is_wide = extents[longest] > rule.most_extent && rows.len() >= rule.least_rows;
    if rows.len() <= rule.most_rows.max(1) && !is_wide {
        return SplitNode::Leaf(rows.to_vec());
    }
    let middle = rows.len() / 2;
    rows.select_nth_unstable_by(middle, |a, b| {
        let order = a.place[longest].total_cmp(&b.place[longest]);
        order.then(a.level.cmp(&b.level)).then(a.row.cmp(&b.row))
    });
    let (left, right) = rows.split_at_mut(middle);
    let (left, right) = rayon::join(|| split(left, rule), || split(right, rule));
    SplitNode::Inner(Box::new([left, right]))
}

/// The box of the ellipsoid of a row.
pub(super) fn bound_of(columns: &SplatColumns, row: usize) -> StreamedBound {
    let r = matrix(columns.rotations[row].map(f64::from));
    let scales = columns.log_scales[row].map(|scale| f64::from(scale).exp());
    let mean = columns.means[row].map(f64::from);
    let half: [f64; 3] = std::array::from_fn(|i| {
        let squares = (0..3).map(|k| (r[i][k] * scales[k]).powi(2));
        (DEVIATIONS * squares.sum::<f64>().sqrt()).min(1e30)
    });
    StreamedBound {
        min: std::array::from_fn(|i| to_f32(mean[i] - half[i])),
        max: std::array::from_fn(|i| to_f32(mean[i] + half[i])),
    }
}

/// The box of two.
pub(super) fn union(a: StreamedBound, b: StreamedBound) -> StreamedBound {
    StreamedBound {
        min: std::array::from_fn(|i| a.min[i].min(b.min[i])),
        max: std::array::from_fn(|i| a.max[i].max(b.max[i])),
    }
}

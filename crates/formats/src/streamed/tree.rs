//! The boxes into which a scene of several levels is cut.

use crate::narrow::to_f32;
use crate::quaternion::matrix;
use crate::splats::{SplatColumns, Splats};

use super::meta::StreamedBound;

/// Standard deviations that a box holds of each Gaussian.
const DEVIATIONS: f64 = 3.0;

/// A row of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelRow {
    pub(super) level: u32,
    pub(super) row: u32,
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
pub(super) fn split(levels: &[Splats], rows: &mut [LevelRow], rule: &SplitRule) -> SplitNode {
    let place = |row: &LevelRow| levels[row.level as usize].columns().means[row.row as usize];
    let empty = [[f32::INFINITY; 3], [f32::NEG_INFINITY; 3]];
    let [low, high] = rows.iter().map(place).fold(empty, |[low, high], place| {
        let each = |pick: fn(f32, f32) -> f32, from: [f32; 3]| {
            std::array::from_fn(|i| pick(from[i], place[i]))
        };
        [each(f32::min, low), each(f32::max, high)]
    });
    let extents: [f64; 3] = std::array::from_fn(|i| f64::from(high[i]) - f64::from(low[i]));
    let longest = (1..3).fold(0, |best, i| if extents[i] > extents[best] { i } else { best });
    let is_wide = extents[longest] > rule.most_extent && rows.len() >= rule.least_rows;
    if rows.len() <= rule.most_rows.max(1) && !is_wide {
        return SplitNode::Leaf(rows.to_vec());
    }
    let middle = rows.len() / 2;
    rows.select_nth_unstable_by(middle, |a, b| {
        let order = place(a)[longest].total_cmp(&place(b)[longest]);
        order.then(a.level.cmp(&b.level)).then(a.row.cmp(&b.row))
    });
    let (left, right) = rows.split_at_mut(middle);
    SplitNode::Inner(Box::new([split(levels, left, rule), split(levels, right, rule)]))
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

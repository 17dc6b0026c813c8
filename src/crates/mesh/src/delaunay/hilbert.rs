//! Place along a Hilbert curve: neighbours on it are neighbours in space.

use crate::mesh::Vec3;
use crate::place::Bounds;

/// Cells along each axis of the cube that the curve fills, as a power of two.
const FINE_BITS: u32 = 21;

/// The same for up to [`MANY_POINTS`].
const COARSE_BITS: u32 = 16;

/// From here on the finer curve pays.
const MANY_POINTS: usize = 50_000_000;

/// A Hilbert curve through the cube around some points.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    /// Least corner of the cube.
    least: Vec3,
    /// Cells a unit of length.
    cells_per_unit: f64,
    bits: u32,
}

/// Points that decide which are far from all others, at most.
const SAMPLED_POINTS: usize = 4096;

/// Bounds of all points, but on each axis no more than three times as wide as the middle 98 % of a sample.
fn without_strays(points: &[Vec3]) -> Bounds {
    let mut bounds = Bounds::of(points.iter().copied());
    let stride = points.len().div_ceil(SAMPLED_POINTS).max(1);
    for axis in 0..3 {
        let mut sample: Vec<f64> = points.iter().step_by(stride).map(|p| p[axis]).collect();
        if sample.is_empty() {
            continue;
        }
        sample.sort_unstable_by(f64::total_cmp);
        let (low, high) =
            (sample[sample.len() / 100], sample[sample.len() - 1 - sample.len() / 100]);
        let width = high - low;
        bounds.low[axis] = bounds.low[axis].max(low - width);
        bounds.high[axis] = bounds.high[axis].min(high + width);
    }
    bounds
}

impl Curve {
    /// The curve for finite points. A few that are far from all others lie at its border: around them, all others
    /// would share a cell.
    pub(crate) fn around(points: &[Vec3]) -> Self {
        let bounds = without_strays(points);
        let side = bounds.longest_side();
        let bits = if points.len() > MANY_POINTS { FINE_BITS } else { COARSE_BITS };
        let cells = f64::from(1_u32 << bits);
        Self {
            least: bounds.low,
            cells_per_unit: if side > 0.0 { cells / side } else { 0.0 },
            bits,
        }
    }

    /// Place of a point along the curve.
    ///
    /// Skilling, "Programming the Hilbert curve" (2004): the cell's coordinates become the
    /// transposed index in place.
    pub(crate) fn place(&self, point: Vec3) -> u64 {
        let last = (1_u32 << self.bits) - 1;
        let mut cell: [u32; 3] = std::array::from_fn(|axis| {
            let offset = (point[axis] - self.least[axis]) * self.cells_per_unit;
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "`as` saturates; at most 21 bits are kept"
            )]
            let cell = offset as u32;
            cell.min(last)
        });
        for level in (1..self.bits).rev() {
            let (bit, below) = (1 << level, (1 << level) - 1);
            for axis in 0..3 {
                if cell[axis] & bit == 0 {
                    let swapped = (cell[0] ^ cell[axis]) & below;
                    cell[0] ^= swapped;
                    cell[axis] ^= swapped;
                } else {
                    cell[0] ^= below;
                }
            }
        }
        cell[1] ^= cell[0];
        cell[2] ^= cell[1];
        let turned = (1..self.bits)
            .rev()
            .filter(|level| cell[2] & (1 << level) != 0)
            .fold(0, |turned, level| turned ^ ((1 << level) - 1));
        let [x, y, z] = cell.map(|axis| spread(axis ^ turned));
        x << 2 | y << 1 | z
    }
}

/// 21 bits with two zeros before each.
fn spread(cell: u32) -> u64 {
    let mut bits = u64::from(cell);
    bits = (bits | bits << 32) & 0x001f_0000_0000_ffff;
    bits = (bits | bits << 16) & 0x001f_0000_ff00_00ff;
    bits = (bits | bits << 8) & 0x100f_00f0_0f00_f00f;
    bits = (bits | bits << 4) & 0x10c3_0c30_c30c_30c3;
    (bits | bits << 2) & 0x1249_2492_4924_9249
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn consecutive_cells_share_a_side() {
        let curve = Curve { least: [0.0; 3], cells_per_unit: 1.0, bits: 3 };
        let mut cells: Vec<[u32; 3]> = (0..512).map(|i| [i & 7, i >> 3 & 7, i >> 6]).collect();
        cells.sort_by_key(|cell| curve.place(cell.map(f64::from)));
        let places: Vec<u64> = cells.iter().map(|cell| curve.place(cell.map(f64::from))).collect();
        assert_eq!(places, (0..512).collect::<Vec<u64>>());
        for pair in cells.windows(2) {
            let steps: u32 = (0..3).map(|axis| pair[0][axis].abs_diff(pair[1][axis])).sum();
            assert_eq!(steps, 1, "{pair:?}");
        }
    }

    /// In a cube around all points, 1000 of them would share a cell.
    #[test]
    fn a_point_far_from_all_others_does_not_put_them_into_one_cell() {
        let mut points: Vec<Vec3> = (0..1000)
            .map(|i| [i % 10, i / 10 % 10, i / 100].map(|place| f64::from(place) / 10.0))
            .collect();
        points.push([1e6; 3]);
        let curve = Curve::around(&points);
        let places: BTreeSet<u64> = points.iter().map(|&point| curve.place(point)).collect();
        assert_eq!(places.len(), points.len());
    }
}

//! The order of insertion, which is where points get their names.

use rayon::prelude::*;

use super::DelaunayError;
use crate::mesh::Vec3;
use crate::place::Bounds;
use crate::random::mix;

/// Coordinates beyond this, 2^150, could overflow an exact predicate.
const LARGEST: f64 = f64::from_bits((1_023 + 150) << 52);

/// Coordinates nearer to 0 than this, 2^-120, could underflow in an exact predicate.
const SMALLEST: f64 = f64::from_bits((1_023 - 120) << 52);

/// Most points: twice a name and one more is a stamp.
const MOST_POINTS: usize = (1 << 31) - 2;

/// Points that the first round has at least, about.
const FIRST_ROUND: usize = 32;

/// Distinct points in the order of insertion; a point's place in it is its name.
///
/// A biased randomised insertion order (Amenta, Choi and Rote, "Incremental constructions con
/// BRIO", 2003): each round holds about half of the points that are left, the last the most, and
/// runs along a Hilbert curve.
#[derive(Debug)]
pub(super) struct Order {
    /// Place of each name.
    pub(super) points: Vec<Vec3>,
    /// Index of each name among the given points: the first of its duplicates.
    pub(super) input_from_name: Vec<u32>,
    /// First name of each round, and the number of names.
    pub(super) rounds: Vec<usize>,
    /// Given points that equal an earlier one, and that one.
    pub(super) duplicates: Vec<[u32; 2]>,
    /// The curve that rounds run along.
    pub(super) curve: Curve,
}

/// What points are sorted by.
#[derive(Clone, Copy)]
struct Key {
    round: u32,
    index: u32,
    place: u64,
}

impl Order {
    /// The order of points, which depends on their places alone: a shuffle changes no more than
    /// `input_from_name`.
    pub(super) fn of(given: &[Vec3]) -> Result<Self, DelaunayError> {
        if given.len() > MOST_POINTS {
            return Err(DelaunayError::TooManyPoints { count: given.len(), most: MOST_POINTS });
        }
        let unfit = |point: &Vec3| point.iter().any(|x| !x.is_finite() || x.abs() > LARGEST);
        if let Some(index) = given.par_iter().position_first(unfit) {
            return Err(DelaunayError::UnfitPoint { index, point: given[index] });
        }
        let curve = Curve::around(given);
        let last_round = (given.len() / FIRST_ROUND).checked_ilog2().unwrap_or(0);
        let key = |(index, &point): (u32, &Vec3)| {
            let point = rounded(point);
            let round = last_round.saturating_sub(hash(point).trailing_zeros());
            Key { round, index, place: curve.place(point) }
        };
        let count = u32::try_from(given.len()).unwrap_or(u32::MAX);
        let mut keys: Vec<Key> =
            (0..count).into_par_iter().zip(given.par_iter()).map(key).collect();
        let at = |key: &Key| rounded(given[key.index as usize]);
        keys.par_sort_unstable_by(|a, b| {
            (a.round, a.place)
                .cmp(&(b.round, b.place))
                .then_with(|| at(a).partial_cmp(&at(b)).unwrap_or(std::cmp::Ordering::Equal))
                .then(a.index.cmp(&b.index))
        });

        let mut order = Self {
            points: Vec::with_capacity(given.len()),
            input_from_name: Vec::with_capacity(given.len()),
            rounds: Vec::new(),
            duplicates: Vec::new(),
            curve,
        };
        let mut round = None;
        for key in &keys {
            let point = at(key);
            if order.points.last() == Some(&point) {
                let first = order.input_from_name[order.points.len() - 1];
                order.duplicates.push([key.index, first]);
                continue;
            }
            if round != Some(key.round) {
                round = Some(key.round);
                order.rounds.push(order.points.len());
            }
            order.points.push(point);
            order.input_from_name.push(key.index);
        }
        order.rounds.push(order.points.len());
        order.duplicates.sort_unstable();
        Ok(order)
    }
}

/// A point as predicates may have it: no coordinate too small for them, and no negative zero.
fn rounded(point: Vec3) -> Vec3 {
    point.map(|x| if x.abs() < SMALLEST { 0.0 } else { x })
}

/// A hash of a place.
fn hash(point: Vec3) -> u64 {
    point.iter().fold(0, |hash, x| mix(hash ^ x.to_bits()))
}

// Place along a Hilbert curve: neighbours on it are neighbours in space.

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
    fn duplicates_name_the_first_of_them() {
        let given = [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-0.0, 1e-40, 0.0]];
        let order = Order::of(&given).unwrap();
        assert_eq!(order.points.len(), 2);
        assert_eq!(order.duplicates, [[2, 0], [3, 1]]);
    }

    #[test]
    fn the_last_round_has_half_of_the_points() {
        let given: Vec<Vec3> =
            (0..20_000).map(|i| [f64::from(i), f64::from(i % 17), f64::from(i % 5)]).collect();
        let rounds = Order::of(&given).unwrap().rounds;
        let last = rounds[rounds.len() - 1] - rounds[rounds.len() - 2];
        // Binomial with 20,000 draws: five standard deviations are 354.
        assert!(last.abs_diff(10_000) < 354, "{rounds:?}");
    }

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

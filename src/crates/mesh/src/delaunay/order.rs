//! The order of insertion, which is where points get their names.

use rayon::prelude::*;

use super::error::DelaunayError;
use super::hilbert::Curve;
use crate::mesh::Vec3;
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

#[cfg(test)]
mod tests {
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
}

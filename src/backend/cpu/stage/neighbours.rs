//! Stage `neighbours`: the nearest centres of each centre, by a tree of boxes.
//!
//! A candidate is one number: the bits of its squared distance, which order as the distance does since
//! it has no sign, and below them its row. The least number is the nearest, and of equal distances the
//! one of the lower row.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::places;
use crate::backend::neighbours::list_len;
use crate::backend::rows_version::RowsVersion;
use crate::backend::{DeviceError, Held, NeighbourLists, check_rows};
use crate::math::Real;
use crate::math::linalg::Vec3;
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive};

/// Centres in a leaf of the tree, at most.
const LEAF: usize = 32;

/// Depth up to which a subtree is built by one thread.
const DEPTH_ALONE: u32 = 4;

/// For each row those whose centres are nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct NearestLists<P = Gaussians> {
    count: usize,
    len: usize,
    /// [len, count]
    rows: Vec<u32>,
    /// Of the model's rows.
    rows_version: RowsVersion,
    primitive: PhantomData<P>,
}

impl<P> NeighbourLists for NearestLists<P> {
    fn count(&self) -> u32 {
        // At most [`MOST_NEIGHBOURS`](crate::backend::MOST_NEIGHBOURS).
        u32::try_from(self.count).unwrap_or(u32::MAX)
    }
}

impl<P> Held for NearestLists<P> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<u32>(self.rows.capacity())
    }
}

impl<P: Primitive> NearestLists<P> {
    /// The length of a list.
    pub(crate) fn width(&self) -> usize {
        self.count
    }

    /// The neighbours of a row, nearest first; `[count]`.
    pub fn of(&self, row: usize) -> &[u32] {
        &self.rows[row * self.count..][..self.count]
    }

    /// Fails for another model than the one they were found in, and where its rows have come, gone or
    /// changed places since.
    pub fn check<R: Real>(&self, model: &Model<R, P>) -> Result<(), DeviceError> {
        let (found, len) = (self.len, model.len());
        // Who changes the columns by hand tells nobody: lists must not lead behind the last row.
        if found == len && self.rows_version == *model.rows_version() {
            Ok(())
        } else {
            Err(DeviceError::StaleNeighbours { found, len })
        }
    }

    /// Of these rows, `[rows, count]`.
    pub(crate) fn read(&self, rows: &Range<usize>) -> Result<Vec<u32>, DeviceError> {
        check_rows(rows, self.len)?;
        Ok(rows.clone().flat_map(|row| self.of(row)).copied().collect())
    }
}

/// The `count` nearest centres of each.
pub(crate) fn neighbours<R: Real, P: Primitive + Sync>(
    model: &Model<R, P>,
    count: u32,
) -> Result<NearestLists<P>, DeviceError> {
    let len = model.len();
    let count = list_len(count, len)? as usize;
    let mut rows = vec![0; len * count];
    // Distances are in single precision whatever the model is in, so that every device finds the same.
    let places = places::<P>()?;
    let centre = |row| {
        let place = model.values(places, row);
        [0, 1, 2].map(|axis| place[axis].to_f32())
    };
    let centres: Vec<Vec3<f32>> = (0..len).into_par_iter().map(centre).collect();
    let tree = Tree::new(&centres);
    rows.par_chunks_mut(count.max(1)).zip(&centres).enumerate().for_each_init(
        || Vec::with_capacity(count),
        |nearest, (row, (list, &centre))| {
            nearest.clear();
            if is_finite(centre) {
                tree.search(tree.root(), centre, nearest, count);
            }
            // There may be fewer finite centres than the list is long.
            list.fill(row_of(row as u64));
            for (place, &key) in list.iter_mut().zip(&*nearest) {
                *place = row_of(key);
            }
        },
    );
    let rows_version = model.rows_version().clone();
    Ok(NearestLists { count, len, rows, rows_version, primitive: PhantomData })
}

fn is_finite(centre: Vec3<f32>) -> bool {
    centre.iter().all(|coordinate| coordinate.is_finite())
}

/// A candidate: its distance's bits above its row.
fn key([x, y, z]: Vec3<f32>, row: u32) -> u64 {
    u64::from((x * x + y * y + z * z).to_bits()) << u32::BITS | u64::from(row)
}

/// The row of a candidate.
fn row_of(key: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the distance stands above the row")]
    let row = key as u32;
    row
}

/// What a part of the tree holds.
#[derive(Clone, Copy, Debug)]
struct CentreBounds {
    low: Vec3<f32>,
    high: Vec3<f32>,
    least_row: u32,
}

impl CentreBounds {
    const NOTHING: Self =
        Self { low: [f32::INFINITY; 3], high: [f32::NEG_INFINITY; 3], least_row: u32::MAX };

    fn with(self, centre: Vec3<f32>, row: u32) -> Self {
        Self {
            low: [0, 1, 2].map(|axis| self.low[axis].min(centre[axis])),
            high: [0, 1, 2].map(|axis| self.high[axis].max(centre[axis])),
            least_row: self.least_row.min(row),
        }
    }

    /// No candidate in here is below it: subtraction, squares and sums, each rounded by itself, do not
    /// change the order of what is farther out along every axis.
    fn least_key(&self, from: Vec3<f32>) -> u64 {
        let out =
            |axis: usize| (self.low[axis] - from[axis]).max(from[axis] - self.high[axis]).max(0.0);
        key([0, 1, 2].map(out), self.least_row)
    }

    fn widest_axis(&self) -> usize {
        let side = |axis: usize| self.high[axis] - self.low[axis];
        (1..3).fold(0, |widest, axis| if side(axis) > side(widest) { axis } else { widest })
    }
}

/// A centre and the row that it is of.
#[derive(Clone, Copy)]
struct RowCentre {
    centre: Vec3<f32>,
    row: u32,
}

/// Finite centres, halved again and again across the widest side of what holds them: as deep however
/// they lie, and as many as coincide.
struct Tree {
    /// In the order of the leaves.
    centres: Vec<RowCentre>,
    /// Each before those that it is halved into, and the first of the two with all of its own before
    /// the second.
    nodes: Vec<CentreBounds>,
    depth: u32,
}

/// A part of the tree: its node, its centres, and how many times they are halved.
#[derive(Clone, Debug)]
struct Subtree {
    node: usize,
    places: Range<usize>,
    depth: u32,
}

impl Tree {
    fn new(centres: &[Vec3<f32>]) -> Self {
        let finite = (0..).zip(centres).filter(|&(_, &centre)| is_finite(centre));
        let mut centres: Vec<_> = finite.map(|(row, &centre)| RowCentre { centre, row }).collect();
        let depth = centres.len().div_ceil(LEAF).next_power_of_two().ilog2();
        let mut nodes = vec![CentreBounds::NOTHING; nodes_of(depth)];
        halve(&mut centres, &mut nodes, depth);
        Self { centres, nodes, depth }
    }

    fn root(&self) -> Subtree {
        Subtree { node: 0, places: 0..self.centres.len(), depth: self.depth }
    }

    /// Puts the candidates in a part that are among the nearest into their places, least first.
    fn search(&self, part: Subtree, from: Vec3<f32>, nearest: &mut Vec<u64>, count: usize) {
        let is_among = |key: u64, nearest: &[u64]| nearest.get(count - 1).is_none_or(|&k| key < k);
        if part.depth == 0 {
            for &RowCentre { centre, row } in &self.centres[part.places] {
                let key = key([0, 1, 2].map(|axis| centre[axis] - from[axis]), row);
                if is_among(key, nearest) {
                    nearest.truncate(count - 1);
                    nearest.insert(nearest.partition_point(|&other| other < key), key);
                }
            }
            return;
        }
        let mut halves = part.halves().map(|half| (self.nodes[half.node].least_key(from), half));
        halves.sort_unstable_by_key(|&(least, _)| least);
        for (least, half) in halves {
            if is_among(least, nearest) {
                self.search(half, from, nearest, count);
            }
        }
    }
}

impl Subtree {
    fn halves(&self) -> [Self; 2] {
        let Self { node, places: Range { start, end }, depth } = *self;
        let middle = start + (end - start) / 2;
        let depth = depth - 1;
        [
            Self { node: node + 1, places: start..middle, depth },
            Self { node: node + 1 + nodes_of(depth), places: middle..end, depth },
        ]
    }
}

/// Nodes of a tree, its root and its leaves included.
fn nodes_of(depth: u32) -> usize {
    (2 << depth) - 1
}

/// Orders the centres as the leaves hold them, and says what each node holds.
fn halve(centres: &mut [RowCentre], nodes: &mut [CentreBounds], depth: u32) {
    let Some((node, rest)) = nodes.split_first_mut() else { return };
    let with = |all: CentreBounds, of: &RowCentre| all.with(of.centre, of.row);
    let all = centres.iter().fold(CentreBounds::NOTHING, with);
    *node = all;
    if depth == 0 {
        return;
    }
    let axis = all.widest_axis();
    let middle = centres.len() / 2;
    // The rows make the order, and with it the time that a search takes, the same on every run.
    centres.select_nth_unstable_by(middle, |a, b| {
        a.centre[axis].total_cmp(&b.centre[axis]).then(a.row.cmp(&b.row))
    });
    let (low, high) = centres.split_at_mut(middle);
    let (low_nodes, high_nodes) = rest.split_at_mut(nodes_of(depth - 1));
    if depth > DEPTH_ALONE {
        rayon::join(|| halve(low, low_nodes, depth - 1), || halve(high, high_nodes, depth - 1));
    } else {
        halve(low, low_nodes, depth - 1);
        halve(high, high_nodes, depth - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Gaussians;

    fn model(count: usize) -> Model<f32> {
        let mut host = Gaussians::zeros(0, count);
        for (row, mean) in host.means.chunks_exact_mut(3).enumerate() {
            mean.copy_from_slice(&[row as f32, 0.5 * (row * row % 7) as f32, 0.0]);
        }
        Model::new(&host)
    }

    #[test]
    fn lists_are_of_one_model_and_of_the_rows_that_it_had() {
        let model_of_4 = model(4);
        let near = neighbours(&model_of_4, 2).unwrap();
        // What is copied has the same rows, until they change.
        let mut copy = model_of_4.clone();
        assert!(near.check(&model_of_4).is_ok() && near.check(&copy).is_ok());
        copy.invalidate_rows();
        for other in [copy, model(4), model(5)] {
            let stale = near.check(&other).unwrap_err();
            let len = other.len();
            assert!(matches!(stale, DeviceError::StaleNeighbours { found: 4, len: l } if l == len));
            assert!(stale.to_string().contains("changed places"), "{stale}");
        }
    }

    #[test]
    fn rows_behind_the_last_are_errors() {
        let near = neighbours(&model(3), 2).unwrap();
        assert_eq!(near.read(&(1..3)).unwrap().len(), 4);
        let behind = near.read(&(2..4)).unwrap_err();
        assert!(matches!(behind, DeviceError::NoSuchRow { row: 3, len: 3 }));
    }

    #[test]
    fn no_candidate_is_below_what_its_box_promises() {
        // Coordinates whose differences round: 24 bits are not enough for them.
        let coordinate = |i: u32| (f64::from(i * 7919 % 1000) / 7.0).to_f32() * 1.1_f32.powi(20);
        let centre = |i: u32| [0, 1, 2].map(|axis| coordinate(3 * i + axis));
        for first in 0..200 {
            let rows = first..first + 9;
            let all =
                rows.clone().fold(CentreBounds::NOTHING, |all, row| all.with(centre(row), row));
            for from in (0..200).map(|i| centre(1000 + i)) {
                let least = rows
                    .clone()
                    .map(|row| key([0, 1, 2].map(|a| centre(row)[a] - from[a]), row))
                    .min();
                assert!(least >= Some(all.least_key(from)), "{first} {from:?}");
            }
        }
    }
}

//! Stage `neighbours`: the nearest centres of each centre, by a k-d tree.
//!
//! A candidate is one key: the bits of its squared distance above its row. Squared distances are not negative, so
//! their bits have their order. The least key is the nearest centre; ties go to the lower row.
//!
//! Rows of palettes are searched by the search of the formats crate.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;
use splat_formats::{HeldRows, HostSearch, RowSearch as _};

use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::places;
use crate::backend::neighbours::list_len;
use crate::backend::rows::RowsVersion;
use crate::backend::{DeviceError, Held, NeighbourLists, check_rows};
use crate::math::Real;
use crate::math::linalg::Vec3;
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive};

/// Largest number of centres in a leaf.
const LEAF: usize = 32;

/// Largest depth of a subtree that one thread builds.
const DEPTH_ALONE: u32 = 4;

/// Nearest neighbours of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct NearestLists<P = Gaussians> {
    count: usize,
    len: usize,
    /// `[len, count]`
    rows: Vec<u32>,
    /// Version of the model's rows.
    rows_version: RowsVersion,
    primitive: PhantomData<P>,
}

impl<P> NeighbourLists for NearestLists<P> {
    fn count(&self) -> u32 {
        // Bounded by [`MOST_NEIGHBOURS`](crate::backend::MOST_NEIGHBOURS).
        u32::try_from(self.count).unwrap_or(u32::MAX)
    }
}

impl<P> Held for NearestLists<P> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<u32>(self.rows.capacity())
    }
}

impl<P: Primitive> NearestLists<P> {
    /// Returns the length of each list.
    pub(crate) fn width(&self) -> usize {
        self.count
    }

    /// Returns the neighbours of a row, nearest first; `[count]`.
    pub fn of(&self, row: usize) -> &[u32] {
        &self.rows[row * self.count..][..self.count]
    }

    /// Fails for another model, or if rows were added, removed or moved since the search.
    pub fn check<R: Real>(&self, model: &Model<R, P>) -> Result<(), DeviceError> {
        let (found, len) = (self.len, model.len());
        // Code that edits columns directly does not update the version: also check the length.
        if found == len && self.rows_version == *model.rows_version() {
            Ok(())
        } else {
            Err(DeviceError::StaleNeighbours { found, len })
        }
    }

    /// Returns the lists of these rows, `[rows, count]`.
    pub(crate) fn read(&self, rows: &Range<usize>) -> Result<Vec<u32>, DeviceError> {
        check_rows(rows, self.len)?;
        Ok(rows.clone().flat_map(|row| self.of(row)).copied().collect())
    }
}

/// Finds the `count` nearest centres of each centre.
pub(crate) fn neighbours<R: Real, P: Primitive + Sync>(
    model: &Model<R, P>,
    count: u32,
) -> Result<NearestLists<P>, DeviceError> {
    let len = model.len();
    let count = list_len(count, len)? as usize;
    let mut rows = vec![0; len * count];
    // Distances are in single precision for any model, so that all devices agree.
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
            // There may be fewer finite centres than list entries.
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

/// Builds the key of a candidate.
fn key([x, y, z]: Vec3<f32>, row: u32) -> u64 {
    u64::from((x * x + y * y + z * z).to_bits()) << u32::BITS | u64::from(row)
}

fn row_of(key: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the distance stands above the row")]
    let row = key as u32;
    row
}

/// Bounds of a subtree.
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

    /// Returns a lower bound of the keys inside. The bound holds because rounded subtraction, squaring and summation
    /// are monotonic.
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

#[derive(Clone, Copy)]
struct RowCentre {
    centre: Vec3<f32>,
    row: u32,
}

/// A balanced tree of finite centres, split at the median of the widest axis. Its depth depends on the count alone.
struct Tree {
    /// Centres in leaf order.
    centres: Vec<RowCentre>,
    /// Nodes in preorder.
    nodes: Vec<CentreBounds>,
    depth: u32,
}

/// A subtree: its node, its centres, and its depth.
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

    /// Inserts the candidates of a subtree into the sorted list of the nearest.
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

/// Returns the number of nodes of a tree of this depth.
fn nodes_of(depth: u32) -> usize {
    (2 << depth) - 1
}

/// Reorders the centres into leaf order and fills the nodes.
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
    // Ties are broken by row, so that the order and the search time are reproducible.
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

/// Rows to search for.
#[derive(Clone, Debug)]
pub struct PaletteRows {
    rows: Vec<f32>,
    width: usize,
}

impl PaletteRows {
    pub(crate) fn new(rows: &[f32], width: usize) -> Self {
        Self { rows: rows.to_vec(), width }
    }

    /// Returns the rows for the search of the formats crate.
    pub(crate) fn held(&self) -> Box<dyn HeldRows + '_> {
        HostSearch.hold(&self.rows, self.width)
    }
}

impl Held for PaletteRows {
    fn bytes(&self) -> Bytes {
        Bytes::of::<f32>(self.rows.len())
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
    fn lists_belong_to_one_version_of_a_model() {
        let model_of_4 = model(4);
        let near = neighbours(&model_of_4, 2).unwrap();
        // A clone has equal rows until they change.
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
    fn rows_out_of_range_are_errors() {
        let near = neighbours(&model(3), 2).unwrap();
        assert_eq!(near.read(&(1..3)).unwrap().len(), 4);
        let behind = near.read(&(2..4)).unwrap_err();
        assert!(matches!(behind, DeviceError::NoSuchRow { row: 3, len: 3 }));
    }

    #[test]
    fn no_candidate_is_below_the_bound_of_its_box() {
        // Differences of these coordinates need more than 24 bits.
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

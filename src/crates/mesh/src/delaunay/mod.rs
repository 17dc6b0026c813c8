//! Delaunay tetrahedra of points in space: exact, in parallel, and independent of the order of the points and of the
//! number of threads.

pub(crate) mod insertion;

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use insertion::{GHOST, Link, NONE, OPPOSITE, Shares, Slots, first_fit, is_inside, orientation};
use rayon::prelude::*;

use crate::bricks::spread;
use crate::mesh::Vec3;
use crate::narrow::{floor_u32, to_u32};
use crate::place::Bounds;
use crate::random::mix;

/// Points that one thread inserts before the work is shared.
const ALONE: usize = 100_000;

/// Computes the Delaunay tetrahedra of points of any unit, with the threads of the current pool.
///
/// The tetrahedra are sorted. The same points give the same bits with any number of threads; shuffled points give the
/// same tetrahedra in the same order, but for the indices. Coordinates nearer to 0 than 2^-120 count as 0.
///
/// # Errors
/// Fails if points are not finite, too many, or all in one plane.
pub fn delaunay(points: &[Vec3], want: Want) -> Result<Delaunay, DelaunayError> {
    delaunay_by(points, want, Shares { pieces: rayon::current_num_threads(), alone: ALONE })
}

fn delaunay_by(points: &[Vec3], want: Want, shares: Shares) -> Result<Delaunay, DelaunayError> {
    let order = Order::of(points)?;
    let slots = insertion::triangulate(&order, shares)?;
    Ok(finish(order, slots, want))
}

/// Fault of points that cannot be triangulated.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum DelaunayError {
    #[error(
        "point {index} at {point:?} is not finite or is beyond 1e45: drop such points before \
         triangulating"
    )]
    UnfitPoint { index: usize, point: Vec3 },
    #[error("{count} points to triangulate, but at most {most} fit: thin them out")]
    TooManyPoints { count: usize, most: usize },
    #[error(
        "{distinct} distinct points lie in one plane, so that no tetrahedron spans them: add \
         points off the plane, such as the corners of a box around them"
    )]
    Flat { distinct: usize },
    #[error("the points span more than {most} tetrahedra: thin them out")]
    TooManyTetrahedra { most: usize },
    #[error("no memory for {bytes} bytes of tetrahedra: thin the points out")]
    Memory { bytes: u64 },
}

/// No neighbour: the face is on the convex hull.
pub const OUTSIDE: u32 = u32::MAX;

/// The Delaunay tetrahedra of points.
///
/// The sphere through the corners of each holds no point. If more than four points lie on a sphere, the choice depends
/// only on the points' places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delaunay {
    /// Indices of the corners [a, b, c, d], with (b - a) x (c - a) · (d - a) > 0.
    pub tetrahedra: Vec<[u32; 4]>,
    /// Tetrahedron across the face opposite to each corner, [`OUTSIDE`] on the hull; empty for [`Want::Tetrahedra`].
    pub neighbours: Vec<[u32; 4]>,
    /// Points that equal an earlier one and so are no corner, each with the first equal point; sorted.
    pub duplicates: Vec<[u32; 2]>,
}

/// Parts of the result to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Only the tetrahedra, with less memory: under 320 bytes a point, including the points.
    Tetrahedra,
    /// The tetrahedra and their neighbours.
    Neighbours,
}

/// Exchanges of two pairs of corners that bring each corner to the front and keep the sign.
const TO_FRONT: [[usize; 4]; 4] = [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]];

/// Rotations of the last three corners, which keep the sign.
const TURNS: [[usize; 4]; 3] = [[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]];

/// Drops ghosts and empty slots, sorts, and replaces names by indices.
fn finish(order: Order, slots: Slots, want: Want) -> Delaunay {
    let Order { points, input_from_name, duplicates, .. } = order;
    let names = points.len();
    drop(points);
    let (mut corners, mut links) = slots.into_words();
    if want == Want::Tetrahedra {
        links = Vec::new();
        corners.par_iter_mut().for_each(|corners| *corners = permuted(*corners, upright(*corners)));
    } else {
        corners.par_iter_mut().zip(&mut links).for_each(|(corners, links)| {
            let permutation = upright(*corners);
            *corners = permuted(*corners, permutation);
            *links = permuted(*links, permutation);
        });
    }
    let slot_from_tetrahedron = sorted(&corners, names);
    let neighbours = neighbours(&links, &slot_from_tetrahedron);
    drop(links);
    let index = |name: u32| input_from_name[name as usize];
    let tetrahedra =
        slot_from_tetrahedron.par_iter().map(|&slot| corners[slot as usize].map(index)).collect();
    Delaunay { tetrahedra, neighbours, duplicates }
}

/// Returns the order of corners of equal sign that puts the least first, and the least of the others second.
fn upright(corners: [u32; 4]) -> [usize; 4] {
    let lesser =
        |a: usize, b: usize, corners: &[u32; 4]| if corners[b] < corners[a] { b } else { a };
    let least = lesser(lesser(0, 1, &corners), lesser(2, 3, &corners), &corners);
    let front = TO_FRONT[least];
    let corners = permuted(corners, front);
    let second = lesser(lesser(1, 2, &corners), 3, &corners);
    permuted(front, TURNS[second - 1])
}

#[inline]
fn permuted<T: Copy>(values: [T; 4], order: [usize; 4]) -> [T; 4] {
    [values[order[0]], values[order[1]], values[order[2]], values[order[3]]]
}

/// Returns the slots of the finite tetrahedra, sorted by their corners, whose least comes first.
fn sorted(corners: &[[u32; 4]], names: usize) -> Vec<u32> {
    let is_finite = |corners: &[u32; 4]| corners.iter().all(|&corner| corner < GHOST);
    // Counting sort by the first corner, which about seven tetrahedra share.
    let mut ends = vec![0_u32; names + 1];
    for corners in corners.iter().filter(|corners| is_finite(corners)) {
        ends[corners[0] as usize + 1] += 1;
    }
    let mut total = 0;
    for end in &mut ends {
        total += *end;
        *end = total;
    }
    let mut slots = vec![0; total as usize];
    for (slot, corners) in (0..).zip(corners).filter(|(_, corners)| is_finite(corners)) {
        // The start of the name's bucket moves to its end.
        let end = &mut ends[corners[0] as usize];
        slots[*end as usize] = slot;
        *end += 1;
    }
    slots
        .par_chunk_by_mut(|&a, &b| corners[a as usize][0] == corners[b as usize][0])
        .for_each(|bucket| bucket.sort_unstable_by_key(|&slot| corners[slot as usize]));
    slots
}

/// Converts links of slots to neighbours of tetrahedra; nothing without links.
fn neighbours(links: &[[u32; 4]], slot_from_tetrahedron: &[u32]) -> Vec<[u32; 4]> {
    let mut tetrahedron_from_slot = vec![OUTSIDE; links.len()];
    if links.is_empty() {
        return Vec::new();
    }
    for (tetrahedron, &slot) in (0..).zip(slot_from_tetrahedron) {
        tetrahedron_from_slot[slot as usize] = tetrahedron;
    }
    let neighbour = |link: u32| tetrahedron_from_slot[(link >> 2) as usize];
    let all = |[a, b, c, d]: [u32; 4]| [neighbour(a), neighbour(b), neighbour(c), neighbour(d)];
    slot_from_tetrahedron.par_iter().map(|&slot| all(links[slot as usize])).collect()
}

/// Names examined on each side of a position on the curve.
const NEAR: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Workspace<'a> {
    slots: &'a Slots,
    /// Place of each name.
    points: &'a [Vec3],
    order: &'a Order,
    homes: &'a [AtomicU32],
    /// Piece of each name that is inserted or about to be; none if one worker works alone.
    pieces: Option<&'a [u8]>,
}

impl Workspace<'_> {
    /// True if a name belongs to a piece; the ghost belongs to none.
    #[inline]
    fn owns(&self, name: u32, piece: u8) -> bool {
        self.pieces.is_none_or(|pieces| pieces.get(name as usize) == Some(&piece))
    }

    /// True if a piece may walk here: some corner is its own.
    #[inline]
    fn may_enter(&self, corners: [u32; 4], piece: u8) -> bool {
        self.pieces.is_none() || corners.iter().any(|&name| self.owns(name, piece))
    }

    /// True if a piece may delete this: all finite corners are its own.
    #[inline]
    fn may_delete(&self, slot: u32, piece: u8) -> bool {
        let is_own = |&name: &u32| name == GHOST || self.owns(name, piece);
        self.pieces.is_none() || self.slots.corners(slot).iter().all(is_own)
    }

    /// Returns a value below zero if a place lies strictly across the face opposite to a corner.
    #[inline]
    fn side(&self, corners: [u32; 4], corner: usize, point: Vec3) -> f64 {
        let [a, b, c] = OPPOSITE[corner];
        let place = |corner: usize| self.points[corners[corner] as usize];
        orientation(place(a), place(b), place(c), point)
    }

    /// True if the sphere of a tetrahedron holds a point. A ghost's sphere is the open half space outside its face,
    /// and in the face's plane the sphere of its finite neighbour.
    #[inline]
    fn holds(&self, slot: u32, name: u32, point: Vec3) -> bool {
        let mut corners = self.slots.corners(slot);
        if let Some(ghost) = corners.iter().position(|&corner| corner == GHOST) {
            let side = self.side(corners, ghost, point);
            if side != 0.0 {
                return side > 0.0;
            }
            corners = self.slots.corners(self.slots.across(Link::new(slot, ghost)).slot());
        }
        let [a, b, c, d] = corners;
        let place = |corner: u32| self.points[corner as usize];
        is_inside(corners, &[place(a), place(b), place(c), place(d)], name, point)
    }

    /// Walks from a tetrahedron to one that holds a point, and leaves `at` at the end of the walk. Returns false if no
    /// way within the piece leads on.
    ///
    /// A visibility walk in a Delaunay triangulation ends, whichever of the faces that hide the point it takes
    /// (Devillers, Pion and Teillaud, "Walking in a triangulation", 2002).
    fn walk(&self, at: &mut u32, point: Vec3, piece: u8, choice: &mut u32) -> bool {
        let mut corners = self.slots.corners(*at);
        if let Some(ghost) = corners.iter().position(|&corner| corner == GHOST) {
            *at = self.slots.across(Link::new(*at, ghost)).slot();
            corners = self.slots.corners(*at);
        }
        let mut entered = NONE as usize;
        'walk: loop {
            *choice = choice.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            let first = (*choice >> 30) as usize;
            let mut is_there = true;
            for corner in (0..4).map(|turn| (first + turn) & 3) {
                if corner == entered || self.side(corners, corner, point) >= 0.0 {
                    continue;
                }
                let link = self.slots.across(Link::new(*at, corner));
                let next = self.slots.corners(link.slot());
                if self.may_enter(next, piece) {
                    (*at, entered, corners) = (link.slot(), link.corner(), next);
                    if corners.contains(&GHOST) {
                        return true;
                    }
                    continue 'walk;
                }
                is_there = false;
            }
            return is_there;
        }
    }

    /// Returns a tetrahedron near a point, with a corner of a piece. No other piece deletes it, because no other piece
    /// writes a name of this one.
    fn home_near(&self, name: u32, piece: u8) -> Option<u32> {
        let order = self.order;
        let round = order.rounds.partition_point(|&first| first <= name as usize);
        let (from, to) = (*order.rounds.get(round.checked_sub(2)?)?, *order.rounds.get(round - 1)?);
        let place = order.place(name as usize);
        let middle = from + first_fit(to - from, |at| order.place(from + at) >= place);
        let before = (from..middle).rev().take(NEAR);
        let after = (middle..to).take(NEAR);
        after.chain(before).find_map(|name| {
            let slot = self.homes[name].load(Relaxed);
            let name = u32::try_from(name).ok()?;
            let is_home = slot != NONE && self.slots.corners(slot).contains(&name);
            (is_home && self.owns(name, piece)).then_some(slot)
        })
    }
}

/// Coordinates beyond this, 2^150, could overflow an exact predicate.
const LARGEST: f64 = f64::from_bits((1_023 + 150) << 52);

/// Coordinates nearer to 0 than this, 2^-120, could underflow in an exact predicate.
const SMALLEST: f64 = f64::from_bits((1_023 - 120) << 52);

/// Largest number of points: a stamp is twice a name plus one.
const MAX_POINTS: usize = (1 << 31) - 2;

/// Approximate least number of points of the first round.
const FIRST_ROUND: usize = 32;

/// Distinct points in the order of insertion; a point's position in this order is its name.
///
/// A biased randomised insertion order (Amenta, Choi and Rote, "Incremental constructions con BRIO", 2003): each round
/// holds about half of the remaining points, the last round most, and runs along a Hilbert curve.
#[derive(Debug)]
struct Order {
    /// Place of each name.
    points: Vec<Vec3>,
    /// Index of each name among the given points: the first of its duplicates.
    input_from_name: Vec<u32>,
    /// First name of each round, and the number of names.
    rounds: Vec<usize>,
    /// Given points that equal an earlier one, each with that one.
    duplicates: Vec<[u32; 2]>,
    curve: Curve,
}

#[derive(Clone, Copy)]
struct Key {
    round: u32,
    index: u32,
    place: u64,
}

impl Order {
    /// Returns the position of a name along the curve.
    fn place(&self, name: usize) -> u64 {
        self.curve.place(self.points[name])
    }

    /// Orders points by their places alone: a shuffle changes only `input_from_name`.
    fn of(given: &[Vec3]) -> Result<Self, DelaunayError> {
        if given.len() > MAX_POINTS {
            return Err(DelaunayError::TooManyPoints { count: given.len(), most: MAX_POINTS });
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
        let numbers = (0..to_u32(given.len())).into_par_iter();
        let mut keys: Vec<Key> = numbers.zip(given.par_iter()).map(key).collect();
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

/// Returns a point that predicates can handle: no coordinate is too small, and none is a negative zero.
fn rounded(point: Vec3) -> Vec3 {
    point.map(|x| if x.abs() < SMALLEST { 0.0 } else { x })
}

fn hash(point: Vec3) -> u64 {
    point.iter().fold(0, |hash, x| mix(hash ^ x.to_bits()))
}

/// Binary logarithm of the cells along each axis of the cube that the curve fills.
const FINE_BITS: u32 = 21;

/// [`FINE_BITS`] of up to [`MANY_POINTS`] points.
const COARSE_BITS: u32 = 16;

/// Number of points above which the finer curve pays.
const MANY_POINTS: usize = 50_000_000;

/// A Hilbert curve through the cube around some points: neighbours on it are neighbours in space.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Curve {
    /// Least corner of the cube.
    least: Vec3,
    /// Cells per unit of length.
    cells_per_unit: f64,
    bits: u32,
}

/// Largest number of points that decide which points are far from all others.
const SAMPLED_POINTS: usize = 4096;

/// Returns the bounds of all points, on each axis at most three times as wide as the middle 98 % of a sample.
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
    /// Returns the curve for finite points. A few points far from all others lie at its border: in a cube around them,
    /// all others would share a cell.
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

    /// Returns the position of a point along the curve (Skilling, "Programming the Hilbert curve", 2004): the cell's
    /// coordinates become the transposed index in place.
    pub(crate) fn place(&self, point: Vec3) -> u64 {
        let last = (1_u32 << self.bits) - 1;
        let mut cell: [u32; 3] = std::array::from_fn(|axis| {
            floor_u32((point[axis] - self.least[axis]) * self.cells_per_unit).min(last)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::insertion::{OPPOSITE, is_inside, orientation};
    use super::*;
    use crate::narrow::floor_usize;
    use crate::place;
    use crate::random::{RandomSequence, RandomStream};

    /// Shares that let several workers insert even few points.
    const SHARED: Shares = Shares { pieces: 8, alone: 300 };

    fn random(count: usize) -> Vec<Vec3> {
        let mut noise = RandomSequence::of_seed(count as u64);
        (0..count).map(|_| std::array::from_fn(|_| noise.uniform())).collect()
    }

    fn lattice(side: i32) -> Vec<Vec3> {
        let cell = |i: i32| [i / side / side, i / side % side, i % side].map(f64::from);
        (0..side.pow(3)).map(cell).collect()
    }

    /// Returns the whole points on the sphere of radius 65 (65² = 4,225 has many).
    fn on_a_sphere() -> Vec<Vec3> {
        let mut points = Vec::new();
        for x in -65..=65_i32 {
            for y in -65..=65 {
                let square = 4_225 - x * x - y * y;
                let z = (0..=65).find(|z| z * z == square);
                points
                    .extend(z.into_iter().flat_map(|z| [z, -z].map(|z| [x, y, z].map(f64::from))));
            }
        }
        points
    }

    /// Checks links, signs, that the spheres across each face hold no point (which suffices by Delaunay's lemma), that
    /// the hull is convex, and that each distinct point is a corner.
    fn check(points: &[Vec3], found: &Delaunay) {
        let place = |name: u32| points[name as usize];
        let mut used = vec![false; points.len()];
        for (at, (corners, neighbours)) in
            found.tetrahedra.iter().zip(&found.neighbours).enumerate()
        {
            let places = corners.map(place);
            let [a, b, c, d] = places;
            assert!(orientation(a, b, c, d) > 0.0, "tetrahedron {at} is turned over");
            corners.iter().for_each(|&corner| used[corner as usize] = true);
            let face = |corners: &[u32; 4], opposite: usize| {
                let mut face = OPPOSITE[opposite].map(|corner| corners[corner]);
                face.sort_unstable();
                face
            };
            for (corner, &neighbour) in neighbours.iter().enumerate() {
                if neighbour == OUTSIDE {
                    continue;
                }
                let other = neighbour as usize;
                let back = found.neighbours[other].iter().position(|&link| link as usize == at);
                let back = back.expect("a neighbour links back");
                assert_eq!(face(corners, corner), face(&found.tetrahedra[other], back));
                let apex = place(found.tetrahedra[other][back]);
                // On the sphere the perturbation decides; only strictly inside is wrong for any names.
                assert!(!strictly_inside(&places, apex), "tetrahedron {at} is not Delaunay");
            }
        }
        for &[duplicate, first] in &found.duplicates {
            assert_eq!(place(duplicate), place(first));
            assert!(first < duplicate && !used[duplicate as usize]);
            used[duplicate as usize] = true;
        }
        assert!(used.iter().all(|&used| used), "a point is missing");
        // Euler: the hull of the tetrahedra is one closed surface without handles.
        let hull = hull(found);
        let mut corners: Vec<u32> = hull.iter().flatten().copied().collect();
        corners.sort_unstable();
        corners.dedup();
        assert_eq!(hull.len(), 2 * corners.len() - 4);
        for face in &hull {
            let [a, b, c] = face.map(place);
            // No corner of the hull lies outside the plane of a face.
            for &corner in corners.iter().take(500) {
                assert!(orientation(a, b, c, place(corner)) >= 0.0, "the hull is not convex");
            }
        }
    }

    /// Returns the faces on the hull, their normals inwards.
    fn hull(found: &Delaunay) -> Vec<[u32; 3]> {
        let both = found.tetrahedra.iter().zip(&found.neighbours);
        both.flat_map(|(corners, neighbours)| {
            let outside = (0..4).filter(|&corner| neighbours[corner] == OUTSIDE);
            outside.map(|corner| OPPOSITE[corner].map(|other| corners[other]))
        })
        .collect()
    }

    /// True if a point is strictly inside the sphere: for any order of names.
    fn strictly_inside(corners: &[Vec3; 4], point: Vec3) -> bool {
        is_inside([1, 2, 3, 4], corners, 0, point) && is_inside([0, 1, 2, 3], corners, 4, point)
    }

    fn triangulated(points: &[Vec3], shares: Shares) -> Delaunay {
        delaunay_by(points, Want::Neighbours, shares).expect("the points span space")
    }

    /// Checks that several shares and orders give the same tetrahedra.
    fn check_uniqueness(name: &str, points: &[Vec3]) {
        let alone = triangulated(points, Shares { pieces: 1, alone: usize::MAX });
        check(points, &alone);
        for pieces in [2, 8, 16] {
            let shared = triangulated(points, Shares { pieces, ..SHARED });
            assert!(alone == shared, "{name}: {pieces} pieces give another triangulation");
        }
        let mut noise = RandomSequence::of_seed(7);
        let mut input_from_shuffled: Vec<usize> = (0..points.len()).collect();
        for (shuffle, pieces) in [1, 5, 16].into_iter().enumerate() {
            for last in (1..points.len()).rev() {
                let other = floor_usize(noise.uniform() * (last + 1) as f64);
                input_from_shuffled.swap(last, other);
            }
            let shuffled: Vec<Vec3> = input_from_shuffled.iter().map(|&at| points[at]).collect();
            let found = triangulated(&shuffled, Shares { pieces, ..SHARED });
            let places = |points: &[Vec3], found: &Delaunay| -> Vec<[Vec3; 4]> {
                let place = |corner: u32| points[corner as usize];
                found.tetrahedra.iter().map(|corners| corners.map(place)).collect()
            };
            assert!(
                places(&shuffled, &found) == places(points, &alone),
                "{name}: shuffle {shuffle} gives another triangulation"
            );
            assert!(found.neighbours == alone.neighbours, "{name}");
        }
    }

    #[test]
    fn points_have_one_triangulation() {
        let mut noise = RandomSequence::of_seed(3);
        let duplicates =
            (0..4_000).map(|_| std::array::from_fn(|_| (noise.uniform() * 12.0).floor()));
        let duplicates = duplicates.collect();
        let mut noise = RandomSequence::of_seed(11);
        let on_noisy_torus = |_| {
            let [u, v] = [(); 2].map(|()| noise.uniform() * std::f64::consts::TAU);
            let (r, z) = (1.0 + 0.4 * v.cos() + 0.003 * noise.uniform(), 0.4 * v.sin());
            [r * u.cos(), r * u.sin(), z]
        };
        let surface = (0..8_000).map(on_noisy_torus).collect();
        let mut near = random(2_000);
        near.extend(near[..500].to_vec().iter().map(|p| p.map(|x| x * 1e-30)));
        for (name, points) in [
            ("random", random(8_000)),
            ("lattice", lattice(13)),
            ("sphere", on_a_sphere()),
            ("many duplicates", duplicates),
            ("noisy surface", surface),
            ("1e-30 apart", near),
        ] {
            check_uniqueness(name, &points);
        }
    }

    #[test]
    fn a_point_is_inserted_where_it_lies_though_homes_are_gone() {
        // These points were once inserted from homes that the same piece had deleted.
        for (key, pieces) in [(17, 12), (18, 8)] {
            let stream = RandomStream::of_seed(key);
            let place = |point: u64| [0, 1, 2].map(|axis| stream.uniform(3 * point + axis));
            let points: Vec<Vec3> = (0..8_000).map(place).collect();
            let alone = triangulated(&points, Shares { pieces: 1, alone: usize::MAX });
            assert!(alone == triangulated(&points, Shares { pieces, ..SHARED }), "key {key}");
        }
    }

    #[test]
    fn lines_and_extreme_coordinates_are_triangulated() {
        let line = |count: i32| (0..count).map(|at| [f64::from(at), 0.0, 0.0]);
        let triangle = [[300.0, 1.0, 0.0], [300.0, 0.0, 1.0]];
        let skew = (0..100).map(|at| [0.0, f64::from(at), 1.0]);
        // The largest and the smallest coordinates.
        let mut extreme: Vec<Vec3> = random(300).iter().map(|p| p.map(|x| x * 1.4e45)).collect();
        extreme.extend(random(301).iter().map(|p| p.map(|x| (1.0 + x) * 8e-37)));
        let cases: [(Vec<Vec3>, Shares, Option<usize>); 3] = [
            (line(600).chain(triangle).collect(), SHARED, Some(599)),
            (line(100).chain(skew).collect(), Shares { pieces: 4, alone: 40 }, Some(99 * 99)),
            (extreme, SHARED, None),
        ];
        for (points, shares, tetrahedra) in cases {
            let found = triangulated(&points, shares);
            check(&points, &found);
            assert!(tetrahedra.is_none_or(|count| found.tetrahedra.len() == count));
        }
    }

    #[test]
    fn no_point_lies_in_any_sphere() {
        for seed in 200..205 {
            let points = random(seed);
            let found = triangulated(&points, Shares { pieces: 3, alone: 50 });
            check(&points, &found);
            for corners in &found.tetrahedra {
                let places = corners.map(|corner| points[corner as usize]);
                for &point in &points {
                    assert!(places.contains(&point) || !strictly_inside(&places, point));
                }
            }
        }
    }

    #[test]
    fn the_tetrahedra_fill_the_hull() {
        let points = random(5_000);
        let found = triangulated(&points, SHARED);
        let place = |corner: u32| points[corner as usize];
        let volume = |[a, b, c, d]: [Vec3; 4]| {
            let (u, v, w) = (place::sub(b, a), place::sub(c, a), place::sub(d, a));
            place::dot(place::cross(u, v), w) / 6.0
        };
        let filled: f64 = found.tetrahedra.iter().map(|corners| volume(corners.map(place))).sum();
        let of_middle = |face: &[u32; 3]| {
            let [a, b, c] = face.map(place);
            volume([a, b, c, [0.5; 3]])
        };
        let around: f64 = hull(&found).iter().map(of_middle).sum();
        // Rounding of 34,000 terms, each of 1e-16 of at most 1/6.
        assert!((filled - around).abs() < 1e-12, "{filled} against {around}");
    }

    #[test]
    fn without_neighbours_the_tetrahedra_are_the_same() {
        let points = random(3_000);
        let bare = delaunay(&points, Want::Tetrahedra).unwrap();
        assert!(bare.tetrahedra == triangulated(&points, SHARED).tetrahedra);
        assert!(bare.neighbours.is_empty());
    }

    /// Run this test alone and optimised, because the peak is the process's.
    #[test]
    #[ignore = "takes seconds, and the memory of the whole process counts"]
    #[cfg(target_os = "linux")]
    fn a_million_points_take_less_than_320_bytes_each() {
        let points = random(1_000_000);
        let start = std::time::Instant::now();
        let found = delaunay(&points, Want::Tetrahedra).unwrap();
        let seconds = start.elapsed().as_secs_f64();
        assert!(found.tetrahedra.len() > 6_700_000);
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak * 1_024 < 320_000_000, "{peak} kB after {seconds:.1} s");
    }

    #[test]
    fn unfit_points_are_refused() {
        let plane: Vec<Vec3> = random(100).iter().map(|&[x, y, _]| [x, y, 0.25]).collect();
        let line: Vec<Vec3> = (0..50).map(|at| [f64::from(at); 3]).collect();
        let refused = |points: &[Vec3]| delaunay(points, Want::Tetrahedra).unwrap_err();
        let flat: [(&[Vec3], usize); 4] =
            [(&plane, 100), (&[[1.0; 3]; 9], 1), (&[], 0), (&line, 50)];
        for (points, distinct) in flat {
            assert_eq!(refused(points), DelaunayError::Flat { distinct });
        }
        let mut points = random(10);
        for coordinate in [f64::INFINITY, -2e45] {
            points[7][1] = coordinate;
            let error = refused(&points);
            assert_eq!(error, DelaunayError::UnfitPoint { index: 7, point: points[7] });
            assert!(error.to_string().contains("point 7"), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn few_points_of_a_small_lattice_are_triangulated(
            cells in prop::collection::vec([0..4_i32, 0..4, 0..4], 4..60),
            pieces in 1..5_usize,
        ) {
            let points: Vec<Vec3> = cells.iter().map(|cell| cell.map(f64::from)).collect();
            if let Ok(found) = delaunay_by(&points, Want::Neighbours, Shares { pieces, alone: 8 }) {
                check(&points, &found);
            }
        }
    }

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

//! Insertion of a point: walk to it, dig out the tetrahedra whose spheres hold it, fill the cavity.
//!
//! Bowyer (1981) and Watson (1981). Several workers may insert at once, each the points of its own piece, without
//! locks. They do not conflict, for these reasons:
//!
//! - A worker deletes a tetrahedron only if all its corners are its own (or the ghost).
//! - It walks, and tests spheres, only where at least one corner is its own. No other worker deletes such a
//!   tetrahedron, so its corners stay.
//! - The worker that deletes the tetrahedron across a face rewrites the link, so all finite corners of that face are
//!   its own: each word has one writer. A worker that follows a link while it is rewritten reaches a tetrahedron of
//!   another piece, before or after, and postpones its point. A slot in use for the first time, or again, has no
//!   corners until they are written.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use geometry_predicates::{insphere, orient3d};
use rayon::prelude::*;

use super::{DelaunayError, Order, Workspace};
use crate::mesh::Vec3;
use crate::place::{dot, sub};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The point is a corner now.
    Inserted,
    /// Its cavity crosses a border between pieces; nothing has changed.
    Postponed,
    /// Number of missing slots; nothing has changed.
    OutOfSlots(usize),
}

#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) piece: u8,
    /// Slots that were used before.
    pub(super) free: Vec<u32>,
    /// Slots that were never used.
    pub(super) fresh: Range<u32>,
    /// Start of the next walk: a tetrahedron that no other worker deletes.
    pub(super) at: u32,
    /// Tetrahedra that the current point deletes.
    pub(super) cavity: Vec<u32>,
    /// Faces of the cavity towards other tetrahedra.
    pub(super) border: Vec<Link>,
    /// State of the walk's random choices.
    pub(super) choice: u32,
}

impl Worker {
    /// Inserts a point, or changes nothing.
    pub(super) fn insert(&mut self, ground: &Workspace<'_>, name: u32) -> Outcome {
        let point = ground.points[name as usize];
        if !ground.walk(&mut self.at, point, self.piece, &mut self.choice) {
            let Some(home) = ground.home_near(name, self.piece) else {
                return Outcome::Postponed;
            };
            self.at = home;
            if !ground.walk(&mut self.at, point, self.piece, &mut self.choice) {
                return Outcome::Postponed;
            }
        }
        if !self.dig(ground, name) {
            self.unstamp(ground);
            return Outcome::Postponed;
        }
        let slots_left = self.free.len() + self.fresh.len();
        if slots_left < self.border.len() {
            self.unstamp(ground);
            return Outcome::OutOfSlots(self.border.len() - slots_left);
        }
        self.fill(ground, name);
        Outcome::Inserted
    }

    /// Finds the cavity and its border, breadth first, from the end of the walk. Returns false if the cavity leaves
    /// the piece.
    fn dig(&mut self, ground: &Workspace<'_>, name: u32) -> bool {
        let (slots, point, start) = (ground.slots, ground.points[name as usize], self.at);
        let (holds, spared) = (name << 1 | 1, name << 1);
        self.cavity.clear();
        self.border.clear();
        if !ground.may_delete(start, self.piece) {
            return false;
        }
        slots.stamp(start, holds);
        self.cavity.push(start);
        let mut next = 0;
        while let Some(&slot) = self.cavity.get(next) {
            next += 1;
            for (corner, link) in slots.links(slot).iter().enumerate() {
                let neighbour = link.slot();
                let stamp = slots.stamped(neighbour);
                if stamp == holds {
                    continue;
                }
                if stamp != spared && ground.holds(neighbour, name, point) {
                    if !ground.may_delete(neighbour, self.piece) {
                        return false;
                    }
                    slots.stamp(neighbour, holds);
                    self.cavity.push(neighbour);
                } else {
                    slots.stamp(neighbour, spared);
                    self.border.push(Link::new(slot, corner));
                }
            }
        }
        true
    }

    fn unstamp(&mut self, ground: &Workspace<'_>) {
        for slot in self.cavity.drain(..) {
            ground.slots.stamp(slot, NONE);
        }
    }

    /// Joins the point with each face of the cavity's border.
    fn fill(&mut self, ground: &Workspace<'_>, name: u32) {
        let slots = ground.slots;
        for &face in &self.border {
            let Some(slot) = self.free.pop().or_else(|| self.fresh.next()) else {
                // `insert` has counted the slots.
                continue;
            };
            let mut corners = slots.corners(face.slot());
            corners[face.corner()] = name;
            slots.write(slot, corners);
            let (inner, outer) = (Link::new(slot, face.corner()), slots.across(face));
            slots.link(inner, outer);
            slots.link(outer, inner);
            // The way from the deleted tetrahedron to the new one.
            slots.link(face, inner);
            self.at = slot;
        }
        let holds = name << 1 | 1;
        for &face in &self.border {
            let slot = slots.across(face).slot();
            for corner in (0..4).filter(|&corner| corner != face.corner()) {
                let side = Link::new(slot, corner);
                if slots.across(side) == Link::NONE {
                    let other = turn(slots, face, corner, holds);
                    slots.link(side, other);
                    slots.link(other, side);
                }
            }
        }
        ground.homes[name as usize].store(self.at, Relaxed);
        // Otherwise a walk could start in one of them as the home of a point that has a new one.
        self.cavity.iter().for_each(|&slot| slots.clear(slot));
        self.free.append(&mut self.cavity);
    }
}

/// Returns the new face that meets the face of a new tetrahedron opposite to `corner`: turns through the cavity around
/// the edge that both share on its border.
fn turn(slots: &Slots, border: Link, corner: usize, holds: u32) -> Link {
    let (mut slot, mut face, mut left) = (border.slot(), corner, border.corner());
    loop {
        let link = slots.across(Link::new(slot, face));
        if slots.stamped(link.slot()) != holds {
            return Link::new(link.slot(), left);
        }
        let behind = slots.corners(slot)[left];
        slot = link.slot();
        let corners = slots.corners(slot);
        // The corner that is left behind is one of the face that was crossed.
        face = (0..3).find(|&at| corners[at] == behind).unwrap_or(3);
        left = link.corner();
    }
}

/// Returns the first of `count` numbers that `fits`, which turns true once; else `count`.
pub(super) fn first_fit(count: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = from + (to - from) / 2;
        if fits(middle) { to = middle } else { from = middle + 1 }
    }
    from
}

/// Name of the vertex at infinity, which forms a tetrahedron with every face of the hull.
pub(super) const GHOST: u32 = u32::MAX - 1;

/// Vertex of an unused slot; no link.
pub(super) const NONE: u32 = u32::MAX;

/// Largest number of slots: a link has two bits for the face.
const MAX_SLOTS: usize = 1 << 30;

/// A face of a tetrahedron: the slot times 4, plus the corner opposite to the face. As the neighbour of a face it is
/// the same face seen from the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    pub(super) const NONE: Self = Self(NONE);

    #[inline]
    pub(super) fn new(slot: u32, corner: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a corner is below 4")]
        let corner = corner as u32;
        Self(slot << 2 | corner)
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 >> 2
    }

    #[inline]
    pub(super) fn corner(self) -> usize {
        (self.0 & 3) as usize
    }
}

/// Tetrahedra, each in a slot: corners by name, the link across the face opposite to each, and the last point that
/// tested it.
///
/// Corners are in positive order; so are a ghost's if the ghost is imagined outside. Words are atomic and relaxed,
/// because threads share them without ever writing the same one (see the module); between phases a join orders
/// everything.
#[derive(Debug, Default)]
pub(super) struct Slots {
    corners: Vec<[AtomicU32; 4]>,
    links: Vec<[AtomicU32; 4]>,
    stamps: Vec<AtomicU32>,
}

impl Slots {
    /// Reserves address space, which costs nothing until it is used.
    pub(super) fn reserve(&mut self, slots: usize) -> Result<(), DelaunayError> {
        let wanted = slots.min(MAX_SLOTS);
        let refused = |_| DelaunayError::Memory { bytes: wanted as u64 * 36 };
        self.corners.try_reserve_exact(wanted).map_err(refused)?;
        self.links.try_reserve_exact(wanted).map_err(refused)?;
        self.stamps.try_reserve_exact(wanted).map_err(refused)
    }

    /// Adds empty slots and returns their range.
    pub(super) fn grow(&mut self, count: usize) -> Result<Range<u32>, DelaunayError> {
        let (first, last) = (self.len(), self.len() + count);
        if last > MAX_SLOTS {
            return Err(DelaunayError::TooManyTetrahedra { most: MAX_SLOTS });
        }
        if last > self.corners.capacity() {
            self.reserve(count.max(first / 4))?;
        }
        let empty = || std::array::from_fn(|_| AtomicU32::new(NONE));
        self.corners.resize_with(last, empty);
        self.links.resize_with(last, empty);
        self.stamps.resize_with(last, || AtomicU32::new(NONE));
        let end = |slots| u32::try_from(slots).unwrap_or(NONE);
        Ok(end(first)..end(last))
    }

    pub(super) fn len(&self) -> usize {
        self.corners.len()
    }

    #[inline]
    pub(super) fn corners(&self, slot: u32) -> [u32; 4] {
        let [a, b, c, d] = &self.corners[slot as usize];
        [a.load(Relaxed), b.load(Relaxed), c.load(Relaxed), d.load(Relaxed)]
    }

    #[inline]
    pub(super) fn links(&self, slot: u32) -> [Link; 4] {
        let [a, b, c, d] = &self.links[slot as usize];
        let word = |word: &AtomicU32| Link(word.load(Relaxed));
        [word(a), word(b), word(c), word(d)]
    }

    #[inline]
    pub(super) fn across(&self, face: Link) -> Link {
        Link(self.links[face.slot() as usize][face.corner()].load(Relaxed))
    }

    #[inline]
    pub(super) fn link(&self, face: Link, other: Link) {
        self.links[face.slot() as usize][face.corner()].store(other.0, Relaxed);
    }

    /// Writes a tetrahedron without neighbours and stamp.
    #[inline]
    pub(super) fn write(&self, slot: u32, corners: [u32; 4]) {
        for (word, corner) in self.corners[slot as usize].iter().zip(&corners) {
            word.store(*corner, Relaxed);
        }
        for word in &self.links[slot as usize] {
            word.store(NONE, Relaxed);
        }
        self.stamp(slot, NONE);
    }

    /// Removes the corners of an unused slot. Otherwise a thread that reaches the slot's next tetrahedron before its
    /// corners are visible could take it for one of its own.
    pub(super) fn clear(&self, slot: u32) {
        for word in &self.corners[slot as usize] {
            word.store(NONE, Relaxed);
        }
    }

    #[inline]
    pub(super) fn stamped(&self, slot: u32) -> u32 {
        self.stamps[slot as usize].load(Relaxed)
    }

    #[inline]
    pub(super) fn stamp(&self, slot: u32, stamp: u32) {
        self.stamps[slot as usize].store(stamp, Relaxed);
    }

    /// Returns the words of the corners and the links.
    pub(super) fn into_words(self) -> (Vec<[u32; 4]>, Vec<[u32; 4]>) {
        drop(self.stamps);
        let plain = |words: Vec<[AtomicU32; 4]>| {
            // The same size and alignment: `collect` keeps the memory.
            let plain = |[a, b, c, d]: [AtomicU32; 4]| {
                [a.into_inner(), b.into_inner(), c.into_inner(), d.into_inner()]
            };
            words.into_iter().map(plain).collect()
        };
        (plain(self.corners), plain(self.links))
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Shares {
    /// Pieces of the curve that threads fill at once.
    pub(super) pieces: usize,
    /// Points that one thread inserts before the work is shared.
    pub(super) alone: usize,
}

/// Largest number of pieces: a piece is a byte, and one value is [`NOBODY`].
const MAX_PIECES: usize = 128;

/// Piece of names that are not inserted yet.
const NOBODY: u8 = u8::MAX;

/// Least number of points per piece that are worth sharing.
const MIN_SHARED: usize = 128;

/// Slots per point in the long run: 24 pi² / 35 = 6.77 tetrahedra of random points (Meijering, "Interface area, edge
/// length, and number of vertices in crystal aggregates with random nucleation", 1953), and some room.
const SLOTS_PER_POINT: usize = 7;

/// Additional slots that a worker gets at once.
const SPARE_SLOTS: usize = 4_096;

/// Points at which a piece looks for a start.
const STARTS: usize = 16;

struct Site<'a> {
    order: &'a Order,
    slots: Slots,
    /// A tetrahedron at each point at the time of its insertion, which may be deleted, or [`NONE`]. The curve leaves and
    /// enters the points' shape, so that a straight walk from one point to the next may leave the piece. A home of the
    /// previous round is near.
    homes: Vec<AtomicU32>,
    /// Worker of the phases without sharing, which keeps the free slots between phases.
    alone: Worker,
    pieces: Vec<u8>,
}

pub(super) fn triangulate(order: &Order, shares: Shares) -> Result<Slots, DelaunayError> {
    let first = first_corners(order)?;
    let mut slots = Slots::default();
    slots.reserve(order.points.len() * SLOTS_PER_POINT + SPARE_SLOTS)?;
    let start = first_tetrahedron(&mut slots, first)?;
    let mut site = Site {
        order,
        slots,
        homes: order.points.iter().map(|_| AtomicU32::new(NONE)).collect(),
        alone: Worker { at: start, ..Worker::default() },
        pieces: Vec::new(),
    };
    let pieces = shares.pieces.min(MAX_PIECES);
    for round in order.rounds.windows(2) {
        let names = name(round[0])..name(round[1]);
        let pending = names.filter(|name| !first.contains(name)).collect();
        if round[1] > shares.alone && pieces > 1 {
            site.insert_shared(pending, round[0]..round[1], pieces)?;
        } else {
            site.insert_alone(&pending)?;
        }
    }
    for &slot in &site.alone.free {
        site.slots.clear(slot);
    }
    Ok(site.slots)
}

/// Converts a count of points, which is at most 2^31, to a name.
fn name(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(GHOST)
}

/// Returns the first four names that span space, in positive order.
fn first_corners(order: &Order) -> Result<[u32; 4], DelaunayError> {
    let points = &order.points;
    let flat = || DelaunayError::Flat { distinct: points.len() };
    let after = |from: usize, fits: &dyn Fn(usize) -> bool| {
        (from..points.len()).find(|&at| fits(at)).ok_or_else(flat)
    };
    let (a, b) = (after(0, &|_| true)?, after(1, &|_| true)?);
    let c = after(2, &|at| !are_collinear(points[a], points[b], points[at]))?;
    let side = |at: usize| orientation(points[a], points[b], points[c], points[at]);
    let d = after(c + 1, &|at| side(at) != 0.0)?;
    let corners = if side(d) > 0.0 { [a, b, c, d] } else { [b, a, c, d] };
    Ok(corners.map(name))
}

/// Writes a tetrahedron and the ghosts around it, and returns its slot.
fn first_tetrahedron(slots: &mut Slots, corners: [u32; 4]) -> Result<u32, DelaunayError> {
    let mut range = slots.grow(5)?;
    let Some(inner) = range.next() else {
        return Err(DelaunayError::TooManyTetrahedra { most: 0 });
    };
    slots.write(inner, corners);
    for (corner, slot) in range.enumerate() {
        let mut outer = corners;
        outer[corner] = GHOST;
        outer.swap((corner + 1) & 3, (corner + 2) & 3);
        slots.write(slot, outer);
    }
    let faces: Vec<Link> = (inner..inner + 5)
        .flat_map(|slot| (0..4).map(move |corner| Link::new(slot, corner)))
        .collect();
    let names = |face: Link| {
        let mut corners = slots.corners(face.slot());
        corners[face.corner()] = u32::MAX;
        corners.sort_unstable();
        corners
    };
    for &face in &faces {
        for &other in faces.iter().filter(|&&other| other != face && names(other) == names(face)) {
            slots.link(face, other);
        }
    }
    Ok(inner)
}

impl Site<'_> {
    fn insert_alone(&mut self, pending: &[u32]) -> Result<(), DelaunayError> {
        for (done, &name) in pending.iter().enumerate() {
            loop {
                let Self { order, slots, homes, alone, .. } = self;
                let ground = Workspace { slots, points: &order.points, order, homes, pieces: None };
                let Outcome::OutOfSlots(missing) = alone.insert(&ground, name) else { break };
                self.feed(missing, pending.len() - done)?;
            }
        }
        Ok(())
    }

    /// Gives the lone worker at least `missing` more slots, and as many as `points` points usually need.
    fn feed(&mut self, missing: usize, points: usize) -> Result<(), DelaunayError> {
        let usual = (points * SLOTS_PER_POINT).min(self.slots.len() / 8) + SPARE_SLOTS;
        let rest = std::mem::replace(&mut self.alone.fresh, self.slots.grow(missing.max(usual))?);
        self.alone.free.extend(rest);
        Ok(())
    }

    /// Inserts the points of a round with many threads, then the postponed points with fewer, the last with one.
    fn insert_shared(
        &mut self,
        mut pending: Vec<u32>,
        round: Range<usize>,
        most_pieces: usize,
    ) -> Result<(), DelaunayError> {
        self.pieces.resize(self.order.points.len(), NOBODY);
        // Each number of pieces has two phases: with cuts in place, then moved by half a piece.
        let (mut pieces, mut moved) = (most_pieces, false);
        while pieces > 1 && pending.len() > pieces * MIN_SHARED {
            let cuts = cuts(&round, pieces, moved);
            self.own(&cuts, round.end);
            let (left, starved) = self.phase(&pending, cuts.len() + 1)?;
            // A phase that makes no progress twice is left to fewer threads, even if slots ran short.
            let stuck = left.len() == pending.len();
            pending = left;
            if !starved || stuck {
                pieces = if moved { pieces / 2 } else { pieces };
                moved = !moved;
            }
        }
        self.insert_alone(&pending)
    }

    /// Assigns names before `end` to pieces: each round is cut at the same positions of the curve.
    fn own(&mut self, cuts: &[usize], end: usize) {
        let order = self.order;
        let places: Vec<u64> = cuts.iter().map(|&cut| order.place(cut)).collect();
        for round in order.rounds.windows(2).filter(|round| round[1] <= end) {
            let mut from = round[0];
            for (piece, cut) in (0_u8..).zip(places.iter().map(Some).chain([None])) {
                let to = cut.map_or(round[1], |&cut| {
                    from + first_fit(round[1] - from, |at| order.place(from + at) >= cut)
                });
                self.pieces[from..to].fill(piece);
                from = to;
            }
        }
    }

    /// Lets one worker per piece insert its points. Returns the postponed names, and true if slots ran short.
    fn phase(&mut self, pending: &[u32], pieces: usize) -> Result<(Vec<u32>, bool), DelaunayError> {
        let mut crew = self.crew(pending, pieces)?;
        let ground = self.ground(Some(&self.pieces));
        let insert = |(worker, names): &mut (Option<Worker>, &[u32])| match worker {
            Some(worker) => work(worker, &ground, names),
            None => (names.to_vec(), false),
        };
        let results: Vec<_> = crew.par_iter_mut().with_max_len(1).map(insert).collect();
        for worker in crew.into_iter().filter_map(|(worker, _)| worker) {
            self.alone.at = worker.at;
            self.alone.free.extend(worker.fresh.rev());
            self.alone.free.extend(worker.free);
        }
        let starved = results.iter().any(|&(_, starved)| starved);
        Ok((results.into_iter().flat_map(|(left, _)| left).collect(), starved))
    }

    /// Returns a worker per piece, with slots and a start, and its points; no worker for a piece without a
    /// tetrahedron.
    fn crew<'p>(&mut self, pending: &'p [u32], pieces: usize) -> Result<Crew<'p>, DelaunayError> {
        let mut crew = Crew::with_capacity(pieces);
        let (mut at, mut from) = (self.alone.at, 0);
        self.alone.free.extend(std::mem::take(&mut self.alone.fresh));
        for slot in &self.alone.free {
            self.slots.clear(*slot);
        }
        for piece in (0..NOBODY).take(pieces) {
            let rest = &pending[from..];
            let count = rest.partition_point(|&name| self.pieces[name as usize] <= piece);
            let names = &rest[..count];
            from += count;
            let Some(start) = self.start(piece, names, &mut at) else {
                crew.push((None, names));
                continue;
            };
            let wanted = names.len() * SLOTS_PER_POINT + SPARE_SLOTS;
            let used = self.alone.free.len().min(wanted);
            let free = self.alone.free.split_off(self.alone.free.len() - used);
            let fresh = self.slots.grow(wanted - used)?;
            crew.push((Some(Worker { piece, free, fresh, at: start, ..Worker::default() }), names));
        }
        Ok(crew)
    }

    /// Returns a tetrahedron with a corner of a piece, near one of its points; walks start `at`.
    fn start(&self, piece: u8, names: &[u32], at: &mut u32) -> Option<u32> {
        let (ground, mut choice) = (self.ground(None), 0);
        names.iter().step_by(names.len() / STARTS + 1).find_map(|&name| {
            ground.walk(at, self.order.points[name as usize], piece, &mut choice);
            let is_own = |&name: &u32| self.pieces.get(name as usize) == Some(&piece);
            self.slots.corners(*at).iter().any(is_own).then_some(*at)
        })
    }

    fn ground<'a>(&'a self, pieces: Option<&'a [u8]>) -> Workspace<'a> {
        let Self { order, slots, homes, .. } = self;
        Workspace { slots, points: &order.points, order, homes, pieces }
    }
}

type Crew<'p> = Vec<(Option<Worker>, &'p [u32])>;

/// Inserts points until slots run short; returns the postponed points, and true if slots ran short.
fn work(worker: &mut Worker, ground: &Workspace<'_>, names: &[u32]) -> (Vec<u32>, bool) {
    let mut left = Vec::new();
    for (done, &name) in names.iter().enumerate() {
        match worker.insert(ground, name) {
            Outcome::Inserted => {}
            Outcome::Postponed => left.push(name),
            Outcome::OutOfSlots(_) => {
                left.extend(&names[done..]);
                return (left, true);
            }
        }
    }
    (left, false)
}

/// Returns the names of a round at which its curve is cut.
fn cuts(round: &Range<usize>, pieces: usize, moved: bool) -> Vec<usize> {
    let at = |halves: usize| round.start + round.len() * halves / (2 * pieces);
    if moved {
        (0..pieces).map(|piece| at(2 * piece + 1)).collect()
    } else {
        (1..pieces).map(|piece| at(2 * piece)).collect()
    }
}

// Signs that decide about a triangulation, exact for every point that [`super::Order`] accepts. Each is a rounded
// determinant if its error bound allows, else Shewchuk's adaptive one ("Adaptive precision floating-point arithmetic
// and fast robust geometric predicates", 1997).

/// Bound of the error of the rounded orientation, over the product of the largest differences along each axis:
/// Shewchuk's 7.77e-16 times the 6 products of the permanent, and the rounding of the bound itself.
const ORIENTATION_ERROR: f64 = 5.2e-15;

/// Bound of the error of the rounded in-sphere determinant, over the products of its permanent, 24 with the largest
/// squared distance (1.78e-15 each); includes the rounding of that distance.
const IN_SPHERE_ERROR: f64 = 1.3e-13;

/// Corners of the face opposite to each corner. The face's normal points to the corner if the tetrahedron is positive.
pub(crate) const OPPOSITE: [[usize; 3]; 4] = [[2, 1, 3], [0, 2, 3], [1, 0, 3], [0, 1, 2]];

/// Returns the larger of two numbers by one instruction; `f64::max` needs more because of NaN.
#[inline]
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// Returns a value above zero if `d` lies on the side that (b - a) x (c - a) points to, 0 in the plane. The sign is
/// exact, the size is not.
#[inline]
pub(crate) fn orientation(a: Vec3, b: Vec3, c: Vec3, d: Vec3) -> f64 {
    let (u, v, w) = (sub(a, d), sub(b, d), sub(c, d));
    let determinant = w[0] * (v[1] * u[2] - v[2] * u[1])
        + w[1] * (v[2] * u[0] - v[0] * u[2])
        + w[2] * (v[0] * u[1] - v[1] * u[0]);
    let widest = |axis: usize| larger(larger(u[axis].abs(), v[axis].abs()), w[axis].abs());
    if determinant.abs() > ORIENTATION_ERROR * widest(0) * widest(1) * widest(2) {
        return determinant;
    }
    exact_orientation(a, b, c, d)
}

/// Computes [`orientation`] if rounding may hide it; separate, so that the usual path stays short.
#[cold]
#[inline(never)]
fn exact_orientation(a: Vec3, b: Vec3, c: Vec3, d: Vec3) -> f64 {
    orient3d(b, a, c, d)
}

/// Returns a value above zero if `e` lies inside the sphere through the corners of a positive tetrahedron, 0 on it.
/// The sign is exact, the size is not.
#[inline]
fn in_sphere(corners: &[Vec3; 4], e: Vec3) -> f64 {
    let [a, b, c, d] = corners;
    let (a, b, c, d) = (sub(*a, e), sub(*b, e), sub(*c, e), sub(*d, e));
    let minor = |p: Vec3, q: Vec3| p[0] * q[1] - q[0] * p[1];
    let (ab, bc, cd, da) = (minor(a, b), minor(b, c), minor(c, d), minor(d, a));
    let (ac, bd) = (minor(a, c), minor(b, d));
    let abc = a[2] * bc - b[2] * ac + c[2] * ab;
    let bcd = b[2] * cd - c[2] * bd + d[2] * bc;
    let cda = c[2] * da + d[2] * ac + a[2] * cd;
    let dab = d[2] * ab + a[2] * bd + b[2] * da;
    let squares = [dot(a, a), dot(b, b), dot(c, c), dot(d, d)];
    let determinant = (squares[2] * dab - squares[3] * abc) + (squares[0] * bcd - squares[1] * cda);
    let widest = |axis: usize| {
        larger(larger(a[axis].abs(), b[axis].abs()), larger(c[axis].abs(), d[axis].abs()))
    };
    let farthest = larger(larger(squares[0], squares[1]), larger(squares[2], squares[3]));
    if determinant.abs() > IN_SPHERE_ERROR * widest(0) * widest(1) * widest(2) * farthest {
        return determinant;
    }
    exact_in_sphere(corners, e)
}

/// Computes [`in_sphere`] if rounding may hide it; separate, so that the usual path stays short.
#[cold]
#[inline(never)]
fn exact_in_sphere(corners: &[Vec3; 4], e: Vec3) -> f64 {
    insphere(corners[1], corners[0], corners[2], corners[3], e)
}

/// True if a point lies inside the sphere of a positive tetrahedron, never undecided.
///
/// Points on the sphere are told apart by a symbolic perturbation (Devillers and Teillaud, "Perturbations for Delaunay
/// and weighted Delaunay 3D triangulations", 2011): each point's lift |x|² gains an infinitesimal, which is infinitely
/// larger for a higher name. The coefficient of a corner's gain is the orientation with the point in the corner's
/// place. The point's own gain puts it outside. So the triangulation is unique for any order of insertion.
#[inline]
pub(super) fn is_inside(names: [u32; 4], corners: &[Vec3; 4], name: u32, point: Vec3) -> bool {
    let side = in_sphere(corners, point);
    if side == 0.0 { perturbed_inside(names, corners, name, point) } else { side > 0.0 }
}

/// Decides [`is_inside`] for a point on the sphere.
#[cold]
#[inline(never)]
fn perturbed_inside(names: [u32; 4], corners: &[Vec3; 4], name: u32, point: Vec3) -> bool {
    let mut descending = [0, 1, 2, 3];
    descending.sort_unstable_by_key(|&corner: &usize| std::cmp::Reverse(names[corner]));
    for corner in descending.into_iter().take_while(|&corner| names[corner] > name) {
        let [a, b, c] = OPPOSITE[corner].map(|other| corners[other]);
        let coefficient = orientation(a, b, c, point);
        if coefficient != 0.0 {
            return coefficient > 0.0;
        }
    }
    false
}

/// True if three points lie on a line; exact.
pub(super) fn are_collinear(a: Vec3, b: Vec3, c: Vec3) -> bool {
    [(0, 1), (1, 2), (2, 0)].iter().all(|&(u, v)| {
        let flat = |point: Vec3| [point[u], point[v]];
        geometry_predicates::orient2d(flat(a), flat(b), flat(c)) == 0.0
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the determinant of rows, exact for whole numbers below 2^20.
    fn determinant(rows: &[Vec<i128>]) -> i128 {
        let Some((first, below)) = rows.split_first() else { return 1 };
        let along_first = |(column, value): (usize, &i128)| {
            let without = |row: &Vec<i128>| [&row[..column], &row[column + 1..]].concat();
            let minor: Vec<Vec<i128>> = below.iter().map(without).collect();
            let sign = if column % 2 == 0 { 1 } else { -1 };
            sign * value * determinant(&minor)
        };
        first.iter().enumerate().map(along_first).sum()
    }

    fn whole(point: [i32; 3]) -> Vec3 {
        point.map(f64::from)
    }

    fn sign(value: f64) -> i128 {
        i128::from(value > 0.0) - i128::from(value < 0.0)
    }

    fn true_orientation(points: [[i32; 3]; 4]) -> i128 {
        let row = |point| difference(point, points[0]).to_vec();
        determinant(&[points[1], points[2], points[3]].map(row)).signum()
    }

    fn difference(a: [i32; 3], b: [i32; 3]) -> [i128; 3] {
        std::array::from_fn(|axis| i128::from(a[axis]) - i128::from(b[axis]))
    }

    /// Returns a value above zero inside, for either orientation of the corners.
    fn true_side(corners: [[i32; 3]; 4], point: [i32; 3]) -> i128 {
        let rows = corners.map(|corner| {
            let [x, y, z] = difference(corner, point);
            vec![x, y, z, x * x + y * y + z * z]
        });
        // The lift's plane through the corners lies over the point inside: the sign of this determinant over the
        // orientation's.
        -determinant(&rows).signum() * true_orientation(corners)
    }

    fn positive(mut corners: [[i32; 3]; 4]) -> [[i32; 3]; 4] {
        if true_orientation(corners) < 0 {
            corners.swap(0, 1);
        }
        corners
    }

    fn place(limit: i32) -> impl Strategy<Value = [i32; 3]> {
        [-limit..limit, -limit..limit, -limit..limit]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn orientations_of_whole_points_are_exact(
            points in [place(6), place(6), place(6), place(6)],
        ) {
            let [a, b, c, d] = points.map(whole);
            prop_assert_eq!(sign(orientation(a, b, c, d)), true_orientation(points));
        }

        #[test]
        fn sides_of_a_sphere_of_whole_points_are_exact(
            corners in [place(3), place(3), place(3), place(3)],
            point in place(3),
            stretch in 1..100_000,
        ) {
            prop_assume!(true_orientation(corners) != 0);
            let corners = positive(corners);
            let expected = true_side(corners, point);
            let stretched = |p: [i32; 3]| p.map(|x| x * stretch);
            let side = in_sphere(&corners.map(stretched).map(whole), whole(stretched(point)));
            prop_assert_eq!(sign(side), expected);
        }

        /// With an offset of 2^52 only the last bits differ, and differences are exact: the error bounds are too
        /// large.
        #[test]
        fn large_offsets_do_not_change_a_sign(
            corners in [place(3), place(3), place(3), place(3)],
            point in place(3),
        ) {
            prop_assume!(true_orientation(corners) != 0);
            let corners = positive(corners);
            let far = |p: [i32; 3]| whole(p).map(|x| x + 4_503_599_627_370_496.0);
            let side = in_sphere(&corners.map(far), far(point));
            prop_assert_eq!(sign(side), true_side(corners, point));
        }

        /// Uses differences that f64 cannot hold: x on a unit cube's corners, moved by 2^-70 to 2^-90 where x is 0.
        /// The determinant's first order, linear in the moves, has its sign.
        #[test]
        fn differences_that_do_not_fit_are_exact(
            moved in 0..4_usize,
            exponent in 70..90_i32,
            outward in any::<bool>(),
        ) {
            let mut corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
            let mut point = [1.0, 1.0, 0.0];
            let sign_of_step: f64 = if outward { 1.0 } else { -1.0 };
            let step = sign_of_step * 2_f64.powi(-exponent);
            // The sphere is x(x-1) + y(y-1) + z(z-1) = 0; moving the point along z by s changes the left side by about
            // -s. Another corner of the cube takes the fourth's place.
            point[2] = step;
            prop_assert_eq!(sign(in_sphere(&corners, point)), sign(step));
            corners.swap(0, moved);
            let flipped = if moved == 0 { 1.0 } else { -1.0 };
            let [a, b, c, d] = corners;
            prop_assert_eq!(sign(orientation(a, b, c, d)), sign(flipped));
        }
    }

    #[test]
    fn points_on_a_sphere_are_told_apart_by_their_names() {
        let corners = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let point = [1.0, 1.0, 1.0];
        assert!(!is_inside([0, 1, 2, 3], &corners, 4, point));
        // The highest name is the corner at 0, whose replacement turns the tetrahedron over.
        assert!(!is_inside([9, 1, 2, 3], &corners, 4, point));
        // (1,1,1) instead of (1,0,0) leaves it positive.
        assert!(is_inside([0, 9, 2, 3], &corners, 4, point));
    }

    #[test]
    fn only_points_on_one_line_are_collinear() {
        let (a, b) = ([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]);
        assert!(are_collinear([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], [7.0, 7.0, 7.0]));
        assert!(!are_collinear([0.0; 3], a, [b[0], b[1], b[2] + 1e-16]));
    }
}

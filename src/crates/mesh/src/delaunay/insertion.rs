//! Insertion of a point: walk to it, dig out the tetrahedra whose spheres hold it, fill the cavity.
//!
//! Bowyer (1981) and Watson (1981). Several workers may insert at once, each the points of its own
//! piece, without locks. Why no two get into each other's way:
//!
//! - A worker deletes a tetrahedron only if all its corners are its own (or the ghost).
//! - It walks, and asks about spheres, only where at least one corner is its own. Nobody else
//!   deletes such a tetrahedron, so its corners stay.
//! - A link is rewritten by who deletes the tetrahedron across the face, so all finite corners of
//!   that face are its own: each word has one writer. Whoever follows a link that is being
//!   rewritten comes to a tetrahedron of another piece, before or after, and puts its point off.
//!   A slot in use for the first time, or again, has no corners until they are written.

use std::ops::Range;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use super::DelaunayError;
use super::ground::Ground;
use super::order::Order;

/// What became of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is a corner now.
    Inserted,
    /// Its cavity crosses a border between pieces; nothing has changed.
    PutOff,
    /// So many more slots are needed; nothing has changed.
    Starved(usize),
}

/// One thread's part in the work.
#[derive(Debug, Default)]
pub(super) struct Worker {
    /// Its piece.
    pub(super) piece: u8,
    /// Slots that were used before.
    pub(super) free: Vec<u32>,
    /// Slots that never were.
    pub(super) fresh: Range<u32>,
    /// Where the next walk starts: a tetrahedron that nobody else deletes.
    pub(super) at: u32,
    /// Tetrahedra that the point's arrival deletes.
    pub(super) cavity: Vec<u32>,
    /// Their faces towards the others.
    pub(super) border: Vec<Link>,
    /// State of the walk's choices.
    pub(super) choice: u32,
}

impl Worker {
    /// Inserts a point, or leaves everything as it is.
    pub(super) fn insert(&mut self, ground: &Ground<'_>, name: u32) -> Outcome {
        let point = ground.points[name as usize];
        if !ground.walk(&mut self.at, point, self.piece, &mut self.choice) {
            let Some(home) = ground.home_near(name, self.piece) else {
                return Outcome::PutOff;
            };
            self.at = home;
            if !ground.walk(&mut self.at, point, self.piece, &mut self.choice) {
                return Outcome::PutOff;
            }
        }
        if !self.dig(ground, name) {
            self.forget(ground);
            return Outcome::PutOff;
        }
        let slots_left = self.free.len() + self.fresh.len();
        if slots_left < self.border.len() {
            self.forget(ground);
            return Outcome::Starved(self.border.len() - slots_left);
        }
        self.fill(ground, name);
        Outcome::Inserted
    }

    /// Finds the cavity and its border, breadth first, from where the walk ended; false where it
    /// leaves the piece.
    fn dig(&mut self, ground: &Ground<'_>, name: u32) -> bool {
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

    /// Takes back the stamps of a cavity that stays.
    fn forget(&mut self, ground: &Ground<'_>) {
        for slot in self.cavity.drain(..) {
            ground.slots.stamp(slot, NONE);
        }
    }

    /// Joins the point with each face of the cavity's border.
    fn fill(&mut self, ground: &Ground<'_>, name: u32) {
        let slots = ground.slots;
        for &face in &self.border {
            let Some(slot) = self.free.pop().or_else(|| self.fresh.next()) else {
                // `insert` has counted them.
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
        ground.homes.note(name, self.at);
        // Else a walk could start in one of them, as the home of a point that has a new one.
        self.cavity.iter().for_each(|&slot| slots.clear(slot));
        self.free.append(&mut self.cavity);
    }
}

/// The new face that meets the one which a new tetrahedron has opposite to `corner`, found by
/// turning through the cavity round the edge that they share on its border.
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

// Places to start a walk again.

/// A tetrahedron at each point, as of its insertion: it may be gone since.
///
/// The curve leaves and enters the points' shape, so that a straight walk from one point to the
/// next may leave the piece; a point of the round before is near.
#[derive(Debug)]
pub(super) struct Homes {
    slot_from_name: Vec<AtomicU32>,
}

impl Homes {
    /// Homes for names, none known.
    pub(super) fn of(names: usize) -> Self {
        let mut slot_from_name = Vec::new();
        slot_from_name.resize_with(names, || AtomicU32::new(NONE));
        Self { slot_from_name }
    }

    /// Notes the home of a point.
    #[inline]
    pub(super) fn note(&self, name: u32, slot: u32) {
        self.slot_from_name[name as usize].store(slot, Relaxed);
    }

    /// The home of a point; [`NONE`] where it has none.
    #[inline]
    pub(super) fn of_name(&self, name: usize) -> u32 {
        self.slot_from_name[name].load(Relaxed)
    }
}

/// The first of `count` numbers, among which `fits` turns true once, that fits; else `count`.
pub(super) fn first_fit(count: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut from, mut to) = (0, count);
    while from < to {
        let middle = from + (to - from) / 2;
        if fits(middle) { to = middle } else { from = middle + 1 }
    }
    from
}

impl Order {
    /// Place of a name along the curve.
    pub(super) fn place(&self, name: usize) -> u64 {
        self.curve.place(self.points[name])
    }
}

// Where tetrahedra are kept while points are inserted.

/// Name of the vertex at infinity, which every face of the hull forms a tetrahedron with.
pub(super) const GHOST: u32 = u32::MAX - 1;

/// Vertex of a slot that no tetrahedron uses; no link.
pub(super) const NONE: u32 = u32::MAX;

/// Most slots: a link has two bits for the face.
const MOST_SLOTS: usize = 1 << 30;

/// A face of a tetrahedron: the slot times 4, plus the corner opposite to the face.
///
/// As the neighbour of a face it is the same face seen from the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link(u32);

impl Link {
    /// No face.
    pub(super) const NONE: Self = Self(NONE);

    /// The face of a slot opposite to a corner.
    #[inline]
    pub(super) fn new(slot: u32, corner: usize) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "a corner is below 4")]
        let corner = corner as u32;
        Self(slot << 2 | corner)
    }

    /// The tetrahedron.
    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 >> 2
    }

    /// The corner opposite to the face.
    #[inline]
    pub(super) fn corner(self) -> usize {
        (self.0 & 3) as usize
    }
}

/// Tetrahedra, each in a slot: corners by name, what lies across the face opposite to each, and
/// the last point that asked about it.
///
/// Corners are in positive order; a ghost's, with the ghost thought outside, too. Words are
/// atomic and relaxed, since threads share them without ever writing the same one
/// ([`super::insertion`]); between phases a join orders everything.
#[derive(Debug, Default)]
pub(super) struct Slots {
    corners: Vec<[AtomicU32; 4]>,
    links: Vec<[AtomicU32; 4]>,
    stamps: Vec<AtomicU32>,
}

impl Slots {
    /// Reserves address space, which costs nothing before it is used.
    pub(super) fn reserve(&mut self, slots: usize) -> Result<(), DelaunayError> {
        let wanted = slots.min(MOST_SLOTS);
        let refused = |_| DelaunayError::Memory { bytes: wanted as u64 * 36 };
        self.corners.try_reserve_exact(wanted).map_err(refused)?;
        self.links.try_reserve_exact(wanted).map_err(refused)?;
        self.stamps.try_reserve_exact(wanted).map_err(refused)
    }

    /// Adds empty slots and returns their range.
    pub(super) fn grow(&mut self, count: usize) -> Result<Range<u32>, DelaunayError> {
        let (first, last) = (self.len(), self.len() + count);
        if last > MOST_SLOTS {
            return Err(DelaunayError::TooManyTetrahedra { most: MOST_SLOTS });
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

    /// Slots, used or not.
    pub(super) fn len(&self) -> usize {
        self.corners.len()
    }

    /// Names of the corners.
    #[inline]
    pub(super) fn corners(&self, slot: u32) -> [u32; 4] {
        let [a, b, c, d] = &self.corners[slot as usize];
        [a.load(Relaxed), b.load(Relaxed), c.load(Relaxed), d.load(Relaxed)]
    }

    /// What lies across each face.
    #[inline]
    pub(super) fn links(&self, slot: u32) -> [Link; 4] {
        let [a, b, c, d] = &self.links[slot as usize];
        let word = |word: &AtomicU32| Link(word.load(Relaxed));
        [word(a), word(b), word(c), word(d)]
    }

    /// What lies across a face.
    #[inline]
    pub(super) fn across(&self, face: Link) -> Link {
        Link(self.links[face.slot() as usize][face.corner()].load(Relaxed))
    }

    /// Says what lies across a face.
    #[inline]
    pub(super) fn link(&self, face: Link, other: Link) {
        self.links[face.slot() as usize][face.corner()].store(other.0, Relaxed);
    }

    /// Writes a tetrahedron without neighbours, which no point has asked about.
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

    /// Takes the corners from an unused slot.
    ///
    /// A thread that comes upon the slot's next tetrahedron before it sees its corners must not
    /// take it for one of its own.
    pub(super) fn clear(&self, slot: u32) {
        for word in &self.corners[slot as usize] {
            word.store(NONE, Relaxed);
        }
    }

    /// The last point that asked.
    #[inline]
    pub(super) fn stamped(&self, slot: u32) -> u32 {
        self.stamps[slot as usize].load(Relaxed)
    }

    /// Notes a point that asks.
    #[inline]
    pub(super) fn stamp(&self, slot: u32, stamp: u32) {
        self.stamps[slot as usize].store(stamp, Relaxed);
    }

    /// Gives the memory of the stamps back.
    pub(super) fn drop_stamps(&mut self) {
        self.stamps = Vec::new();
    }

    /// The corners and links alone, words as they are.
    pub(super) fn into_words(self) -> (Vec<[u32; 4]>, Vec<[u32; 4]>) {
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

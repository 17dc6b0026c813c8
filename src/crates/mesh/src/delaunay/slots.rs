//! Where tetrahedra are kept while points are inserted.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::error::DelaunayError;

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
    pub(super) fn grow(&mut self, count: usize) -> Result<std::ops::Range<u32>, DelaunayError> {
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

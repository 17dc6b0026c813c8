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

use super::homes::Homes;
use super::order::Order;
use super::predicates::{OPPOSITE, is_inside, orientation};
use super::slots::{GHOST, Link, NONE, Slots};
use crate::mesh::Vec3;

/// What workers read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground<'a> {
    /// The tetrahedra.
    pub(super) slots: &'a Slots,
    /// Place of each name.
    pub(super) points: &'a [Vec3],
    /// The order of the names.
    pub(super) order: &'a Order,
    /// Tetrahedra at points.
    pub(super) homes: &'a Homes,
    /// The piece of each name that is inserted or about to be; none where one worker works alone.
    pub(super) pieces: Option<&'a [u8]>,
}

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

impl Ground<'_> {
    /// Whether a name is a piece's; the ghost is nobody's.
    #[inline]
    pub(super) fn owns(&self, name: u32, piece: u8) -> bool {
        self.pieces.is_none_or(|pieces| pieces.get(name as usize) == Some(&piece))
    }

    /// Whether a piece may walk here: some corner is its own.
    #[inline]
    pub(super) fn may_enter(&self, corners: [u32; 4], piece: u8) -> bool {
        self.pieces.is_none() || corners.iter().any(|&name| self.owns(name, piece))
    }

    /// Whether a piece may delete this: all finite corners are its own.
    #[inline]
    fn may_delete(&self, slot: u32, piece: u8) -> bool {
        let is_own = |&name: &u32| name == GHOST || self.owns(name, piece);
        self.pieces.is_none() || self.slots.corners(slot).iter().all(is_own)
    }

    /// Below zero where a place lies strictly across the face opposite to a corner.
    #[inline]
    fn side(&self, corners: [u32; 4], corner: usize, point: Vec3) -> f64 {
        let [a, b, c] = OPPOSITE[corner];
        let place = |corner: usize| self.points[corners[corner] as usize];
        orientation(place(a), place(b), place(c), point)
    }

    /// Whether the sphere of a tetrahedron holds a point; a ghost's is the open half space outside
    /// its face, and, of the face's plane, what its finite neighbour holds.
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

    /// Walks from a tetrahedron to one that holds a point; false where no way within the piece
    /// leads on. `at` is where the walk ended.
    ///
    /// In a Delaunay triangulation a visibility walk ends, whichever face it takes of those that
    /// hide the point (Devillers, Pion and Teillaud, "Walking in a triangulation", 2002).
    pub(super) fn walk(&self, at: &mut u32, point: Vec3, piece: u8, choice: &mut u32) -> bool {
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
}

impl Worker {
    /// Inserts a point, or leaves everything as it is.
    pub(super) fn insert(&mut self, ground: &Ground<'_>, name: u32) -> Outcome {
        let point = ground.points[name as usize];
        if !ground.walk(&mut self.at, point, self.piece, &mut self.choice) {
            let Some(home) = ground.homes.near(ground, name, self.piece) else {
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

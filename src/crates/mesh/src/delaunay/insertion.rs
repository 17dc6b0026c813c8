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

use super::ground::Ground;
use super::slots::{Link, NONE, Slots};

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

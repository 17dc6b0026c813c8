//! What workers read, how they walk there, and what a piece may do.

use super::insertion::{GHOST, Link, NONE, Slots};
use super::insertion::{Homes, first_fit};
use super::order::Order;
use super::predicates::{OPPOSITE, is_inside, orientation};
use crate::mesh::Vec3;

/// Names looked at on each side of a place on the curve.
const NEAR: usize = 16;

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
    pub(super) fn may_delete(&self, slot: u32, piece: u8) -> bool {
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
    pub(super) fn holds(&self, slot: u32, name: u32, point: Vec3) -> bool {
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

    /// A tetrahedron near a point, with a corner that is a piece's.
    ///
    /// No other piece deletes it: nobody else writes a name of this one.
    pub(super) fn home_near(&self, name: u32, piece: u8) -> Option<u32> {
        let order = self.order;
        let round = order.rounds.partition_point(|&first| first <= name as usize);
        let (from, to) = (*order.rounds.get(round.checked_sub(2)?)?, *order.rounds.get(round - 1)?);
        let place = order.place(name as usize);
        let middle = from + first_fit(to - from, |at| order.place(from + at) >= place);
        let before = (from..middle).rev().take(NEAR);
        let after = (middle..to).take(NEAR);
        after.chain(before).find_map(|name| {
            let slot = self.homes.of_name(name);
            let name = u32::try_from(name).ok()?;
            let is_home = slot != NONE && self.slots.corners(slot).contains(&name);
            (is_home && self.owns(name, piece)).then_some(slot)
        })
    }
}

//! Where to start a walk anew.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::insertion::Ground;
use super::order::Order;
use super::slots::NONE;

/// Names looked at on each side of a place on the curve.
const NEAR: usize = 16;

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

    /// A tetrahedron near a point, with a corner that is a piece's.
    ///
    /// No other piece deletes it: nobody else writes a name of this one.
    pub(super) fn near(&self, ground: &Ground<'_>, name: u32, piece: u8) -> Option<u32> {
        let order = ground.order;
        let round = order.rounds.partition_point(|&first| first <= name as usize);
        let (from, to) = (*order.rounds.get(round.checked_sub(2)?)?, *order.rounds.get(round - 1)?);
        let place = order.place(name as usize);
        let middle = from + first_fit(to - from, |at| order.place(from + at) >= place);
        let before = (from..middle).rev().take(NEAR);
        let after = (middle..to).take(NEAR);
        after.chain(before).find_map(|name| {
            let slot = self.slot_from_name[name].load(Relaxed);
            let name = u32::try_from(name).ok()?;
            let is_home = slot != NONE && ground.slots.corners(slot).contains(&name);
            (is_home && ground.owns(name, piece)).then_some(slot)
        })
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

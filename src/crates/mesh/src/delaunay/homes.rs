//! Where to start a walk anew.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::order::Order;
use super::slots::NONE;

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

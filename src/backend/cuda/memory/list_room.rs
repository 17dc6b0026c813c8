//! How long lists of neighbours may be. The trainer owns the lists: the device only reports that they
//! are too long, and the trainer drops them and searches shorter ones.

use crate::backend::MOST_NEIGHBOURS;
use crate::memory::plan::{FEWER_NEIGHBOURS, neighbour_lists};
use crate::memory::{Bytes, Gain};

/// Lists of so many neighbours for each of so many Gaussians.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListSize {
    count: u32,
    gaussians: u64,
}

impl ListSize {
    fn bytes(self, count: u32) -> u64 {
        neighbour_lists(self.gaussians, count).bytes.0
    }
}

/// What was requested of neighbour lists, and how long they may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRoom {
    most: u32,
    /// The longest lists ever requested.
    longest: u32,
    /// The lists requested last.
    asked: Option<ListSize>,
    /// Whether memory was short for them.
    refused: bool,
}

impl Default for ListRoom {
    fn default() -> Self {
        Self { most: MOST_NEIGHBOURS, longest: 0, asked: None, refused: false }
    }
}

impl ListRoom {
    /// NearestLists that lists may have.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Records a request for lists; `refused`: they did not fit in memory.
    pub(crate) fn asked_for(&mut self, count: u32, gaussians: usize, refused: bool) {
        self.longest = self.longest.max(count);
        self.asked = Some(ListSize { count, gaussians: gaussians as u64 });
        self.refused = refused;
    }

    /// Makes lists shorter from the next search on. `held` is the size of the present ones.
    pub(crate) fn shorten(&mut self, held: Bytes) -> Gain {
        let Some(lists) = self.asked.filter(|_| self.refused || held > Bytes(0)) else {
            return Gain::Nothing;
        };
        if lists.count > self.most {
            return Gain::Promised(Bytes(0));
        }
        let Some(fewer) = FEWER_NEIGHBOURS.into_iter().find(|&fewer| fewer < lists.count) else {
            return Gain::Nothing;
        };
        self.most = fewer;
        Gain::Promised(Bytes(lists.bytes(lists.count) - lists.bytes(fewer)))
    }

    /// Whether the present or the refused lists are longer than allowed.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked.is_some_and(|lists| lists.count > self.most)
    }

    /// Bytes that the longest lists would take beyond the present ones.
    pub(crate) fn missing(&self) -> Bytes {
        let more = |lists: ListSize| {
            lists.bytes(self.longest).saturating_sub(lists.bytes(lists.count.min(self.most)))
        };
        Bytes(self.asked.map_or(0, more))
    }

    /// Number of Gaussians in the last request.
    pub(crate) fn gaussians(&self) -> u64 {
        self.asked.map_or(0, |lists| lists.gaussians)
    }

    /// Lists may be as long as requested again.
    pub(crate) fn lengthen(&mut self) {
        self.most = MOST_NEIGHBOURS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Bytes = Bytes(1);

    #[test]
    fn lists_become_shorter_one_step_after_the_other_when_they_were_let_go() {
        let mut room = ListRoom::default();
        assert_eq!((room.most(), room.shorten(Bytes(0))), (MOST_NEIGHBOURS, Gain::Nothing));
        room.asked_for(16, 1000, false);
        assert_eq!(room.shorten(HELD), Gain::Promised(Bytes(4 * 4 * 1000)));
        // Until the trainer has dropped the old ones, no more is given up.
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Promised(Bytes(0)), 12));
        assert!(room.is_waiting());
        room.asked_for(12, 1000, false);
        assert!(!room.is_waiting());
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Promised(Bytes(8000)), 10));
        room.asked_for(10, 1000, false);
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Nothing, 10));
        assert_eq!(room.missing(), Bytes(6 * 4 * 1000));
        room.lengthen();
        assert_eq!((room.most(), room.missing()), (MOST_NEIGHBOURS, Bytes(6 * 4 * 1000)));
    }

    #[test]
    fn what_nobody_holds_brings_nothing_unless_it_was_refused() {
        let mut room = ListRoom::default();
        room.asked_for(32, 1000, false);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Nothing, MOST_NEIGHBOURS));
        room.asked_for(32, 1000, true);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Promised(Bytes(80_000)), 12));
        room.asked_for(12, 1000, true);
        assert_eq!((room.shorten(Bytes(0)), room.most()), (Gain::Promised(Bytes(8000)), 10));
        room.asked_for(10, 1000, true);
        assert_eq!(room.shorten(Bytes(0)), Gain::Nothing);
    }

    #[test]
    fn short_lists_are_not_shortened() {
        let mut room = ListRoom::default();
        room.asked_for(8, 1000, false);
        assert_eq!((room.shorten(HELD), room.most()), (Gain::Nothing, MOST_NEIGHBOURS));
    }
}

//! How long lists of neighbours may be. They are not the device's: it can only say that they are too
//! long, and who holds them lets go of them and has shorter ones found.

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

/// What is known of lists, and the most neighbours that there is room for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRoom {
    most: u32,
    /// The longest that were ever asked for.
    longest: u32,
    /// Those that were asked for last.
    asked: Option<ListSize>,
    /// Whether there was no room for them.
    refused: bool,
}

impl Default for ListRoom {
    fn default() -> Self {
        Self { most: MOST_NEIGHBOURS, longest: 0, asked: None, refused: false }
    }
}

impl ListRoom {
    /// Neighbours that lists may have.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Lists were asked for, and found or refused for want of memory.
    pub(crate) fn asked_for(&mut self, count: u32, gaussians: usize, refused: bool) {
        self.longest = self.longest.max(count);
        self.asked = Some(ListSize { count, gaussians: gaussians as u64 });
        self.refused = refused;
    }

    /// Has lists become shorter from the next time on. `held` is what those that there are take.
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

    /// Whether lists that there are, or that there was no room for, are longer than they may be.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked.is_some_and(|lists| lists.count > self.most)
    }

    /// What the longest lists would take more than those that there are.
    pub(crate) fn missing(&self) -> Bytes {
        let more = |lists: ListSize| {
            lists.bytes(self.longest).saturating_sub(lists.bytes(lists.count.min(self.most)))
        };
        Bytes(self.asked.map_or(0, more))
    }

    /// Gaussians that lists were asked for last.
    pub(crate) fn gaussians(&self) -> u64 {
        self.asked.map_or(0, |lists| lists.gaussians)
    }

    /// Lists may be as long as they are asked for again.
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
        // As long as the trainer has not let go of the old ones, no more is given up.
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

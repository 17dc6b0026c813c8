//! Blocks of the arena over time, and an arena without memory.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use super::library::Library;
use super::placement::{Placement, with_gap};
use super::session::LIBRARY_SCRATCH;
use super::slot::{Count, Slot, Source, Taken};
use crate::abi::Plain;

/// A live block, or all blocks of one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// Label in the ledger.
    pub label: &'static str,
    /// Size.
    pub bytes: u64,
}

/// Blocks of the arena over some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    reach: u64,
    at_peak: Vec<Live>,
    peaks: Vec<Live>,
}

impl Scratch {
    /// More than any device has: of work that is refused at any size of the memory.
    pub fn endless() -> Self {
        Self { reach: u64::MAX / 4, ..Self::default() }
    }

    /// Largest end of a block, in bytes from the beginning of the arena.
    pub fn reach(&self) -> u64 {
        self.reach
    }

    /// Blocks that lived at the largest end, one row for each label, the earliest first.
    pub fn at_peak(&self) -> &[Live] {
        &self.at_peak
    }

    /// The most of each label.
    pub fn peaks(&self) -> &[Live] {
        &self.peaks
    }

    /// The scratch of this work and of later work, which begins with an empty arena.
    pub fn then(mut self, later: &Self) -> Self {
        if later.reach > self.reach {
            (self.reach, self.at_peak) = (later.reach, later.at_peak.clone());
        }
        for &peak in &later.peaks {
            self.raise_peak(peak);
        }
        self
    }

    /// Returns the scratch of the work beside a block of another label that was taken before it.
    pub fn above(mut self, block: Live) -> Self {
        self.reach = match self.reach {
            0 => block.bytes,
            reach => reach.saturating_add(with_gap(block.bytes)),
        };
        self.at_peak.insert(0, block);
        self.peaks.insert(0, block);
        self
    }

    fn raise_peak(&mut self, of_label: Live) {
        match self.peaks.iter_mut().find(|peak| peak.label == of_label.label) {
            Some(peak) => peak.bytes = peak.bytes.max(of_label.bytes),
            None => self.peaks.push(of_label),
        }
    }
}

/// Follows the blocks of an arena.
#[derive(Debug, Default)]
pub struct ScratchLog {
    live: Vec<(u64, Live)>,
    scratch: Scratch,
}

impl ScratchLog {
    /// Notes a block of this number, which begins at `start`.
    pub fn take(&mut self, id: u64, label: &'static str, start: u64, bytes: u64) {
        self.live.push((id, Live { label, bytes }));
        let of_label = self.live.iter().filter(|(_, live)| live.label == label);
        let bytes_of_label = of_label.map(|(_, live)| live.bytes).sum();
        self.scratch.raise_peak(Live { label, bytes: bytes_of_label });
        let end = start.saturating_add(bytes);
        if end > self.scratch.reach {
            self.scratch.reach = end;
            self.scratch.at_peak = gathered(self.live.iter().map(|(_, live)| *live));
        }
    }

    /// Notes that the block of this number is gone.
    pub fn give_back(&mut self, id: u64) {
        self.live.retain(|(live, _)| *live != id);
    }

    /// Blocks up to now.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// All of them.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }
}

#[derive(Debug, Default)]
struct State {
    placement: Placement,
    log: ScratchLog,
}

/// A source that only counts. Blocks go when they are dropped, as those of a GPU do.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    library: Library,
    state: Rc<RefCell<State>>,
}

impl Replay {
    /// One with these sizes of CUB's scratch.
    pub fn with(library: Library) -> Self {
        Self { library, ..Self::default() }
    }

    /// Blocks up to now.
    pub fn scratch(&self) -> Scratch {
        self.state.borrow().log.scratch().clone()
    }

    /// Largest end of a block.
    pub fn reach(&self) -> u64 {
        self.state.borrow().log.scratch().reach()
    }

    /// Start of the next block.
    pub fn start_of_next(&self) -> u64 {
        self.state.borrow().placement.top().start
    }

    /// Takes a block of so many bytes, without a slot.
    pub fn take_bytes(&self, label: &'static str, bytes: u64) -> ReplayBlock {
        let mut state = self.state.borrow_mut();
        let spot = state.placement.top();
        let id = state.placement.take(spot, bytes);
        state.log.take(id, label, spot.start, bytes);
        drop(state);
        ReplayBlock { id, bytes, state: Rc::clone(&self.state) }
    }

    /// Scratch of the library for one call: given back at once.
    fn call(&self, n: u64, bytes: u64) {
        if n > 0 {
            // A call never takes less than a byte.
            drop(self.take_bytes(LIBRARY_SCRATCH.label, bytes.max(1)));
        }
    }

    /// The library sorts so many pairs by so many bits of keys of 16 bits.
    pub fn sort16(&self, n: u64, bits: u32) {
        self.call(n, self.library.sort16.bytes(n, bits));
    }

    /// Sorts pairs with keys of 32 bits.
    pub fn sort32(&self, n: u64, bits: u32) {
        self.call(n, self.library.sort32.bytes(n, bits));
    }

    /// The library adds up so many values of 4 bytes.
    pub fn sum32(&self, n: u64) {
        self.call(n, self.library.sum32.bytes(n));
    }
}

impl Source for Replay {
    type Block<T: Plain> = ReplayBlock;
    type Error = Infallible;

    fn cub_scratch(&self) -> &Library {
        &self.library
    }

    fn take<T: Plain, C: Count>(
        &self,
        slot: &Slot<T, C>,
        sizes: &C::Sizes,
    ) -> Result<ReplayBlock, Infallible> {
        Ok(self.take_bytes(slot.label, slot.bytes(sizes)))
    }
}

/// One row for each label.
fn gathered(blocks: impl Iterator<Item = Live>) -> Vec<Live> {
    let mut sums: Vec<Live> = Vec::new();
    for block in blocks {
        match sums.iter_mut().find(|sum| sum.label == block.label) {
            Some(sum) => sum.bytes += block.bytes,
            None => sums.push(block),
        }
    }
    sums
}

/// A block of a replay.
#[derive(Debug)]
#[must_use = "a block lives until it is dropped"]
pub struct ReplayBlock {
    id: u64,
    bytes: u64,
    state: Rc<RefCell<State>>,
}

impl Taken for ReplayBlock {
    fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for ReplayBlock {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.placement.give_back(self.id);
        state.log.give_back(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_knows_what_lived_when_it_reached_furthest() {
        let replay = Replay::default();
        let first = replay.take_bytes("keys", 1000);
        let second = replay.take_bytes("keys", 100);
        drop(first);
        // After the second, at 1024 + 256.
        drop(replay.take_bytes("sort", 10));
        assert_eq!(replay.reach(), 1290);
        drop(second);
        drop(replay.take_bytes("image", 1280));
        let scratch = replay.scratch();
        assert_eq!(scratch.reach(), 1290);
        let live = |label, bytes| Live { label, bytes };
        assert_eq!(scratch.at_peak(), [live("keys", 100), live("sort", 10)]);
        assert_eq!(scratch.peaks(), [live("keys", 1100), live("sort", 10), live("image", 1280)]);
        let later = Scratch {
            reach: 2000,
            at_peak: vec![live("sort", 2000)],
            peaks: vec![live("sort", 2000)],
        };
        let both = scratch.clone().then(&later);
        assert_eq!((both.reach(), both.at_peak()), (2000, &[live("sort", 2000)][..]));
        assert_eq!(later.then(&scratch).peaks().len(), 3);
        let above = scratch.above(live("marks", 300));
        assert_eq!((above.reach(), above.at_peak()[0]), (512 + 1290, live("marks", 300)));
    }
}

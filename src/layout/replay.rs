//! Record of the arena's blocks over time, and an arena that only counts.

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

/// Blocks of the arena over a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scratch {
    reach: u64,
    at_peak: Vec<Live>,
    peaks: Vec<Live>,
}

impl Scratch {
    /// Returns a scratch larger than any device, for work that no memory suffices for.
    pub fn endless() -> Self {
        Self { reach: u64::MAX / 4, ..Self::default() }
    }

    /// Returns the largest end of a block, in bytes from the start of the arena.
    pub fn reach(&self) -> u64 {
        self.reach
    }

    /// Returns the blocks at the largest end, one row for each label, the earliest first.
    pub fn at_peak(&self) -> &[Live] {
        &self.at_peak
    }

    /// Returns the peak of each label.
    pub fn peaks(&self) -> &[Live] {
        &self.peaks
    }

    /// Combines the scratch with the scratch of later work, which starts with an empty arena.
    pub fn then(mut self, later: &Self) -> Self {
        if later.reach > self.reach {
            (self.reach, self.at_peak) = (later.reach, later.at_peak.clone());
        }
        for &peak in &later.peaks {
            self.raise_peak(peak);
        }
        self
    }

    /// Returns the scratch above a block of another label that was allocated before.
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

/// Recorder of an arena's blocks.
#[derive(Debug, Default)]
pub struct ScratchLog {
    live: Vec<(u64, Live)>,
    scratch: Scratch,
}

impl ScratchLog {
    /// Records a new block.
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

    /// Records that the block of this number was freed.
    pub fn give_back(&mut self, id: u64) {
        self.live.retain(|(live, _)| *live != id);
    }

    /// Returns the blocks so far.
    pub fn scratch(&self) -> &Scratch {
        &self.scratch
    }

    /// Returns the recorded blocks.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }
}

#[derive(Debug, Default)]
struct State {
    placement: Placement,
    log: ScratchLog,
}

/// Source that only counts. A block is freed when it is dropped, as on a GPU.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    library: Library,
    state: Rc<RefCell<State>>,
}

impl Replay {
    /// Creates a replay with these sizes of CUB's scratch.
    pub fn with(library: Library) -> Self {
        Self { library, ..Self::default() }
    }

    /// Returns the blocks so far.
    pub fn scratch(&self) -> Scratch {
        self.state.borrow().log.scratch().clone()
    }

    /// Returns the largest end of a block.
    pub fn reach(&self) -> u64 {
        self.state.borrow().log.scratch().reach()
    }

    /// Returns the start of the next block.
    pub fn start_of_next(&self) -> u64 {
        self.state.borrow().placement.top().start
    }

    /// Allocates a block without a slot.
    pub fn take_bytes(&self, label: &'static str, bytes: u64) -> ReplayBlock {
        let mut state = self.state.borrow_mut();
        let spot = state.placement.top();
        let id = state.placement.take(spot, bytes);
        state.log.take(id, label, spot.start, bytes);
        drop(state);
        ReplayBlock { id, bytes, state: Rc::clone(&self.state) }
    }

    /// Counts the library's scratch of one call, which is freed at once.
    fn call(&self, n: u64, bytes: u64) {
        if n > 0 {
            // A call takes at least one byte.
            drop(self.take_bytes(LIBRARY_SCRATCH.label, bytes.max(1)));
        }
    }

    /// Counts a sort of `n` pairs by `bits` bits of 16-bit keys.
    pub fn sort16(&self, n: u64, bits: u32) {
        self.call(n, self.library.sort16.bytes(n, bits));
    }

    /// Counts a sort of `n` pairs by `bits` bits of 32-bit keys.
    pub fn sort32(&self, n: u64, bits: u32) {
        self.call(n, self.library.sort32.bytes(n, bits));
    }

    /// Counts a sum of `n` values of 4 bytes.
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

/// Sums the blocks by label.
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

/// Block of a replay.
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
    fn a_replay_records_the_live_blocks_at_its_peak() {
        let replay = Replay::default();
        let first = replay.take_bytes("keys", 1000);
        let second = replay.take_bytes("keys", 100);
        drop(first);
        // After the second block, at 1024 + 256.
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

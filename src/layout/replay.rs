//! The arena played through without memory: what a sequence of blocks reaches, and what lived then.

use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;

use super::library::Library;
use super::placement::Placement;
use super::session::LIBRARY_SCRATCH;
use super::slot::{Count, Slot, Source, Taken};
use crate::abi::Plain;

/// A block that lives, or what goes by a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live {
    /// What the ledger calls it.
    pub label: &'static str,
    /// How many bytes.
    pub bytes: u64,
}

/// A block was taken or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// Whether it was taken.
    pub is_take: bool,
    /// What the ledger calls it.
    pub label: &'static str,
    /// Where it lies in the arena.
    pub start: u64,
    /// How many bytes.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct State {
    placement: Placement,
    live: Vec<(u64, Live)>,
    reach: u64,
    at_peak: Vec<Live>,
    peaks: Vec<Live>,
    /// Everything that happened, where it is recorded.
    events: Option<Vec<BlockEvent>>,
}

/// A source that only counts. Blocks go when they are dropped, as those of a GPU do.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    library: Library,
    state: Rc<RefCell<State>>,
}

impl Replay {
    /// One that writes down what happens.
    pub fn recording() -> Self {
        let replay = Self::default();
        replay.state.borrow_mut().events = Some(Vec::new());
        replay
    }

    /// One whose library takes so much.
    pub fn with(library: Library) -> Self {
        Self { library, ..Self::default() }
    }

    /// How far blocks ever reached.
    pub fn reach(&self) -> u64 {
        self.state.borrow().reach
    }

    /// Where the next block will lie.
    pub fn start_of_next(&self) -> u64 {
        self.state.borrow().placement.top().start
    }

    /// What lived when they did, one row for each label, in the order in which they came first.
    pub fn at_peak(&self) -> Vec<Live> {
        self.state.borrow().at_peak.clone()
    }

    /// The most that each label ever had.
    pub fn peaks(&self) -> Vec<Live> {
        self.state.borrow().peaks.clone()
    }

    /// What happened, where it was recorded.
    pub fn events(&self) -> Vec<BlockEvent> {
        self.state.borrow().events.clone().unwrap_or_default()
    }

    /// A block of so many bytes, without a slot.
    pub fn take_bytes(&self, label: &'static str, bytes: u64) -> ReplayBlock {
        let mut state = self.state.borrow_mut();
        let spot = state.placement.top();
        let id = state.placement.take(spot, bytes);
        state.live.push((id, Live { label, bytes }));
        state.raise_peak(label);
        let end = spot.start.saturating_add(bytes);
        if end > state.reach {
            state.reach = end;
            state.at_peak = gathered(state.live.iter().map(|(_, live)| *live));
        }
        state.record(BlockEvent { is_take: true, label, start: spot.start, bytes });
        drop(state);
        let block = BlockEvent { is_take: false, label, start: spot.start, bytes };
        ReplayBlock { id, block, state: Rc::clone(&self.state) }
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

    /// The same of keys of 32 bits. Whether the result is in the second buffers.
    pub fn sort32(&self, n: u64, bits: u32) -> bool {
        self.call(n, self.library.sort32.bytes(n, bits));
        self.library.sort32.ends_in_second(n, bits)
    }

    /// The library adds up so many values of 4 bytes.
    pub fn sum32(&self, n: u64) {
        self.call(n, self.library.sum32.bytes(n));
    }

    /// The library adds up so many values of 8 bytes.
    pub fn sum64(&self, n: u64) {
        self.call(n, self.library.sum64.bytes(n));
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

impl State {
    fn raise_peak(&mut self, label: &'static str) {
        let now = self.live.iter().filter(|(_, live)| live.label == label);
        let bytes = now.map(|(_, live)| live.bytes).sum();
        match self.peaks.iter_mut().find(|peak| peak.label == label) {
            Some(peak) => peak.bytes = peak.bytes.max(bytes),
            None => self.peaks.push(Live { label, bytes }),
        }
    }

    fn record(&mut self, event: BlockEvent) {
        if let Some(events) = &mut self.events {
            events.push(event);
        }
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
    /// That it goes.
    block: BlockEvent,
    state: Rc<RefCell<State>>,
}

impl Taken for ReplayBlock {
    fn bytes(&self) -> u64 {
        self.block.bytes
    }
}

impl Drop for ReplayBlock {
    fn drop(&mut self) {
        let mut state = self.state.borrow_mut();
        state.placement.give_back(self.id);
        state.live.retain(|(id, _)| *id != self.id);
        state.record(self.block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_knows_what_lived_when_it_reached_furthest() {
        let replay = Replay::recording();
        let first = replay.take_bytes("keys", 1000);
        let second = replay.take_bytes("keys", 100);
        drop(first);
        // After the second, at 1024 + 256.
        drop(replay.take_bytes("sort", 10));
        assert_eq!(replay.reach(), 1290);
        drop(second);
        drop(replay.take_bytes("image", 1280));
        assert_eq!(replay.reach(), 1290);
        let live = |label, bytes| Live { label, bytes };
        assert_eq!(replay.at_peak(), [live("keys", 100), live("sort", 10)]);
        assert_eq!(replay.peaks(), [live("keys", 1100), live("sort", 10), live("image", 1280)]);
        let starts: Vec<u64> = replay.events().iter().map(|event| event.start).collect();
        assert_eq!(starts, [0, 1024, 0, 1280, 1280, 1024, 0, 0]);
    }
}

//! Placement of scratch blocks in the arena, without any memory.

/// Alignment of blocks and of their parts, bytes.
pub const ALIGNMENT: u64 = 256;

/// Divisor of the arena's spare memory: a frame that is slightly larger than the last one maps nothing.
const SPARE_SHARE: u64 = 8;

/// Maximum of the spare memory, bytes.
const SPARE_MAX: u64 = 64 << 20;

/// Largest block of memory that is mapped at once; larger ones save no time.
const LARGEST_BLOCK: u64 = 64 << 20;

/// Divisor of a block's size, before it is rounded up to a power of two: there are few blocks, and the last one,
/// which cannot be freed in part, is small against the arena.
const BLOCK_SHARE: u64 = 128;

/// Returns the bytes that an arena of `bytes` bytes maps beyond the request.
pub fn spare(bytes: u64) -> u64 {
    (bytes / SPARE_SHARE).min(SPARE_MAX)
}

/// Returns the size of the block that is mapped after `bytes` bytes, before rounding to granules.
pub fn block_beside(bytes: u64) -> u64 {
    (bytes / BLOCK_SHARE).next_power_of_two().min(LARGEST_BLOCK)
}

/// Returns `bytes` with the gap that follows.
pub fn with_gap(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// Position in the arena's spans. With virtual memory there is one span, which grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Index of the span.
    pub span: usize,
    /// Offset in the span, bytes.
    pub start: u64,
}

#[derive(Clone, Copy, Debug)]
struct PlacedBlock {
    id: u64,
    span: usize,
    end: u64,
}

/// Live blocks, in order of position. A new block follows all live blocks.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    live: Vec<PlacedBlock>,
    next_id: u64,
}

impl Placement {
    /// Returns the first position after all live blocks.
    pub fn top(&self) -> Spot {
        self.live
            .last()
            .map_or(Spot::default(), |live| Spot { span: live.span, start: with_gap(live.end) })
    }

    /// Returns true if no block is live.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the position of a new block of `bytes` bytes after all live blocks, in spans of these sizes; `None` if
    /// it does not fit.
    pub fn room_in(&self, spans: impl Iterator<Item = u64>, bytes: u64) -> Option<Spot> {
        let top = self.top();
        spans
            .enumerate()
            .skip(top.span)
            .map(|(span, size)| {
                (if span == top.span { top } else { Spot { span, start: 0 } }, size)
            })
            .find(|(spot, size)| spot.start.saturating_add(bytes) <= *size)
            .map(|(spot, _)| spot)
    }

    /// Adds a block and returns its number.
    pub fn take(&mut self, spot: Spot, bytes: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.live.push(PlacedBlock { id, span: spot.span, end: spot.start.saturating_add(bytes) });
        id
    }

    /// Removes the block of this number.
    pub fn give_back(&mut self, id: u64) {
        self.live.retain(|live| live.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_blocks_follow_all_live_blocks() {
        let mut placement = Placement::default();
        let take = |placement: &mut Placement, bytes| {
            let spot = placement.top();
            (placement.take(spot, bytes), spot.start)
        };
        let (first, at) = take(&mut placement, 1000);
        assert_eq!(at, 0);
        let (second, at) = take(&mut placement, 100);
        assert_eq!(at, 1024);
        placement.give_back(first);
        assert_eq!(placement.top().start, 1280, "after the second");
        placement.give_back(second);
        assert_eq!((placement.top().start, placement.is_empty()), (0, true));
    }

    #[test]
    fn without_virtual_memory_the_first_span_that_fits_is_used() {
        let mut placement = Placement::default();
        let spans = || [1000, 5000].into_iter();
        let spot = placement.room_in(spans(), 600).unwrap();
        assert_eq!(spot, Spot { span: 0, start: 0 });
        placement.take(spot, 600);
        // 232 bytes are left at 768.
        assert_eq!(placement.room_in(spans(), 232), Some(Spot { span: 0, start: 768 }));
        let spot = placement.room_in(spans(), 233).unwrap();
        assert_eq!(spot, Spot { span: 1, start: 0 });
        placement.take(spot, 233);
        assert_eq!(placement.room_in(spans(), 10), Some(Spot { span: 1, start: 256 }));
        assert_eq!(placement.room_in(spans(), 5000), None);
    }

    #[test]
    fn growth_is_an_eighth_up_to_64_mib() {
        assert_eq!([0, 8 << 20, 1 << 30].map(spare), [0, 1 << 20, 64 << 20]);
        assert_eq!(
            [0, 100 << 20, 1 << 30, 10 << 30].map(block_beside),
            [1, 1 << 20, 8 << 20, 64 << 20]
        );
    }
}

//! Where blocks of scratch lie: the rule of the arena, without any memory.

/// Blocks and pieces of them begin at multiples of so many bytes.
pub const ALIGNMENT: u64 = 256;

/// The arena grows by this part of what is there beyond what is asked for: a frame that is a little
/// larger than the last one maps nothing.
const SPARE_SHARE: u64 = 8;

/// At most so much beyond.
const SPARE_MAX: u64 = 64 << 20;

/// The largest block of memory that is mapped at once; more saves no time.
const LARGEST_BLOCK: u64 = 64 << 20;

/// A block of memory is at most this part of what lies before it, rounded to a power of two: there
/// are few of them, yet the last one, which cannot be given back in part, is small against the whole.
const BLOCK_SHARE: u64 = 128;

/// Bytes that the arena takes beyond what is asked for where it has so many, or is to have.
pub fn spare(bytes: u64) -> u64 {
    (bytes / SPARE_SHARE).min(SPARE_MAX)
}

/// Bytes of the block of memory that is mapped after so many, before it is rounded to granules.
pub fn block_beside(bytes: u64) -> u64 {
    (bytes / BLOCK_SHARE).next_power_of_two().min(LARGEST_BLOCK)
}

/// So many bytes with the gap after them.
pub fn with_gap(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX)
}

/// A place in one of the arena's spans. With virtual memory there is one span, which grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// Which span.
    pub span: usize,
    /// Bytes from its beginning.
    pub start: u64,
}

#[derive(Clone, Copy, Debug)]
struct PlacedBlock {
    id: u64,
    span: usize,
    end: u64,
}

/// The live blocks, in the order of their places. A new block lies after all of them.
#[derive(Clone, Debug, Default)]
pub struct Placement {
    live: Vec<PlacedBlock>,
    next_id: u64,
}

impl Placement {
    /// The first place after all live blocks.
    pub fn top(&self) -> Spot {
        self.live
            .last()
            .map_or(Spot::default(), |live| Spot { span: live.span, start: with_gap(live.end) })
    }

    /// Whether no block lives.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Where a block of so many bytes has room in spans of these sizes, after all live blocks.
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

    /// A block of so many bytes lives from now on. Its number.
    pub fn take(&mut self, spot: Spot, bytes: u64) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.live.push(PlacedBlock { id, span: spot.span, end: spot.start.saturating_add(bytes) });
        id
    }

    /// The block of this number is gone.
    pub fn give_back(&mut self, id: u64) {
        self.live.retain(|live| live.id != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_after_all_that_live() {
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
    fn without_virtual_memory_the_first_span_with_room_is_used() {
        let mut placement = Placement::default();
        let spans = || [1000, 5000].into_iter();
        let spot = placement.room_in(spans(), 600).unwrap();
        assert_eq!(spot, Spot { span: 0, start: 0 });
        placement.take(spot, 600);
        // At 768 there are 232 bytes left.
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

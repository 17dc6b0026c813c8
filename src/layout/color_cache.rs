//! Lines of a device's cache for colours in the host's memory.

use super::schema::LANES;

/// Lane blocks per line: a view of a large scene shows a few hundredths of the scene.
const BLOCKS_PER_LINE: u64 = 16;

/// Lines of a small model, if it has at least this number of lane blocks.
const LINES_MIN: u64 = 64;

/// Layout of the cache's tables, which precede the lines in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBooks {
    /// Lane blocks of the model.
    pub lane_blocks: u64,
    /// Lines of the cache.
    pub lines: u64,
}

impl CacheBooks {
    /// Creates the layout for a model with this number of lane blocks.
    pub fn of(lane_blocks: u64) -> Self {
        let few = lane_blocks.min(LINES_MIN);
        Self { lane_blocks, lines: lane_blocks.div_ceil(BLOCKS_PER_LINE).max(few) }
    }

    /// Returns the first words of the seven tables: the counts, two columns by lane block, four by line.
    pub fn firsts(&self) -> [u64; 7] {
        let Self { lane_blocks, lines } = *self;
        let of_lines = 2 + 2 * lane_blocks;
        let line = |column: u64| of_lines + column * lines;
        [0, 2, 2 + lane_blocks, line(0), line(1), line(2), line(3)]
    }

    /// Returns the words of all tables, rounded up to whole lane blocks.
    pub fn words(&self) -> u64 {
        let words = 2 + 2 * self.lane_blocks + 4 * self.lines;
        if self.lane_blocks == 0 { 0 } else { words.next_multiple_of(LANES.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_models_have_a_line_for_each_lane_block_large_ones_fewer() {
        let lines = |blocks| CacheBooks::of(blocks).lines;
        assert_eq!([0, 1, 64, 65, 1024, 1040].map(lines), [0, 1, 64, 64, 64, 65]);
        assert_eq!(CacheBooks::of(0).words(), 0);
    }

    #[test]
    fn tables_are_adjacent() {
        let books = CacheBooks::of(2000);
        let lengths = [2, 2000, 2000, 125, 125, 125, 125];
        let mut next = 0;
        for (first, length) in books.firsts().into_iter().zip(lengths) {
            assert_eq!(first, next);
            next += length;
        }
        assert_eq!(books.words(), next.next_multiple_of(32));
    }
}

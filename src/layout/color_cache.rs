//! Lines of colours that a device takes from the host's memory.

use super::schema::LANES;

/// Lane blocks for each line: a view of a large scene sees a few hundredths of it.
const BLOCKS_PER_LINE: u64 = 16;

/// As many lines a small model has, if it has as many lane blocks.
const LINES_MIN: u64 = 64;

/// Where the numbers of the lines lie before these in one region, each a range of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBooks {
    /// Lane blocks of the model.
    pub lane_blocks: u64,
    /// Lines.
    pub lines: u64,
}

impl CacheBooks {
    /// Of a model of so many lane blocks.
    pub fn of(lane_blocks: u64) -> Self {
        let few = lane_blocks.min(LINES_MIN);
        Self { lane_blocks, lines: lane_blocks.div_ceil(BLOCKS_PER_LINE).max(few) }
    }

    /// First words of: the counts, two numbers of each lane block, four of each line.
    pub fn firsts(&self) -> [u64; 7] {
        let Self { lane_blocks, lines } = *self;
        let of_lines = 2 + 2 * lane_blocks;
        let line = |column: u64| of_lines + column * lines;
        [0, 2, 2 + lane_blocks, line(0), line(1), line(2), line(3)]
    }

    /// Words of all, after which whole lane blocks begin.
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
    fn numbers_lie_side_by_side() {
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

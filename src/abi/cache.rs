//! Arguments of `cache`: colours of the host's memory that lie in the device's for a while.

use super::Out;

constants! {
    /// Threads of a block of `fill_lines` and of `write_lines_back`.
    pub const CACHE_BLOCK: u32 = 256;
}

abi! {
    /// Lane blocks of colours with their moments that the device has taken from the host, each in a line, as
    /// `cache.cuh` uses them. All null where there are none.
    pub struct ColorCache<'a> {
        /// Line + 1 of each lane block, 0 of one that has none; [lane blocks].
        pub line_of_block: Out<'a, u32>,
        /// The latest step that saw a lane block which had no line; [lane blocks].
        pub missed_in: Out<'a, u32>,
        /// Lane block + 1 of each line, 0 of one that is free; [lines].
        pub block_of_line: Out<'a, u32>,
        /// The latest step that sees what is in a line; [lines].
        pub used_in: Out<'a, u32>,
        /// 1 of a line that has changed since it was taken from the host; [lines].
        pub is_changed: Out<'a, u32>,
        /// Lane blocks without a line that the next step sees; [lines].
        pub wanted: Out<'a, u32>,
        /// How many there are, and how many have been dealt with; [2], zero before a view is expected.
        pub counts: Out<'a, u32>,
        /// [lines, words of SH, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Number of the coming step of the model, from 1; 0 for a view that no step follows.
        pub step: u32,
        /// Number of lines.
        pub lines: u32,
    }

    /// `fill_lines`: brings what is wanted into lines that neither the coming step nor the next one needs.
    /// `write_lines_back`: empties all lines.
    pub struct CacheArgs<'a> {
        /// The lines.
        pub cache: ColorCache<'a>,
        /// The tables in the host's memory, [lane blocks, words of SH, 32].
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Words of a row's SH.
        pub sh_words: u32,
        /// Words of its first moments, and as many of the second ones.
        pub moment_words: u32,
    }
}

//! Buffers of a densification step, of reordering, and of the 3D filter.

use super::model::{MemoryPlace, ModelSize, table_len};
use super::slot::{CallLen, Count, Lifetime, Source};
use crate::abi::{DIGITS, DensityCounts, SmoothView};

/// Words that rows are moved through: 32 MiB stay in the cache of a large GPU.
pub const MOVED_WORDS: u32 = 1 << 23;

slots! {
    DensifyCount {
        COUNTS: DensityCounts = "density counts", Densify, DensifyCount::One, 1,
            "a round of density control";
        FLAGS: u32 = "density flags", Densify, DensifyCount::Rows, 1, "a round of density control";
        RANKS: u32 = "density ranks", Densify, DensifyCount::Rows, 1, "a round of density control";
        ROWS: u32 = "density rows", Densify, DensifyCount::MovedWords, 1,
            "a round of density control";
        KEYS: u32 = "density keys", Densify, DensifyCount::Wanted, 1, "a round of density control";
        CANDIDATES: u32 = "candidates", Densify, DensifyCount::Wanted, 1,
            "a round of density control";
    }
    CallLen {
        pub DENSITY_COUNTS: DensityCounts = "density counts", Densify, CallLen, 1,
            "a round of density control";
        pub DENSITY_DIGITS: u32 = "density digits", Densify, CallLen, DIGITS,
            "a round of density control";
        VIEWS: SmoothView = "views to smooth for", Densify, CallLen, 1,
            "how far each Gaussian is smoothed";
        FARTHEST: u32 = "farthest depth", Densify, CallLen, 1, "how far each Gaussian is smoothed";
    }
    DrawCount {
        COPIES: u32 = "density copies", Densify, DrawCount::Rows, 1, "a round of density control";
        WEIGHTS: u64 = "density weights", Densify, DrawCount::Rows, 1,
            "a round of density control";
        SOURCES: u32 = "density sources", Densify, DrawCount::Copies, 1,
            "a round of density control";
    }
    MoveCount {
        ORDERED_ROWS: u32 = "reordered rows", Order, MoveCount::Rows, 1,
            "putting the Gaussians in order";
        MORTON_KEYS: u32 = "morton keys", Order, MoveCount::Rows, 1,
            "putting the Gaussians in order";
        pub MOVED_COLUMNS: u32 = "moved columns", Order, MoveCount::Columns, 1,
            "putting the Gaussians in order";
        pub FETCHED_COLUMN: u32 = "fetched column", Order, MoveCount::Fetched, 1,
            "putting the Gaussians in order";
    }
}

/// Sizes of a densification step.
#[derive(Clone, Copy, Debug)]
pub struct DensifySizes {
    /// The model before the step.
    pub model: ModelSize,
    /// New Gaussians.
    pub new_gaussians: u64,
    /// Candidates for new Gaussians.
    pub wanted: u64,
}

#[derive(Clone, Copy, Debug)]
enum DensifyCount {
    /// Gaussians, new ones included.
    Rows,
    /// Words of the rows that move at once.
    MovedWords,
    /// Candidates.
    Wanted,
    One,
}

impl Count for DensifyCount {
    type Sizes = DensifySizes;

    const LIFETIME: Lifetime = Lifetime::Densify;

    fn of(self, sizes: &DensifySizes) -> u64 {
        let rows = sizes.model.gaussians + sizes.new_gaussians;
        match self {
            Self::Rows => rows,
            Self::MovedWords => {
                let words = sizes.model.words();
                // One more lane block: survivors keep their lanes, which may start in the middle of a block.
                table_len(rows, words).min(MOVED_WORDS.into()) + table_len(1, words)
            }
            Self::Wanted => sizes.wanted,
            Self::One => 1,
        }
    }
}

buffers! {
    /// Buffers of a densification step: 8 bytes per Gaussian and a chunk of rows.
    pub struct SelectionSlots(sizes: DensifySizes) {
        /// `[1]`
        counts: DensityCounts = COUNTS;
        /// One per row, new ones included: first whether the row grows, then whether it stays.
        flags: u32 = FLAGS;
        /// Exclusive sums of the flags.
        ranks: u32 = RANKS;
        /// Survivors of a chunk that moves.
        rows: u32 = ROWS;
    }

    /// Candidates by score, if not all of them grow.
    pub struct Choice(sizes: DensifySizes) {
        /// Scores, with a second buffer for the sort.
        keys: u32 = KEYS, two;
        /// Rows, with a second buffer for the sort.
        rows: u32 = CANDIDATES, two;
    }
}

/// Sizes of a random draw of copies.
#[derive(Clone, Copy, Debug)]
pub struct DrawSizes {
    /// Gaussians before the draw.
    pub rows: u64,
    /// Copies.
    pub copies: u64,
}

#[derive(Clone, Copy, Debug)]
enum DrawCount {
    Rows,
    Copies,
}

impl Count for DrawCount {
    type Sizes = DrawSizes;

    const LIFETIME: Lifetime = Lifetime::Densify;

    fn of(self, sizes: &DrawSizes) -> u64 {
        match self {
            Self::Rows => sizes.rows,
            Self::Copies => sizes.copies,
        }
    }
}

buffers! {
    /// Buffers of a draw: at most 16 bytes per Gaussian, as for reordering.
    pub struct Draw(sizes: DrawSizes) {
        /// Copies of each row; `[rows]`.
        counts: u32 = COPIES;
        /// Weights, then their inclusive sums; `[rows]`.
        sums: u64 = WEIGHTS;
        /// Source row of each copy. If dead rows move, one per row: first whether the row is dead, then the inclusive
        /// count of dead rows.
        sources: u32 = SOURCES;
    }
}

/// Sizes of reordering rows.
#[derive(Clone, Copy, Debug)]
pub struct MoveSizes {
    /// Number of Gaussians, at least 1.
    pub rows: u64,
    /// Words of the widest table per Gaussian.
    pub widest: u64,
    /// True if tables are in the host's memory: their columns are fetched before they are reordered.
    pub fetches: bool,
}

/// Index spaces of reordering.
#[derive(Clone, Copy, Debug)]
pub enum MoveCount {
    /// Gaussians.
    Rows,
    /// Words of the columns that move at once.
    Columns,
    /// Gaussians, if columns are fetched.
    Fetched,
}

impl MoveSizes {
    /// Returns the sizes for a model with at least one Gaussian.
    pub fn of(model: &ModelSize) -> Self {
        let fetches = model.memory_places().any(|place| place == MemoryPlace::Host);
        Self { rows: model.gaussians, widest: model.widest(), fetches }
    }

    /// Returns the number of columns that move at once.
    pub fn columns_at_once(&self) -> u64 {
        (u64::from(MOVED_WORDS) / self.rows.max(1)).clamp(1, self.widest)
    }
}

impl Count for MoveCount {
    type Sizes = MoveSizes;

    const LIFETIME: Lifetime = Lifetime::Call;

    fn of(self, sizes: &MoveSizes) -> u64 {
        match self {
            Self::Rows => sizes.rows,
            Self::Columns => sizes.rows * sizes.columns_at_once(),
            Self::Fetched if sizes.fetches => sizes.rows,
            Self::Fetched => 0,
        }
    }
}

buffers! {
    /// Rows and their sort keys; one buffer of rows stays beside [`MOVED_COLUMNS`].
    pub struct Moves(sizes: MoveSizes) {
        /// Source row of each slot, with a second buffer for the sort; `[rows]`.
        rows: u32 = ORDERED_ROWS, two;
        /// Sort keys, with a second buffer; `[rows]`.
        keys: u32 = MORTON_KEYS, two;
    }
}

/// Buffers of the 3D filter.
pub struct Smoothing<A: Source> {
    /// `[views]`
    pub views: A::Block<SmoothView>,
    /// The largest depth at which a Gaussian is sampled; `[1]`.
    pub farthest: A::Block<u32>,
}

impl<A: Source> Smoothing<A> {
    /// Reserves the buffers for this number of views.
    pub fn reserve(source: &A, views: u64) -> Result<Self, A::Error> {
        Ok(Self { views: source.take(&VIEWS, &views)?, farthest: source.take(&FARTHEST, &1)? })
    }
}

#[cfg(test)]
mod tests {
    use super::super::GAUSSIANS;
    use super::super::model::{OptionalColumns, Storage};
    use super::*;

    #[test]
    fn a_step_takes_eight_bytes_a_gaussian_and_a_chunk_of_rows() {
        let optional = OptionalColumns::NONE;
        let model = ModelSize {
            gaussians: 1_000_000,
            schema: &GAUSSIANS,
            sh_degree: 3,
            storage: Storage::Full,
            optional,
        };
        let sizes = DensifySizes { model, new_gaussians: 5000, wanted: 7000 };
        assert_eq!(FLAGS.bytes(&sizes) + RANKS.bytes(&sizes), 8 * 1_005_000);
        assert_eq!(ROWS.bytes(&sizes), (1 << 25) + 32 * 177 * 4);
        assert_eq!(CANDIDATES.bytes(&sizes), 4 * 7000);
        let few = DensifySizes { model: model.with(10), new_gaussians: 0, wanted: 0 };
        assert_eq!(ROWS.bytes(&few), 2 * 32 * 177 * 4);
    }

    #[test]
    fn reordering_takes_at_least_a_column_and_at_most_a_table() {
        for (rows, bytes) in
            [(100, 100 * 48 * 4), (1 << 20, 1 << 25), (3 << 20, 6 << 22), (20 << 20, 20 << 22)]
        {
            let sizes = MoveSizes { rows, widest: 48, fetches: false };
            assert_eq!(MOVED_COLUMNS.bytes(&sizes), bytes, "{rows}");
            assert_eq!(FETCHED_COLUMN.bytes(&sizes), 0);
            assert_eq!(FETCHED_COLUMN.bytes(&MoveSizes { fetches: true, ..sizes }), 4 * rows);
        }
    }
}

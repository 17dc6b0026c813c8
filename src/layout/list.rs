//! Lists of splats by tile, for a view or a band of its tile rows, and the state that the forward pass keeps for the
//! backward pass.

use std::convert::Infallible;

use super::library::Library;
use super::replay::Replay;
use super::request::{Records, ViewRequest};
use super::slot::{Count, Lifetime, Source};
use crate::abi::{
    BLEND_BLOCK, BLEND_CHUNK, BLEND_WARP_TILES, FEATURES_WIDTH, SHORT_KEYS_MAX, TileRange, TileRect,
};

/// Bands of a forecast for a view whose lists do not fit at once. The maximum is the number of tile rows, but more
/// bands take more time.
pub const BANDS: u64 = 4;

slots! {
    ListCount {
        SPLATS_BY_DEPTH: u32 = "splats front to back", Lists, ListCount::Counted, 1,
            "the order of Gaussians in view";
        SPLAT_TILES: TileRect = "tiles of splats", Lists, ListCount::Counted, 1,
            "which tiles each splat reaches";
        pub ROW_INSTANCES: u64 = "instances of rows", Lists, ListCount::TileRows, 1,
            "how many splats each row of tiles blends";
        TILES: TileRange = "tiles", Lists, ListCount::Tiles, 1,
            "where the splats of each tile begin";
        pub INSTANCES: u32 = "instances", Lists, ListCount::Instances, 1,
            "which splats each tile blends";
        INSTANCES_SPARE: u32 = "instances while sorting", Lists, ListCount::Instances, 1,
            "the same while it is sorted";
        SPLAT_COUNTS: u32 = "instances of splats", Lists, ListCount::Counted, 1,
            "how many tiles each splat reaches";
        SPLAT_FIRSTS: u32 = "first instances", Lists, ListCount::Counted, 1,
            "where the tiles of each splat begin";
        KEYS_16: u16 = "keys of instances", Lists, ListCount::Instances, 1, "tiles to sort by";
        KEYS_32: u32 = "keys of instances", Lists, ListCount::Instances, 1, "tiles to sort by";
        REACHED: u32 = "parts of tiles", Lists, ListCount::Tiles, BLEND_WARP_TILES,
            "how far each tile was blended";
        STATES: f32 = "states of pixels", Lists, ListCount::Starts, 4 * BLEND_BLOCK,
            "where the backward pass begins";
        DEPTH_STATES: f32 = "states of pixels", Lists, ListCount::Starts, BLEND_BLOCK,
            "where the backward pass begins";
        MAP_STATES: f32 = "states of pixels", Lists, ListCount::Starts,
            FEATURES_WIDTH * BLEND_BLOCK, "where the backward pass begins";
        HITS: u32 = "hits", Lists, ListCount::HitWords, BLEND_WARP_TILES,
            "which splats the backward pass looks at";
        CHUNKS: u32 = "chunks", Lists, ListCount::Chunks, 2,
            "pieces of work of the backward pass";
        CHUNK_COUNT: u32 = "chunks", Lists, ListCount::One, 1,
            "pieces of work of the backward pass";
    }
}

/// Width of the keys of a sort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWidth {
    /// Two bytes.
    Bits16,
    /// Four bytes.
    Bits32,
}

/// Sizes of the lists of a view or a band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListSizes {
    /// Tiles of the view: columns and rows.
    pub tiles: [u32; 2],
    /// Listed rows of tiles.
    pub rows: u32,
    /// Pairs of a splat and a tile in the listed rows.
    pub instances: u64,
    /// Splats whose instances are counted again, if the view is drawn in bands.
    pub counted: Option<u64>,
}

impl ListSizes {
    /// Returns the sizes for all tiles of a view.
    pub fn whole(tiles: [u32; 2], instances: u64) -> Self {
        Self { tiles, rows: tiles[1], instances, counted: None }
    }

    /// Returns the number of the view's tiles.
    pub fn tile_count(&self) -> u64 {
        self.tiles.map(u64::from).iter().product()
    }

    /// Returns the number of listed tiles.
    pub fn tiles_listed(&self) -> u64 {
        u64::from(self.tiles[0]) * u64::from(self.rows)
    }

    /// Returns the largest possible number of chunks in the tiles' lists.
    pub fn chunks_max(&self) -> u64 {
        self.instances / u64::from(BLEND_CHUNK) + self.tiles_listed()
    }

    /// Returns the width of keys that distinguish the tiles.
    pub fn key_width(&self) -> KeyWidth {
        let is_short = self.tile_count() <= u64::from(SHORT_KEYS_MAX);
        if is_short { KeyWidth::Bits16 } else { KeyWidth::Bits32 }
    }

    /// Returns the number of significant key bits. The number after the last tile marks empty slots and has to fit.
    pub fn key_bits(&self) -> u32 {
        u64::BITS - self.tile_count().leading_zeros()
    }
}

/// Index spaces of a list.
#[derive(Clone, Copy, Debug)]
pub enum ListCount {
    /// Tiles of the view.
    Tiles,
    /// Rows of tiles of the view.
    TileRows,
    /// Instances.
    Instances,
    /// Splats that are counted again.
    Counted,
    /// Chunks after the first of their tile: starts of chunks are at least a chunk's length apart.
    Starts,
    /// Words of 32 instances; the last word of each tile may not be full.
    HitWords,
    /// Upper bound on the chunks of the listed tiles.
    Chunks,
    /// A single element.
    One,
}

impl Count for ListCount {
    type Sizes = ListSizes;

    const LIFETIME: Lifetime = Lifetime::Band;

    fn of(self, sizes: &ListSizes) -> u64 {
        match self {
            Self::Tiles => sizes.tile_count(),
            Self::TileRows => sizes.tiles[1].into(),
            Self::Instances => sizes.instances,
            Self::Counted => sizes.counted.unwrap_or(0),
            Self::Starts => sizes.instances / u64::from(BLEND_CHUNK) + 1,
            Self::HitWords => sizes.instances / u64::from(u32::BITS) + sizes.tile_count() + 1,
            Self::Chunks => sizes.chunks_max(),
            Self::One => 1,
        }
    }
}

buffers! {
    /// Input of the lists of bands, in separate scratch: the backward pass overwrites the order of the splats with
    /// gradients.
    pub struct OrderSlots(sizes: ListSizes) {
        /// Splats, front to back; `[visible]`.
        splat_indices: u32 = SPLATS_BY_DEPTH;
        /// Tiles of each splat; `[visible]`.
        tiles: TileRect = SPLAT_TILES;
    }

    /// Lists of the tiles' splats, with a second buffer for the sort.
    pub struct List(sizes: ListSizes) {
        /// Range of each tile of the view; `[tiles]`.
        ranges: TileRange = TILES;
        /// Splats, front to back within a tile; `[instances]`. The sort starts in the buffer from which it ends in this
        /// one, so that later blocks follow the buffer that stays.
        splat_from_instance: u32 = INSTANCES;
        /// Second buffer of the sort.
        spare: u32 = INSTANCES_SPARE;
    }

    /// Instances of each splat in a band, and the first instance of each.
    pub struct CountSlots(sizes: ListSizes) {
        /// Instances by splat; `[visible]`.
        counts: u32 = SPLAT_COUNTS;
        /// First instances, front to back; `[visible]`.
        firsts: u32 = SPLAT_FIRSTS;
    }
}

/// Tile of each instance as sort keys, with a second buffer.
pub enum Keys<A: Source> {
    /// Keys of two bytes.
    Bits16([A::Block<u16>; 2]),
    /// Keys of four bytes.
    Bits32([A::Block<u32>; 2]),
}

impl<A: Source> Keys<A> {
    /// Reserves keys that are wide enough for the tiles.
    pub fn reserve(source: &A, sizes: &ListSizes) -> Result<Self, A::Error> {
        Ok(match sizes.key_width() {
            KeyWidth::Bits16 => Self::Bits16(source.take_two(&KEYS_16, sizes)?),
            KeyWidth::Bits32 => Self::Bits32(source.take_two(&KEYS_32, sizes)?),
        })
    }
}

buffers! {
    /// State that the forward pass keeps for the backward pass.
    pub struct BackwardSlots(sizes: ListSizes, request: ViewRequest) {
        /// Instances that each warp tile has read; [tiles, warp tiles].
        reached: u32 = REACHED;
        /// State of a tile's pixels before each chunk of its list but the first.
        states: f32 = STATES;
        /// State of the pixels' inverse depths, or of their squares. The states of maps contain the inverse depths.
        depth_states: f32 = DEPTH_STATES,
            if (request.inverse_depths && !request.maps) || request.inverse_squares;
        /// State of the pixels' surface maps, inverse depths included.
        map_states: f32 = MAP_STATES, if request.maps;
        /// Bit for each instance and warp tile that the instance reaches; [words, warp tiles].
        hits: u32 = HITS;
        /// Tile and index of each chunk that pixels reached; [chunks, 2].
        chunks: u32 = CHUNKS;
        /// Number of chunks; `[1]`.
        chunk_count: u32 = CHUNK_COUNT;
    }
}

impl<A: Source> BackwardSlots<A> {
    /// Reserves the buffers, but for triangles or without a backward pass.
    pub fn reserve_if_kept(
        source: &A,
        sizes: &ListSizes,
        request: &ViewRequest,
    ) -> Result<Option<Self>, A::Error> {
        let is_kept = request.backward() && request.records != Records::Triangles;
        is_kept.then(|| Self::reserve(source, sizes, request)).transpose()
    }
}

/// Returns the largest end of the arena while listing and drawing. The second buffer of the list is assumed to stay,
/// whichever buffer the sort ends in.
pub fn need(library: &Library, sizes: &ListSizes, request: &ViewRequest) -> u64 {
    let source = Replay::with(*library);
    let Ok(()) = replay(&source, sizes, request);
    source.reach()
}

fn replay(source: &Replay, sizes: &ListSizes, request: &ViewRequest) -> Result<(), Infallible> {
    let List { ranges, splat_from_instance, spare } = List::reserve(source, sizes)?;
    let mut counts = None;
    if let Some(counted) = sizes.counted {
        counts = Some(CountSlots::reserve(source, sizes)?);
        source.sum32(counted);
    }
    let keys = Keys::reserve(source, sizes)?;
    match sizes.key_width() {
        KeyWidth::Bits16 => source.sort16(sizes.instances, sizes.key_bits()),
        KeyWidth::Bits32 => source.sort32(sizes.instances, sizes.key_bits()),
    }
    drop((keys, counts, splat_from_instance));
    let kept = BackwardSlots::reserve_if_kept(source, sizes, request)?;
    drop((ranges, spare, kept));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::request::{Records, Use};
    use crate::math::Divisor;

    const REQUEST: ViewRequest = ViewRequest {
        records: Records::Ellipses,
        drawn_for: Use::Backward,
        inverse_depths: false,
        inverse_squares: false,
        maps: false,
        median: false,
        colors: None,
        divisor: Divisor::One,
    };

    #[test]
    fn a_list_takes_these_bytes() {
        let sizes = ListSizes::whole([50, 34], 1_000_000);
        assert_eq!((sizes.tile_count(), sizes.chunks_max()), (1700, 3906 + 1700));
        assert_eq!((sizes.key_width(), sizes.key_bits()), (KeyWidth::Bits16, 11));
        let source = Replay::default();
        let Ok(kept) = BackwardSlots::reserve_if_kept(&source, &sizes, &REQUEST);
        // Eight warp tiles per tile; the pixels of 3907 starts; words of 32 instances; chunks and their number.
        let hits = 4 * 8 * (31_250 + 1700 + 1);
        let expected = 4 * 8 * 1700 + 16 * 256 * 3907 + hits + 8 * 5606 + 4;
        assert_eq!(kept.map(|kept| kept.bytes()), Some(expected));
        // Inverse depths take a fifth more. Maps contain them and take as much as the colours.
        let more = |inverse_depths, maps| {
            let request = ViewRequest { inverse_depths, maps, ..REQUEST };
            let Ok(kept) = BackwardSlots::reserve_if_kept(&source, &sizes, &request);
            kept.map_or(0, |kept| kept.bytes()) - expected
        };
        assert_eq!([more(true, false), more(true, true)], [4 * 256 * 3907, 16 * 256 * 3907]);
    }

    #[test]
    fn many_tiles_take_longer_keys() {
        let sizes = ListSizes::whole([256, 257], 10);
        assert_eq!((sizes.key_width(), sizes.key_bits()), (KeyWidth::Bits32, 17));
        let short = ListSizes::whole([255, 257], 10);
        assert_eq!((short.key_width(), short.key_bits()), (KeyWidth::Bits16, 16));
    }

    #[test]
    fn fewer_tiles_take_no_more() {
        let of = |tiles| need(&Library::default(), &ListSizes::whole(tiles, 3_000_000), &REQUEST);
        let needs = [[256, 257], [50, 34], [16, 17], [15, 16], [3, 2]].map(of);
        assert!(needs.is_sorted_by(|more, less| more >= less), "{needs:?}");
    }
}

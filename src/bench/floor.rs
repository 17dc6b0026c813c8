//! Lower bounds of the memory traffic of the GPU's stages, if kernels touch every value once and caches do the rest.
//!
//! A stage that takes as long as a copy of as many bytes has no traffic left to save. A slower stage waits for
//! something else or moves more; a faster one fits the GPU's caches.

use crate::abi::{BLEND_PARTS, RECORD_WIDTH, SHORT_KEYS_MAX};
use crate::backend::{LANES, RowWords, Stage, Work};
use crate::memory::Bytes;

/// Bytes of a float and of a count.
const WORD: u64 = 4;
/// Bytes of a splat's record, and of its gradients. A kernel that reads two of a record's three quarters touches all
/// of its sectors, too.
const RECORD: u64 = RECORD_WIDTH as u64 * WORD;
const CENTRE: u64 = 3 * WORD;
/// Bytes of a splat's rectangle of tiles, of a tile's range and of a chunk's entry in the list.
const PAIR: u64 = 8;
const COLOR: u64 = 3 * WORD;
/// Bytes of the state of a warp tile's pixels before a chunk: colour and transmittance.
const STATE: u64 = LANES * 4 * WORD;
const DIGIT_BITS: u32 = 8;

pub(super) fn floor(stage: Stage, work: &Work) -> Bytes {
    Bytes(match stage {
        Stage::Project => project(work),
        Stage::Sort => sort(work),
        Stage::Bin => bin(work),
        Stage::BlendForward => blend_forward(work),
        Stage::Loss => loss(work),
        Stage::BlendBackward => blend_backward(work),
        Stage::Observe => observe(work),
        Stage::Step => step(work),
    })
}

/// Counts:
/// - reads of all centres, writes of every Gaussian's splat index;
/// - where there is a splat, reads of the other geometry and the colours, with the colours' moments if they are
///   behind, and of the lane block's step count;
/// - writes of each splat's record, rectangle, depth, index and number of instances.
fn project(work: &Work) -> u64 {
    let RowWords { geometry, sh, sh_moments, .. } = work.row_words;
    work.gaussians * (CENTRE + WORD)
        + work.rows_fetched * ((geometry + sh) * WORD).saturating_sub(CENTRE)
        + work.rows_late * sh_moments * WORD
        + work.lane_blocks_seen * WORD
        + work.visible * (RECORD + PAIR + 3 * WORD)
}

/// Counts:
/// - the sort of depths with splat indices;
/// - the sum over the instances: reads of splat indices and numbers, writes of first instances.
fn sort(work: &Work) -> u64 {
    radix_sort(work.visible, WORD, u32::BITS) + work.visible * 3 * WORD
}

/// Counts:
/// - reads of each splat's index, first instance, number, rectangle and record;
/// - writes of each instance's key and splat index, their sort, and another read of the keys;
/// - writes of each tile's range.
fn bin(work: &Work) -> u64 {
    let key = if work.tiles <= u64::from(SHORT_KEYS_MAX) { 2 } else { WORD };
    // The number after the last tile must fit, too.
    let bits = u64::BITS - work.tiles.leading_zeros();
    work.visible * (3 * WORD + PAIR + RECORD)
        + work.instances * (key + WORD + key)
        + radix_sort(work.instances, key, bits)
        + work.tiles * PAIR
}

/// Counts:
/// - reads of the tiles' ranges, of the splat indices of reached instances, and of the records of reached splats that
///   hit a warp tile;
/// - writes of the image;
/// - for the backward pass, writes of hits, states, the warp tiles' lengths and the list of chunks.
fn blend_forward(work: &Work) -> u64 {
    work.tiles * PAIR
        + work.instances_reached * WORD
        + work.splats_hit * RECORD
        + work.pixels * COLOR
        + work.hit_words * WORD
        + work.states * STATE
        + work.tiles * u64::from(BLEND_PARTS) * WORD
        + work.chunks * PAIR
}

/// Counts reads of the image and the photograph, without a mask, and writes of the image's gradient.
fn loss(work: &Work) -> u64 {
    work.pixels * (COLOR + 3 + COLOR)
}

/// Counts:
/// - writes of zeros to all splats' gradients;
/// - for each chunk, reads of the entry in the list, the tile's range and the warp tiles' lengths;
/// - reads of hits, states, image and gradient, of the splat indices of reached instances, and of the records of
///   reached splats that hit a warp tile;
/// - reads and writes of these splats' gradients.
fn blend_backward(work: &Work) -> u64 {
    work.visible * RECORD
        + work.chunks * (2 * PAIR + u64::from(BLEND_PARTS) * WORD)
        + work.hit_words * WORD
        + work.states * STATE
        + work.pixels * 2 * COLOR
        + work.instances_reached * WORD
        + work.splats_hit * 3 * RECORD
}

/// Counts:
/// - reads of a sector of each splat's record and of a sector of its gradients;
/// - reads and writes of the Gaussians' two statistics.
fn observe(work: &Work) -> u64 {
    const SECTOR: u64 = 32;
    work.visible * 2 * SECTOR + work.rows_fetched * 4 * WORD
}

/// Counts:
/// - reads of every Gaussian's splat index, reads and writes of its geometry and moments;
/// - in lane blocks with a splat, reads and writes of all colours and moments, and of the step count;
/// - reads of each splat's record and gradients.
///
/// The rare steps in which all colours catch up are left out, as they are of the median time.
fn step(work: &Work) -> u64 {
    const BOTH_WAYS: u64 = 2;
    let RowWords { geometry, geometry_moments, sh, sh_moments } = work.row_words;
    let rows_moved = work.lane_blocks_seen * LANES;
    work.gaussians * (WORD + (geometry + geometry_moments) * WORD * BOTH_WAYS)
        + rows_moved * (sh + sh_moments) * WORD * BOTH_WAYS
        + work.lane_blocks_seen * WORD * BOTH_WAYS
        + work.visible * 2 * RECORD
}

/// Counts a sort of `n` keys of `key` bytes and `bits` bits, with a value each: reads of all keys for the histograms,
/// then reads and writes of keys and values in each pass.
fn radix_sort(n: u64, key: u64, bits: u32) -> u64 {
    let passes = u64::from(bits.div_ceil(DIGIT_BITS));
    n * (key + passes * 2 * (key + WORD))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Gaussian of degree 3 in full precision, and in compact storage.
    const FULL: RowWords = RowWords { geometry: 11, geometry_moments: 22, sh: 48, sh_moments: 96 };
    const COMPACT: RowWords =
        RowWords { geometry: 11, geometry_moments: 6 + 11, sh: 24, sh_moments: 13 + 13 };

    /// Returns the bytes that each stage moves more for `work`. Stages without a change are left out.
    fn each(work: &Work) -> Vec<(Stage, u64)> {
        // Keys have two bits for two tiles and for three.
        let row_words = if work.row_words == RowWords::default() { FULL } else { work.row_words };
        let nothing = Work { tiles: 2, row_words, ..Work::default() };
        let sum = Work { tiles: nothing.tiles + work.tiles, row_words, ..*work };
        let added = |stage| (stage, floor(stage, &sum).0 - floor(stage, &nothing).0);
        Stage::ALL.map(added).into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }

    #[test]
    fn an_invisible_gaussian_reads_its_centre_and_moves_its_geometry() {
        let work = Work { gaussians: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 12 + 4), (Stage::Step, 4 + 11 * 3 * 4 * 2)]);
    }

    #[test]
    fn a_compact_model_moves_compact_rows() {
        let row_words = COMPACT;
        let work = Work { gaussians: 1, row_words, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 16), (Stage::Step, 4 + 28 * 4 * 2)]);
        let work = Work { lane_blocks_seen: 1, row_words, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 4), (Stage::Step, 32 * 50 * 4 * 2 + 8)]);
        let work = Work { rows_late: 1, row_words, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 26 * 4)]);
    }

    #[test]
    fn colours_move_in_whole_lane_blocks_and_are_read_by_sectors() {
        let work = Work { lane_blocks_seen: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 4), (Stage::Step, 32 * 1_152 + 8)]);
        let work = Work { rows_fetched: 8, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 8 * (32 + 192)), (Stage::Observe, 8 * 16)]);
        let work = Work { rows_late: 8, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 8 * 384)]);
    }

    #[test]
    fn a_splat_is_written_sorted_read_and_differentiated() {
        let work = Work { visible: 1, ..Work::default() };
        let expected = [
            (Stage::Project, 48 + 8 + 12),
            (Stage::Sort, 4 + 4 * 16 + 12),
            (Stage::Bin, 12 + 8 + 48),
            (Stage::BlendBackward, 48),
            (Stage::Observe, 64),
            (Stage::Step, 96),
        ];
        assert_eq!(each(&work), expected);
        let work = Work { splats_hit: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::BlendForward, 48), (Stage::BlendBackward, 144)]);
    }

    #[test]
    fn instances_are_sorted_by_as_many_bits_as_tiles_need() {
        let bytes = |tiles| {
            let [none, one] = [0, 1].map(|instances| {
                floor(Stage::Bin, &Work { tiles, instances, ..Work::default() }).0
            });
            one - none
        };
        // Writes, histograms, passes, ranges.
        assert_eq!(bytes(255), 6 + 2 + 12 + 2);
        assert_eq!(bytes(256), 6 + 2 + 2 * 12 + 2);
        assert_eq!(bytes(65_535), 6 + 2 + 2 * 12 + 2);
        assert_eq!(bytes(65_536), 8 + 4 + 3 * 16 + 4);
    }

    #[test]
    fn blending_reads_reached_instances_and_chunks() {
        let both = |bytes| vec![(Stage::BlendForward, bytes), (Stage::BlendBackward, bytes)];
        assert_eq!(each(&Work { instances_reached: 1, ..Work::default() }), both(4));
        assert_eq!(each(&Work { hit_words: 1, ..Work::default() }), both(4));
        assert_eq!(each(&Work { states: 1, ..Work::default() }), both(512));
        let work = Work { chunks: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::BlendForward, 8), (Stage::BlendBackward, 16 + 32)]);
        let work = Work { tiles: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Bin, 8), (Stage::BlendForward, 8 + 32)]);
        // An evaluation is arithmetic.
        assert_eq!(each(&Work { pairs_evaluated: 1, ..Work::default() }), []);
    }

    #[test]
    fn a_pixel_is_written_compared_and_differentiated() {
        let work = Work { pixels: 1, ..Work::default() };
        let expected =
            [(Stage::BlendForward, 12), (Stage::Loss, 12 + 3 + 12), (Stage::BlendBackward, 24)];
        assert_eq!(each(&work), expected);
    }
}

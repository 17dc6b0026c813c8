//! Lower bounds of the memory traffic of the GPU's stages, if kernels touch every value once and caches do the rest.
//!
//! A stage that takes as long as a copy of as many bytes has no traffic left to save. A slower stage waits for
//! something else or moves more; a faster one fits the GPU's caches.

use crate::abi::{BLEND_WARP_TILES, RECORD_WIDTH, SHORT_KEYS_MAX};
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
        + work.tiles * u64::from(BLEND_WARP_TILES) * WORD
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
        + work.chunks * (2 * PAIR + u64::from(BLEND_WARP_TILES) * WORD)
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
    fn each_count_moves_its_bytes() {
        use Stage::{Bin, BlendBackward, BlendForward, Loss, Observe, Project, Sort, Step};
        let none = Work::default();
        let compact = Work { row_words: COMPACT, ..none };
        let cases: &[(Work, &[(Stage, u64)])] = &[
            // An invisible Gaussian: its centre and geometry.
            (Work { gaussians: 1, ..none }, &[(Project, 12 + 4), (Step, 4 + 11 * 3 * 4 * 2)]),
            (Work { gaussians: 1, ..compact }, &[(Project, 16), (Step, 4 + 28 * 4 * 2)]),
            // Colours move in whole lane blocks and are read by sectors.
            (Work { lane_blocks_seen: 1, ..none }, &[(Project, 4), (Step, 32 * 1_152 + 8)]),
            (Work { lane_blocks_seen: 1, ..compact }, &[(Project, 4), (Step, 32 * 50 * 4 * 2 + 8)]),
            (Work { rows_late: 8, ..none }, &[(Project, 8 * 384)]),
            (Work { rows_late: 1, ..compact }, &[(Project, 26 * 4)]),
            (Work { rows_fetched: 8, ..none }, &[(Project, 8 * (32 + 192)), (Observe, 8 * 16)]),
            // A splat is written, sorted, read and differentiated.
            (
                Work { visible: 1, ..none },
                &[
                    (Project, 48 + 8 + 12),
                    (Sort, 4 + 4 * 16 + 12),
                    (Bin, 12 + 8 + 48),
                    (BlendBackward, 48),
                    (Observe, 64),
                    (Step, 96),
                ],
            ),
            (Work { splats_hit: 1, ..none }, &[(BlendForward, 48), (BlendBackward, 144)]),
            // Reached instances and chunks.
            (Work { instances_reached: 1, ..none }, &[(BlendForward, 4), (BlendBackward, 4)]),
            (Work { hit_words: 1, ..none }, &[(BlendForward, 4), (BlendBackward, 4)]),
            (Work { states: 1, ..none }, &[(BlendForward, 512), (BlendBackward, 512)]),
            (Work { chunks: 1, ..none }, &[(BlendForward, 8), (BlendBackward, 16 + 32)]),
            (Work { tiles: 1, ..none }, &[(Bin, 8), (BlendForward, 8 + 32)]),
            // An evaluation is arithmetic.
            (Work { pairs_evaluated: 1, ..none }, &[]),
            (
                Work { pixels: 1, ..none },
                &[(BlendForward, 12), (Loss, 12 + 3 + 12), (BlendBackward, 24)],
            ),
        ];
        for (work, expected) in cases {
            assert_eq!(each(work), *expected, "{work:?}");
        }
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
}

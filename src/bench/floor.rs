//! The least that a stage of the GPU moves: what its kernels read and write if each touches every
//! value once and caches do the rest.
//!
//! So a stage that takes as long as a copy of as many bytes has no memory traffic left to save; one
//! that takes longer waits for something else, or moves more. What fits the GPU's caches may take
//! less.

use crate::abi::{BLEND_PARTS, RECORD_WIDTH, SHORT_KEYS_MAX};
use crate::backend::{LANES, RowWords, Stage, Work};
use crate::memory::Bytes;

/// Bytes of a float and of a count.
const WORD: u64 = 4;
/// Bytes of a splat's record, and of its gradients. Kernels that read two of a record's three
/// quarters touch all of its sectors as well.
const RECORD: u64 = RECORD_WIDTH as u64 * WORD;
/// Bytes of a Gaussian's centre.
const CENTRE: u64 = 3 * WORD;
/// Bytes of a splat's rectangle of tiles, of a tile's range and of a chunk's entry in the list.
const PAIR: u64 = 8;
/// Bytes of a pixel's colour or its gradient.
const COLOR: u64 = 3 * WORD;
/// Bytes of a part's pixels' state before a chunk: colour and transmittance.
const STATE: u64 = LANES * 4 * WORD;
/// Bits that a pass of the sort takes.
const DIGIT_BITS: u32 = 8;

/// Bytes that a stage must move for a view.
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

/// - all centres are read, and every Gaussian's splat index is written;
/// - the rest of the geometry and the colours are read where there is a splat, with the colours'
///   moments where they are behind, and a lane block's count of steps;
/// - a splat's record, rectangle, depth, index and number of instances are written.
fn project(work: &Work) -> u64 {
    let RowWords { geometry, sh, sh_moments, .. } = work.row_words;
    work.gaussians * (CENTRE + WORD)
        + work.rows_fetched * ((geometry + sh) * WORD).saturating_sub(CENTRE)
        + work.rows_late * sh_moments * WORD
        + work.lane_blocks_seen * WORD
        + work.visible * (RECORD + PAIR + 3 * WORD)
}

/// - depths with splat indices go through the sort;
/// - the sum over the instances in that order reads splat indices and numbers and writes first instances.
fn sort(work: &Work) -> u64 {
    radix_sort(work.visible, WORD, u32::BITS) + work.visible * 3 * WORD
}

/// - of each splat the index, first instance, number, rectangle and record are read;
/// - each instance's key and splat index are written, go through the sort, and the keys are read again;
/// - each tile's range is written.
fn bin(work: &Work) -> u64 {
    let key = if work.tiles <= u64::from(SHORT_KEYS_MAX) { 2 } else { WORD };
    // The number behind the last tile has to fit as well.
    let bits = u64::BITS - work.tiles.leading_zeros();
    work.visible * (3 * WORD + PAIR + RECORD)
        + work.instances * (key + WORD + key)
        + radix_sort(work.instances, key, bits)
        + work.tiles * PAIR
}

/// - tiles' ranges are read, the splat indices of the instances that pixels got to, and the records of the
///   splats among them that reach a part;
/// - the image is written;
/// - for the backward pass hits, states, the parts' lengths and the list of chunks are written.
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

/// Image and photograph, without a mask, are read, and the image's gradient is written.
fn loss(work: &Work) -> u64 {
    work.pixels * (COLOR + 3 + COLOR)
}

/// - all splats' gradients become zero;
/// - of each chunk the entry in the list, its tile's range and its parts' lengths are read;
/// - hits, states, image and its gradient are read, the splat indices of the instances that pixels got to,
///   and the records of the splats among them that reach a part;
/// - these splats' gradients are read and written.
fn blend_backward(work: &Work) -> u64 {
    work.visible * RECORD
        + work.chunks * (2 * PAIR + u64::from(BLEND_PARTS) * WORD)
        + work.hit_words * WORD
        + work.states * STATE
        + work.pixels * 2 * COLOR
        + work.instances_reached * WORD
        + work.splats_hit * 3 * RECORD
}

/// - of each splat's record and gradients a value or two are read, which are a sector each;
/// - the Gaussians' two statistics are read and written.
fn observe(work: &Work) -> u64 {
    const SECTOR: u64 = 32;
    work.visible * 2 * SECTOR + work.rows_fetched * 4 * WORD
}

/// - the splat index of every Gaussian is read, its geometry and two moments are read and written;
/// - in lane blocks of which something is seen so are all colours, and the count of steps;
/// - each splat's record and gradients are read.
///
/// That now and then all colours catch up is left out, as it is of the median of the times.
fn step(work: &Work) -> u64 {
    const BOTH_WAYS: u64 = 2;
    let RowWords { geometry, geometry_moments, sh, sh_moments } = work.row_words;
    let rows_moved = work.lane_blocks_seen * LANES;
    work.gaussians * (WORD + (geometry + geometry_moments) * WORD * BOTH_WAYS)
        + rows_moved * (sh + sh_moments) * WORD * BOTH_WAYS
        + work.lane_blocks_seen * WORD * BOTH_WAYS
        + work.visible * 2 * RECORD
}

/// Keys of so many bytes, of which so many bits count, with a value each: all keys are read for
/// their histograms, then each pass reads and writes keys and values.
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

    /// The bytes that one more of something adds to each stage that it changes.
    fn each(work: &Work) -> Vec<(Stage, u64)> {
        // Two tiles have keys of two bits, three as well.
        let row_words = if work.row_words == RowWords::default() { FULL } else { work.row_words };
        let nothing = Work { tiles: 2, row_words, ..Work::default() };
        let sum = Work { tiles: nothing.tiles + work.tiles, row_words, ..*work };
        let added = |stage| (stage, floor(stage, &sum).0 - floor(stage, &nothing).0);
        Stage::ALL.map(added).into_iter().filter(|(_, bytes)| *bytes > 0).collect()
    }

    #[test]
    fn a_gaussian_that_is_not_seen_shows_its_centre_and_moves_its_geometry() {
        let work = Work { gaussians: 1, ..Work::default() };
        assert_eq!(each(&work), [(Stage::Project, 12 + 4), (Stage::Step, 4 + 11 * 3 * 4 * 2)]);
    }

    #[test]
    fn a_compact_model_moves_the_bytes_that_it_has() {
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
        // Written, histogram, passes, ranges.
        assert_eq!(bytes(255), 6 + 2 + 12 + 2);
        assert_eq!(bytes(256), 6 + 2 + 2 * 12 + 2);
        assert_eq!(bytes(65_535), 6 + 2 + 2 * 12 + 2);
        assert_eq!(bytes(65_536), 8 + 4 + 3 * 16 + 4);
    }

    #[test]
    fn blending_reads_what_pixels_got_to() {
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

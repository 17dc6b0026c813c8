//! Bytes of lists, and which of them take more.

use super::super::request::{Records, Use};
use super::*;
use crate::math::Divisor;

const WANTS: ViewRequest = ViewRequest {
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
    let Ok(kept) = BackwardSlots::reserve(&source, &sizes, &WANTS);
    // Eight parts a tile; the pixels of 3907 starts; words of 32 instances; chunks and their number.
    let hits = 4 * 8 * (31_250 + 1700 + 1);
    let expected = 4 * 8 * 1700 + 16 * 256 * 3907 + hits + 8 * 5606 + 4;
    assert_eq!(kept.map(|kept| kept.bytes()), Some(expected));
    // A fifth more with inverse depths, as much again with maps, which hold them.
    let more = |inverse_depths, maps| {
        let wants = ViewRequest { inverse_depths, maps, ..WANTS };
        let Ok(kept) = BackwardSlots::reserve(&source, &sizes, &wants);
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
    let of = |tiles| need(&Library::default(), &ListSizes::whole(tiles, 3_000_000), &WANTS);
    let needs = [[256, 257], [50, 34], [16, 17], [15, 16], [3, 2]].map(of);
    assert!(needs.is_sorted_by(|more, less| more >= less), "{needs:?}");
}

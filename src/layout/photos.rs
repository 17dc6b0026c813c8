//! Photographs on the device, 8 bits per value: resident while memory suffices, else in two upload buffers.

use super::placement::ALIGNMENT;
use super::slot::{ModelLen, StageLen};

slots! {
    ModelLen {
        pub RESIDENT_PHOTOS: u8 = "photographs", Photographs, ModelLen, 1,
            "photographs that stay on the GPU";
    }
    StageLen {
        pub PHOTOS_IN_TURN: u8 = "photographs in turn", Photographs, StageLen, 1,
            "photographs that are sent anew for each iteration";
        pub PHOTOS_ON_THEIR_WAY: u8 = "photographs on their way", Photographs, StageLen, 1,
            "photographs on their way to the GPU";
    }
}

/// Divisor of the memory that the model and the scratch leave: resident photographs take at most half, since the
/// model grows.
const SHARE_OF_WHAT_IS_LEFT: u64 = 2;

/// Returns the start of a photograph after one that ends at `end`.
pub fn photo_after(end: u64) -> u64 {
    end.next_multiple_of(ALIGNMENT)
}

/// Returns the bytes that all resident photographs may take of `left` free bytes.
pub fn fair_share(left: u64) -> u64 {
    left / SHARE_OF_WHAT_IS_LEFT
}

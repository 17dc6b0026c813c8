//! Photographs on the device: 8 bits a value, resident as long as there is room, else in two turns.

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

/// Photographs stay as long as all of them together take at most this part of what the model and the
/// scratch leave: half. The rest is for the model, which grows.
const SHARE_OF_WHAT_IS_LEFT: u64 = 2;

/// Where a photograph begins after others that end here.
pub fn photo_after(end: u64) -> u64 {
    end.next_multiple_of(ALIGNMENT)
}

/// What all photographs together may take of what nothing else holds.
pub fn fair_share(left: u64) -> u64 {
    left / SHARE_OF_WHAT_IS_LEFT
}

//! Fusing the depths of views into voxels.

use super::slot::{CallLen, Source, StageLen};
use crate::abi::{BRICK_VOXELS, BRICK_WIDTH, WEIGHED_WIDTH};

slots! {
    StageLen {
        pub BRICK_MARKS: u32 = "bricks in view", Surface, StageLen, 1,
            "where in the box views show surfaces";
        BRICKS: f32 = "bricks", Surface, StageLen, BRICK_WIDTH,
            "places of the voxels, and from where they are seen";
        VOXELS: u64 = "voxels", Surface, StageLen, BRICK_VOXELS,
            "the depths of views, fused";
    }
    CallLen {
        pub COUNTED_PIXELS: u8 = "counted pixels", Surface, CallLen, 1,
            "which pixels the mask leaves";
        pub WEIGHED_DEPTHS: f32 = "weighed depths", Surface, CallLen, WEIGHED_WIDTH,
            "how much the depth of each pixel counts";
    }
}

/// Bits of an element of the marks.
const MARKS: u64 = u32::BITS as u64;

/// Elements that the marks of a lattice of so many bricks take.
pub fn marks_len(bricks: [u32; 3]) -> u64 {
    let all = bricks.into_iter().map(u64::from).fold(1_u64, u64::saturating_mul);
    all.div_ceil(MARKS).max(1)
}

/// The bricks that views are fused in, and their voxels.
pub struct BrickSlots<A: Source> {
    /// [bricks, 21]
    pub bricks: A::Block<f32>,
    /// [bricks, 512]
    pub voxels: A::Block<u64>,
}

impl<A: Source> BrickSlots<A> {
    /// For so many bricks.
    pub fn reserve(source: &A, bricks: u64) -> Result<Self, A::Error> {
        // A buffer has one element at least.
        let bricks = bricks.max(1);
        Ok(Self { bricks: source.take(&BRICKS, &bricks)?, voxels: source.take(&VOXELS, &bricks)? })
    }
}

//! Fusing the depths of views into voxels.

use super::slot::{CallLen, Source, StageLen};
use crate::abi::{BRICK_VOXELS, BRICK_WIDTH, WEIGHED_WIDTH};

slots! {
    StageLen {
        pub BRICK_MARKS: u32 = "bricks in view", Surface, StageLen, 1,
            "where in the box views show surfaces";
        pub BRICKS: f32 = "bricks", Surface, StageLen, BRICK_WIDTH,
            "places of the voxels, and from where they are seen";
        pub VOXELS: u64 = "voxels", Surface, StageLen, BRICK_VOXELS,
            "the depths of views, fused";
    }
    CallLen {
        COUNTED_PIXELS: u8 = "counted pixels", Surface, CallLen, 1,
            "which pixels the mask leaves";
        WEIGHED_DEPTHS: f32 = "weighed depths", Surface, CallLen, WEIGHED_WIDTH,
            "how much the depth of each pixel counts";
    }
}

/// Bits of an element of the marks.
const MARKS: u64 = u32::BITS as u64;

/// Returns the number of elements of the marks of a lattice of bricks.
pub fn marks_len(bricks: [u32; 3]) -> u64 {
    let all = bricks.into_iter().map(u64::from).fold(1_u64, u64::saturating_mul);
    all.div_ceil(MARKS).max(1)
}

/// Buffers of the bricks that views are fused in, and of their voxels.
pub struct BrickSlots<A: Source> {
    /// [bricks, 21]
    pub bricks: A::Block<f32>,
    /// [bricks, 512]
    pub voxels: A::Block<u64>,
}

impl<A: Source> BrickSlots<A> {
    /// Reserves the buffers for this number of bricks.
    pub fn reserve(source: &A, bricks: u64) -> Result<Self, A::Error> {
        // A buffer has at least one element.
        let bricks = bricks.max(1);
        Ok(Self { bricks: source.take(&BRICKS, &bricks)?, voxels: source.take(&VOXELS, &bricks)? })
    }
}

/// Use of the depths of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepthUse {
    /// Finds the bricks that surfaces pass through.
    FindBricks,
    /// Fills the voxels of the bricks.
    Fuse,
}

/// Scratch beside the depths of a view that are fused.
pub struct DepthSlots<A: Source> {
    /// 1 in pixels that the mask keeps, if there is a mask; [height, width].
    pub counted: Option<A::Block<u8>>,
    /// Depths and their weights, if they are fused; [height, width, 2].
    pub weighed: Option<A::Block<f32>>,
}

impl<A: Source> DepthSlots<A> {
    /// Reserves the buffers for a view with this number of pixels.
    pub fn reserve(
        source: &A,
        pixels: u64,
        has_mask: bool,
        of_depths: DepthUse,
    ) -> Result<Self, A::Error> {
        // A buffer has at least one element.
        let pixels = pixels.max(1);
        let fuses = of_depths == DepthUse::Fuse;
        Ok(Self {
            counted: source.take_if(has_mask, &COUNTED_PIXELS, &pixels)?,
            weighed: source.take_if(fuses, &WEIGHED_DEPTHS, &pixels)?,
        })
    }
}

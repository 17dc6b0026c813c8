//! Of fusing the depths of views into voxels.

use super::{In, Out};

constants! {
    /// Threads in a block of each kernel; of `fuse_bricks` each has two of a brick's voxels.
    pub const FUSE_BLOCK: u32 = 256;
    /// Voxels along a side of a brick.
    pub const BRICK_SIDE: u32 = 8;
    /// Voxels of a brick.
    pub const BRICK_VOXELS: u32 = 512;
    /// Directions that a brick tells apart.
    pub const BRICK_DIRECTIONS: u32 = 6;
    /// Values of a brick: its place in bricks, and the unit vectors of its directions.
    pub const BRICK_WIDTH: u32 = 21;
    /// Values of a pixel that was weighed: its depth, 0 where it does not count, and its weight.
    pub const WEIGHED_WIDTH: u32 = 2;
    /// The weight of a pixel that looks along its surface.
    pub const GRAZING_WEIGHT: f32 = 0.05;
    /// The contracted radius beyond which nothing is kept.
    pub const FARTHEST: f32 = 1.95;
    /// Steps of a voxel's distance of 1.
    pub const DISTANCE_STEPS: f32 = 32767.0;
    /// The least weight that a voxel keeps.
    pub const VOXEL_WEIGHT_MIN: f32 = 1.0 / 16384.0;
    /// The largest.
    pub const VOXEL_WEIGHT_MAX: f32 = 65504.0;
}

abi! {
    /// A lattice of voxels, and a camera that looks at it. Places are offsets from the lattice's origin along
    /// the world's axes, world units: from the first node of a box, or from the centre of contracted space.
    pub struct LatticeView {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// The origin in camera axes.
        pub origin_cam: [f32; 3],
        /// Where the camera stands.
        pub eye: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Side of a voxel: world units in a box, units of contracted space in that.
        pub voxel: f32,
        /// The distance beyond which distances are not told apart, in the same.
        pub truncation: f32,
        /// World units a unit of contracted space near its centre; 0 in a box.
        pub radius: f32,
        /// Nodes along each axis.
        pub nodes: [u32; 3],
    }

    /// `mark_bricks`: which bricks lie near what a view shows.
    pub struct MarkBricksArgs<'a> {
        /// [h, w]; not above 0 where there is none.
        pub depths: In<'a, f32>,
        /// [h, w]: 0 where a pixel does not count; or null.
        pub mask: In<'a, u8>,
        /// A bit a brick of the lattice, x fastest; bits are set.
        pub marks: Out<'a, u32>,
        /// The lattice, and what sees it.
        pub view: LatticeView,
        /// Bricks along each axis.
        pub bricks: [u32; 3],
        /// Pixels on to the next that is looked at.
        pub stride: u32,
        /// Pixels of a row that are looked at.
        pub columns: u32,
        /// Pixels that are looked at.
        pub count: u32,
        /// Voxels around a place whose bricks it calls.
        pub margin: f32,
    }

    /// `weigh_pixels`: how much each pixel's depth counts.
    pub struct WeighPixelsArgs<'a> {
        /// [h, w]; not above 0 where there is none.
        pub depths: In<'a, f32>,
        /// [h, w]: 0 where a pixel does not count; or null.
        pub mask: In<'a, u8>,
        /// [h, w, 2]
        pub weighed: Out<'a, f32>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
    }

    /// `fuse_bricks`: a view is taken into the mean of the voxels in its sight.
    pub struct FuseBricksArgs<'a> {
        /// [bricks, 21]
        pub bricks: In<'a, f32>,
        /// [h, w, 2]
        pub weighed: In<'a, f32>,
        /// Colours on black; [h, w, 3].
        pub image: In<'a, f32>,
        /// Of their last values the opacity is taken; [h, w, 4].
        pub maps: In<'a, f32>,
        /// [bricks, 512], x fastest: distance in steps and half-precision weight, then the colour and what
        /// is known of views.
        pub voxels: Out<'a, u64>,
        /// The lattice, and what sees it.
        pub view: LatticeView,
        /// Depth up to which a pixel counts in full, world units.
        pub near: f32,
    }
}

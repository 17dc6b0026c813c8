//! Arguments of the fusion of depth maps into voxels.

use super::{In, Out};

constants! {
    /// Threads per block; in `fuse_bricks` each thread has two voxels of a brick.
    pub const FUSE_BLOCK: u32 = 256;
    /// Voxels along a side of a brick.
    pub const BRICK_SIDE: u32 = 8;
    /// Voxels of a brick.
    pub const BRICK_VOXELS: u32 = 512;
    /// Number of directions of a brick.
    pub const BRICK_DIRECTIONS: u32 = 6;
    /// Values per brick: its position in bricks, and the unit vectors of its directions.
    pub const BRICK_WIDTH: u32 = 21;
    /// Values per weighted pixel: its depth (0 for an excluded pixel) and its weight.
    pub const WEIGHED_WIDTH: u32 = 2;
    /// Weight of a pixel whose ray grazes the surface.
    pub const GRAZING_WEIGHT: f32 = 0.05;
    /// Largest contracted radius of a voxel.
    pub const FARTHEST: f32 = 1.95;
    /// Quantisation steps of a voxel's distance of 1.
    pub const DISTANCE_STEPS: f32 = 32767.0;
    /// Smallest weight of a voxel.
    pub const VOXEL_WEIGHT_MIN: f32 = 1.0 / 16384.0;
    /// Largest weight of a voxel.
    pub const VOXEL_WEIGHT_MAX: f32 = 65504.0;
}

abi! {
    /// A lattice of voxels and a camera. Positions are offsets from the lattice's origin along the world's axes,
    /// world units: from the first node of a box, or from the centre of contracted space.
    pub struct LatticeView {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// The origin in camera axes.
        pub origin_cam: [f32; 3],
        /// Position of the camera.
        pub eye: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Side of a voxel: world units in a box, units of contracted space otherwise.
        pub voxel: f32,
        /// Truncation distance, in the unit of `voxel`.
        pub truncation: f32,
        /// World units per unit of contracted space near its centre; 0 for a box.
        pub radius: f32,
        /// Nodes along each axis.
        pub nodes: [u32; 3],
    }

    /// `mark_bricks`: marks bricks near a view's surface.
    pub struct MarkBricksArgs<'a> {
        /// [h, w]; a pixel without a depth has none above 0.
        pub depths: In<'a, f32>,
        /// [h, w]: 0 for an excluded pixel; or null.
        pub mask: In<'a, u8>,
        /// One bit per brick of the lattice, x fastest; bits are only set.
        pub marks: Out<'a, u32>,
        /// Lattice and camera.
        pub view: LatticeView,
        /// Bricks along each axis.
        pub bricks: [u32; 3],
        /// Distance between sampled pixels, px.
        pub stride: u32,
        /// Sampled pixels per row.
        pub columns: u32,
        /// Number of sampled pixels.
        pub count: u32,
        /// Margin around a point whose bricks are marked, voxels.
        pub margin: f32,
    }

    /// `weigh_pixels`: computes the weight of each pixel's depth.
    pub struct WeighPixelsArgs<'a> {
        /// [h, w]; a pixel without a depth has none above 0.
        pub depths: In<'a, f32>,
        /// [h, w]: 0 for an excluded pixel; or null.
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

    /// `fuse_bricks`: averages a view into the voxels that it sees.
    pub struct FuseBricksArgs<'a> {
        /// [bricks, 21]
        pub bricks: In<'a, f32>,
        /// [h, w, 2]
        pub weighed: In<'a, f32>,
        /// Colours on black; [h, w, 3].
        pub image: In<'a, f32>,
        /// [h, w, 4], the last value being the opacity.
        pub maps: In<'a, f32>,
        /// [bricks, 512], x fastest: quantised distance and half-precision weight, then the colour, 2 bits for the
        /// number of views (up to 3), and a bit per direction from which the voxel is seen to be empty.
        pub voxels: Out<'a, u64>,
        /// Lattice and camera.
        pub view: LatticeView,
        /// Depth up to which a pixel has its full weight, world units.
        pub near: f32,
    }
}

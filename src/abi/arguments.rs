//! The constants and structs that kernels and host share.

use super::Out;

constants! {
    /// Width and height of a tile in pixels.
    pub const TILE: u32 = 16;
    /// Threads in a block of `fill`.
    pub const FILL_BLOCK: u32 = 256;
}

abi! {
    /// A view as the kernels take it.
    pub struct Camera {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// Translation from world to camera.
        pub translation: [f32; 3],
        /// Where the camera stands.
        pub centre_world: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Where x/z and y/z are clamped before the projection's Jacobian: low x, low y, high x,
        /// high y.
        pub guard: [f32; 4],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row and in a column.
        pub tiles: [u32; 2],
    }

    /// `fill`: sets values.
    pub struct FillArgs<'a> {
        /// [n]
        pub values: Out<'a, u32>,
        /// How many.
        pub n: u64,
        /// What each becomes.
        pub value: u32,
        /// No meaning: fills up to the pointer's alignment.
        pub reserved: u32,
    }
}

//! Of photographs that are made smaller.

use super::{In, Out};

constants! {
    /// Threads in a block of `shrink`: one per pixel of the smaller photograph.
    pub const SHRINK_BLOCK: u32 = 256;
}

abi! {
    /// `shrink`: means over squares of pixels.
    pub struct ShrinkArgs<'a> {
        /// [full height, full width, 3]
        pub rgb: In<'a, u8>,
        /// [full height, full width], 0 where a pixel does not count; or null.
        pub mask: In<'a, u8>,
        /// Inverse depths in steps, [full height, full width]; or null.
        pub depths: In<'a, u16>,
        /// x, y and z of normals times 127, [full height, full width, 3]; or null.
        pub normals: In<'a, i8>,
        /// [h, w, 3]
        pub small_rgb: Out<'a, u8>,
        /// [h, w]; null where `mask` is.
        pub small_mask: Out<'a, u8>,
        /// [h, w]; null where `depths` is.
        pub small_depths: Out<'a, u16>,
        /// [h, w, 3]; null where `normals` is.
        pub small_normals: Out<'a, i8>,
        /// Width and height of the smaller photograph, pixels.
        pub size: [u32; 2],
        /// Width of the photograph in pixels.
        pub full_width: u32,
        /// Pixels along each axis that become one.
        pub divisor: u32,
    }
}

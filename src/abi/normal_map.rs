//! Arguments of the kernel of `normal_map`.

use super::{In, Out};

abi! {
    /// `compare_normal_map`: the normals of the drawn inverse depths against those of the photograph's map,
    /// and the gradient of the inverse depths.
    pub struct NormalMapArgs<'a> {
        /// [h, w]
        pub inverse_depths: In<'a, f32>,
        /// x, y and z times 127 in camera axes, [h, w, 3]; short where a pixel has none.
        pub target: In<'a, i8>,
        /// The photograph's, [h, w], 0 where it excludes a pixel; or null.
        pub mask: In<'a, u8>,
        /// Added to; [h, w].
        pub d_inverse_depths: Out<'a, f32>,
        /// One; added to: 1 - cos of the angle between the normals.
        pub sum: Out<'a, f64>,
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Gradient of what a pixel adds.
        pub d_mean: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

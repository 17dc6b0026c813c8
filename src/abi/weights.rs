//! Of how much Gaussians show in the views.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `weights`.
    pub const WEIGHTS_BLOCK: u32 = 256;
}

abi! {
    /// `whiten`: makes all splats white.
    pub struct WhitenArgs<'a> {
        /// [visible, record]
        pub splats: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Floats of a record of a splat, and of its gradients.
        pub record_width: u32,
    }

    /// `add_weights`: adds a view's blend weights.
    pub struct AddWeightsArgs<'a> {
        /// Index of each Gaussian's splat; [n].
        pub splat_from_gaussian: In<'a, u32>,
        /// `SplatGradient` of each splat; [visible, record].
        pub gradients: In<'a, f32>,
        /// [n]
        pub weights: Out<'a, f32>,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Floats of a splat's gradients.
        pub record_width: u32,
    }
}

//! Splats on their way between ranks.

use super::Out;
use super::view::TileRect;

constants! {
    /// Threads in a block of the kernels of `ranks`.
    pub const RANKS_BLOCK: u32 = 256;
}

abi! {
    /// `unpack_splats`: makes of splats that have come what `project_fwd` leaves.
    pub struct UnpackSplatsArgs<'a> {
        /// [capacity, record]
        pub splats: Out<'a, f32>,
        /// `[capacity]`
        pub tiles: Out<'a, TileRect>,
        /// `[capacity]`
        pub depth_keys: Out<'a, u32>,
        /// `[capacity]`
        pub splat_indices: Out<'a, u32>,
        /// `[capacity]`
        pub instance_counts: Out<'a, u32>,
        /// The first of them.
        pub first: u32,
        /// Behind the last.
        pub end: u32,
    }
}

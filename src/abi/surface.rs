//! Of the terms that have Gaussians lie on surfaces.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `surface`.
    pub const SURFACE_BLOCK: u32 = 128;
    /// Floats of a Gaussian's row of gradients: those of its geometry, and one that stays 0, so that
    /// rows are whole vectors.
    pub const SURFACE_WIDTH: u32 = 12;
}

abi! {
    /// Sums of the terms over Gaussians or samples.
    pub struct SurfaceSums {
        /// Of entropies of opacities, nats.
        pub entropy: f64,
        /// Of absolute differences of densities.
        pub density: f64,
        /// Of squared differences of normals.
        pub normal: f64,
    }

    /// `count_seen` and `list_seen`: the Gaussians that a view sees, in the order of their rows.
    pub struct SeenArgs<'a> {
        /// Slot of each Gaussian's splat; `[n]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// How many of each lane block are seen, of `count_seen` only; [lane blocks].
        pub counts: Out<'a, u32>,
        /// How many are seen before each lane block, of `list_seen` only; [lane blocks].
        pub firsts: In<'a, u32>,
        /// What is seen, of `list_seen` only; `[seen]`.
        pub rows: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// How many of them are seen.
        pub seen: u32,
    }

    /// `regularise_entropy`: that of the opacities of the Gaussians that a view sees.
    pub struct EntropyArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Which Gaussians are seen; `[seen]`.
        pub rows: In<'a, u32>,
        /// Added to; [n, 12].
        pub d_geometry: Out<'a, f32>,
        /// Added to.
        pub sums: Out<'a, SurfaceSums>,
        /// How many are seen.
        pub seen: u32,
        /// Gradient of each entropy.
        pub d_entropy: f32,
    }

    /// `regularise_16` and `regularise_32`: density and normals at samples of the surface.
    pub struct RegulariseArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Which Gaussians are seen; `[seen]`.
        pub rows: In<'a, u32>,
        /// Each Gaussian's neighbours; [n, `list_len`].
        pub near: In<'a, u32>,
        /// Added to; [n, 12].
        pub d_geometry: Out<'a, f32>,
        /// Added to.
        pub sums: Out<'a, SurfaceSums>,
        /// Of the stream that draws Gaussians.
        pub key: u64,
        /// Of the stream that draws places in them.
        pub normal_key: u64,
        /// How many Gaussians are seen, at least one.
        pub seen: u32,
        /// Neighbours in a list, at most as many as a sample has lanes.
        pub list_len: u32,
        /// Samples.
        pub samples: u32,
        /// Gradient of each absolute difference of densities; 0 where they are not compared.
        pub d_density: f32,
        /// Gradient of each squared difference of normals; 0 where they are not compared.
        pub d_normal: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

//! Of the terms that have Gaussians lie on surfaces.

use super::{In, Out, ViewCamera};

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
        /// Of absolute differences of distances, in their unit.
        pub sdf: f64,
        /// Of squared differences of normals.
        pub normal: f64,
    }

    /// `count_seen` and `list_seen`: the Gaussians that a view sees, in the order of their rows.
    pub struct SeenArgs<'a> {
        /// Index of each Gaussian's splat; `[n]`.
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

    /// `find_farthest` and `show_depths`: the depths that a view shows.
    pub struct ShowArgs<'a> {
        /// [visible, 12], of `find_farthest` only.
        pub splats: In<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity. Of `show_depths` only.
        pub surface: In<'a, f32>,
        /// One: the bits of the depth of the farthest splat, 0 at first.
        pub farthest: Out<'a, u32>,
        /// Depths over that one, of `show_depths` only; [h, w].
        pub depths: Out<'a, f32>,
        /// Splats.
        pub visible: u32,
        /// Pixels.
        pub pixels: u32,
    }

    /// `count_near` and `list_near`: the Gaussians that a view sees near the surface that it shows, in
    /// the order of their rows.
    pub struct NearArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Index of each Gaussian's splat; `[n]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [h, w]
        pub depths: In<'a, f32>,
        /// Which of each lane block they are, a bit each: `list_near` takes them as `count_near` found
        /// them; [lane blocks].
        pub masks: Out<'a, u32>,
        /// How many of each lane block they are, of `count_near` only; [lane blocks].
        pub counts: Out<'a, u32>,
        /// How many they are before each lane block, of `list_near` only; [lane blocks].
        pub firsts: In<'a, u32>,
        /// They, of `list_near` only; `[seen]`, of which the first `total` are filled.
        pub rows: Out<'a, u32>,
        /// How many they are, of `list_near` only; one.
        pub total: Out<'a, u32>,
        /// The view.
        pub camera: ViewCamera,
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

    /// `regularise_16` and `regularise_32`: density and normals at samples of the surface. The same with
    /// distances: `regularise_shown_16` and `regularise_shown_32`, and the gradient of the depths that
    /// the view shows: `compare_shown_16` and `compare_shown_32`.
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
        /// Depths that the view shows, where distances are compared; [h, w].
        pub depths: In<'a, f32>,
        /// One: the depth of the farthest splat, of `compare_shown` only.
        pub farthest: In<'a, u32>,
        /// Added to, of `compare_shown` only; [h, w, 4]: of depth, and last of the final
        /// transmittance.
        pub d_surface: Out<'a, f32>,
        /// One: how many Gaussians samples are taken of, where distances are compared.
        pub total: In<'a, u32>,
        /// Of the stream that draws Gaussians.
        pub key: u64,
        /// Of the stream that draws places in them.
        pub normal_key: u64,
        /// The view.
        pub camera: ViewCamera,
        /// How many Gaussians samples are taken of, at least one; where distances are compared `total`
        /// says it.
        pub seen: u32,
        /// Neighbours in a list, at most as many as a sample has lanes.
        pub list_len: u32,
        /// Samples.
        pub samples: u32,
        /// Gradient of each absolute difference of densities; 0 where they are not compared.
        pub d_density: f32,
        /// Gradient of each squared difference of normals; 0 where they are not compared.
        pub d_normal: f32,
        /// Gradient of each absolute difference of distances.
        pub d_sdf: f32,
        /// What distances are divided by, world units.
        pub sdf_unit: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

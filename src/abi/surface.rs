//! Arguments of the terms about surfaces, of the search for nearest centres, and of Gaussians bound to a mesh.

use super::{In, Out, ViewCamera};

constants! {
    /// Threads in a block of the kernels of `surface`.
    pub const SURFACE_BLOCK: u32 = 128;
    /// Floats of a Gaussian's row of gradients: those of its geometry, and one that stays 0, so that
    /// rows are whole vectors.
    pub const SURFACE_WIDTH: u32 = 12;

    /// Threads in a block of the kernels that build the tree of `neighbours`.
    pub const NEIGHBOURS_BLOCK: u32 = 256;
    /// Threads in a block of those that search it.
    pub const NEAREST_BLOCK: u32 = 128;
    /// Levels of boxes in a tree, at most: 32 boxes to the one above, and as many centres as 32 bits
    /// number.
    pub const TREE_LEVELS: u32 = 6;
    /// Numbers of a box: its least corner and, as bits, the least row in it; its greatest corner, and
    /// one that fills up.
    pub const BOX_WIDTH: u32 = 8;
    /// Numbers of a centre in the order of the leaves: three coordinates and, as bits, its row.
    pub const PLACED_WIDTH: u32 = 4;
    /// Numbers of a segment's extent: for each axis two that order as the least coordinate does and,
    /// backwards, as the greatest.
    pub const EXTENT_WIDTH: u32 = 6;
    /// In place of a row: there is none.
    pub const NO_ROW: u32 = 4294967295;

    /// Threads in a block of the kernels of `bind`.
    pub const BIND_BLOCK: u32 = 128;
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

    /// `number_rows`, `measure_segments` and `split_keys`: every segment of the order is to be halved
    /// across its widest side.
    pub struct SplitArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, `width`, 32]
        pub table: In<'a, f32>,
        /// The order so far, [n]; `number_rows` writes 0, 1, 2, ...
        pub row_from_place: Out<'a, u32>,
        /// [segments, 6], all bits one in the beginning.
        pub extents: Out<'a, u32>,
        /// The segment, and behind it how far along its widest side the centre lies; [n]
        pub keys: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// A segment has 2 to this power centres; the last may have fewer.
        pub segment_shift: u32,
        /// Bits of a key behind the segment, at most 24.
        pub along_bits: u32,
        /// Values of a row of the table.
        pub width: u32,
    }

    /// `place_centres`: the leaves of the tree.
    pub struct PlaceArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, `width`, 32]
        pub table: In<'a, f32>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// [32 leaves, 4]
        pub placed: Out<'a, f32>,
        /// [boxes, 8], of which the first are the leaves'.
        pub boxes: Out<'a, f32>,
        /// Gaussians.
        pub n: u32,
        /// Values of a row of the table.
        pub width: u32,
    }

    /// `join_boxes`: a level of boxes from the one below.
    pub struct JoinArgs<'a> {
        /// [boxes, 8]
        pub boxes: Out<'a, f32>,
        /// First box of the level below.
        pub first_below: u32,
        /// How many it has.
        pub below: u32,
        /// First box of the level.
        pub first: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `nearest_16` and `nearest_32`: the nearest centres of all.
    pub struct NearestArgs<'a> {
        /// [32 leaves, 4]
        pub placed: In<'a, f32>,
        /// [boxes, 8]
        pub boxes: In<'a, f32>,
        /// [n, `count`]
        pub near: Out<'a, u32>,
        /// First box of each level.
        pub first_box: [u32; 6],
        /// Boxes of each level, the leaves first.
        pub boxes_of: [u32; 6],
        /// Levels.
        pub levels: u32,
        /// Neighbours of a Gaussian.
        pub count: u32,
    }

    /// `bind_place`, `bind_forms` and `bind_vertices`: where Gaussians are on their triangles, and the
    /// step of what is learned of these.
    pub struct BindArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Gradients of the geometry at first, then of the triangles' corners, 4 values each;
        /// [gaussians, 12]. Null for `bind_place`.
        pub d_geometry: Out<'a, f32>,
        /// Vertices of the faces; [faces, 3].
        pub faces: In<'a, u32>,
        /// Ends of an edge of two faces, and the third vertices of these; [hinges, 4].
        pub hinges: In<'a, u32>,
        /// Where the corners of each vertex begin; [vertices + 1].
        pub corner_starts: In<'a, u32>,
        /// Numbers `3 f + i` of corners; [faces, 3].
        pub corner_numbers: In<'a, u32>,
        /// Where the hinges of each vertex begin; [vertices + 1].
        pub hinge_starts: In<'a, u32>,
        /// Numbers `4 h + i` of places in hinges; [hinges, 4].
        pub hinge_numbers: In<'a, u32>,
        /// World units; [vertices, 3].
        pub vertices: In<'a, f32>,
        /// The same after the step.
        pub next_vertices: Out<'a, f32>,
        /// First moments; [vertices, 3].
        pub vertices_first: Out<'a, f32>,
        /// Second moments; [vertices, 3].
        pub vertices_second: Out<'a, f32>,
        /// Log-scales in the plane and complex numbers; [gaussians, 4].
        pub forms: Out<'a, f32>,
        /// First moments; [gaussians, 4].
        pub forms_first: Out<'a, f32>,
        /// Second moments; [gaussians, 4].
        pub forms_second: Out<'a, f32>,
        /// As in `AdamArgs`.
        pub fault: Out<'a, u64>,
        /// Rate of the vertices over the first moment's bias correction.
        pub vertex_rate: f32,
        /// The same of the log-scales.
        pub log_scale_rate: f32,
        /// The same of the complex numbers.
        pub turn_rate: f32,
        /// Decay of the first moment.
        pub beta_1: f32,
        /// Decay of the second moment.
        pub beta_2: f32,
        /// 1 - `beta_1`, rounded once.
        pub one_less_beta_1: f32,
        /// 1 - `beta_2`, rounded once.
        pub one_less_beta_2: f32,
        /// 1 / √(bias correction of the second moment).
        pub inverse_root_correction: f32,
        /// Added to the root.
        pub epsilon: f32,
        /// Weight of each hinge in the loss.
        pub per_hinge: f32,
        /// Logarithm of the scale along the normals.
        pub log_thickness: f32,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Of which so many lie on each face.
        pub each: u32,
        /// Number of vertices.
        pub vertices_len: u32,
    }
}

/// The most neighbours of a Gaussian: a warp on a GPU has one lane for each.
pub const MOST_NEIGHBOURS: u32 = 32;

//! Arguments of the terms about surfaces, of the searches for nearest centres and for nearest rows of values, and of
//! Gaussians bound to a mesh.

use super::{In, Out, ViewCamera};

constants! {
    /// Threads per block of the kernels of `surface`.
    pub const SURFACE_BLOCK: u32 = 128;
    /// Floats per row of gradients: 11 of the geometry and one unused, so that rows are whole vectors.
    pub const SURFACE_WIDTH: u32 = 12;

    /// Threads per block of the kernels that build the tree of `neighbours`.
    pub const NEIGHBOURS_BLOCK: u32 = 256;
    /// Threads per block of the kernels that search the tree.
    pub const NEAREST_BLOCK: u32 = 128;
    /// Largest number of levels of a tree: each has a 32nd of the boxes below, for up to 2^32 centres.
    pub const TREE_LEVELS: u32 = 6;
    /// Numbers per box: smallest corner and smallest row (as bits), largest corner and padding.
    pub const BOX_WIDTH: u32 = 8;
    /// Numbers per centre in the leaves' order: three coordinates and the row (as bits).
    pub const PLACED_WIDTH: u32 = 4;
    /// Numbers per segment's extent: for each axis one that sorts like the smallest coordinate and one that sorts
    /// inversely like the largest.
    pub const EXTENT_WIDTH: u32 = 6;
    /// Marks a missing row.
    pub const NO_ROW: u32 = 4294967295;

    /// Threads per block of the kernels of `bind`.
    pub const BIND_BLOCK: u32 = 128;

    /// Threads per block of the searches: one per row, or per row and cell.
    pub const PALETTE_BLOCK: u32 = 128;
    /// Largest number of cells that a row is searched in.
    pub const PALETTE_CELLS: u32 = 8;
    /// Largest number of values per row.
    pub const PALETTE_WIDTH: u32 = 48;
}

abi! {
    /// Sums of the surface terms over Gaussians or samples.
    pub struct SurfaceSums {
        /// Sum of the entropies of opacities, nats.
        pub entropy: f64,
        /// Sum of absolute differences of densities.
        pub density: f64,
        /// Sum of absolute differences of distances, in units of `sdf_unit`.
        pub sdf: f64,
        /// Sum of squared differences of normals.
        pub normal: f64,
    }

    /// `count_seen` and `list_seen`: list a view's visible Gaussians, in the order of rows.
    pub struct SeenArgs<'a> {
        /// Index of each Gaussian's splat; `[n]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// Number of visible Gaussians per lane block, for `count_seen` only; [lane blocks].
        pub counts: Out<'a, u32>,
        /// Number of visible Gaussians before each lane block, for `list_seen` only; [lane blocks].
        pub firsts: In<'a, u32>,
        /// Visible rows, for `list_seen` only; `[seen]`.
        pub rows: Out<'a, u32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Number of visible Gaussians.
        pub seen: u32,
    }

    /// `find_farthest` and `show_depths`: compute the depths that a view shows.
    pub struct ShowArgs<'a> {
        /// [visible, 12], for `find_farthest` only.
        pub splats: In<'a, f32>,
        /// [h, w, 4]: depth, x and y of the normal, opacity. For `show_depths` only.
        pub surface: In<'a, f32>,
        /// Bits of the largest depth of a splat, initially 0; one element.
        pub farthest: Out<'a, u32>,
        /// Depths over the largest depth, for `show_depths` only; [h, w].
        pub depths: Out<'a, f32>,
        /// Number of splats.
        pub visible: u32,
        /// Number of pixels.
        pub pixels: u32,
    }

    /// `count_near` and `list_near`: list the visible Gaussians near the surface that a view shows, in the order of
    /// rows.
    pub struct NearArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Index of each Gaussian's splat; `[n]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [h, w]
        pub depths: In<'a, f32>,
        /// Bits of the Gaussians near the surface per lane block, from `count_near` to `list_near`; [lane blocks].
        pub masks: Out<'a, u32>,
        /// Number of them per lane block, for `count_near` only; [lane blocks].
        pub counts: Out<'a, u32>,
        /// Number of them before each lane block, for `list_near` only; [lane blocks].
        pub firsts: In<'a, u32>,
        /// Rows near the surface, for `list_near` only; `[seen]`. The first `total` are written.
        pub rows: Out<'a, u32>,
        /// Number of rows near the surface, for `list_near` only; one element.
        pub total: Out<'a, u32>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of Gaussians.
        pub n: u32,
        /// Number of visible Gaussians.
        pub seen: u32,
    }

    /// `regularise_entropy`: the entropy of the opacities of the visible Gaussians.
    pub struct EntropyArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Rows of the visible Gaussians; `[seen]`.
        pub rows: In<'a, u32>,
        /// Added to; [n, 12].
        pub d_geometry: Out<'a, f32>,
        /// Added to.
        pub sums: Out<'a, SurfaceSums>,
        /// Number of visible Gaussians.
        pub seen: u32,
        /// Gradient of each entropy.
        pub d_entropy: f32,
    }

    /// `regularise_16` and `regularise_32`: density and normals at samples of the surface. `regularise_shown_16`
    /// and `regularise_shown_32`: with distances. `compare_shown_16` and `compare_shown_32`: with the gradient of
    /// the depths that the view shows.
    pub struct RegulariseArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Rows of the visible Gaussians; `[seen]`.
        pub rows: In<'a, u32>,
        /// Each Gaussian's neighbours; [n, `list_len`].
        pub near: In<'a, u32>,
        /// Added to; [n, 12].
        pub d_geometry: Out<'a, f32>,
        /// Added to.
        pub sums: Out<'a, SurfaceSums>,
        /// Depths that the view shows, if distances are compared; [h, w].
        pub depths: In<'a, f32>,
        /// Depth of the farthest splat, for `compare_shown` only; one element.
        pub farthest: In<'a, u32>,
        /// Gradients of depth and, last, final transmittance, for `compare_shown` only; [h, w, 4]. Added to.
        pub d_surface: Out<'a, f32>,
        /// Number of sampled Gaussians, if distances are compared; one element.
        pub total: In<'a, u32>,
        /// Key of the stream that draws Gaussians.
        pub key: u64,
        /// Key of the stream that draws points in Gaussians.
        pub normal_key: u64,
        /// The view.
        pub camera: ViewCamera,
        /// Number of sampled Gaussians, at least one, if distances are not compared.
        pub seen: u32,
        /// Neighbours per list, at most the lanes of a sample.
        pub list_len: u32,
        /// Number of samples.
        pub samples: u32,
        /// Gradient of each absolute difference of densities; 0 if they are not compared.
        pub d_density: f32,
        /// Gradient of each squared difference of normals; 0 if they are not compared.
        pub d_normal: f32,
        /// Gradient of each absolute difference of distances.
        pub d_sdf: f32,
        /// Divisor of distances, world units.
        pub sdf_unit: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `number_rows`, `measure_segments` and `split_keys`: prepare the halving of every segment across its widest
    /// side.
    pub struct SplitArgs<'a> {
        /// Rows that start with the centre; [lane blocks, `width`, 32].
        pub table: In<'a, f32>,
        /// Current order; [n]. `number_rows` writes 0, 1, 2, ...
        pub row_from_place: Out<'a, u32>,
        /// [segments, 6], initially with all bits set.
        pub extents: Out<'a, u32>,
        /// Segment, followed by the centre's position along the widest side; [n].
        pub keys: Out<'a, u32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Binary logarithm of a segment's centres; the last segment may have fewer.
        pub segment_shift: u32,
        /// Bits of a key after the segment, at most 24.
        pub along_bits: u32,
        /// Values per row of the table.
        pub width: u32,
    }

    /// `place_centres`: writes the leaves of the tree.
    pub struct PlaceArgs<'a> {
        /// Rows that start with the centre; [lane blocks, `width`, 32].
        pub table: In<'a, f32>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// [32 leaves, 4]
        pub placed: Out<'a, f32>,
        /// [boxes, 8], the leaves' first.
        pub boxes: Out<'a, f32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Values per row of the table.
        pub width: u32,
    }

    /// `join_boxes`: computes a level of boxes from the one below.
    pub struct JoinArgs<'a> {
        /// [boxes, 8]
        pub boxes: Out<'a, f32>,
        /// First box of the level below.
        pub first_below: u32,
        /// Number of boxes below.
        pub below: u32,
        /// First box of the level.
        pub first: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `nearest_16` and `nearest_32`: find the nearest centres of all Gaussians.
    pub struct NearestArgs<'a> {
        /// [32 leaves, 4]
        pub placed: In<'a, f32>,
        /// [boxes, 8]
        pub boxes: In<'a, f32>,
        /// [n, `count`]
        pub near: Out<'a, u32>,
        /// First box of each level.
        pub first_box: [u32; 6],
        /// Number of boxes of each level, the leaves first.
        pub boxes_of: [u32; 6],
        /// Number of levels.
        pub levels: u32,
        /// Neighbours per Gaussian.
        pub count: u32,
    }

    /// `bind_place`, `bind_forms` and `bind_vertices`: place Gaussians on their triangles, and step the learned
    /// parameters.
    pub struct BindArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Gradients of the geometry, replaced by those of the triangles' corners (4 values each); [gaussians, 12].
        /// Null for `bind_place`.
        pub d_geometry: Out<'a, f32>,
        /// Vertices of the faces; [faces, 3].
        pub faces: In<'a, u32>,
        /// Ends of the edge between two faces, and their opposite vertices; [hinges, 4].
        pub hinges: In<'a, u32>,
        /// Start of each vertex' corners; [vertices + 1].
        pub corner_starts: In<'a, u32>,
        /// Indices `3 f + i` of corners; [faces, 3].
        pub corner_numbers: In<'a, u32>,
        /// Start of each vertex' hinges; [vertices + 1].
        pub hinge_starts: In<'a, u32>,
        /// Indices `4 h + i` into hinges; [hinges, 4].
        pub hinge_numbers: In<'a, u32>,
        /// Vertices before the step, world units; [vertices, 3].
        pub vertices: In<'a, f32>,
        /// Vertices after the step.
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
        /// Rate of the log-scales, likewise.
        pub log_scale_rate: f32,
        /// Rate of the complex numbers, likewise.
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
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// Weight of each hinge in the loss.
        pub per_hinge: f32,
        /// Logarithm of the scale along the normals.
        pub log_thickness: f32,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Number of Gaussians per face.
        pub each: u32,
        /// Number of vertices.
        pub vertices_len: u32,
    }

    /// `near_entries`: finds each row's nearest centre in its cells.
    pub struct NearEntriesArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [centres, width]
        pub centers: In<'a, f32>,
        /// First centre of each cell, and the number of centres; [cells + 1].
        pub starts: In<'a, u32>,
        /// Cells of each row; [n, cells per row].
        pub cells: In<'a, u32>,
        /// Index into `cells` of each thread; [n x cells per row].
        pub order: In<'a, u32>,
        /// Initially 0; bitwise inverse of the nearest centre: the bits of the squared distance above its index;
        /// `[n]`.
        pub nearest: Out<'a, u64>,
        /// Number of rows times cells per row.
        pub count: u32,
        /// Values per row: 8, 16, 24 or 48.
        pub width: u32,
        /// Cells per row.
        pub per_row: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `near_cells`: finds each row's nearest cells, nearest first.
    pub struct NearCellsArgs<'a> {
        /// [n, width]
        pub rows: In<'a, f32>,
        /// [cells, width]
        pub centers: In<'a, f32>,
        /// [n, cells per row]
        pub cells: Out<'a, u32>,
        /// Number of rows.
        pub count: u32,
        /// Values per row: 8, 16, 24 or 48.
        pub width: u32,
        /// Number of cells.
        pub cell_count: u32,
        /// Cells per row, at most 8.
        pub per_row: u32,
    }
}

/// Largest number of neighbours per Gaussian: one per lane of a warp.
pub const MOST_NEIGHBOURS: u32 = 32;

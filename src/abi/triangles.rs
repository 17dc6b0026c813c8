//! Arguments of the kernels of `triangles` and `remesh`.

use super::view::{Counts, TileRect, ViewCamera};
use super::{In, Out};

constants! {
    /// Floats of a vertex's record.
    pub const VERTEX_WIDTH: u32 = 8;
    /// Largest opacity of a triangle in a sample.
    pub const TRIANGLE_ALPHA_MAX: f32 = 0.999;
    /// By how much the variance of a triangle's corners grows.
    pub const COVER_GROWTH: f32 = 1.125;
    /// Added to it, px².
    pub const COVER_VARIANCE_PX2: f32 = 1.3;
    /// Share of the variance along both axes that is added to each.
    pub const COVER_ROUNDNESS: f32 = 1e-4;
    /// Least share of the way from an opacity's floor to 1 that a logit is given for.
    pub const SHARE_MIN: f32 = 1e-6;
    /// Least mean area of a vertex's triangles whose size is told apart, world units squared.
    pub const AREA_MIN: f32 = 1e-20;
    /// Exponent of the ellipse through a triangle's corners.
    pub const COVER_EXPONENT: f32 = -1.0;
    /// Threads in a block of the kernels of `remesh`.
    pub const REMESH_BLOCK: u32 = 128;
}

abi! {
    /// `mark_corners`: which vertices faces in view have. `project_faces`: faces to triangles.
    pub struct FacesArgs<'a> {
        /// [faces, 3]
        pub faces: In<'a, u32>,
        /// [n, 8]
        pub vertices: In<'a, f32>,
        /// `[n]`
        pub splat_from_gaussian: Out<'a, u32>,
        /// [capacity, record], as `triangle_footprint.cuh` says.
        pub splats: Out<'a, f32>,
        /// Tiles that may be reached; `[capacity]`.
        pub tiles: Out<'a, TileRect>,
        /// Bits of the depth; `[capacity]`.
        pub depth_keys: Out<'a, u32>,
        /// 0, 1, 2, ...; `[capacity]`.
        pub splat_indices: Out<'a, u32>,
        /// Tiles that are reached; `[capacity]`.
        pub instance_counts: Out<'a, u32>,
        /// Starts at 0.
        pub counts: Out<'a, Counts>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of faces.
        pub faces_len: u32,
        /// Triangles that there is room for.
        pub capacity: u32,
        /// Radius of the inscribed circle above which a triangle is drawn, px.
        pub inradius_min_px: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `faces_bwd`: gradients of triangles to those of vertices.
    pub struct FacesBwdArgs<'a> {
        /// [faces, 3]
        pub faces: In<'a, u32>,
        /// [n, 8]
        pub vertices: In<'a, f32>,
        /// [visible, record]
        pub splats: In<'a, f32>,
        /// [visible, record]
        pub gradients: In<'a, f32>,
        /// `SplatGradient` of each vertex, added to; [n, 12].
        pub d_vertices: Out<'a, f32>,
        /// Largest distance of a corner from the middle so far, px; `[faces]`. Null where nobody asks for it.
        pub reaches_px: Out<'a, f32>,
        /// Norms of the gradients of the corners' places, per px, added to; `[faces]`. Null where `reaches_px` is.
        pub gradient_norms: Out<'a, f32>,
        /// Number of triangles.
        pub visible: u32,
        /// As of `FacesArgs`.
        pub inradius_min_px: f32,
        /// Opacity that vertices have at least.
        pub opacity_floor: f32,
        /// 1 where places take gradients by distances to edges alone: `PlaceGradients::EdgeDistances`.
        pub by_distances: u32,
    }

    /// `add_midpoints`: vertices in the middle of two.
    pub struct MidpointsArgs<'a> {
        /// Two vertices of each; [count, 2].
        pub midpoints: In<'a, u32>,
        /// [lane blocks, 11, 32], with room for the new ones.
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `sh_words`, 32]
        pub sh: Out<'a, u32>,
        /// New vertices.
        pub count: u32,
        /// Vertices before them.
        pub rows_before: u32,
        /// Words of a row's harmonics.
        pub sh_words: u32,
        /// 1 where these hold two halves each.
        pub sh_in_halves: u32,
    }

    /// `clear_vertex_sizes`, `add_face_areas`, `set_vertex_sizes`: log-scales of vertices by their triangles.
    pub struct VertexSizesArgs<'a> {
        /// [faces, 3]
        pub faces: In<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Triangles.
        pub faces_len: u32,
        /// Vertices.
        pub n: u32,
    }

    /// `raise_opacity_floor`: the same opacities under another floor.
    pub struct RaiseFloorArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Vertices.
        pub n: u32,
        /// The floor before.
        pub before: f32,
        /// The floor after.
        pub after: f32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

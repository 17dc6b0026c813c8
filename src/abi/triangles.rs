//! Arguments of the kernels of `triangles`.

use super::view::{Counts, TileRect, ViewCamera};
use super::{In, Out};

constants! {
    /// Floats per vertex record.
    pub const VERTEX_WIDTH: u32 = 8;
    /// Largest opacity of a triangle in a sample.
    pub const TRIANGLE_ALPHA_MAX: f32 = 0.999;
    /// Growth factor of the variance of a triangle's corners.
    pub const COVER_GROWTH: f32 = 1.125;
    /// Summand of that variance, px².
    pub const COVER_VARIANCE_PX2: f32 = 1.3;
    /// Share of the total variance that is added along each axis.
    pub const COVER_ROUNDNESS: f32 = 1e-4;
    /// Smallest share between an opacity's floor and 1 that has a logit.
    pub const SHARE_MIN: f32 = 1e-6;
    /// Smallest mean area of a vertex's triangles, world units squared.
    pub const AREA_MIN: f32 = 1e-20;
    /// Exponent of the ellipse through a triangle's corners.
    pub const COVER_EXPONENT: f32 = -1.0;
    /// Threads per block of the kernels that add vertices and set their sizes.
    pub const REMESH_BLOCK: u32 = 128;
}

abi! {
    /// `mark_corners`: marks the vertices of faces in view. `project_faces`: projects faces to triangles.
    pub struct FacesArgs<'a> {
        /// [faces, 3]
        pub faces: In<'a, u32>,
        /// [n, 8]
        pub vertices: In<'a, f32>,
        /// `[n]`
        pub splat_from_gaussian: Out<'a, u32>,
        /// [capacity, record] (see `triangle_footprint.cuh`).
        pub splats: Out<'a, f32>,
        /// Bounding tiles; `[capacity]`.
        pub tiles: Out<'a, TileRect>,
        /// Bits of the depth; `[capacity]`.
        pub depth_keys: Out<'a, u32>,
        /// 0, 1, 2, ...; `[capacity]`.
        pub splat_indices: Out<'a, u32>,
        /// Number of reached tiles; `[capacity]`.
        pub instance_counts: Out<'a, u32>,
        /// Initially 0.
        pub counts: Out<'a, Counts>,
        /// The view.
        pub camera: ViewCamera,
        /// Number of faces.
        pub faces_len: u32,
        /// Capacity in triangles.
        pub capacity: u32,
        /// Radius of the inscribed circle above which a triangle is drawn, px.
        pub inradius_min_px: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `faces_bwd`: propagates gradients of triangles to vertices.
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
        /// Largest distance of a corner from the centroid, px; `[faces]`, updated. Optional (null).
        pub reaches_px: Out<'a, f32>,
        /// Sums of the norms of the corners' gradients, per px; `[faces]`, added to. Null if `reaches_px` is null.
        pub gradient_norms: Out<'a, f32>,
        /// Number of triangles.
        pub visible: u32,
        /// As in `FacesArgs`.
        pub inradius_min_px: f32,
        /// Smallest opacity of vertices.
        pub opacity_floor: f32,
        /// 1 if positions have gradients through distances to edges only: `PlaceGradients::EdgeDistances`.
        pub by_distances: u32,
    }

    /// `add_midpoints`: adds vertices in the middle of edges.
    pub struct MidpointsArgs<'a> {
        /// Ends of each edge; [count, 2].
        pub midpoints: In<'a, u32>,
        /// [lane blocks, 11, 32], with room for the new vertices.
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `sh_words`, 32]
        pub sh: Out<'a, u32>,
        /// Number of new vertices.
        pub count: u32,
        /// Number of vertices before.
        pub rows_before: u32,
        /// Words per row of the harmonics.
        pub sh_words: u32,
        /// 1 if each word holds two half-precision values.
        pub sh_in_halves: u32,
    }

    /// `clear_vertex_sizes`, `add_face_areas`, `set_vertex_sizes`: compute log-scales of vertices from their
    /// triangles.
    pub struct VertexSizesArgs<'a> {
        /// [faces, 3]
        pub faces: In<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Number of triangles.
        pub faces_len: u32,
        /// Number of vertices.
        pub n: u32,
    }

    /// `raise_opacity_floor`: changes logits so that opacities stay the same above a higher floor.
    pub struct RaiseFloorArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Number of vertices.
        pub n: u32,
        /// The floor before.
        pub before: f32,
        /// The floor after.
        pub after: f32,
        /// Padding.
        pub reserved: u32,
    }
}

//! Of Gaussians that are bound to a mesh.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels of `bind`.
    pub const BIND_BLOCK: u32 = 128;
}

abi! {
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

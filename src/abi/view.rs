//! Structs that kernels of all stages share: a view, its tiles, and its splats.

constants! {
    /// Width and height of a tile in pixels.
    pub const TILE: u32 = 16;
    /// Variance added to every splat, px².
    pub const DILATION_PX2: f32 = 0.3;
    /// Smallest opacity that changes a pixel.
    pub const ALPHA_MIN: f32 = 1.0 / 255.0;
    /// Largest opacity, below 1.
    pub const ALPHA_MAX: f32 = 0.99;
    /// Transmittance at which blending ends: a splat that would pass it is skipped, a sample of triangles ends
    /// below it.
    pub const TRANSMITTANCE_MIN: f32 = 1e-4;
    /// Values per Gaussian besides colours: mean, log-scale, quaternion, opacity logit.
    pub const GEOMETRY_WIDTH: u32 = 11;
    /// Floats per splat record, and per gradient record.
    pub const RECORD_WIDTH: u32 = 12;
    /// Floats per surfel record, which starts like a splat's.
    pub const SURFEL_RECORD_WIDTH: u32 = 16;
    /// Floats per triangle record.
    pub const TRIANGLE_RECORD_WIDTH: u32 = 28;
    /// Smallest cosine between a surfel's normal and the line of sight.
    pub const SURFEL_FACING_MIN: f32 = 1e-5;
    /// Marks a Gaussian without a splat in the view.
    pub const UNSEEN: u32 = 0xffff_ffff;
    /// Largest number of rows of tiles of an image, which is at most 65,535 pixels high.
    pub const TILE_ROWS_MAX: u32 = 4_096;
    /// Largest number of tiles whose indices, and the index after the last, fit 16 bits.
    pub const SHORT_KEYS_MAX: u32 = 65_535;
    /// Number of groups of parameters that a fault can name.
    pub const FAULT_GROUPS: u32 = 8;
}

abi! {
    /// A view in the layout of the kernels.
    pub struct ViewCamera {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// Translation from world to camera.
        pub translation: [f32; 3],
        /// Position of the camera.
        pub centre_world: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Bounds of x/z and y/z for the projection's Jacobian: low x, high x, low y, high y.
        pub guard: [f32; 4],
        /// Bounds of x/z and y/z of the centres that are drawn, like `guard`; infinite without bounds.
        pub sides: [f32; 4],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Number of tiles per row and per column.
        pub tiles: [u32; 2],
        /// Depth that a Gaussian must exceed to be drawn, world units.
        pub near: f32,
        /// Variance added to every splat, px²; for `extended` kernels only, the others add `DILATION_PX2`.
        pub variance_px2: f32,
        /// Not 0: that variance lowers a splat's opacity as it widens the splat; for `extended` kernels only.
        pub compensates: u32,
    }

    /// Tiles x0..x1 by y0..y1.
    pub struct TileRect {
        /// First column.
        pub x0: u16,
        /// First row.
        pub y0: u16,
        /// Column after the last.
        pub x1: u16,
        /// Row after the last.
        pub y1: u16,
    }

    /// Instances `start..end`.
    pub struct TileRange {
        /// First instance.
        pub start: u32,
        /// Instance after the last.
        pub end: u32,
    }

    /// Counts of `project_fwd`.
    pub struct Counts {
        /// Number of pairs of a splat and a tile that it reaches.
        pub instances: u64,
        /// Number of visible Gaussians.
        pub visible: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// Gradients of a splat, summed by `blend_bwd` over the pixels of a view.
    pub struct SplatGradient {
        /// Gradient of the centre, px.
        pub d_mean_px: [f32; 2],
        /// Gradient of the opacity's logarithm.
        pub d_log_opacity: f32,
        /// Statistic of density control, summed over the pixels: the absolute value of a pixel's part of
        /// `d_mean_px[0]`, or the square of its part of `d_log_opacity`; 0 if not requested.
        pub statistic_x: f32,
        /// Gradient of the conic: xx, xy (counted once), yy; per px⁻².
        pub d_conic: [f32; 3],
        /// Statistic for `d_mean_px[1]`, or the number of pixels.
        pub statistic_y: f32,
        /// Gradient of the colour; 0 for channels that were clamped at 0.
        pub d_color: [f32; 3],
        /// Gradient of the depth; 0 if depths are not compared.
        pub d_depth: f32,
    }
}

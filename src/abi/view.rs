//! What kernels of all stages share: a view, its tiles, and the splats in it.

constants! {
    /// Width and height of a tile in pixels.
    pub const TILE: u32 = 16;
    /// Variance added to every splat, px².
    pub const DILATION_PX2: f32 = 0.3;
    /// Opacity below which a splat leaves a pixel untouched.
    pub const ALPHA_MIN: f32 = 1.0 / 255.0;
    /// Opacities are held below 1.
    pub const ALPHA_MAX: f32 = 0.99;
    /// A pixel is finished before its transmittance falls below this; a sample of triangles once it has.
    pub const TRANSMITTANCE_MIN: f32 = 1e-4;
    /// Values per Gaussian that are no colours: mean, log-scale, quaternion, opacity logit.
    pub const GEOMETRY_WIDTH: u32 = 11;
    /// Floats of a splat's record, and of its gradients'.
    pub const RECORD_WIDTH: u32 = 12;
    /// The same of surfels, which begin alike.
    pub const SURFEL_RECORD_WIDTH: u32 = 16;
    /// The same of triangles.
    pub const TRIANGLE_RECORD_WIDTH: u32 = 28;
    /// Least cosine between a surfel's normal and the line of sight.
    pub const SURFEL_FACING_MIN: f32 = 1e-5;
    /// No splat of a view belongs to the Gaussian.
    pub const UNSEEN: u32 = 0xffff_ffff;
    /// Most rows of tiles of an image, which is at most 65,535 pixels high.
    pub const TILE_ROWS_MAX: u32 = 4_096;
    /// Most tiles whose numbers, and the number behind the last, fit keys of 16 bits.
    pub const SHORT_KEYS_MAX: u32 = 65_535;
    /// Groups of parameters that a fault may name.
    pub const FAULT_GROUPS: u32 = 8;
}

abi! {
    /// A view as the kernels take it.
    pub struct ViewCamera {
        /// Rotation from world to camera, in rows.
        pub rotation: [f32; 9],
        /// Translation from world to camera.
        pub translation: [f32; 3],
        /// Where the camera stands.
        pub centre_world: [f32; 3],
        /// Focal lengths in pixels.
        pub focal_px: [f32; 2],
        /// Principal point in pixels.
        pub centre_px: [f32; 2],
        /// Bounds of x/z and of y/z within which the projection's Jacobian is evaluated: low x,
        /// high x, low y, high y.
        pub guard: [f32; 4],
        /// Width and height in pixels.
        pub size: [u32; 2],
        /// Tiles in a row and in a column.
        pub tiles: [u32; 2],
        /// Depth that a Gaussian must exceed to be drawn, world units.
        pub near: f32,
        /// Variance added to every splat, px²; of the kernels that are `extended` only, the others add
        /// `DILATION_PX2`.
        pub variance_px2: f32,
        /// Not 0: opacity falls as a splat is widened by it; of the same kernels.
        pub compensates: u32,
    }

    /// Tiles x0..x1 by y0..y1.
    pub struct TileRect {
        /// First column.
        pub x0: u16,
        /// First row.
        pub y0: u16,
        /// Column behind the last.
        pub x1: u16,
        /// Row behind the last.
        pub y1: u16,
    }

    /// Instances `start..end`.
    pub struct TileRange {
        /// The first.
        pub start: u32,
        /// The one behind the last.
        pub end: u32,
    }

    /// What `project_fwd` counts.
    pub struct Counts {
        /// Pairs of a splat and a tile that it reaches.
        pub instances: u64,
        /// Gaussians that the view sees.
        pub visible: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// The gradients of a splat, as `blend_bwd` adds them up over the pixels: all that a step wants to
    /// know of the view's splats.
    pub struct SplatGradient {
        /// Gradient of the centre, px.
        pub d_mean_px: [f32; 2],
        /// Gradient of the opacity's logarithm.
        pub d_log_opacity: f32,
        /// What density control asks for, summed over the pixels: the absolute value of a pixel's share in
        /// `d_mean_px[0]`, or the square of its share in `d_log_opacity`; 0 where no one asks.
        pub statistic_x: f32,
        /// Gradient of the conic: xx, xy (counted once), yy; per px⁻².
        pub d_conic: [f32; 3],
        /// The same of `d_mean_px[1]`, or how many pixels there are.
        pub statistic_y: f32,
        /// Gradient of the colour; 0 of channels that were held at 0.
        pub d_color: [f32; 3],
        /// Gradient of the depth; 0 where none was compared.
        pub d_depth: f32,
    }
}

//! Arguments of the probe that compares the kernels' mathematics with the host's.
#![allow(missing_docs, reason = "constants have the names of their functions")]

use super::{In, Out, ViewCamera};

constants! {
    /// Threads per block of `probe`.
    pub const PROBE_BLOCK: u32 = 128;
    /// Functions of `linalg`.
    pub const PROBE_ADD: u32 = 0;
    pub const PROBE_SUB: u32 = 1;
    pub const PROBE_SCALE: u32 = 2;
    pub const PROBE_DOT: u32 = 3;
    pub const PROBE_CROSS: u32 = 4;
    pub const PROBE_NORMALIZE: u32 = 5;
    pub const PROBE_NORMALIZE_BWD: u32 = 6;
    pub const PROBE_MUL: u32 = 7;
    pub const PROBE_MUL_TRANSPOSED: u32 = 8;
    pub const PROBE_MAT_MUL: u32 = 9;
    pub const PROBE_TRANSPOSE: u32 = 10;
    pub const PROBE_ROTATION: u32 = 11;
    pub const PROBE_ROTATION_BWD: u32 = 12;
    /// Functions of `math`.
    pub const PROBE_SIGMOID: u32 = 13;
    pub const PROBE_SIGMOID_BWD: u32 = 14;
    /// `sh::basis`.
    pub const PROBE_SH_BASIS: u32 = 15;
    /// `sh::basis_bwd`.
    pub const PROBE_SH_BASIS_BWD: u32 = 16;
    /// Centre of `splat::project`.
    pub const PROBE_PROJECTED_MEAN: u32 = 17;
    /// Depth of `splat::project`.
    pub const PROBE_PROJECTED_DEPTH: u32 = 18;
    /// Covariance of `splat::project`.
    pub const PROBE_PROJECTED_COVARIANCE: u32 = 19;
    /// Conic of `splat::project`.
    pub const PROBE_PROJECTED_CONIC: u32 = 20;
    /// Gradient of the centre of `splat::project_bwd`.
    pub const PROBE_D_MEAN: u32 = 21;
    /// Gradient of the scales of `splat::project_bwd`.
    pub const PROBE_D_LOG_SCALE: u32 = 22;
    /// Gradient of the rotation of `splat::project_bwd`.
    pub const PROBE_D_QUAT: u32 = 23;
    /// Pixels of `splat::bounds`.
    pub const PROBE_BOUNDS: u32 = 24;
    /// Smallest exponent of `splat::bounds`.
    pub const PROBE_BOUNDS_EXPONENT: u32 = 25;
    /// `splat::Spans::columns`.
    pub const PROBE_COLUMNS: u32 = 26;
    /// `random::RandomStream::bits`.
    pub const PROBE_RANDOM_BITS: u32 = 27;
    /// `random::RandomStream::uniform`.
    pub const PROBE_RANDOM_UNIFORM: u32 = 28;
    /// `random::RandomStream::normal`.
    pub const PROBE_RANDOM_NORMAL: u32 = 29;
    /// Functions of `compact`.
    pub const PROBE_ENCODE_HALF: u32 = 30;
    pub const PROBE_DECODE_HALF: u32 = 31;
    pub const PROBE_ENCODE_BFLOAT: u32 = 32;
    pub const PROBE_DECODE_BFLOAT: u32 = 33;
    pub const PROBE_WITH_HALF: u32 = 34;
    pub const PROBE_ENCODE_FIRST: u32 = 35;
    pub const PROBE_DECODE_FIRST: u32 = 36;
    pub const PROBE_ENCODE_SECOND: u32 = 37;
    pub const PROBE_DECODE_SECOND: u32 = 38;
    pub const PROBE_WITH_BYTE: u32 = 39;
    pub const PROBE_ROUNDED_SCALE: u32 = 40;
    pub const PROBE_INVERSE_SCALE: u32 = 41;
    pub const PROBE_HELD_QUOTIENT: u32 = 42;
    pub const PROBE_ROLL: u32 = 43;
    /// `relocate::weight`.
    pub const PROBE_DRAW_WEIGHT: u32 = 60;
    /// `relocate::share`.
    pub const PROBE_SHARE: u32 = 61;
    /// Functions of `filter`.
    pub const PROBE_KEPT_ON_SCREEN: u32 = 62;
    pub const PROBE_KEPT_ON_SCREEN_BWD: u32 = 63;
    pub const PROBE_SMOOTHED: u32 = 64;
    pub const PROBE_SMOOTHED_BWD: u32 = 65;
    pub const PROBE_LOWERED_LOGIT: u32 = 66;
    /// Functions of `field`.
    pub const PROBE_DENSITY: u32 = 70;
    pub const PROBE_DENSITY_BWD: u32 = 71;
    pub const PROBE_SAMPLE_BWD: u32 = 72;
    pub const PROBE_SURFACE_DENSITY: u32 = 73;
    pub const PROBE_SURFACE_DENSITY_BWD: u32 = 74;
    pub const PROBE_ALIGNED: u32 = 75;
    pub const PROBE_NORMAL_WEIGHT: u32 = 76;
    pub const PROBE_ENTROPY: u32 = 77;
    pub const PROBE_ENTROPY_BWD: u32 = 78;
    /// Functions of `normals`.
    pub const PROBE_FACING_NORMAL: u32 = 80;
    pub const PROBE_FACING_NORMAL_BWD: u32 = 81;
    pub const PROBE_BLENDED_NORMAL: u32 = 82;
    pub const PROBE_BLENDED_NORMAL_BWD: u32 = 83;
    pub const PROBE_SLOPE: u32 = 84;
    pub const PROBE_SLOPE_BWD: u32 = 85;
    pub const PROBE_SURFACE_NORMAL: u32 = 86;
    pub const PROBE_SURFACE_NORMAL_BWD: u32 = 87;
}

abi! {
    /// `probe`: evaluates one function for many inputs.
    pub struct ProbeArgs<'a> {
        /// [n, input width]
        pub inputs: In<'a, f32>,
        /// [n, output width]
        pub outputs: Out<'a, f32>,
        /// Camera of the functions that project.
        pub camera: ViewCamera,
        /// A `PROBE_` number.
        pub function: u32,
        /// Number of rows.
        pub n: u32,
        /// Inputs per row.
        pub input_width: u32,
        /// Outputs per row.
        pub output_width: u32,
    }
}

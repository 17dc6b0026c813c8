//! Arguments of Adam, of the cache of colours, and of packed tables.

use super::view::ViewCamera;
use super::{In, Out};

constants! {
    /// Threads per block of `adam` and `catch_up_all`.
    pub const ADAM_BLOCK: u32 = 128;
    /// Largest number of views per step.
    pub const MAX_VIEWS: u32 = 8;
    /// Lengths of the tables of `LazyAdam`.
    pub const MOMENTUM_STEPS: u32 = 128;
    /// Number of remembered drifts: 1 more than the largest number of steps that colours may be behind.
    pub const DRIFT_STEPS: u32 = 4096;

    /// Threads per block of `fill_lines` and `write_lines_back`.
    pub const CACHE_BLOCK: u32 = 256;

    /// Threads per block of `pack_rows` and `unpack_rows`.
    pub const PACK_BLOCK: u32 = 128;
    /// Two half-precision values per word.
    pub const FORM_HALVES: u32 = 0;
    /// Two bfloat16 values per word.
    pub const FORM_BFLOATS: u32 = 1;
    /// First moments as 8-bit codes after their scale.
    pub const FORM_FIRSTS: u32 = 2;
    /// Second moments as 8-bit codes after their scale.
    pub const FORM_SECONDS: u32 = 3;
    /// One single-precision value per word.
    pub const FORM_FLOATS: u32 = 4;
}

abi! {
    /// Cache of lane blocks of colours and moments from host memory, one per line (see `state.cuh`). All pointers are
    /// null without a cache.
    pub struct ColorCache<'a> {
        /// Line + 1 of each lane block, 0 for a block without a line; [lane blocks].
        pub line_of_block: Out<'a, u32>,
        /// Last step that used a lane block without a line; [lane blocks].
        pub missed_in: Out<'a, u32>,
        /// Lane block + 1 of each line, 0 for a free line; [lines].
        pub block_of_line: Out<'a, u32>,
        /// Last step that uses the line's block; [lines].
        pub used_in: Out<'a, u32>,
        /// 1 if the line has changed since it was read from the host; [lines].
        pub is_changed: Out<'a, u32>,
        /// Lane blocks without a line that the next step uses; [lines].
        pub wanted: Out<'a, u32>,
        /// Number of wanted blocks and of processed blocks; [2], 0 before a view is announced.
        pub counts: Out<'a, u32>,
        /// [lines, words of SH, 32]
        pub sh: Out<'a, u32>,
        /// First moments of `sh`.
        pub sh_first: Out<'a, u32>,
        /// Second moments of `sh`.
        pub sh_second: Out<'a, u32>,
        /// Number of the next step of the model, from 1; 0 for a view without a step.
        pub step: u32,
        /// Number of lines.
        pub lines: u32,
    }

    /// Effect of steps without a gradient on the colours (see `state.cuh`).
    pub struct LazyAdam {
        /// Motion of a constant coefficient in the last k steps, in units of its first moment over the root of its
        /// second, for k below `MOMENTUM_STEPS`.
        pub drift_dc: [f32; 128],
        /// Motion of the other coefficients, likewise.
        pub drift_rest: [f32; 128],
        /// Binary logarithm of the first moment's decay.
        pub log2_beta_1: f32,
        /// Binary logarithm of the second moment's decay.
        pub log2_beta_2: f32,
        /// Number of steps that the model has taken.
        pub steps: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// Splats of a view of a step, and their gradients.
    pub struct ViewArgs<'a> {
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, record]
        pub gradients: In<'a, f32>,
        /// [visible, 4], as in `BlendArgs`. Null unless normals are compared.
        pub d_features: In<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Degree of the harmonics in use.
        pub sh_degree: u32,
        /// 1 if centres have no gradient through the directions of harmonics: `PlaceGradients::EdgeDistances`.
        pub by_distances: u32,
    }

    /// `adam` and `adam_compact`: a step of every parameter. `adam_extended` and `adam_extended_compact`: with
    /// filters, inverse depths, surfaces, regularisers and noise. `adam_views` and `adam_views_compact`: with the
    /// mean gradient of several views.
    pub struct AdamArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, words of 11 values, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// First moments of `sh`.
        pub sh_first: Out<'a, u32>,
        /// Second moments of `sh`.
        pub sh_second: Out<'a, u32>,
        /// Number of steps of each lane block's SH; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// Last entries of `LazyAdam` (constant coefficient, others) by the step of a lane block's last update,
        /// modulo `DRIFT_STEPS`; [`DRIFT_STEPS`, 2].
        pub sh_drifts: Out<'a, f32>,
        /// Cache of the SH in host memory.
        pub cache: ColorCache<'a>,
        /// Views whose gradients are averaged; the first `view_count` are used.
        pub views: [ViewArgs<'a>; 8],
        /// Twice `index * FAULT_GROUPS + group` of the first value or moment that is not finite, plus 1 if infinite.
        pub fault: Out<'a, u64>,
        /// Standard deviations of the 3D filter, world units; `[gaussians]`. Null without a filter.
        pub filter_3d: In<'a, f32>,
        /// Gradients that are added to the geometry's; [gaussians, 12], the last of a row unused. Null without any.
        pub surface: In<'a, f32>,
        /// Output of the geometry's gradients, for bound Gaussians; [gaussians, 12], else null. Extended kernels only.
        pub d_geometry: Out<'a, f32>,
        /// Key of the random stream of `adam_compact`'s rounding.
        pub key: u64,
        /// Key of the random stream of the random motion.
        pub noise_key: u64,
        /// Missed steps of colours.
        pub lazy: LazyAdam,
        /// Learning rates of the schema's columns over the first moment's bias correction. For Gaussians: means,
        /// log-scales, quaternions, opacity logits, colours, harmonics.
        pub rates: [f32; 6],
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
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Number of views; 1 except in `adam_views` and `adam_views_compact`.
        pub view_count: u32,
        /// Weight of each view's gradients: 1 / `view_count`.
        pub view_share: f32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
        /// Gradient of every opacity (regulariser).
        pub d_opacity: f32,
        /// Gradient of every scale (regulariser).
        pub d_scale: f32,
        /// Factor of the random motion; 0 for none.
        pub noise_rate: f32,
        /// Exponent of a Gaussian's size in its centre's rate; 0 if the rate is independent of the size.
        pub size_exponent: f32,
        /// Logarithm of that factor for a Gaussian of size 1.
        pub size_offset: f32,
        /// Not 0: `d_opacity` and `d_scale` apply only to rows whose opacities have a gradient from the views.
        pub seen_only: u32,
        /// Not 0: the random motion applies only to rows outside all views, and at most this far, world units.
        pub noise_longest: f32,
        /// Factor of the harmonics above degree 0 of visible rows after the step: 1 minus the decay.
        pub sh_kept: f32,
        /// Upper limit of the standard deviations relative to the distance from a camera that sees the row; 0 for none.
        pub scale_limit: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `catch_up_all` and `catch_up_all_compact`: apply the missed steps to the SH of all lane blocks.
    pub struct CatchUpArgs<'a> {
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// First moments of `sh`.
        pub sh_first: Out<'a, u32>,
        /// Second moments of `sh`.
        pub sh_second: Out<'a, u32>,
        /// Number of steps of each lane block's SH; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// As in `AdamArgs`.
        pub sh_drifts: In<'a, f32>,
        /// As in `AdamArgs`.
        pub key: u64,
        /// Missed steps.
        pub lazy: LazyAdam,
        /// Number of lane blocks.
        pub lane_blocks: u32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
    }

    /// `fill_lines`: reads wanted blocks into lines that neither the coming step nor the one after needs.
    /// `write_lines_back`: empties all lines.
    pub struct CacheArgs<'a> {
        /// The lines.
        pub cache: ColorCache<'a>,
        /// Tables in host memory; [lane blocks, words of SH, 32].
        pub sh: Out<'a, u32>,
        /// First moments of `sh`.
        pub sh_first: Out<'a, u32>,
        /// Second moments of `sh`.
        pub sh_second: Out<'a, u32>,
        /// Words per row of the SH.
        pub sh_words: u32,
        /// Words per row of the first moments, and of the second.
        pub moment_words: u32,
    }

    /// `pack_rows`: packs single precision into words.
    pub struct PackArgs<'a> {
        /// [lane blocks, `values`, 32]
        pub floats: In<'a, f32>,
        /// [lane blocks, words of `values`, 32]
        pub words: Out<'a, u32>,
        /// First lane block of the floats.
        pub float_block: u32,
        /// First lane block of the words.
        pub word_block: u32,
        /// Number of lane blocks.
        pub blocks: u32,
        /// Values per row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `unpack_rows`: unpacks words into single precision.
    pub struct UnpackArgs<'a> {
        /// [lane blocks, words of `values`, 32]
        pub words: In<'a, u32>,
        /// [lane blocks, `values`, 32]
        pub floats: Out<'a, f32>,
        /// First lane block of the words.
        pub word_block: u32,
        /// First lane block of the floats.
        pub float_block: u32,
        /// Number of lane blocks.
        pub blocks: u32,
        /// Values per row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Padding.
        pub reserved: u32,
    }
}

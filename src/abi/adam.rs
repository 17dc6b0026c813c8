//! Arguments of the steps of parameters, of the cache of colours, and of compact tables.

use super::view::ViewCamera;
use super::{In, Out};

constants! {
    /// Threads in a block of `adam` and `catch_up_all`.
    pub const ADAM_BLOCK: u32 = 128;
    /// Most views of a step.
    pub const MAX_VIEWS: u32 = 8;
    /// Lengths of the tables of `LazyAdam`.
    pub const MOMENTUM_STEPS: u32 = 128;
    /// Steps that colours may be left behind for, and one: drifts that a model remembers.
    pub const DRIFT_STEPS: u32 = 4096;

    /// Threads of a block of `fill_lines` and of `write_lines_back`.
    pub const CACHE_BLOCK: u32 = 256;

    /// Threads in a block of `pack_rows` and `unpack_rows`.
    pub const PACK_BLOCK: u32 = 128;
    /// Two values of half precision to a word.
    pub const FORM_HALVES: u32 = 0;
    /// Two values of bfloat16 to a word.
    pub const FORM_BFLOATS: u32 = 1;
    /// First moments in codes of 8 bits behind their scale.
    pub const FORM_FIRSTS: u32 = 2;
    /// Second moments in codes of 8 bits behind their scale.
    pub const FORM_SECONDS: u32 = 3;
    /// One value of single precision to a word.
    pub const FORM_FLOATS: u32 = 4;
}

abi! {
    /// Lane blocks of colours with their moments that the device has taken from the host, each in a line, as
    /// `cache.cuh` uses them. All null where there are none.
    pub struct ColorCache<'a> {
        /// Line + 1 of each lane block, 0 of one that has none; [lane blocks].
        pub line_of_block: Out<'a, u32>,
        /// The latest step that saw a lane block which had no line; [lane blocks].
        pub missed_in: Out<'a, u32>,
        /// Lane block + 1 of each line, 0 of one that is free; [lines].
        pub block_of_line: Out<'a, u32>,
        /// The latest step that sees what is in a line; [lines].
        pub used_in: Out<'a, u32>,
        /// 1 of a line that has changed since it was taken from the host; [lines].
        pub is_changed: Out<'a, u32>,
        /// Lane blocks without a line that the next step sees; [lines].
        pub wanted: Out<'a, u32>,
        /// Number of wanted blocks, and number of those that are dealt with; [2], zero before a view is expected.
        pub counts: Out<'a, u32>,
        /// [lines, words of SH, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Number of the coming step of the model, from 1; 0 for a view that no step follows.
        pub step: u32,
        /// Number of lines.
        pub lines: u32,
    }

    /// What steps without a gradient do to the colours, as `lazy_adam.cuh` uses it.
    pub struct LazyAdam {
        /// `MOMENTUM_STEPS` of them: by how much a constant coefficient moves in so many steps up to
        /// now, in units of its first moment over the root of its second.
        pub drift_dc: [f32; 128],
        /// The same of the other coefficients.
        pub drift_rest: [f32; 128],
        /// Binary logarithm of the first moment's decay.
        pub log2_beta_1: f32,
        /// Binary logarithm of the second moment's decay.
        pub log2_beta_2: f32,
        /// Steps that the model has taken.
        pub steps: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// A view of a step: where its splats are, and their gradients.
    pub struct ViewArgs<'a> {
        /// Index of each Gaussian's splat; `[gaussians]`.
        pub splat_from_gaussian: In<'a, u32>,
        /// [visible, record]
        pub gradients: In<'a, f32>,
        /// [visible, 4], as in `BlendArgs`. Null where normals were not compared.
        pub d_features: In<'a, f32>,
        /// The view.
        pub camera: ViewCamera,
        /// Degree of the harmonics in use.
        pub sh_degree: u32,
        /// 1 where the directions in which harmonics are seen move no centre: `PlaceGradients::EdgeDistances`.
        pub by_distances: u32,
    }

    /// `adam` and `adam_compact`: a step of every parameter. `adam_extended` and
    /// `adam_extended_compact`: with filters, inverse depths, surfaces, regularisers and noise.
    /// `adam_views` and `adam_views_compact`: the same down the mean gradient of several views.
    pub struct AdamArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, words of 11 values, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Steps that each lane block's SH has taken; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// `LazyAdam`'s last entries, of a constant coefficient and of the others, by the step that a lane block
        /// was left at, modulo `DRIFT_STEPS`; [`DRIFT_STEPS`, 2].
        pub sh_drifts: Out<'a, f32>,
        /// SH of the host's memory that the device holds.
        pub cache: ColorCache<'a>,
        /// The views whose mean gradient the step goes down, `view_count` of them.
        pub views: [ViewArgs<'a>; 8],
        /// Twice the least `index * FAULT_GROUPS + group` whose value or moment is not finite, plus 1 for
        /// an infinity.
        pub fault: Out<'a, u64>,
        /// Standard deviations of the 3D filter, world units; `[gaussians]`. Null where there is none.
        pub filter_3d: In<'a, f32>,
        /// Added to the gradients of the geometry; [gaussians, 12], of which the last of a row says
        /// nothing. Null where there is nothing to add.
        pub surface: In<'a, f32>,
        /// Where the gradients of the geometry are left, of Gaussians that are bound to something;
        /// [gaussians, 12]. Null of others. Only the extended kernels write it.
        pub d_geometry: Out<'a, f32>,
        /// Of the stream of random numbers that `adam_compact` rounds with.
        pub key: u64,
        /// Of the stream of the random motion.
        pub noise_key: u64,
        /// What colours that were left behind have missed.
        pub lazy: LazyAdam,
        /// Learning rates of the schema's columns over the first moment's bias correction; of Gaussians:
        /// means, log-scales, quaternions, opacity logits, colours, harmonics.
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
        /// Added to the root.
        pub epsilon: f32,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Number of views: 1, but of `adam_views` and `adam_views_compact`.
        pub view_count: u32,
        /// What each view's gradients count for: 1 / `view_count`.
        pub view_share: f32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
        /// Gradient of every opacity.
        pub d_opacity: f32,
        /// Gradient of every scale.
        pub d_scale: f32,
        /// Factor of the random motion; 0 of none.
        pub noise_rate: f32,
        /// Exponent of a Gaussian's size in the rate of its centre; 0 where sizes say nothing of it.
        pub size_exponent: f32,
        /// Logarithm of the factor of that rate for a Gaussian of size 1.
        pub size_offset: f32,
        /// Not 0: `d_opacity` and `d_scale` act only on rows to whose opacities the views give a gradient.
        pub seen_only: u32,
        /// Not 0: the random motion moves only rows that no view shows.
        pub noise_unseen: u32,
        /// Factor of the harmonics above degree 0 of rows that a view shows, after the step: 1 less the decay.
        pub sh_kept: f32,
    }

    /// `catch_up_all` and `catch_up_all_compact`: bring the SH of every lane block up to date.
    pub struct CatchUpArgs<'a> {
        /// [lane blocks, words of `sh_width` values, 32]
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Steps that each lane block's SH has taken; [lane blocks].
        pub sh_steps: Out<'a, u32>,
        /// As in `AdamArgs`.
        pub sh_drifts: In<'a, f32>,
        /// As in `AdamArgs`.
        pub key: u64,
        /// What they have missed.
        pub lazy: LazyAdam,
        /// Number of lane blocks.
        pub lane_blocks: u32,
        /// Values of harmonics per Gaussian.
        pub sh_width: u32,
    }

    /// `fill_lines`: brings what is wanted into lines that neither the coming step nor the next one needs.
    /// `write_lines_back`: empties all lines.
    pub struct CacheArgs<'a> {
        /// The lines.
        pub cache: ColorCache<'a>,
        /// The tables in the host's memory, [lane blocks, words of SH, 32].
        pub sh: Out<'a, u32>,
        /// Its first moments.
        pub sh_first: Out<'a, u32>,
        /// Its second moments.
        pub sh_second: Out<'a, u32>,
        /// Words of a row's SH.
        pub sh_words: u32,
        /// Words of its first moments, and as many of the second ones.
        pub moment_words: u32,
    }

    /// `pack_rows`: single precision to words.
    pub struct PackArgs<'a> {
        /// [lane blocks, `values`, 32]
        pub floats: In<'a, f32>,
        /// [lane blocks, words of `values`, 32]
        pub words: Out<'a, u32>,
        /// First lane block of the floats.
        pub float_block: u32,
        /// First lane block of the words.
        pub word_block: u32,
        /// Lane blocks.
        pub blocks: u32,
        /// Values of a row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `unpack_rows`: the way back.
    pub struct UnpackArgs<'a> {
        /// [lane blocks, words of `values`, 32]
        pub words: In<'a, u32>,
        /// [lane blocks, `values`, 32]
        pub floats: Out<'a, f32>,
        /// First lane block of the words.
        pub word_block: u32,
        /// First lane block of the floats.
        pub float_block: u32,
        /// Lane blocks.
        pub blocks: u32,
        /// Values of a row.
        pub values: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

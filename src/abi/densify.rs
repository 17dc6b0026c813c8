//! Arguments of density control, of relocation, of the order of rows, and of quantiles.

use super::{In, Out};

constants! {
    /// Threads in a block of the kernels that take one Gaussian per thread.
    pub const DENSIFY_BLOCK: u32 = 256;
    /// Threads in a block of `gather`, `scatter` and `clear_padding`.
    pub const COMPACT_BLOCK: u32 = 256;
    /// Warps that share the columns of 32 rows between them.
    pub const COMPACT_SLICES: u32 = 8;
    /// Threads in a block of `observe`.
    pub const OBSERVE_BLOCK: u32 = 256;
    /// What `observe` adds up: norms of the gradients of the centres,
    pub const OBSERVE_NORMS: u32 = 0;
    /// norms of the sums of the pixels' absolute values,
    pub const OBSERVE_ABSOLUTE: u32 = 1;
    /// or how much the pixels disagree about the opacity.
    pub const OBSERVE_DISAGREEMENT: u32 = 2;
    /// Threads in a block of `sample_rows`.
    pub const SAMPLE_BLOCK: u32 = 256;
    /// Tables of a model, at most: parameters, first and second moments, of Gaussians those of the
    /// geometry and then of the SH.
    pub const TABLES: u32 = 6;

    /// Threads in a block of the kernels of `relocate`.
    pub const RELOCATE_BLOCK: u32 = 256;
    /// Stands for a row that is not copied to.
    pub const NO_SOURCE: u32 = 4_294_967_295;

    /// Threads in a block of the kernels of `reorder`.
    pub const REORDER_BLOCK: u32 = 256;

    /// Threads in a block of `count_digits`.
    pub const DIGITS_BLOCK: u32 = 256;
    /// Values of a digit, at most.
    pub const DIGITS: u32 = 2048;
}

abi! {
    /// What the kernels of density control count.
    pub struct DensityCounts {
        /// Candidates to clone.
        pub clones: u32,
        /// Candidates to split.
        pub splits: u32,
        /// Gaussians cloned.
        pub cloned: u32,
        /// Gaussians split in two.
        pub split: u32,
        /// Gaussians to remove.
        pub pruned: u32,
        /// Rows from the first that is to be removed to the last; 0 where all stay.
        pub rows_after_hole: u32,
    }

    /// `sample_rows`: what a table has of chosen rows, of which each has all its parameters in one
    /// piece in the end.
    pub struct SampleArgs<'a> {
        /// [lane blocks, `words`, 32]
        pub table: In<'a, u32>,
        /// [count]
        pub rows: In<'a, u32>,
        /// [count, `row_values`], from value `first` of each row on.
        pub sample: Out<'a, f32>,
        /// Rows.
        pub count: u32,
        /// Values of a row in the table.
        pub values: u32,
        /// Words that hold them.
        pub words: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Values of a row in the tables before.
        pub first: u32,
        /// Values of a row in all tables.
        pub row_values: u32,
    }

    /// `observe`: adds a view to the density statistics.
    pub struct ObserveArgs<'a> {
        /// Index of each Gaussian's splat; [n].
        pub splat_from_gaussian: In<'a, u32>,
        /// `SplatGradient` of each splat; [visible, record].
        pub gradients: In<'a, f32>,
        /// Of each row its centre and then more, [lane blocks, `width`, 32]; looked at where there is a
        /// `fade_depth`.
        pub table: In<'a, f32>,
        /// [n]
        pub gradient_norm_sums: Out<'a, f32>,
        /// [n]
        pub views_seen: Out<'a, u32>,
        /// [n], or null: sums of the absolute values over both axes.
        pub absolute_norm_sums: Out<'a, f32>,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Half the width and height of the image in px.
        pub half_size: [f32; 2],
        /// What `gradient_norm_sums` take: an `OBSERVE_` number.
        pub observed: u32,
        /// The view's axis in world space, and what is added to a place's share along it.
        pub axis: [f32; 4],
        /// Depth from which on splats tell all; 0 where all do.
        pub fade_depth: f32,
        /// Values of a row of the table.
        pub width: u32,
        /// Floats of a splat's gradients.
        pub record_width: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `survey`: flags the candidates and counts them; either may be left out.
    pub struct SurveyArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [n]
        pub gradient_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [n], or null where absolute gradients do not count.
        pub absolute_norm_sums: In<'a, f32>,
        /// [n], or null.
        pub flags: Out<'a, u32>,
        /// One, or null.
        pub counts: Out<'a, DensityCounts>,
        /// Gaussians.
        pub n: u32,
        /// Mean norm of the gradient from which one is a candidate.
        pub gradient_min: f32,
        /// Mean absolute gradient from which one is, if it is not 0.
        pub absolute_min: f32,
        /// Largest logarithm of a scale that is cloned.
        pub clone_log_scale_max: f32,
    }

    /// `list_candidates`: the flagged rows and their keys for sorting.
    pub struct ListArgs<'a> {
        /// [n]
        pub gradient_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [n], or null where absolute gradients do not count.
        pub absolute_norm_sums: In<'a, f32>,
        /// [n]
        pub flags: In<'a, u32>,
        /// [n]
        pub ranks: In<'a, u32>,
        /// [candidates]
        pub keys: Out<'a, u32>,
        /// [candidates]
        pub rows: Out<'a, u32>,
        /// Of the stream of random numbers.
        pub random_key: u64,
        /// Gaussians.
        pub n: u32,
        /// Mean norm of the gradient from which one is a candidate.
        pub gradient_min: f32,
        /// The same of the mean absolute gradient.
        pub absolute_min: f32,
        /// Not 0: candidates are drawn in proportion to `gradient_norm_sums`.
        pub drawn: u32,
    }

    /// `choose`: flags the first rows of a list.
    pub struct SelectedArgs<'a> {
        /// [births] at least
        pub rows: In<'a, u32>,
        /// [n]
        pub flags: Out<'a, u32>,
        /// Rows to flag.
        pub births: u32,
    }

    /// `grow`: clones and splits the flagged rows.
    pub struct GrowArgs<'a> {
        /// Room for the newborn included.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [n]
        pub flags: In<'a, u32>,
        /// [n]
        pub ranks: In<'a, u32>,
        /// One.
        pub counts: Out<'a, DensityCounts>,
        /// Of the stream of random numbers.
        pub key: u64,
        /// Gaussians before.
        pub n: u32,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
        /// Largest logarithm of a scale that is cloned.
        pub clone_log_scale_max: f32,
        /// What the children's logarithms of scales are smaller by.
        pub log_shrink: f32,
        /// Not 0: parents stay as they are beside one child.
        pub parents_stay: u32,
        /// Nothing.
        pub reserved: u32,
    }

    /// `mark_survivors`: flags the rows that stay.
    pub struct SurvivorsArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [`observed_rows`], or null where those that no view has seen stay.
        pub views_seen: In<'a, u32>,
        /// [rows]
        pub flags: Out<'a, u32>,
        /// One.
        pub counts: Out<'a, DensityCounts>,
        /// Gaussians.
        pub rows: u32,
        /// Gaussians before the round.
        pub observed_rows: u32,
        /// Smallest opacity logit that stays.
        pub opacity_logit_min: f32,
        /// Largest logarithm of a scale that stays.
        pub log_scale_max: f32,
        /// 0 where scales are not limited.
        pub limits_scale: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `gather` and `scatter`: the survivors of a chunk of rows to scratch, and to their places.
    pub struct CompactArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [rows]
        pub flags: In<'a, u32>,
        /// [rows]
        pub ranks: In<'a, u32>,
        /// [blocks + 1, columns of all tables, 32]
        pub scratch: Out<'a, u32>,
        /// First block of 32 rows of the chunk.
        pub first_block: u32,
        /// Blocks of 32 rows of the chunk.
        pub blocks: u32,
        /// Gaussians before.
        pub rows: u32,
        /// Gaussians that stay.
        pub survivors: u32,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
    }

    /// `clear_padding`: zeros behind the last row.
    pub struct PaddingArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// Gaussians.
        pub rows: u32,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
    }

    /// `fade_opacity`: multiplies opacities.
    pub struct FadeArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Gaussians.
        pub n: u32,
        /// What an opacity is multiplied by.
        pub factor: f32,
        /// Least opacity that one has then, where it was not less.
        pub floor: f32,
        /// Nothing.
        pub reserved: u32,
    }

    /// `reset_opacity`: lowers opacities and forgets their moments.
    pub struct ResetArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `first_width`, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// Words of a row's first moments: the last is the opacity's.
        pub first_width: u32,
        /// Gaussians.
        pub n: u32,
        /// Largest opacity logit.
        pub ceiling_logit: f32,
    }

    /// `weigh`: how often each row is drawn.
    pub struct WeighArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [n]
        pub weights: Out<'a, u64>,
        /// 1 for each dead row, [n]; null if the dead are drawn, too.
        pub flags: Out<'a, u32>,
        /// Opacity that the living exceed.
        pub opacity_min: f64,
        /// Gaussians.
        pub n: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `draw_sources`: which row each copy is of.
    pub struct DrawArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Sums of the weights, each row's own included; the last is not 0. [n]
        pub sums: In<'a, u64>,
        /// [copies]; over the dead, in the beginning how many dead there are up to each row.
        pub sources: Out<'a, u32>,
        /// Copies of each row, [n]; zero in the beginning.
        pub counts: Out<'a, u32>,
        /// Of the stream of random numbers.
        pub key: u64,
        /// Opacity that the living exceed.
        pub opacity_min: f64,
        /// Gaussians.
        pub n: u32,
        /// Copies; over the dead, as many as there are Gaussians.
        pub copies: u32,
        /// 0 where the copies stand behind the last row.
        pub over_the_dead: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `split_opacity`: gives each row that is copied its share of opacity and scale.
    pub struct SplitOpacityArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [n]
        pub counts: In<'a, u32>,
        /// Smallest opacity of a share.
        pub opacity_min: f64,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
        /// Gaussians.
        pub n: u32,
        /// 0 where the rows keep their moments.
        pub forgets: u32,
    }

    /// `copy_sources`: the parameters of the rows that were drawn, to the rows of their copies.
    pub struct CopyArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [copies]
        pub sources: In<'a, u32>,
        /// Words of a row in each table.
        pub widths: [u32; TABLES as usize],
        /// Row of the first copy.
        pub first: u32,
        /// Copies.
        pub copies: u32,
        /// 0 where the copies' rows keep the moments they have.
        pub forgets: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }

    /// `morton_keys`: every row's place along the Z-curve, and its number.
    pub struct MortonArgs<'a> {
        /// Of each row its centre and then more, [lane blocks, width, 32]
        pub table: In<'a, f32>,
        /// [n]
        pub keys: Out<'a, u32>,
        /// 0, 1, 2, ...; [n]
        pub rows: Out<'a, u32>,
        /// Centre of the cube that the keys are for, world units.
        pub centre: [f32; 3],
        /// Half its side, world units.
        pub half_side: f32,
        /// Rows.
        pub n: u32,
        /// Values of a row.
        pub width: u32,
    }

    /// `fetch_column`: the first of the columns to scratch as it lies. `gather_columns` and `return_columns`: some
    /// columns of a table to scratch, in another order of the rows, and back.
    pub struct ColumnsArgs<'a> {
        /// Values of 4 bytes, [lane blocks, width, 32].
        pub table: Out<'a, u8>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// Values of 4 bytes, [columns, n].
        pub scratch: Out<'a, u8>,
        /// Gaussians.
        pub n: u32,
        /// Columns of the table.
        pub width: u32,
        /// First of the columns.
        pub first: u32,
        /// How many.
        pub columns: u32,
    }

    /// `count_digits`: how often each value of a digit comes up.
    pub struct DigitsArgs<'a> {
        /// [n]
        pub absolute_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [`DIGITS`]; zero in the beginning.
        pub counts: Out<'a, u32>,
        /// Gaussians.
        pub n: u32,
        /// Bits above the digit, which are known.
        pub known: u32,
        /// What these bits are in the numbers that count.
        pub prefix: u32,
        /// Place of the digit's lowest bit.
        pub shift: u32,
        /// The digit's bits, shifted down.
        pub digit: u32,
        /// Fills up to the alignment.
        pub reserved: u32,
    }
}

//! Arguments of density control, relocation, sorting of rows, and quantiles.

use super::{In, Out};

constants! {
    /// Threads per block of the kernels with one Gaussian per thread.
    pub const DENSIFY_BLOCK: u32 = 256;
    /// Threads per block of `gather`, `scatter` and `clear_padding`.
    pub const COMPACT_BLOCK: u32 = 256;
    /// Warps that share the columns of 32 rows.
    pub const COMPACT_SLICES: u32 = 8;
    /// Threads per block of `observe`.
    pub const OBSERVE_BLOCK: u32 = 256;
    /// Statistic of `observe`: norms of the centres' gradients.
    pub const OBSERVE_NORMS: u32 = 0;
    /// Statistic of `observe`: norms of the pixels' absolute gradients, summed.
    pub const OBSERVE_ABSOLUTE: u32 = 1;
    /// Statistic of `observe`: disagreement of the pixels about the opacity.
    pub const OBSERVE_DISAGREEMENT: u32 = 2;
    /// Threads per block of `sample_rows`.
    pub const SAMPLE_BLOCK: u32 = 256;
    /// Largest number of tables of a model: parameters, first and second moments, for Gaussians of the geometry and
    /// then of the SH.
    pub const TABLES: u32 = 6;

    /// Threads per block of the kernels of `relocate`.
    pub const RELOCATE_BLOCK: u32 = 256;
    /// Marks a row that is not copied to.
    pub const NO_SOURCE: u32 = 4_294_967_295;

    /// Threads per block of the kernels of `reorder`.
    pub const REORDER_BLOCK: u32 = 256;

    /// Threads per block of `count_digits`.
    pub const DIGITS_BLOCK: u32 = 256;
    /// Largest number of values of a digit.
    pub const DIGITS: u32 = 2048;
}

abi! {
    /// Counts of density control.
    pub struct DensityCounts {
        /// Number of candidates to clone.
        pub clones: u32,
        /// Number of candidates to split.
        pub splits: u32,
        /// Number of cloned Gaussians.
        pub cloned: u32,
        /// Number of split Gaussians.
        pub split: u32,
        /// Number of pruned Gaussians.
        pub pruned: u32,
        /// Number of rows from the first pruned to the last; 0 if all rows stay.
        pub rows_after_hole: u32,
    }

    /// `sample_rows`: copies a table's values of chosen rows. The tables' values of a row end up side by side.
    pub struct SampleArgs<'a> {
        /// [lane blocks, `words`, 32]
        pub table: In<'a, u32>,
        /// [count]
        pub rows: In<'a, u32>,
        /// [count, `row_values`]; written from value `first` of each row on.
        pub sample: Out<'a, f32>,
        /// Number of chosen rows.
        pub count: u32,
        /// Values per row of the table.
        pub values: u32,
        /// Words that hold them.
        pub words: u32,
        /// A `FORM_` number.
        pub form: u32,
        /// Values per row of the preceding tables.
        pub first: u32,
        /// Values per row of all tables.
        pub row_values: u32,
    }

    /// `observe`: adds a view to the density statistics.
    pub struct ObserveArgs<'a> {
        /// Index of each Gaussian's splat; [n].
        pub splat_from_gaussian: In<'a, u32>,
        /// `SplatGradient` of each splat; [visible, record].
        pub gradients: In<'a, f32>,
        /// Rows that start with the centre; [lane blocks, `width`, 32]. Read if `fade_depth` is not 0.
        pub table: In<'a, f32>,
        /// [n]
        pub gradient_norm_sums: Out<'a, f32>,
        /// [n]
        pub views_seen: Out<'a, u32>,
        /// Sums over both axes of the absolute values; [n], or null.
        pub absolute_norm_sums: Out<'a, f32>,
        /// Number of Gaussians.
        pub gaussians: u32,
        /// Half the width and height of the image in px.
        pub half_size: [f32; 2],
        /// Statistic that `gradient_norm_sums` add up: an `OBSERVE_` number.
        pub observed: u32,
        /// The view's axis in world space, and the offset of the depth along it.
        pub axis: [f32; 4],
        /// Depth below which a splat's statistics are scaled down; 0 for no scaling.
        pub fade_depth: f32,
        /// Values per row of the table.
        pub width: u32,
        /// Floats of a splat's gradients.
        pub record_width: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `survey`: flags or counts the candidates, or both.
    pub struct SurveyArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [n]
        pub gradient_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [n], or null without absolute gradients.
        pub absolute_norm_sums: In<'a, f32>,
        /// [n], or null.
        pub flags: Out<'a, u32>,
        /// One element, or null.
        pub counts: Out<'a, DensityCounts>,
        /// Number of Gaussians.
        pub n: u32,
        /// Smallest mean gradient norm of a candidate.
        pub gradient_min: f32,
        /// Smallest mean absolute gradient of a candidate, unless 0.
        pub absolute_min: f32,
        /// Largest log-scale that is cloned.
        pub clone_log_scale_max: f32,
    }

    /// `list_candidates`: lists the flagged rows and their sort keys.
    pub struct ListArgs<'a> {
        /// [n]
        pub gradient_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [n], or null without absolute gradients.
        pub absolute_norm_sums: In<'a, f32>,
        /// [n]
        pub flags: In<'a, u32>,
        /// [n]
        pub ranks: In<'a, u32>,
        /// [candidates]
        pub keys: Out<'a, u32>,
        /// [candidates]
        pub rows: Out<'a, u32>,
        /// Key of the stream of random numbers.
        pub random_key: u64,
        /// Number of Gaussians.
        pub n: u32,
        /// Smallest mean gradient norm of a candidate.
        pub gradient_min: f32,
        /// Smallest mean absolute gradient of a candidate.
        pub absolute_min: f32,
        /// Not 0: candidates are drawn in proportion to `gradient_norm_sums`.
        pub drawn: u32,
    }

    /// `choose`: flags the first rows of a list.
    pub struct SelectedArgs<'a> {
        /// At least [new Gaussians].
        pub rows: In<'a, u32>,
        /// [n]
        pub flags: Out<'a, u32>,
        /// Number of rows to flag.
        pub new_gaussians: u32,
    }

    /// `grow`: clones and splits the flagged rows.
    pub struct GrowArgs<'a> {
        /// Tables with room for the new Gaussians.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [n]
        pub flags: In<'a, u32>,
        /// [n]
        pub ranks: In<'a, u32>,
        /// One element.
        pub counts: Out<'a, DensityCounts>,
        /// Key of the stream of random numbers.
        pub key: u64,
        /// Number of Gaussians before.
        pub n: u32,
        /// Words per row of each table.
        pub widths: [u32; TABLES as usize],
        /// Largest log-scale that is cloned.
        pub clone_log_scale_max: f32,
        /// Decrease of the children's log-scales.
        pub log_shrink: f32,
        /// Not 0: parents stay unchanged beside one child.
        pub parents_stay: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `mark_survivors`: flags the rows that stay.
    pub struct SurvivorsArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [`observed_rows`], or null if rows outside all views stay.
        pub views_seen: In<'a, u32>,
        /// [rows]
        pub flags: Out<'a, u32>,
        /// One element.
        pub counts: Out<'a, DensityCounts>,
        /// Number of Gaussians.
        pub rows: u32,
        /// Number of Gaussians before the densification step.
        pub observed_rows: u32,
        /// Smallest opacity logit that stays.
        pub opacity_logit_min: f32,
        /// Largest log-scale that stays.
        pub log_scale_max: f32,
        /// 0 if scales are not limited.
        pub limits_scale: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `gather` and `scatter`: move the survivors of a chunk of rows to scratch, and from there to their new rows.
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
        /// Number of Gaussians before.
        pub rows: u32,
        /// Number of survivors.
        pub survivors: u32,
        /// Words per row of each table.
        pub widths: [u32; TABLES as usize],
    }

    /// `clear_padding`: clears the rows after the last.
    pub struct PaddingArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// Number of Gaussians.
        pub rows: u32,
        /// Words per row of each table.
        pub widths: [u32; TABLES as usize],
    }

    /// `decay_opacity`: multiplies opacities by a factor.
    pub struct DecayArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Factor of the opacities.
        pub factor: f32,
        /// Smallest opacity after the decay, for opacities that were above it.
        pub floor: f32,
        /// Padding.
        pub reserved: u32,
    }

    /// `reset_opacity`: lowers opacities and clears their moments.
    pub struct ResetArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: Out<'a, f32>,
        /// [lane blocks, `first_width`, 32]
        pub geometry_first: Out<'a, u32>,
        /// [lane blocks, 11, 32]
        pub geometry_second: Out<'a, f32>,
        /// Words per row of the first moments; the last is the opacity's.
        pub first_width: u32,
        /// Number of Gaussians.
        pub n: u32,
        /// Largest opacity logit.
        pub ceiling_logit: f32,
    }

    /// `weigh`: computes the weights of a draw.
    pub struct WeighArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// [n]
        pub weights: Out<'a, u64>,
        /// 1 for each dead row; [n]. Null if dead rows are drawn too.
        pub flags: Out<'a, u32>,
        /// Opacity that living Gaussians exceed.
        pub opacity_min: f64,
        /// Number of Gaussians.
        pub n: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `draw_sources`: draws the source row of each copy.
    pub struct DrawArgs<'a> {
        /// [lane blocks, 11, 32]
        pub geometry: In<'a, f32>,
        /// Inclusive prefix sums of the weights; the last is not 0. [n]
        pub sums: In<'a, u64>,
        /// [copies]; if copies replace the dead, initially the number of dead rows up to each row.
        pub sources: Out<'a, u32>,
        /// Copies of each row; [n], initially 0.
        pub counts: Out<'a, u32>,
        /// Key of the stream of random numbers.
        pub key: u64,
        /// Opacity that living Gaussians exceed.
        pub opacity_min: f64,
        /// Number of Gaussians.
        pub n: u32,
        /// Number of copies; if copies replace the dead, the number of Gaussians.
        pub copies: u32,
        /// 0 if the copies follow the last row, else they replace the dead.
        pub over_the_dead: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `split_opacity`: gives each copied row its share of opacity and scale.
    pub struct SplitOpacityArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [n]
        pub counts: In<'a, u32>,
        /// Smallest opacity of a share.
        pub opacity_min: f64,
        /// Words per row of each table.
        pub widths: [u32; TABLES as usize],
        /// Number of Gaussians.
        pub n: u32,
        /// 0 if the rows keep their moments.
        pub forgets: u32,
    }

    /// `copy_sources`: copies the parameters of the drawn rows.
    pub struct CopyArgs<'a> {
        /// All rows.
        pub tables: [Out<'a, u32>; TABLES as usize],
        /// [copies]
        pub sources: In<'a, u32>,
        /// Words per row of each table.
        pub widths: [u32; TABLES as usize],
        /// Row of the first copy.
        pub first: u32,
        /// Number of copies.
        pub copies: u32,
        /// 0 if the copies' rows keep their moments.
        pub forgets: u32,
        /// Padding.
        pub reserved: u32,
    }

    /// `morton_keys`: computes every row's key along the Z-curve, and its index.
    pub struct MortonArgs<'a> {
        /// Rows that start with the centre; [lane blocks, `width`, 32].
        pub table: In<'a, f32>,
        /// [n]
        pub keys: Out<'a, u32>,
        /// 0, 1, 2, ...; [n]
        pub rows: Out<'a, u32>,
        /// Centre of the keys' cube, world units.
        pub centre: [f32; 3],
        /// Half the cube's side, world units.
        pub half_side: f32,
        /// Number of rows.
        pub n: u32,
        /// Values per row.
        pub width: u32,
    }

    /// `fetch_column`: copies the first column to scratch. `gather_columns` and `return_columns`: copy columns of a
    /// table to scratch in another order of the rows, and back.
    pub struct ColumnsArgs<'a> {
        /// Values of 4 bytes, [lane blocks, width, 32].
        pub table: Out<'a, u8>,
        /// [n]
        pub row_from_place: In<'a, u32>,
        /// Values of 4 bytes, [columns, n].
        pub scratch: Out<'a, u8>,
        /// Number of Gaussians.
        pub n: u32,
        /// Number of columns of the table.
        pub width: u32,
        /// Index of the first column.
        pub first: u32,
        /// Number of columns to copy.
        pub columns: u32,
    }

    /// `count_digits`: counts the values of a digit.
    pub struct DigitsArgs<'a> {
        /// [n]
        pub absolute_norm_sums: In<'a, f32>,
        /// [n]
        pub views_seen: In<'a, u32>,
        /// [`DIGITS`]; initially 0.
        pub counts: Out<'a, u32>,
        /// Number of Gaussians.
        pub n: u32,
        /// Mask of the known bits above the digit.
        pub known: u32,
        /// Value of these bits in the counted numbers.
        pub prefix: u32,
        /// Position of the digit's lowest bit.
        pub shift: u32,
        /// Mask of the digit after the shift.
        pub digit: u32,
        /// Padding.
        pub reserved: u32,
    }
}

//! Stage `densify`: the twin of `backend/cpu/stage/densify.rs`, in place.
//!
//! All memory is taken before anything changes: scratch first, then the growth of the model. Thresholds are raw
//! parameters, found with the host's own functions, so that both backends decide alike.

use std::ops::Range;

use rayon::prelude::*;

use super::project::{DrawnView, Splats};
use crate::abi::{
    COMPACT_SLICES, CompactArgs, DIGITS, DecayArgs, DensityCounts, DigitsArgs, GEOMETRY_WIDTH,
    GrowArgs, ListArgs, MidpointsArgs, OBSERVE_ABSOLUTE, OBSERVE_DISAGREEMENT, OBSERVE_NORMS,
    ObserveArgs, PaddingArgs, RaiseFloorArgs, ResetArgs, SelectedArgs, SurveyArgs, SurvivorsArgs,
    VertexSizesArgs,
};
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::lanes::{LANES, table_len};
use crate::backend::cuda::model::tables::{
    FaceTables, GEOMETRY, GEOMETRY_FIRST, SH, centres, pointers,
};
use crate::backend::cuda::prelude::*;
use crate::backend::{
    Candidates, DrawSettings, Edited, GradientRule, Grow, Keep, Remesh, ScoreRule, Statistics,
};
use crate::layout::{
    Choice, DENSITY_COUNTS, DENSITY_DIGITS, DensifySizes, MIDPOINTS, MOVED_WORDS, Records, RowForm,
    SelectionSlots,
};
use crate::math::quantile::{between, place};
use crate::math::{inverse_sigmoid, sigmoid};
use crate::model::Primitive;

#[derive(Clone, Copy, Debug)]
struct Holes {
    removed: usize,
    /// Upper bound of the number of rows from the first removed one on.
    after_first: usize,
}

/// Scratch of a densification step: 8 bytes per Gaussian and a chunk of rows.
pub(crate) struct DensifyWork {
    sizes: DensifySizes,
    /// Number of selected candidates, to densify or to keep.
    selected: usize,
    /// Largest log-scale of a small candidate.
    small_log_scale: f32,
    counts: Block<DensityCounts>,
    /// One flag per row, new ones included: first whether it grows, then whether it stays.
    flags: Block<u32>,
    /// Exclusive sums of the flags.
    ranks: Block<u32>,
    /// Rows of a chunk that move.
    rows: Block<u32>,
}

impl DensifyWork {
    /// Selects at most `most` candidates with the highest scores: to densify by gradient, to keep by weight.
    pub(crate) fn select(
        session: &Session,
        model: &Model,
        candidates: &Candidates,
        most: usize,
    ) -> Result<Self> {
        let gradient = candidates.rule.by_gradient().ok_or(DeviceError::UnsuitedEdit)?;
        let thresholds = Thresholds::known(&gradient, candidates.absolute_min);
        let wanted = candidates.count() as u64;
        let selected = most.min(candidates.count());
        let new_gaussians = if candidates.rule == ScoreRule::Weight { 0 } else { selected as u64 };
        let sizes = DensifySizes { model: model.size(), new_gaussians, wanted };
        let mut work = Self::reserve(session, sizes, selected, thresholds.small_log_scale)?;
        work.counts.zero(&session.stream)?;
        if selected > 0 {
            work.mark_selected(session, model, &thresholds, candidates.count())?;
        }
        Ok(work)
    }

    /// Allocates the removal of rows from a model that first grows by `new_gaussians` rows.
    pub(crate) fn for_new_gaussians(
        session: &Session,
        model: &Model,
        new_gaussians: usize,
    ) -> Result<Self> {
        let sizes =
            DensifySizes { model: model.size(), new_gaussians: new_gaussians as u64, wanted: 0 };
        Self::reserve(session, sizes, new_gaussians, 0.0)
    }

    /// Removes the first rows except `kept`, which is ascending.
    pub(crate) fn keep(
        &mut self,
        session: &Session,
        model: &mut Model,
        kept: &[u32],
        first_rows: usize,
    ) -> Result {
        let removed = first_rows - kept.len();
        if removed == 0 {
            return Ok(());
        }
        let mut flags = vec![0_u32; first_rows];
        flags.resize(model.len(), 1);
        for &row in kept {
            flags[row as usize] = 1;
        }
        self.flags.upload(&session.stream, 0, &flags)?;
        let first_hole = flags.iter().position(|&flag| flag == 0).unwrap_or(0);
        let after_first = model.len() - first_hole;
        self.compact(session, model, Holes { removed, after_first })
    }

    /// Removes all rows that are not selected, and clears the statistics.
    pub(crate) fn retain(&mut self, session: &Session, model: &mut Model) -> Result<Edited> {
        let removed = model.len() - self.selected;
        if self.selected == 0 {
            self.flags.zero(&session.stream)?;
        }
        if removed > 0 {
            // The first removed row is unknown: all rows may move.
            self.compact(session, model, Holes { removed, after_first: model.len() })?;
        }
        model.forget_statistics(session)?;
        Ok(Edited { removed, ..Edited::default() })
    }

    /// Grows the selected rows, removes rows by the rule, and clears the statistics.
    pub(crate) fn edit(
        &mut self,
        session: &Session,
        model: &mut Model,
        large: &Grow,
        keep: &Keep,
    ) -> Result<Edited> {
        // It holds the counts of candidates, or of a try that was refused memory.
        self.counts.zero(&session.stream)?;
        let before = model.len();
        if self.selected > 0 {
            self.make_room(session, model)?;
            self.grow(session, model, large)?;
        }
        self.mark_survivors(session, model, keep, before)?;
        let counts = read(session, &self.counts)?;
        let removed = counts.pruned as usize;
        if removed > 0 {
            let after_first = counts.rows_after_hole as usize;
            self.compact(session, model, Holes { removed, after_first })?;
        }
        model.forget_statistics(session)?;
        Ok(Edited {
            copied: counts.cloned as usize,
            split: counts.split as usize,
            moved: 0,
            removed,
        })
    }

    fn reserve(
        session: &Session,
        sizes: DensifySizes,
        selected: usize,
        small_log_scale: f32,
    ) -> Result<Self> {
        let SelectionSlots { counts, flags, ranks, rows } =
            SelectionSlots::reserve(&session.heap, &sizes)?;
        Ok(Self { sizes, selected, small_log_scale, counts, flags, ranks, rows })
    }

    /// Flags the selected candidates, by score if not all are selected.
    fn mark_selected(
        &mut self,
        session: &Session,
        model: &Model,
        thresholds: &Thresholds,
        counted: usize,
    ) -> Result {
        let stream = &session.stream;
        self.flags.zero(stream)?;
        mark(session, model, thresholds, self.flags.write(), self.counts.write())?;
        // More candidates would be written past the end of the lists.
        let DensityCounts { clones, splits, .. } = read(session, &self.counts)?;
        let found = clones as usize + splits as usize;
        if found != counted {
            return Err(DeviceError::StaleCandidates { counted, found });
        }
        if self.selected == counted {
            return Ok(());
        }
        self.number_flags(session)?;
        let heap = &session.heap;
        let Choice { mut keys, mut rows } = Choice::reserve(heap, &self.sizes)?;
        let args = ListArgs {
            gradient_norm_sums: model.gradient_norm_sums.read(),
            views_seen: model.views_seen.read(),
            absolute_norm_sums: absolute_norm_sums(model, thresholds),
            flags: self.flags.read(),
            ranks: self.ranks.read(),
            keys: keys[0].write(),
            rows: rows[0].write(),
            n: count_u32(model.len())?,
            gradient_min: thresholds.gradient,
            absolute_min: thresholds.absolute.unwrap_or(0.0),
            random_key: thresholds.drawn_by.unwrap_or(0),
            drawn: u32::from(thresholds.drawn_by.is_some()),
        };
        session.kernels.list_candidates.over(stream, model.len(), &args)?;
        // Stable: equal scores keep the order of the rows.
        let mut pairs = SortPairs {
            keys: keys.each_mut(),
            values: rows.each_mut(),
            n: counted,
            bits: 0..u32::BITS,
        };
        let sorted = sort::sort_pairs(heap, stream, &mut pairs)?;
        self.flags.zero(stream)?;
        let args = SelectedArgs {
            rows: rows[sorted].read(),
            flags: self.flags.write(),
            new_gaussians: count_u32(self.selected)?,
        };
        session.kernels.mark_selected.over(stream, self.selected, &args)
    }

    /// Grows the model for the new rows and numbers them. Last allocation: if it is refused the model is unchanged.
    fn make_room(&mut self, session: &Session, model: &mut Model) -> Result {
        let before = model.len();
        model.grow(session, self.selected)?;
        let numbered = self.number_flags(session);
        if numbered.is_err() {
            model.shrink(before);
        }
        numbered
    }

    fn number_flags(&mut self, session: &Session) -> Result {
        let Session { heap, stream, .. } = session;
        sort::exclusive_sum(heap, stream, self.flags.len(), &self.flags, &mut self.ranks)
    }

    /// Copies and splits the flagged rows of a model that has grown.
    fn grow(&mut self, session: &Session, model: &mut Model, large: &Grow) -> Result {
        model.invalidate_rows();
        let before = model.len() - self.selected;
        let (copied_log_scale, shrink, key) = match *large {
            Grow::SplitRandom { shrink, key } | Grow::AddChild { shrink, key } => {
                (self.small_log_scale, shrink, key)
            }
            Grow::Copy => (f32::INFINITY, 1.0, 0),
        };
        let args = GrowArgs {
            flags: self.flags.read(),
            ranks: self.ranks.read(),
            counts: self.counts.write(),
            key,
            n: count_u32(before)?,
            widths: model.kernel_widths(),
            clone_log_scale_max: copied_log_scale,
            log_shrink: f32::of(shrink.ln()),
            parents_stay: u32::from(matches!(large, Grow::AddChild { .. })),
            reserved: 0,
            tables: model.tables(),
        };
        session.kernels.grow.over(&session.stream, before, &args)
    }

    /// Flags the rows that stay, new ones included, and counts the others.
    fn mark_survivors(
        &mut self,
        session: &Session,
        model: &Model,
        keep: &Keep,
        before: usize,
    ) -> Result {
        let args = SurvivorsArgs {
            geometry: model.geometry(),
            views_seen: if keep.unseen { In::NULL } else { model.views_seen.read() },
            flags: self.flags.write(),
            counts: self.counts.write(),
            rows: count_u32(model.len())?,
            observed_rows: count_u32(before)?,
            opacity_logit_min: first_at_least(sigmoid, f32::of(keep.opacity_min)),
            log_scale_max: keep.scale_max.map_or(0.0, log_scale_max),
            limits_scale: u32::from(keep.scale_max.is_some()),
            reserved: 0,
        };
        session.kernels.mark_survivors.over(&session.stream, model.len(), &args)
    }

    /// Moves the flagged rows to the front, chunk by chunk, and drops the others.
    fn compact(
        &mut self,
        session: &Session,
        model: &mut Model,
        Holes { removed, after_first }: Holes,
    ) -> Result {
        self.number_flags(session)?;
        model.invalidate_rows();
        let rows = model.len();
        let survivors = rows - removed;
        let first = (rows - after_first) / LANES;
        let at_once = MOVED_WORDS as usize / (columns(model) * LANES);
        let end = rows.div_ceil(LANES);
        for block in (first..end).step_by(at_once) {
            let blocks = block..block + at_once.min(end - block);
            self.compact_chunk(session, model, blocks, survivors)?;
        }
        if !survivors.is_multiple_of(LANES) {
            let threads = columns(model) * LANES;
            let args = PaddingArgs {
                rows: count_u32(survivors)?,
                widths: model.kernel_widths(),
                tables: model.tables(),
            };
            session.kernels.clear_padding.over(&session.stream, threads, &args)?;
        }
        model.shrink(survivors);
        Ok(())
    }

    fn compact_chunk(
        &mut self,
        session: &Session,
        model: &mut Model,
        blocks: Range<usize>,
        survivors: usize,
    ) -> Result {
        let Session { kernels, stream, .. } = session;
        let args = CompactArgs {
            flags: self.flags.read(),
            ranks: self.ranks.read(),
            scratch: self.rows.write(),
            first_block: count_u32(blocks.start)?,
            blocks: count_u32(blocks.len())?,
            rows: count_u32(model.len())?,
            survivors: count_u32(survivors)?,
            widths: model.kernel_widths(),
            tables: model.tables(),
        };
        let threads_a_block = COMPACT_SLICES as usize * LANES;
        kernels.gather.over(stream, blocks.len() * threads_a_block, &args)?;
        // The chunk's target may begin and end in mid-block.
        kernels.scatter.over(stream, (blocks.len() + 1) * threads_a_block, &args)
    }
}

fn columns(model: &Model) -> usize {
    model.widths().sum()
}

/// Thresholds of candidates.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    /// Minimum mean norm of the gradient.
    pub(super) gradient: f32,
    /// Minimum mean absolute gradient, if used.
    pub(super) absolute: Option<f32>,
    /// Largest log-scale of a small Gaussian.
    pub(super) small_log_scale: f32,
    /// Random key that candidates are drawn by; `None` if they are ranked.
    pub(super) drawn_by: Option<u64>,
}

impl Thresholds {
    pub(super) fn known(rule: &GradientRule, absolute_min: Option<f64>) -> Self {
        Self {
            gradient: f32::of(rule.min),
            absolute: absolute_min.map(f32::of),
            small_log_scale: log_scale_max(rule.small_max),
            drawn_by: rule.drawn_by,
        }
    }
}

/// Finds the thresholds and counts the candidates.
pub(crate) fn score(
    session: &Session,
    model: &Model,
    rule: &ScoreRule,
    gradient: &GradientRule,
) -> Result<Candidates> {
    let mut counts = session.heap.take(&DENSITY_COUNTS, &1)?;
    let mut count = |absolute_min| {
        counts.zero(&session.stream)?;
        let thresholds = Thresholds::known(gradient, absolute_min);
        mark(session, model, &thresholds, Out::NULL, counts.write())?;
        let DensityCounts { clones, splits, .. } = read(session, &counts)?;
        let (small, large) = (clones as usize, splits as usize);
        Ok::<_, DeviceError>(Candidates { rule: *rule, absolute_min, small, large })
    };
    let candidates = count(None)?;
    // Before any view was observed there are no absolute gradients.
    if !gradient.with_quantile || model.absolute_norm_sums.is_empty() {
        return Ok(candidates);
    }
    let quantile = quantile(session, model, candidates.count())?;
    count(Some(f64::from(quantile)))
}

/// Flags and counts the candidates; either output may be null.
pub(super) fn mark(
    session: &Session,
    model: &Model,
    thresholds: &Thresholds,
    flags: Out<'_, u32>,
    counts: Out<'_, DensityCounts>,
) -> Result {
    let args = SurveyArgs {
        geometry: model.geometry(),
        gradient_norm_sums: model.gradient_norm_sums.read(),
        views_seen: model.views_seen.read(),
        absolute_norm_sums: absolute_norm_sums(model, thresholds),
        flags,
        counts,
        n: count_u32(model.len())?,
        gradient_min: thresholds.gradient,
        absolute_min: thresholds.absolute.unwrap_or(0.0),
        clone_log_scale_max: thresholds.small_log_scale,
    };
    session.kernels.survey.over(&session.stream, model.len(), &args)
}

/// Returns the sums of absolute gradients if they have a threshold.
pub(super) fn absolute_norm_sums<'a>(model: &'a Model, thresholds: &Thresholds) -> In<'a, f32> {
    if thresholds.absolute.is_some() { model.absolute_norm_sums.read() } else { In::NULL }
}

/// Returns the largest log-scale within a bound of the scale.
pub(super) fn log_scale_max(scale_max: f64) -> f32 {
    last_at_most(f32::exp, f32::of(scale_max))
}

pub(super) fn read(session: &Session, counts: &Block<DensityCounts>) -> Result<DensityCounts> {
    let mut host = [DensityCounts::default()];
    counts.download(&session.stream, 0, &mut host)?;
    Ok(host[0])
}

/// Adds an observed view to the statistics, with the norm of the gradient in units of half the image.
pub(crate) fn observe<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &Splats,
    DrawnView { camera, settings }: DrawnView<'_>,
) -> Result {
    // The backward pass observes triangles itself.
    let statistics = settings.observe.filter(|_| splats.kind != Records::Triangles);
    let Some(statistics) = statistics else { return Ok(()) };
    let [.., axis_x, axis_y, axis_z] = camera.rotation;
    let sums_absolute = statistics == Statistics::Both;
    if sums_absolute {
        model.enable_absolute_norms(session)?;
    }
    let begun = session.timers.begin(Stage::Observe, &session.stream)?;
    let (table, width) = centres::<P>(&model.tables, model.sh_degree());
    let gaussians = splats.splat_from_gaussian.len();
    let args = ObserveArgs {
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        gradients: splats.gradients.read(),
        table,
        gradient_norm_sums: model.gradient_norm_sums.write(),
        views_seen: model.views_seen.write(),
        absolute_norm_sums: match sums_absolute {
            true => model.absolute_norm_sums.write(),
            false => Out::NULL,
        },
        gaussians: count_u32(gaussians)?,
        half_size: half_size(camera, settings),
        observed: match statistics {
            Statistics::Norms | Statistics::Both => OBSERVE_NORMS,
            Statistics::AbsoluteNorms => OBSERVE_ABSOLUTE,
            Statistics::Disagreement => OBSERVE_DISAGREEMENT,
        },
        axis: [axis_x, axis_y, axis_z, camera.translation[2]],
        fade_depth: f32::of(settings.fade_depth),
        width,
        record_width: splats.kind.width(),
        reserved: 0,
    };
    session.kernels.observe.over(&session.stream, gaussians, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Returns half of width and height, px. [`Statistics::Disagreement`] uses their product times the divisor, as on the
/// CPU.
fn half_size(camera: &ViewCamera, settings: &DrawSettings) -> [f32; 2] {
    let [width, height] = camera.size.map(|side| f64::from(side) / 2.0);
    let times = match settings.observe {
        Some(Statistics::Disagreement) => f64::from(settings.divisor.get()),
        _ => 1.0,
    };
    [width * times, height].map(f32::of)
}

/// Lowers every opacity to at most `ceiling` and clears the opacities' moments.
pub(crate) fn reset_opacity(session: &Session, model: &mut Model, ceiling: f64) -> Result {
    let rows = model.len();
    let first_width = model.kernel_widths()[GEOMETRY_FIRST];
    let [geometry, geometry_first, geometry_second, ..] = model.tables();
    let args = ResetArgs {
        geometry: geometry.floats(),
        geometry_first,
        geometry_second: geometry_second.floats(),
        first_width,
        n: count_u32(rows)?,
        ceiling_logit: inverse_sigmoid(f32::of(ceiling)),
    };
    session.kernels.reset_opacity.over(&session.stream, rows, &args)
}

/// Multiplies every opacity by a factor, down to a floor, and clears all moments. Colours must have caught up.
pub(crate) fn decay_opacity(
    session: &Session,
    model: &mut Model,
    factor: f64,
    floor: f64,
) -> Result {
    let rows = model.len();
    let args = DecayArgs {
        geometry: model.tables()[GEOMETRY].floats(),
        n: count_u32(rows)?,
        factor: f32::of(factor),
        floor: f32::of(floor),
        reserved: 0,
    };
    session.kernels.decay_opacity.over(&session.stream, rows, &args)?;
    model.forget_moments(session)
}

/// A digit of a number, in bits.
struct Digit {
    shift: u32,
    width: u32,
}

/// The digits from the highest down: all bits but the sign.
const PASSES: [Digit; 3] =
    [Digit { shift: 20, width: 11 }, Digit { shift: 10, width: 10 }, Digit { shift: 0, width: 10 }];

/// Maximum number of blocks of a pass. Each block adds up all counts.
const MAX_BLOCKS: usize = 512;

/// Minimum number of Gaussians per block of a pass.
const MIN_ROWS_PER_BLOCK: usize = 4096;

/// Returns the quantile 1 - `above / n` of the mean absolute gradients, by an exact radix select.
pub(crate) fn quantile(session: &Session, model: &Model, above: usize) -> Result<f32> {
    let mut counts = session.heap.take(&DENSITY_DIGITS, &1)?;
    let place = place(model.len(), above);
    let mut select = |rank| select(session, model, rank, &mut counts).map(f64::from);
    let low = select(place.rank)?;
    let high = if place.share > 0.0 { select(place.rank + 1)? } else { low };
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    Ok(between(low, high, place.share) as f32)
}

/// Returns the value of a rank, from 0, in ascending order.
fn select(
    session: &Session,
    model: &Model,
    mut rank: usize,
    counts: &mut Block<u32>,
) -> Result<f32> {
    let (mut known, mut prefix) = (0, 0);
    let mut host = [0; DIGITS as usize];
    for Digit { shift, width } in PASSES {
        let digit = (1 << width) - 1;
        counts.zero(&session.stream)?;
        let args = DigitsArgs {
            absolute_norm_sums: model.absolute_norm_sums.read(),
            views_seen: model.views_seen.read(),
            counts: counts.write(),
            n: count_u32(model.len())?,
            known,
            prefix,
            shift,
            digit,
            reserved: 0,
        };
        let blocks = model.len().div_ceil(MIN_ROWS_PER_BLOCK).min(MAX_BLOCKS);
        session.kernels.count_digits.blocks(&session.stream, blocks, &args)?;
        counts.download(&session.stream, 0, &mut host)?;
        let (chosen, before) = digit_of(&host, rank);
        rank -= before;
        known |= digit << shift;
        prefix |= chosen << shift;
    }
    Ok(f32::from_bits(prefix))
}

/// Returns the digit of the number of a rank, and how many numbers have a smaller digit.
fn digit_of(counts: &[u32], rank: usize) -> (u32, usize) {
    let mut before = 0;
    for (digit, &count) in (0..).zip(counts) {
        let count = count as usize;
        if rank < before + count {
            return (digit, before);
        }
        before += count;
    }
    // Unreachable: ranks are below the number of values.
    (0, 0)
}

/// Changes vertices and triangles. Takes all memory first. Colours must have caught up.
pub(crate) fn remesh(session: &Session, model: &mut Model, change: &Remesh<'_>) -> Result {
    let &Remesh { kept, midpoints, faces } = change;
    let before = model.len();
    if !kept.is_sorted_by(|a, b| a < b) {
        return Err(DeviceError::KeptNotAscending);
    }
    let ends = kept.iter().chain(midpoints.as_flattened());
    if let Some(&row) = ends.into_iter().find(|&&row| row as usize >= before) {
        return Err(DeviceError::NoSuchRow { row: row as usize, len: before });
    }
    let tables = FaceTables::new(session, faces, kept.len() + midpoints.len())?;
    change_rows(session, model, midpoints, |work, model| work.keep(session, model, kept, before))?;
    model.forget_statistics(session)?;
    model.invalidate_rows();
    model.faces = Some(tables);
    size_vertices(session, model)
}

/// Splits `new_gaussians` edges and removes a vertex, in a dry run.
pub(crate) fn dry(session: &Session, model: &mut Model, new_gaussians: usize) -> Result {
    let midpoints = vec![[0; 2]; new_gaussians];
    change_rows(session, model, &midpoints, |work, model| {
        let one = usize::from(!model.is_empty());
        work.compact(session, model, Holes { removed: one, after_first: one })
    })
}

/// Adds vertices in the middle of edges, and removes others.
fn change_rows(
    session: &Session,
    model: &mut Model,
    midpoints: &[[u32; 2]],
    remove: impl FnOnce(&mut DensifyWork, &mut Model) -> Result,
) -> Result {
    let before = model.len();
    let mut work = DensifyWork::for_new_gaussians(session, model, midpoints.len())?;
    if !midpoints.is_empty() {
        let mut ends = session.heap.take(&MIDPOINTS, &(midpoints.len() as u64))?;
        ends.upload(&session.stream, 0, midpoints.as_flattened())?;
        model.grow(session, midpoints.len())?;
        let form = model.size().forms().nth(SH).unwrap_or(RowForm::Floats);
        let sh_words = model.kernel_widths()[SH];
        let pointers = model.tables();
        let args = MidpointsArgs {
            midpoints: ends.read(),
            geometry: pointers[GEOMETRY].floats(),
            sh: pointers[SH],
            count: count_u32(midpoints.len())?,
            rows_before: count_u32(before)?,
            sh_words,
            sh_in_halves: u32::from(form == RowForm::Halves),
        };
        let words = GEOMETRY_WIDTH as usize + sh_words as usize;
        let threads = midpoints.len().next_multiple_of(LANES) * words;
        session.kernels.add_midpoints.over(&session.stream, threads, &args)?;
    }
    remove(&mut work, model)
}

/// Sets the scales of each vertex from the areas of its triangles.
fn size_vertices(session: &Session, model: &mut Model) -> Result {
    let rows = model.len();
    let Some(tables) = &model.faces else { return Ok(()) };
    let args = VertexSizesArgs {
        faces: tables.faces.read(),
        geometry: pointers(&mut model.tables)[GEOMETRY].floats(),
        faces_len: count_u32(tables.len())?,
        n: count_u32(rows)?,
    };
    let (kernels, stream) = (&session.kernels, &session.stream);
    kernels.clear_vertex_sizes.over(stream, rows, &args)?;
    kernels.add_face_areas.over(stream, tables.len(), &args)?;
    kernels.set_vertex_sizes.over(stream, rows, &args)
}

/// Returns position and opacity logit of each vertex. Waits for the device.
pub(crate) fn vertices(session: &Session, model: &Model) -> Result<Vec<[f32; 4]>> {
    let width = GEOMETRY_WIDTH as usize;
    let range = 0..table_len(model.len(), width);
    let words = model.tables[GEOMETRY].download_vec(&session.stream, range)?;
    let vertex = |row: usize| {
        let lane = row / LANES * LANES * width + row % LANES;
        [0, 1, 2, width - 1].map(|value| f32::from_bits(words[lane + value * LANES]))
    };
    Ok((0..model.len()).into_par_iter().map(vertex).collect())
}

/// Converts opacity logits to another opacity floor.
pub(crate) fn raise_opacity_floor(
    session: &Session,
    model: &mut Model,
    before: f64,
    after: f64,
) -> Result {
    let rows = model.len();
    let args = RaiseFloorArgs {
        geometry: model.tables()[GEOMETRY].floats(),
        n: count_u32(rows)?,
        before: f32::of(before),
        after: f32::of(after),
        reserved: 0,
    };
    session.kernels.raise_opacity_floor.over(&session.stream, rows, &args)
}

// Thresholds of monotonic functions. The device compares raw parameters, `log_scale <= x` instead of
// `exp(log_scale) <= bound`, so that it decides as the host does although its `exp` rounds differently.

/// Returns the largest x with `f(x) <= bound`, or NaN if there is none.
pub(crate) fn last_at_most(f: impl Fn(f32) -> f32, bound: f32) -> f32 {
    match bisect(|x| f(x) <= bound) {
        Crossing::Never => f32::INFINITY,
        Crossing::AtOnce => f32::NAN,
        Crossing::Between(last, _) => last,
    }
}

/// Returns the smallest x with `f(x) >= bound`, or NaN if there is none.
pub(crate) fn first_at_least(f: impl Fn(f32) -> f32, bound: f32) -> f32 {
    let reaches = |x| f(x) >= bound;
    match bisect(|x| !reaches(x)) {
        Crossing::Never => f32::NAN,
        Crossing::AtOnce => f32::NEG_INFINITY,
        Crossing::Between(_, first) => first,
    }
}

/// The end of the numbers for which a predicate holds.
enum Crossing {
    /// It holds for all numbers.
    Never,
    /// It holds for none.
    AtOnce,
    /// The last number for which it holds, and the next number.
    Between(f32, f32),
}

fn bisect(holds: impl Fn(f32) -> bool) -> Crossing {
    if holds(f32::INFINITY) {
        return Crossing::Never;
    }
    if !holds(f32::NEG_INFINITY) {
        return Crossing::AtOnce;
    }
    let (mut low, mut high) = (position(f32::NEG_INFINITY), position(f32::INFINITY));
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if holds(number(middle)) {
            low = middle;
        } else {
            high = middle;
        }
    }
    Crossing::Between(number(low), number(high))
}

const SIGN: u32 = 1 << 31;

/// Returns the rank of a number among all: neighbours differ by 1.
fn position(x: f32) -> u32 {
    let bits = x.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// Returns the number of a rank.
fn number(position: u32) -> f32 {
    f32::from_bits(if position & SIGN == 0 { !position } else { position & !SIGN })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::{Real, sigmoid};

    #[test]
    fn digits_cover_all_bits_but_the_sign() {
        let covered = PASSES.iter().fold(0_u32, |bits, Digit { shift, width }| {
            assert!(1 << width <= DIGITS);
            bits | ((1 << width) - 1) << shift
        });
        assert_eq!(covered, u32::MAX >> 1);
    }

    #[test]
    fn the_digit_of_a_rank_is_the_first_whose_numbers_reach_it() {
        let counts = [0, 3, 0, 2];
        let found: Vec<_> = (0..5).map(|rank| digit_of(&counts, rank)).collect();
        assert_eq!(found, [(1, 0), (1, 0), (1, 0), (3, 3), (3, 3)]);
    }

    /// Returns numbers around `x`, many of them its neighbours, and the extremes.
    fn around(x: f32, seed: u64) -> Vec<f32> {
        let stream = RandomStream::new(seed, 0, RandomUse::Sample);
        let near = (0..200).map(|i| number(position(x) - 100 + i));
        let far = (0..2000).map(|i| x + 5.0 * f32::of(stream.normal(i)));
        let edges = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, f32::MAX, f32::MIN];
        near.chain(far).chain(edges).collect()
    }

    #[test]
    fn scales_compare_alike_by_their_logarithms() {
        for bound in [0.01_f32, 0.1, 1.0, 3.7, 1e-30, 1e30] {
            let threshold = last_at_most(f32::exp, bound);
            for x in around(bound.ln(), 1) {
                assert_eq!(x.exp() <= bound, x <= threshold, "{x} against {bound}");
            }
        }
    }

    #[test]
    fn opacities_compare_alike_by_their_logits() {
        for bound in [0.005_f32, 0.5, 0.1, 1.0 - 1e-6] {
            let threshold = first_at_least(sigmoid, bound);
            for x in around((bound / (1.0 - bound)).ln(), 2) {
                assert_eq!(sigmoid(x) >= bound, x >= threshold, "{x} against {bound}");
            }
        }
    }

    #[test]
    fn bounds_without_a_crossing_have_infinite_or_nan_thresholds() {
        assert_eq!(last_at_most(f32::exp, f32::INFINITY), f32::INFINITY);
        assert_eq!(first_at_least(sigmoid, 0.0), f32::NEG_INFINITY);
        for none in [
            last_at_most(f32::exp, -1.0),
            last_at_most(f32::exp, f32::NAN),
            first_at_least(sigmoid, 1.5),
            first_at_least(sigmoid, f32::NAN),
        ] {
            assert!(none.is_nan());
        }
    }
}

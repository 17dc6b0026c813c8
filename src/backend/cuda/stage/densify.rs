//! Stage `densify`: the twin of `backend/cpu/stage/densify.rs`, in place.
//!
//! Whatever may be refused is asked for before anything changes: scratch first, then the growth of
//! the model. Thresholds go to the device in raw parameters, found with the host's own functions, so
//! that both backends count alike.

use super::project::Splats;
use super::quantile::quantile;
use super::threshold::{first_at_least, last_at_most};
use crate::abi::{
    COMPACT_SLICES, Camera, CompactArgs, DensityCounts, GrowArgs, In, ListArgs, ObserveArgs, Out,
    PaddingArgs, ResetArgs, SelectedArgs, SurveyArgs, SurvivorsArgs,
};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::lanes::{LANES, table_len};
use crate::backend::cuda::model::tables::{GEOMETRY, GEOMETRY_FIRST, Model};
use crate::backend::cuda::session::Session;
use crate::backend::edit::SPLIT_SHRINK;
use crate::backend::{
    Criterion, Densified, DensifyRule, DeviceError, Drawing, Grant, Statistics, Survey,
};
use crate::math::random::{Purpose, Stream};
use crate::math::{Real, inverse_sigmoid, sigmoid};

/// Scratch that rows are moved through, in words of 4 bytes: 32 MiB stay in the cache of a large GPU.
pub(crate) const COMPACT_WORDS: usize = 1 << 23;

/// Adds one view to the statistics where it is observed: the norm of the centre's gradient, half the image being 1, or what
/// the statistics ask for.
pub(crate) fn observe(
    session: &Session,
    model: &mut Model,
    splats: &Splats,
    (camera, settings): (&Camera, &Drawing),
) -> Result<(), DeviceError> {
    let Some(statistics) = settings.observe else { return Ok(()) };
    let [.., axis_x, axis_y, axis_z] = camera.rotation;
    let sums_absolute = statistics == Statistics::Both;
    if sums_absolute {
        model.enable_absolute_norms(session)?;
    }
    let begun = session.timers.begin(Stage::Observe, &session.stream)?;
    let args = ObserveArgs {
        splats: splats.records.read(),
        gradients: splats.gradients.read(),
        geometry: model.tables[GEOMETRY].read().floats(),
        gradient_norm_sums: model.gradient_norm_sums.write(),
        views_seen: model.views_seen.write(),
        absolute_norm_sums: match sums_absolute {
            true => model.absolute_norm_sums.write(),
            false => Out::NULL,
        },
        visible: count_u32(splats.visible)?,
        half_size: camera.size.map(|side| f32::of(f64::from(side) / 2.0)),
        absolute: u32::from(statistics == Statistics::AbsoluteNorms),
        axis: [axis_x, axis_y, axis_z, camera.translation[2]],
        fade_depth: f32::of(settings.fade_depth),
    };
    session.kernels.observe.over(&session.stream, splats.visible, &args)?;
    session.timers.end(&begun, &session.stream)
}

/// What makes a Gaussian a candidate.
#[derive(Clone, Copy, Debug)]
struct Thresholds {
    /// Mean norm of the gradient.
    gradient: f32,
    /// Mean absolute gradient, where that counts, too.
    absolute: Option<f32>,
    /// Largest logarithm of a scale that is cloned.
    clone_log_scale: f32,
}

/// Counts the candidates.
pub(crate) fn survey(
    session: &Session,
    model: &Model,
    rule: &DensifyRule,
) -> Result<Survey, DeviceError> {
    Ok(look(session, model, rule)?.0)
}

/// Counts the candidates, and says what makes one.
fn look(
    session: &Session,
    model: &Model,
    rule: &DensifyRule,
) -> Result<(Survey, Thresholds), DeviceError> {
    let mut counts = session.heap.scratch::<DensityCounts>("density counts", 1)?;
    let mut count = |thresholds: &Thresholds| {
        counts.zero(&session.stream)?;
        mark(session, model, thresholds, (Out::NULL, counts.write()))?;
        let DensityCounts { clones, splits, .. } = read(session, &counts)?;
        Ok::<_, DeviceError>(Survey { clones: clones as usize, splits: splits as usize })
    };
    let mut thresholds = Thresholds {
        gradient: f32::of(rule.gradient_min),
        absolute: None,
        clone_log_scale: log_scale_max(rule.clone_scale_max),
    };
    let mut survey = count(&thresholds)?;
    // Before any view was observed there are no absolute gradients.
    if rule.criterion == Criterion::Quantile && !model.absolute_norm_sums.is_empty() {
        thresholds.absolute = Some(quantile(session, model, survey.births())?);
        survey = count(&thresholds)?;
    }
    Ok((survey, thresholds))
}

/// One round: grow as far as granted, prune, forget the statistics.
pub(crate) fn densify(
    session: &Session,
    model: &mut Model,
    rule: &DensifyRule,
    grant: Grant,
) -> Result<Densified, DeviceError> {
    let (survey, thresholds) = look(session, model, rule)?;
    let wanted = survey.births();
    let births = wanted.min(grant.births);
    let mut work = DensifyWork::new(session, model, births)?;
    if births > 0 {
        work.mark_selected(model, &thresholds, wanted)?;
        work.make_room(model)?;
        work.grow(model, rule)?;
    }
    work.mark_survivors(model, rule)?;
    let counts = read(session, &work.counts)?;
    if counts.pruned > 0 {
        work.compact(model, &counts)?;
    }
    model.forget_statistics(session)?;
    Ok(Densified {
        cloned: counts.cloned as usize,
        split: counts.split as usize,
        refused: wanted - births,
        pruned: counts.pruned as usize,
    })
}

/// Lowers every opacity to at most `ceiling` and forgets the opacities' moments.
pub(crate) fn reset_opacity(
    session: &Session,
    model: &mut Model,
    ceiling: f64,
) -> Result<(), DeviceError> {
    let rows = model.len();
    let first_width = model.widths_u32()?[GEOMETRY_FIRST];
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

/// Flags and counts the candidates, as far as the pointers are not null.
fn mark(
    session: &Session,
    model: &Model,
    thresholds: &Thresholds,
    (flags, counts): (Out<'_, u32>, Out<'_, DensityCounts>),
) -> Result<(), DeviceError> {
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
        clone_log_scale_max: thresholds.clone_log_scale,
    };
    session.kernels.survey.over(&session.stream, model.len(), &args)
}

/// What the bar for absolute gradients is held against, where there is one.
fn absolute_norm_sums<'a>(model: &'a Model, thresholds: &Thresholds) -> In<'a, f32> {
    if thresholds.absolute.is_some() { model.absolute_norm_sums.read() } else { In::NULL }
}

/// The largest logarithm of a scale whose scale is within a bound.
fn log_scale_max(scale_max: f64) -> f32 {
    last_at_most(f32::exp, f32::of(scale_max))
}

fn read(session: &Session, counts: &Block<DensityCounts>) -> Result<DensityCounts, DeviceError> {
    let mut host = [DensityCounts {
        clones: 0,
        splits: 0,
        cloned: 0,
        split: 0,
        pruned: 0,
        rows_after_hole: 0,
    }];
    counts.download(&session.stream, 0, &mut host)?;
    Ok(host[0])
}

/// What one round needs besides the model: 8 bytes per Gaussian and a chunk of rows.
struct DensifyWork<'a> {
    session: &'a Session,
    /// Gaussians to be born.
    births: usize,
    counts: Block<DensityCounts>,
    /// One per row, newborn included: first whether it grows, then whether it stays.
    flags: Block<u32>,
    /// Exclusive sums of the flags.
    ranks: Block<u32>,
    /// Survivors of a chunk on their way.
    rows: Block<u32>,
}

impl<'a> DensifyWork<'a> {
    fn new(session: &'a Session, model: &Model, births: usize) -> Result<Self, DeviceError> {
        let rows = model.len() + births;
        let chunk = table_len(rows, columns(model)).min(COMPACT_WORDS);
        let mut counts = session.heap.scratch("density counts", 1)?;
        counts.zero(&session.stream)?;
        Ok(Self {
            session,
            births,
            counts,
            flags: session.heap.scratch("density flags", rows)?,
            ranks: session.heap.scratch("density ranks", rows)?,
            // One block of rows more: survivors keep their lanes, which may begin in mid-block.
            rows: session.heap.scratch("density rows", chunk + table_len(1, columns(model)))?,
        })
    }

    /// Flags the candidates that grow: those with the highest score where not all may.
    fn mark_selected(
        &mut self,
        model: &Model,
        thresholds: &Thresholds,
        wanted: usize,
    ) -> Result<(), DeviceError> {
        let stream = &self.session.stream;
        self.flags.zero(stream)?;
        mark(self.session, model, thresholds, (self.flags.write(), Out::NULL))?;
        if self.births == wanted {
            return Ok(());
        }
        self.number_flags()?;
        let heap = &self.session.heap;
        let mut keys =
            [heap.scratch("density keys", wanted)?, heap.scratch("density keys", wanted)?];
        let mut rows = [heap.scratch("candidates", wanted)?, heap.scratch("candidates", wanted)?];
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
            reserved: 0,
        };
        self.session.kernels.list_candidates.over(stream, model.len(), &args)?;
        // Stable: equal scores keep the order of the Gaussians.
        let mut pairs = SortPairs {
            keys: keys.each_mut(),
            values: rows.each_mut(),
            n: wanted,
            bits: 0..u32::BITS,
        };
        let sorted = sort::sort_pairs(heap, stream, &mut pairs)?;
        self.flags.zero(stream)?;
        let args = SelectedArgs {
            rows: rows[sorted].read(),
            flags: self.flags.write(),
            births: count_u32(self.births)?,
        };
        self.session.kernels.mark_selected.over(stream, self.births, &args)
    }

    /// Lets the model have rows for the newborn, and numbers them. This is the last that may be
    /// refused, and then the model stays as it was: numbering the survivors takes no more scratch.
    fn make_room(&mut self, model: &mut Model) -> Result<(), DeviceError> {
        let before = model.len();
        model.grow(self.session, self.births)?;
        let numbered = self.number_flags();
        if numbered.is_err() {
            model.shrink(before);
        }
        numbered
    }

    fn number_flags(&mut self) -> Result<(), DeviceError> {
        let Session { heap, stream, .. } = self.session;
        sort::exclusive_sum(heap, stream, self.flags.len(), &self.flags, &mut self.ranks)
    }

    /// Clones and splits the flagged rows of a model that has room for the newborn.
    fn grow(&mut self, model: &mut Model, rule: &DensifyRule) -> Result<(), DeviceError> {
        model.invalidate_rows();
        let before = model.len() - self.births;
        let stream = Stream::new(rule.seed, u64::from(rule.iteration), Purpose::Split);
        let args = GrowArgs {
            flags: self.flags.read(),
            ranks: self.ranks.read(),
            counts: self.counts.write(),
            key: stream.key(),
            n: count_u32(before)?,
            widths: model.widths_u32()?,
            clone_log_scale_max: log_scale_max(rule.clone_scale_max),
            log_shrink: f32::of(SPLIT_SHRINK.ln()),
            tables: model.tables(),
        };
        self.session.kernels.grow.over(&self.session.stream, before, &args)
    }

    /// Flags the rows that stay, newborn included, and counts the others.
    fn mark_survivors(&mut self, model: &Model, rule: &DensifyRule) -> Result<(), DeviceError> {
        let args = SurvivorsArgs {
            geometry: model.geometry(),
            flags: self.flags.write(),
            counts: self.counts.write(),
            rows: count_u32(model.len())?,
            opacity_logit_min: first_at_least(sigmoid, f32::of(rule.opacity_min)),
            log_scale_max: rule.scale_max.map_or(0.0, log_scale_max),
            limits_scale: u32::from(rule.scale_max.is_some()),
        };
        self.session.kernels.mark_survivors.over(&self.session.stream, model.len(), &args)
    }

    /// Moves the flagged rows to the front, chunk by chunk, and lets go of the others.
    fn compact(&mut self, model: &mut Model, counts: &DensityCounts) -> Result<(), DeviceError> {
        self.number_flags()?;
        model.invalidate_rows();
        let rows = model.len();
        let survivors = rows - counts.pruned as usize;
        let first = (rows - counts.rows_after_hole as usize) / LANES;
        let at_once = COMPACT_WORDS / (columns(model) * LANES);
        let end = rows.div_ceil(LANES);
        for block in (first..end).step_by(at_once) {
            self.compact_chunk(model, (block, at_once.min(end - block)), survivors)?;
        }
        if !survivors.is_multiple_of(LANES) {
            let threads = columns(model) * LANES;
            let args = PaddingArgs {
                rows: count_u32(survivors)?,
                widths: model.widths_u32()?,
                tables: model.tables(),
            };
            self.session.kernels.clear_padding.over(&self.session.stream, threads, &args)?;
        }
        model.shrink(survivors);
        Ok(())
    }

    fn compact_chunk(
        &mut self,
        model: &mut Model,
        (first, blocks): (usize, usize),
        survivors: usize,
    ) -> Result<(), DeviceError> {
        let Session { kernels, stream, .. } = self.session;
        let args = CompactArgs {
            flags: self.flags.read(),
            ranks: self.ranks.read(),
            scratch: self.rows.write(),
            first_block: count_u32(first)?,
            blocks: count_u32(blocks)?,
            rows: count_u32(model.len())?,
            survivors: count_u32(survivors)?,
            widths: model.widths_u32()?,
            tables: model.tables(),
        };
        let threads_a_block = COMPACT_SLICES as usize * LANES;
        kernels.gather.over(stream, blocks * threads_a_block, &args)?;
        // They may begin and end in mid-block.
        kernels.scatter.over(stream, (blocks + 1) * threads_a_block, &args)
    }
}

/// Columns of all tables together.
fn columns(model: &Model) -> usize {
    model.widths().iter().sum()
}

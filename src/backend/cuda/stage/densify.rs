//! Stage `densify`: the twin of `backend/cpu/stage/densify.rs`, in place.
//!
//! Whatever may be refused is asked for before anything changes: scratch first, then the growth of
//! the model. Thresholds go to the device in raw parameters, found with the host's own functions, so
//! that both backends count alike.

use std::ops::Range;

use super::candidates::{Thresholds, absolute_norm_sums, log_scale_max, mark, read};
use super::threshold::first_at_least;
use crate::abi::{
    COMPACT_SLICES, CompactArgs, DensityCounts, GrowArgs, In, ListArgs, PaddingArgs, SelectedArgs,
    SurvivorsArgs,
};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::memory::sort::{self, SortPairs};
use crate::backend::cuda::model::lanes::LANES;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::backend::{Candidates, DeviceError, Edited, Grow, Keep, ScoreRule};
use crate::layout::{Choice, MOVED_WORDS, RoundSizes, SelectionSlots};
use crate::math::{Real, sigmoid};

/// Rows that are to be removed.
#[derive(Clone, Copy, Debug)]
struct Holes {
    /// How many.
    removed: usize,
    /// Rows from the first of them on, or more.
    after_first: usize,
}

/// What a round of growth and removal needs besides the model: 8 bytes per Gaussian and a chunk of
/// rows.
pub(crate) struct DensifyWork {
    sizes: RoundSizes,
    /// Candidates that are selected: Gaussians to be born, or to stay.
    selected: usize,
    /// Largest logarithm of the scale of a small candidate.
    small_log_scale: f32,
    counts: Block<DensityCounts>,
    /// One per row, newborn included: first whether it grows, then whether it stays.
    flags: Block<u32>,
    /// Exclusive sums of the flags.
    ranks: Block<u32>,
    /// Survivors of a chunk on their way.
    rows: Block<u32>,
}

impl DensifyWork {
    /// Selects so many of the candidates, those with the highest scores. By gradient they are to have
    /// children, by weight to stay.
    pub(crate) fn select(
        session: &Session,
        model: &Model,
        candidates: &Candidates,
        most: usize,
    ) -> Result<Self, DeviceError> {
        let gradient = candidates.rule.by_gradient().ok_or(DeviceError::UnsuitedEdit)?;
        let thresholds = Thresholds::known(&gradient, candidates.absolute_min);
        let wanted = candidates.count() as u64;
        let selected = most.min(candidates.count());
        let births = if candidates.rule == ScoreRule::Weight { 0 } else { selected as u64 };
        let sizes = RoundSizes { model: model.size(), births, wanted };
        let mut work = Self::new(session, sizes, selected, &thresholds)?;
        if selected > 0 {
            work.mark_selected(session, model, &thresholds, candidates.count())?;
        }
        Ok(work)
    }

    /// Room to remove rows of a model that is to get so many more before.
    pub(crate) fn for_births(
        session: &Session,
        model: &Model,
        births: usize,
    ) -> Result<Self, DeviceError> {
        let sizes = RoundSizes { model: model.size(), births: births as u64, wanted: 0 };
        let SelectionSlots { counts, flags, ranks, rows } =
            SelectionSlots::reserve(&session.heap, &sizes)?;
        let small_log_scale = 0.0;
        Ok(Self { sizes, selected: births, small_log_scale, counts, flags, ranks, rows })
    }

    /// Removes all of the first rows but those that are kept, which ascend.
    pub(crate) fn keep(
        &mut self,
        session: &Session,
        model: &mut Model,
        kept: &[u32],
        first_rows: usize,
    ) -> Result<(), DeviceError> {
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

    /// Removes any one row, in a dry run.
    pub(crate) fn remove_one(
        &mut self,
        session: &Session,
        model: &mut Model,
    ) -> Result<(), DeviceError> {
        let one = usize::from(!model.is_empty());
        self.compact(session, model, Holes { removed: one, after_first: one })
    }

    /// Removes all rows that are not selected, forgets the statistics.
    pub(crate) fn retain(
        &mut self,
        session: &Session,
        model: &mut Model,
    ) -> Result<Edited, DeviceError> {
        let removed = model.len() - self.selected;
        if self.selected == 0 {
            self.flags.zero(&session.stream)?;
        }
        if removed > 0 {
            // Where the first of them stands is not known: all rows may move.
            self.compact(session, model, Holes { removed, after_first: model.len() })?;
        }
        model.forget_statistics(session)?;
        Ok(Edited { removed, ..Edited::default() })
    }

    /// Grows the selected rows, removes what is not to be kept, forgets the statistics.
    pub(crate) fn edit(
        &mut self,
        session: &Session,
        model: &mut Model,
        large: &Grow,
        keep: &Keep,
    ) -> Result<Edited, DeviceError> {
        // Candidates were counted in it, and where memory was refused there was a try before.
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

    fn new(
        session: &Session,
        sizes: RoundSizes,
        selected: usize,
        thresholds: &Thresholds,
    ) -> Result<Self, DeviceError> {
        let SelectionSlots { mut counts, flags, ranks, rows } =
            SelectionSlots::reserve(&session.heap, &sizes)?;
        counts.zero(&session.stream)?;
        let small_log_scale = thresholds.small_log_scale;
        Ok(Self { sizes, selected, small_log_scale, counts, flags, ranks, rows })
    }

    /// Flags the selected candidates: those with the highest score where not all may be.
    fn mark_selected(
        &mut self,
        session: &Session,
        model: &Model,
        thresholds: &Thresholds,
        counted: usize,
    ) -> Result<(), DeviceError> {
        let stream = &session.stream;
        self.flags.zero(stream)?;
        mark(session, model, thresholds, self.flags.write(), self.counts.write())?;
        // Of more candidates than that, some would be written behind the end of the lists.
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
        // Stable: equal scores keep the order of the Gaussians.
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
            births: count_u32(self.selected)?,
        };
        session.kernels.mark_selected.over(stream, self.selected, &args)
    }

    /// Lets the model have rows for the newborn, and numbers them. This is the last that may be
    /// refused, and then the model stays as it was: numbering the survivors takes no more scratch.
    fn make_room(&mut self, session: &Session, model: &mut Model) -> Result<(), DeviceError> {
        let before = model.len();
        model.grow(session, self.selected)?;
        let numbered = self.number_flags(session);
        if numbered.is_err() {
            model.shrink(before);
        }
        numbered
    }

    fn number_flags(&mut self, session: &Session) -> Result<(), DeviceError> {
        let Session { heap, stream, .. } = session;
        sort::exclusive_sum(heap, stream, self.flags.len(), &self.flags, &mut self.ranks)
    }

    /// Copies and splits the flagged rows of a model that has room for the newborn.
    fn grow(
        &mut self,
        session: &Session,
        model: &mut Model,
        large: &Grow,
    ) -> Result<(), DeviceError> {
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

    /// Flags the rows that stay, newborn included, and counts the others.
    fn mark_survivors(
        &mut self,
        session: &Session,
        model: &Model,
        keep: &Keep,
        before: usize,
    ) -> Result<(), DeviceError> {
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

    /// Moves the flagged rows to the front, chunk by chunk, and lets go of the others.
    fn compact(
        &mut self,
        session: &Session,
        model: &mut Model,
        Holes { removed, after_first }: Holes,
    ) -> Result<(), DeviceError> {
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
    ) -> Result<(), DeviceError> {
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
        // They may begin and end in mid-block.
        kernels.scatter.over(stream, (blocks.len() + 1) * threads_a_block, &args)
    }
}

/// Columns of all tables together.
fn columns(model: &Model) -> usize {
    model.widths().sum()
}

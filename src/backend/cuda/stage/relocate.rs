//! Stage `relocate`: the twin of `backend/cpu/stage/relocate.rs`, in place.
//!
//! All memory is taken before anything changes. Gaussians are drawn by integers made from double precision, so that
//! both backends draw the same ones.

use crate::abi::{CopyArgs, DrawArgs, SplitOpacityArgs, WeighArgs};
use crate::backend::cuda::memory::sort;
use crate::backend::cuda::prelude::*;
use crate::backend::{Edited, Into};
use crate::layout::{Draw, DrawSizes};

/// Downloads the last of some values, at least one.
fn last<T: Default + Copy, B: Buffer<Item = T>>(session: &Session, values: &B) -> Result<T> {
    let mut host = [T::default()];
    values.download(&session.stream, values.len() - 1, &mut host)?;
    Ok(host[0])
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct DrawRule {
    /// Destination of the copies.
    pub(crate) into: Into,
    pub(crate) key: u64,
    /// Lower bound of the opacities of living Gaussians and of shares.
    pub(crate) opacity_min: f64,
}

impl DrawRule {
    fn is_over_the_dead(&self) -> bool {
        self.into == Into::Dead
    }
}

/// Scratch of a draw: at most 16 bytes per Gaussian, like reordering.
pub(crate) struct MultinomialSampler {
    rule: DrawRule,
    /// Number of Gaussians before.
    rows: usize,
    made: usize,
    /// Weights, then their inclusive sums; `[rows]`.
    sums: Block<u64>,
    /// Number of copies of each row; `[rows]`.
    counts: Block<u32>,
    /// Source row of each copy. Over the dead: first whether each row is dead, then the inclusive sums.
    sources: Block<u32>,
}

impl MultinomialSampler {
    /// Draws the sources of copies by opacity. Returns `None` if there are no copies.
    pub(crate) fn select(session: &Session, model: &Model, rule: DrawRule) -> Result<Option<Self>> {
        let copies = match rule.into {
            Into::Dead => model.len(),
            Into::NewRows(new_gaussians) => new_gaussians,
        };
        if model.is_empty() || copies == 0 {
            return Ok(None);
        }
        let rows = model.len();
        let sizes = DrawSizes { rows: rows as u64, copies: copies as u64 };
        let Draw { mut counts, sums, sources } = Draw::reserve(&session.heap, &sizes)?;
        counts.zero(&session.stream)?;
        let mut sampler = Self { rule, rows, made: copies, sums, counts, sources };
        sampler.weigh(session, model)?;
        if rule.is_over_the_dead() {
            sort::inclusive_sum(&session.heap, &session.stream, &mut sampler.sources)?;
            sampler.made = last(session, &sampler.sources)? as usize;
        }
        if sampler.made == 0 || last(session, &sampler.sums)? == 0 {
            return Ok(None);
        }
        sampler.draw(session, model)?;
        Ok(Some(sampler))
    }

    /// Writes the copies and shares the opacities.
    pub(crate) fn edit(&mut self, session: &Session, model: &mut Model) -> Result<Edited> {
        if !self.rule.is_over_the_dead() {
            model.grow(session, self.made)?;
        }
        model.invalidate_rows();
        self.split_opacity(session, model)?;
        self.copy(session, model)?;
        Ok(match self.rule.into {
            Into::Dead => Edited { moved: self.made, ..Edited::default() },
            Into::NewRows(_) => Edited { copied: self.made, ..Edited::default() },
        })
    }

    /// Sums up the weights, and flags the dead if they are replaced.
    fn weigh(&mut self, session: &Session, model: &Model) -> Result {
        let Session { heap, stream, kernels, .. } = session;
        let args = WeighArgs {
            geometry: model.geometry(),
            weights: self.sums.write(),
            flags: match self.rule.into {
                Into::Dead => self.sources.write(),
                Into::NewRows(_) => Out::NULL,
            },
            opacity_min: self.rule.opacity_min,
            n: count_u32(self.rows)?,
            reserved: 0,
        };
        kernels.weigh.over(stream, self.rows, &args)?;
        sort::inclusive_sum(heap, stream, &mut self.sums)
    }

    /// Draws the source of each copy, and counts the copies of each row.
    fn draw(&mut self, session: &Session, model: &Model) -> Result {
        let copies = self.sources.len();
        let args = DrawArgs {
            geometry: model.geometry(),
            sums: self.sums.read(),
            sources: self.sources.write(),
            counts: self.counts.write(),
            key: self.rule.key,
            opacity_min: self.rule.opacity_min,
            n: count_u32(self.rows)?,
            copies: count_u32(copies)?,
            over_the_dead: u32::from(self.rule.is_over_the_dead()),
            reserved: 0,
        };
        session.kernels.draw_sources.over(&session.stream, copies, &args)
    }

    /// Shares the opacities of the drawn rows. If copies replace the dead, the sources' moments are cleared.
    fn split_opacity(&mut self, session: &Session, model: &mut Model) -> Result {
        let widths = model.kernel_widths();
        let args = SplitOpacityArgs {
            tables: model.tables(),
            counts: self.counts.read(),
            opacity_min: self.rule.opacity_min,
            widths,
            n: count_u32(self.rows)?,
            forgets: u32::from(self.rule.is_over_the_dead()),
        };
        session.kernels.split_opacity.over(&session.stream, self.rows, &args)
    }

    /// Writes the copies over the dead, or into the new rows.
    fn copy(&mut self, session: &Session, model: &mut Model) -> Result {
        let widths = model.kernel_widths();
        let copies = self.sources.len();
        let args = CopyArgs {
            tables: model.tables(),
            sources: self.sources.read(),
            widths,
            first: match self.rule.into {
                Into::Dead => 0,
                Into::NewRows(_) => count_u32(self.rows)?,
            },
            copies: count_u32(copies)?,
            forgets: u32::from(!self.rule.is_over_the_dead()),
            reserved: 0,
        };
        session.kernels.copy_sources.over(&session.stream, copies, &args)
    }
}

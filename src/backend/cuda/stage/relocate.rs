//! Stage `relocate`: the twin of `backend/cpu/stage/relocate.rs`, in place.
//!
//! Whatever may be refused is asked for before anything changes. Gaussians are drawn in integers of
//! double precision's making, so that both backends draw the same ones.

use crate::abi::{CopyArgs, DrawArgs, Out, SplitOpacityArgs, WeighArgs};
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::memory::sort;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, RelocateRule};
use crate::layout::{Draw, DrawSizes};
use crate::math::random::{Purpose, Stream};

/// Moves the dead to where living Gaussians are.
pub(crate) fn relocate(
    session: &Session,
    model: &mut Model,
    rule: &RelocateRule,
) -> Result<usize, DeviceError> {
    if model.is_empty() {
        return Ok(0);
    }
    let mut sampler = MultinomialSampler::new(session, model.len(), model.len())?;
    sampler.weigh(model, rule, Drawn::Living)?;
    sort::inclusive_sum(&session.heap, &session.stream, &mut sampler.sources)?;
    let dead = last(session, &sampler.sources)? as usize;
    if dead == 0 || last(session, &sampler.sums)? == 0 {
        return Ok(0);
    }
    sampler.draw(model, rule, Drawn::Living)?;
    model.invalidate_rows();
    sampler.split_opacity(model, rule, Drawn::Living)?;
    sampler.copy(model, Drawn::Living)?;
    Ok(dead)
}

/// Adds so many copies.
pub(crate) fn multiply(
    session: &Session,
    model: &mut Model,
    rule: &RelocateRule,
    births: usize,
) -> Result<(), DeviceError> {
    if model.is_empty() || births == 0 {
        return Ok(());
    }
    let mut sampler = MultinomialSampler::new(session, model.len(), births)?;
    sampler.weigh(model, rule, Drawn::All)?;
    if last(session, &sampler.sums)? == 0 {
        return Ok(());
    }
    sampler.draw(model, rule, Drawn::All)?;
    model.grow(session, births)?;
    model.invalidate_rows();
    sampler.split_opacity(model, rule, Drawn::All)?;
    sampler.copy(model, Drawn::All)
}

/// The last of some values, of which there is one at least.
fn last<T: Default + Copy, B: Buffer<Item = T>>(
    session: &Session,
    values: &B,
) -> Result<T, DeviceError> {
    let mut host = [T::default()];
    values.download(&session.stream, values.len() - 1, &mut host)?;
    Ok(host[0])
}

/// Who may be drawn, and by that what is made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drawn {
    /// Only the living, whose copies take the places of the dead.
    Living,
    /// All, whose copies stand behind the last row.
    All,
}

/// What a draw needs besides the model: at most 16 bytes per Gaussian, which putting the Gaussians in
/// order takes, too.
struct MultinomialSampler<'a> {
    session: &'a Session,
    /// Gaussians before.
    rows: usize,
    /// Weights, then their sums up to each row; `[rows]`.
    sums: Block<u64>,
    /// Copies of each row; `[rows]`.
    counts: Block<u32>,
    /// The row that each copy is of. Over the dead there is one per row: first whether it is dead,
    /// then how many are up to it.
    sources: Block<u32>,
}

impl<'a> MultinomialSampler<'a> {
    fn new(session: &'a Session, rows: usize, copies: usize) -> Result<Self, DeviceError> {
        let sizes = DrawSizes { rows: rows as u64, copies: copies as u64 };
        let Draw { mut counts, sums, sources } = Draw::reserve(&session.heap, &sizes)?;
        counts.zero(&session.stream)?;
        Ok(Self { session, rows, sums, counts, sources })
    }

    /// Sums up the weights, and flags the dead where they are not to be drawn.
    fn weigh(
        &mut self,
        model: &Model,
        rule: &RelocateRule,
        drawn: Drawn,
    ) -> Result<(), DeviceError> {
        let Session { heap, stream, kernels, .. } = self.session;
        let args = WeighArgs {
            geometry: model.geometry(),
            weights: self.sums.write(),
            flags: match drawn {
                Drawn::Living => self.sources.write(),
                Drawn::All => Out::NULL,
            },
            opacity_min: rule.opacity_min,
            n: count_u32(self.rows)?,
            reserved: 0,
        };
        kernels.weigh.over(stream, self.rows, &args)?;
        sort::inclusive_sum(heap, stream, &mut self.sums)
    }

    /// Draws the row of each copy, and counts the copies of each row.
    fn draw(
        &mut self,
        model: &Model,
        rule: &RelocateRule,
        drawn: Drawn,
    ) -> Result<(), DeviceError> {
        let purpose = match drawn {
            Drawn::Living => Purpose::Relocate,
            Drawn::All => Purpose::Multiply,
        };
        let copies = self.sources.len();
        let args = DrawArgs {
            geometry: model.geometry(),
            sums: self.sums.read(),
            sources: self.sources.write(),
            counts: self.counts.write(),
            key: Stream::new(rule.seed, u64::from(rule.iteration), purpose).key(),
            opacity_min: rule.opacity_min,
            n: count_u32(self.rows)?,
            copies: count_u32(copies)?,
            over_the_dead: u32::from(drawn == Drawn::Living),
            reserved: 0,
        };
        self.session.kernels.draw_sources.over(&self.session.stream, copies, &args)
    }

    /// Gives the drawn rows their shares; where the dead come to them they forget their moments.
    fn split_opacity(
        &mut self,
        model: &mut Model,
        rule: &RelocateRule,
        drawn: Drawn,
    ) -> Result<(), DeviceError> {
        let widths = model.widths_u32()?;
        let args = SplitOpacityArgs {
            tables: model.tables(),
            counts: self.counts.read(),
            opacity_min: rule.opacity_min,
            widths,
            n: count_u32(self.rows)?,
            forgets: u32::from(drawn == Drawn::Living),
        };
        self.session.kernels.split_opacity.over(&self.session.stream, self.rows, &args)
    }

    /// Writes the copies: over the dead, or into the rows that the model has grown by.
    fn copy(&mut self, model: &mut Model, drawn: Drawn) -> Result<(), DeviceError> {
        let widths = model.widths_u32()?;
        let copies = self.sources.len();
        let args = CopyArgs {
            tables: model.tables(),
            sources: self.sources.read(),
            widths,
            first: match drawn {
                Drawn::Living => 0,
                Drawn::All => count_u32(self.rows)?,
            },
            copies: count_u32(copies)?,
            forgets: u32::from(drawn == Drawn::All),
            reserved: 0,
        };
        self.session.kernels.copy_sources.over(&self.session.stream, copies, &args)
    }
}

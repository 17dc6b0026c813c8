//! A model under way: what has gone, what is known of the rest, and steps that cost no more than is allowed.

use super::judge::{Judge, Judgement};
use super::rule::CleanRule;
use crate::backend::TrainDevice;
use crate::train::TrainError;

/// Halvings of a set that costs too much, before none of it goes.
const HALVINGS: u32 = 4;

/// A gain from which on floaters have gone, dB. Less comes of Gaussians whose loss nobody sees.
const FLOATERS: f64 = 0.5;

/// A model under way.
pub(super) struct Cleaner<'a, 'v, B: TrainDevice> {
    pub(super) judge: Judge<'a, 'v, B>,
    pub(super) gone: Vec<Option<CleanRule>>,
    /// What is known of those that are left, and of those gone.
    pub(super) now: Judgement,
    /// Mean PSNR of all, dB.
    pub(super) before: f64,
    /// The same at its highest.
    pub(super) best: f64,
    pub(super) max_loss: f64,
}

/// What may go, and what would be left.
pub(super) struct Proposal {
    pub(super) gone: Vec<Option<CleanRule>>,
    pub(super) judged: Judgement,
}

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Those that are left and of which this holds.
    pub(super) fn left(&self, holds: impl Fn(usize) -> bool) -> Vec<usize> {
        (0..self.gone.len()).filter(|&row| self.gone[row].is_none() && holds(row)).collect()
    }

    /// The largest blend weight of a Gaussian.
    pub(super) fn weight_max(&self, row: usize) -> f64 {
        self.now.worths[row].weight_max.into()
    }

    /// By how much the error would change, as a share of the Gaussian's weight.
    pub(super) fn harm(&self, row: usize) -> f64 {
        let worth = &self.now.worths[row];
        f64::from(worth.error_change) / f64::from(worth.weight).max(f64::MIN_POSITIVE)
    }

    /// The least mean PSNR that the loss leaves, dB. A small gain may be given up again, as far as the loss
    /// goes.
    pub(super) fn least(&self) -> f64 {
        let gain = self.best - self.before;
        let spare = if gain < FLOATERS { gain.min(self.max_loss) } else { 0.0 };
        self.best - spare - self.max_loss
    }

    /// What is known if these went, too.
    pub(super) fn without(
        &mut self,
        rows: &[usize],
        rule: CleanRule,
    ) -> Result<Proposal, TrainError> {
        let mut gone = self.gone.clone();
        rows.iter().for_each(|&row| gone[row] = Some(rule));
        self.propose(gone)
    }

    /// What is known if all these went.
    pub(super) fn propose(&mut self, gone: Vec<Option<CleanRule>>) -> Result<Proposal, TrainError> {
        // There was an image of a training view before.
        let judged = self.judge.judge(&gone)?.unwrap_or_default();
        Ok(Proposal { gone, judged })
    }

    pub(super) fn accept(&mut self, Proposal { gone, judged }: Proposal) {
        self.best = self.best.max(judged.psnr);
        (self.gone, self.now) = (gone, judged);
    }

    /// Removes as many of these as cost no more than this share of what is allowed, the first first: all,
    /// or half of them, and so on.
    pub(super) fn drop_within(
        &mut self,
        mut rows: Vec<usize>,
        rule: CleanRule,
        share: f64,
    ) -> Result<(), TrainError> {
        for _ in 0..HALVINGS {
            if rows.is_empty() {
                return Ok(());
            }
            let proposal = self.without(&rows, rule)?;
            if proposal.judged.psnr >= self.best - share * self.max_loss {
                tracing::info!(
                    "{}: {} go, PSNR {:.3} dB",
                    rule.name(),
                    rows.len(),
                    proposal.judged.psnr
                );
                self.accept(proposal);
                return Ok(());
            }
            rows.truncate(rows.len() / 2);
        }
        Ok(())
    }
}

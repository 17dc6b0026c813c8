//! What is given up when the GPU's memory is short, in which order, and when it comes back.
//!
//! Nothing here knows a device: a [`Holder`] has the memory, the [`Ladder`] decides which rung is
//! next. A rung is restored when its cost fits in memory and it was given up for a while, so that
//! nothing flips between two iterations.

#[cfg(test)]
mod begun_tests;
#[cfg(test)]
mod tests;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Bytes;

/// A rung: something that can be given up. In the default order, the cheapest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Rung {
    /// Return mapped memory that is not in use
    Slack,
    /// Evict photographs, the last first; they are uploaded again for each iteration
    Photographs,
    /// Draw views whose lists do not fit in bands: the same pixels, slower
    Bands,
    /// Shorten lists of neighbours, for instance from 16 to 12, then 10
    Neighbours,
    /// Convert the model to the state of --optimize-memory, for good
    Compact,
    /// Move colours and their moments to RAM as --offload sh does, for good
    Offload,
    /// Grant fewer births, to the Gaussians with the highest gradients
    Births,
    /// Draw training views at 0.9 of their size, again each time, down to 0.53
    Resolution,
}

impl Rung {
    /// What happens, in words that begin a sentence.
    pub fn words(self, given_up: bool) -> &'static str {
        match (self, given_up) {
            (Self::Slack, _) => "memory that is not in use goes back to the driver",
            (Self::Photographs, true) => {
                "photographs that do not stay on the GPU are sent anew for each iteration"
            }
            (Self::Photographs, false) => "photographs may stay on the GPU again",
            (Self::Bands, true) => "views are drawn in bands where their lists do not fit",
            (Self::Bands, false) => "views are drawn at once again",
            (Self::Neighbours, true) => "surfaces are made of fewer neighbours of each Gaussian",
            (Self::Neighbours, false) => "surfaces may be made of as many neighbours as before",
            (Self::Compact, _) => "the model's state is kept in fewer bits from now on",
            (Self::Offload, _) => {
                "colours and their moments are kept in the host's memory from now on"
            }
            (Self::Births, true) => "density control is granted fewer births than it asks for",
            (Self::Births, false) => "density control is granted all births again",
            (Self::Resolution, true) => "training views are drawn smaller",
            (Self::Resolution, false) => "training views are drawn at their full size again",
        }
    }
}

/// Iterations that a rung stays given up at least.
const HELD_AT_LEAST: u64 = 500;

/// Something given up, or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RungChange {
    /// What.
    pub rung: Rung,
    /// Given up, or restored.
    pub given_up: bool,
    /// Bytes gained, or what restoring it may cost.
    pub bytes: Bytes,
}

/// The result of giving up a rung.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// There was nothing to give.
    Nothing,
    /// So many bytes are free now; 0 if the next try will request less.
    Bytes(Bytes),
    /// So many bytes will be free once their owner drops them, which happens after the work has failed
    /// and before it is tried again; 0 if they were promised before.
    Promised(Bytes),
    /// So many bytes are free now by another rung, which this one begins with and did not get beyond.
    Begun(Rung, Bytes),
}

impl Gain {
    /// What was given up for this rung and how many bytes it gains, if anything was.
    pub fn of(self, rung: Rung) -> Option<(Rung, Bytes)> {
        match self {
            Self::Nothing => None,
            Self::Bytes(bytes) | Self::Promised(bytes) => Some((rung, bytes)),
            Self::Begun(begun, bytes) => Some((begun, bytes)),
        }
    }
}

/// Whoever holds memory that can be given up.
pub trait Holder {
    /// Errors of the device.
    type Error;

    /// Bytes that were missing, if the error says that memory is short.
    fn missing(&self, error: &Self::Error) -> Option<Bytes>;
    /// Gives up what the rung stands for, no more than `missing` bytes require.
    fn give_up(&mut self, rung: Rung, missing: Bytes) -> Result<Gain, Self::Error>;
    /// What restoring a rung costs; `None` if it cannot be restored or is still needed.
    fn cost(&self, rung: Rung) -> Option<Bytes>;
    /// Bytes that can be taken without giving up anything.
    fn available_bytes(&self) -> Bytes;
    /// Restores a rung.
    fn restore(&mut self, rung: Rung) -> Result<(), Self::Error>;
}

/// The rungs that are given up.
#[derive(Clone, Debug)]
pub struct Ladder {
    order: Vec<Rung>,
    /// Rungs that are given up, with the time of the last use.
    given_up: Vec<(Rung, u64)>,
    changes: Vec<RungChange>,
    now: u64,
    /// Whether more is held than may be.
    is_over: bool,
}

impl Ladder {
    /// A ladder of these rungs, the first of which is given up first. A rung that occurs twice counts
    /// once; one that is missing is never given up.
    pub fn new(order: &[Rung]) -> Self {
        let mut steps: Vec<Rung> = Vec::with_capacity(order.len());
        for &rung in order {
            if !steps.contains(&rung) {
                steps.push(rung);
            }
        }
        Self { order: steps, given_up: Vec::new(), changes: Vec::new(), now: 0, is_over: false }
    }

    /// Runs work that needs memory. If memory is short, gives up one rung after the other, slack once
    /// and the others as long as they free something, and tries again after each. Returns the last
    /// error if all of them are not enough.
    pub fn climb<H: Holder, R>(
        &mut self,
        holder: &mut H,
        mut work: impl FnMut(&mut H) -> Result<R, H::Error>,
    ) -> Result<R, H::Error> {
        let mut step = 0;
        loop {
            let error = match work(holder) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Some(missing) = holder.missing(&error) else { return Err(error) };
            loop {
                let Some(&rung) = self.order.get(step) else { return Err(error) };
                match holder.give_up(rung, missing)? {
                    Gain::Bytes(bytes) => {
                        self.record(rung, bytes);
                        // A rung that frees no bytes lowers the next request, once; and every failed try
                        // makes new slack.
                        step += usize::from(bytes == Bytes(0) || rung == Rung::Slack);
                        break;
                    }
                    Gain::Promised(bytes) => {
                        self.record(rung, bytes);
                        // Nothing dearer is given up before these bytes are free.
                        return Err(error);
                    }
                    Gain::Begun(begun, bytes) => {
                        self.record(begun, bytes);
                        step += 1;
                        break;
                    }
                    Gain::Nothing => step += 1,
                }
            }
        }
    }

    /// Restores the rungs that fit in memory, the dearest first: only those given up for a while, and
    /// none before a dearer one.
    pub fn restore_rungs<H: Holder>(&mut self, holder: &mut H) -> Result<(), H::Error> {
        for &rung in self.order.iter().rev() {
            let Some(at) = self.given_up.iter().position(|&(given, _)| given == rung) else {
                continue;
            };
            let is_settled = self.now >= self.given_up[at].1 + HELD_AT_LEAST;
            let cost =
                holder.cost(rung).filter(|&cost| is_settled && cost <= holder.available_bytes());
            let Some(bytes) = cost else {
                // A rung that never comes back does not block the others, nor does one that is no
                // longer needed, as births after the end of density control.
                if matches!(rung, Rung::Compact | Rung::Offload)
                    || (rung == Rung::Births && is_settled)
                {
                    continue;
                }
                return Ok(());
            };
            holder.restore(rung)?;
            self.given_up.remove(at);
            self.changes.push(RungChange { rung, given_up: false, bytes });
        }
        Ok(())
    }

    /// Records that density control requested births and was granted some; `bytes` is the size of the
    /// others. Births count as restored only after a while of full grants.
    pub fn record_grant(&mut self, wish: usize, granted: usize, bytes: Bytes) {
        if granted < wish {
            self.record(Rung::Births, bytes);
            return;
        }
        let held = |&(rung, since): &(Rung, u64)| {
            rung == Rung::Births && self.now >= since + HELD_AT_LEAST
        };
        if wish > 0
            && let Some(at) = self.given_up.iter().position(held)
        {
            self.given_up.remove(at);
            self.changes.push(RungChange { rung: Rung::Births, given_up: false, bytes: Bytes(0) });
        }
    }

    /// Whether a rung may be given up, and before another.
    pub fn comes_before(&self, rung: Rung, other: Rung) -> bool {
        let place = |wanted| self.order.iter().position(|&rung| rung == wanted);
        place(rung).is_some_and(|at| place(other).is_none_or(|later| at < later))
    }

    /// Those of these rungs that may be given up, in their order.
    pub fn in_order(&self, rungs: &[Rung]) -> Vec<Rung> {
        self.order.iter().copied().filter(|rung| rungs.contains(rung)).collect()
    }

    /// Records a rung that was given up without a refusal: memory was short from the beginning.
    pub fn record_once(&mut self, rung: Rung) {
        if self.allows(rung) && !self.is_given_up(rung) {
            self.record(rung, Bytes(0));
        }
    }

    /// Warns that other programs leave less than this one holds, and nothing is left to give up. Warns
    /// once until that is over.
    pub fn warn_of_excess(&mut self, excess: Bytes) {
        let is_over = excess > Bytes(0);
        if is_over && !self.is_over {
            tracing::warn!(
                "other programs have taken so much of the GPU's memory that this one holds {:.1} MiB \
                 more than it may, and has nothing left to give up; it takes no more, and training \
                 may become slow. End other programs, or continue later with --resume",
                excess.mib()
            );
        }
        self.is_over = is_over;
    }

    /// Whether a rung may be given up at all.
    pub fn allows(&self, rung: Rung) -> bool {
        self.order.contains(&rung)
    }

    /// Whether a rung is given up at present.
    pub fn is_given_up(&self, rung: Rung) -> bool {
        self.given_up.iter().any(|&(given, _)| given == rung)
    }

    /// Sets the time, in iterations.
    pub fn set_time(&mut self, iteration: u64) {
        self.now = iteration;
    }

    /// What changed since the last call, each rung once.
    pub fn take_changes(&mut self) -> Vec<RungChange> {
        std::mem::take(&mut self.changes)
    }

    /// Records that a rung was given up. Slack is not recorded: it costs nothing.
    pub fn record(&mut self, rung: Rung, bytes: Bytes) {
        let now = self.now;
        match self.given_up.iter_mut().find(|(given, _)| *given == rung) {
            Some((_, last)) => {
                *last = now;
                let reported = self.changes.iter_mut().rev().find(|change| change.rung == rung);
                if let Some(change) = reported.filter(|change| change.given_up) {
                    change.bytes += bytes;
                }
            }
            None if rung == Rung::Slack => {}
            None => {
                self.given_up.push((rung, now));
                self.changes.push(RungChange { rung, given_up: true, bytes });
            }
        }
    }
}

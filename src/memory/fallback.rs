//! Fallbacks for little GPU memory, in order, and the conditions under which each is undone.
//!
//! The module knows no device: a [`Holder`] has the memory, [`FallbackPolicy::run`] decides which fallback is next.
//! The trainer repeats work that cannot be repeated in place; `relieve` in `backend/cuda/govern.rs` takes the fallbacks
//! that can help it, and `Cuda::grant_new_gaussians` takes [`Fallback::NewGaussians`]. A fallback is undone when its
//! cost fits in memory and it was taken a while ago, so that none flips between two iterations.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Bytes;

/// A fallback. Variants are in the default order of `--give-up`, cheapest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Fallback {
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
    #[serde(rename = "births")]
    #[value(name = "births")]
    NewGaussians,
    /// Draw training views at 0.9 of their size, again each time, down to 0.53
    Resolution,
}

impl Fallback {
    /// Returns the message for taking or undoing this fallback.
    pub fn words(self, given_up: bool) -> &'static str {
        match (self, given_up) {
            (Self::Slack, _) => "memory that is not in use goes back to the driver",
            (Self::Photographs, true) => {
                "photographs that do not stay on the GPU are sent again for each iteration"
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
            (Self::NewGaussians, true) => {
                "density control is granted fewer births than it asks for"
            }
            (Self::NewGaussians, false) => "density control is granted all births again",
            (Self::Resolution, true) => "training views are drawn smaller",
            (Self::Resolution, false) => "training views are drawn at their full size again",
        }
    }
}

/// Minimum iterations from taking a fallback to undoing it.
const MIN_GIVEN_UP: u64 = 500;

/// A fallback that was taken or undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FallbackChange {
    /// The fallback.
    #[serde(rename = "rung")]
    pub fallback: Fallback,
    /// True if the fallback was taken, false if it was undone.
    pub given_up: bool,
    /// Bytes gained, or the largest cost of undoing.
    pub bytes: Bytes,
}

/// The result of taking a fallback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// The fallback frees nothing.
    Nothing,
    /// Bytes that are free now; 0 if the next try will request less.
    Bytes(Bytes),
    /// Bytes that will be free once their owner drops them, after the work has failed and before it is tried again; 0
    /// if they were promised before.
    Promised(Bytes),
    /// Bytes that another fallback freed. This fallback took it first, and then failed.
    Begun(Fallback, Bytes),
}

impl Gain {
    /// Returns the fallback that was taken and the bytes gained; `None` if none was taken.
    pub fn of(self, fallback: Fallback) -> Option<(Fallback, Bytes)> {
        match self {
            Self::Nothing => None,
            Self::Bytes(bytes) | Self::Promised(bytes) => Some((fallback, bytes)),
            Self::Begun(begun, bytes) => Some((begun, bytes)),
        }
    }
}

/// Owner of memory that can be given up.
pub trait Holder {
    /// Error of the device.
    type Error;

    /// Returns the missing bytes if the error says that memory is short.
    fn missing(&self, error: &Self::Error) -> Option<Bytes>;
    /// Takes a fallback, as far as `missing` bytes require.
    fn give_up(&mut self, fallback: Fallback, missing: Bytes) -> Result<Gain, Self::Error>;
    /// Returns the cost of undoing a fallback; `None` if it cannot be undone or is still needed.
    fn cost(&self, fallback: Fallback) -> Option<Bytes>;
    /// Returns the bytes that can be allocated without a fallback.
    fn available_bytes(&self) -> Bytes;
    /// Undoes a fallback.
    fn restore(&mut self, fallback: Fallback) -> Result<(), Self::Error>;
}

/// The order of the fallbacks, and the fallbacks that are taken.
#[derive(Clone, Debug)]
pub struct FallbackPolicy {
    order: Vec<Fallback>,
    /// Fallbacks that are taken, with the iteration of their last use.
    given_up: Vec<(Fallback, u64)>,
    changes: Vec<FallbackChange>,
    now: u64,
    /// True if this program holds more than its budget.
    is_over: bool,
}

impl FallbackPolicy {
    /// Creates a policy that takes fallbacks in this order. A duplicate counts once; a missing one is never taken.
    pub fn new(order: &[Fallback]) -> Self {
        let mut steps: Vec<Fallback> = Vec::with_capacity(order.len());
        for &fallback in order {
            if !steps.contains(&fallback) {
                steps.push(fallback);
            }
        }
        Self { order: steps, given_up: Vec::new(), changes: Vec::new(), now: 0, is_over: false }
    }

    /// Runs work that needs memory. If memory is short, takes one fallback after another and tries again after each:
    /// slack once, other fallbacks as long as they free bytes. Returns the last error if no fallback is left.
    pub fn run<H: Holder, R>(
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
                let Some(&fallback) = self.order.get(step) else { return Err(error) };
                match holder.give_up(fallback, missing)? {
                    Gain::Bytes(bytes) => {
                        self.record(fallback, bytes);
                        // A fallback that frees no bytes lowers the next request, once. Each failure makes new slack.
                        step += usize::from(bytes == Bytes(0) || fallback == Fallback::Slack);
                        break;
                    }
                    Gain::Promised(bytes) => {
                        self.record(fallback, bytes);
                        // No dearer fallback is taken before these bytes are free.
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

    /// Undoes the fallbacks whose cost fits in memory and that were taken a while ago, the dearest first. A fallback
    /// waits for dearer ones.
    pub fn restore_fallbacks<H: Holder>(&mut self, holder: &mut H) -> Result<(), H::Error> {
        for &fallback in self.order.iter().rev() {
            let Some(at) = self.given_up.iter().position(|&(given, _)| given == fallback) else {
                continue;
            };
            let is_settled = self.now >= self.given_up[at].1 + MIN_GIVEN_UP;
            let cost = holder
                .cost(fallback)
                .filter(|&cost| is_settled && cost <= holder.available_bytes());
            let Some(bytes) = cost else {
                // Permanent fallbacks do not block others, nor does `NewGaussians` after density control.
                if matches!(fallback, Fallback::Compact | Fallback::Offload)
                    || (fallback == Fallback::NewGaussians && is_settled)
                {
                    continue;
                }
                return Ok(());
            };
            holder.restore(fallback)?;
            self.given_up.remove(at);
            self.changes.push(FallbackChange { fallback, given_up: false, bytes });
        }
        Ok(())
    }

    /// Records a grant of new Gaussians; `bytes` is the size of those that were refused. Only full grants for a while
    /// undo [`Fallback::NewGaussians`].
    pub fn record_grant(&mut self, wish: usize, granted: usize, bytes: Bytes) {
        if granted < wish {
            self.record(Fallback::NewGaussians, bytes);
            return;
        }
        let held = |&(fallback, since): &(Fallback, u64)| {
            fallback == Fallback::NewGaussians && self.now >= since + MIN_GIVEN_UP
        };
        if wish > 0
            && let Some(at) = self.given_up.iter().position(held)
        {
            self.given_up.remove(at);
            self.changes.push(FallbackChange {
                fallback: Fallback::NewGaussians,
                given_up: false,
                bytes: Bytes(0),
            });
        }
    }

    /// True if a fallback may be taken, and before another.
    pub fn comes_before(&self, fallback: Fallback, other: Fallback) -> bool {
        let place = |wanted| self.order.iter().position(|&fallback| fallback == wanted);
        place(fallback).is_some_and(|at| place(other).is_none_or(|later| at < later))
    }

    /// Returns the given fallbacks that may be taken, in the policy's order.
    pub fn in_order(&self, fallbacks: &[Fallback]) -> Vec<Fallback> {
        self.order.iter().copied().filter(|fallback| fallbacks.contains(fallback)).collect()
    }

    /// Records a fallback that was taken from the start of the run.
    pub fn record_once(&mut self, fallback: Fallback) {
        if self.allows(fallback) && !self.is_given_up(fallback) {
            self.record(fallback, Bytes(0));
        }
    }

    /// Warns, once for each excess, that this program holds `excess` bytes too many and no fallback is left.
    pub fn warn_about_excess(&mut self, excess: Bytes) {
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

    /// True if a fallback may be taken at all.
    pub fn allows(&self, fallback: Fallback) -> bool {
        self.order.contains(&fallback)
    }

    /// True if a fallback is taken at present.
    pub fn is_given_up(&self, fallback: Fallback) -> bool {
        self.given_up.iter().any(|&(given, _)| given == fallback)
    }

    /// Sets the time, in iterations. The time goes back when another model of an ensemble begins.
    pub fn set_time(&mut self, iteration: u64) {
        if iteration < self.now {
            self.given_up.iter_mut().for_each(|(_, at)| *at = (*at).min(iteration));
        }
        self.now = iteration;
    }

    /// Returns the changes since the last call, each fallback once.
    pub fn take_changes(&mut self) -> Vec<FallbackChange> {
        std::mem::take(&mut self.changes)
    }

    /// Records that a fallback was taken. Slack is not recorded, since it costs nothing.
    pub fn record(&mut self, fallback: Fallback, bytes: Bytes) {
        let now = self.now;
        match self.given_up.iter_mut().find(|(given, _)| *given == fallback) {
            Some((_, last)) => {
                *last = now;
                let reported =
                    self.changes.iter_mut().rev().find(|change| change.fallback == fallback);
                if let Some(change) = reported.filter(|change| change.given_up) {
                    change.bytes += bytes;
                }
            }
            None if fallback == Fallback::Slack => {}
            None => {
                self.given_up.push((fallback, now));
                self.changes.push(FallbackChange { fallback, given_up: true, bytes });
            }
        }
    }
}

// Scale of training views when memory is short.

/// Factor of one reduction.
const FACTOR: f64 = 0.9;

/// Scale of training views and their photographs: 0.9 to the power of the number of steps that ran out of memory
/// ([`Fallback::Resolution`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingScale {
    times: u32,
}

impl TrainingScale {
    /// Full size.
    pub const FULL: Self = Self { times: 0 };

    /// Scale 0.53. Smaller views would show too little to learn from.
    pub const SMALLEST: Self = Self { times: 6 };

    /// Returns the scale after `times` reductions, at least [`Self::SMALLEST`].
    pub fn after(times: u32) -> Self {
        Self { times: times.min(Self::SMALLEST.times) }
    }

    /// Returns the number of reductions.
    pub fn times(self) -> u32 {
        self.times
    }

    /// Returns the next smaller scale; `None` at the smallest.
    pub fn smaller(self) -> Option<Self> {
        (self != Self::SMALLEST).then_some(Self { times: self.times + 1 })
    }

    /// Returns true if this scale is smaller than another.
    pub fn is_below(self, other: Self) -> bool {
        self.times > other.times
    }

    /// Returns the factor of a view's sides.
    pub fn factor(self) -> f64 {
        // Repeated multiplication: the last bit of a power function differs between machines.
        (0..self.times).fold(1.0, |factor, _| factor * FACTOR)
    }

    /// Returns the scaled size of a view, px.
    pub fn px(self, full: [u32; 2]) -> [u32; 2] {
        let factor = self.factor();
        full.map(|side| rounded(f64::from(side) * factor))
    }

    /// Returns all scales, the largest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=Self::SMALLEST.times).map(|times| Self { times })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most the side that it was"
)]
fn rounded(side: f64) -> u32 {
    (side.round_ties_even() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Fallback; 7] = [
        Fallback::Slack,
        Fallback::Photographs,
        Fallback::Bands,
        Fallback::Neighbours,
        Fallback::Compact,
        Fallback::Offload,
        Fallback::NewGaussians,
    ];

    /// A GPU with a model, photographs and the scratch of an iteration.
    #[derive(Clone, Debug)]
    struct Card {
        budget: u64,
        model: u64,
        photographs: u64,
        /// Bytes of all photographs.
        all_photographs: u64,
        slack: u64,
        banded: bool,
        compact: bool,
        /// Bytes of the model that the host has memory for.
        host: u64,
        /// Present and largest allowed length of the neighbour lists.
        neighbours: [u64; 2],
        /// Limit on the bytes of a view's lists.
        most_lists: Option<u64>,
        /// Fallback that frees bytes instead of the next one that is requested.
        other: Option<Fallback>,
    }

    /// Bytes of one neighbour in all lists.
    const NEIGHBOUR: u64 = 10;

    /// Error: this number of bytes is missing.
    #[derive(Debug, PartialEq)]
    struct Short(u64);

    impl Card {
        fn held(&self) -> u64 {
            self.model + self.photographs + self.slack + NEIGHBOUR * self.neighbours[0]
        }

        /// Shortens lists that are longer than allowed, as their owner would.
        fn shorten(&mut self) {
            self.neighbours[0] = self.neighbours[0].min(self.neighbours[1]);
        }

        fn free(&self) -> u64 {
            self.budget.saturating_sub(self.held())
        }

        /// Runs an iteration that needs these bytes. Bands reduce the bytes of `lists`.
        fn iterate(&mut self, splats: u64, lists: u64) -> Result<(), Short> {
            let room = (self.free() + self.slack).saturating_sub(splats);
            let lists =
                if self.banded && lists > room { lists.min(room.max(lists / 16)) } else { lists };
            let wanted = splats + lists;
            if wanted > self.free() + self.slack {
                // A part was allocated before the rest was refused.
                let missing = wanted - self.free() - self.slack;
                self.slack += self.free();
                return Err(Short(missing));
            }
            self.slack = self.slack.max(wanted);
            assert!(self.held() <= self.budget);
            self.most_lists = Some(lists);
            Ok(())
        }
    }

    impl Holder for Card {
        type Error = Short;

        fn missing(&self, error: &Short) -> Option<Bytes> {
            Some(Bytes(error.0))
        }

        fn give_up(&mut self, fallback: Fallback, missing: Bytes) -> Result<Gain, Short> {
            if let Some(other) = self.other.take() {
                return Ok(Gain::Begun(other, Bytes(5)));
            }
            let gained = match fallback {
                Fallback::Slack => std::mem::take(&mut self.slack),
                Fallback::Photographs => {
                    let gone = missing.0.min(self.photographs);
                    self.photographs -= gone;
                    gone
                }
                Fallback::Bands => {
                    let is_new = !std::mem::replace(&mut self.banded, true);
                    return Ok(if is_new { Gain::Bytes(Bytes(0)) } else { Gain::Nothing });
                }
                Fallback::Neighbours => {
                    let [held, most] = self.neighbours;
                    if held > most {
                        return Ok(Gain::Promised(Bytes(0)));
                    }
                    let Some(fewer) = [12, 10].into_iter().find(|&fewer| fewer < held) else {
                        return Ok(Gain::Nothing);
                    };
                    self.neighbours[1] = fewer;
                    return Ok(Gain::Promised(Bytes(NEIGHBOUR * (held - fewer))));
                }
                Fallback::Compact if self.compact => 0,
                Fallback::Compact => {
                    self.compact = true;
                    let gained = self.model / 2;
                    self.model -= gained;
                    gained
                }
                // The colours are half of a compact model.
                Fallback::Offload => {
                    let gained = if self.host < self.model / 2 { 0 } else { self.model / 2 };
                    (self.host, self.model) = (0, self.model - gained);
                    gained
                }
                Fallback::NewGaussians | Fallback::Resolution => 0,
            };
            Ok(if gained > 0 { Gain::Bytes(Bytes(gained)) } else { Gain::Nothing })
        }

        fn cost(&self, fallback: Fallback) -> Option<Bytes> {
            match fallback {
                Fallback::Photographs => Some(Bytes(2 * (self.all_photographs - self.photographs))),
                Fallback::Bands => Some(Bytes(4 * self.most_lists.unwrap_or(0))),
                Fallback::Neighbours => Some(Bytes(2 * NEIGHBOUR * (16 - self.neighbours[0]))),
                Fallback::Slack => Some(Bytes(0)),
                // Grants undo `NewGaussians`.
                Fallback::Compact
                | Fallback::Offload
                | Fallback::NewGaussians
                | Fallback::Resolution => None,
            }
        }

        fn available_bytes(&self) -> Bytes {
            Bytes(self.free())
        }

        fn restore(&mut self, fallback: Fallback) -> Result<(), Short> {
            match fallback {
                Fallback::Photographs => self.photographs = self.all_photographs,
                Fallback::Bands => self.banded = false,
                Fallback::Neighbours => self.neighbours[1] = 16,
                _ => {}
            }
            Ok(())
        }
    }

    fn card(budget: u64) -> Card {
        Card {
            budget,
            model: 300,
            photographs: 200,
            all_photographs: 200,
            slack: 0,
            banded: false,
            compact: false,
            host: 0,
            neighbours: [0, 16],
            most_lists: None,
            other: None,
        }
    }

    fn fallback_changes(policy: &mut FallbackPolicy) -> Vec<(Fallback, bool)> {
        policy.take_changes().iter().map(|change| (change.fallback, change.given_up)).collect()
    }

    #[test]
    fn a_fallback_that_frees_the_memory_of_another_is_reported_as_the_other() {
        let mut policy = FallbackPolicy::new(&[Fallback::Offload]);
        let mut card = Card { other: Some(Fallback::Compact), ..card(1000) };
        let work = |card: &mut Card| if card.other.is_none() { Ok(()) } else { Err(Short(1)) };
        policy.run(&mut card, work).unwrap();
        let change =
            FallbackChange { fallback: Fallback::Compact, given_up: true, bytes: Bytes(5) };
        assert_eq!(policy.take_changes(), [change]);
    }

    #[test]
    fn a_fallback_of_a_model_of_an_ensemble_is_undone_after_a_while_in_the_next_model() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        policy.set_time(5800);
        policy.run(&mut card, |card| card.iterate(150, 400)).unwrap();
        (card.slack, card.budget) = (0, 2000);
        policy.set_time(1);
        policy.set_time(MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.photographs, 150);
        policy.set_time(1 + MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.photographs, 200);
    }

    #[test]
    fn nothing_is_given_up_while_memory_suffices() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        policy.run(&mut card, |card| card.iterate(100, 400)).unwrap();
        assert_eq!(fallback_changes(&mut policy), []);
        assert_eq!((card.photographs, card.banded), (200, false));
    }

    #[test]
    fn cheap_fallbacks_are_taken_first_and_only_as_needed() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        policy.run(&mut card, |card| card.iterate(150, 400)).unwrap();
        assert_eq!(
            (fallback_changes(&mut policy), card.photographs),
            (vec![(Fallback::Photographs, true)], 150)
        );
        policy.run(&mut card, |card| card.iterate(200, 900)).unwrap();
        // The photographs were reported before.
        assert_eq!(fallback_changes(&mut policy), [(Fallback::Bands, true)]);
        assert_eq!((card.photographs, card.compact), (0, false));
        policy.run(&mut card, |card| card.iterate(750, 900)).unwrap();
        assert_eq!(fallback_changes(&mut policy), [(Fallback::Compact, true)]);
        assert_eq!(policy.run(&mut card, |card| card.iterate(900, 900)), Err(Short(106)));
    }

    #[test]
    fn colours_move_to_the_host_after_compaction_and_stay_there() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        card.host = 75;
        policy.run(&mut card, |card| card.iterate(900, 16)).unwrap();
        let changes = fallback_changes(&mut policy);
        assert_eq!(
            changes[changes.len() - 2..],
            [(Fallback::Compact, true), (Fallback::Offload, true)]
        );
        assert_eq!((card.model, card.compact), (75, true));
        (card.slack, card.budget) = (0, 9000);
        policy.set_time(MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        let changes = fallback_changes(&mut policy);
        assert!(changes.contains(&(Fallback::Photographs, false)), "{changes:?}");
        assert!(policy.is_given_up(Fallback::Offload) && policy.is_given_up(Fallback::Compact));
        // A host without enough memory has nothing to give.
        let mut full = Card { host: 74, ..self::card(1000) };
        assert!(FallbackPolicy::new(&ALL).run(&mut full, |card| card.iterate(900, 16)).is_err());
        assert_eq!((full.model, full.compact), (150, true));
    }

    #[test]
    fn fallbacks_are_declared_in_order_of_cost() {
        let mut declared = Fallback::value_variants().to_vec();
        declared.retain(|fallback| *fallback != Fallback::Resolution);
        assert_eq!(declared, ALL);
    }

    #[test]
    fn the_user_sets_the_order_and_other_fallbacks_are_kept() {
        let (mut policy, mut card) =
            (FallbackPolicy::new(&[Fallback::Compact, Fallback::Bands]), card(600));
        policy.run(&mut card, |card| card.iterate(100, 100)).unwrap();
        assert_eq!(fallback_changes(&mut policy), [(Fallback::Compact, true)]);
        assert!(policy.run(&mut card, |card| card.iterate(400, 100)).is_err());
        assert_eq!(card.photographs, 200);
    }

    #[test]
    fn a_fallback_is_undone_after_a_while_if_memory_suffices() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        policy.run(&mut card, |card| card.iterate(150, 400)).unwrap();
        card.slack = 0;
        card.budget = 2000;
        policy.set_time(MIN_GIVEN_UP - 1);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.photographs, 150);
        policy.set_time(MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.photographs, 200);
        assert_eq!(
            fallback_changes(&mut policy),
            [(Fallback::Photographs, true), (Fallback::Photographs, false)]
        );
    }

    #[test]
    fn new_gaussians_block_other_fallbacks_only_while_requested() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(1000));
        policy.run(&mut card, |card| card.iterate(150, 400)).unwrap();
        policy.set_time(MIN_GIVEN_UP);
        policy.record_grant(10, 4, Bytes(6));
        (card.slack, card.budget) = (0, 2000);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.photographs, 150, "new Gaussians were refused just now");
        policy.set_time(2 * MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!((card.photographs, policy.is_given_up(Fallback::NewGaussians)), (200, true));
    }

    #[test]
    fn a_short_grant_is_reported_once_and_a_full_one_undoes_it() {
        let mut policy = FallbackPolicy::new(&ALL);
        policy.record_grant(10, 10, Bytes(0));
        policy.record_grant(10, 4, Bytes(6));
        policy.record_grant(10, 0, Bytes(10));
        // Not undone while the last short grant is recent, nor by an empty grant.
        policy.record_grant(3, 3, Bytes(0));
        policy.set_time(MIN_GIVEN_UP);
        policy.record_grant(0, 0, Bytes(0));
        assert_eq!(fallback_changes(&mut policy), [(Fallback::NewGaussians, true)]);
        policy.record_grant(3, 3, Bytes(0));
        assert_eq!(fallback_changes(&mut policy), [(Fallback::NewGaussians, false)]);
    }

    #[test]
    fn no_dearer_fallback_is_taken_before_promised_bytes_are_free() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(700));
        (card.photographs, card.neighbours[0]) = (0, 16);
        let mut changes = Vec::new();
        // 100 of 700 are missing, and each neighbour takes 10.
        for neighbours in [12, 10] {
            for again in 0..2 {
                let refused = policy.run(&mut card, |card| card.iterate(300, 40));
                assert_eq!((refused.is_err(), card.neighbours[1]), (true, neighbours), "{again}");
                assert!(!card.compact && card.banded);
            }
            card.shorten();
            changes.extend(policy.take_changes());
        }
        // No promise is left, so the next fallback follows.
        policy.run(&mut card, |card| card.iterate(300, 40)).unwrap();
        assert_eq!((card.neighbours, card.compact), ([10, 10], true));
        let neighbours: Vec<Bytes> = changes
            .iter()
            .filter(|change| change.fallback == Fallback::Neighbours)
            .map(|change| change.bytes)
            .collect();
        assert_eq!(neighbours, [Bytes(4 * NEIGHBOUR)]);
        assert_eq!(fallback_changes(&mut policy), [(Fallback::Compact, true)]);
    }

    #[test]
    fn the_neighbours_fallback_is_undone_if_memory_suffices() {
        let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(700));
        (card.photographs, card.neighbours[0]) = (0, 16);
        policy.run(&mut card, |card| card.iterate(250, 40)).unwrap_err();
        card.shorten();
        card.slack = 0;
        card.budget = 2000;
        policy.set_time(MIN_GIVEN_UP);
        policy.restore_fallbacks(&mut card).unwrap();
        assert_eq!(card.neighbours, [12, 16]);
        let back = (Fallback::Neighbours, false);
        assert!(fallback_changes(&mut policy).contains(&back));
    }

    #[test]
    fn the_order_decides_which_fallback_comes_first() {
        let policy =
            FallbackPolicy::new(&[Fallback::Compact, Fallback::NewGaussians, Fallback::Bands]);
        assert!(policy.comes_before(Fallback::Compact, Fallback::NewGaussians));
        assert!(!policy.comes_before(Fallback::Bands, Fallback::NewGaussians));
        assert!(!policy.comes_before(Fallback::Photographs, Fallback::NewGaussians));
        assert!(policy.comes_before(Fallback::Bands, Fallback::Photographs));
        let requested = [Fallback::Bands, Fallback::Photographs, Fallback::Compact];
        assert_eq!(policy.in_order(&requested), [Fallback::Compact, Fallback::Bands]);
    }

    proptest! {
        /// Checks arbitrary demands of this and other programs: the budget holds (the card asserts it), a fallback is
        /// taken only if the cheaper fallbacks were not enough, and all fallbacks that can be undone are undone
        /// after the other programs end.
        #[test]
        fn the_budget_holds_and_fallbacks_are_undone(
            demands in prop::collection::vec((50_u64..400, 20_u64..600, 0_u64..900), 1..60),
        ) {
            let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(2000));
            for (index, (splats, lists, foreign)) in demands.into_iter().enumerate() {
                policy.set_time(index as u64 * 100);
                card.budget = 2000 - foreign;
                card.slack = 0;
                let before = card.clone();
                let fits = before.free() >= splats + lists;
                let done = policy.run(&mut card, |card| card.iterate(splats, lists));
                prop_assert!(done.is_ok(), "{before:?} {splats} {lists}");
                if fits {
                    prop_assert_eq!(card.photographs, before.photographs);
                    prop_assert_eq!(card.banded, before.banded);
                    prop_assert_eq!(card.compact, before.compact);
                }
                if card.banded && !before.banded {
                    prop_assert_eq!(card.photographs, 0, "bands while photographs are there");
                }
                if card.compact && !before.compact {
                    prop_assert!(card.banded, "compact before bands");
                }
                policy.restore_fallbacks(&mut card).unwrap();
            }
            card.budget = 4000;
            card.slack = 0;
            for settled in 0..3 {
                policy.set_time(100_000 + settled * MIN_GIVEN_UP);
                policy.run(&mut card, |card| card.iterate(50, 20)).unwrap();
                policy.restore_fallbacks(&mut card).unwrap();
            }
            prop_assert_eq!((card.photographs, card.banded), (200, false));
        }

        /// Checks that each fallback changes at most once if demand is constant.
        #[test]
        fn no_fallback_flaps(splats in 50_u64..400, lists in 20_u64..900, budget in 700_u64..2000) {
            let (mut policy, mut card) = (FallbackPolicy::new(&ALL), card(budget));
            let mut changes = Vec::new();
            for time in 0..100 {
                policy.set_time(time * 100);
                card.slack = 0;
                if policy.run(&mut card, |card| card.iterate(splats, lists)).is_err() {
                    break;
                }
                policy.restore_fallbacks(&mut card).unwrap();
                changes.extend(fallback_changes(&mut policy));
            }
            for fallback in ALL {
                let of = changes.iter().filter(|(changed, _)| *changed == fallback).count();
                prop_assert!(of <= 1, "{fallback:?}: {changes:?}");
            }
        }
    }

    #[test]
    fn views_get_smaller_down_to_half_their_size_and_no_further() {
        let factors: Vec<f64> = TrainingScale::all().map(TrainingScale::factor).collect();
        assert_eq!((factors.len(), factors[0], factors[1]), (7, 1.0, 0.9));
        assert!((factors[6] - 0.531_441).abs() < 1e-12);
        let second = TrainingScale::FULL.smaller().and_then(TrainingScale::smaller).unwrap();
        assert_eq!((second.times(), second), (2, TrainingScale::after(2)));
        assert_eq!(second.px([1000, 1]), [810, 1]);
        assert!(second.is_below(TrainingScale::FULL) && !second.is_below(second));
        assert_eq!(TrainingScale::after(99), TrainingScale::SMALLEST);
        assert_eq!(TrainingScale::SMALLEST.smaller(), None);
        assert_eq!(TrainingScale::FULL.px([37, 29]), [37, 29]);
    }
}

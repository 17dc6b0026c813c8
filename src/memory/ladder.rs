//! What is given up when the GPU's memory is short, in which order, and when it comes back.
//!
//! Nothing here knows a device: a [`Holder`] has the memory, the [`Ladder`] says which step comes
//! next. A step is left when there is room for what it costs to take back and it was held for a
//! while, so that nothing flaps between two iterations.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Bytes;

/// A step: something that can be given up. In the order of the default, the cheapest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, ValueEnum, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Rung {
    /// Memory that is mapped and not in use
    Slack,
    /// Photographs leave the GPU, the last first, and are sent anew for each iteration
    Photographs,
    /// Views whose lists do not fit are drawn in bands, to the same pixels but more slowly
    Bands,
    /// The model goes over to the state of --optimize-memory, for good
    Compact,
    /// Fewer Gaussians are born than density control would like: those with the highest gradient
    Births,
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
            (Self::Compact, _) => "the model's state is kept in fewer bits from now on",
            (Self::Births, true) => "density control is granted fewer births than it asks for",
            (Self::Births, false) => "density control is granted all births again",
        }
    }
}

/// Iterations for which a step is held at least.
const HELD_AT_LEAST: u64 = 500;

/// Something given up, or taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What.
    pub rung: Rung,
    /// Given up, or taken back.
    pub given_up: bool,
    /// Bytes gained, or what taking it back may cost.
    pub bytes: Bytes,
}

/// What giving up a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// There was nothing to give.
    Nothing,
    /// So many bytes are free now; 0 where less will be asked for.
    Bytes(Bytes),
}

/// Whoever holds memory that can be given up.
pub trait Holder {
    /// What may go wrong.
    type Error;

    /// Bytes that were missing where an error says that there is too little memory.
    fn missing(&self, error: &Self::Error) -> Option<Bytes>;
    /// Gives up what the step stands for, as far as `missing` bytes ask for it.
    fn give_up(&mut self, rung: Rung, missing: Bytes) -> Result<Gain, Self::Error>;
    /// What taking a step back costs; nothing where it cannot be, or is still needed.
    fn cost(&self, rung: Rung) -> Option<Bytes>;
    /// Bytes that can be taken without giving up anything.
    fn room(&self) -> Bytes;
    /// Takes a step back.
    fn take_back(&mut self, rung: Rung) -> Result<(), Self::Error>;
}

/// Which steps have been taken.
#[derive(Clone, Debug)]
pub struct Ladder {
    order: Vec<Rung>,
    /// Steps that were taken and not taken back, with the time of the last.
    given_up: Vec<(Rung, u64)>,
    changes: Vec<Change>,
    now: u64,
    /// Whether more is held than may be.
    is_over: bool,
}

impl Ladder {
    /// A ladder of these steps, the first of which is taken first. A step that comes up twice counts
    /// once; what is not among them is never given up.
    pub fn new(order: &[Rung]) -> Self {
        let mut steps: Vec<Rung> = Vec::with_capacity(order.len());
        for &rung in order {
            if !steps.contains(&rung) {
                steps.push(rung);
            }
        }
        Self { order: steps, given_up: Vec::new(), changes: Vec::new(), now: 0, is_over: false }
    }

    /// Does what needs memory. Where there is too little, gives up one step after the other, slack once
    /// and the others as often as they yield something, and tries again after each; the last error
    /// stands where all is not enough.
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
                if let Gain::Bytes(bytes) = holder.give_up(rung, missing)? {
                    self.note(rung, bytes);
                    // What yields no bytes makes less be asked for, once; and slack is made anew by each
                    // try that fails.
                    step += usize::from(bytes == Bytes(0) || rung == Rung::Slack);
                    break;
                }
                step += 1;
            }
        }
    }

    /// Takes back what there is room for, the dearest first: only what was held for a while, and
    /// nothing before a dearer step.
    pub fn descend<H: Holder>(&mut self, holder: &mut H) -> Result<(), H::Error> {
        for &rung in self.order.iter().rev() {
            let Some(at) = self.given_up.iter().position(|&(given, _)| given == rung) else {
                continue;
            };
            let is_settled = self.now >= self.given_up[at].1 + HELD_AT_LEAST;
            let cost = holder.cost(rung).filter(|&cost| is_settled && cost <= holder.room());
            let Some(bytes) = cost else {
                // A step that never comes back does not keep the others.
                if rung == Rung::Compact {
                    continue;
                }
                return Ok(());
            };
            holder.take_back(rung)?;
            self.given_up.remove(at);
            self.changes.push(Change { rung, given_up: false, bytes });
        }
        Ok(())
    }

    /// Density control asked for births and was granted some; `bytes` is what the others would take.
    /// Only after a while of whole grants is it told that births are back.
    pub fn granted(&mut self, wish: usize, granted: usize, bytes: Bytes) {
        if granted < wish {
            self.note(Rung::Births, bytes);
            return;
        }
        let held = |&(rung, since): &(Rung, u64)| {
            rung == Rung::Births && self.now >= since + HELD_AT_LEAST
        };
        if wish > 0
            && let Some(at) = self.given_up.iter().position(held)
        {
            self.given_up.remove(at);
            self.changes.push(Change { rung: Rung::Births, given_up: false, bytes: Bytes(0) });
        }
    }

    /// Whether one step may be taken, and is before another.
    pub fn precedes(&self, rung: Rung, other: Rung) -> bool {
        let place = |wanted| self.order.iter().position(|&rung| rung == wanted);
        place(rung).is_some_and(|at| place(other).is_none_or(|behind| at < behind))
    }

    /// A step was taken without anybody asking for memory: there was too little from the beginning.
    pub fn note_once(&mut self, rung: Rung) {
        if self.allows(rung) && !self.has_given_up(rung) {
            self.note(rung, Bytes(0));
        }
    }

    /// Others have taken so much that this program holds more than its part, and has nothing to give.
    /// Says so once, until that is over.
    pub fn warn_of_excess(&mut self, excess: Bytes) {
        let is_over = excess > Bytes(0);
        if is_over && !self.is_over {
            tracing::warn!(
                "other programs have taken so much of the GPU's memory that this one holds {:.1} MiB \
                 more than it may, and has nothing left to give up; it takes no more, and training \
                 may become slow. End other programs, or go on later with --resume",
                excess.mib()
            );
        }
        self.is_over = is_over;
    }

    /// Whether a step may be taken at all.
    pub fn allows(&self, rung: Rung) -> bool {
        self.order.contains(&rung)
    }

    /// Whether a step is taken at present.
    pub fn has_given_up(&self, rung: Rung) -> bool {
        self.given_up.iter().any(|&(given, _)| given == rung)
    }

    /// Sets the time, in iterations.
    pub fn set_time(&mut self, iteration: u64) {
        self.now = iteration;
    }

    /// What changed since the last call, each step once.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Writes down that a step was taken. Slack is nothing that could be missed: it is not written.
    pub fn note(&mut self, rung: Rung, bytes: Bytes) {
        let now = self.now;
        match self.given_up.iter_mut().find(|(given, _)| *given == rung) {
            Some((_, last)) => {
                *last = now;
                let told = self.changes.iter_mut().rev().find(|change| change.rung == rung);
                if let Some(change) = told.filter(|change| change.given_up) {
                    change.bytes += bytes;
                }
            }
            None if rung == Rung::Slack => {}
            None => {
                self.given_up.push((rung, now));
                self.changes.push(Change { rung, given_up: true, bytes });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Rung; 5] =
        [Rung::Slack, Rung::Photographs, Rung::Bands, Rung::Compact, Rung::Births];

    /// A card on which a model, photographs and an iteration's scratch lie.
    #[derive(Clone, Debug)]
    struct Card {
        budget: u64,
        model: u64,
        photographs: u64,
        /// All photographs together.
        all_photographs: u64,
        slack: u64,
        banded: bool,
        compact: bool,
        /// What the lists of a view may take at most.
        most_lists: Option<u64>,
    }

    /// So many bytes were missing.
    #[derive(Debug, PartialEq)]
    struct Short(u64);

    impl Card {
        fn held(&self) -> u64 {
            self.model + self.photographs + self.slack
        }

        fn free(&self) -> u64 {
            self.budget.saturating_sub(self.held())
        }

        /// An iteration whose splats and lists take so much, the lists less in bands.
        fn iterate(&mut self, splats: u64, lists: u64) -> Result<(), Short> {
            let room = (self.free() + self.slack).saturating_sub(splats);
            let lists =
                if self.banded && lists > room { lists.min(room.max(lists / 16)) } else { lists };
            let wanted = splats + lists;
            if wanted > self.free() + self.slack {
                // Some of it was taken before the rest was refused.
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

        fn give_up(&mut self, rung: Rung, missing: Bytes) -> Result<Gain, Short> {
            let gained = match rung {
                Rung::Slack => std::mem::take(&mut self.slack),
                Rung::Photographs => {
                    let gone = missing.0.min(self.photographs);
                    self.photographs -= gone;
                    gone
                }
                Rung::Bands => {
                    let is_new = !std::mem::replace(&mut self.banded, true);
                    return Ok(if is_new { Gain::Bytes(Bytes(0)) } else { Gain::Nothing });
                }
                Rung::Compact if self.compact => 0,
                Rung::Compact => {
                    self.compact = true;
                    let gained = self.model / 2;
                    self.model -= gained;
                    gained
                }
                Rung::Births => 0,
            };
            Ok(if gained > 0 { Gain::Bytes(Bytes(gained)) } else { Gain::Nothing })
        }

        fn cost(&self, rung: Rung) -> Option<Bytes> {
            match rung {
                Rung::Photographs => Some(Bytes(2 * (self.all_photographs - self.photographs))),
                Rung::Bands => Some(Bytes(4 * self.most_lists.unwrap_or(0))),
                Rung::Slack | Rung::Births => Some(Bytes(0)),
                Rung::Compact => None,
            }
        }

        fn room(&self) -> Bytes {
            Bytes(self.free())
        }

        fn take_back(&mut self, rung: Rung) -> Result<(), Short> {
            match rung {
                Rung::Photographs => self.photographs = self.all_photographs,
                Rung::Bands => self.banded = false,
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
            most_lists: None,
        }
    }

    fn told(ladder: &mut Ladder) -> Vec<(Rung, bool)> {
        ladder.take_changes().iter().map(|change| (change.rung, change.given_up)).collect()
    }

    #[test]
    fn nothing_is_given_up_while_there_is_room() {
        let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
        ladder.climb(&mut card, |card| card.iterate(100, 400)).unwrap();
        assert_eq!(told(&mut ladder), []);
        assert_eq!((card.photographs, card.banded), (200, false));
    }

    #[test]
    fn cheap_steps_come_first_and_only_as_far_as_they_are_needed() {
        let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
        ladder.climb(&mut card, |card| card.iterate(150, 400)).unwrap();
        assert_eq!((told(&mut ladder), card.photographs), (vec![(Rung::Photographs, true)], 150));
        ladder.climb(&mut card, |card| card.iterate(200, 900)).unwrap();
        // The photographs were told of before.
        assert_eq!(told(&mut ladder), [(Rung::Bands, true)]);
        assert_eq!((card.photographs, card.compact), (0, false));
        ladder.climb(&mut card, |card| card.iterate(750, 900)).unwrap();
        assert_eq!(told(&mut ladder), [(Rung::Compact, true)]);
        assert_eq!(ladder.climb(&mut card, |card| card.iterate(900, 900)), Err(Short(106)));
    }

    #[test]
    fn the_order_is_the_users_and_what_is_not_named_is_kept() {
        let (mut ladder, mut card) = (Ladder::new(&[Rung::Compact, Rung::Bands]), card(600));
        ladder.climb(&mut card, |card| card.iterate(100, 100)).unwrap();
        assert_eq!(told(&mut ladder), [(Rung::Compact, true)]);
        assert!(ladder.climb(&mut card, |card| card.iterate(400, 100)).is_err());
        assert_eq!(card.photographs, 200);
    }

    #[test]
    fn a_step_comes_back_when_there_is_room_and_not_at_once() {
        let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
        ladder.climb(&mut card, |card| card.iterate(150, 400)).unwrap();
        card.slack = 0;
        card.budget = 2000;
        ladder.set_time(HELD_AT_LEAST - 1);
        ladder.descend(&mut card).unwrap();
        assert_eq!(card.photographs, 150);
        ladder.set_time(HELD_AT_LEAST);
        ladder.descend(&mut card).unwrap();
        assert_eq!(card.photographs, 200);
        assert_eq!(told(&mut ladder), [(Rung::Photographs, true), (Rung::Photographs, false)]);
    }

    #[test]
    fn a_short_grant_is_told_once_and_a_whole_one_takes_it_back() {
        let mut ladder = Ladder::new(&ALL);
        ladder.granted(10, 10, Bytes(0));
        ladder.granted(10, 4, Bytes(6));
        ladder.granted(10, 0, Bytes(10));
        // Not while the last short one is recent, and not because nothing was asked for.
        ladder.granted(3, 3, Bytes(0));
        ladder.set_time(HELD_AT_LEAST);
        ladder.granted(0, 0, Bytes(0));
        assert_eq!(told(&mut ladder), [(Rung::Births, true)]);
        ladder.granted(3, 3, Bytes(0));
        assert_eq!(told(&mut ladder), [(Rung::Births, false)]);
    }

    #[test]
    fn the_order_says_what_is_given_up_before_what() {
        let ladder = Ladder::new(&[Rung::Compact, Rung::Births, Rung::Bands]);
        assert!(ladder.precedes(Rung::Compact, Rung::Births));
        assert!(!ladder.precedes(Rung::Bands, Rung::Births));
        assert!(!ladder.precedes(Rung::Photographs, Rung::Births));
        assert!(ladder.precedes(Rung::Bands, Rung::Photographs));
    }

    proptest! {
        /// For any demands, and whatever others take: the budget is kept (the card asserts it), a
        /// step is only taken where those before it were not enough, and when others have left all
        /// that can return has returned.
        #[test]
        fn the_budget_holds_nothing_needed_is_given_up_and_everything_returns(
            demands in prop::collection::vec((50_u64..400, 20_u64..600, 0_u64..900), 1..60),
        ) {
            let (mut ladder, mut card) = (Ladder::new(&ALL), card(2000));
            for (index, (splats, lists, foreign)) in demands.into_iter().enumerate() {
                ladder.set_time(index as u64 * 100);
                card.budget = 2000 - foreign;
                card.slack = 0;
                let before = card.clone();
                let fits = before.free() >= splats + lists;
                let done = ladder.climb(&mut card, |card| card.iterate(splats, lists));
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
                ladder.descend(&mut card).unwrap();
            }
            card.budget = 4000;
            card.slack = 0;
            for settled in 0..3 {
                ladder.set_time(100_000 + settled * HELD_AT_LEAST);
                ladder.climb(&mut card, |card| card.iterate(50, 20)).unwrap();
                ladder.descend(&mut card).unwrap();
            }
            prop_assert_eq!((card.photographs, card.banded), (200, false));
        }

        /// With the same demand every time, each step changes at most once.
        #[test]
        fn nothing_flaps(splats in 50_u64..400, lists in 20_u64..900, budget in 700_u64..2000) {
            let (mut ladder, mut card) = (Ladder::new(&ALL), card(budget));
            let mut changes = Vec::new();
            for time in 0..100 {
                ladder.set_time(time * 100);
                card.slack = 0;
                if ladder.climb(&mut card, |card| card.iterate(splats, lists)).is_err() {
                    break;
                }
                ladder.descend(&mut card).unwrap();
                changes.extend(told(&mut ladder));
            }
            for rung in ALL {
                let of = changes.iter().filter(|(changed, _)| *changed == rung).count();
                prop_assert!(of <= 1, "{rung:?}: {changes:?}");
            }
        }
    }
}

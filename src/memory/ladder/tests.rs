//! Cards on which memory is short.

use proptest::prelude::*;

use super::*;

const ALL: [Rung; 7] = [
    Rung::Slack,
    Rung::Photographs,
    Rung::Bands,
    Rung::Neighbours,
    Rung::Compact,
    Rung::Offload,
    Rung::Births,
];

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
    /// What the host has room for of the model.
    host: u64,
    /// Lengths of the lists that are held, and the most allowed.
    neighbours: [u64; 2],
    /// What the lists of a view may take at most.
    most_lists: Option<u64>,
}

/// What one neighbour of all takes.
const NEIGHBOUR: u64 = 10;

/// So many bytes were missing.
#[derive(Debug, PartialEq)]
struct Short(u64);

impl Card {
    fn held(&self) -> u64 {
        self.model + self.photographs + self.slack + NEIGHBOUR * self.neighbours[0]
    }

    /// The owner drops lists that are too long.
    fn shorten(&mut self) {
        self.neighbours[0] = self.neighbours[0].min(self.neighbours[1]);
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
            Rung::Neighbours => {
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
            Rung::Compact if self.compact => 0,
            Rung::Compact => {
                self.compact = true;
                let gained = self.model / 2;
                self.model -= gained;
                gained
            }
            // Half of what it is when compact.
            Rung::Offload => {
                let gained = if self.host < self.model / 2 { 0 } else { self.model / 2 };
                (self.host, self.model) = (0, self.model - gained);
                gained
            }
            Rung::Births | Rung::Resolution => 0,
        };
        Ok(if gained > 0 { Gain::Bytes(Bytes(gained)) } else { Gain::Nothing })
    }

    fn cost(&self, rung: Rung) -> Option<Bytes> {
        match rung {
            Rung::Photographs => Some(Bytes(2 * (self.all_photographs - self.photographs))),
            Rung::Bands => Some(Bytes(4 * self.most_lists.unwrap_or(0))),
            Rung::Neighbours => Some(Bytes(2 * NEIGHBOUR * (16 - self.neighbours[0]))),
            Rung::Slack => Some(Bytes(0)),
            // Births are restored by grants.
            Rung::Compact | Rung::Offload | Rung::Births | Rung::Resolution => None,
        }
    }

    fn available_bytes(&self) -> Bytes {
        Bytes(self.free())
    }

    fn restore(&mut self, rung: Rung) -> Result<(), Short> {
        match rung {
            Rung::Photographs => self.photographs = self.all_photographs,
            Rung::Bands => self.banded = false,
            Rung::Neighbours => self.neighbours[1] = 16,
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
    }
}

fn rung_changes(ladder: &mut Ladder) -> Vec<(Rung, bool)> {
    ladder.take_changes().iter().map(|change| (change.rung, change.given_up)).collect()
}

#[test]
fn nothing_is_given_up_while_there_is_room() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
    ladder.climb(&mut card, |card| card.iterate(100, 400)).unwrap();
    assert_eq!(rung_changes(&mut ladder), []);
    assert_eq!((card.photographs, card.banded), (200, false));
}

#[test]
fn cheap_steps_come_first_and_only_as_far_as_they_are_needed() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
    ladder.climb(&mut card, |card| card.iterate(150, 400)).unwrap();
    assert_eq!(
        (rung_changes(&mut ladder), card.photographs),
        (vec![(Rung::Photographs, true)], 150)
    );
    ladder.climb(&mut card, |card| card.iterate(200, 900)).unwrap();
    // The photographs were reported before.
    assert_eq!(rung_changes(&mut ladder), [(Rung::Bands, true)]);
    assert_eq!((card.photographs, card.compact), (0, false));
    ladder.climb(&mut card, |card| card.iterate(750, 900)).unwrap();
    assert_eq!(rung_changes(&mut ladder), [(Rung::Compact, true)]);
    assert_eq!(ladder.climb(&mut card, |card| card.iterate(900, 900)), Err(Short(106)));
}

#[test]
fn colours_go_to_the_host_after_all_is_compact_and_never_come_back() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
    card.host = 75;
    ladder.climb(&mut card, |card| card.iterate(900, 16)).unwrap();
    let told = rung_changes(&mut ladder);
    assert_eq!(told[told.len() - 2..], [(Rung::Compact, true), (Rung::Offload, true)]);
    assert_eq!((card.model, card.compact), (75, true));
    (card.slack, card.budget) = (0, 9000);
    ladder.set_time(HELD_AT_LEAST);
    ladder.restore_rungs(&mut card).unwrap();
    let told = rung_changes(&mut ladder);
    assert!(told.contains(&(Rung::Photographs, false)), "{told:?}");
    assert!(ladder.is_given_up(Rung::Offload) && ladder.is_given_up(Rung::Compact));
    // A host without the room has nothing to give.
    let mut full = Card { host: 74, ..self::card(1000) };
    assert!(Ladder::new(&ALL).climb(&mut full, |card| card.iterate(900, 16)).is_err());
    assert_eq!((full.model, full.compact), (150, true));
}

#[test]
fn rungs_are_declared_in_the_order_in_which_they_cost() {
    let mut declared = Rung::value_variants().to_vec();
    declared.retain(|rung| *rung != Rung::Resolution);
    assert_eq!(declared, ALL);
}

#[test]
fn the_order_is_the_users_and_what_is_not_named_is_kept() {
    let (mut ladder, mut card) = (Ladder::new(&[Rung::Compact, Rung::Bands]), card(600));
    ladder.climb(&mut card, |card| card.iterate(100, 100)).unwrap();
    assert_eq!(rung_changes(&mut ladder), [(Rung::Compact, true)]);
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
    ladder.restore_rungs(&mut card).unwrap();
    assert_eq!(card.photographs, 150);
    ladder.set_time(HELD_AT_LEAST);
    ladder.restore_rungs(&mut card).unwrap();
    assert_eq!(card.photographs, 200);
    assert_eq!(rung_changes(&mut ladder), [(Rung::Photographs, true), (Rung::Photographs, false)]);
}

#[test]
fn births_hold_the_other_rungs_only_while_they_are_requested() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(1000));
    ladder.climb(&mut card, |card| card.iterate(150, 400)).unwrap();
    ladder.set_time(HELD_AT_LEAST);
    ladder.record_grant(10, 4, Bytes(6));
    (card.slack, card.budget) = (0, 2000);
    ladder.restore_rungs(&mut card).unwrap();
    assert_eq!(card.photographs, 150, "births were refused just now");
    ladder.set_time(2 * HELD_AT_LEAST);
    ladder.restore_rungs(&mut card).unwrap();
    assert_eq!((card.photographs, ladder.is_given_up(Rung::Births)), (200, true));
}

#[test]
fn a_short_grant_is_told_once_and_a_whole_one_takes_it_back() {
    let mut ladder = Ladder::new(&ALL);
    ladder.record_grant(10, 10, Bytes(0));
    ladder.record_grant(10, 4, Bytes(6));
    ladder.record_grant(10, 0, Bytes(10));
    // Not while the last short one is recent, and not because nothing was asked for.
    ladder.record_grant(3, 3, Bytes(0));
    ladder.set_time(HELD_AT_LEAST);
    ladder.record_grant(0, 0, Bytes(0));
    assert_eq!(rung_changes(&mut ladder), [(Rung::Births, true)]);
    ladder.record_grant(3, 3, Bytes(0));
    assert_eq!(rung_changes(&mut ladder), [(Rung::Births, false)]);
}

#[test]
fn nothing_dearer_goes_before_what_was_promised_has_come() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(700));
    (card.photographs, card.neighbours[0]) = (0, 16);
    let mut told_so_far = Vec::new();
    // 100 of 700 are missing, and each neighbour takes 10.
    for neighbours in [12, 10] {
        for again in 0..2 {
            let refused = ladder.climb(&mut card, |card| card.iterate(300, 40));
            assert_eq!((refused.is_err(), card.neighbours[1]), (true, neighbours), "{again}");
            assert!(!card.compact && card.banded);
        }
        card.shorten();
        told_so_far.extend(ladder.take_changes());
    }
    // Nothing is left of that: the next step.
    ladder.climb(&mut card, |card| card.iterate(300, 40)).unwrap();
    assert_eq!((card.neighbours, card.compact), ([10, 10], true));
    let neighbours: Vec<Bytes> = told_so_far
        .iter()
        .filter(|change| change.rung == Rung::Neighbours)
        .map(|change| change.bytes)
        .collect();
    assert_eq!(neighbours, [Bytes(4 * NEIGHBOUR)]);
    assert_eq!(rung_changes(&mut ladder), [(Rung::Compact, true)]);
}

#[test]
fn neighbours_come_back_when_there_is_room_for_them() {
    let (mut ladder, mut card) = (Ladder::new(&ALL), card(700));
    (card.photographs, card.neighbours[0]) = (0, 16);
    ladder.climb(&mut card, |card| card.iterate(250, 40)).unwrap_err();
    card.shorten();
    card.slack = 0;
    card.budget = 2000;
    ladder.set_time(HELD_AT_LEAST);
    ladder.restore_rungs(&mut card).unwrap();
    assert_eq!(card.neighbours, [12, 16]);
    let back = (Rung::Neighbours, false);
    assert!(rung_changes(&mut ladder).contains(&back));
}

#[test]
fn the_order_says_what_is_given_up_before_what() {
    let ladder = Ladder::new(&[Rung::Compact, Rung::Births, Rung::Bands]);
    assert!(ladder.comes_before(Rung::Compact, Rung::Births));
    assert!(!ladder.comes_before(Rung::Bands, Rung::Births));
    assert!(!ladder.comes_before(Rung::Photographs, Rung::Births));
    assert!(ladder.comes_before(Rung::Bands, Rung::Photographs));
    let asked = [Rung::Bands, Rung::Photographs, Rung::Compact];
    assert_eq!(ladder.in_order(&asked), [Rung::Compact, Rung::Bands]);
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
            ladder.restore_rungs(&mut card).unwrap();
        }
        card.budget = 4000;
        card.slack = 0;
        for settled in 0..3 {
            ladder.set_time(100_000 + settled * HELD_AT_LEAST);
            ladder.climb(&mut card, |card| card.iterate(50, 20)).unwrap();
            ladder.restore_rungs(&mut card).unwrap();
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
            ladder.restore_rungs(&mut card).unwrap();
            changes.extend(rung_changes(&mut ladder));
        }
        for rung in ALL {
            let of = changes.iter().filter(|(changed, _)| *changed == rung).count();
            prop_assert!(of <= 1, "{rung:?}: {changes:?}");
        }
    }
}

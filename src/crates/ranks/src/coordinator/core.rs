//! The coordinator's thread: what it does about what happens.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::claim::{ClaimKind, Refusal, first_difference};
use crate::departure::{Cause, Departure};
use crate::message;
use crate::patient::BEAT;
use crate::token::{hex, random};
use crate::wire::{Introduction, PROTOCOL, Said, Told, Welcome};

use super::door::Door;
use super::event::{CoordinatorOptions, Event, Status};
use super::seats::Seats;

/// Time between two looks at the clock.
const TICK: Duration = Duration::from_millis(25);

/// After the end of a rank's connection its process is waited for, and the other way round:
/// together they tell whether it left in order, and else the signal.
const SECOND_SIGN: Duration = Duration::from_millis(200);

/// A rank that seems to be gone: the first sign was seen and the second is waited for.
struct Suspect {
    rank: u32,
    since: Instant,
    is_closed: bool,
    reaped: Option<Cause>,
}

/// The state of a group.
pub(super) struct Core {
    options: CoordinatorOptions,
    door: Arc<Door>,
    status: Arc<Mutex<Status>>,
    seats: Seats,
    suspects: Vec<Suspect>,
    has_met: bool,
    /// What ended the meeting or the work; whoever comes later is told the same.
    verdict: Option<Told>,
    wants_stop: bool,
    is_quitting: bool,
    /// Who waits until no death is in doubt.
    waiting: Vec<Sender<()>>,
    deadline: Instant,
    next_beat: Instant,
}

impl Core {
    pub(super) fn new(
        options: CoordinatorOptions,
        door: Arc<Door>,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            seats: Seats::new(options.world),
            suspects: Vec::new(),
            has_met: false,
            verdict: None,
            wants_stop: false,
            is_quitting: false,
            waiting: Vec::new(),
            deadline: now + options.patience,
            next_beat: now + BEAT,
            options,
            door,
            status,
        }
    }

    /// Works until it is told to quit; where a rank holds it, until all ranks have left.
    pub(super) fn run(mut self, events: &Receiver<Event>) {
        let mut last = Instant::now();
        while !self.is_over() {
            let first = match events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for event in first.into_iter().chain(events.try_iter()) {
                self.hear(event);
            }
            let now = Instant::now();
            // After this process was stopped nobody was silent: it did not listen.
            let time = (now - last).min(4 * TICK);
            last = now;
            self.look(now, time);
            self.publish();
        }
        if self.has_met && self.verdict.is_none() {
            self.seats.tell_all(&Told::Farewell);
        }
        self.door.is_open.store(false, Ordering::Release);
        for rank in self.seats.open_ranks() {
            self.seats.close(rank);
        }
    }

    fn is_over(&self) -> bool {
        let is_decided = self.has_met || self.verdict.is_some();
        let is_alone = is_decided && self.seats.open_ranks().is_empty();
        self.is_quitting || (self.options.holder.is_some() && is_alone)
    }

    fn hear(&mut self, event: Event) {
        match event {
            Event::Hello { connection, stream, introduction } => {
                self.welcome(connection, stream, introduction);
            }
            Event::Foreign { stream, rank, protocol } => {
                let [value, from_value] =
                    [protocol, PROTOCOL.into()].map(|value| value.to_string());
                let what = "protocol of the ranks".to_owned();
                let kind = ClaimKind::Version;
                self.refuse(Refusal { what, rank, value, from_rank: 0, from_value, kind });
                self.answer_late(rank, &stream);
            }
            Event::Said { connection, said } => {
                if let Some(rank) = self.seats.rank_of(connection) {
                    self.obey(rank, said);
                }
            }
            Event::Closed { connection } => {
                let rank = self.seats.rank_of(connection);
                if let Some(rank) = rank.filter(|rank| self.seats.open_ranks().contains(rank)) {
                    self.suspect(rank).is_closed = true;
                    let cause = Cause::Closed;
                    if self.options.holder.is_some() {
                        self.conclude(&self.seats.departure(rank, cause, 0));
                    }
                }
            }
            Event::Reaped { rank, pid, cause } => {
                if self.seats.open_ranks().contains(&rank) {
                    self.suspect(rank).reaped = Some(cause);
                } else if !self.seats.has_joined().get(rank as usize).is_none_or(|come| *come) {
                    self.conclude(&self.seats.departure(rank, cause, pid));
                }
            }
            Event::Stop => self.stop(),
            Event::Settle(waiting) => self.waiting.push(waiting),
            Event::Quit => self.is_quitting = true,
        }
    }

    /// Somebody introduces himself.
    fn welcome(&mut self, connection: u64, stream: TcpStream, introduction: Introduction) {
        let (rank, world) = (introduction.rank, introduction.world);
        if self.verdict.is_none() && (world != self.options.world || rank >= world) {
            self.refuse(Refusal {
                what: "number of ranks".to_owned(),
                rank,
                value: world.to_string(),
                from_rank: 0,
                from_value: self.options.world.to_string(),
                kind: ClaimKind::Options,
            });
        }
        if self.verdict.is_some() {
            return self.answer_late(rank, &stream);
        }
        if let Err((stream, why)) = self.seats.take(connection, stream, introduction) {
            drop(message::write(&mut &stream, &Told::Turned { why }, "a stranger"));
            drop(stream.shutdown(Shutdown::Both));
            return;
        }
        if self.seats.missing().is_empty() {
            self.meet();
        }
    }

    /// All are there.
    fn meet(&mut self) {
        if let Some(refusal) = first_difference(&self.seats.claims()) {
            return self.refuse(refusal);
        }
        let salt = match random() {
            Ok(salt) => hex(&salt),
            Err(error) => {
                let what = format!("no random numbers for a key: {error}");
                return self.end_meeting(Told::Turned { why: what });
            }
        };
        let pid = std::process::id();
        let coordinator = match self.options.holder {
            Some(rank) => self.seats.departure(rank, Cause::Closed, pid),
            None => Departure { rank: None, host: None, pid, cause: Cause::Closed, progress: None },
        };
        self.has_met = true;
        self.door.is_open.store(false, Ordering::Release);
        for rank in self.seats.open_ranks() {
            self.seats.heard(rank, None);
        }
        let welcome = Welcome { data: self.seats.data(), salt, coordinator };
        self.seats.tell_all(&Told::Welcome(welcome));
        if self.wants_stop {
            self.seats.tell_all(&Told::Stop);
        }
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.end_meeting(Told::Refused(refusal));
    }

    /// Ends a meeting that fails. The door stays open: whoever comes later is told why.
    fn end_meeting(&mut self, verdict: Told) {
        if self.verdict.is_none() && !self.has_met {
            self.seats.tell_all(&verdict);
            self.verdict = Some(verdict);
            self.seats.open_ranks().into_iter().for_each(|rank| self.note_lead(rank));
        }
    }

    /// Notes that a rank hears the verdict.
    fn note_lead(&self, rank: u32) {
        let is_of_others = matches!(self.verdict, Some(Told::Ended(_) | Told::Missing { .. }));
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.lead_was_told |= rank == 0 && is_of_others && !self.has_met;
    }

    /// Answers somebody who comes when all is decided.
    fn answer_late(&mut self, rank: u32, stream: &TcpStream) {
        self.note_lead(rank);
        let why = "the group is complete".to_owned();
        let told = self.verdict.clone().unwrap_or(Told::Turned { why });
        drop(message::write(&mut &*stream, &told, "a late rank"));
        drop(stream.shutdown(Shutdown::Write));
    }

    fn obey(&mut self, rank: u32, said: Said) {
        match said {
            Said::Beat { progress } => self.seats.heard(rank, Some(progress)),
            Said::Stop => self.stop(),
            Said::Leave => self.seats.close(rank),
            Said::Failed { code, message } => {
                self.conclude(&self.seats.departure(rank, Cause::Failed { code, message }, 0));
            }
            // It has said it already.
            Said::Hello { .. } => {}
        }
    }

    fn stop(&mut self) {
        if !self.wants_stop && self.has_met {
            self.seats.tell_all(&Told::Stop);
        }
        self.wants_stop = true;
    }

    fn suspect(&mut self, rank: u32) -> &mut Suspect {
        let at = self.suspects.iter().position(|suspect| suspect.rank == rank);
        let at = at.unwrap_or_else(|| {
            let since = Instant::now();
            self.suspects.push(Suspect { rank, since, is_closed: false, reaped: None });
            self.suspects.len() - 1
        });
        &mut self.suspects[at]
    }

    /// A rank is gone before its work was done. The first one is told to all others.
    fn conclude(&mut self, departure: &Departure) {
        if self.verdict.is_none() {
            let told = Told::Ended(departure.clone());
            let gone = departure.rank.filter(|_| !matches!(departure.cause, Cause::Silent { .. }));
            for rank in self.seats.open_ranks() {
                // One that was silent may wake up, and shall know that the others went on without
                // it.
                if Some(rank) != gone {
                    self.seats.tell(rank, &told);
                }
            }
            self.verdict = Some(told);
            let others = self.seats.open_ranks().into_iter().filter(|rank| Some(*rank) != gone);
            others.for_each(|rank| self.note_lead(rank));
            let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
            status.departure = Some(departure.clone());
        }
        if let Some(rank) = departure.rank {
            self.seats.close(rank);
        }
    }

    /// Looks at the clock; `time` has passed since the last look.
    fn look(&mut self, now: Instant, time: Duration) {
        for suspect in std::mem::take(&mut self.suspects) {
            let is_due = now - suspect.since >= SECOND_SIGN;
            if !self.seats.open_ranks().contains(&suspect.rank) {
                continue;
            }
            if is_due || (suspect.is_closed && suspect.reaped.is_some()) {
                let cause = suspect.reaped.unwrap_or(Cause::Closed);
                self.conclude(&self.seats.departure(suspect.rank, cause, 0));
            } else {
                self.suspects.push(suspect);
            }
        }
        if !self.has_met {
            if self.verdict.is_none() && now >= self.deadline {
                let seconds = self.options.patience.as_secs();
                let (ranks, world) = (self.seats.missing(), self.options.world);
                self.end_meeting(Told::Missing { ranks, world, seconds });
            }
            return;
        }
        if let Some(rank) = self.seats.pass(time, self.options.silence) {
            let seconds = self.options.silence.as_secs();
            self.conclude(&self.seats.departure(rank, Cause::Silent { seconds }, 0));
        }
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            self.seats.tell_all(&Told::Beat);
        }
    }

    fn publish(&mut self) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.has_met = self.has_met;
        status.has_joined = self.seats.has_joined();
        if self.suspects.is_empty() {
            // Whoever waits may have given up.
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(());
            }
        }
    }
}

//! What has arrived for one rank and was not taken yet.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::error::{ExchangeError, Turn};

/// Letters of one sender that may lie in an inbox. One is enough to overlap the way of the next letter with
/// the work on this one, and bounds the memory that a sender far ahead takes.
const LETTERS_AHEAD: usize = 1;

/// A message.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// The sender's call.
    pub(super) turn: Turn,
    /// Its contents, which a sender shares among its receivers.
    pub(super) bytes: Arc<Vec<u8>>,
}

/// What has arrived for one rank and was not taken yet, by sender, and which senders are gone.
#[derive(Debug)]
pub(super) struct Inbox {
    state: Mutex<InboxState>,
    changed: Condvar,
}

#[derive(Debug)]
struct InboxState {
    letters: Vec<VecDeque<Letter>>,
    /// Senders from which nothing more comes, the first to end first: others may end because of it.
    ends: Vec<(u32, ExchangeError)>,
    intake: Intake,
}

/// What becomes of a letter that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intake {
    /// It waits until it is taken.
    Open,
    /// It is thrown away: its receiver takes no more.
    Discards,
    /// It cannot come in.
    Shut,
}

impl Inbox {
    /// An empty one with a place for each rank.
    pub(super) fn of_world(world: u32) -> Self {
        let letters = (0..world).map(|_| VecDeque::new()).collect();
        let state = InboxState { letters, ends: Vec::new(), intake: Intake::Open };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// A thread that panics holding the lock leaves the state whole: each change is one statement.
    fn state(&self) -> MutexGuard<'_, InboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, InboxState>) -> MutexGuard<'a, InboxState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a letter of this sender has room. False if none will be let in any more.
    pub(super) fn has_room(&self, from: u32) -> bool {
        let mut state = self.state();
        loop {
            if state.intake == Intake::Shut || state.end_of(from).is_some() {
                return false;
            }
            if state.letters[from as usize].len() < LETTERS_AHEAD {
                return true;
            }
            state = self.wait(state);
        }
    }

    /// Puts a letter in. Whoever does has asked for room first, and is the only one to do so for its sender.
    pub(super) fn put(&self, from: u32, letter: Letter) {
        let mut state = self.state();
        if state.intake == Intake::Open {
            state.letters[from as usize].push_back(letter);
            self.changed.notify_all();
        }
    }

    /// The next letter of any of these senders (`awaited`, by rank), with its sender.
    ///
    /// Fails as soon as one of them is gone of which no letter is left, whatever the others do.
    pub(super) fn take(&self, awaited: &[bool]) -> Result<(u32, Letter), ExchangeError> {
        let mut state = self.state();
        loop {
            if state.intake != Intake::Open {
                return Err(ExchangeError::Aborted);
            }
            let queues = (0..).zip(&mut state.letters).zip(awaited);
            let mut of_awaited =
                queues.filter_map(|(queue, is_awaited)| is_awaited.then_some(queue));
            let found = of_awaited
                .find_map(|(from, letters)| letters.pop_front().map(|letter| (from, letter)));
            if let Some(found) = found {
                self.changed.notify_all();
                return Ok(found);
            }
            if let Some((_, error)) = state.ends.iter().find(|(rank, _)| awaited[*rank as usize]) {
                return Err(error.clone());
            }
            state = self.wait(state);
        }
    }

    /// Notes that nothing more comes from this rank, and why. Later reasons are ignored.
    pub(super) fn end(&self, from: u32, error: ExchangeError) {
        let mut state = self.state();
        if state.end_of(from).is_none() {
            state.ends.push((from, error));
            self.changed.notify_all();
        }
    }

    /// Why nothing can be sent to this rank, if that is known.
    pub(super) fn trouble_with(&self, rank: u32) -> Result<(), ExchangeError> {
        let state = self.state();
        if state.intake != Intake::Open {
            return Err(ExchangeError::Aborted);
        }
        state.end_of(rank).map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Lets every call end.
    pub(super) fn shut(&self) {
        self.state().intake = Intake::Shut;
        self.changed.notify_all();
    }

    /// Whether [`Self::shut`] was called.
    pub(super) fn is_shut(&self) -> bool {
        self.state().intake == Intake::Shut
    }

    /// Throws away what lies here and what is still to come, so that no sender waits for room.
    pub(super) fn throw_away(&self) {
        let mut state = self.state();
        if state.intake == Intake::Open {
            state.intake = Intake::Discards;
            state.letters.iter_mut().for_each(VecDeque::clear);
            self.changed.notify_all();
        }
    }
}

impl InboxState {
    fn end_of(&self, rank: u32) -> Option<&ExchangeError> {
        self.ends.iter().find(|(ended, _)| *ended == rank).map(|(_, error)| error)
    }
}

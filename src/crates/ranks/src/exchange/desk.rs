//! The calls of an exchange over lines of any kind.

use std::mem;
use std::sync::Arc;

use super::error::{Call, ExchangeError, Turn};
use super::inbox::{Inbox, Letter};

/// One rank's lines to the others.
pub(super) trait Post: Send {
    /// Where letters to this rank arrive.
    fn inbox(&self) -> &Inbox;

    /// Hands over a letter; waits while the line is full. False if the line is closed.
    fn send(&self, to: u32, letter: Letter) -> bool;
}

/// Makes a rank's calls: numbers them, sends and receives their letters, checks that they agree.
#[derive(Debug)]
pub(super) struct Desk<P> {
    rank: u32,
    world: u32,
    calls: u64,
    failed: Option<ExchangeError>,
    post: P,
}

impl<P: Post> Desk<P> {
    pub(super) fn new(rank: u32, world: u32, post: P) -> Self {
        Self { rank, world, calls: 0, failed: None, post }
    }

    pub(super) fn rank(&self) -> u32 {
        self.rank
    }

    pub(super) fn world(&self) -> u32 {
        self.world
    }

    pub(super) fn post(&self) -> &P {
        &self.post
    }

    /// Whether calls that need this rank can still be made.
    pub(super) fn check(&self, with: u32) -> Result<(), ExchangeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.post.inbox().trouble_with(with)
    }

    pub(super) fn all_to_all(
        &mut self,
        mut outgoing: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        if outgoing.len() != self.world as usize {
            return Err(ExchangeError::WrongParts { found: outgoing.len(), world: self.world });
        }
        let own = mem::take(&mut outgoing[self.rank as usize]);
        let mut incoming = self.call(Call::AllToAll, |desk, turn| {
            for (to, bytes) in (0..).zip(outgoing) {
                if to != desk.rank {
                    desk.send(to, turn, Arc::new(bytes))?;
                }
            }
            desk.receive(turn, |from| from != desk.rank)
        })?;
        incoming[self.rank as usize] = own;
        Ok(incoming)
    }

    pub(super) fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mine = Arc::new(mine);
        let mut all = self.call(Call::AllGather, |desk, turn| {
            desk.send_to_others(turn, &mine)?;
            desk.receive(turn, |from| from != desk.rank)
        })?;
        all[self.rank as usize] = Arc::unwrap_or_clone(mine);
        Ok(all)
    }

    pub(super) fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        match (self.rank, bytes) {
            (0, None) => Err(ExchangeError::NothingGiven),
            (0, Some(bytes)) => {
                let bytes = Arc::new(bytes);
                self.call(Call::Broadcast, |desk, turn| desk.send_to_others(turn, &bytes))?;
                Ok(Arc::unwrap_or_clone(bytes))
            }
            (rank, Some(_)) => Err(ExchangeError::NotTheGiver { rank }),
            (_, None) => {
                let mut all =
                    self.call(Call::Broadcast, |desk, turn| desk.receive(turn, |from| from == 0))?;
                Ok(mem::take(&mut all[0]))
            }
        }
    }

    /// Makes the next call; keeps its error for those that follow, since letters of a call that failed may
    /// still be on their way.
    fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&Self, Turn) -> Result<T, ExchangeError>,
    ) -> Result<T, ExchangeError> {
        if self.post.inbox().is_shut() {
            return Err(ExchangeError::Aborted);
        }
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let turn = Turn { number: self.calls, call };
        self.calls += 1;
        make(self, turn).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn send_to_others(&self, turn: Turn, bytes: &Arc<Vec<u8>>) -> Result<(), ExchangeError> {
        (0..self.world)
            .filter(|&to| to != self.rank)
            .try_for_each(|to| self.send(to, turn, Arc::clone(bytes)))
    }

    fn send(&self, to: u32, turn: Turn, bytes: Arc<Vec<u8>>) -> Result<(), ExchangeError> {
        let inbox = self.post.inbox();
        inbox.trouble_with(to)?;
        if self.post.send(to, Letter { turn, bytes }) {
            return Ok(());
        }
        inbox.trouble_with(to)?;
        Err(ExchangeError::Lost { rank: to, why: "it has ended its exchange".to_owned() })
    }

    /// One letter of each of these ranks, by rank; nothing of the others.
    fn receive(
        &self,
        turn: Turn,
        is_sender: impl Fn(u32) -> bool,
    ) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let mut awaited: Vec<_> = (0..self.world).map(is_sender).collect();
        let mut incoming = vec![Vec::new(); awaited.len()];
        while awaited.contains(&true) {
            let (from, letter) = self.post.inbox().take(&awaited)?;
            if letter.turn != turn {
                let (rank, expected, found) = (from, turn, letter.turn);
                return Err(ExchangeError::Diverged { rank, expected, found });
            }
            incoming[from as usize] = Arc::unwrap_or_clone(letter.bytes);
            awaited[from as usize] = false;
        }
        Ok(incoming)
    }
}

//! Small calls of ranks on one host through memory that they share, which takes a tenth of the time that sockets take.
//!
//! | part of the memory | length in bytes | for |
//! |---|---|---|
//! | turns, by rank | [`LINE`] each | which call a rank makes |
//! | read, by rank | [`LINE`] each | how many broadcasts a rank has taken |
//! | gathered, by rank, twice | [`SLOT`] each | what it gives to all |
//! | broadcast, [`RING`] times | [`SLOT`] each | what rank 0 gives |
//!
//! A slot is a stamp, which is the call's number plus 1 once the slot is filled, a length and the bytes. Who has
//! filled a slot for a gathering has taken those of all for the one before: so that two slots take turns.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::error::{Call, ExchangeError, Turn};
use super::shared::SharedMemory;
use super::{Aborter, Exchange};

/// Bytes from one word that a rank writes to the next of another.
const LINE: usize = 64;

/// Bytes before those that a slot holds: its stamp and their number.
const HEAD: usize = 16;

/// Bytes of a slot.
const SLOT: usize = 16 << 10;

/// Most bytes of a call through the memory; more go another way.
const MOST: usize = SLOT - HEAD;

/// Broadcasts that rank 0 may be ahead.
const RING: u64 = 8;

/// How often a rank looks for another one's bytes before it lets others have its processor, and how long it does so
/// before it sleeps between two looks.
const LOOKS: u32 = 10_000;
const BUSY: Duration = Duration::from_millis(20);
const NAP: Duration = Duration::from_micros(50);

/// How long the news that a rank has left may take behind what it did last.
const NEWS: Duration = Duration::from_millis(500);

/// Another exchange, of whose calls those of few bytes go through memory that the ranks share.
#[derive(Debug)]
pub struct Board<E> {
    inner: E,
    memory: Option<SharedMemory>,
    /// What the last calls were, by number.
    kinds: [Option<Call>; KINDS],
    /// Calls of all kinds.
    calls: u64,
    gathered: u64,
    broadcast: u64,
    failed: Option<ExchangeError>,
}

impl<E: Exchange> Board<E> {
    /// Has the ranks share memory where all of them can, which must be on one host; all ranks call it. Where they
    /// cannot, all goes the other exchange's way.
    ///
    /// # Errors
    /// If a rank is lost.
    pub fn among(mut inner: E) -> Result<Self, ExchangeError> {
        let bytes = bytes_for(inner.world() as usize);
        let memory = SharedMemory::among(&mut inner, bytes)?;
        Ok(Self { memory, ..Self::without(inner) })
    }

    /// The other exchange alone, of ranks on several hosts.
    pub fn without(inner: E) -> Self {
        let kinds = [None; KINDS];
        Self { inner, memory: None, kinds, calls: 0, gathered: 0, broadcast: 0, failed: None }
    }

    /// Whether the ranks share memory.
    pub fn is_shared(&self) -> bool {
        self.memory.is_some()
    }

    /// Makes the next call, which others see; keeps its error for those that follow.
    fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&mut Self, Turn) -> Result<T, ExchangeError>,
    ) -> Result<T, ExchangeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let own = self.inner.rank();
        self.inner.check(own)?;
        let turn = Turn { number: self.calls, call };
        self.calls += 1;
        self.kinds[kind_place(turn.number)] = Some(call);
        if let Some(memory) = &self.memory {
            memory.word(turn_place(own)).store(turn_word(turn), Ordering::Release);
        }
        make(self, turn).inspect_err(|error| self.failed = Some(error.clone()))
    }

    /// Waits until no rank is waited for.
    fn wait(
        &self,
        memory: &SharedMemory,
        turn: Turn,
        is_waited_for: impl Fn(u32) -> bool,
    ) -> Result<(), ExchangeError> {
        let begun = Instant::now();
        let mut looks = 0_u32;
        let mut diverged_since = None;
        let ranks = 0..self.world();
        while ranks.clone().any(&is_waited_for) {
            looks += 1;
            if looks < LOOKS {
                std::hint::spin_loop();
                continue;
            }
            looks = 0;
            for rank in ranks.clone().filter(|&rank| is_waited_for(rank)) {
                let has_left = self.inner.check(rank);
                let diverges = self.check_turn(memory, turn, rank);
                let since =
                    diverges.is_err().then(|| *diverged_since.get_or_insert_with(Instant::now));
                let is_final = since.is_some_and(|since| since.elapsed() > NEWS);
                let sound = has_left.and(if is_final { diverges } else { Ok(()) });
                // One that has left may have done its part before.
                if sound.is_err() && is_waited_for(rank) {
                    return sound;
                }
            }
            if begun.elapsed() < BUSY {
                std::thread::yield_now();
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Fails where another rank makes, or has made, another call of one number.
    fn check_turn(
        &self,
        memory: &SharedMemory,
        expected: Turn,
        rank: u32,
    ) -> Result<(), ExchangeError> {
        let Some(mut found) = turn_of(memory.word(turn_place(rank)).load(Ordering::Acquire)) else {
            return Ok(());
        };
        if found.number > expected.number {
            // Without this one it can only have broadcast.
            found = Turn { number: expected.number, call: Call::Broadcast };
        }
        match self.kinds[kind_place(found.number)] {
            Some(own) if own != found.call => {
                Err(ExchangeError::Diverged { rank, expected, found })
            }
            _ => Ok(()),
        }
    }

    /// Waits for what these ranks put into their slots; nothing where one had too much.
    fn take(
        &self,
        memory: &SharedMemory,
        turn: Turn,
        slots: &[(u32, usize)],
    ) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        let is_filled = |slot| memory.word(slot).load(Ordering::Acquire) == turn.number + 1;
        let slot_of = |rank| slots.iter().find(|&&(of, _)| of == rank).map(|&(_, slot)| slot);
        self.wait(memory, turn, |rank| slot_of(rank).is_some_and(|slot| !is_filled(slot)))?;
        let bytes = |&(_, slot): &(u32, usize)| {
            let length = memory.word(slot + 8).load(Ordering::Relaxed);
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            (length <= MOST).then(|| memory.read(slot + HEAD, length))
        };
        Ok(slots.iter().map(bytes).collect())
    }
}

/// How many calls are remembered: more than a rank may be behind.
const KINDS: usize = 64;

fn kind_place(number: u64) -> usize {
    usize::try_from(number % KINDS as u64).unwrap_or(0)
}

fn bytes_for(world: usize) -> usize {
    let ring = usize::try_from(RING).unwrap_or(usize::MAX);
    2 * world * LINE + (2 * world + ring) * SLOT
}

fn turn_place(rank: u32) -> usize {
    rank as usize * LINE
}

fn read_place(world: u32, rank: u32) -> usize {
    (world as usize + rank as usize) * LINE
}

fn gather_slot(world: u32, rank: u32, gathered: u64) -> usize {
    let parity = usize::from(gathered % 2 == 1);
    2 * world as usize * LINE + (2 * rank as usize + parity) * SLOT
}

fn broadcast_slot(world: u32, broadcast: u64) -> usize {
    let place = usize::try_from(broadcast % RING).unwrap_or(0);
    2 * world as usize * LINE + (2 * world as usize + place) * SLOT
}

/// A turn in a word; 0 before the first.
fn turn_word(Turn { number, call }: Turn) -> u64 {
    let kind = match call {
        Call::AllToAll => 1,
        Call::AllGather => 2,
        Call::Broadcast => 3,
    };
    number << 2 | kind
}

fn turn_of(word: u64) -> Option<Turn> {
    let call = match word & 3 {
        1 => Call::AllToAll,
        2 => Call::AllGather,
        3 => Call::Broadcast,
        _ => return None,
    };
    Some(Turn { number: word >> 2, call })
}

/// Fills a slot.
fn put(memory: &SharedMemory, slot: usize, turn: Turn, bytes: &[u8]) {
    memory.word(slot + 8).store(bytes.len() as u64, Ordering::Relaxed);
    if bytes.len() <= MOST {
        memory.write(slot + HEAD, bytes);
    }
    memory.word(slot).store(turn.number + 1, Ordering::Release);
}

impl<E: Exchange> Exchange for Board<E> {
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    fn world(&self) -> u32 {
        self.inner.world()
    }

    fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        if outgoing.len() != self.world() as usize {
            return Err(ExchangeError::WrongParts { found: outgoing.len(), world: self.world() });
        }
        self.call(Call::AllToAll, |board, turn| {
            if let Some(memory) = &board.memory {
                // What the others do is seen here: they may be in another call, which sends nothing.
                let reached = |rank| {
                    let word = memory.word(turn_place(rank)).load(Ordering::Acquire);
                    turn_of(word).is_some_and(|found| found == turn)
                };
                board.wait(memory, turn, |rank| !reached(rank))?;
            }
            board.inner.all_to_all(outgoing)
        })
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.call(Call::AllGather, |board, turn| {
            let Some(memory) = &board.memory else { return board.inner.all_gather(mine) };
            let (rank, world, gathered) = (board.rank(), board.world(), board.gathered);
            put(memory, gather_slot(world, rank, gathered), turn, &mine);
            let slots = (0..world).map(|from| (from, gather_slot(world, from, gathered)));
            let all = board.take(memory, turn, &slots.collect::<Vec<_>>());
            board.gathered += 1;
            match all? {
                Some(all) => Ok(all),
                // All ranks see that one has more than fits.
                None => board.inner.all_gather(mine),
            }
        })
    }

    fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        match (self.rank(), &bytes) {
            (0, None) => return Err(ExchangeError::NothingGiven),
            (rank @ 1.., Some(_)) => return Err(ExchangeError::NotTheGiver { rank }),
            _ => {}
        }
        self.call(Call::Broadcast, |board, turn| {
            let Some(memory) = &board.memory else { return board.inner.broadcast(bytes) };
            let (rank, world, number) = (board.rank(), board.world(), board.broadcast);
            let slot = broadcast_slot(world, number);
            let Some(bytes) = bytes else {
                let found = board.take(memory, turn, &[(0, slot)]);
                board.broadcast += 1;
                let found = found?.and_then(|mut of_ranks| of_ranks.pop());
                memory.word(read_place(world, rank)).store(number + 1, Ordering::Release);
                return found.map_or_else(|| board.inner.broadcast(None), Ok);
            };
            // Until all have taken what lies in the slot.
            let is_behind = |other| {
                let read = memory.word(read_place(world, other)).load(Ordering::Acquire);
                other > 0 && read + RING <= number
            };
            board.wait(memory, turn, is_behind)?;
            put(memory, slot, turn, &bytes);
            board.broadcast += 1;
            if bytes.len() <= MOST { Ok(bytes) } else { board.inner.broadcast(Some(bytes)) }
        })
    }

    fn check(&self, with: u32) -> Result<(), ExchangeError> {
        self.inner.check(with)
    }

    fn aborter(&self) -> Aborter {
        self.inner.aborter()
    }
}

//! Bytes between ranks.
//!
//! All ranks call the same methods of [`Exchange`] in the same order, as if each call were one step of all
//! of them. Rank 0 has a line to each other rank, and each call is at most one message to rank 0 and one
//! back. Each message carries the number and the kind of its call: ranks that drift apart get an error.
//!
//! | ranks are | a line is |
//! |---|---|
//! | processes ([`Exchange::connect`]) | a TCP connection between ends that have proved that they know the run's token |
//! | threads ([`Exchange::threads`]) | two queues in memory |
//!
//! A call fails with [`ExchangeError::Stuck`] when nothing comes from a rank for some minutes. Only ranks
//! that wait for a broadcast wait without limit: rank 0 may have nothing for them to do for hours.
//!
//! A message is a head of 24 bytes (magic, kind of the call, number of the call, number of parts), the
//! length of each part (`u64`) and the parts. All numbers are little-endian.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::handshake::{Gate, JoinError, Peer, ask};
use crate::message::{BEAT, Introduction, is_timeout};
use crate::token::Token;

/// Kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Each rank sends its own bytes to each.
    AllToAll,
    /// Each rank sends the same bytes to all.
    AllGather,
    /// Rank 0 sends the same bytes to all.
    Broadcast,
}

/// One call of an exchange. All ranks make the same calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Number of calls before it.
    pub number: u64,
    /// Its kind.
    pub call: Call,
}

impl fmt::Display for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = match self.call {
            Call::AllToAll => "all_to_all",
            Call::AllGather => "all_gather",
            Call::Broadcast => "broadcast",
        };
        write!(formatter, "call {} ({call})", self.number)
    }
}

/// An error of an exchange.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ExchangeError {
    #[error("rank {rank} is lost: {why}; look for its own message, then start all ranks again")]
    Lost {
        rank: u32,
        /// The sign of its end.
        why: String,
    },
    #[error(
        "rank {rank} makes {found} where this rank makes {expected}: all ranks need the same program \
         and the same options"
    )]
    Diverged { rank: u32, expected: Turn, found: Turn },
    #[error(
        "rank {rank} sends {found}, which is no message of an exchange: all ranks need the same version \
         of the program"
    )]
    Garbled { rank: u32, found: String },
    /// `all_to_all` was given too few or too many parts. Nothing was sent.
    #[error("all_to_all was given {found} parts for {world} ranks: it takes one for each rank")]
    WrongParts { found: usize, world: u32 },
    /// Rank 0 gave nothing to `broadcast`. Nothing was sent.
    #[error("rank 0 gave nothing to broadcast: it has to give the bytes that all ranks get")]
    NothingGiven,
    /// Another rank than 0 gave bytes to `broadcast`. Nothing was sent.
    #[error("rank {rank} gave bytes to broadcast: only rank 0 gives, the others pass nothing")]
    NotTheGiver { rank: u32 },
    /// A rank sent or took nothing for a long time, though all ranks live.
    #[error(
        "no rank has gone, but this rank has waited for {seconds} s for the others: one of them is \
         stuck or slower than that; see what each rank and its host do"
    )]
    Stuck { seconds: u64 },
}

/// A rank's lines to the others.
///
/// Calls block until this rank has its bytes. After an error the exchange is of no more use: each later
/// call returns the same error. The exceptions are errors that are found before anything is sent
/// ([`ExchangeError::WrongParts`], [`ExchangeError::NothingGiven`], [`ExchangeError::NotTheGiver`]).
#[derive(Debug)]
pub struct Exchange {
    rank: u32,
    world: u32,
    calls: u64,
    failed: Option<ExchangeError>,
    /// On rank 0 the lines to ranks 1 and up; on another rank that to rank 0.
    lines: Vec<Line>,
    /// Beats after which a rank that sends or takes nothing is stuck.
    patience: u32,
}

/// Address of the data connections, from the meeting of the ranks.
#[derive(Debug)]
pub struct DataRoute {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// New for every run.
    pub(crate) token: Token,
    pub(crate) end: DataEnd,
}

/// This rank's end of the data connections.
#[derive(Debug)]
pub(crate) enum DataEnd {
    /// Rank 0 listens.
    Listener(TcpListener),
    /// The others connect.
    Address(SocketAddr),
}

/// Name of the run in handshakes of data connections.
const DATA: &str = "data";

/// Time of silence after which a rank is stuck. The longest that ranks wait for one another is the opening of a scene.
const STUCK_TIME: Duration = Duration::from_secs(300);

impl Exchange {
    /// Connects processes: rank 0 accepts a connection of each other rank. Both ends prove that they know
    /// the token; strangers are sent away.
    /// Fails if ranks are missing when the patience ends, or if another program listens at rank 0's address.
    pub fn connect(route: DataRoute, patience: Duration) -> Result<Self, JoinError> {
        let DataRoute { rank, world, token, end } = route;
        let deadline = Instant::now() + patience;
        let streams = match end {
            DataEnd::Listener(listener) => {
                accept_all(listener, world, &token, (deadline, patience))?
            }
            DataEnd::Address(address) => {
                vec![connect_one(address, (rank, world), &token, deadline)?]
            }
        };
        let set_up = |stream: TcpStream| {
            stream.set_read_timeout(Some(BEAT))?;
            stream.set_write_timeout(Some(BEAT))?;
            stream.set_nonblocking(true)?;
            Ok(Line::Socket(stream))
        };
        let lines = streams.into_iter().map(set_up).collect::<io::Result<_>>();
        let what = "setting up a connection";
        let lines = lines.map_err(|source| JoinError::System { rank, what, source })?;
        Ok(Self::new(rank, world, lines))
    }

    /// Threads of one process, by rank.
    pub fn threads(world: u32) -> Vec<Self> {
        let mut of_first = Vec::new();
        let mut others = Vec::new();
        for rank in 1..world {
            let ((to_other, from_first), (to_first, from_other)) = (channel(), channel());
            of_first.push(Line::Queues { sender: to_other, receiver: from_other });
            let line = Line::Queues { sender: to_first, receiver: from_first };
            others.push(Self::new(rank, world, vec![line]));
        }
        let first = Self::new(0, world, of_first);
        std::iter::once(first).chain(others).collect()
    }

    fn new(rank: u32, world: u32, lines: Vec<Line>) -> Self {
        let patience = u32::try_from(STUCK_TIME.as_millis() / BEAT.as_millis()).unwrap_or(u32::MAX);
        Self { rank, world, calls: 0, failed: None, lines, patience }
    }

    /// This rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Sends `outgoing[q]` to rank q; returns the parts that each rank sent to this one, by rank.
    /// Fails if `outgoing` has not one part for each rank, or if a rank is lost, stuck or makes another call.
    pub fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let world = self.world as usize;
        if outgoing.len() != world {
            return Err(ExchangeError::WrongParts { found: outgoing.len(), world: self.world });
        }
        self.call(Call::AllToAll, |lines| {
            if lines.rank > 0 {
                lines.send(0, &outgoing)?;
                return lines.receive(0, world);
            }
            let mut of_ranks = vec![outgoing];
            for rank in 1..lines.world {
                of_ranks.push(lines.receive(rank, world)?);
            }
            let mut to_rank = |rank: u32| -> Vec<_> {
                of_ranks.iter_mut().map(|parts| mem::take(&mut parts[rank as usize])).collect()
            };
            (1..lines.world).try_for_each(|rank| lines.send(rank, &to_rank(rank)))?;
            Ok(to_rank(0))
        })
    }

    /// Returns every rank's bytes, by rank, this one's included. Fails if a rank is lost, stuck or makes another call.
    pub fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let world = self.world as usize;
        self.call(Call::AllGather, |lines| {
            let mut all = vec![mine];
            if lines.rank > 0 {
                lines.send(0, &all)?;
                return lines.receive(0, world);
            }
            for rank in 1..lines.world {
                all.extend(lines.receive(rank, 1)?);
            }
            lines.send_to_all(&all)?;
            Ok(all)
        })
    }

    /// Returns the bytes that rank 0 gives, on every rank; the others give nothing. Rank 0 does not wait until the
    /// others have theirs. Fails if rank 0 gives nothing or another rank gives something, or if a rank is lost, stuck
    /// or makes another call.
    pub fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        match (self.rank, &bytes) {
            (0, None) => return Err(ExchangeError::NothingGiven),
            (rank @ 1.., Some(_)) => return Err(ExchangeError::NotTheGiver { rank }),
            _ => {}
        }
        let found = self.call(Call::Broadcast, |lines| match bytes {
            Some(bytes) => {
                let parts = vec![bytes];
                lines.send_to_all(&parts)?;
                Ok(parts)
            }
            None => Lines { patience: None, ..lines }.receive(0, 1),
        });
        Ok(found?.pop().unwrap_or_default())
    }

    /// Makes the next call; keeps its error for those that follow, since messages of a call that failed may
    /// still be on their way.
    fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(Lines<'_>) -> Result<T, ExchangeError>,
    ) -> Result<T, ExchangeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let turn = Turn { number: self.calls, call };
        self.calls += 1;
        let Self { rank, world, ref lines, patience, .. } = *self;
        make(Lines { rank, world, lines, turn, patience: Some(patience) })
            .inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// Accepts a data connection of each rank from 1 on, by rank.
fn accept_all(
    listener: TcpListener,
    world: u32,
    token: &Token,
    (deadline, patience): (Instant, Duration),
) -> Result<Vec<TcpStream>, JoinError> {
    let (sender, came) = channel();
    let accept = move |_, stream: &TcpStream, peer| {
        if let (Peer::Rank(introduction), Ok(stream)) = (peer, stream.try_clone()) {
            // A failed send: all ranks have come.
            drop(sender.send((introduction.rank, stream)));
        }
    };
    let system = |source| JoinError::System { rank: 0, what: "listening", source };
    let gate = Gate::open(listener, DATA, world, token, accept).map_err(system)?;
    let mut streams: Vec<_> = (1..world).map(|_| None).collect();
    while streams.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((rank, stream)) = came.recv_timeout(left) else { break };
        // The newest connection of a rank counts: the rank has given up the one before.
        if let Some(slot) = (rank as usize).checked_sub(1).and_then(|at| streams.get_mut(at)) {
            *slot = Some(stream);
        }
    }
    gate.close();
    let missing = (1..).zip(&streams).filter(|(_, stream)| stream.is_none());
    let ranks: Vec<u32> = missing.map(|(rank, _)| rank).collect();
    if !ranks.is_empty() {
        return Err(JoinError::Missing { ranks, world, seconds: patience.as_secs() });
    }
    Ok(streams.into_iter().flatten().collect())
}

/// Connects to rank 0, again and again until the deadline.
fn connect_one(
    address: SocketAddr,
    (rank, world): (u32, u32),
    token: &Token,
    deadline: Instant,
) -> Result<TcpStream, JoinError> {
    let begun = Instant::now();
    loop {
        let attempt = deadline.min(Instant::now() + ATTEMPT_TIME);
        let done = match ask(address, DATA, attempt) {
            Ok(found) => {
                let introduction = Introduction::of(rank, world);
                let done = found.introduce(token, introduction, attempt);
                done.map(|()| found.stream)
            }
            Err(last) => {
                let seconds = begun.elapsed().as_secs();
                Err(JoinError::NoCoordinator { rank, place: address.to_string(), seconds, last })
            }
        };
        match done {
            Err(JoinError::NoCoordinator { .. } | JoinError::Conversation { .. })
                if Instant::now() < deadline =>
            {
                thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}

/// Time for one attempt to connect to rank 0.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The lines during one call.
#[derive(Clone, Copy)]
struct Lines<'a> {
    rank: u32,
    world: u32,
    lines: &'a [Line],
    turn: Turn,
    /// Beats; without a limit if none.
    patience: Option<u32>,
}

impl Lines<'_> {
    fn line(&self, peer: u32) -> Result<&Line, ExchangeError> {
        let at = if self.rank == 0 { (peer as usize).checked_sub(1) } else { Some(0) };
        let line = at.and_then(|at| self.lines.get(at));
        line.ok_or_else(|| ExchangeError::Lost { rank: peer, why: "it has no line".to_owned() })
    }

    fn send(&self, peer: u32, parts: &[Vec<u8>]) -> Result<(), ExchangeError> {
        let sent = self.line(peer)?.send(self.turn, parts, self.patience);
        sent.map_err(|broken| self.error(peer, broken))
    }

    fn send_to_all(&self, parts: &[Vec<u8>]) -> Result<(), ExchangeError> {
        (1..self.world).try_for_each(|rank| self.send(rank, parts))
    }

    fn receive(&self, peer: u32, parts: usize) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let message = self.line(peer)?.receive(self.world, self.patience);
        let Message { turn, parts: found } = message.map_err(|broken| self.error(peer, broken))?;
        if turn != self.turn {
            let (expected, found) = (self.turn, turn);
            return Err(ExchangeError::Diverged { rank: peer, expected, found });
        }
        if found.len() != parts {
            let found = format!("{} parts, not {parts}", found.len());
            return Err(ExchangeError::Garbled { rank: peer, found });
        }
        Ok(found)
    }

    fn error(&self, rank: u32, broken: Broken) -> ExchangeError {
        match broken {
            Broken::Ended(why) => ExchangeError::Lost { rank, why },
            Broken::Garbled(found) => ExchangeError::Garbled { rank, found },
            Broken::Stuck => {
                let beats = self.patience.unwrap_or_default();
                ExchangeError::Stuck { seconds: (BEAT * beats).as_secs() }
            }
        }
    }
}

/// A way to one other rank.
#[derive(Debug)]
enum Line {
    /// A connection that does not block, until it is asked to.
    Socket(TcpStream),
    Queues {
        sender: Sender<Message>,
        receiver: Receiver<Message>,
    },
}

#[derive(Debug)]
struct Message {
    turn: Turn,
    parts: Vec<Vec<u8>>,
}

/// An error of a line.
#[derive(Debug)]
enum Broken {
    /// The line ended or failed: how.
    Ended(String),
    /// The line holds something else: its bytes.
    Garbled(String),
    /// Nothing came or went.
    Stuck,
}

impl Line {
    fn send(&self, turn: Turn, parts: &[Vec<u8>], patience: Option<u32>) -> Result<(), Broken> {
        match self {
            Self::Socket(stream) => {
                let sent = write_message(&mut Patient { stream, patience }, turn, parts);
                sent.map_err(|error| failed(&error))
            }
            Self::Queues { sender, .. } => {
                let sent = sender.send(Message { turn, parts: parts.to_vec() });
                sent.map_err(|_gone| Broken::Ended("it has ended its exchange".to_owned()))
            }
        }
    }

    fn receive(&self, most_parts: u32, patience: Option<u32>) -> Result<Message, Broken> {
        match self {
            Self::Socket(stream) => read_message(&mut Patient { stream, patience }, most_parts),
            Self::Queues { receiver, .. } => {
                let wait = BEAT * patience.unwrap_or(u32::MAX);
                receiver.recv_timeout(wait).map_err(|error| match error {
                    RecvTimeoutError::Timeout => Broken::Stuck,
                    RecvTimeoutError::Disconnected => {
                        Broken::Ended("it has ended its exchange".to_owned())
                    }
                })
            }
        }
    }
}

fn failed(error: &io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::TimedOut => Broken::Stuck,
        _ => Broken::Ended(format!("its connection failed: {error}")),
    }
}

/// Time in which a connection is polled before the thread sleeps until bytes come. Commands of a training
/// step follow one another more closely than a sleeping thread wakes up.
const POLL_TIME: Duration = Duration::from_millis(1);

/// A connection that fails with `TimedOut` when nothing comes or goes for a number of beats. The beats are
/// counted, not the seconds: if this process was stopped, that time is one beat.
struct Patient<'a> {
    stream: &'a TcpStream,
    patience: Option<u32>,
}

impl Patient<'_> {
    fn wait(&self, mut act: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
        let begun = Instant::now();
        while begun.elapsed() < POLL_TIME {
            match act() {
                Err(error) if is_timeout(&error) => thread::yield_now(),
                done => return done,
            }
        }
        self.stream.set_nonblocking(false)?;
        let mut beats = 0;
        let done = loop {
            match act() {
                Err(error) if is_timeout(&error) => {}
                done => break done,
            }
            beats += 1;
            if self.patience.is_some_and(|patience| beats >= patience) {
                break Err(io::ErrorKind::TimedOut.into());
            }
        };
        self.stream.set_nonblocking(true)?;
        done
    }
}

impl Read for Patient<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.wait(|| stream.read(into))
    }
}

impl Write for Patient<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.wait(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Messages as bytes.

/// Length of a head in bytes.
const HEAD_LEN: usize = 24;

/// The first bytes of a head.
const MAGIC: [u8; 4] = *b"spx2";

/// Most bytes of a part.
const MOST_BYTES: u64 = 1 << 40;

/// Bytes that are written with the head, so that a small message is one packet.
const WITH_HEAD: usize = 64 << 10;

fn write_message(to: &mut impl Write, turn: Turn, parts: &[Vec<u8>]) -> io::Result<()> {
    let kind: u32 = match turn.call {
        Call::AllToAll => 1,
        Call::AllGather => 2,
        Call::Broadcast => 3,
    };
    let mut packet = Vec::new();
    packet.extend(MAGIC);
    packet.extend(kind.to_le_bytes());
    packet.extend(turn.number.to_le_bytes());
    packet.extend((parts.len() as u64).to_le_bytes());
    parts.iter().for_each(|part| packet.extend((part.len() as u64).to_le_bytes()));
    for part in parts {
        if packet.len() + part.len() <= WITH_HEAD {
            packet.extend(part);
            continue;
        }
        to.write_all(&mem::take(&mut packet))?;
        to.write_all(part)?;
    }
    to.write_all(&packet)
}

/// Reads the next message. Memory grows with what arrives, not with what a head promises.
fn read_message(from: &mut impl Read, most_parts: u32) -> Result<Message, Broken> {
    let mut read = |bytes: u64, what: &str| {
        let mut into =
            Vec::with_capacity(WITH_HEAD.min(usize::try_from(bytes).unwrap_or(WITH_HEAD)));
        let found = from.by_ref().take(bytes).read_to_end(&mut into);
        match found.map_err(|error| failed(&error))? as u64 {
            found if found == bytes => Ok(into),
            0 if what == "head" => Err(Broken::Ended("it closed its connection".to_owned())),
            found => {
                let why =
                    format!("it closed its connection after {found} of {bytes} bytes of a {what}");
                Err(Broken::Ended(why))
            }
        }
    };
    let head = read(HEAD_LEN as u64, "head")?;
    let garbled = || {
        let shown: Vec<_> = head.iter().map(|byte| format!("{byte:02x}")).collect();
        Broken::Garbled(format!("the bytes {}", shown.join(" ")))
    };
    let (magic, numbers) = head.split_at(8);
    let call = match *magic {
        [a, b, c, d, kind @ 1..=3, 0, 0, 0] if [a, b, c, d] == MAGIC => {
            [Call::AllToAll, Call::AllGather, Call::Broadcast][usize::from(kind) - 1]
        }
        _ => return Err(garbled()),
    };
    let [number, count] = words(numbers)[..] else { return Err(garbled()) };
    if count > u64::from(most_parts) {
        return Err(garbled());
    }
    let lengths = words(&read(8 * count, "head")?);
    if let Some(length) = lengths.iter().find(|&&length| length > MOST_BYTES) {
        return Err(Broken::Garbled(format!("a part of {length} bytes")));
    }
    let parts = lengths.into_iter().map(|length| read(length, "part")).collect::<Result<_, _>>()?;
    Ok(Message { turn: Turn { number, call }, parts })
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

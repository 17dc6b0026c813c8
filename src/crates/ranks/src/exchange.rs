//! Collective exchange of bytes between ranks.
//!
//! All ranks call the same methods of [`Exchange`] in the same order. Rank 0 has a channel to each other rank, and a
//! call sends at most one message to rank 0 and one back. Each message carries the number and the kind of its call.
//! Ranks whose calls differ get an error.
//!
//! | ranks are | a channel is |
//! |---|---|
//! | processes ([`Exchange::connect`]) | a TCP connection between ends that have proved that they know the run's token |
//! | threads ([`Exchange::threads`]) | two queues in memory |
//!
//! A call fails with [`ExchangeError::TimedOut`] if a rank sends nothing for some minutes. Only a wait for a broadcast
//! has no timeout, because rank 0 may have no work for the others for hours.
//!
//! A message is a header of 24 bytes (magic, kind of the call, number of the call, number of parts), the
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

use crate::handshake::{Acceptor, JoinError, Peer, probe};
use crate::message::{HEARTBEAT, Introduction, is_timeout};
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

/// Identification of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId {
    /// Number of earlier calls.
    pub number: u64,
    /// Kind of the call.
    pub call: Call,
}

impl fmt::Display for CallId {
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
        /// Sign of the loss.
        why: String,
    },
    #[error(
        "rank {rank} makes {found} where this rank makes {expected}: all ranks need the same program \
         and the same options"
    )]
    Diverged { rank: u32, expected: CallId, found: CallId },
    #[error(
        "rank {rank} sends {found}, which is no message of an exchange: all ranks need the same version \
         of the program"
    )]
    Garbled { rank: u32, found: String },
    /// Wrong number of parts for `all_to_all`. Nothing was sent.
    #[error("all_to_all was given {found} parts for {world} ranks: it takes one for each rank")]
    WrongParts { found: usize, world: u32 },
    /// No bytes of rank 0 for `broadcast`. Nothing was sent.
    #[error("rank 0 gave nothing to broadcast: it has to give the bytes that all ranks get")]
    NothingToBroadcast,
    /// Bytes of another rank than 0 for `broadcast`. Nothing was sent.
    #[error("rank {rank} gave bytes to broadcast: only rank 0 gives, the others pass nothing")]
    BroadcastFromOther { rank: u32 },
    /// Timeout of a rank whose connection is open.
    #[error(
        "no rank has gone, but this rank has waited for {seconds} s for the others: one of them is \
         stuck or slower than that; see what each rank and its host do"
    )]
    TimedOut { seconds: u64 },
}

/// Exchange of one rank with the others.
///
/// Calls block until this rank has its bytes. After an error each later call returns the same error, unless nothing was
/// sent before the error
/// ([`ExchangeError::WrongParts`], [`ExchangeError::NothingToBroadcast`], [`ExchangeError::BroadcastFromOther`]).
#[derive(Debug)]
pub struct Exchange {
    rank: u32,
    world: u32,
    calls: u64,
    failed: Option<ExchangeError>,
    /// Channels of rank 0 to ranks 1 and up, or of another rank to rank 0.
    channels: Vec<Channel>,
    /// Timeout in heartbeats.
    timeout_beats: u32,
}

/// Address and secret of the data connections.
#[derive(Debug)]
pub struct DataRoute {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// Secret of the data connections, new for every run.
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

/// Timeout of a call. The longest regular wait is the opening of a scene.
const CALL_TIMEOUT: Duration = Duration::from_secs(300);

impl Exchange {
    /// Connects processes: rank 0 accepts a connection of each other rank. Both ends prove that they know the token.
    /// Fails if ranks are missing after the timeout, or if another program listens at rank 0's address.
    pub fn connect(route: DataRoute, timeout: Duration) -> Result<Self, JoinError> {
        let DataRoute { rank, world, token, end } = route;
        let deadline = Instant::now() + timeout;
        let streams = match end {
            DataEnd::Listener(listener) => {
                accept_all(listener, world, &token, (deadline, timeout))?
            }
            DataEnd::Address(address) => {
                vec![connect_one(address, (rank, world), &token, deadline)?]
            }
        };
        let set_up = |stream: TcpStream| {
            stream.set_read_timeout(Some(HEARTBEAT))?;
            stream.set_write_timeout(Some(HEARTBEAT))?;
            stream.set_nonblocking(true)?;
            Ok(Channel::Socket(stream))
        };
        let channels = streams.into_iter().map(set_up).collect::<io::Result<_>>();
        let what = "setting up a connection";
        let channels = channels.map_err(|source| JoinError::System { rank, what, source })?;
        Ok(Self::new(rank, world, channels))
    }

    /// Returns the exchanges of threads of one process, by rank.
    pub fn threads(world: u32) -> Vec<Self> {
        let mut of_first = Vec::new();
        let mut others = Vec::new();
        for rank in 1..world {
            let ((to_other, from_first), (to_first, from_other)) = (channel(), channel());
            of_first.push(Channel::Queues { sender: to_other, receiver: from_other });
            let channel = Channel::Queues { sender: to_first, receiver: from_first };
            others.push(Self::new(rank, world, vec![channel]));
        }
        let first = Self::new(0, world, of_first);
        std::iter::once(first).chain(others).collect()
    }

    fn new(rank: u32, world: u32, channels: Vec<Channel>) -> Self {
        let timeout_beats =
            u32::try_from(CALL_TIMEOUT.as_millis() / HEARTBEAT.as_millis()).unwrap_or(u32::MAX);
        Self { rank, world, calls: 0, failed: None, channels, timeout_beats }
    }

    /// Returns the number of this rank, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// Sends `outgoing[q]` to rank q. Returns the part that each rank sent to this one, by rank.
    pub fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let world = self.world as usize;
        if outgoing.len() != world {
            return Err(ExchangeError::WrongParts { found: outgoing.len(), world: self.world });
        }
        self.call(Call::AllToAll, |channels| {
            if channels.rank > 0 {
                channels.send(0, &outgoing)?;
                return channels.receive(0, world);
            }
            let mut of_ranks = vec![outgoing];
            for rank in 1..channels.world {
                of_ranks.push(channels.receive(rank, world)?);
            }
            let mut to_rank = |rank: u32| -> Vec<_> {
                of_ranks.iter_mut().map(|parts| mem::take(&mut parts[rank as usize])).collect()
            };
            (1..channels.world).try_for_each(|rank| channels.send(rank, &to_rank(rank)))?;
            Ok(to_rank(0))
        })
    }

    /// Returns the bytes of all ranks, by rank.
    pub fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let world = self.world as usize;
        self.call(Call::AllGather, |channels| {
            let mut all = vec![mine];
            if channels.rank > 0 {
                channels.send(0, &all)?;
                return channels.receive(0, world);
            }
            for rank in 1..channels.world {
                all.extend(channels.receive(rank, 1)?);
            }
            channels.send_to_all(&all)?;
            Ok(all)
        })
    }

    /// Returns the bytes of rank 0 on all ranks. Only rank 0 passes bytes, and it does not wait for the others.
    pub fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        match (self.rank, &bytes) {
            (0, None) => return Err(ExchangeError::NothingToBroadcast),
            (rank @ 1.., Some(_)) => return Err(ExchangeError::BroadcastFromOther { rank }),
            _ => {}
        }
        let found = self.call(Call::Broadcast, |channels| match bytes {
            Some(bytes) => {
                let parts = vec![bytes];
                channels.send_to_all(&parts)?;
                Ok(parts)
            }
            None => CallChannels { timeout_beats: None, ..channels }.receive(0, 1),
        });
        Ok(found?.pop().unwrap_or_default())
    }

    /// Makes the next call. Stores its error for later calls, since messages of a failed call may still arrive.
    fn call<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(CallChannels<'_>) -> Result<T, ExchangeError>,
    ) -> Result<T, ExchangeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let id = CallId { number: self.calls, call };
        self.calls += 1;
        let Self { rank, world, ref channels, timeout_beats, .. } = *self;
        make(CallChannels { rank, world, channels, id, timeout_beats: Some(timeout_beats) })
            .inspect_err(|error| self.failed = Some(error.clone()))
    }
}

/// Accepts a data connection of each rank from 1 on, by rank.
fn accept_all(
    listener: TcpListener,
    world: u32,
    token: &Token,
    (deadline, timeout): (Instant, Duration),
) -> Result<Vec<TcpStream>, JoinError> {
    let (sender, came) = channel();
    let accept = move |_, stream: &TcpStream, peer| {
        if let (Peer::Rank(introduction), Ok(stream)) = (peer, stream.try_clone()) {
            // A failed send means that all ranks are connected.
            drop(sender.send((introduction.rank, stream)));
        }
    };
    let system = |source| JoinError::System { rank: 0, what: "listening", source };
    let acceptor = Acceptor::start(listener, DATA, world, token, accept).map_err(system)?;
    let mut streams: Vec<_> = (1..world).map(|_| None).collect();
    while streams.iter().any(Option::is_none) {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((rank, stream)) = came.recv_timeout(left) else { break };
        // The newest connection of a rank counts, because the rank has closed the earlier one.
        if let Some(slot) = (rank as usize).checked_sub(1).and_then(|at| streams.get_mut(at)) {
            *slot = Some(stream);
        }
    }
    acceptor.close();
    let missing = (1..).zip(&streams).filter(|(_, stream)| stream.is_none());
    let ranks: Vec<u32> = missing.map(|(rank, _)| rank).collect();
    if !ranks.is_empty() {
        return Err(JoinError::Missing { ranks, world, seconds: timeout.as_secs() });
    }
    Ok(streams.into_iter().flatten().collect())
}

/// Connects to rank 0, with retries until the deadline.
fn connect_one(
    address: SocketAddr,
    (rank, world): (u32, u32),
    token: &Token,
    deadline: Instant,
) -> Result<TcpStream, JoinError> {
    let begun = Instant::now();
    loop {
        let attempt = deadline.min(Instant::now() + ATTEMPT_TIME);
        let done = match probe(address, DATA, attempt) {
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
            Err(JoinError::NoCoordinator { .. } | JoinError::Protocol { .. })
                if Instant::now() < deadline =>
            {
                thread::sleep(RETRY_PAUSE);
            }
            done => return done,
        }
    }
}

/// Timeout of one attempt to connect to rank 0.
const ATTEMPT_TIME: Duration = Duration::from_secs(10);

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The channels during one call.
#[derive(Clone, Copy)]
struct CallChannels<'a> {
    rank: u32,
    world: u32,
    channels: &'a [Channel],
    id: CallId,
    /// Timeout in heartbeats, if there is one.
    timeout_beats: Option<u32>,
}

impl CallChannels<'_> {
    fn channel(&self, peer: u32) -> Result<&Channel, ExchangeError> {
        let at = if self.rank == 0 { (peer as usize).checked_sub(1) } else { Some(0) };
        let channel = at.and_then(|at| self.channels.get(at));
        channel.ok_or_else(|| ExchangeError::Lost { rank: peer, why: "it has no line".to_owned() })
    }

    fn send(&self, peer: u32, parts: &[Vec<u8>]) -> Result<(), ExchangeError> {
        let sent = self.channel(peer)?.send(self.id, parts, self.timeout_beats);
        sent.map_err(|broken| self.error(peer, broken))
    }

    fn send_to_all(&self, parts: &[Vec<u8>]) -> Result<(), ExchangeError> {
        (1..self.world).try_for_each(|rank| self.send(rank, parts))
    }

    fn receive(&self, peer: u32, parts: usize) -> Result<Vec<Vec<u8>>, ExchangeError> {
        let message = self.channel(peer)?.receive(self.world, self.timeout_beats);
        let Message { id, parts: found } = message.map_err(|broken| self.error(peer, broken))?;
        if id != self.id {
            let (expected, found) = (self.id, id);
            return Err(ExchangeError::Diverged { rank: peer, expected, found });
        }
        if found.len() != parts {
            let found = format!("{} parts, not {parts}", found.len());
            return Err(ExchangeError::Garbled { rank: peer, found });
        }
        Ok(found)
    }

    fn error(&self, rank: u32, broken: ChannelError) -> ExchangeError {
        match broken {
            ChannelError::Ended(why) => ExchangeError::Lost { rank, why },
            ChannelError::Garbled(found) => ExchangeError::Garbled { rank, found },
            ChannelError::TimedOut => {
                let beats = self.timeout_beats.unwrap_or_default();
                ExchangeError::TimedOut { seconds: (HEARTBEAT * beats).as_secs() }
            }
        }
    }
}

/// Channel to one other rank.
#[derive(Debug)]
enum Channel {
    /// A non-blocking connection. [`PollingStream`] blocks temporarily.
    Socket(TcpStream),
    Queues {
        sender: Sender<Message>,
        receiver: Receiver<Message>,
    },
}

#[derive(Debug)]
struct Message {
    id: CallId,
    parts: Vec<Vec<u8>>,
}

/// Error of a channel.
#[derive(Debug)]
enum ChannelError {
    /// End or failure of the channel, described.
    Ended(String),
    /// Bytes that are no message, described.
    Garbled(String),
    /// Timeout.
    TimedOut,
}

impl Channel {
    fn send(
        &self,
        id: CallId,
        parts: &[Vec<u8>],
        timeout_beats: Option<u32>,
    ) -> Result<(), ChannelError> {
        match self {
            Self::Socket(stream) => {
                let sent = write_message(&mut PollingStream { stream, timeout_beats }, id, parts);
                sent.map_err(|error| failed(&error))
            }
            Self::Queues { sender, .. } => {
                let sent = sender.send(Message { id, parts: parts.to_vec() });
                sent.map_err(|_gone| ChannelError::Ended("it has ended its exchange".to_owned()))
            }
        }
    }

    fn receive(
        &self,
        most_parts: u32,
        timeout_beats: Option<u32>,
    ) -> Result<Message, ChannelError> {
        match self {
            Self::Socket(stream) => {
                read_message(&mut PollingStream { stream, timeout_beats }, most_parts)
            }
            Self::Queues { receiver, .. } => {
                let wait = HEARTBEAT * timeout_beats.unwrap_or(u32::MAX);
                receiver.recv_timeout(wait).map_err(|error| match error {
                    RecvTimeoutError::Timeout => ChannelError::TimedOut,
                    RecvTimeoutError::Disconnected => {
                        ChannelError::Ended("it has ended its exchange".to_owned())
                    }
                })
            }
        }
    }
}

fn failed(error: &io::Error) -> ChannelError {
    match error.kind() {
        io::ErrorKind::TimedOut => ChannelError::TimedOut,
        _ => ChannelError::Ended(format!("its connection failed: {error}")),
    }
}

/// Time for which a connection is polled before the thread blocks. Commands of a training step follow one another
/// faster than a blocked thread wakes up.
const POLL_TIME: Duration = Duration::from_millis(1);

/// A connection that fails with `TimedOut` after a number of heartbeats without progress. Heartbeats are counted
/// instead of seconds, so that a stop of this process counts as one.
struct PollingStream<'a> {
    stream: &'a TcpStream,
    timeout_beats: Option<u32>,
}

impl PollingStream<'_> {
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
            if self.timeout_beats.is_some_and(|most| beats >= most) {
                break Err(io::ErrorKind::TimedOut.into());
            }
        };
        self.stream.set_nonblocking(true)?;
        done
    }
}

impl Read for PollingStream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.wait(|| stream.read(into))
    }
}

impl Write for PollingStream<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut stream = self.stream;
        self.wait(|| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// Messages as bytes.

/// Length of a header in bytes.
const HEAD_LEN: usize = 24;

/// First bytes of a header.
const MAGIC: [u8; 4] = *b"spx2";

/// Largest length of a part in bytes.
const MOST_BYTES: u64 = 1 << 40;

/// Number of bytes that are written together with the header, so that a small message is one packet.
const WITH_HEAD: usize = 64 << 10;

fn write_message(to: &mut impl Write, id: CallId, parts: &[Vec<u8>]) -> io::Result<()> {
    let kind: u32 = match id.call {
        Call::AllToAll => 1,
        Call::AllGather => 2,
        Call::Broadcast => 3,
    };
    let mut packet = Vec::new();
    packet.extend(MAGIC);
    packet.extend(kind.to_le_bytes());
    packet.extend(id.number.to_le_bytes());
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

/// Reads the next message. Memory grows with the received bytes, not with the lengths in the header.
fn read_message(from: &mut impl Read, most_parts: u32) -> Result<Message, ChannelError> {
    let mut read = |bytes: u64, what: &str| {
        let mut into =
            Vec::with_capacity(WITH_HEAD.min(usize::try_from(bytes).unwrap_or(WITH_HEAD)));
        let found = from.by_ref().take(bytes).read_to_end(&mut into);
        match found.map_err(|error| failed(&error))? as u64 {
            found if found == bytes => Ok(into),
            0 if what == "head" => Err(ChannelError::Ended("it closed its connection".to_owned())),
            found => {
                let why =
                    format!("it closed its connection after {found} of {bytes} bytes of a {what}");
                Err(ChannelError::Ended(why))
            }
        }
    };
    let head = read(HEAD_LEN as u64, "head")?;
    let garbled = || {
        let shown: Vec<_> = head.iter().map(|byte| format!("{byte:02x}")).collect();
        ChannelError::Garbled(format!("the bytes {}", shown.join(" ")))
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
        return Err(ChannelError::Garbled(format!("a part of {length} bytes")));
    }
    let parts = lengths.into_iter().map(|length| read(length, "part")).collect::<Result<_, _>>()?;
    Ok(Message { id: CallId { number, call }, parts })
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
}

//! Knows which ranks live: each rank has a connection to it.
//!
//! The coordinator lives in the supervisor, or, under other launchers, in a thread of rank 0. It brings the
//! ranks together, and tells all ranks when one is gone or when one is asked to stop. A rank is gone when
//! its connection ends without a goodbye, when it is silent, or when the supervisor saw its process end.
//! The first loss is the one that all hear.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::handshake::{Gate, Peer};
use crate::message::{
    self, BEAT, Cause, ClaimKind, FromCoordinator, FromRank, Introduction, LostRank, PROTOCOL,
    Refusal, Welcome, first_difference,
};
use crate::token::{Token, hex, random};
use crate::{locked, spawn};

/// Settings of a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct CoordinatorOptions {
    /// Number of ranks.
    pub(crate) world: u32,
    /// Name of the run, by which ranks know the right coordinator.
    pub(crate) run: String,
    /// The secret that ranks must prove to know.
    pub(crate) token: Token,
    /// The rank that holds it; none for a supervisor, who reports how processes ended.
    pub(crate) holder: Option<u32>,
    /// Time for all ranks to join.
    pub(crate) patience: Duration,
    /// Length of a silence after which a rank is dead.
    pub(crate) silence: Duration,
}

impl CoordinatorOptions {
    /// Settings of a supervisor's coordinator of an unnamed run.
    pub(crate) fn of_supervisor(world: u32, token: Token, patience: Duration) -> Self {
        let (run, holder, silence) = (String::new(), None, SILENCE);
        Self { world, run, token, holder, patience, silence }
    }
}

/// Default of [`CoordinatorOptions::silence`]: six beats.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// State of a coordinator, as others see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// True if all ranks have joined.
    pub(crate) has_met: bool,
    /// The ranks that have joined, by rank.
    pub(crate) has_joined: Vec<bool>,
    /// The first rank that was gone before its work was done.
    pub(crate) lost: Option<LostRank>,
    /// True if rank 0 has received the handshake error of another rank: its own exit follows from that error.
    pub(crate) first_was_told: bool,
}

/// Longest wait for a decision.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// A coordinator at work. Dropped, it ends its connections.
#[derive(Debug)]
pub(crate) struct Coordinator {
    events: Sender<Event>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Starts to wait for the ranks at this listener; the error is the system's.
    ///
    /// The listener ends when all have joined.
    pub(crate) fn start(listener: TcpListener, options: CoordinatorOptions) -> io::Result<Self> {
        let (events, receiver) = channel();
        let sender = events.clone();
        let accept = move |number, stream: &TcpStream, peer| serve(number, stream, peer, &sender);
        let gate = Gate::open(listener, &options.run, options.world, &options.token, accept)?;
        let status = Arc::new(Mutex::new(Status::default()));
        let core = Core::new(options, gate, status.clone());
        let thread = spawn("splat-ranks-core", move || core.run(&receiver))?;
        Ok(Self { events, status, thread: Some(thread) })
    }

    /// Returns the state now.
    #[must_use]
    pub(crate) fn status(&self) -> Status {
        locked(&self.status).clone()
    }

    /// Asks all ranks to stop, as soon as all have joined.
    pub(crate) fn stop(&self) {
        self.send(Event::Stop);
    }

    /// Reports how a rank's process ended, as its parent saw it.
    pub(crate) fn reaped(&self, rank: u32, pid: u32, cause: Cause) {
        self.send(Event::Reaped { rank, pid, cause });
    }

    /// Returns the state after all events received so far are handled. To decide whether a process or a
    /// connection that ended is a loss takes up to 200 ms.
    #[must_use]
    pub(crate) fn settled(&self) -> Status {
        let (sender, answer) = channel();
        self.send(Event::Settle(sender));
        // Without an answer it has ended, and knows nothing more.
        let _ = answer.recv_timeout(SETTLE_TIME);
        self.status()
    }

    /// Waits until the ranks have left, but no longer than this; then ends.
    ///
    /// Only one that a rank holds sees by itself that all have left.
    pub(crate) fn finish(mut self, wait: Duration) {
        self.end(wait);
    }

    fn end(&mut self, wait: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + wait;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.send(Event::Quit);
        // A panic in it was printed by the hook; its ranks see that it is gone.
        drop(thread.join());
    }

    fn send(&self, event: Event) {
        // It fails when all have left, and nobody is there to be told.
        drop(self.events.send(event));
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}

/// An event. Connections have numbers, for a rank has none until it has joined.
#[derive(Debug)]
enum Event {
    /// A rank that knows the secret introduces itself.
    Hello { connection: u64, stream: TcpStream, introduction: Introduction },
    /// A rank of a program with another protocol.
    Foreign { stream: TcpStream, rank: u32, protocol: u64 },
    /// A message of a connection.
    Message { connection: u64, message: FromRank },
    /// A connection ended.
    Closed { connection: u64 },
    /// The supervisor saw a rank's process end.
    Reaped { rank: u32, pid: u32, cause: Cause },
    /// All ranks shall stop.
    Stop,
    /// Answer when no loss is in doubt any more.
    Settle(Sender<()>),
    /// End now.
    Quit,
}

/// Turns the messages of a connection into events, to its end.
fn serve(connection: u64, stream: &TcpStream, peer: Peer, events: &Sender<Event>) {
    let Ok(own) = stream.try_clone() else { return };
    let (event, is_rank) = match peer {
        Peer::Rank(introduction) => (Event::Hello { connection, stream: own, introduction }, true),
        Peer::Foreign { rank, protocol } => (Event::Foreign { stream: own, rank, protocol }, false),
    };
    // A failed send: the coordinator is gone, and so are its connections.
    if events.send(event).is_err() || !is_rank {
        return;
    }
    let mut reader = stream;
    while let Ok(message) = message::read(&mut reader, "a rank") {
        if events.send(Event::Message { connection, message }).is_err() {
            break;
        }
    }
    // One of the two may have failed before the program noticed: then the other end shall see it.
    drop(stream.shutdown(Shutdown::Both));
    drop(events.send(Event::Closed { connection }));
}

/// Interval at which the clock is checked.
const TICK: Duration = Duration::from_millis(25);

/// After the end of a rank's connection the coordinator waits for the end of its process, and the other way
/// round: together they tell whether it left in order, and else the signal.
const SECOND_SIGN: Duration = Duration::from_millis(200);

/// A rank that seems to be gone: the first sign was seen and the second is waited for.
struct Suspect {
    rank: u32,
    since: Instant,
    is_closed: bool,
    reaped: Option<Cause>,
}

/// A rank that has joined.
struct Member {
    connection: u64,
    stream: TcpStream,
    introduction: Introduction,
    /// True if it has neither left nor gone.
    is_open: bool,
    /// Time since its last message.
    quiet: Duration,
    progress: Option<u64>,
}

/// State of the coordinator's thread.
struct Core {
    options: CoordinatorOptions,
    gate: Arc<Gate>,
    status: Arc<Mutex<Status>>,
    /// By rank.
    members: Vec<Option<Member>>,
    suspects: Vec<Suspect>,
    has_met: bool,
    /// The message that ended the meeting or the work; a rank that comes later gets it, too.
    verdict: Option<FromCoordinator>,
    should_stop: bool,
    is_quitting: bool,
    /// Callers that wait until no loss is in doubt.
    waiting: Vec<Sender<()>>,
    deadline: Instant,
    next_beat: Instant,
}

impl Core {
    fn new(options: CoordinatorOptions, gate: Arc<Gate>, status: Arc<Mutex<Status>>) -> Self {
        let now = Instant::now();
        Self {
            members: (0..options.world).map(|_| None).collect(),
            suspects: Vec::new(),
            has_met: false,
            verdict: None,
            should_stop: false,
            is_quitting: false,
            waiting: Vec::new(),
            deadline: now + options.patience,
            next_beat: now + BEAT,
            options,
            gate,
            status,
        }
    }

    /// Works until it is told to quit; if a rank holds it, until all ranks have left.
    fn run(mut self, events: &Receiver<Event>) {
        let mut last = Instant::now();
        while !self.is_over() {
            let first = match events.recv_timeout(TICK) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            for event in first.into_iter().chain(events.try_iter()) {
                self.handle(event);
            }
            let now = Instant::now();
            // After this process was stopped nobody was silent: it did not listen.
            let time = (now - last).min(4 * TICK);
            last = now;
            self.pass_time(now, time);
            self.publish();
        }
        if self.has_met && self.verdict.is_none() {
            self.send_all(&FromCoordinator::Farewell);
        }
        self.gate.close();
        for rank in self.open_ranks() {
            self.close(rank);
        }
    }

    fn is_over(&self) -> bool {
        let is_decided = self.has_met || self.verdict.is_some();
        let is_alone = is_decided && self.open_ranks().is_empty();
        self.is_quitting || (self.options.holder.is_some() && is_alone)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Hello { connection, stream, introduction } => {
                self.admit(connection, stream, introduction);
            }
            Event::Foreign { stream, rank, protocol } => {
                let what = "protocol of the ranks";
                self.refuse(what, rank, protocol, PROTOCOL.into(), ClaimKind::Version);
                self.answer_late(rank, &stream);
            }
            Event::Message { connection, message } => {
                if let Some(rank) = self.rank_of(connection) {
                    self.handle_message(rank, message);
                }
            }
            Event::Closed { connection } => {
                let rank = self.rank_of(connection).filter(|rank| self.is_open(*rank));
                if let Some(rank) = rank {
                    self.suspect(rank).is_closed = true;
                    if self.options.holder.is_some() {
                        self.conclude(&self.lost(rank, Cause::Closed, 0));
                    }
                }
            }
            Event::Reaped { rank, pid, cause } => {
                if self.is_open(rank) {
                    self.suspect(rank).reaped = Some(cause);
                } else if self.missing().contains(&rank) {
                    self.conclude(&self.lost(rank, cause, pid));
                }
            }
            Event::Stop => self.stop(),
            Event::Settle(waiting) => self.waiting.push(waiting),
            Event::Quit => self.is_quitting = true,
        }
    }

    /// A rank introduces itself.
    fn admit(&mut self, connection: u64, stream: TcpStream, introduction: Introduction) {
        let (rank, world) = (introduction.rank, introduction.world);
        if self.verdict.is_none() && (world != self.options.world || rank >= world) {
            let (own, kind) = (self.options.world.into(), ClaimKind::Options);
            self.refuse("number of ranks", rank, world.into(), own, kind);
        }
        if self.verdict.is_some() {
            return self.answer_late(rank, &stream);
        }
        let Some(slot) = self.members.get_mut(rank as usize) else { return };
        if let Some(Member { introduction: first, .. }) = slot {
            let why = format!(
                "rank {rank} has already joined (host {}, pid {}): give each process its own rank",
                first.host, first.pid
            );
            drop(message::write(&mut &stream, &FromCoordinator::Rejected { why }, "a rank"));
            drop(stream.shutdown(Shutdown::Both));
            return;
        }
        let (is_open, quiet, progress) = (true, Duration::ZERO, None);
        *slot = Some(Member { connection, stream, introduction, is_open, quiet, progress });
        if self.missing().is_empty() {
            self.meet();
        }
    }

    /// All ranks have joined.
    fn meet(&mut self) {
        let claims: Vec<_> =
            self.joined().map(|(_, member)| member.introduction.claims.as_slice()).collect();
        if let Some(refusal) = first_difference(&claims) {
            return self.end_meeting(FromCoordinator::Refused(refusal));
        }
        let welcome = match self.welcome() {
            Ok(welcome) => welcome,
            Err(why) => return self.end_meeting(FromCoordinator::Rejected { why }),
        };
        self.has_met = true;
        self.gate.close();
        self.members.iter_mut().flatten().for_each(|member| member.quiet = Duration::ZERO);
        self.send_all(&FromCoordinator::Welcome(welcome));
        if self.should_stop {
            self.send_all(&FromCoordinator::Stop);
        }
    }

    fn welcome(&self) -> Result<Welcome, String> {
        let salt = random().map_err(|error| format!("no random numbers for a key: {error}"))?;
        let first = self.member(0).and_then(|member| member.introduction.data);
        let data: SocketAddr = first.ok_or("rank 0 does not listen")?;
        let pid = std::process::id();
        let coordinator = match self.options.holder {
            Some(rank) => self.lost(rank, Cause::Closed, pid),
            None => LostRank { rank: None, host: None, pid, cause: Cause::Closed, progress: None },
        };
        Ok(Welcome { data, salt: hex(&salt), coordinator })
    }

    /// Ends the meeting since a rank's number is not that of rank 0.
    fn refuse(&mut self, what: &str, rank: u32, value: u64, from_value: u64, kind: ClaimKind) {
        let (what, from_rank) = (what.to_owned(), 0);
        let [value, from_value] = [value, from_value].map(|value| value.to_string());
        let refusal = Refusal { what, rank, value, from_rank, from_value, kind };
        self.end_meeting(FromCoordinator::Refused(refusal));
    }

    /// Ends a meeting that fails. The gate stays open: a later rank receives the reason.
    fn end_meeting(&mut self, verdict: FromCoordinator) {
        if self.verdict.is_none() && !self.has_met {
            self.send_all(&verdict);
            self.verdict = Some(verdict);
            self.open_ranks().into_iter().for_each(|rank| self.note_first(rank));
        }
    }

    /// Notes that a rank hears the verdict.
    fn note_first(&self, rank: u32) {
        let is_of_others = matches!(
            self.verdict,
            Some(FromCoordinator::Lost(_) | FromCoordinator::Missing { .. })
        );
        locked(&self.status).first_was_told |= rank == 0 && is_of_others && !self.has_met;
    }

    /// Answers a rank that comes when all is decided.
    fn answer_late(&mut self, rank: u32, stream: &TcpStream) {
        self.note_first(rank);
        let why = "the group is complete".to_owned();
        let answer = self.verdict.clone().unwrap_or(FromCoordinator::Rejected { why });
        drop(message::write(&mut &*stream, &answer, "a late rank"));
        drop(stream.shutdown(Shutdown::Write));
    }

    fn handle_message(&mut self, rank: u32, message: FromRank) {
        match message {
            FromRank::Beat { progress } => {
                if let Some(member) = self.member_mut(rank) {
                    (member.quiet, member.progress) = (Duration::ZERO, Some(progress));
                }
            }
            FromRank::Stop => self.stop(),
            FromRank::Leave => self.close(rank),
            FromRank::Failed { code, message } => {
                self.conclude(&self.lost(rank, Cause::Failed { code, message }, 0));
            }
            // The handshake has read it already.
            FromRank::Hello { .. } => {}
        }
    }

    fn stop(&mut self) {
        if !self.should_stop && self.has_met {
            self.send_all(&FromCoordinator::Stop);
        }
        self.should_stop = true;
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

    /// A rank is gone before its work was done. The others hear of the first one.
    fn conclude(&mut self, lost: &LostRank) {
        if self.verdict.is_none() {
            let message = FromCoordinator::Lost(lost.clone());
            // A silent rank may wake up, and shall know that the others went on without it.
            let gone = lost.rank.filter(|_| !matches!(lost.cause, Cause::Silent { .. }));
            let others: Vec<_> =
                self.open_ranks().into_iter().filter(|rank| Some(*rank) != gone).collect();
            locked(&self.status).lost = Some(lost.clone());
            others.iter().for_each(|&rank| self.send(rank, &message));
            self.verdict = Some(message);
            others.iter().for_each(|&rank| self.note_first(rank));
        }
        if let Some(rank) = lost.rank {
            self.close(rank);
        }
    }

    /// Acts on the clock; `time` has passed since the last call.
    fn pass_time(&mut self, now: Instant, time: Duration) {
        for suspect in std::mem::take(&mut self.suspects) {
            if !self.is_open(suspect.rank) {
                continue;
            }
            let is_due = now - suspect.since >= SECOND_SIGN;
            if is_due || (suspect.is_closed && suspect.reaped.is_some()) {
                let cause = suspect.reaped.unwrap_or(Cause::Closed);
                self.conclude(&self.lost(suspect.rank, cause, 0));
            } else {
                self.suspects.push(suspect);
            }
        }
        if !self.has_met {
            if self.verdict.is_none() && now >= self.deadline {
                let seconds = self.options.patience.as_secs();
                let (ranks, world) = (self.missing(), self.options.world);
                self.end_meeting(FromCoordinator::Missing { ranks, world, seconds });
            }
            return;
        }
        let silence = self.options.silence;
        self.members.iter_mut().flatten().for_each(|member| member.quiet += time);
        let silent = self.joined().find(|(_, member)| member.is_open && member.quiet >= silence);
        if let Some((rank, _)) = silent {
            let seconds = silence.as_secs();
            self.conclude(&self.lost(rank, Cause::Silent { seconds }, 0));
        }
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            self.send_all(&FromCoordinator::Beat);
        }
    }

    fn publish(&mut self) {
        let mut status = locked(&self.status);
        status.has_met = self.has_met;
        status.has_joined = self.members.iter().map(Option::is_some).collect();
        if self.suspects.is_empty() {
            // A caller may have given up.
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(());
            }
        }
    }

    // The ranks.

    fn member(&self, rank: u32) -> Option<&Member> {
        self.members.get(rank as usize)?.as_ref()
    }

    fn member_mut(&mut self, rank: u32) -> Option<&mut Member> {
        self.members.get_mut(rank as usize)?.as_mut()
    }

    fn joined(&self) -> impl Iterator<Item = (u32, &Member)> {
        (0..).zip(&self.members).filter_map(|(rank, member)| Some((rank, member.as_ref()?)))
    }

    fn rank_of(&self, connection: u64) -> Option<u32> {
        self.joined().find(|(_, member)| member.connection == connection).map(|(rank, _)| rank)
    }

    fn missing(&self) -> Vec<u32> {
        let slots = (0..).zip(&self.members);
        slots.filter(|(_, member)| member.is_none()).map(|(rank, _)| rank).collect()
    }

    fn is_open(&self, rank: u32) -> bool {
        self.member(rank).is_some_and(|member| member.is_open)
    }

    /// Ranks that have joined and neither left nor gone.
    fn open_ranks(&self) -> Vec<u32> {
        self.joined().filter(|(_, member)| member.is_open).map(|(rank, _)| rank).collect()
    }

    /// Ends the connection of a rank that has left or is gone; a leaving rank waits for that end.
    fn close(&mut self, rank: u32) {
        if let Some(member) = self.member_mut(rank) {
            member.is_open = false;
            // It fails if the other end was faster.
            drop(member.stream.shutdown(Shutdown::Both));
        }
    }

    /// Sends a message to an open rank. A rank that does not take it is cut off: its end is seen by its connection.
    fn send(&self, rank: u32, message: &FromCoordinator) {
        let Some(member) = self.member(rank).filter(|member| member.is_open) else { return };
        if message::write(&mut &member.stream, message, "a rank").is_err() {
            drop(member.stream.shutdown(Shutdown::Both));
        }
    }

    fn send_all(&self, message: &FromCoordinator) {
        self.open_ranks().into_iter().for_each(|rank| self.send(rank, message));
    }

    /// A rank that is gone; `pid` counts for one that never joined.
    fn lost(&self, rank: u32, cause: Cause, pid: u32) -> LostRank {
        let member = self.member(rank);
        let host = member.map(|member| &member.introduction.host);
        // Named if the ranks are on several.
        let host = host.filter(|host| self.joined().any(|(_, m)| m.introduction.host != **host));
        LostRank {
            rank: Some(rank),
            host: host.cloned(),
            pid: member.map_or(pid, |member| member.introduction.pid),
            cause,
            progress: member.and_then(|member| member.progress),
        }
    }
}

//! The coordinator registers the ranks and detects lost ranks. Each rank has a connection to it.
//!
//! The coordinator is a thread of the supervisor or, under other launchers, of rank 0. It notifies all ranks when a
//! rank is lost or requests a stop. A rank is lost when its connection ends without a `Leave`, when it sends no
//! heartbeats, or when the supervisor reports the end of its process. All ranks are notified of the first lost rank
//! only.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::handshake::{Acceptor, Peer};
use crate::message::{
    self, Accepted, Cause, ClaimKind, FromCoordinator, FromRank, HEARTBEAT, Introduction, LostRank,
    PROTOCOL, Refusal, first_difference,
};
use crate::token::{Token, hex, random};
use crate::{locked, spawn};

/// Settings of a coordinator.
#[derive(Clone, Debug)]
pub(crate) struct CoordinatorOptions {
    /// Number of ranks.
    pub(crate) world: u32,
    /// Name of the run, by which ranks recognise the coordinator.
    pub(crate) run: String,
    /// Secret that ranks must prove to know.
    pub(crate) token: Token,
    /// Rank of this process; none for a supervisor, which reports the ends of processes.
    pub(crate) holder: Option<u32>,
    /// Time for all ranks to join.
    pub(crate) timeout: Duration,
    /// Time without a heartbeat after which a rank is lost.
    pub(crate) silence: Duration,
}

impl CoordinatorOptions {
    /// Returns the settings of a supervisor's coordinator, whose run has no name.
    pub(crate) fn of_supervisor(world: u32, token: Token, timeout: Duration) -> Self {
        let (run, holder, silence) = (String::new(), None, SILENCE);
        Self { world, run, token, holder, timeout, silence }
    }
}

/// Default of [`CoordinatorOptions::silence`]: six heartbeats.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// State of a coordinator for other threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// True if all ranks have joined.
    pub(crate) is_complete: bool,
    /// True for each rank that has joined.
    pub(crate) has_joined: Vec<bool>,
    /// First lost rank.
    pub(crate) lost: Option<LostRank>,
    /// True if rank 0 was notified of another rank's failure before all had joined. Rank 0 then exits for that reason.
    pub(crate) rank_0_was_notified: bool,
}

/// Longest wait of [`Coordinator::settled`].
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// Handle of a running coordinator. Dropping it closes all connections.
#[derive(Debug)]
pub(crate) struct Coordinator {
    events: Sender<Event>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Starts to accept the ranks. The listener is closed when all have joined.
    pub(crate) fn start(listener: TcpListener, options: CoordinatorOptions) -> io::Result<Self> {
        let (events, receiver) = channel();
        let sender = events.clone();
        let accept = move |number, stream: &TcpStream, peer| serve(number, stream, peer, &sender);
        let acceptor =
            Acceptor::start(listener, &options.run, options.world, &options.token, accept)?;
        let status = Arc::new(Mutex::new(Status::default()));
        let core = Core::new(options, acceptor, status.clone());
        let thread = spawn("splat-ranks-core", move || core.run(&receiver))?;
        Ok(Self { events, status, thread: Some(thread) })
    }

    /// Returns the current state.
    #[must_use]
    pub(crate) fn status(&self) -> Status {
        locked(&self.status).clone()
    }

    /// Requests all ranks to stop, once all have joined.
    pub(crate) fn stop(&self) {
        self.send(Event::Stop);
    }

    /// Reports the end of a rank's process.
    pub(crate) fn reaped(&self, rank: u32, pid: u32, cause: Cause) {
        self.send(Event::Reaped { rank, pid, cause });
    }

    /// Returns the state after all earlier events are handled. After the end of a process or a connection this takes up
    /// to 200 ms.
    #[must_use]
    pub(crate) fn settled(&self) -> Status {
        let (sender, answer) = channel();
        self.send(Event::Settle(sender));
        // Without an answer the coordinator has ended, and its state is final.
        let _ = answer.recv_timeout(SETTLE_TIME);
        self.status()
    }

    /// Waits until all ranks have left or `wait` has passed, then ends the coordinator. A supervisor's coordinator
    /// never ends by itself.
    pub(crate) fn finish(&mut self, wait: Duration) {
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + wait;
        while !thread.is_finished() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        self.send(Event::Quit);
        // The panic hook has printed a panic of the thread.
        drop(thread.join());
    }

    fn send(&self, event: Event) {
        // It fails if the coordinator has ended.
        drop(self.events.send(event));
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.finish(Duration::ZERO);
    }
}

/// An event. Connections have numbers, because the rank of a connection is unknown before its introduction.
#[derive(Debug)]
enum Event {
    /// Introduction of a rank that knows the secret.
    Hello { connection: u64, stream: TcpStream, introduction: Introduction },
    /// Introduction of a rank with another version of the protocol.
    Foreign { stream: TcpStream, rank: u32, protocol: u64 },
    /// Message of a connection.
    Message { connection: u64, message: FromRank },
    /// End of a connection.
    Closed { connection: u64 },
    /// End of a rank's process.
    Reaped { rank: u32, pid: u32, cause: Cause },
    /// Request to stop all ranks.
    Stop,
    /// Request for a reply once no rank is suspected.
    Settle(Sender<()>),
    /// Request to end.
    Quit,
}

/// Turns the messages of a connection into events until it ends.
fn serve(connection: u64, stream: &TcpStream, peer: Peer, events: &Sender<Event>) {
    let Ok(own) = stream.try_clone() else { return };
    let (event, is_rank) = match peer {
        Peer::Rank(introduction) => (Event::Hello { connection, stream: own, introduction }, true),
        Peer::Foreign { rank, protocol } => (Event::Foreign { stream: own, rank, protocol }, false),
    };
    // A failed send means that the coordinator has ended.
    if events.send(event).is_err() || !is_rank {
        return;
    }
    let mut reader = stream;
    while let Ok(message) = message::read(&mut reader, "a rank") {
        if events.send(Event::Message { connection, message }).is_err() {
            break;
        }
    }
    // If only one direction has failed, the peer must notice too.
    drop(stream.shutdown(Shutdown::Both));
    drop(events.send(Event::Closed { connection }));
}

/// Interval of timeout checks.
const TICK: Duration = Duration::from_millis(25);

/// Time between the end of a rank's connection and the end of its process, in either order. Both are needed to tell an
/// orderly end, and otherwise the signal.
const CONFIRM_TIME: Duration = Duration::from_millis(200);

/// A rank whose connection or process has ended, but not yet both.
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
    /// True if the rank has neither left nor is lost.
    is_open: bool,
    /// Time since its last message.
    silent_for: Duration,
    progress: Option<u64>,
}

/// State of the coordinator's thread.
struct Core {
    options: CoordinatorOptions,
    acceptor: Arc<Acceptor>,
    status: Arc<Mutex<Status>>,
    /// By rank.
    members: Vec<Option<Member>>,
    suspects: Vec<Suspect>,
    is_complete: bool,
    /// Message that ended the registration or the run. Ranks that connect later receive it too.
    end_message: Option<FromCoordinator>,
    should_stop: bool,
    is_quitting: bool,
    /// Callers that wait until no rank is suspected.
    waiting: Vec<Sender<()>>,
    deadline: Instant,
    next_heartbeat: Instant,
}

impl Core {
    fn new(
        options: CoordinatorOptions,
        acceptor: Arc<Acceptor>,
        status: Arc<Mutex<Status>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            members: (0..options.world).map(|_| None).collect(),
            suspects: Vec::new(),
            is_complete: false,
            end_message: None,
            should_stop: false,
            is_quitting: false,
            waiting: Vec::new(),
            deadline: now + options.timeout,
            next_heartbeat: now + HEARTBEAT,
            options,
            acceptor,
            status,
        }
    }

    /// Handles events until [`Event::Quit`] or, in a rank's process, until all ranks have left.
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
            // A stop of this process must not count as silence of the ranks.
            let time = (now - last).min(4 * TICK);
            last = now;
            self.pass_time(now, time);
            self.publish();
        }
        if self.is_complete && self.end_message.is_none() {
            self.send_all(&FromCoordinator::Closing);
        }
        self.acceptor.close();
        for rank in self.open_ranks() {
            self.close(rank);
        }
    }

    fn is_over(&self) -> bool {
        let is_decided = self.is_complete || self.end_message.is_some();
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

    /// Registers a rank, or rejects it.
    fn admit(&mut self, connection: u64, stream: TcpStream, introduction: Introduction) {
        let (rank, world) = (introduction.rank, introduction.world);
        if self.end_message.is_none() && (world != self.options.world || rank >= world) {
            let (own, kind) = (self.options.world.into(), ClaimKind::Options);
            self.refuse("number of ranks", rank, world.into(), own, kind);
        }
        if self.end_message.is_some() {
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
        let (is_open, silent_for, progress) = (true, Duration::ZERO, None);
        *slot = Some(Member { connection, stream, introduction, is_open, silent_for, progress });
        if self.missing().is_empty() {
            self.complete();
        }
    }

    /// Ends the registration, since all ranks have joined.
    fn complete(&mut self) {
        let claims: Vec<_> =
            self.joined().map(|(_, member)| member.introduction.claims.as_slice()).collect();
        if let Some(refusal) = first_difference(&claims) {
            return self.fail_registration(FromCoordinator::Refused(refusal));
        }
        let accepted = match self.accepted() {
            Ok(accepted) => accepted,
            Err(why) => return self.fail_registration(FromCoordinator::Rejected { why }),
        };
        self.is_complete = true;
        self.acceptor.close();
        self.members.iter_mut().flatten().for_each(|member| member.silent_for = Duration::ZERO);
        self.send_all(&FromCoordinator::Accepted(accepted));
        if self.should_stop {
            self.send_all(&FromCoordinator::Stop);
        }
    }

    fn accepted(&self) -> Result<Accepted, String> {
        let salt = random().map_err(|error| format!("no random numbers for a key: {error}"))?;
        let first = self.member(0).and_then(|member| member.introduction.data);
        let data: SocketAddr = first.ok_or("rank 0 does not listen")?;
        let pid = std::process::id();
        let coordinator = match self.options.holder {
            Some(rank) => self.lost(rank, Cause::Closed, pid),
            None => LostRank { rank: None, host: None, pid, cause: Cause::Closed, progress: None },
        };
        Ok(Accepted { data, salt: hex(&salt), coordinator })
    }

    /// Fails the registration, because a value differs from that of rank 0.
    fn refuse(&mut self, what: &str, rank: u32, value: u64, from_value: u64, kind: ClaimKind) {
        let (what, from_rank) = (what.to_owned(), 0);
        let [value, from_value] = [value, from_value].map(|value| value.to_string());
        let refusal = Refusal { what, rank, value, from_rank, from_value, kind };
        self.fail_registration(FromCoordinator::Refused(refusal));
    }

    /// Fails the registration with a message to all ranks. The acceptor stays open, so that later ranks get it too.
    fn fail_registration(&mut self, end_message: FromCoordinator) {
        if self.end_message.is_none() && !self.is_complete {
            self.send_all(&end_message);
            self.end_message = Some(end_message);
            self.open_ranks().into_iter().for_each(|rank| self.note_notified(rank));
        }
    }

    /// Records that a rank receives the end message.
    fn note_notified(&self, rank: u32) {
        let is_of_others = matches!(
            self.end_message,
            Some(FromCoordinator::Lost(_) | FromCoordinator::Missing { .. })
        );
        locked(&self.status).rank_0_was_notified |= rank == 0 && is_of_others && !self.is_complete;
    }

    /// Answers a rank that connects after the registration.
    fn answer_late(&mut self, rank: u32, stream: &TcpStream) {
        self.note_notified(rank);
        let why = "the group is complete".to_owned();
        let answer = self.end_message.clone().unwrap_or(FromCoordinator::Rejected { why });
        drop(message::write(&mut &*stream, &answer, "a late rank"));
        drop(stream.shutdown(Shutdown::Write));
    }

    fn handle_message(&mut self, rank: u32, message: FromRank) {
        match message {
            FromRank::Heartbeat { progress } => {
                if let Some(member) = self.member_mut(rank) {
                    (member.silent_for, member.progress) = (Duration::ZERO, Some(progress));
                }
            }
            FromRank::Stop => self.stop(),
            FromRank::Leave => self.close(rank),
            FromRank::Failed { code, message } => {
                self.conclude(&self.lost(rank, Cause::Failed { code, message }, 0));
            }
            // The handshake has read the introduction.
            FromRank::Hello { .. } => {}
        }
    }

    fn stop(&mut self) {
        if !self.should_stop && self.is_complete {
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

    /// Handles a lost rank. The other ranks are notified of the first one.
    fn conclude(&mut self, lost: &LostRank) {
        if self.end_message.is_none() {
            let message = FromCoordinator::Lost(lost.clone());
            // A silent rank may continue later and must learn that the run has ended.
            let excluded = lost.rank.filter(|_| !matches!(lost.cause, Cause::Silent { .. }));
            let others: Vec<_> =
                self.open_ranks().into_iter().filter(|rank| Some(*rank) != excluded).collect();
            locked(&self.status).lost = Some(lost.clone());
            others.iter().for_each(|&rank| self.send(rank, &message));
            self.end_message = Some(message);
            others.iter().for_each(|&rank| self.note_notified(rank));
        }
        if let Some(rank) = lost.rank {
            self.close(rank);
        }
    }

    /// Handles timeouts and sends heartbeats. `time` has passed since the last call.
    fn pass_time(&mut self, now: Instant, time: Duration) {
        for suspect in std::mem::take(&mut self.suspects) {
            if !self.is_open(suspect.rank) {
                continue;
            }
            let is_due = now - suspect.since >= CONFIRM_TIME;
            if is_due || (suspect.is_closed && suspect.reaped.is_some()) {
                let cause = suspect.reaped.unwrap_or(Cause::Closed);
                self.conclude(&self.lost(suspect.rank, cause, 0));
            } else {
                self.suspects.push(suspect);
            }
        }
        if !self.is_complete {
            if self.end_message.is_none() && now >= self.deadline {
                let seconds = self.options.timeout.as_secs();
                let (ranks, world) = (self.missing(), self.options.world);
                self.fail_registration(FromCoordinator::Missing { ranks, world, seconds });
            }
            return;
        }
        let silence = self.options.silence;
        self.members.iter_mut().flatten().for_each(|member| member.silent_for += time);
        let silent =
            self.joined().find(|(_, member)| member.is_open && member.silent_for >= silence);
        if let Some((rank, _)) = silent {
            let seconds = silence.as_secs();
            self.conclude(&self.lost(rank, Cause::Silent { seconds }, 0));
        }
        if now >= self.next_heartbeat {
            self.next_heartbeat = now + HEARTBEAT;
            self.send_all(&FromCoordinator::Heartbeat);
        }
    }

    fn publish(&mut self) {
        let mut status = locked(&self.status);
        status.is_complete = self.is_complete;
        status.has_joined = self.members.iter().map(Option::is_some).collect();
        if self.suspects.is_empty() {
            // A caller may have stopped waiting.
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

    /// Returns the ranks that have joined and have neither left nor are lost.
    fn open_ranks(&self) -> Vec<u32> {
        self.joined().filter(|(_, member)| member.is_open).map(|(rank, _)| rank).collect()
    }

    /// Closes the connection of a rank that has left or is lost. A leaving rank waits for that.
    fn close(&mut self, rank: u32) {
        if let Some(member) = self.member_mut(rank) {
            member.is_open = false;
            // It fails if the peer has closed the connection.
            drop(member.stream.shutdown(Shutdown::Both));
        }
    }

    /// Sends a message to an open rank. If that fails, closes the connection, which counts as its end.
    fn send(&self, rank: u32, message: &FromCoordinator) {
        let Some(member) = self.member(rank).filter(|member| member.is_open) else { return };
        if message::write(&mut &member.stream, message, "a rank").is_err() {
            drop(member.stream.shutdown(Shutdown::Both));
        }
    }

    fn send_all(&self, message: &FromCoordinator) {
        self.open_ranks().into_iter().for_each(|rank| self.send(rank, message));
    }

    /// Describes a lost rank. `pid` is used for a rank that has not joined.
    fn lost(&self, rank: u32, cause: Cause, pid: u32) -> LostRank {
        let member = self.member(rank);
        let host = member.map(|member| &member.introduction.host);
        // Hosts are named only if there are several.
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

//! Ranks that are processes.
//!
//! Each connection has two threads: one writes what calls hand over, one reads into the inbox. So sending and
//! receiving overlap whatever the sizes, and a connection that ends is seen at once, whichever rank is being
//! waited for.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::desk::{Desk, Post};
use super::error::ExchangeError;
use super::frame::{Unread, read_letter, write_letter};
use super::inbox::{Inbox, Letter};
use super::meeting::{Mesh, meet, system};
use super::{Aborter, Exchange};

/// Letters that may wait for a connection's writer beside the one that it writes.
const LETTERS_TO_WRITE: usize = 1;

/// How long a rank that leaves waits for one that takes no bytes.
const LEAVE_TIME: Duration = Duration::from_secs(5);

/// A rank that is a process: a TCP connection with each other one.
///
/// Once connected nothing times out: a rank may let the others wait for hours. A process that ends is seen at
/// once. A machine that vanishes without a word is not: that takes a line with regular signs of life.
///
/// To drop it waits until what was sent has left this process, but not for a rank that takes nothing for 5
/// s. After an abort it waits for nothing.
#[derive(Debug)]
pub struct Sockets {
    desk: Desk<SocketPost>,
}

impl Sockets {
    /// Joins the other ranks: connects to those below, is connected to by those above. Both ends prove that
    /// they know the key; strangers are sent away.
    ///
    /// # Errors
    /// If ranks are missing when the patience ends, if another rank's address is held by one without the key,
    /// if the mesh names no such rank, or if the system gives no threads.
    pub fn connect(mesh: Mesh) -> Result<Self, ExchangeError> {
        Self::leaving_within(LEAVE_TIME, mesh)
    }

    /// Joins the other ranks; once dropped, waits so long for one that takes nothing.
    pub(super) fn leaving_within(leave: Duration, mesh: Mesh) -> Result<Self, ExchangeError> {
        let (world, streams) = (mesh.world()?, meet(&mesh)?);
        let Mesh { rank, listener, .. } = mesh;
        // All are there: nobody else is to find the port open.
        drop(listener);
        let post = SocketPost::new(Inbox::of_world(world), streams, leave)?;
        Ok(Self { desk: Desk::new(rank, world, post) })
    }
}

impl Exchange for Sockets {
    fn rank(&self) -> u32 {
        self.desk.rank()
    }

    fn world(&self) -> u32 {
        self.desk.world()
    }

    fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.desk.all_to_all(outgoing)
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.desk.all_gather(mine)
    }

    fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        self.desk.broadcast(bytes)
    }

    fn check(&self, with: u32) -> Result<(), ExchangeError> {
        self.desk.check(with)
    }

    fn aborter(&self) -> Aborter {
        let post = self.desk.post();
        let inbox = Arc::clone(&post.inbox);
        // Weak, so that an aborter that outlives its exchange keeps no connection open.
        let streams: Vec<Weak<TcpStream>> =
            post.lines.iter().flatten().map(|line| Arc::downgrade(&line.stream)).collect();
        Aborter::new(move || {
            inbox.shut();
            streams.iter().filter_map(Weak::upgrade).for_each(|stream| close(&stream));
        })
    }
}

/// A rank's connections and their threads.
#[derive(Debug)]
struct SocketPost {
    inbox: Arc<Inbox>,
    /// By rank; none for this one.
    lines: Vec<Option<PeerLine>>,
    /// Disconnected when all writers have ended.
    writing: Receiver<()>,
    /// Bytes that all connections have taken.
    written: Arc<AtomicU64>,
    leave: Duration,
}

/// A connection with one rank.
#[derive(Debug)]
struct PeerLine {
    stream: Arc<TcpStream>,
    /// None once nothing more is to be sent.
    outbox: Option<SyncSender<Letter>>,
    threads: [JoinHandle<()>; 2],
}

impl SocketPost {
    fn new(
        inbox: Inbox,
        streams: Vec<Option<TcpStream>>,
        leave: Duration,
    ) -> Result<Self, ExchangeError> {
        let (is_writing, writing) = channel();
        let (inbox, written) = (Arc::new(inbox), Arc::new(AtomicU64::new(0)));
        let mut post = Self { inbox, lines: Vec::new(), writing, written, leave };
        for (peer, stream) in (0..).zip(streams) {
            let line = stream.map(|stream| post.line(peer, stream, is_writing.clone()));
            post.lines.push(line.transpose()?);
        }
        Ok(post)
    }

    /// Starts the threads of a connection.
    fn line(
        &self,
        peer: u32,
        stream: TcpStream,
        is_writing: Sender<()>,
    ) -> Result<PeerLine, ExchangeError> {
        let stream = Arc::new(stream);
        let (outbox, letters) = sync_channel(LETTERS_TO_WRITE);
        let (to_write, written) = (Arc::clone(&stream), Arc::clone(&self.written));
        let writer = move || {
            write_letters(&to_write, &letters, &written);
            drop(is_writing);
        };
        let (to_read, inbox) = (Arc::clone(&stream), Arc::clone(&self.inbox));
        let reader = move || read_letters(&to_read, peer, &inbox);
        let named = |name: &str| thread::Builder::new().name(format!("{name} rank {peer}"));
        let no_thread = system("start a thread for a rank's connection");
        let writer = named("to").spawn(writer).map_err(&no_thread)?;
        let reader = named("from").spawn(reader).map_err(&no_thread)?;
        Ok(PeerLine { stream, outbox: Some(outbox), threads: [writer, reader] })
    }

    /// Waits until the writers have written all they have, as long as any of them gets on.
    fn finish_writing(&self) {
        loop {
            let before = self.written.load(Ordering::Relaxed);
            let is_over = self.writing.recv_timeout(self.leave) != Err(RecvTimeoutError::Timeout);
            if is_over || self.written.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }
}

impl Post for SocketPost {
    fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    fn send(&self, to: u32, letter: Letter) -> bool {
        let line = self.lines.get(to as usize).and_then(Option::as_ref);
        let outbox = line.and_then(|line| line.outbox.as_ref());
        outbox.is_some_and(|outbox| outbox.send(letter).is_ok())
    }
}

impl Drop for SocketPost {
    fn drop(&mut self) {
        // Two ranks that leave at once with letters for each other would wait for each other to read.
        self.inbox.throw_away();
        self.lines.iter_mut().flatten().for_each(|line| line.outbox = None);
        self.finish_writing();
        self.inbox.shut();
        for line in self.lines.iter_mut().filter_map(Option::take) {
            close(&line.stream);
            for thread in line.threads {
                // One that panicked has said so itself.
                let _ = thread.join();
            }
        }
    }
}

/// Ends a connection both ways. Where it fails there is none any more.
fn close(stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Both);
}

/// Writes what is handed over until nothing more comes or the connection ends.
fn write_letters(stream: &TcpStream, letters: &Receiver<Letter>, written: &AtomicU64) {
    let mut frame = Vec::new();
    for letter in letters {
        if write_letter(stream, &letter, &mut frame, written).is_err() {
            // The reader sees the end, behind what the other rank sent before it left.
            return close(stream);
        }
    }
    // A connection that has ended already needs no farewell.
    let _ = stream.shutdown(Shutdown::Write);
}

/// Reads into the inbox until nothing more is wanted or the connection ends.
fn read_letters(stream: &TcpStream, peer: u32, inbox: &Inbox) {
    while inbox.has_room(peer) {
        match read_letter(stream) {
            Ok(letter) => inbox.put(peer, letter),
            Err(Unread::Ended(why)) => inbox.end(peer, ExchangeError::Lost { rank: peer, why }),
            Err(Unread::Garbled(found)) => {
                inbox.end(peer, ExchangeError::Garbled { rank: peer, found });
            }
        }
    }
}

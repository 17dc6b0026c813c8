//! Connection of each rank to the coordinator.
//!
//! The rank sends heartbeats, and is notified when another rank is lost or when all ranks are to stop.

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use crate::message::{Cause, LostRank};

use crate::coordinator::Coordinator;
use crate::message::{self, FromCoordinator, FromRank, HEARTBEAT, HeartbeatReader, MessageError};
use crate::{locked, spawn};

/// Number of heartbeats without a message after which the coordinator is lost: 6 s. The coordinator's timeout for ranks
/// is shorter, so that it reports first. A rank still has time to end before 10 s have passed.
const SILENT_HEARTBEATS: u32 = 12;

/// Time for the coordinator to close the connection of a leaving rank.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// Time for which the rank with the coordinator waits for the others to leave.
const OTHERS_TIME: Duration = Duration::from_secs(10);

/// Time for which the rank with the coordinator waits for the others after its own error.
const FAIL_TIME: Duration = Duration::from_secs(1);

/// Largest number of characters of an error that are sent to the other ranks.
const MAX_MESSAGE_CHARS: usize = 4096;

/// An event of a link.
#[derive(Debug, PartialEq)]
enum Notice {
    Stop,
    End(LostRank),
}

/// Connection of a registered rank to the coordinator.
///
/// Dropping it without [`leave`](Link::leave) makes the rank a lost one.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    /// Held while a message is written, because two threads write.
    writing: Arc<Mutex<()>>,
    progress: Arc<AtomicU64>,
    has_left: Arc<AtomicBool>,
    notices: Mutex<Option<Receiver<Notice>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// Dropped to end the heartbeats.
    heartbeat: Mutex<Option<Sender<()>>>,
    coordinator: Mutex<Option<Coordinator>>,
}

impl Link {
    /// Starts the link of a registered rank. `loss` describes the coordinator in case it is lost. `coordinator` is that
    /// of this process, if any.
    pub(crate) fn start(
        stream: TcpStream,
        loss: LostRank,
        coordinator: Option<Coordinator>,
    ) -> io::Result<Self> {
        let (sender, notices) = channel();
        let (heartbeat, beat_end) = channel();
        let link = Self {
            writing: Arc::default(),
            progress: Arc::default(),
            has_left: Arc::default(),
            notices: Mutex::new(Some(notices)),
            reader: Mutex::default(),
            heartbeat: Mutex::new(Some(heartbeat)),
            coordinator: Mutex::new(coordinator),
            stream,
        };
        let (stream, has_left) = (link.stream.try_clone()?, link.has_left.clone());
        let read = move || read_all(&stream, loss, &has_left, &sender);
        *locked(&link.reader) = Some(spawn("splat-ranks-link", read)?);
        let (stream, writing, progress) =
            (link.stream.try_clone()?, link.writing.clone(), link.progress.clone());
        let beats = move || {
            while beat_end.recv_timeout(HEARTBEAT) == Err(RecvTimeoutError::Timeout) {
                let progress = progress.load(Ordering::Relaxed);
                if send(&stream, &writing, &FromRank::Heartbeat { progress }).is_err() {
                    // The reader notices and reports the failure.
                    break;
                }
            }
        };
        spawn("splat-ranks-beat", beats)?;
        Ok(link)
    }

    /// Sets the current image of this rank. Takes only nanoseconds.
    pub fn progress(&self, image: u64) {
        self.progress.store(image, Ordering::Relaxed);
    }

    /// Requests an orderly stop of all ranks. Each rank, including this one, receives the request by
    /// [`watch`](Link::watch).
    pub fn request_stop(&self) {
        self.send(&FromRank::Stop);
    }

    /// Registers callbacks: `on_stop` for requests to stop, `on_end` for the loss of another rank or the coordinator.
    ///
    /// They also receive earlier events, and run in a thread of the link. `on_end` is the last call. No callback runs
    /// after this rank has left. A second call of `watch` does nothing.
    pub fn watch(
        &self,
        on_stop: impl Fn() + Send + 'static,
        on_end: impl FnOnce(LostRank) + Send + 'static,
    ) -> io::Result<()> {
        let Some(notices) = locked(&self.notices).take() else { return Ok(()) };
        let has_left = self.has_left.clone();
        let watch = move || {
            for notice in notices {
                match notice {
                    _ if has_left.load(Ordering::Acquire) => return,
                    Notice::Stop => on_stop(),
                    Notice::End(lost) => return on_end(lost),
                }
            }
        };
        spawn("splat-ranks-watch", watch).map(drop)
    }

    /// Leaves in order. A rank with the coordinator waits at most 10 s for the others to leave.
    pub fn leave(&self) {
        self.end(&FromRank::Leave, OTHERS_TIME);
    }

    /// Leaves with an error of this rank, whose exit code and text are sent to the others.
    pub fn fail(&self, code: u8, message: &str) {
        let message = message.chars().take(MAX_MESSAGE_CHARS).collect();
        self.end(&FromRank::Failed { code, message }, FAIL_TIME);
    }

    fn end(&self, last: &FromRank, wait: Duration) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(locked(&self.heartbeat).take());
        self.send(last);
        // The coordinator closes the connection after it has read the last message. An earlier end of this process
        // could discard that message, because the system resets a connection with unread bytes.
        let deadline = Instant::now() + LEAVE_TIME;
        let reader = locked(&self.reader).take();
        while reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(2));
        }
        self.shut();
        if let Some(mut coordinator) = locked(&self.coordinator).take() {
            coordinator.finish(wait);
        }
    }

    fn send(&self, message: &FromRank) {
        // If this fails, the reader reports the loss of the coordinator.
        drop(send(&self.stream, &self.writing, message));
    }

    fn shut(&self) {
        // It fails if the peer has closed the connection.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.shut();
            if let Some(mut coordinator) = locked(&self.coordinator).take() {
                coordinator.finish(FAIL_TIME);
            }
        }
    }
}

/// Reads messages of the coordinator until either end closes the connection.
fn read_all(stream: &TcpStream, loss: LostRank, has_left: &AtomicBool, notices: &Sender<Notice>) {
    let mut reader = HeartbeatReader { stream, most: SILENT_HEARTBEATS };
    let lost = loop {
        match message::read(&mut reader, "the coordinator") {
            Ok(FromCoordinator::Stop) => drop(notices.send(Notice::Stop)),
            Ok(FromCoordinator::Lost(lost)) => break lost,
            Ok(FromCoordinator::Closing) => return,
            Ok(_) => {}
            Err(MessageError::Failed { source, .. })
                if source.kind() == io::ErrorKind::TimedOut =>
            {
                let seconds = (HEARTBEAT * SILENT_HEARTBEATS).as_secs();
                break LostRank { cause: Cause::Silent { seconds }, ..loss };
            }
            Err(_) => break loss,
        }
    };
    // The send fails if the receiver was dropped.
    drop(notices.send(Notice::End(lost)));
    // Read and ignore further messages. Otherwise the system would reset the connection and discard a last message of
    // this rank.
    while !has_left.load(Ordering::Acquire) {
        if message::read::<FromCoordinator>(&mut reader, "the coordinator").is_err() {
            return;
        }
    }
}

fn send(
    mut stream: &TcpStream,
    writing: &Mutex<()>,
    message: &FromRank,
) -> Result<(), MessageError> {
    let _guard = locked(writing);
    message::write(&mut stream, message, "the coordinator")
}

//! Each rank's line to the coordinator.
//!
//! By it a rank shows that it lives, and hears when another one is gone or all are to stop.

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
use crate::message::{self, BEAT, Beats, FromCoordinator, FromRank, MessageError};
use crate::{locked, spawn};

/// The coordinator is gone after so many beats without a word: 6 s. That is longer than its own
/// patience with ranks, for it knows more: where both are silent to each other, it shall be the one
/// that says so. And it leaves a rank time to end before 10 s are over.
const QUIET_BEATS: u32 = 12;

/// Time for the coordinator to take a goodbye.
const GOODBYE_TIME: Duration = Duration::from_secs(2);

/// Time that the rank with the coordinator waits for the others to leave.
const OTHERS_TIME: Duration = Duration::from_secs(10);

/// Time that it waits for them after an error of its own.
const FAIL_TIME: Duration = Duration::from_secs(1);

/// Most characters of an error that are sent to the other ranks.
const LETTERS: usize = 4096;

/// An event of a link.
enum Notice {
    Stop,
    End(LostRank),
}

/// A rank's connection to the coordinator, from the meeting to the end of its work.
///
/// Dropped without [`leave`](Link::leave) it counts as a death.
#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    /// Held while a message is written: two threads write.
    writing: Arc<Mutex<()>>,
    progress: Arc<AtomicU64>,
    has_left: Arc<AtomicBool>,
    notices: Mutex<Option<Receiver<Notice>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
    /// Dropped to end the beats.
    beat: Mutex<Option<Sender<()>>>,
    coordinator: Mutex<Option<Coordinator>>,
}

impl Link {
    /// Starts the link of a rank that was let in. `gone` names the coordinator should it go;
    /// `coordinator` is there where this rank holds it.
    pub(crate) fn start(
        stream: TcpStream,
        gone: LostRank,
        coordinator: Option<Coordinator>,
    ) -> io::Result<Self> {
        let (sender, notices) = channel();
        let (beat, beat_end) = channel();
        let link = Self {
            writing: Arc::default(),
            progress: Arc::default(),
            has_left: Arc::default(),
            notices: Mutex::new(Some(notices)),
            reader: Mutex::default(),
            beat: Mutex::new(Some(beat)),
            coordinator: Mutex::new(coordinator),
            stream,
        };
        let (stream, has_left) = (link.stream.try_clone()?, link.has_left.clone());
        let read = move || read_all(&stream, gone, &has_left, &sender);
        *locked(&link.reader) = Some(spawn("splat-ranks-link", read)?);
        let (stream, writing, progress) =
            (link.stream.try_clone()?, link.writing.clone(), link.progress.clone());
        let beats = move || {
            while beat_end.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let progress = progress.load(Ordering::Relaxed);
                if send(&stream, &writing, &FromRank::Beat { progress }).is_err() {
                    // The reader sees the same, and tells it.
                    break;
                }
            }
        };
        spawn("splat-ranks-beat", beats)?;
        Ok(link)
    }

    /// Notes the image that this rank works at. Costs next to nothing.
    pub fn progress(&self, image: u64) {
        self.progress.store(image, Ordering::Relaxed);
    }

    /// Requests an orderly stop of all ranks. Each rank, this one included, receives the request by
    /// [`watch`](Link::watch).
    pub fn request_stop(&self) {
        self.send(&FromRank::Stop);
    }

    /// Sets what happens when all are to stop, and when another rank or the coordinator is gone.
    ///
    /// Earlier events count, too. Both are called in a thread of the link; `on_end` at most once, and nothing after it,
    /// and nothing once this rank has left. A second call of `watch` does nothing.
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

    /// Says goodbye: the end of this rank is no death.
    ///
    /// If this rank holds the coordinator, it waits for the others to leave, too, but at most 10 s.
    pub fn leave(&self) {
        self.end(&FromRank::Leave, OTHERS_TIME);
    }

    /// Ends with an error of this rank's own. The others are told its exit code and its text.
    pub fn fail(&self, code: u8, message: &str) {
        let message = message.chars().take(LETTERS).collect();
        self.end(&FromRank::Failed { code, message }, FAIL_TIME);
    }

    fn end(&self, last: &FromRank, wait: Duration) {
        if self.has_left.swap(true, Ordering::AcqRel) {
            return;
        }
        drop(locked(&self.beat).take());
        self.send(last);
        // The coordinator closes the connection when it has taken the goodbye. A process that ended
        // before might take it back: the system resets a connection with bytes that nobody read.
        let deadline = Instant::now() + GOODBYE_TIME;
        let reader = locked(&self.reader).take();
        while reader.as_ref().is_some_and(|reader| !reader.is_finished())
            && Instant::now() < deadline
        {
            thread::sleep(Duration::from_millis(2));
        }
        self.shut();
        if let Some(coordinator) = locked(&self.coordinator).take() {
            coordinator.finish(wait);
        }
    }

    fn send(&self, message: &FromRank) {
        // If this fails the coordinator is gone, and the reader reports the loss.
        drop(send(&self.stream, &self.writing, message));
    }

    fn shut(&self) {
        // It fails where the other end was faster.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.shut();
            if let Some(coordinator) = locked(&self.coordinator).take() {
                coordinator.finish(FAIL_TIME);
            }
        }
    }
}

/// Hears the coordinator until one of them ends.
fn read_all(stream: &TcpStream, gone: LostRank, has_left: &AtomicBool, notices: &Sender<Notice>) {
    let mut reader = Beats { stream, most: QUIET_BEATS };
    let lost = loop {
        match message::read(&mut reader, "the coordinator") {
            Ok(FromCoordinator::Stop) => drop(notices.send(Notice::Stop)),
            Ok(FromCoordinator::Lost(lost)) => break lost,
            Ok(FromCoordinator::Farewell) => return,
            Ok(_) => {}
            Err(MessageError::Failed { source, .. })
                if source.kind() == io::ErrorKind::TimedOut =>
            {
                let seconds = (BEAT * QUIET_BEATS).as_secs();
                break LostRank { cause: Cause::Silent { seconds }, ..gone };
            }
            Err(_) => break gone,
        }
    };
    // Nobody listens where this rank never watched.
    drop(notices.send(Notice::End(lost)));
    // What comes behind is of no interest, but read: else the system would reset the connection,
    // and a goodbye on its way with it.
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

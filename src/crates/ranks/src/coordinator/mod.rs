//! Knows who is alive: each rank has a connection to it.
//!
//! Lives in the supervisor, or, under other launchers, in a thread of rank 0. It brings the ranks
//! together, tells all when one is gone, and all when one is asked to stop. A rank is gone when its
//! connection ends without a goodbye, when nothing is heard of it, or when the supervisor saw its
//! process end. The first death is the one that is told.

mod core;
mod door;
mod event;
mod seats;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use event::{CoordinatorOptions, SILENCE, Status};

use crate::departure::Cause;

use self::core::Core;
use door::Door;
use event::Event;

/// Far more than it takes to decide.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// A coordinator at work. Dropped, it ends its connections.
#[derive(Debug)]
pub struct Coordinator {
    events: Sender<Event>,
    status: Arc<Mutex<Status>>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Starts to wait for the ranks at this listener; the error is the system's.
    ///
    /// The listener ends when all have joined.
    pub fn start(listener: TcpListener, options: CoordinatorOptions) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let door = Arc::new(Door {
            run: options.run.clone(),
            world: options.world,
            token: options.token.clone(),
            is_open: AtomicBool::new(true),
            strangers: AtomicU64::new(0),
        });
        door::open(listener, door.clone(), sender.clone())?;
        let status = Arc::new(Mutex::new(Status::default()));
        let core = Core::new(options, door, status.clone());
        let thread = thread::Builder::new()
            .name("splat-ranks-core".to_owned())
            .spawn(move || core.run(&receiver))?;
        Ok(Self { events: sender, status, thread: Some(thread) })
    }

    /// What it knows now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks all ranks to stop, as soon as all have joined.
    pub fn stop(&self) {
        self.send(Event::Stop);
    }

    /// Tells how a rank's process ended, as its parent saw it.
    pub fn reaped(&self, rank: u32, pid: u32, cause: Cause) {
        self.send(Event::Reaped { rank, pid, cause });
    }

    /// The status after all events received so far are handled. To decide whether a process or a connection
    /// that ended is a death takes up to 200 ms.
    #[must_use]
    pub fn settled(&self) -> Status {
        let (sender, answer) = channel();
        self.send(Event::Settle(sender));
        // Without an answer it has ended, and knows nothing more.
        let _ = answer.recv_timeout(SETTLE_TIME);
        self.status()
    }

    /// Waits until the ranks have left, but no longer than this; then ends.
    ///
    /// Only one that a rank holds sees by itself that all have left.
    pub fn finish(mut self, wait: Duration) {
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

//! Processes that work on one model together.
//!
//! Knows nothing of Gaussians, scenes or devices. A process of the group is a *rank*; the group's size is its
//! *world*. In the order of use:
//!
//! | part | what it does |
//! |---|---|
//! | [`launch`] | finds which rank this process is, by its launcher's environment |
//! | [`supervise`](mod@supervise) | starts the ranks of one host, and ends them together |
//! | [`join`](mod@join) | brings ranks together: the handshake, and facts that must be equal on all of them |
//! | [`link`] | connects each rank with the coordinator: signs of life, losses, requests to stop |
//! | [`exchange`] | carries bytes between ranks |

mod coordinator;
pub mod exchange;
mod handshake;
pub mod join;
pub mod launch;
pub mod link;
pub mod message;
pub mod supervise;
mod token;

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().name(name.to_owned()).spawn(run)
}

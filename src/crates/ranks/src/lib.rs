//! Processes that work on one model together.
//!
//! The crate is independent of Gaussians, scenes and devices. A process of the group is a *rank*; the size of the group
//! is its *world*. Modules in the order of use:
//!
//! | module | purpose |
//! |---|---|
//! | [`launch`] | reads the rank of this process from the environment of its launcher |
//! | [`supervise`](mod@supervise) | starts the ranks of one host, and ends them together |
//! | [`join`](mod@join) | registers the ranks: the handshake, and facts that must be equal on all ranks |
//! | [`link`] | connects each rank with the coordinator: heartbeats, lost ranks, requests to stop |
//! | [`exchange`] | exchanges bytes between ranks |

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

//! Bytes between ranks.
//!
//! All ranks call the same methods of [`Exchange`] in the same order, as if each call were one step of all
//! of them. Every message names the call that it belongs to, so that ranks which drift apart are told
//! instead of reading one call's bytes as those of another.
//!
//! | implementation | ranks are | lines between them |
//! |---|---|---|
//! | [`Threads`] | threads of one process | queues in memory |
//! | [`Sockets`] | processes | a TCP connection for each pair |
//!
//! Both put what arrives into an inbox with a place for each sender, and both let a sender run ahead of its
//! receiver by a few messages only: a rank that broadcasts faster than the others read waits for them.
//! [`Board`] has small calls of any exchange go through memory that processes of one host share.
//! [`Watched`] ends the calls of any exchange that take too long.

mod board;
mod desk;
mod error;
mod frame;
mod inbox;
mod meeting;
mod proof;
mod shared;
mod sockets;
#[cfg(test)]
mod tests;
mod threads;
mod watched;

pub use board::Board;
pub use error::{Call, ExchangeError, Turn};
pub use meeting::Mesh;
pub use sockets::Sockets;
pub use threads::Threads;
pub use watched::Watched;

use std::fmt;
use std::sync::Arc;

/// Bytes between ranks. Every rank calls the same methods in the same order.
///
/// Calls block until this rank has what it is to get. After an error the exchange is of no more use: each
/// later call returns the same error. Errors that are found before anything is sent are the exception
/// ([`ExchangeError::WrongParts`], [`ExchangeError::NothingGiven`], [`ExchangeError::NotTheGiver`]).
pub trait Exchange: Send {
    /// This rank, from 0.
    fn rank(&self) -> u32;

    /// How many ranks there are.
    fn world(&self) -> u32;

    /// Sends `outgoing[q]` to rank q; returns what each rank sent to this one, by rank.
    ///
    /// `outgoing` has one entry for each rank, of any length, also 0. The own part comes back as it is.
    ///
    /// # Errors
    /// If the entries are not one for each rank, if a rank is lost or makes another call, or on an abort.
    fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// Every rank's bytes, by rank, this one's included.
    ///
    /// # Errors
    /// If a rank is lost or makes another call, or on an abort.
    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError>;

    /// What rank 0 gives, on every rank; the others give nothing. Rank 0 gets its bytes back, and does not
    /// wait until the others have theirs.
    ///
    /// # Errors
    /// If rank 0 gives nothing or another rank gives something, if a rank is lost or makes another call, or
    /// on an abort.
    fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError>;

    /// Whether calls that need this rank can still be made: for whoever waits for it another way.
    ///
    /// # Errors
    /// If it is lost, after an error of an earlier call, or on an abort.
    fn check(&self, with: u32) -> Result<(), ExchangeError>;

    /// What ends this rank's calls from any thread.
    fn aborter(&self) -> Aborter;
}

/// Ends the calls of one rank's exchange, from any thread.
#[derive(Clone)]
pub struct Aborter {
    abort: Arc<dyn Fn() + Send + Sync>,
}

impl Aborter {
    /// One that aborts by calling this. It may be called several times, and after the exchange is gone.
    pub fn new(abort: impl Fn() + Send + Sync + 'static) -> Self {
        Self { abort: Arc::new(abort) }
    }

    /// Lets what waits, and all that is called later, return [`ExchangeError::Aborted`]. To the other ranks
    /// this rank is lost.
    pub fn abort(&self) {
        (self.abort)();
    }
}

impl fmt::Debug for Aborter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Aborter").finish_non_exhaustive()
    }
}

//! What the coordinator hears, and what it knows.

use std::net::TcpStream;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::departure::{Cause, Departure};
use crate::token::Token;
use crate::wire::{Introduction, Said};

/// Something that happened. Connections have numbers, for a rank has none until it is let in.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody who knows the secret introduces himself.
    Hello { connection: u64, stream: TcpStream, introduction: Introduction },
    /// A rank of a program with another protocol.
    Foreign { stream: TcpStream, rank: u32, protocol: u64 },
    /// A connection says something.
    Said { connection: u64, said: Said },
    /// A connection ended.
    Closed { connection: u64 },
    /// The supervisor saw a rank's process end.
    Reaped { rank: u32, pid: u32, cause: Cause },
    /// All are to stop.
    Stop,
    /// Answer when no death is in doubt any more.
    Settle(Sender<()>),
    /// End now.
    Quit,
}

/// How a coordinator does its work.
#[derive(Clone, Debug)]
pub struct CoordinatorOptions {
    /// Number of ranks.
    pub world: u32,
    /// Name of the run, by which ranks know the right coordinator.
    pub run: String,
    /// The secret that ranks must prove to know.
    pub token: Token,
    /// The rank that holds it; none for a supervisor, who tells how processes ended.
    pub holder: Option<u32>,
    /// Time for all ranks to join.
    pub patience: Duration,
    /// A rank of which nothing was heard for so long is dead.
    pub silence: Duration,
}

/// Silence after which a rank is dead unless told otherwise: six beats.
pub const SILENCE: Duration = Duration::from_secs(3);

/// What a coordinator knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// All ranks have joined.
    pub has_met: bool,
    /// The ranks that came, by rank.
    pub has_joined: Vec<bool>,
    /// The first rank that was gone before its work was done.
    pub departure: Option<Departure>,
    /// Rank 0 has received the handshake error of another rank: its own exit follows from that error.
    pub lead_was_told: bool,
}

//! Which rank a process is, and where the ranks meet.

use std::net::SocketAddr;

use crate::token::Token;

/// One process of several that work together, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its number, below `world`. Rank 0 leads.
    pub rank: u32,
    /// Number of ranks, at least 2.
    pub world: u32,
    /// Number of ranks on its host, this one among them, where the launcher says so. They share the
    /// host's processor.
    pub local_world: Option<u32>,
    /// Its number among those, where the launcher says so.
    pub local_rank: Option<u32>,
    /// Where the ranks meet.
    pub meeting: Meeting,
    /// The secret of the run, if the environment has one. Otherwise [`join`](crate::join::join) takes one that
    /// follows from the user and the run.
    pub token: Option<Token>,
}

/// Where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// The supervisor that started them holds the coordinator.
    Supervisor {
        /// Where it listens.
        address: SocketAddr,
    },
    /// Rank 0 holds the coordinator, at the first port that it can have; the others try all of
    /// them.
    Hosts {
        /// Name or address of rank 0's host.
        host: String,
        /// The ports in the order of trial.
        ports: Vec<u16>,
        /// Name of the run, by which its ranks know the right coordinator.
        run: String,
    },
}

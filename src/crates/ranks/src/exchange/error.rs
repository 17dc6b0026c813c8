//! Why ranks do not exchange bytes.

use std::fmt;

/// What a rank calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Each rank sends its own bytes to each.
    AllToAll,
    /// Each rank sends the same bytes to all.
    AllGather,
    /// Rank 0 sends the same bytes to all.
    Broadcast,
}

/// One call of an exchange: the ranks' turns must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// How many calls were made before it.
    pub number: u64,
    /// What is called.
    pub call: Call,
}

impl fmt::Display for Call {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::AllToAll => "all_to_all",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast",
        })
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "call {} ({})", self.number, self.call)
    }
}

/// Why ranks do not exchange bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeError {
    /// A rank has ended, or its connection has.
    #[error("rank {rank} is lost: {why}; look for its own message, then start all ranks again")]
    Lost {
        /// The rank that is gone.
        rank: u32,
        /// How that was seen.
        why: String,
    },
    /// A rank makes another call than this one.
    #[error(
        "rank {rank} makes {found} where this rank makes {expected}: all ranks need the same program \
         and the same options"
    )]
    Diverged {
        /// The other rank.
        rank: u32,
        /// This rank's call.
        expected: Turn,
        /// The other rank's call.
        found: Turn,
    },
    /// A rank sends what is no message of an exchange.
    #[error(
        "rank {rank} sends {found}, which is no message of an exchange: all ranks need the same version \
         of the program"
    )]
    Garbled {
        /// The sender.
        rank: u32,
        /// What was read.
        found: String,
    },
    /// `all_to_all` was given too few or too many parts. Nothing was sent.
    #[error("all_to_all was given {found} parts for {world} ranks: it takes one for each rank")]
    WrongParts {
        /// Parts that were given.
        found: usize,
        /// Ranks that there are.
        world: u32,
    },
    /// Rank 0 gave nothing to `broadcast`. Nothing was sent.
    #[error("rank 0 gave nothing to broadcast: it has to give the bytes that all ranks get")]
    NothingGiven,
    /// Another rank than 0 gave bytes to `broadcast`. Nothing was sent.
    #[error("rank {rank} gave bytes to broadcast: only rank 0 gives, the others pass nothing")]
    NotTheGiver {
        /// The rank that gave them.
        rank: u32,
    },
    /// This rank's exchange was aborted.
    #[error("the exchange was aborted on this rank: see the message that came before")]
    Aborted,
    /// A call took too long, though every rank lives: see [`Watched`](super::Watched).
    #[error(
        "no rank has gone, but this rank has waited for {seconds} s for the others: one of them is \
         stuck or slower than that; see what each rank and its host do"
    )]
    Stuck {
        /// The time that a call may take, in whole seconds, rounded up.
        seconds: u64,
    },
    /// The description of the mesh contradicts itself.
    #[error("rank {rank} cannot be one of {world} ranks: give one address for each rank, by rank")]
    NoSuchRank {
        /// The rank that this process is to be.
        rank: u32,
        /// Addresses that were given.
        world: usize,
    },
    /// Ranks did not join in time.
    #[error(
        "{} did not join within {seconds} s (last trouble: {trouble}): see whether all ranks run, \
         reach one another and have the same key",
        listed(ranks)
    )]
    Missing {
        /// Those that are missing.
        ranks: Vec<u32>,
        /// How long they were waited for, in whole seconds.
        seconds: u64,
        /// What failed last, or `none`.
        trouble: String,
    },
    /// What listens at a rank's address does not know the key.
    #[error(
        "what listens at {address} for rank {rank} does not know this rank's key: give all ranks the \
         same key"
    )]
    Unproven {
        /// The rank that was looked for.
        rank: u32,
        /// Its address.
        address: std::net::SocketAddr,
    },
    /// The system refuses what the exchange needs.
    #[error("cannot {doing}: {why}; end other programs or raise the limits of this one")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The system's answer.
        why: String,
    },
}

/// `rank 1` or `ranks 1, 3`.
fn listed(ranks: &[u32]) -> String {
    let numbers: Vec<_> = ranks.iter().map(u32::to_string).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", numbers.join(", "))
}

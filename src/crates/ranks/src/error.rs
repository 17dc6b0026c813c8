//! Errors of ranks that join.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::message::{LostRank, MessageError, Refusal};

/// An error of a rank that joins.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The ranks do not fit together.
    #[error("the ranks do not fit together: {0}")]
    Refused(Refusal),
    /// A rank was gone before all had joined.
    #[error("before all ranks had joined, {0}")]
    Gone(LostRank),
    /// Ranks did not come in time.
    #[error(
        "{} of {world} did not join within {seconds} s: see why on their hosts, and that they \
         reach rank 0",
        ranks_in_words(ranks)
    )]
    Missing {
        /// The missing ranks, in ascending order.
        ranks: Vec<u32>,
        /// Number of ranks.
        world: u32,
        /// Time limit.
        seconds: u64,
    },
    /// The coordinator did not let this rank in.
    #[error("rank {rank} was rejected: {why}")]
    Rejected {
        /// This rank.
        rank: u32,
        /// The coordinator's reason, with the remedy.
        why: String,
    },
    /// The listener at the coordinator's address does not know the secret.
    #[error(
        "rank {rank}: the coordinator at {address} does not know the secret of this run. Give all ranks the same \
         SPLAT_TOKEN, and check which program listens there"
    )]
    Unproven {
        /// This rank.
        rank: u32,
        /// Address of the listener.
        address: SocketAddr,
    },
    /// No coordinator was found.
    #[error(
        "rank {rank} found no coordinator of its run at {place} within {seconds} s ({last}): \
         start rank 0 there, and let its port through the firewall"
    )]
    NoCoordinator {
        /// This rank.
        rank: u32,
        /// Place of the search.
        place: String,
        /// Length of the search.
        seconds: u64,
        /// The error of the last attempt.
        last: String,
    },
    /// Rank 0 could not listen.
    #[error(
        "rank 0 cannot listen at {place}: {source}; name a free port of its host by \
         SPLAT_RENDEZVOUS=HOST:PORT"
    )]
    NoPort {
        /// The place.
        place: String,
        /// The system's error for the last port.
        source: io::Error,
    },
    /// The name of rank 0's host is an address that other hosts cannot reach.
    #[error(
        "{host}: stands for {ip} on rank 0's host, which other hosts cannot reach. Set \
         SPLAT_RENDEZVOUS=ADDRESS:PORT to an address of rank 0's host, on all hosts"
    )]
    OnlyLocal {
        /// The name.
        host: String,
        /// Its address.
        ip: IpAddr,
    },
    /// There is neither a token nor a place for one.
    #[error(
        "rank {rank} has no secret, and HOME is not set. Set SPLAT_TOKEN to the same 32 hexadecimal digits on \
         all ranks (openssl rand -hex 16)"
    )]
    NoHome {
        /// This rank.
        rank: u32,
    },
    /// The user's secret cannot be read or made.
    #[error(
        "{}: rank {rank} cannot keep a secret there: {source}. Set SPLAT_TOKEN to the same 32 hexadecimal digits \
         on all ranks", folder.display()
    )]
    NoSecret {
        /// This rank.
        rank: u32,
        /// Folder of the secret.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The conversation with the coordinator failed.
    #[error(
        "rank {rank} cannot join: {source}. Read the messages of rank 0, then start all ranks again"
    )]
    Conversation {
        /// This rank.
        rank: u32,
        /// The error.
        source: MessageError,
    },
    /// The system refused something else.
    #[error(
        "rank {rank} cannot join, since {what} failed: {source}. End other programs, or raise the limits (ulimit -a)"
    )]
    System {
        /// This rank.
        rank: u32,
        /// The action that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

fn ranks_in_words(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut words: Vec<_> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    if ranks.len() > SHOWN {
        words.push(format!("{} more", ranks.len() - SHOWN));
    }
    let name = if ranks.len() == 1 { "rank" } else { "ranks" };
    match words.split_last() {
        Some((last, [])) => format!("{name} {last}"),
        Some((last, first)) => format!("{name} {} and {last}", first.join(", ")),
        None => "no rank".to_owned(),
    }
}

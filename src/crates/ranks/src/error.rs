//! Errors of ranks that join.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::message::{LostRank, MessageError, Refusal};

/// An error of a rank that joins.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum JoinError {
    #[error("the ranks do not fit together: {0}")]
    Refused(Refusal),
    /// A rank was gone before all had joined.
    #[error("before all ranks had joined, {0}")]
    Gone(LostRank),
    #[error(
        "{} of {world} did not join within {seconds} s: see why on their hosts, and that they \
         reach rank 0",
        ranks_in_words(ranks)
    )]
    Missing {
        /// The missing ranks, in ascending order.
        ranks: Vec<u32>,
        world: u32,
        seconds: u64,
    },
    /// The coordinator did not let this rank in.
    #[error("rank {rank} was rejected: {why}")]
    Rejected {
        rank: u32,
        /// The coordinator's reason, with the remedy.
        why: String,
    },
    #[error(
        "rank {rank}: the coordinator at {address} does not know the secret of this run. Give all ranks the same \
         SPLAT_TOKEN, and check which program listens there"
    )]
    Unproven { rank: u32, address: SocketAddr },
    #[error(
        "rank {rank} found no coordinator of its run at {place} within {seconds} s ({last}): \
         start rank 0 there, and let its port through the firewall"
    )]
    NoCoordinator {
        rank: u32,
        place: String,
        seconds: u64,
        /// The error of the last attempt.
        last: String,
    },
    #[error(
        "rank 0 cannot listen at {place}: {source}; name a free port of its host by \
         SPLAT_RENDEZVOUS=HOST:PORT"
    )]
    NoPort {
        place: String,
        /// The system's error for the last port.
        source: io::Error,
    },
    #[error(
        "{host}: stands for {ip} on rank 0's host, which other hosts cannot reach. Set \
         SPLAT_RENDEZVOUS=ADDRESS:PORT to an address of rank 0's host, on all hosts"
    )]
    OnlyLocal { host: String, ip: IpAddr },
    #[error(
        "rank {rank} has no secret, and HOME is not set. Set SPLAT_TOKEN to the same 32 hexadecimal digits on \
         all ranks (openssl rand -hex 16)"
    )]
    NoHome { rank: u32 },
    #[error(
        "{}: rank {rank} cannot keep a secret there: {source}. Set SPLAT_TOKEN to the same 32 hexadecimal digits \
         on all ranks", folder.display()
    )]
    NoSecret { rank: u32, folder: PathBuf, source: io::Error },
    /// The conversation with the coordinator failed.
    #[error(
        "rank {rank} cannot join: {source}. Read the messages of rank 0, then start all ranks again"
    )]
    Conversation { rank: u32, source: MessageError },
    /// The system refused something else.
    #[error(
        "rank {rank} cannot join, since {what} failed: {source}. End other programs, or raise the limits (ulimit -a)"
    )]
    System { rank: u32, what: &'static str, source: io::Error },
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

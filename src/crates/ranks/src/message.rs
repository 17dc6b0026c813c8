//! Messages between a rank and the coordinator.
//!
//! A message is the length of its text in bytes (`u32`, little-endian, at most [`MOST_BYTES`]), then the text in JSON.
//!
//! The coordinator sends `Challenge`, by which a rank recognises its run. The rank answers with `Hello`. Both prove
//! that they know the token of the run: the rank in `Hello`, the coordinator in `Proven`. When all ranks have joined,
//! each receives `Accepted`, or all receive `Refused`, `Missing` or `Lost`. From then on the connection is the rank's
//! link.
//!
//! Messages after the proofs are neither encrypted nor signed, so an attacker who can change packets is not stopped.
//! The token of the data connections is never sent.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Length of the longest message, in bytes.
pub const MOST_BYTES: u32 = 64 << 10;

/// First value of the coordinator's first message.
pub(crate) const MAGIC: &str = "splat-ranks";

/// Version of the messages. Raise it with each change.
pub(crate) const PROTOCOL: u32 = 4;

/// Introduction of a rank. The fields up to `world` are equal in all versions, to recognise other versions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Introduction {
    /// [`PROTOCOL`] of the rank.
    pub(crate) protocol: u32,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// Address of rank 0's data listener. An unspecified address means the host of the coordinator.
    pub(crate) data: Option<SocketAddr>,
    pub(crate) claims: Vec<Claim>,
    /// Nonce of the rank (32 hexadecimal digits) for the coordinator's proof.
    pub(crate) nonce: String,
}

impl Introduction {
    /// Returns the introduction of a rank without claims and data listener. The handshake sets the nonce.
    pub(crate) fn of(rank: u32, world: u32) -> Self {
        Self {
            protocol: PROTOCOL,
            rank,
            world,
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            pid: std::process::id(),
            data: None,
            claims: Vec::new(),
            nonce: String::new(),
        }
    }
}

/// Message of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromRank {
    /// An [`Introduction`] as text, and the proof over the challenge's nonce and this text.
    Hello { introduction: String, proof: String },
    /// Heartbeat with the current image.
    #[serde(rename = "Beat")]
    Heartbeat { progress: u64 },
    /// Request to stop all ranks.
    Stop,
    /// Orderly end of the rank.
    Leave,
    /// End of the rank with an error.
    Failed { code: u8, message: String },
}

/// Message of the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum FromCoordinator {
    /// Name of the run, and a nonce (32 hexadecimal digits).
    Challenge { magic: String, protocol: u32, run: String, nonce: String },
    /// Proof of the coordinator over the introduction's nonce and text.
    Proven { proof: String },
    /// All ranks have joined.
    #[serde(rename = "Welcome")]
    Accepted(Accepted),
    /// This rank is rejected. The others continue to wait.
    Rejected { why: String },
    /// A claim differs between ranks.
    Refused(Refusal),
    /// Ranks that did not join in time.
    Missing { ranks: Vec<u32>, world: u32, seconds: u64 },
    /// Loss of a rank.
    Lost(LostRank),
    /// Request to stop in order.
    Stop,
    /// Heartbeat of the coordinator.
    #[serde(rename = "Beat")]
    Heartbeat,
    /// Orderly end of the coordinator. The ranks may continue.
    #[serde(rename = "Farewell")]
    Closing,
}

/// Answer to a registered rank, with which it can reach rank 0.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Accepted {
    /// Address of rank 0's data listener.
    pub(crate) data: SocketAddr,
    /// 32 hexadecimal digits, new for every run. The token of the data connections is derived from this salt and the
    /// token of the run.
    pub(crate) salt: String,
    /// Description of the coordinator in case it is lost.
    pub(crate) coordinator: LostRank,
}

// Claims.

/// Kind of a claim. The program maps it to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimKind {
    /// The program or a library.
    Version,
    /// The user's options.
    Options,
    /// The scene's files.
    Scene,
}

/// A fact that must be equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Name in words, such as `number of photographs`.
    pub what: String,
    /// Value on this rank, compared as text.
    pub value: String,
    /// Kind of the claim.
    pub kind: ClaimKind,
}

/// Claim that differs between two ranks. Displays as a sentence with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the claim that differs.
    pub what: String,
    /// Rank that differs.
    pub rank: u32,
    /// Value on the rank that differs.
    pub value: String,
    /// Rank that it differs from.
    pub from_rank: u32,
    /// Value on the rank that it differs from.
    pub from_value: String,
    /// Kind of the claim.
    pub kind: ClaimKind,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = match self.kind {
            ClaimKind::Version => "start the same program with the same libraries on all hosts",
            ClaimKind::Options => "start all ranks with the same options",
            ClaimKind::Scene => "give all ranks the same files",
        };
        let Self { what, rank, value, from_rank, from_value, .. } = self;
        write!(f, "{what}: {value} on rank {rank}, but {from_value} on rank {from_rank}; {remedy}")
    }
}

/// Returns the first claim of rank 0 that another rank does not share, or else the first that rank 0 lacks. `claims`:
/// claims by rank.
pub(crate) fn first_difference(claims: &[&[Claim]]) -> Option<Refusal> {
    let (of_0, others) = claims.split_first()?;
    let value_in = |claims: &[Claim], what: &str| {
        claims.iter().find(|c| c.what == what).map(|c| c.value.clone())
    };
    let shared =
        of_0.iter().flat_map(|claim| (1..).zip(others).map(move |(rank, _)| (rank, claim)));
    let of_others = (1..).zip(others).flat_map(|(rank, of)| of.iter().map(move |c| (rank, c)));
    shared.chain(of_others).find_map(|(rank, claim)| {
        let own = value_in(claims[rank as usize], &claim.what);
        let from = value_in(of_0, &claim.what);
        let shown = |value: Option<String>| value.unwrap_or_else(|| "nothing".to_owned());
        (own != from).then(|| Refusal {
            what: claim.what.clone(),
            rank,
            value: shown(own),
            from_rank: 0,
            from_value: shown(from),
            kind: claim.kind,
        })
    })
}

// Lost ranks.

/// Cause of a loss.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A signal ended its process.
    Killed {
        /// Number of the signal.
        signal: i32,
    },
    /// The process ended with an exit code.
    Exited {
        /// Exit code.
        code: i32,
    },
    /// The connection ended without a last message.
    Closed,
    /// The rank sent no heartbeats.
    Silent {
        /// Length of the silence.
        seconds: u64,
    },
    /// The rank ended with an error.
    Failed {
        /// Exit code.
        code: u8,
        /// Text of the error.
        message: String,
    },
}

/// A lost rank or coordinator.
///
/// Displays as a clause: `rank 2 (pid 4711) was killed by signal 9 at image 12340`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRank {
    /// Number of the rank; none for the supervisor.
    pub rank: Option<u32>,
    /// Host, if the ranks are on several.
    pub host: Option<String>,
    /// Process number.
    pub pid: u32,
    /// Cause of the loss.
    pub cause: Cause,
    /// Last reported image, if any.
    pub progress: Option<u64>,
}

impl fmt::Display for LostRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "rank {rank}")?,
            None => f.write_str("the supervisor")?,
        }
        match &self.host {
            Some(host) => write!(f, " (host {host}, pid {}) ", self.pid)?,
            None => write!(f, " (pid {}) ", self.pid)?,
        }
        match &self.cause {
            Cause::Killed { signal } => write!(f, "was killed by signal {signal}")?,
            Cause::Exited { code } => write!(f, "ended with code {code}")?,
            Cause::Closed => f.write_str("closed its connection without a goodbye")?,
            Cause::Silent { seconds } => write!(f, "was silent for {seconds} s")?,
            Cause::Failed { code, .. } => write!(f, "failed with code {code}")?,
        }
        match self.progress {
            Some(0) => f.write_str(" before its first image")?,
            Some(image) => write!(f, " at image {image}")?,
            None => {}
        }
        match &self.cause {
            Cause::Failed { message, .. } if !message.is_empty() => write!(f, ": {message}"),
            _ => Ok(()),
        }
    }
}

// Messages as bytes.

/// Error of a message. `peer`: name of the other end.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum MessageError {
    #[error("{peer} closed the connection")]
    Ended { peer: String },
    #[error("{peer} closed the connection within a message")]
    Cut { peer: String },
    #[error(
        "a message of {bytes} bytes from or to {peer}: {MOST_BYTES} is the most, so it may be no \
         rank of this program"
    )]
    TooLong { peer: String, bytes: u64 },
    #[error("{peer} sent something that is no message of this program: {source}")]
    Garbage { peer: String, source: serde_json::Error },
    #[error("the connection to {peer} failed: {source}")]
    Failed { peer: String, source: io::Error },
}

/// Reads one message. `peer`: name of the other end for errors. Memory grows with the received bytes, not with the
/// length in the header.
pub(crate) fn read<T: DeserializeOwned>(
    from: &mut impl Read,
    peer: &str,
) -> Result<T, MessageError> {
    let peer = || peer.to_owned();
    let mut head = Vec::with_capacity(4);
    let mut text = Vec::new();
    let mut fill =
        |into: &mut Vec<u8>, bytes: u32| match from.by_ref().take(bytes.into()).read_to_end(into) {
            Ok(_) if into.len() as u64 == u64::from(bytes) => Ok(()),
            Ok(0) if bytes == 4 => Err(MessageError::Ended { peer: peer() }),
            Ok(_) => Err(MessageError::Cut { peer: peer() }),
            Err(source) => Err(MessageError::Failed { peer: peer(), source }),
        };
    fill(&mut head, 4)?;
    let bytes = head.iter().rev().fold(0, |bytes, byte| bytes << 8 | u32::from(*byte));
    if bytes > MOST_BYTES {
        return Err(MessageError::TooLong { peer: peer(), bytes: bytes.into() });
    }
    fill(&mut text, bytes)?;
    serde_json::from_slice(&text).map_err(|source| MessageError::Garbage { peer: peer(), source })
}

/// Writes one message in one piece. `peer`: name of the other end for errors.
pub(crate) fn write(
    to: &mut impl Write,
    message: &impl Serialize,
    peer: &str,
) -> Result<(), MessageError> {
    let peer = || peer.to_owned();
    let text = serde_json::to_vec(message)
        .map_err(|source| MessageError::Garbage { peer: peer(), source })?;
    let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if bytes > MOST_BYTES {
        return Err(MessageError::TooLong { peer: peer(), bytes: text.len() as u64 });
    }
    let whole = [&bytes.to_le_bytes(), text.as_slice()].concat();
    to.write_all(&whole).map_err(|source| MessageError::Failed { peer: peer(), source })
}

// Timeouts of connections.

/// Interval of heartbeats on a link, in both directions.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);

/// Reader that fails with `TimedOut` after the deadline.
pub(crate) struct DeadlineReader<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) deadline: Instant,
}

impl Read for DeadlineReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_read_timeout(Some(left))?;
            match self.stream.read(into) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
    }
}

/// Reader that fails with `TimedOut` after a number of heartbeats without bytes. Heartbeats are counted instead of
/// seconds, so that a stop of this process counts as one.
pub(crate) struct HeartbeatReader<'a> {
    pub(crate) stream: &'a TcpStream,
    pub(crate) most: u32,
}

impl Read for HeartbeatReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(HEARTBEAT))?;
        for _ in 0..self.most {
            match self.stream.read(into) {
                Err(error) if is_timeout(&error) => {}
                other => return other,
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }
}

/// True for either error that systems return after a timeout.
pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reader of one byte per call.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            into[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    fn read_words(mut bytes: &[u8]) -> Result<Vec<String>, MessageError> {
        read(&mut bytes, "rank 7")
    }

    #[test]
    fn messages_are_read_as_they_were_written() {
        let (first, second) = (vec!["a".to_owned(), "bé".to_owned()], Vec::<String>::new());
        let mut bytes = Vec::new();
        write(&mut bytes, &first, "x").unwrap();
        write(&mut bytes, &second, "x").unwrap();
        assert_eq!(bytes[..4], [11, 0, 0, 0]);
        let mut slow = Slow(&bytes);
        assert_eq!(read::<Vec<String>>(&mut slow, "x").unwrap(), first);
        assert_eq!(read::<Vec<String>>(&mut slow, "x").unwrap(), second);
        assert!(matches!(read::<Vec<String>>(&mut slow, "x"), Err(MessageError::Ended { .. })));
    }

    #[test]
    fn broken_messages_name_the_peer() {
        let of = |letters: usize| vec!["x".repeat(letters)];
        let mut bytes = Vec::new();
        let most = MOST_BYTES as usize - 4;
        write(&mut bytes, &of(most), "x").unwrap();
        assert_eq!(read_words(&bytes).unwrap(), of(most));
        let error = write(&mut io::sink(), &of(most + 1), "rank 7").unwrap_err();
        assert!(matches!(error, MessageError::TooLong { bytes: 65_537, .. }), "{error}");
        for (bytes, part) in [
            (&(MOST_BYTES + 1).to_le_bytes()[..], "65537 bytes"),
            (b"\xff\xff\xff\xff", "4294967295 bytes"),
            (b"GET ", "542393671 bytes"),
            (b"", "rank 7 closed the connection"),
            (b"\x02\x00", "within a message"),
            (b"\x05\x00\x00\x00[]", "within a message"),
            (b"\x02\x00\x00\x00{}", "no message"),
            (b"\x02\x00\x00\x00\xff\xfe", "no message"),
            (b"\x00\x00\x00\x00", "no message"),
        ] {
            let error = read_words(bytes).unwrap_err().to_string();
            assert!(error.contains("rank 7") && error.contains(part), "{bytes:?}: {error}");
        }
    }

    #[test]
    fn memory_grows_with_received_bytes() {
        // The length of the buffer is the memory that the reader holds.
        struct Meter(usize);
        impl Read for Meter {
            fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
                self.0 = self.0.max(into.len());
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let head = MOST_BYTES.to_le_bytes();
        let mut meter = head.chain(Meter(0));
        assert!(matches!(read::<u8>(&mut meter, "x"), Err(MessageError::Failed { .. })));
        assert!(meter.into_inner().1.0 < 4096);
    }

    #[test]
    fn a_lost_rank_displays_as_a_clause() {
        let of =
            |cause, progress| LostRank { rank: Some(2), host: None, pid: 4711, cause, progress };
        let failed = Cause::Failed { code: 4, message: "out of memory".to_owned() };
        for (lost, text) in [
            (
                of(Cause::Killed { signal: 9 }, Some(12_340)),
                "rank 2 (pid 4711) was killed by signal 9 at image 12340",
            ),
            (of(Cause::Exited { code: 7 }, None), "rank 2 (pid 4711) ended with code 7"),
            (
                of(Cause::Silent { seconds: 3 }, Some(0)),
                "rank 2 (pid 4711) was silent for 3 s before its first image",
            ),
            (of(failed, Some(5)), "rank 2 (pid 4711) failed with code 4 at image 5: out of memory"),
            (
                LostRank { rank: None, host: Some("a".to_owned()), ..of(Cause::Closed, None) },
                "the supervisor (host a, pid 4711) closed its connection without a goodbye",
            ),
        ] {
            assert_eq!(lost.to_string(), text);
        }
    }

    #[test]
    fn the_first_difference_has_both_values() {
        let claims = |values: &[(&str, &str)]| -> Vec<Claim> {
            let claim = |&(what, value): &(&str, &str)| Claim {
                what: what.to_owned(),
                value: value.to_owned(),
                kind: ClaimKind::Scene,
            };
            values.iter().map(claim).collect()
        };
        let first = claims(&[("a", "1"), ("b", "2")]);
        let turned = claims(&[("b", "2"), ("a", "1")]);
        assert_eq!(first_difference(&[&first, &turned, &first]), None);
        assert_eq!(first_difference(&[&first]), None);
        for (last, text) in [
            (
                &[("a", "1"), ("b", "3")][..],
                "b: 3 on rank 2, but 2 on rank 0; give all ranks the same files",
            ),
            (&[("a", "1")], "b: nothing on rank 2, but 2 on rank 0"),
            (&[("a", "1"), ("b", "2"), ("c", "4")], "c: 4 on rank 2, but nothing on rank 0"),
        ] {
            let found = first_difference(&[&first, &first, &claims(last)]).unwrap().to_string();
            assert!(found.starts_with(text), "{found}");
        }
    }
}

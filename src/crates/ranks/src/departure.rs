//! How a rank went.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a rank is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// A signal killed it.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// It ended by itself, without a word to the others.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// Its connection ended without a goodbye, and nobody could see why.
    Closed,
    /// Nothing was heard of it.
    Silent {
        /// For so many seconds.
        seconds: u64,
    },
    /// It ended with an error of its own.
    Failed {
        /// The exit code that it announced.
        code: u8,
        /// Its error.
        message: String,
    },
}

/// A rank, or the coordinator, that is gone before the work was done.
///
/// Printed it is a clause: `rank 2 (pid 4711) was killed by signal 9 at image 12340`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// Its number; none for a coordinator that is no rank, that is the supervisor.
    pub rank: Option<u32>,
    /// Its host, where the ranks are on several.
    pub host: Option<String>,
    /// Its process.
    pub pid: u32,
    /// Why it is gone.
    pub cause: Cause,
    /// The last image that it told of, where it told of any.
    pub progress: Option<u64>,
}

impl fmt::Display for Departure {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_departure_reads_as_a_clause() {
        let of =
            |cause, progress| Departure { rank: Some(2), host: None, pid: 4711, cause, progress };
        let failed = Cause::Failed { code: 4, message: "out of memory".to_owned() };
        for (departure, text) in [
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
                Departure { rank: None, host: Some("a".to_owned()), ..of(Cause::Closed, None) },
                "the supervisor (host a, pid 4711) closed its connection without a goodbye",
            ),
        ] {
            assert_eq!(departure.to_string(), text);
        }
    }
}

//! Messages between a rank and the coordinator: JSON behind its length.
//!
//! A message is the length of its text in bytes (`u32`, little-endian), then the text. It has at
//! most [`MOST_BYTES`].

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Length of the longest message, in bytes.
pub const MOST_BYTES: u32 = 64 << 10;

/// Why a message was not read or written. `peer` is who is at the other end.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The connection ended between two messages.
    #[error("{peer} closed the connection")]
    Ended {
        /// Who.
        peer: String,
    },
    /// The connection ended within a message.
    #[error("{peer} closed the connection within a message")]
    Cut {
        /// Who.
        peer: String,
    },
    /// The length is above [`MOST_BYTES`].
    #[error(
        "a message of {bytes} bytes from or to {peer}: {MOST_BYTES} is the most, so it may be no \
         rank of this program"
    )]
    TooLong {
        /// Who.
        peer: String,
        /// Length in bytes.
        bytes: u64,
    },
    /// The text is not what was expected.
    #[error("{peer} sent something that is no message of this program: {source}")]
    Garbage {
        /// Who.
        peer: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The connection failed, or nothing came in time.
    #[error("the connection to {peer} failed: {source}")]
    Failed {
        /// Who.
        peer: String,
        /// What the system says.
        source: io::Error,
    },
}

/// Reads one message; `peer` stands in errors.
///
/// Memory grows with what arrives, not with what the length promises.
pub fn read<T: DeserializeOwned>(from: &mut impl Read, peer: &str) -> Result<T, MessageError> {
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

/// Writes one message, in one piece; `peer` stands in errors.
pub fn write(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte a call.
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
    fn a_message_of_the_greatest_length_passes_and_no_longer_one() {
        let of = |letters: usize| vec!["x".repeat(letters)];
        let mut bytes = Vec::new();
        let most = MOST_BYTES as usize - 4;
        write(&mut bytes, &of(most), "x").unwrap();
        assert_eq!(read_words(&bytes).unwrap(), of(most));
        let error = write(&mut io::sink(), &of(most + 1), "rank 7").unwrap_err();
        assert!(matches!(error, MessageError::TooLong { bytes: 65_537, .. }), "{error}");
        for length in [MOST_BYTES + 1, u32::MAX, u32::from_le_bytes(*b"GET ")] {
            let error = read_words(&length.to_le_bytes()).unwrap_err();
            assert!(error.to_string().contains(&format!("{length} bytes")), "{error}");
            assert!(error.to_string().contains("rank 7"), "{error}");
        }
    }

    #[test]
    fn what_is_cut_or_garbage_names_the_peer() {
        for (bytes, part) in [
            (&b""[..], "rank 7 closed the connection"),
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
    fn memory_grows_with_what_arrives() {
        // The reader asks for room before each call: what it offers shows what it holds.
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
}

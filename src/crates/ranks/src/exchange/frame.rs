//! Letters as bytes of a stream.
//!
//! A head of [`HEAD_LEN`] bytes, little-endian: magic (4 bytes), kind of the call (4), number of the call
//! (8), length of what follows (8).

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::{Call, Turn};
use super::inbox::Letter;

/// Length of a head in bytes.
pub(super) const HEAD_LEN: usize = 24;

/// What a head begins with.
const MAGIC: [u8; 4] = *b"spx1";

/// Most bytes that a letter holds.
pub(super) const MOST_BYTES: u64 = 1 << 40;

/// Bytes that are written with the head, so that a small letter is one packet.
const WITH_HEAD: usize = 64 << 10;

/// Bytes written in one piece; and room that is made at least for those still to come.
const PIECE: usize = 1 << 20;

/// Why no letter was read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The stream ended or failed: how.
    Ended(String),
    /// The stream holds something else: what.
    Garbled(String),
}

/// The head of a letter.
pub(super) fn head(turn: Turn, bytes: u64) -> [u8; HEAD_LEN] {
    let kind: u32 = match turn.call {
        Call::AllToAll => 1,
        Call::AllGather => 2,
        Call::Broadcast => 3,
    };
    let mut head = [0; HEAD_LEN];
    head[..4].copy_from_slice(&MAGIC);
    head[4..8].copy_from_slice(&kind.to_le_bytes());
    head[8..16].copy_from_slice(&turn.number.to_le_bytes());
    head[16..].copy_from_slice(&bytes.to_le_bytes());
    head
}

/// The turn and the length that a head tells.
fn parse(head: &[u8; HEAD_LEN]) -> Result<(Turn, u64), Unread> {
    let garbled = || {
        let shown: Vec<_> = head.iter().map(|byte| format!("{byte:02x}")).collect();
        Unread::Garbled(format!("the bytes {}", shown.join(" ")))
    };
    let (magic, rest) = head.split_first_chunk().ok_or_else(garbled)?;
    let (kind, rest) = rest.split_first_chunk().ok_or_else(garbled)?;
    let (number, rest) = rest.split_first_chunk().ok_or_else(garbled)?;
    let (bytes, _) = rest.split_first_chunk().ok_or_else(garbled)?;
    let call = match u32::from_le_bytes(*kind) {
        1 => Call::AllToAll,
        2 => Call::AllGather,
        3 => Call::Broadcast,
        _ => return Err(garbled()),
    };
    if *magic != MAGIC {
        return Err(garbled());
    }
    let bytes = u64::from_le_bytes(*bytes);
    if bytes > MOST_BYTES {
        let found = format!("a length of {bytes} bytes ({MOST_BYTES} is the most)");
        return Err(Unread::Garbled(found));
    }
    Ok((Turn { number: u64::from_le_bytes(*number), call }, bytes))
}

/// Writes a letter and counts the bytes that the stream has taken. `frame` is scratch.
pub(super) fn write_letter(
    mut stream: impl Write,
    letter: &Letter,
    frame: &mut Vec<u8>,
    written: &AtomicU64,
) -> io::Result<()> {
    let (first, rest) = letter.bytes.split_at(letter.bytes.len().min(WITH_HEAD));
    frame.clear();
    frame.extend(head(letter.turn, letter.bytes.len() as u64));
    frame.extend(first);
    for piece in std::iter::once(frame.as_slice()).chain(rest.chunks(PIECE)) {
        stream.write_all(piece)?;
        written.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Reads the next letter.
///
/// A head alone costs no memory: room is made for as much as has arrived already.
pub(super) fn read_letter(mut stream: impl Read) -> Result<Letter, Unread> {
    let ended = |error: &io::Error| Unread::Ended(format!("its connection failed: {error}"));
    let mut head = Vec::with_capacity(HEAD_LEN);
    stream.by_ref().take(HEAD_LEN as u64).read_to_end(&mut head).map_err(|error| ended(&error))?;
    let Ok(head) = <&[u8; HEAD_LEN]>::try_from(head.as_slice()) else {
        let inside = if head.is_empty() { "" } else { " inside the head of a message" };
        return Err(Unread::Ended(format!("it closed its connection{inside}")));
    };
    let (turn, length) = parse(head)?;
    let mut bytes = Vec::new();
    loop {
        let left = length - bytes.len() as u64;
        if left == 0 {
            return Ok(Letter { turn, bytes: Arc::new(bytes) });
        }
        let step = left.min(bytes.len().max(PIECE) as u64);
        bytes.reserve_exact(usize::try_from(step).unwrap_or(usize::MAX));
        let found = stream.by_ref().take(step).read_to_end(&mut bytes);
        if (found.map_err(|error| ended(&error))? as u64) < step {
            let got = bytes.len();
            let why = format!("it closed its connection after {got} of {length} bytes of {turn}");
            return Err(Unread::Ended(why));
        }
    }
}

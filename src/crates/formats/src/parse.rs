//! Parsing of bytes and JSON.

use serde::de::DeserializeOwned;

use crate::error::FormatFault;

// Little-endian numbers in a byte slice.

/// Remaining bytes of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteCursor<'a> {
    rest: &'a [u8],
}

impl<'a> ByteCursor<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of remaining bytes.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes the next `count` bytes; errors name `what`.
    pub(crate) fn take(&mut self, what: &str, count: usize) -> Result<&'a [u8], FormatFault> {
        let Some((taken, rest)) = self.rest.split_at_checked(count) else {
            return Err(FormatFault::truncated(what, count as u64, self.rest.len() as u64));
        };
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], FormatFault> {
        let taken = self.take(what, N)?;
        taken.first_chunk().copied().ok_or_else(|| FormatFault::damaged("is truncated"))
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8, FormatFault> {
        Ok(u8::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32, FormatFault> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64, FormatFault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }
}

// JSON of untrusted files.

/// Largest JSON in bytes; most formats have a lower limit.
const MAX_JSON_BYTES: u64 = 64 << 20;

/// Largest nesting depth.
const MAX_DEPTH: usize = 64;

/// Parses JSON within the limits of length and depth.
pub(crate) fn parse_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, FormatFault> {
    if bytes.len() as u64 > MAX_JSON_BYTES {
        return Err(FormatFault::damaged(format!("its {what} is longer than 64 MiB")));
    }
    if depth(bytes) > MAX_DEPTH {
        return Err(FormatFault::damaged(format!("its {what} is nested deeper than {MAX_DEPTH}")));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        FormatFault::damaged(format!("its {what} is not what is expected: {error}"))
    })
}

/// Returns the largest nesting depth of brackets outside strings.
fn depth(bytes: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut is_escaped) = (0_usize, 0, false, false);
    for &byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_strings() {
        assert_eq!(depth(br#"{"a": [1, "]{[[\"[", {"b": []}]}"#), 4);
        let deep = "[".repeat(65) + &"]".repeat(65);
        let error = parse_json::<serde_json::Value>("meta.json", deep.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("deeper than 64"), "{error}");
        let error = parse_json::<[u8; 2]>("meta.json", b"[1, 2").unwrap_err().to_string();
        assert!(error.contains("meta.json") && error.contains("EOF"), "{error}");
    }
}

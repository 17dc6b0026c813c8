//! JSON of files that strangers wrote.

use serde::de::DeserializeOwned;

use crate::fault::FormatFault;

/// Longest JSON that is read at all; most formats allow less.
const MOST_JSON_BYTES: u64 = 64 << 20;

/// Deepest nesting that is read.
const MOST_DEPTH: usize = 64;

/// Parses what is neither too long nor too deep.
pub(crate) fn parse_json<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T, FormatFault> {
    if bytes.len() as u64 > MOST_JSON_BYTES {
        return Err(FormatFault::damaged(format!("its {what} is longer than 64 MiB")));
    }
    if depth(bytes) > MOST_DEPTH {
        return Err(FormatFault::damaged(format!("its {what} is nested deeper than {MOST_DEPTH}")));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        FormatFault::damaged(format!("its {what} is not what is expected: {error}"))
    })
}

/// The deepest nesting of brackets outside strings.
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

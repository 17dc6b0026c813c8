//! Errors in JSON that people edit.

use std::fmt;

/// Position and kind of an error in JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonFault {
    line: usize,
    column: usize,
    found: String,
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.found)
    }
}

impl std::error::Error for JsonFault {}

impl JsonFault {
    /// Creates the fault from the parser's error.
    pub fn new(text: &[u8], error: &serde_json::Error) -> Self {
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            let before = &text[..at];
            let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |it| it + 1);
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            let found = "a NUL byte, so the file is damaged".to_owned();
            return Self { line, column: at - start + 1, found };
        }
        let (line, column) = (error.line(), error.column());
        let found = if error.is_eof() {
            "the file ends too early".to_owned()
        } else if error.is_syntax() && has_comment(text, line, column) {
            "a comment, which JSON does not allow".to_owned()
        } else {
            let text = error.to_string();
            let place = format!(" at line {line} column {column}");
            match text.strip_suffix(&place).unwrap_or(&text) {
                "trailing comma" => "a comma before the closing bracket".to_owned(),
                other => other.to_owned(),
            }
        };
        Self { line, column, found }
    }
}

/// Returns true if a comment starts where the parser stopped, or one character beside.
fn has_comment(text: &[u8], line: usize, column: usize) -> bool {
    let line = text.split(|&byte| byte == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let rest = line.get(column.saturating_sub(2)..).unwrap_or_default();
    let first = rest.trim_ascii_start();
    [&b"//"[..], b"/*", b"#"]
        .iter()
        .any(|mark| first.starts_with(mark) || rest[1.min(rest.len())..].starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named_with_their_line() {
        let cases: [(&[u8], &str); 8] = [
            (b"{\n  \"a\": 1, // one\n  \"b\": 2\n}", "line 2, column 11: a comment"),
            (b"{\n  # first\n  \"a\": 1\n}", "line 2, column 3: a comment"),
            (b"{\"a\": /* one */ 1}", "line 1, column 7: a comment"),
            (b"{\n  \"a\": [1, 2,]\n}", "line 2, column 14: a comma before"),
            (b"{\n  \"a\": 1,\n}", "line 3, column 1: a comma before"),
            (b"{\n\"a\": \"b\0\"}", "line 2, column 8: a NUL byte"),
            (b"{\"a\": [1", "line 1, column 8: the file ends too early"),
            (b"{\"a\" 1}", "line 1, column 6: expected `:`"),
        ];
        for (text, expected) in cases {
            let error = serde_json::from_slice::<serde_json::Value>(text).unwrap_err();
            let found = JsonFault::new(text, &error).to_string();
            assert!(found.starts_with(expected), "{found} for {expected}");
        }
    }
}

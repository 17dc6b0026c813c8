//! Text of files and folders in messages: no name moves the cursor, ends a line or colours the terminal.

/// What becomes of newlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newlines {
    /// They stay: the message has several lines by itself.
    Kept,
    /// They are escaped as other control characters are: only names have them.
    Escaped,
}

/// The text with its control characters as Rust writes them in literals: `\u{1b}`, `\r`, `\n`.
pub fn escape_controls(text: &str, newlines: Newlines) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && (letter != '\n' || newlines == Newlines::Escaped) {
            escaped.extend(letter.escape_default());
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_control_characters_are_escaped() {
        let text = "käse \u{1b}[31m\r\n\u{9b}1m\t\"it's\" \\n";
        let kept = escape_controls(text, Newlines::Kept);
        assert_eq!(kept, "käse \\u{1b}[31m\\r\n\\u{9b}1m\\t\"it's\" \\n");
        let escaped = escape_controls(text, Newlines::Escaped);
        assert_eq!(escaped, kept.replace('\n', "\\n"));
    }
}

//! What goes to stdout, and how paths are written there.

use std::io::Write as _;
use std::path::Path;

/// Results on stdout, whether or not anybody still reads them.
pub(super) fn print(text: &str) {
    writeln!(std::io::stdout(), "{text}").ok();
}

/// A path as one writes it in a shell's command.
pub(super) fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

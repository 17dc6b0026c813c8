//! Lines of the log: text and format.

use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Format of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `warning: text`.
    Plain,
    /// `Plain` with a coloured level.
    Colored,
    /// `{"time":..,"event":"log","level":"warning","message":".."}`.
    Json,
}

impl Format {
    /// Formats a line without its newline.
    pub(super) fn line(self, level: Level, message: &str) -> String {
        let color = match level {
            Level::ERROR => "\x1b[1;31m",
            Level::WARN => "\x1b[1;33m",
            _ => "\x1b[2m",
        };
        let name = name_of(level);
        let shown = escape_controls(message, Newlines::Escaped);
        match self {
            // The JSON encoder escapes by itself.
            Self::Json => json_line(level, message).to_string(),
            // Info lines have no label.
            _ if level == Level::INFO => shown,
            Self::Plain => format!("{name}: {shown}"),
            Self::Colored => format!("{color}{name}:\x1b[0m {shown}"),
        }
    }
}

/// Formats a line of the log as JSON.
pub(super) fn json_line(level: Level, message: &str) -> serde_json::Value {
    serde_json::json!({
        "time": unix_seconds(), "event": "log", "level": name_of(level), "message": message,
    })
}

fn name_of(level: Level) -> &'static str {
    match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        Level::DEBUG => "debug",
        Level::TRACE => "trace",
    }
}

/// The message of an event, and its other fields as ` key=value`.
#[derive(Default)]
pub(super) struct Text {
    message: String,
    fields: String,
    /// True if the line is about the run itself and is never held back.
    pub(super) is_headline: bool,
    /// True if the line says that a part of the input is not used.
    pub(super) is_about_data: bool,
}

impl Text {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let mut text = Self::default();
        event.record(&mut text);
        text
    }

    pub(super) fn message(self) -> String {
        self.message + &self.fields
    }
}

impl Visit for Text {
    fn record_bool(&mut self, field: &Field, value: bool) {
        match field.name() {
            "is_headline" => self.is_headline = value,
            "is_about_data" => self.is_about_data = value,
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        match field.name() {
            "message" => write!(self.message, "{value:?}").ok(),
            name => write!(self.fields, " {name}={value:?}").ok(),
        };
    }
}

/// Returns the seconds since the Unix epoch; 0 if the clock is before it.
pub(super) fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

// Names of files and folders in messages must not move the cursor, end a line or colour the terminal.

/// Treatment of newlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newlines {
    /// Kept: the message has several lines.
    Kept,
    /// Escaped like other control characters, because only names contain them.
    Escaped,
}

/// Escapes control characters as in Rust literals: `\u{1b}`, `\r`, `\n`.
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

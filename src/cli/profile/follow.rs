//! The profile of a run that is still training, drawn again and again.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use super::source::read;
use super::text;
use crate::cli::output::{PrintError, print_to_reader};
use crate::files::is_locked;
use crate::telemetry::{Profile, is_plain_wanted};

/// Between two looks at the log.
const INTERVAL: Duration = Duration::from_secs(2);

/// What a terminal takes as: to the top, and nothing below.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows the profile until the run ends or nobody reads it any more.
pub(super) fn follow(model_path: &Path, top: usize) -> anyhow::Result<()> {
    let mut screen = Screen::of_stdout();
    loop {
        // Before the log is read: what is written last is then seen.
        let is_training = is_locked(model_path);
        match read(model_path) {
            // The run has not read its scene yet.
            Err(_) if is_training => {}
            Err(error) => return Err(error.into()),
            Ok(profile) => {
                let ends = profile.finished || !is_training;
                if !screen.show(&(text::of(&profile, top) + &end(&profile, is_training)))? || ends {
                    return Ok(());
                }
            }
        }
        sleep(INTERVAL);
    }
}

/// What to add where the run will get no further.
fn end(profile: &Profile, is_training: bool) -> String {
    if profile.finished || is_training {
        return String::new();
    }
    "\n\nNo program trains in this folder now: there is nothing to follow.".to_owned()
}

/// Where the profile is drawn.
struct Screen {
    /// The terminal is cleared before each drawing.
    is_terminal: bool,
    shown: String,
}

impl Screen {
    fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal() && !is_plain_wanted();
        Self { is_terminal, shown: String::new() }
    }

    /// Draws a text unless it is there already; whether somebody reads it.
    fn show(&mut self, text: &str) -> Result<bool, PrintError> {
        if text == self.shown {
            return Ok(true);
        }
        let drawn = match (self.is_terminal, self.shown.is_empty()) {
            (true, _) => format!("{CLEAR}{text}"),
            (false, true) => text.to_owned(),
            (false, false) => format!("\n{text}"),
        };
        self.shown = text.to_owned();
        print_to_reader(&drawn)
    }
}

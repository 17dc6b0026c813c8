//! Progress of work that is no training: a bar where stderr takes escape sequences, else a line every 5 seconds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::logging::{Console, ProgressStyle, escapes_wanted};
use super::status::clock;

/// Time between two lines without a bar.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Positions of a full bar.
const FULL: u64 = 1000;

/// Shows how far the stages of a work are, in the command's style, unless the log shows warnings alone.
pub struct WorkProgress {
    is_shown: bool,
    bar: Option<ProgressBar>,
    stage: Mutex<Stage>,
}

struct Stage {
    name: &'static str,
    /// Start of the stage, or of its last repetition.
    begun: Instant,
    /// Share that is done, 0 to 1.
    share: f64,
    /// Time of the last line.
    shown: Instant,
}

impl Stage {
    fn new(name: &'static str) -> Self {
        let now = Instant::now();
        Self { name, begun: now, share: 0.0, shown: now }
    }

    /// Takes the share that is done. A share that falls begins the stage again.
    fn advance(&mut self, share: f64) {
        if share < self.share {
            self.begun = Instant::now();
        }
        self.share = share;
    }

    /// `45 %, 0:01:10 left`.
    fn described(&self) -> String {
        let share = self.share;
        let percent = (100.0 * share).floor();
        if share <= 0.0 {
            return format!("{percent} %");
        }
        let left = self.begun.elapsed().as_secs_f64() * (1.0 - share) / share;
        format!("{percent} %, {} left", clock(left))
    }
}

impl WorkProgress {
    /// Shows progress on stderr, together with the log that `init_logging` set up.
    pub fn to_stderr() -> Self {
        let console = Console::current();
        let is_shown = console.style != ProgressStyle::None && console.shows_news(module_path!());
        let has_bar = is_shown && console.style == ProgressStyle::Bar && escapes_wanted();
        let bar = has_bar.then(|| console.add(bar()));
        Self { is_shown, bar, stage: Mutex::new(Stage::new("")) }
    }

    /// Takes the share of a stage that is done, 0 to 1.
    pub fn tell(&self, name: &'static str, share: f64) {
        let mut stage = self.stage.lock().unwrap_or_else(PoisonError::into_inner);
        if stage.name != name {
            *stage = Stage::new(name);
        }
        stage.advance(share);
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(name);
                bar.set_message(stage.described());
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "0 to FULL"
                )]
                bar.set_position((share.clamp(0.0, 1.0) * FULL as f64) as u64);
            }
            None if self.is_shown && stage.shown.elapsed() >= LINE_INTERVAL => {
                stage.shown = Instant::now();
                tracing::info!("{name}: {}", stage.described());
            }
            None => {}
        }
    }
}

impl Drop for WorkProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar, hidden until the console that it is added to draws it.
fn bar() -> ProgressBar {
    let style = indicatif::ProgressStyle::with_template("{prefix} {bar:16} {wide_msg}")
        .unwrap_or_else(|_| indicatif::ProgressStyle::default_bar())
        .progress_chars("━╸ ");
    let bar = ProgressBar::hidden().with_style(style);
    bar.set_length(FULL);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_falls_begins_the_stage_again() {
        let mut stage = Stage::new("surface");
        let Some(long_ago) = stage.begun.checked_sub(Duration::from_secs(93)) else { return };
        stage.begun = long_ago;
        stage.advance(0.75);
        assert_eq!(stage.described(), "75 %, 0:00:31 left");
        stage.advance(0.25);
        assert_eq!(stage.described(), "25 %, 0:00:00 left");
    }
}

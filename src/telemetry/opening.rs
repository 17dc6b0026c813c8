//! Notices before the progress of a run: all warnings and little info on the terminal, everything in `run.jsonl`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::log_line::{Format, Text, json_line};

/// Number of notices before a run, if there are not more warnings. Two more lines are about the run itself.
const MAX_SHOWN: usize = 2;

/// Crate whose notices are kept.
pub(super) const OWN: &str = "splat";

#[derive(Clone, Debug, PartialEq, Eq)]
struct Notice {
    level: Level,
    /// True if the line says that a part of the input is not used.
    is_about_data: bool,
    message: String,
}

impl Notice {
    /// Returns the rank; lower is more important.
    fn rank(&self) -> u8 {
        match (self.level, self.is_about_data) {
            (_, true) => 0,
            (Level::WARN, false) => 1,
            _ => NEWS,
        }
    }
}

/// Rank of notices that do not affect the result.
const NEWS: u8 = 2;

/// Layer of the log that keeps the notices until a run starts.
#[derive(Clone, Debug)]
pub(super) struct Opening {
    format: Format,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// True while notices wait for the run.
    is_held: bool,
    /// True until a run has taken the notices.
    is_open: bool,
    notices: Vec<Notice>,
}

impl Opening {
    /// Keeps notices, and holds them back from the terminal if `is_held`.
    pub(super) fn new(format: Format, is_held: bool) -> Self {
        let state = State { is_held, is_open: true, notices: Vec::new() };
        Self { format, state: Arc::new(Mutex::new(state)) }
    }

    fn current() -> Option<Self> {
        tracing::dispatcher::get_default(|log| log.downcast_ref::<Self>().cloned())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if lines of this level are held back for the run.
    pub(super) fn holds(&self, level: Level) -> bool {
        is_notice(level) && self.lock().is_held
    }

    /// Ends the opening; returns the notices that were held back.
    fn close(&self) -> Vec<Notice> {
        let State { is_held, is_open, notices } = &mut *self.lock();
        *is_open = false;
        let notices = std::mem::take(notices);
        let shown = std::mem::take(is_held);
        notices.into_iter().filter(|notice| shown && is_notice(notice.level)).collect()
    }
}

fn is_notice(level: Level) -> bool {
    level == Level::WARN || level == Level::INFO
}

impl<S: Subscriber> Layer<S> for Opening {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let about = event.metadata();
        let level = *about.level();
        if !about.target().starts_with(OWN) || !(is_notice(level) || level == Level::DEBUG) {
            return;
        }
        if !self.lock().is_open {
            return;
        }
        // Formatting a value may log, which takes the lock.
        let text = Text::of(event);
        // Headlines are shown at once.
        if !text.is_headline {
            let is_about_data = text.is_about_data;
            self.lock().notices.push(Notice { level, is_about_data, message: text.message() });
        }
    }
}

/// Keeps all warnings, most important first, and as much info as fits. A last line counts the others.
fn shortened(mut notices: Vec<Notice>) -> Vec<Notice> {
    if notices.len() <= MAX_SHOWN {
        return notices;
    }
    notices.sort_by_key(Notice::rank);
    let important = notices.iter().filter(|notice| notice.rank() < NEWS).count();
    let hidden = notices.split_off(important.max(MAX_SHOWN - 1).min(notices.len()));
    if !hidden.is_empty() {
        let lines = if hidden.len() == 1 { "line" } else { "lines" };
        let message = format!("{} more {lines}: --verbose or run.jsonl", hidden.len());
        notices.push(Notice { level: Level::INFO, is_about_data: false, message });
    }
    notices
}

/// Returns the notices so far as lines of `run.jsonl`.
pub(super) fn notices_as_json() -> String {
    let Some(opening) = Opening::current() else { return String::new() };
    let state = opening.lock();
    let line = |notice: &Notice| format!("{}\n", json_line(notice.level, &notice.message));
    state.notices.iter().map(line).collect()
}

/// Ends the opening and returns the lines that were held back: the most important ones if a run begins, otherwise all.
pub(super) fn end_opening(run_begins: bool) -> Vec<String> {
    let Some(opening) = Opening::current() else { return Vec::new() };
    let mut notices = opening.close();
    if run_begins {
        notices = shortened(notices);
    }
    notices.iter().map(|notice| opening.format.line(notice.level, &notice.message)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::layer::SubscriberExt as _;

    fn logged(is_held: bool, events: impl FnOnce()) -> (Vec<String>, String) {
        let log = tracing_subscriber::registry().with(Opening::new(Format::Plain, is_held));
        tracing::subscriber::with_default(log, || {
            events();
            let json = notices_as_json();
            let shown = end_opening(true);
            assert!(end_opening(true).is_empty() && end_opening(false).is_empty());
            tracing::warn!("too late");
            assert_eq!(notices_as_json(), "");
            (shown, json)
        })
    }

    fn many() {
        tracing::info!("continuing");
        tracing::warn!("--near has no effect");
        tracing::debug!("grey is behind the views");
        tracing::info!(is_headline = true, "6,000 iterations");
        tracing::warn!(is_about_data = true, "2 photographs are missing");
        tracing::warn!(target: "hyper", "of a library");
    }

    #[test]
    fn all_warnings_are_shown_and_other_notices_counted() {
        let (shown, json) = logged(true, many);
        let more = "1 more line: --verbose or run.jsonl";
        let warnings = ["warning: 2 photographs are missing", "warning: --near has no effect"];
        assert_eq!(shown, [warnings[0], warnings[1], more]);
        let messages = json
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| ["event", "level", "message"].map(|key| line[key].clone()));
        let expected = [
            ["log", "info", "continuing"],
            ["log", "warning", "--near has no effect"],
            ["log", "debug", "grey is behind the views"],
            ["log", "warning", "2 photographs are missing"],
        ];
        assert_eq!(messages.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn few_notices_are_shown_once_in_order() {
        let few = || {
            tracing::info!("continuing");
            tracing::warn!(is_about_data = true, "2 photographs are missing");
        };
        let (shown, _) = logged(true, few);
        assert_eq!(shown, ["continuing", "warning: 2 photographs are missing"]);
        let (shown, json) = logged(false, few);
        assert_eq!((shown.len(), json.lines().count()), (0, 2));
    }
}

//! The log on stderr, which shares the terminal with the progress bar.
//!
//! Before the progress of a run the terminal shows all warnings and little info; `run.jsonl` gets everything.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use console::Term;
use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};
use serde::{Deserialize, Serialize};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_indicatif::IndicatifWriter;
use tracing_indicatif::writer::Stderr;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

/// Style of progress on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProgressStyle {
    /// A bar where stderr is a terminal with escape sequences, else lines
    #[default]
    Bar,
    /// A line every 5 seconds at most
    Plain,
    /// Every event (of the iterations every tenth) as a line of JSON on stderr
    Json,
    /// Nothing but warnings
    None,
}

/// Detail of the log on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogDetail {
    /// Everything, including details that the user can check.
    Details,
    /// Info, warnings and errors.
    All,
    /// Like `All`, with few info lines before a run starts.
    Brief,
    /// Warnings and errors.
    Warnings,
    /// Errors.
    Errors,
}

impl LogDetail {
    /// Returns the detail with or without `--quiet`.
    pub fn of(quiet: bool) -> Self {
        if quiet { Self::Warnings } else { Self::All }
    }

    fn filter(self) -> &'static str {
        match self {
            Self::Details => "warn,splat=debug",
            Self::All | Self::Brief => "warn,splat=info",
            Self::Warnings => "warn",
            Self::Errors => "error",
        }
    }
}

/// Environment variable with the level of the log, such as `debug` or `splat::dataset=trace`.
const LEVEL: &str = "SPLAT_LOG";
const DRAWS_PER_SECOND: u8 = 20;

/// Sends the log to stderr: `warning: ...`, without time and module; as JSON lines with [`ProgressStyle::Json`].
///
/// `SPLAT_LOG` overrides the level. Notices are kept for `run.jsonl` if the command `has_run`. If stderr is closed,
/// the log is lost and the program continues. Later calls have no effect.
pub fn init_logging(detail: LogDetail, style: ProgressStyle, has_run: bool) {
    let default = || EnvFilter::new(detail.filter());
    let requested = std::env::var(LEVEL).ok().filter(|text| !text.is_empty());
    let parsed = requested.as_deref().map(EnvFilter::try_new).transpose();
    let format = match style {
        ProgressStyle::Json => Format::Json,
        _ if escapes_wanted() => Format::Colored,
        _ => Format::Plain,
    };
    let (filter, problem) = match parsed {
        Ok(filter) => (filter.unwrap_or_else(default), None),
        Err(problem) => (default(), Some(problem)),
    };
    let directives = requested.as_deref().filter(|_| problem.is_none()).unwrap_or(detail.filter());
    // Directives for spans are not targets; such a log counts as one without info lines.
    let shown = directives.parse().unwrap_or_default();
    let console = Console { shown, ..Console::stderr(style) };
    // With a level or JSON, each line is shown at once.
    let is_held =
        has_run && detail == LogDetail::Brief && requested.is_none() && format != Format::Json;
    let opening = Opening::new(format, is_held);
    let lines = tracing_subscriber::fmt::layer()
        .event_format(LogLines { format, opening: opening.clone() })
        .with_writer(console.writer())
        // Otherwise a failed write to a closed stderr would be reported by a panic.
        .log_internal_errors(false)
        .with_filter(filter);
    let kept = if has_run { LevelFilter::DEBUG } else { LevelFilter::OFF };
    let opening = opening.with_filter(Targets::new().with_target(OWN, kept));
    let console = console.with_filter(LevelFilter::OFF);
    tracing_subscriber::registry().with(lines).with(console).with(opening).try_init().ok();
    if let Some(problem) = problem {
        tracing::warn!("{LEVEL}: {problem}; write error, warn, info, debug or trace");
    }
}

/// True if the environment asks for plain text: `TERM=dumb`, or `NO_COLOR` is not empty (<https://no-color.org>).
pub(crate) fn is_plain_wanted() -> bool {
    std::env::var_os("TERM").is_some_and(|name| name == "dumb")
        || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
}

/// True if stderr is a terminal and escape sequences are allowed.
pub(super) fn escapes_wanted() -> bool {
    io::stderr().is_terminal() && !is_plain_wanted()
}

/// stderr with its progress bars; lines are printed above the bars. It is a layer of the subscriber, so that log and
/// progress share it.
#[derive(Clone, Debug)]
pub(super) struct Console {
    bars: MultiProgress,
    pub(super) style: ProgressStyle,
    /// Levels that the log shows, by module. Other layers of the subscriber may take more.
    shown: Targets,
}

impl<S: Subscriber> Layer<S> for Console {}

impl Console {
    fn stderr(style: ProgressStyle) -> Self {
        let terminal = Box::new(TolerantTerminal(Term::stderr()));
        let target = ProgressDrawTarget::term_like_with_hz(terminal, DRAWS_PER_SECOND);
        Self { bars: MultiProgress::with_draw_target(target), style, shown: Targets::new() }
    }

    /// Returns the console of the log, or a new one without a log.
    pub(super) fn current() -> Self {
        tracing::dispatcher::get_default(|log| log.downcast_ref::<Self>().cloned())
            .unwrap_or_else(|| Self::stderr(ProgressStyle::None))
    }

    pub(super) fn shows_news(&self, module: &str) -> bool {
        self.shown.would_enable(module, &Level::INFO)
    }

    /// Returns a writer of lines above the bars.
    pub(super) fn writer(&self) -> IndicatifWriter<Stderr> {
        IndicatifWriter::new(self.bars.clone())
    }

    pub(super) fn add(&self, bar: indicatif::ProgressBar) -> indicatif::ProgressBar {
        self.bars.add(bar)
    }
}

/// A terminal whose write errors are ignored: indicatif would panic between log lines, and training should outlive
/// its terminal.
#[derive(Debug)]
struct TolerantTerminal(Term);

impl TermLike for TolerantTerminal {
    fn width(&self) -> u16 {
        self.0.size().1
    }

    fn height(&self) -> u16 {
        self.0.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_up(n).or(Ok(()))
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_down(n).or(Ok(()))
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_right(n).or(Ok(()))
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.0.move_cursor_left(n).or(Ok(()))
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.0.write_line(text).or(Ok(()))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        self.0.write_str(text).or(Ok(()))
    }

    fn clear_line(&self) -> io::Result<()> {
        self.0.clear_line().or(Ok(()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().or(Ok(()))
    }
}

/// Formatter of the log's lines, except those that are held back for a run.
struct LogLines {
    format: Format,
    opening: Opening,
}

impl<S, N> FormatEvent<S, N> for LogLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let (level, text) = (*event.metadata().level(), Text::of(event));
        if !text.is_headline && self.opening.holds(level) {
            return Ok(());
        }
        writeln!(writer, "{}", self.format.line(level, &text.message()))
    }
}

/// True if the log on stderr shows info events of this module.
pub fn shows_news(module: &str) -> bool {
    Console::current().shows_news(module)
}

/// Shows the notices that were held back, when the program ends without a run.
pub fn release_notices() {
    for line in end_opening(false) {
        writeln!(io::stderr(), "{line}").ok();
    }
}

/// Prints the program's error on stderr in the format of the log, at any level. The message may have several lines.
pub fn log_error(style: ProgressStyle, message: &str) {
    let line = match style {
        ProgressStyle::Json => json_line(Level::ERROR, message).to_string(),
        _ => format!("error: {}", escape_controls(message, Newlines::Kept)),
    };
    // stderr may be closed.
    writeln!(io::stderr(), "{line}").ok();
}

// Notices before a run.

/// Number of notices before a run, if there are not more warnings. Two more lines are about the run itself.
const MAX_SHOWN: usize = 2;
const OWN: &str = "splat";

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
struct Opening {
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
    fn new(format: Format, is_held: bool) -> Self {
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
    fn holds(&self, level: Level) -> bool {
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

// Lines of the log.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// `warning: text`.
    Plain,
    /// `Plain` with a coloured level.
    Colored,
    /// `{"time":..,"event":"log","level":"warning","message":".."}`.
    Json,
}

impl Format {
    /// Formats a line without its newline.
    fn line(self, level: Level, message: &str) -> String {
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

fn json_line(level: Level, message: &str) -> serde_json::Value {
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
struct Text {
    message: String,
    fields: String,
    /// True if the line is about the run itself and is never held back.
    is_headline: bool,
    /// True if the line says that a part of the input is not used.
    is_about_data: bool,
}

impl Text {
    fn of(event: &Event<'_>) -> Self {
        let mut text = Self::default();
        event.record(&mut text);
        text
    }

    fn message(self) -> String {
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
    use std::io::Seek as _;

    use super::*;

    /// Returns the output of a log of this format for three events.
    fn output_of(format: Format) -> String {
        let out = Arc::new(tempfile::tempfile().unwrap());
        let lines = tracing_subscriber::fmt::layer()
            .event_format(LogLines { format, opening: Opening::new(format, false) })
            .with_writer(out.clone())
            .with_filter(EnvFilter::new("info"));
        let log =
            tracing_subscriber::registry().with(lines).with(Console::stderr(ProgressStyle::Bar));
        tracing::subscriber::with_default(log, || {
            tracing::info!("50 views");
            tracing::warn!(count = 3, "images are missing");
            tracing::info!("a\u{1b}[31m\nb.png");
            tracing::debug!("unseen");
        });
        (&*out).rewind().unwrap();
        io::read_to_string(&*out).unwrap()
    }

    #[test]
    fn lines_carry_only_their_level() {
        for (format, warning) in
            [(Format::Plain, "warning:"), (Format::Colored, "\x1b[1;33mwarning:\x1b[0m")]
        {
            let expected =
                format!("50 views\n{warning} images are missing count=3\na\\u{{1b}}[31m\\nb.png\n");
            assert_eq!(output_of(format), expected);
        }
        for line in output_of(Format::Json).lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["event"], "log");
            assert!(line["time"].as_f64().unwrap() > 0.0);
        }
    }

    #[test]
    fn the_console_knows_which_modules_show_news() {
        let shows = |directives: &str, module: &str| {
            let shown = directives.parse().unwrap();
            Console { shown, ..Console::stderr(ProgressStyle::Bar) }.shows_news(module)
        };
        assert!(shows(LogDetail::All.filter(), "splat::cli::next"));
        assert!(shows("info", "splat::cli::next"));
        for directives in [LogDetail::Warnings.filter(), "warn", "splat::dataset=trace"] {
            assert!(!shows(directives, "splat::cli::next"), "{directives}");
        }
    }

    #[test]
    fn progress_uses_the_console_of_the_log() {
        let console = Console::stderr(ProgressStyle::Bar);
        let bar = console.add(indicatif::ProgressBar::hidden());
        let log = tracing_subscriber::registry().with(console);
        tracing::subscriber::with_default(log, || {
            // Removing a bar that another console draws would panic in indicatif.
            Console::current().bars.remove(&bar);
        });
    }

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

    #[test]
    fn only_control_characters_are_escaped() {
        let text = "käse \u{1b}[31m\r\n\u{9b}1m\t\"it's\" \\n";
        let kept = escape_controls(text, Newlines::Kept);
        assert_eq!(kept, "käse \\u{1b}[31m\\r\n\\u{9b}1m\\t\"it's\" \\n");
        let escaped = escape_controls(text, Newlines::Escaped);
        assert_eq!(escaped, kept.replace('\n', "\\n"));
    }
}

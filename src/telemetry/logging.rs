//! The log on stderr, which shares the terminal with the progress bar.

use std::fmt;
use std::io::{self, IsTerminal, Write as _};

use console::Term;
use indicatif::{MultiProgress, ProgressDrawTarget, TermLike};
use tracing::{Event, Level, Subscriber};
use tracing_indicatif::IndicatifWriter;
use tracing_indicatif::writer::Stderr;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use serde::{Deserialize, Serialize};

use super::log_line::{Format, Newlines, Text, escape_controls, json_line};
use super::opening::{OWN, Opening, end_opening};

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

/// Largest number of redraws of bars per second.
const DRAWS_PER_SECOND: u8 = 20;

/// Sends the log to stderr: `warning: ...`, without time and module; as JSON lines with [`ProgressStyle::Json`].
///
/// `SPLAT_LOG` overrides the level. Notices are kept for `run.jsonl` if the command `has_run`. If stderr is closed,
/// the log is lost and the program continues. Later calls have no effect.
pub fn init_logging(detail: LogDetail, style: ProgressStyle, has_run: bool) {
    let default = || EnvFilter::new(detail.filter());
    let asked = std::env::var(LEVEL).ok().filter(|text| !text.is_empty());
    let parsed = asked.as_deref().map(EnvFilter::try_new).transpose();
    let format = match style {
        ProgressStyle::Json => Format::Json,
        _ if escapes_wanted() => Format::Colored,
        _ => Format::Plain,
    };
    let (filter, problem) = match parsed {
        Ok(filter) => (filter.unwrap_or_else(default), None),
        Err(problem) => (default(), Some(problem)),
    };
    let directives = asked.as_deref().filter(|_| problem.is_none()).unwrap_or(detail.filter());
    // Directives for spans are not targets; such a log counts as one without info lines.
    let shown = directives.parse().unwrap_or_default();
    let console = Console { shown, ..Console::stderr(style) };
    // With a level or JSON, each line is shown at once.
    let is_held =
        has_run && detail == LogDetail::Brief && asked.is_none() && format != Format::Json;
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
    /// Style of the command's progress.
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

    /// True if the log shows info events of this module.
    pub(super) fn shows_news(&self, module: &str) -> bool {
        self.shown.would_enable(module, &Level::INFO)
    }

    /// Returns a writer of lines above the bars.
    pub(super) fn writer(&self) -> IndicatifWriter<Stderr> {
        IndicatifWriter::new(self.bars.clone())
    }

    /// Adds a bar at the bottom.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Returns the output of a log of this format for three events.
    fn logged(format: Format) -> String {
        let out = Arc::new(Mutex::new(Vec::new()));
        let sink = out.clone();
        let lines = tracing_subscriber::fmt::layer()
            .event_format(LogLines { format, opening: Opening::new(format, false) })
            .with_writer(move || SharedBuffer(sink.clone()))
            .with_filter(EnvFilter::new("info"));
        let log =
            tracing_subscriber::registry().with(lines).with(Console::stderr(ProgressStyle::Bar));
        tracing::subscriber::with_default(log, || {
            tracing::info!("50 views");
            tracing::warn!(count = 3, "images are missing");
            tracing::info!("a\u{1b}[31m\nb.png");
            tracing::debug!("unseen");
        });
        String::from_utf8(out.lock().unwrap().clone()).unwrap()
    }

    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for SharedBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_carry_only_their_level() {
        for (format, warning) in
            [(Format::Plain, "warning:"), (Format::Colored, "\x1b[1;33mwarning:\x1b[0m")]
        {
            let expected =
                format!("50 views\n{warning} images are missing count=3\na\\u{{1b}}[31m\\nb.png\n");
            assert_eq!(logged(format), expected);
        }
        for line in logged(Format::Json).lines() {
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
}

//! Events of a run's log, numbered for repeated requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Approximate number of events of each kind in a first answer.
const EVENTS_PER_KIND: usize = 2000;

/// Largest number of events in a later answer.
const MAX_PAGE_EVENTS: usize = 5000;

/// Kind of events that is not served: large, and of no use to a page.
const HIDDEN_EVENT: &str = "buffers";

/// Fields of a line that decide what it means.
#[derive(Debug, Deserialize)]
struct EventHead {
    event: String,
    #[serde(default)]
    iteration: u32,
    #[serde(default)]
    interrupted: bool,
    action: Option<String>,
}

#[derive(Debug)]
struct LoggedEvent {
    event: String,
    line: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LoggedState {
    #[default]
    None,
    /// The run started, and its end is not logged.
    Begun,
    /// The run started and is paused.
    Paused,
    Finished,
    Interrupted,
}

/// Events from a number on.
#[derive(Debug, Serialize)]
pub(super) struct EventPage {
    /// True if the log was replaced. The reader then drops all earlier events.
    pub(super) reset: bool,
    pub(super) next: usize,
    /// True if more events are available.
    pub(super) more: bool,
    #[serde(skip)]
    pub(super) lines: Vec<String>,
}

/// All events of a log, numbered.
#[derive(Debug)]
pub(super) struct RunEvents {
    tail: LogTail,
    /// Number of the first stored event.
    first: usize,
    events: Vec<LoggedEvent>,
    /// Number of lines that were no events.
    pub(super) skipped: usize,
    pub(super) state: LoggedState,
    pub(super) iteration: u32,
}

impl RunEvents {
    pub(super) fn of_log(path: PathBuf) -> Self {
        let tail = LogTail { path, offset: 0, beginning: Vec::new() };
        let (events, state) = (Vec::new(), LoggedState::None);
        Self { tail, first: 0, events, skipped: 0, state, iteration: 0 }
    }

    pub(super) fn refresh(&mut self) -> io::Result<()> {
        loop {
            let added = self.tail.read()?;
            if added.is_new {
                self.first += self.events.len();
                self.events.clear();
                (self.skipped, self.state, self.iteration) = (0, LoggedState::None, 0);
            }
            self.skipped += added.skipped;
            added.lines.into_iter().for_each(|line| self.record(line));
            if !added.has_more {
                return Ok(());
            }
        }
    }

    fn record(&mut self, line: String) {
        let Ok(head) = serde_json::from_str::<EventHead>(&line) else {
            self.skipped += 1;
            return;
        };
        let EventHead { event, iteration, interrupted, action } = head;
        self.iteration = iteration.max(self.iteration);
        match (event.as_str(), action.as_deref()) {
            ("started", _) => (self.state, self.iteration) = (LoggedState::Begun, iteration),
            ("finished", _) if interrupted => self.state = LoggedState::Interrupted,
            ("finished", _) => self.state = LoggedState::Finished,
            ("control", Some("pause")) => self.state = LoggedState::Paused,
            ("control", Some("resume")) => self.state = LoggedState::Begun,
            (HIDDEN_EVENT, _) => return,
            _ => {}
        }
        self.events.push(LoggedEvent { event, line });
    }

    /// Returns the events from a number on. A reader without events of this log gets a thinned list.
    pub(super) fn from(&self, number: usize) -> EventPage {
        let next = self.first + self.events.len();
        if number <= self.first || number > next {
            let lines = self.thinned();
            return EventPage { reset: number > 0, next, more: false, lines };
        }
        let rest = &self.events[number - self.first..];
        let sent = rest.len().min(MAX_PAGE_EVENTS);
        let lines = rest[..sent].iter().map(|event| event.line.clone()).collect();
        EventPage { reset: false, next: number + sent, more: sent < rest.len(), lines }
    }

    /// Returns about [`EVENTS_PER_KIND`] events of each kind, the newest included.
    fn thinned(&self) -> Vec<String> {
        let mut counts = HashMap::<&str, usize>::new();
        for event in &self.events {
            *counts.entry(&event.event).or_default() += 1;
        }
        // Counted from the end, so that the newest event of each kind is kept.
        let mut left = counts.clone();
        let is_sent = |event: &&LoggedEvent| {
            let stride =
                counts.get(event.event.as_str()).map_or(1, |all| all.div_ceil(EVENTS_PER_KIND));
            left.get_mut(event.event.as_str()).is_none_or(|left| {
                *left -= 1;
                *left % stride == 0
            })
        };
        self.events.iter().filter(is_sent).map(|event| event.line.clone()).collect()
    }
}

// Follows a log of one JSON object a line that another program writes.

/// Bytes of one read. A longer line is skipped.
const MAX_READ_BYTES: u64 = 8 << 20;

/// Bytes of the start of a log that identify it.
const FINGERPRINT_BYTES: usize = 256;

#[derive(Default)]
struct AddedLines {
    /// True if the log was replaced, so that earlier lines are void.
    is_new: bool,
    /// Lines without their ends, oldest first.
    lines: Vec<String>,
    /// Number of lines that were no text or too long.
    skipped: usize,
    /// True if there is more to read.
    has_more: bool,
}

/// The rest of a log, which need not exist yet.
#[derive(Debug)]
struct LogTail {
    path: PathBuf,
    /// Bytes of the lines that were read.
    offset: u64,
    /// Start of the log, up to [`FINGERPRINT_BYTES`] bytes.
    beginning: Vec<u8>,
}

impl LogTail {
    /// Returns the complete lines since the last call. An incomplete line waits for its end.
    fn read(&mut self) -> io::Result<AddedLines> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.start_over()),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        // Reading a pipe could wait forever.
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let mut beginning = vec![0; self.beginning.len()];
        let is_same = about.len() >= self.offset
            && file.read_exact(&mut beginning).is_ok()
            && beginning == self.beginning;
        let mut added = if is_same { AddedLines::default() } else { self.start_over() };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let is_full = bytes.len() as u64 == MAX_READ_BYTES;
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match str::from_utf8(line) {
                Ok(line) => added.lines.push(line.to_owned()),
                Err(_) => added.skipped += 1,
            }
        }
        if self.offset < FINGERPRINT_BYTES as u64 {
            let known = FINGERPRINT_BYTES.saturating_sub(self.beginning.len()).min(whole);
            self.beginning.extend_from_slice(&bytes[..known]);
        }
        self.offset += if whole == 0 && is_full { MAX_READ_BYTES } else { whole as u64 };
        added.skipped += usize::from(whole == 0 && is_full);
        added.has_more = is_full;
        Ok(added)
    }

    fn start_over(&mut self) -> AddedLines {
        let is_new = self.offset > 0;
        self.offset = 0;
        self.beginning.clear();
        AddedLines { is_new, ..AddedLines::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;

    struct Log {
        folder: tempfile::TempDir,
        events: RunEvents,
    }

    impl Log {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let events = RunEvents::of_log(folder.path().join("run.jsonl"));
            Self { folder, events }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("run.jsonl")
        }

        fn with(text: &str) -> Self {
            let log = Self::new();
            fs::write(log.path(), text).unwrap();
            log
        }

        fn append(&self, bytes: &[u8]) {
            let mut file = OpenOptions::new().create(true).append(true).open(self.path()).unwrap();
            file.write_all(bytes).unwrap();
        }

        fn add(&mut self, text: &str) {
            self.append(text.as_bytes());
            self.events.refresh().unwrap();
        }

        fn replace(&mut self, text: &str) {
            fs::write(self.path(), text).unwrap();
            self.events.refresh().unwrap();
        }

        /// Reads only the lines.
        fn read(&mut self) -> (bool, Vec<String>, usize) {
            let AddedLines { is_new, lines, skipped, .. } = self.events.tail.read().unwrap();
            (is_new, lines, skipped)
        }
    }

    fn event(name: &str, iteration: usize) -> String {
        format!("{{\"event\":\"{name}\",\"iteration\":{iteration}}}\n")
    }

    #[test]
    fn a_later_request_gets_only_new_events() {
        let mut log = Log::new();
        log.add(&(event("started", 0) + &event("step", 10)));
        let page = log.events.from(0);
        assert_eq!((page.reset, page.next, page.lines.len()), (false, 2, 2));
        log.add(&event("step", 20));
        let page = log.events.from(page.next);
        assert_eq!((page.reset, page.next, page.more), (false, 3, false));
        assert_eq!(page.lines, [event("step", 20).trim()]);
        assert!(log.events.from(3).lines.is_empty());
    }

    #[test]
    fn a_replaced_log_is_sent_from_its_beginning() {
        let mut log = Log::new();
        log.add(&(event("started", 0) + &event("step", 10)));
        log.replace(&event("started", 5));
        // Readers of the whole first log, of a part, of nothing, and of another log.
        for (number, reset) in [(2, true), (1, true), (0, false), (99, true)] {
            let page = log.events.from(number);
            assert_eq!((page.reset, page.next, page.lines.len()), (reset, 3, 1), "{number}");
        }
        assert_eq!(log.events.iteration, 5);
    }

    #[test]
    fn a_long_log_is_thinned_by_kind_and_keeps_the_newest_events() {
        let mut log = Log::new();
        let steps: String = (1..=9000).map(|at| event("step", at)).collect();
        log.add(&(event("started", 0) + &steps + &event("evaluated", 9000)));
        let page = log.events.from(0);
        assert_eq!((page.next, page.more), (9002, false));
        let of = |name: &str| page.lines.iter().filter(|line| line.contains(name)).count();
        assert_eq!((of("started"), of("evaluated")), (1, 1));
        assert_eq!(of("\"step\""), 1800);
        assert_eq!(page.lines[page.lines.len() - 2], event("step", 9000).trim());
        // A reader of the first event gets all later ones, page by page.
        let page = log.events.from(1);
        assert_eq!((page.lines.len(), page.next, page.more), (MAX_PAGE_EVENTS, 5001, true));
        assert_eq!(log.events.from(5001).lines.len(), 4001);
    }

    #[test]
    fn other_lines_are_counted_and_large_events_hidden() {
        let mut log = Log::new();
        log.add("[1]\nnull\n{\"event\":3}\n{\"event\":\"step\",\"iterat\n");
        log.add("{\"event\":\"buffers\",\"iteration\":100,\"all\":[]}\n");
        assert_eq!((log.events.skipped, log.events.from(0).lines.len()), (4, 0));
        assert_eq!(log.events.iteration, 100);
    }

    #[test]
    fn the_last_event_decides_the_state() {
        use LoggedState::{Begun, Finished, Interrupted, None, Paused};
        let mut log = Log::new();
        assert_eq!(log.events.state, None);
        let control = |action: &str| format!("{{\"event\":\"control\",\"action\":\"{action}\"}}\n");
        let stopped = "{\"event\":\"finished\",\"interrupted\":true,\"iteration\":7}\n".to_owned();
        for (line, state) in [
            (event("started", 0), Begun),
            (control("pause"), Paused),
            (control("checkpoint"), Paused),
            (control("resume"), Begun),
            (control("pause"), Paused),
            (stopped, Interrupted),
            (event("started", 7), Begun),
            (event("finished", 30), Finished),
        ] {
            log.add(&line);
            assert_eq!(log.events.state, state, "{line}");
        }
    }

    fn lines(of: &[&str]) -> Vec<String> {
        of.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_line_is_read_once_when_complete() {
        let mut log = Log::with("{\"a\":1}\n{\"b\"");
        assert_eq!(log.read(), (false, lines(&["{\"a\":1}"]), 0));
        assert_eq!(log.read(), (false, vec![], 0));
        log.append(b":2}\n\n{");
        assert_eq!(log.read(), (false, lines(&["{\"b\":2}"]), 0));
    }

    #[test]
    fn another_log_is_read_from_its_beginning() {
        let mut log = Log::with("first\n");
        log.read();
        // Shorter than the read part, as long, and longer.
        for text in ["new\n", "old\n", "another log\nof two lines\n"] {
            fs::write(log.path(), text).unwrap();
            assert_eq!(log.read(), (true, lines(&text.lines().collect::<Vec<_>>()), 0));
        }
        fs::remove_file(log.path()).unwrap();
        assert_eq!(log.read(), (true, vec![], 0));
        assert_eq!(log.read(), (false, vec![], 0));
        fs::write(log.path(), "again\n").unwrap();
        assert_eq!(log.read(), (false, lines(&["again"]), 0));
    }

    #[test]
    fn an_incomplete_line_does_not_hide_later_ones() {
        let mut log = Log::with("{\"a\":1}\n{\"b\":");
        log.read();
        // A resumed run drops the incomplete line.
        OpenOptions::new().write(true).open(log.path()).unwrap().set_len(8).unwrap();
        log.append(b"{\"c\":3}\n");
        assert_eq!(log.read(), (false, lines(&["{\"c\":3}"]), 0));
    }

    #[test]
    fn invalid_and_long_lines_are_skipped_and_counted() {
        let mut log = Log::with("");
        log.append(b"\xff\xfe\n{}\n");
        assert_eq!(log.read(), (false, lines(&["{}"]), 1));
        log.append(&vec![b'x'; usize::try_from(MAX_READ_BYTES).unwrap()]);
        assert_eq!(log.read(), (false, vec![], 1));
        log.append(b"\n{\"after\":1}\n");
        assert_eq!(log.read(), (false, lines(&["{\"after\":1}"]), 0));
    }
}

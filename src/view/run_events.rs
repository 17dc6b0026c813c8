//! Events of a run's log, numbered for repeated requests.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Of each kind of event about as many are told to one who asks for all.
const THINNED: usize = 2000;

/// Most events of one answer to one who has asked before.
const MOST_AT_ONCE: usize = 5000;

/// Events that are large and that nobody looks at.
const LEFT_OUT: &str = "buffers";

/// What a line is about.
#[derive(Debug, Deserialize)]
struct Head {
    event: String,
    #[serde(default)]
    iteration: u32,
    #[serde(default)]
    interrupted: bool,
    #[serde(default)]
    action: Option<String>,
}

/// An event as it stands in the log.
#[derive(Debug)]
struct LoggedEvent {
    event: String,
    /// JSON.
    line: String,
}

/// How a run stands by its log alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LoggedState {
    /// No run has begun.
    #[default]
    None,
    /// It began, and its end is not logged.
    Begun,
    /// It began and is paused.
    Paused,
    /// It did all iterations.
    Finished,
    /// It was stopped.
    Interrupted,
}

/// The events from a number on.
#[derive(Debug, Serialize)]
pub(super) struct EventPage {
    /// The log is another one: the reader drops all earlier events.
    pub(super) reset: bool,
    /// The number of the next event.
    pub(super) next: usize,
    /// More events are there already.
    pub(super) more: bool,
    /// Lines of the log, JSON.
    #[serde(skip)]
    pub(super) lines: Vec<String>,
}

/// All events of a log.
#[derive(Debug)]
pub(super) struct RunEvents {
    tail: LogTail,
    /// The number of the first event that is kept.
    first: usize,
    events: Vec<LoggedEvent>,
    skipped: usize,
    state: LoggedState,
    iteration: u32,
}

impl RunEvents {
    /// Those of a log that may not be there yet.
    pub(super) fn of_log(path: PathBuf) -> Self {
        let tail = LogTail::new(path);
        let (events, state) = (Vec::new(), LoggedState::None);
        Self { tail, first: 0, events, skipped: 0, state, iteration: 0 }
    }

    /// Reads what has been added.
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
        let Ok(head) = serde_json::from_str::<Head>(&line) else {
            self.skipped += 1;
            return;
        };
        let Head { event, iteration, interrupted, action } = head;
        self.iteration = iteration.max(self.iteration);
        match (event.as_str(), action.as_deref()) {
            ("started", _) => (self.state, self.iteration) = (LoggedState::Begun, iteration),
            ("finished", _) if interrupted => self.state = LoggedState::Interrupted,
            ("finished", _) => self.state = LoggedState::Finished,
            ("control", Some("pause")) => self.state = LoggedState::Paused,
            ("control", Some("resume")) => self.state = LoggedState::Begun,
            (LEFT_OUT, _) => return,
            _ => {}
        }
        self.events.push(LoggedEvent { event, line });
    }

    /// How the run stands.
    pub(super) fn state(&self) -> LoggedState {
        self.state
    }

    /// Iterations that are done.
    pub(super) fn iteration(&self) -> u32 {
        self.iteration
    }

    /// Lines that were no events.
    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// The events from a number on. To one who has seen none of this log, they are thinned.
    pub(super) fn from(&self, number: usize) -> EventPage {
        let next = self.first + self.events.len();
        if number <= self.first || number > next {
            let lines = self.thinned();
            return EventPage { reset: number > 0, next, more: false, lines };
        }
        let rest = &self.events[number - self.first..];
        let told = rest.len().min(MOST_AT_ONCE);
        let lines = rest[..told].iter().map(|event| event.line.clone()).collect();
        EventPage { reset: false, next: number + told, more: told < rest.len(), lines }
    }

    /// About [`THINNED`] of each kind, the newest of each among them.
    fn thinned(&self) -> Vec<String> {
        let mut counts = HashMap::<&str, usize>::new();
        for event in &self.events {
            *counts.entry(&event.event).or_default() += 1;
        }
        // By what is left, so that the newest of each kind is told.
        let mut left = counts.clone();
        let is_told = |event: &&LoggedEvent| {
            let stride = counts.get(event.event.as_str()).map_or(1, |all| all.div_ceil(THINNED));
            left.get_mut(event.event.as_str()).is_none_or(|left| {
                *left -= 1;
                *left % stride == 0
            })
        };
        self.events.iter().filter(is_told).map(|event| event.line.clone()).collect()
    }
}

// Follows a log of one JSON object a line, which another program writes.

/// Bytes that are read at once. A longer line is passed over.
const MOST_READ: u64 = 8 << 20;

/// Bytes of the beginning by which a log is known again.
const KNOWN: usize = 256;

/// What has been added to a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Added {
    /// It is another log than before: what it said is gone.
    pub(super) is_new: bool,
    /// Lines without their ends, oldest first.
    pub(super) lines: Vec<String>,
    /// Lines that are no text, or too long.
    pub(super) skipped: usize,
    /// There is more to read.
    pub(super) has_more: bool,
}

/// A place in a log.
#[derive(Debug)]
pub(super) struct LogTail {
    path: PathBuf,
    /// Bytes of the lines that were read.
    offset: u64,
    /// How it begins, as far as it was read.
    beginning: Vec<u8>,
}

impl LogTail {
    /// The beginning of a log, which need not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, beginning: Vec::new() }
    }

    /// The whole lines that came since the last call. A part of a line waits for its end.
    pub(super) fn read(&mut self) -> io::Result<Added> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(self.start_over()),
            Err(error) => return Err(error),
        };
        let about = file.metadata()?;
        // The end of a pipe may never come.
        if !about.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let mut beginning = vec![0; self.beginning.len()];
        let is_same = about.len() >= self.offset
            && file.read_exact(&mut beginning).is_ok()
            && beginning == self.beginning;
        let mut added = if is_same { Added::default() } else { self.start_over() };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(MOST_READ).read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let is_full = bytes.len() as u64 == MOST_READ;
        for line in bytes[..whole].split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match str::from_utf8(line) {
                Ok(line) => added.lines.push(line.to_owned()),
                Err(_) => added.skipped += 1,
            }
        }
        if self.offset < KNOWN as u64 {
            let known = KNOWN.saturating_sub(self.beginning.len()).min(whole);
            self.beginning.extend_from_slice(&bytes[..known]);
        }
        self.offset += if whole == 0 && is_full { MOST_READ } else { whole as u64 };
        added.skipped += usize::from(whole == 0 && is_full);
        added.has_more = is_full;
        Ok(added)
    }

    fn start_over(&mut self) -> Added {
        let is_new = self.offset > 0;
        self.offset = 0;
        self.beginning.clear();
        Added { is_new, ..Added::default() }
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

        fn add(&mut self, text: &str) {
            let path = self.folder.path().join("run.jsonl");
            let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
            file.write_all(text.as_bytes()).unwrap();
            self.events.refresh().unwrap();
        }

        fn replace(&mut self, text: &str) {
            fs::write(self.folder.path().join("run.jsonl"), text).unwrap();
            self.events.refresh().unwrap();
        }
    }

    fn event(name: &str, iteration: usize) -> String {
        format!("{{\"event\":\"{name}\",\"iteration\":{iteration}}}\n")
    }

    #[test]
    fn who_asks_again_is_told_what_is_new() {
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
    fn a_log_that_was_replaced_is_told_from_its_beginning() {
        let mut log = Log::new();
        log.add(&(event("started", 0) + &event("step", 10)));
        log.replace(&event("started", 5));
        // One who has seen all of the first, one who has seen a part, and one who has seen nothing.
        for (number, reset) in [(2, true), (1, true), (0, false), (99, true)] {
            let page = log.events.from(number);
            assert_eq!((page.reset, page.next, page.lines.len()), (reset, 3, 1), "{number}");
        }
        assert_eq!(log.events.iteration(), 5);
    }

    #[test]
    fn of_a_long_log_a_part_of_each_kind_is_told_and_the_newest() {
        let mut log = Log::new();
        let steps: String = (1..=9000).map(|at| event("step", at)).collect();
        log.add(&(event("started", 0) + &steps + &event("evaluated", 9000)));
        let page = log.events.from(0);
        assert_eq!((page.next, page.more), (9002, false));
        let of = |name: &str| page.lines.iter().filter(|line| line.contains(name)).count();
        assert_eq!((of("started"), of("evaluated")), (1, 1));
        assert_eq!(of("\"step\""), 1800);
        assert_eq!(page.lines[page.lines.len() - 2], event("step", 9000).trim());
        // One who asks from the first on is told all, a part at a time.
        let page = log.events.from(1);
        assert_eq!((page.lines.len(), page.next, page.more), (MOST_AT_ONCE, 5001, true));
        assert_eq!(log.events.from(5001).lines.len(), 4001);
    }

    #[test]
    fn what_is_no_event_is_counted_and_what_is_large_left_out() {
        let mut log = Log::new();
        log.add("[1]\nnull\n{\"event\":3}\n{\"event\":\"step\",\"iterat\n");
        log.add("{\"event\":\"buffers\",\"iteration\":100,\"all\":[]}\n");
        assert_eq!((log.events.skipped(), log.events.from(0).lines.len()), (4, 0));
        assert_eq!(log.events.iteration(), 100);
    }

    #[test]
    fn the_last_word_says_how_the_run_stands() {
        use LoggedState::{Begun, Finished, Interrupted, None, Paused};
        let mut log = Log::new();
        assert_eq!(log.events.state(), None);
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
            assert_eq!(log.events.state(), state, "{line}");
        }
    }
}

#[cfg(test)]
mod log_tail_tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write as _;

    use super::*;

    struct Log {
        _folder: tempfile::TempDir,
        path: PathBuf,
        tail: LogTail,
    }

    impl Log {
        fn with(text: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("run.jsonl");
            fs::write(&path, text).unwrap();
            let tail = LogTail::new(path.clone());
            Self { _folder: folder, path, tail }
        }

        fn add(&self, bytes: &[u8]) {
            OpenOptions::new().append(true).open(&self.path).unwrap().write_all(bytes).unwrap();
        }

        fn read(&mut self) -> (bool, Vec<String>, usize) {
            let Added { is_new, lines, skipped, .. } = self.tail.read().unwrap();
            (is_new, lines, skipped)
        }
    }

    fn lines(of: &[&str]) -> Vec<String> {
        of.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn lines_come_once_and_a_part_of_one_waits_for_its_end() {
        let mut log = Log::with("{\"a\":1}\n{\"b\"");
        assert_eq!(log.read(), (false, lines(&["{\"a\":1}"]), 0));
        assert_eq!(log.read(), (false, vec![], 0));
        log.add(b":2}\n\n{");
        assert_eq!(log.read(), (false, lines(&["{\"b\":2}"]), 0));
    }

    #[test]
    fn another_log_is_read_from_its_beginning() {
        let mut log = Log::with("first\n");
        log.read();
        // Shorter, as long, and longer than what was read.
        for text in ["new\n", "old\n", "another log\nof two lines\n"] {
            fs::write(&log.path, text).unwrap();
            assert_eq!(log.read(), (true, lines(&text.lines().collect::<Vec<_>>()), 0));
        }
        fs::remove_file(&log.path).unwrap();
        assert_eq!(log.read(), (true, vec![], 0));
        assert_eq!(log.read(), (false, vec![], 0));
        fs::write(&log.path, "again\n").unwrap();
        assert_eq!(log.read(), (false, lines(&["again"]), 0));
    }

    #[test]
    fn what_a_killed_run_cut_off_does_not_hide_what_a_resumed_one_adds() {
        let mut log = Log::with("{\"a\":1}\n{\"b\":");
        log.read();
        // A resumed run drops the part of a line.
        OpenOptions::new().write(true).open(&log.path).unwrap().set_len(8).unwrap();
        log.add(b"{\"c\":3}\n");
        assert_eq!(log.read(), (false, lines(&["{\"c\":3}"]), 0));
    }

    #[test]
    fn what_is_no_text_or_without_end_is_skipped_and_counted() {
        let mut log = Log::with("");
        log.add(b"\xff\xfe\n{}\n");
        assert_eq!(log.read(), (false, lines(&["{}"]), 1));
        log.add(&vec![b'x'; usize::try_from(MOST_READ).unwrap()]);
        assert_eq!(log.read(), (false, vec![], 1));
        log.add(b"\n{\"after\":1}\n");
        assert_eq!(log.read(), (false, lines(&["{\"after\":1}"]), 0));
    }
}

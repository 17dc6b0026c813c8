//! Follows a log of one JSON object a line, which another program writes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

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

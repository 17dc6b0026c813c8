//! `run.jsonl`: the events of a run, one per line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::logging::{notices_as_json, unix_seconds};
use super::status::RunStage;
use crate::files::{OutputError, write_atomically};
use crate::train::event::{Event, Sink, Step};

/// Largest number of buffered bytes.
pub(super) const BUFFER_BYTES: usize = 1 << 16;

#[derive(Serialize)]
struct Line<'a> {
    time: f64,
    /// Stage of the run, if it is the coarse one.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    #[serde(flatten)]
    event: &'a Event,
}

/// Encoder of events as lines with newlines: every tenth and the last iteration, no pictures.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    cadence: Cadence,
    stage: RunStage,
}

impl Encoder {
    /// Returns the lines for an event, often none.
    pub(super) fn lines(&mut self, event: &Event) -> io::Result<Vec<u8>> {
        let mut lines = Vec::new();
        match event {
            Event::Started { .. } => self.stage = RunStage::Photometric,
            Event::CoarseStarted { .. } => self.stage = RunStage::Coarse,
            _ => {}
        }
        match event {
            Event::Pictures(_) | Event::TimelapsePicture { .. } => {}
            Event::Step(step) => {
                if let Some(recorded) = self.cadence.take(step) {
                    self.encode(&mut lines, &Event::Step(recorded.step))?;
                }
            }
            Event::Finished { .. } => {
                if let Some(recorded) = self.cadence.rest() {
                    self.encode(&mut lines, &Event::Step(recorded.step))?;
                }
                self.encode(&mut lines, event)?;
            }
            event => self.encode(&mut lines, event)?,
        }
        Ok(lines)
    }

    fn encode(&self, lines: &mut Vec<u8>, event: &Event) -> io::Result<()> {
        let stage = (self.stage != RunStage::Photometric).then(|| self.stage.name());
        serde_json::to_writer(&mut *lines, &Line { time: unix_seconds(), stage, event })?;
        lines.push(b'\n');
        Ok(())
    }
}

/// The sink that writes `run.jsonl`.
pub struct JsonLines<W: Write> {
    path: PathBuf,
    out: WholeRecords<W>,
    encoder: Encoder,
}

impl JsonLines<File> {
    /// Opens `run.jsonl` in the model folder. A resumed run appends, and drops the lines of later iterations, which
    /// it repeats.
    pub fn create(model_path: &Path, resumed: Option<u32>) -> Result<Self, OutputError> {
        let path = model_path.join("run.jsonl");
        let file = match resumed {
            Some(iteration) => {
                drop_lines_after(&path, iteration)?;
                open_to_append(&path)
            }
            None => File::create(&path),
        };
        let file = file.map_err(|source| OutputError::new(&path, source))?;
        Ok(Self::to_writer(&path, file))
    }
}

#[derive(Deserialize)]
struct Iteration {
    iteration: u64,
}

fn drop_lines_after(path: &Path, iteration: u32) -> Result<(), OutputError> {
    let failed = |source| OutputError::new(path, source);
    // Devices and pipes have no earlier lines.
    if !path.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(());
    }
    let is_later = |line: &[u8]| {
        serde_json::from_slice(line)
            .is_ok_and(|Iteration { iteration: of_line }| of_line > u64::from(iteration))
    };
    let mut has_later = false;
    each_line(path, |line| {
        has_later |= is_later(line);
        Ok(())
    })
    .map_err(failed)?;
    if !has_later {
        return Ok(());
    }
    write_atomically(path, |out| {
        each_line(path, |line| if is_later(line) { Ok(()) } else { out.write_all(line) })
    })
}

/// Calls `take` with each line and its newline, which the last line may lack.
fn each_line(path: &Path, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        take(&line)?;
        line.clear();
    }
    Ok(())
}

/// Opens the file and drops an incomplete last line, which a killed run may leave.
fn open_to_append(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    // Devices and pipes have no earlier lines, and may never end.
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    let (mut whole_bytes, mut last) = (0, Vec::new());
    each_line(path, |line| {
        if line.ends_with(b"\n") {
            whole_bytes += line.len() as u64;
        } else {
            last = line.to_vec();
        }
        Ok(())
    })?;
    if last.is_empty() {
        return Ok(file);
    }
    // An editor may have removed the newline of a complete line.
    if serde_json::from_slice::<serde_json::Value>(&last).is_ok_and(|line| line.is_object()) {
        file.write_all(b"\n")?;
    } else {
        file.set_len(whole_bytes)?;
    }
    Ok(file)
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`; errors name `path`.
    pub fn to_writer(path: &Path, writer: W) -> Self {
        let out = WholeRecords::new(writer, BUFFER_BYTES);
        Self { path: path.to_owned(), out, encoder: Encoder::default() }
    }
}

impl<W: Write> Sink for JsonLines<W> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let lines = self.encoder.lines(event).map(|mut lines| {
            if matches!(event, Event::Started { .. }) {
                lines.extend(notices_as_json().into_bytes());
            }
            lines
        });
        lines
            .and_then(|lines| {
                if lines.is_empty() {
                    return Ok(());
                }
                self.out.put(&lines).and_then(|()| self.out.flush())
            })
            .map_err(|source| OutputError::new(&self.path, source))
    }
}

/// A writer of whole records. While writing fails, it keeps accepted records and rejects others, so that no partial
/// record precedes a whole one in the file.
pub(super) struct WholeRecords<W: Write> {
    out: W,
    waiting: Vec<u8>,
    /// Largest number of buffered bytes. A longer record is written at once.
    room: usize,
}

impl<W: Write> WholeRecords<W> {
    pub(super) fn new(out: W, room: usize) -> Self {
        Self { out, waiting: Vec::new(), room }
    }

    /// Accepts a record. It is lost if the buffer is full and cannot be written.
    pub(super) fn put(&mut self, record: &[u8]) -> io::Result<()> {
        if !self.waiting.is_empty() && self.waiting.len() + record.len() > self.room {
            self.flush()?;
        }
        self.waiting.extend_from_slice(record);
        if self.waiting.len() > self.room { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer; the rest stays buffered after an error.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.waiting.len() {
                break Ok(());
            }
            match self.out.write(&self.waiting[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.waiting.drain(..written);
        result.and_then(|()| self.out.flush())
    }
}

impl<W: Write> Drop for WholeRecords<W> {
    fn drop(&mut self) {
        // The error cannot be reported any more.
        self.flush().ok();
    }
}

/// Iterations between two records.
const INTERVAL: u32 = 10;

/// Selection of every tenth iteration and the last.
#[derive(Debug, Default)]
pub(super) struct Cadence {
    waiting: Option<Step>,
    ms: f64,
    count: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Recorded {
    pub(super) step: Step,
    /// Mean milliseconds of the iterations since the previous record.
    pub(super) mean_ms: f64,
}

impl Cadence {
    /// Takes an iteration; returns it if it is to be recorded.
    pub(super) fn take(&mut self, step: &Step) -> Option<Recorded> {
        self.ms += step.ms * f64::from(step.images);
        self.count += step.images;
        self.waiting = Some(step.clone());
        if step.span().crosses(INTERVAL) || step.iteration >= step.iterations {
            self.rest()
        } else {
            None
        }
    }

    /// Returns the last iteration if it is not recorded yet, as after an interruption.
    pub(super) fn rest(&mut self) -> Option<Recorded> {
        let step = self.waiting.take()?;
        let mean_ms = self.ms / f64::from(self.count.max(1));
        (self.ms, self.count) = (0.0, 0);
        Some(Recorded { step, mean_ms })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// Returns the log of a resumed run after its first event.
    fn resumed_log(before: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut sink = JsonLines::create(folder.path(), Some(3000)).unwrap();
        sink.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_last_line_without_newline_is_kept_if_it_is_complete() {
        let long = format!("{{\"time\":1.0,\"message\":\"{}", "a".repeat(200_000));
        for part in ["", "{", "{\"ti", "\0\0\0", "\u{1b}", "12", &long] {
            let text = resumed_log(format!("{{\"time\":1.0}}\n{part}").as_bytes());
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((lines.len(), lines[0]), (2, "{\"time\":1.0}"));
            assert!(lines[1].ends_with(r#""event":"opacity_reset","iteration":3000}"#), "{text}");
            assert!(text.ends_with('\n'));
        }
        assert_eq!(resumed_log(b"{\"ti").lines().count(), 1);
        assert_eq!(resumed_log(b"").lines().count(), 1);
        let long = format!("{{}}\n{{\"a\":\"{}\"}}", "b".repeat(200_000));
        for before in ["{\"time\":1.0}", &long] {
            let text = resumed_log(before.as_bytes());
            assert!(text.starts_with(&format!("{before}\n{{")), "{}", &text[..40]);
        }
    }

    #[test]
    fn lines_of_repeated_iterations_are_dropped() {
        let line = |iteration: u32| format!("{{\"event\":\"step\",\"iteration\":{iteration}}}\n");
        let kept = format!("{}{{\"event\":\"warning\"}}\n{}", line(2990), line(3000));
        let text = resumed_log(format!("{kept}{}{}", line(3010), line(3020)).as_bytes());
        assert_eq!((&text[..kept.len()], text.lines().count()), (&kept[..], 4));
        // An incomplete line after them is dropped too.
        let text = resumed_log(format!("{kept}{}{{\"ev", line(3010)).as_bytes());
        assert_eq!((&text[..kept.len()], text.lines().count()), (&kept[..], 4));
    }

    #[derive(Clone, Default)]
    struct Disk(Rc<RefCell<State>>);

    #[derive(Default)]
    struct State {
        content: Vec<u8>,
        left: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.borrow_mut();
            let taken = bytes.len().min(state.left);
            if taken == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            state.left -= taken;
            state.content.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn partial_record_is_completed_when_there_is_space() {
        let disk = Disk::default();
        disk.0.borrow_mut().left = 12;
        let mut records = WholeRecords::new(disk.clone(), 8);
        records.put(b"first\n").unwrap();
        records.put(b"second\n").unwrap();
        assert!(records.flush().is_err());
        // The buffer has room for this one, but not for the next.
        records.put(b"third\n").unwrap();
        assert!(records.put(b"fourth\n").is_err());
        disk.0.borrow_mut().left = 100;
        records.put(b"a record that is longer than the room\n").unwrap();
        records.put(b"last\n").unwrap();
        drop(records);
        let text = String::from_utf8(disk.0.borrow().content.clone()).unwrap();
        let expected = "first\nsecond\nthird\na record that is longer than the room\nlast\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn steps_that_reach_a_tenth_or_the_last_iteration_are_recorded() {
        let recorded = |steps: &[(u32, u32, f64)], iterations| {
            let mut cadence = Cadence::default();
            let steps = steps.iter().map(|&(iteration, images, ms)| {
                let before = iteration - images;
                Step { before, iteration, images, iterations, ms, ..Step::default() }
            });
            let recorded = steps.filter_map(|step| cadence.take(&step));
            let recorded: Vec<_> = recorded.map(|r| (r.step.iteration, r.mean_ms)).collect();
            assert!(cadence.rest().is_none());
            recorded
        };
        let single: Vec<_> =
            (1..=23).map(|iteration| (iteration, 1, f64::from(iteration))).collect();
        assert_eq!(recorded(&single, 23), [(10, 5.5), (20, 15.5), (23, 22.0)]);
        let several = [(8, 8, 1.0), (16, 8, 2.0), (19, 3, 4.0), (27, 8, 1.0)];
        assert_eq!(recorded(&several, 27), [(16, 1.5), (27, 20.0 / 11.0)]);
    }
}

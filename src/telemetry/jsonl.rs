//! `run.jsonl`: a run as one event a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cadence::Cadence;
use super::opening::notices_as_json;
use super::status::RunStage;
use super::time::unix_seconds;
use super::whole_records::WholeRecords;
use crate::files::{OutputError, write_atomically};
use crate::train::event::{Event, Sink};

/// Bytes that are read at once in search of the last newline.
const BLOCK: u64 = 1 << 16;

/// Bytes of lines that may wait for space on the disk.
const ROOM: usize = 1 << 16;

/// One line: the event and when it was.
#[derive(Serialize)]
struct Line<'a> {
    /// Seconds since the Unix epoch.
    time: f64,
    /// What the run is at; only of the coarse stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    #[serde(flatten)]
    event: &'a Event,
}

/// Turns events into lines, newline included: iterations only every tenth and the last, pictures
/// never.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    cadence: Cadence,
    stage: RunStage,
}

impl Encoder {
    /// The lines that `event` calls for, often none.
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
    /// Opens `run.jsonl` in the model folder. A run that resumes after an iteration drops the lines of later
    /// iterations, which it does again, and appends.
    pub fn create(model_path: &Path, resumed: Option<u32>) -> Result<Self, OutputError> {
        let path = model_path.join("run.jsonl");
        let file = match resumed {
            Some(iteration) => {
                forget_after(&path, iteration)?;
                open_to_append(&path)
            }
            None => File::create(&path),
        };
        let file = file.map_err(|source| OutputError::new(&path, source))?;
        Ok(Self::to_writer(&path, file))
    }
}

/// The iteration of a line that has one.
#[derive(Deserialize)]
struct Iteration {
    iteration: u64,
}

/// Removes the lines of iterations after this one, if there are any.
fn forget_after(path: &Path, iteration: u32) -> Result<(), OutputError> {
    let failed = |source| OutputError::new(path, source);
    // A device or a pipe has no lines to look back at.
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

/// Hands over each line with its end, which the last may lack.
fn each_line(path: &Path, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufReader::new(File::open(path)?);
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line)? > 0 {
        take(&line)?;
        line.clear();
    }
    Ok(())
}

/// A run that was killed may have left a part of a line, which is dropped.
fn open_to_append(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    let kept = file.metadata()?;
    // A device or a pipe has no lines to look back at, and its end may never come.
    if !kept.is_file() {
        return Ok(file);
    }
    let end = kept.len();
    let begin = last_line(&mut file, end)?;
    file.seek(SeekFrom::Start(begin))?;
    let mut last = Vec::new();
    (&mut file).take(end - begin).read_to_end(&mut last)?;
    if last.is_empty() {
        return Ok(file);
    }
    // An editor may have taken the newline from a line that is whole.
    if serde_json::from_slice::<serde_json::Value>(&last).is_ok_and(|line| line.is_object()) {
        file.write_all(b"\n")?;
    } else {
        file.set_len(begin)?;
    }
    Ok(file)
}

/// Where the text after the last newline begins.
fn last_line(file: &mut File, end: u64) -> io::Result<u64> {
    let mut block = Vec::new();
    let mut stop = end;
    while stop > 0 {
        let start = stop.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        (&mut *file).take(stop - start).read_to_end(&mut block)?;
        if let Some(at) = block.iter().rposition(|&byte| byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        stop = start;
    }
    Ok(0)
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`; `path` is what errors name.
    pub fn to_writer(path: &Path, writer: W) -> Self {
        let out = WholeRecords::new(writer, ROOM);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The log that a resumed run has after its first event.
    fn resumed_log(before: &[u8]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, before).unwrap();
        let mut sink = JsonLines::create(folder.path(), Some(3000)).unwrap();
        sink.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
        std::fs::read_to_string(&path).unwrap()
    }

    #[test]
    fn a_part_of_a_line_of_a_killed_run_is_dropped() {
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
    }

    #[test]
    fn lines_of_iterations_that_are_done_again_are_dropped() {
        let line = |iteration: u32| format!("{{\"event\":\"step\",\"iteration\":{iteration}}}\n");
        let kept = format!("{}{{\"event\":\"warning\"}}\n{}", line(2990), line(3000));
        let text = resumed_log(format!("{kept}{}{}", line(3010), line(3020)).as_bytes());
        assert_eq!((&text[..kept.len()], text.lines().count()), (&kept[..], 4));
        // A part of a line behind them goes as well.
        let text = resumed_log(format!("{kept}{}{{\"ev", line(3010)).as_bytes());
        assert_eq!((&text[..kept.len()], text.lines().count()), (&kept[..], 4));
    }

    #[test]
    fn a_whole_line_without_its_newline_is_kept() {
        let long = format!("{{}}\n{{\"a\":\"{}\"}}", "b".repeat(200_000));
        for before in ["{\"time\":1.0}", &long] {
            let text = resumed_log(before.as_bytes());
            assert!(text.starts_with(&format!("{before}\n{{")), "{}", &text[..40]);
        }
    }
}

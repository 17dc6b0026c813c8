//! `run.jsonl`: a run as one event a line.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cadence::Cadence;
use super::status::RunStage;
use super::time::unix_seconds;
use crate::files::OutputError;
use crate::train::event::{Event, Sink};

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
            Event::Pictures(_) => {}
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
    out: BufWriter<W>,
    encoder: Encoder,
}

impl JsonLines<File> {
    /// Opens `run.jsonl` in the model folder; a resumed run appends to it.
    pub fn create(model_path: &Path, resumed: bool) -> Result<Self, OutputError> {
        let path = model_path.join("run.jsonl");
        let file = if resumed { open_to_append(&path) } else { File::create(&path) };
        let file = file.map_err(|source| OutputError::new(&path, source))?;
        Ok(Self::to_writer(&path, file))
    }
}

/// A run that was killed may have left half a line: what follows begins on a new one.
fn open_to_append(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    if file.metadata()?.len() > 0 {
        let mut last = [0];
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

impl<W: Write> JsonLines<W> {
    /// Writes to `writer`; `path` is what errors name.
    pub fn to_writer(path: &Path, writer: W) -> Self {
        Self { path: path.to_owned(), out: BufWriter::new(writer), encoder: Encoder::default() }
    }
}

impl<W: Write> Sink for JsonLines<W> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let lines = self.encoder.lines(event);
        lines
            .and_then(|lines| {
                if lines.is_empty() {
                    return Ok(());
                }
                self.out.write_all(&lines).and_then(|()| self.out.flush())
            })
            .map_err(|source| OutputError::new(&self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_line_of_a_killed_run_is_closed_before_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, "{\"time\":1.0}\n{\"ti").unwrap();
        let mut sink = JsonLines::create(folder.path(), true).unwrap();
        sink.on(&Event::OpacityReset { iteration: 3000 }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["{\"time\":1.0}", "{\"ti"]);
        assert!(lines[2].ends_with(r#""event":"opacity_reset","iteration":3000}"#), "{text}");
        assert!(text.ends_with('\n'));
    }
}

//! Consecutive stages of a model folder, recorded in `sugar.json`.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::Context as _;
use clap::ArgMatches;
use serde::{Deserialize, Serialize};

use super::exit::DataError;
use super::output::shell_word;
use super::parser::is_typed;
use crate::files::write_text;

const RECORD: &str = "sugar.json";

/// Command that runs as part of another.
pub(super) struct CommandStage {
    pub(super) name: &'static str,
    /// Arguments of the command.
    pub(super) line: Vec<OsString>,
    /// Arguments that the result depends on.
    pub(super) options: Vec<String>,
    /// Runs the command with these arguments and the files of the stage before. Returns the written files.
    pub(super) run: fn(&[OsString], &[PathBuf]) -> anyhow::Result<Vec<PathBuf>>,
}

impl CommandStage {
    /// Returns the command as a user types it.
    pub(super) fn shown(&self) -> String {
        shown(self.name, &self.line)
    }
}

/// Returns a command with its arguments as a user types it.
pub(super) fn shown(name: &str, line: &[OsString]) -> String {
    let words = line.iter().map(|word| shell_word(Path::new(word)));
    ["splat".to_owned(), name.to_owned()].into_iter().chain(words).collect::<Vec<_>>().join(" ")
}

/// Record of a model folder's stages.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct StageRecords {
    stages: Vec<StageRecord>,
}

/// Stage that has begun.
#[derive(Debug, Serialize, Deserialize)]
struct StageRecord {
    name: String,
    /// Command as a user types it.
    command: String,
    /// Arguments that the result depends on.
    options: Vec<String>,
    /// Written files. `None` until the stage is complete.
    files: Option<Vec<FileMark>>,
}

/// State of a file at the end of its stage.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileMark {
    path: PathBuf,
    bytes: u64,
    /// Modification time, nanoseconds since 1970.
    modified_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StageState {
    /// Not begun.
    New,
    /// Begun with other options.
    Other,
    /// Begun with these options, but its files are missing or changed.
    Begun,
    /// Complete, with unchanged files.
    Complete,
}

impl FileMark {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        let modified = about.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let modified_ns = u64::try_from(modified.as_nanos()).ok()?;
        Some(Self { path: path.to_owned(), bytes: about.len(), modified_ns })
    }
}

impl StageRecords {
    /// Reads the record of a folder. A missing record is empty.
    pub(super) fn read(model_path: &Path) -> anyhow::Result<Self> {
        let path = model_path.join(RECORD);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(DataError(format!("{}: {error}", path.display())).into()),
        };
        serde_json::from_str(&text).map_err(|error| {
            DataError(format!(
                "{}: {error}. It is no record of splat sugar: remove it, and the stages are run again",
                path.display()
            ))
            .into()
        })
    }

    pub(super) fn state(&self, stage: &CommandStage) -> StageState {
        let Some(record) = self.stages.iter().find(|record| record.name == stage.name) else {
            return StageState::New;
        };
        if record.options != stage.options {
            return StageState::Other;
        }
        let stands = |mark: &FileMark| FileMark::of(&mark.path).as_ref() == Some(mark);
        match &record.files {
            Some(files) if files.iter().all(stands) => StageState::Complete,
            _ => StageState::Begun,
        }
    }

    /// Records the begin of a stage. Drops the records of this stage and all later ones.
    pub(super) fn begin(&mut self, stage: &CommandStage, model_path: &Path) -> anyhow::Result<()> {
        let place = self.stages.iter().position(|record| record.name == stage.name);
        self.stages.truncate(place.unwrap_or(self.stages.len()));
        self.stages.push(StageRecord {
            name: stage.name.to_owned(),
            command: stage.shown(),
            options: stage.options.clone(),
            files: None,
        });
        self.write(model_path)
    }

    /// Records that the last begun stage is complete.
    pub(super) fn complete(&mut self, files: &[PathBuf], model_path: &Path) -> anyhow::Result<()> {
        if let Some(record) = self.stages.last_mut() {
            record.files = Some(files.iter().filter_map(|path| FileMark::of(path)).collect());
        }
        self.write(model_path)
    }

    /// Returns the files of a complete stage.
    pub(super) fn files(&self, stage: &CommandStage) -> Vec<PathBuf> {
        let record = self.stages.iter().find(|record| record.name == stage.name);
        let marks = record.and_then(|record| record.files.as_deref()).unwrap_or_default();
        marks.iter().map(|mark| mark.path.clone()).collect()
    }

    fn write(&self, model_path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self).context("a record is plain values")?;
        Ok(write_text(&model_path.join(RECORD), &text)?)
    }
}

/// Returns typed options as arguments of a stage. `takes` selects them by argument id.
pub(super) fn forwarded(
    stage: &clap::Command,
    typed: &ArgMatches,
    takes: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let mut line = Vec::new();
    for arg in stage.get_arguments() {
        let id = arg.get_id().as_str();
        let is_meant = is_typed(typed, id) && takes(id);
        let (true, Some(long)) = (is_meant, arg.get_long()) else { continue };
        let values: Vec<OsString> =
            typed.get_raw(id).into_iter().flatten().map(OsString::from).collect();
        let delimiter = arg.get_value_delimiter().map(String::from).unwrap_or_default();
        let mut word = OsString::from(format!("--{long}="));
        word.push(values.join(delimiter.as_ref()));
        line.push(word);
    }
    line
}

pub(super) fn flag(long: &str, path: &Path) -> OsString {
    let mut word = OsString::from(format!("--{long}="));
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(option: &str) -> CommandStage {
        CommandStage {
            name: "mesh",
            line: vec!["-m".into(), "a b".into()],
            options: vec![option.to_owned()],
            run: |_, _| Ok(Vec::new()),
        }
    }

    #[test]
    fn a_stage_is_complete_until_its_options_or_files_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mesh.ply");
        let (same, other) = (stage("--x=1"), stage("--x=2"));
        assert_eq!(same.shown(), "splat mesh -m 'a b'");
        let mut records = StageRecords::read(folder.path()).unwrap();
        assert_eq!(records.state(&same), StageState::New);
        records.begin(&same, folder.path()).unwrap();
        fs::write(&file, "a mesh").unwrap();
        let read = || StageRecords::read(folder.path()).unwrap();
        assert_eq!(read().state(&same), StageState::Begun);
        records.complete(std::slice::from_ref(&file), folder.path()).unwrap();
        assert_eq!(read().state(&same), StageState::Complete);
        assert_eq!(read().files(&same), std::slice::from_ref(&file));
        assert_eq!(read().state(&other), StageState::Other);
        fs::write(&file, "another mesh").unwrap();
        assert_eq!(read().state(&same), StageState::Begun);
        fs::remove_file(&file).unwrap();
        assert_eq!(read().state(&same), StageState::Begun);
    }

    #[test]
    fn an_invalid_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(RECORD), "{").unwrap();
        let message = StageRecords::read(folder.path()).unwrap_err().to_string();
        assert!(message.contains(RECORD) && message.contains("remove it"), "{message}");
    }
}

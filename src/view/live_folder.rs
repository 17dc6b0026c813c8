//! `live/` in the model folder, by which a page and the run that it shows speak to each other.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::files::{OutputError, create_folder, numbered, write_text};

/// While somebody looks, the run hears of it this often.
const BETWEEN: Duration = Duration::from_secs(2);

/// What a run can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAction {
    /// To wait before the next iteration.
    Pause,
    /// To go on.
    Resume,
    /// To write a checkpoint.
    Checkpoint,
    /// To end as with Ctrl-C.
    Stop,
}

/// What is written for the run.
#[derive(Serialize)]
struct Request<'a> {
    id: &'a str,
    action: RunAction,
}

/// The folder of one model, which need not be there.
#[derive(Debug)]
pub(super) struct LiveFolder {
    folder: PathBuf,
    watched: Option<Instant>,
}

impl LiveFolder {
    pub(super) fn of(model_path: &Path) -> Self {
        Self { folder: model_path.join("live"), watched: None }
    }

    /// Says to the run that somebody looks.
    pub(super) fn watch(&mut self) -> Result<(), OutputError> {
        if self.watched.is_some_and(|at| at.elapsed() < BETWEEN) {
            return Ok(());
        }
        create_folder(&self.folder)?;
        let path = self.folder.join("watch");
        touch(&path).map_err(|source| OutputError::new(&path, source))?;
        self.watched = Some(Instant::now());
        Ok(())
    }

    /// Asks the run for something. What it was asked for before and has not seen is forgotten.
    pub(super) fn ask(&self, id: &str, action: RunAction) -> Result<(), OutputError> {
        create_folder(&self.folder)?;
        let path = self.folder.join("control.json");
        let text = serde_json::to_string(&Request { id, action });
        let text = text.map_err(|error| OutputError::new(&path, io::Error::other(error)))?;
        write_text(&path, &text)
    }

    /// The newest Gaussians that the run has written for the page, and the iteration that they are of.
    pub(super) fn splats(&self) -> Option<(u32, PathBuf)> {
        let number = |name: &str| name.strip_prefix("splats_")?.strip_suffix(".spz")?.parse().ok();
        numbered(&self.folder, number).pop()
    }
}

/// Makes a file, or makes it young.
fn touch(path: &Path) -> io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_run_is_told_that_somebody_looks_and_what_is_wanted() {
        let model = tempfile::tempdir().unwrap();
        let mut live = LiveFolder::of(model.path());
        assert!(live.splats().is_none());
        live.watch().unwrap();
        let watch = model.path().join("live/watch");
        let age = watch.metadata().unwrap().modified().unwrap().elapsed().unwrap();
        assert!(age < Duration::from_secs(2), "{age:?}");
        live.ask("7f", RunAction::Checkpoint).unwrap();
        live.ask("80", RunAction::Pause).unwrap();
        let text = fs::read_to_string(model.path().join("live/control.json")).unwrap();
        assert_eq!(text, r#"{"id":"80","action":"pause"}"#);
    }

    #[test]
    fn the_newest_gaussians_are_those_of_the_highest_iteration() {
        let model = tempfile::tempdir().unwrap();
        let live = LiveFolder::of(model.path());
        let folder = model.path().join("live");
        fs::create_dir(&folder).unwrap();
        for name in ["splats_90.spz", "splats_1000.spz", "splats_.spz", "splats_2000.ply", "watch"]
        {
            fs::write(folder.join(name), "").unwrap();
        }
        assert_eq!(live.splats(), Some((1000, folder.join("splats_1000.spz"))));
    }
}

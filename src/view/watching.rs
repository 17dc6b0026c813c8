//! Says to a run that somebody looks at its page, and what they ask for.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::files::{OutputError, create_folder, write_text};
use crate::train::event::ControlAction;
use crate::train::live::{ControlRequest, LiveFolder};

/// While somebody looks, the run hears of it this often.
const BETWEEN: Duration = Duration::from_secs(2);

/// The page's side of a run's folder, which need not be there.
#[derive(Debug)]
pub(super) struct Watching {
    folder: LiveFolder,
    told: Option<Instant>,
}

impl Watching {
    pub(super) fn of(model_path: &Path) -> Self {
        Self { folder: LiveFolder::of(model_path), told: None }
    }

    pub(super) fn folder(&self) -> &LiveFolder {
        &self.folder
    }

    /// Says that somebody looks.
    pub(super) fn tell(&mut self) -> Result<(), OutputError> {
        if self.told.is_some_and(|at| at.elapsed() < BETWEEN) {
            return Ok(());
        }
        self.told = Some(Instant::now());
        self.open()?;
        let path = self.folder.watch();
        touch(&path).map_err(|source| OutputError::new(&path, source))
    }

    /// Makes the folder. A link in its place is not followed.
    fn open(&self) -> Result<(), OutputError> {
        create_folder(self.folder.path())?;
        if self.folder.is_there() {
            return Ok(());
        }
        let why = "it is a link, and must be a folder of the model folder itself: remove it";
        Err(OutputError::new(self.folder.path(), io::Error::other(why)))
    }

    /// Asks for something, after what was asked for before.
    pub(super) fn ask(&self, id: &str, action: ControlAction) -> Result<(), OutputError> {
        self.open()?;
        let path = self.folder.control(id);
        let text = serde_json::to_string(&ControlRequest { id: id.to_owned(), action });
        let text = text.map_err(|error| OutputError::new(&path, io::Error::other(error)))?;
        write_text(&path, &text)
    }
}

/// Makes a file, or makes it young. What a link leads to is not touched.
fn touch(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        return Err(io::Error::other("it is no file: remove it"));
    }
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    file.set_modified(SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_told_that_somebody_looks_and_what_is_wanted() {
        let model = tempfile::tempdir().unwrap();
        let mut watching = Watching::of(model.path());
        watching.tell().unwrap();
        let touched = fs::metadata(watching.folder().watch()).unwrap().modified().unwrap();
        let age = touched.elapsed().unwrap();
        assert!(age < Duration::from_secs(2), "{age:?}");
        watching.ask("80", ControlAction::Pause).unwrap();
        watching.ask("7f", ControlAction::Checkpoint).unwrap();
        let asked = watching.folder().requests();
        let texts = asked.iter().map(|path| fs::read_to_string(path).unwrap());
        let expected = [r#"{"id":"7f","action":"checkpoint"}"#, r#"{"id":"80","action":"pause"}"#];
        assert_eq!(texts.collect::<Vec<_>>(), expected);
    }
}

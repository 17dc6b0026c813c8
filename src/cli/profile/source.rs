//! The run that is meant, and its profile.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::exit::DataError;
use crate::telemetry::Profile;

/// Where runs go for which no folder is named.
const OUTPUT: &str = "output";

/// What is written in place of a folder.
const LATEST: &str = "latest";

/// The named folder; the newest run where none is named or `latest` is, unless a folder is called so.
pub(super) fn named_or_newest(named: Option<&Path>) -> Result<PathBuf, DataError> {
    match named {
        Some(path) if path != Path::new(LATEST) || path.exists() => Ok(path.to_owned()),
        _ => newest(Path::new(OUTPUT)).ok_or_else(|| {
            DataError(format!(
                "{OUTPUT}: there is no run in this folder. Name the model folder of one"
            ))
        }),
    }
}

/// The profile of the run in this model folder.
pub(super) fn read(model_path: &Path) -> Result<Profile, DataError> {
    Profile::read(model_path).map_err(|error| DataError(error.to_string()))
}

/// The folder in this one whose log was written last.
fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?;
    let runs = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let written: SystemTime = fs::metadata(path.join("run.jsonl")).ok()?.modified().ok()?;
        Some((written, path))
    });
    runs.max().map(|(_, path)| path)
}

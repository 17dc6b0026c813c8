//! A run that is compared, and where it can be measured again.

use std::path::Path;

use serde_json::Value;

use crate::cli::output::shell_word;
use crate::telemetry::RunSummary;

/// The option that names the model folder.
pub(super) const MODEL_PATH: &str = "output.model_path";

/// A run and where its summary is from.
pub(super) struct Run {
    pub(super) path: String,
    pub(super) summary: RunSummary,
}

/// The model folder of a run: its summary may have been copied away.
pub(super) struct Origin {
    /// The folder, as a shell takes it.
    pub(super) folder: String,
    /// A sentence on what else a copy needs once the model is measured; it begins with a full stop.
    pub(super) afterwards: String,
}

impl Origin {
    /// Of the run that the summary is of.
    pub(super) fn of(run: &Run) -> Self {
        let path = Path::new(&run.path);
        let stored = run.summary.options.get(MODEL_PATH).and_then(Value::as_str).map(Path::new);
        if let Some(folder) = around(path).filter(|folder| is_model(folder, stored)) {
            return Self { folder: shell_word(folder), afterwards: String::new() };
        }
        let Some(stored) = stored else {
            let what = "does not name its model folder: put that in place of MODEL, and copy the \
                        summary.json of it again";
            let afterwards = format!(". {} {what}", path.display());
            return Self { folder: "MODEL".to_owned(), afterwards };
        };
        let folder = shell_word(stored);
        let what = if is_model(stored, None) {
            format!("compare {folder} then")
        } else {
            format!(
                "{folder} is not on this machine: measure it where it is, and copy its summary.json again"
            )
        };
        Self { afterwards: format!(". {} is a copy: {what}", path.display()), folder }
    }
}

/// The folder that this is, or of which it is the summary.
fn around(path: &Path) -> Option<&Path> {
    if path.is_dir() {
        return Some(path);
    }
    let is_summary = path.file_name().is_some_and(|name| name == "summary.json");
    // That of a bare name is the working directory.
    path.parent()
        .filter(|_| is_summary)
        .map(|folder| if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// Whether a folder is a run's own: it holds the model, or is where the model will be.
fn is_model(folder: &Path, stored: Option<&Path>) -> bool {
    let is_stored = || {
        let real = folder.canonicalize().ok();
        real.is_some() && real == stored.and_then(|stored| stored.canonicalize().ok())
    };
    folder.join("point_cloud").is_dir() || is_stored()
}

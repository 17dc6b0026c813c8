//! What is told of a video.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::output::print;

/// Frames a second where neither a flag nor the path says.
pub(super) const USUAL_FPS: f64 = 30.0;

/// What is printed of a video.
#[derive(Serialize)]
pub(super) struct Made {
    pub(super) file: PathBuf,
    pub(super) frames: usize,
    pub(super) fps: f64,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Made {
    /// Prints it, or where it is.
    pub(super) fn tell(&self, as_json: bool) -> anyhow::Result<()> {
        let text = match as_json {
            true => serde_json::to_string_pretty(self)?,
            false => self.file.display().to_string(),
        };
        Ok(print(&text)?)
    }
}

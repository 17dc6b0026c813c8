//! Pictures of a view while a model is trained, as PNG.

use std::path::{Path, PathBuf};

use image::ExtendedColorType;

use crate::files::{OutputError, create_folder, write_png};
use crate::train::event::{Event, Sink};

/// The folder inside a model folder that the pictures are in.
pub const TIMELAPSE: &str = "timelapse";

/// Writes each picture of `--timelapse` to its file.
#[derive(Debug)]
pub struct TimelapseFolder(PathBuf);

impl TimelapseFolder {
    /// In this model folder.
    pub fn new(model_path: &Path) -> Self {
        Self(model_path.join(TIMELAPSE))
    }
}

impl Sink for TimelapseFolder {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        let Event::TimelapsePicture { number, picture } = event else { return Ok(()) };
        create_folder(&self.0)?;
        let path = self.0.join(format!("{number:05}.png"));
        write_png(&path, [picture.width, picture.height], &picture.rgb, ExtendedColorType::Rgb8)
    }
}

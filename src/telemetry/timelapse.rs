//! Pictures of a view while a model is trained, as PNG.

use std::fs;
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
        match event {
            Event::Started { iteration, .. } => {
                self.forget_after(*iteration);
                Ok(())
            }
            Event::TimelapsePicture { iteration, picture } => {
                create_folder(&self.0)?;
                let path = self.0.join(format!("{iteration:06}.png"));
                let size = [picture.width, picture.height];
                write_png(&path, size, &picture.rgb, ExtendedColorType::Rgb8)
            }
            _ => Ok(()),
        }
    }
}

impl TimelapseFolder {
    /// Removes the pictures of iterations that a run which resumes does again.
    fn forget_after(&self, iteration: u32) {
        for (later, path) in pictures(&self.0) {
            if later > iteration {
                // One that stays is written again, or shows what was.
                fs::remove_file(path).ok();
            }
        }
    }
}

/// The pictures in a folder with their iterations, in the order of these.
pub fn pictures(folder: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let numbered = entries.filter_map(|entry| Some((iteration_of(&entry.path())?, entry.path())));
    let mut pictures: Vec<_> = numbered.collect();
    pictures.sort();
    pictures
}

/// The iteration that a picture's name is.
fn iteration_of(path: &Path) -> Option<u32> {
    let is_png = path.extension().is_some_and(|extension| extension == "png");
    path.file_stem().filter(|_| is_png)?.to_str()?.parse().ok()
}

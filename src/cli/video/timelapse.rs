//! The pictures that a run has kept with `--timelapse`, as a video.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::made::{Made, USUAL_FPS};
use super::output::VideoOutput;
use crate::cli::exit::{DataError, UsageError};
use crate::telemetry::{TIMELAPSE, timelapse_pictures};

/// Makes a video of the pictures in a model folder, or copies them as frames.
pub(super) fn make(
    model_path: &Path,
    output: VideoOutput,
    fps: Option<f64>,
) -> anyhow::Result<Made> {
    let fps = fps.unwrap_or(USUAL_FPS);
    let folder = model_path.join(TIMELAPSE);
    let pictures = pictures(&folder)?;
    let [width, height] = common_size(&pictures)?;
    refuse_own_folder(&output, &folder)?;
    let frames = output.begin()?;
    for (number, picture) in pictures.iter().enumerate() {
        frames.copy(&format!("{number:05}.png"), picture)?;
    }
    let file = frames.finish(fps)?;
    Ok(Made { file, frames: pictures.len(), fps, width, height })
}

/// The pictures in the order of training; two at least.
fn pictures(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let pictures = timelapse_pictures(folder);
    if pictures.len() < 2 {
        return Err(DataError(format!(
            "{}: holds {} pictures, and a video needs two. Train with --timelapse IMAGE, the name of a \
             photograph",
            folder.display(),
            pictures.len()
        )));
    }
    Ok(pictures.into_iter().map(|(_, path)| path).collect())
}

/// Frames that go where the pictures are would replace some of them before they are copied.
fn refuse_own_folder(output: &VideoOutput, folder: &Path) -> Result<(), UsageError> {
    let VideoOutput::Frames(frames) = output else { return Ok(()) };
    let places = [frames.canonicalize(), folder.canonicalize()];
    match places {
        [Ok(frames), Ok(folder)] if frames == folder => Err(UsageError(format!(
            "--file {}: holds the pictures themselves. Name another folder",
            frames.display()
        ))),
        _ => Ok(()),
    }
}

/// The size that all pictures have.
fn common_size(pictures: &[PathBuf]) -> anyhow::Result<[u32; 2]> {
    let size = |path: &Path| {
        let size = image::image_dimensions(path).map(|(width, height)| [width, height]);
        size.map_err(|error| DataError(format!("{}: {error}", path.display())))
    };
    let first = pictures.first().context("no picture")?;
    let expected = size(first)?;
    for path in pictures {
        let found = size(path)?;
        if found != expected {
            return Err(DataError(format!(
                "{}: is of {found:?} px, and {} of {expected:?} px: they are of two runs. Remove those of one",
                path.display(),
                first.display()
            ))
            .into());
        }
    }
    Ok(expected)
}

//! Where the frames of a video go, and what becomes of them.

use std::fs;
use std::path::{Path, PathBuf};

use image::ExtendedColorType;

use super::encoder::Ffmpeg;
use crate::cli::exit::UsageError;
use crate::cli::png::write_png;
use crate::files::{OutputError, create_folder};
use crate::train::event::Picture;

/// Ends of names of videos.
const VIDEOS: [&str; 3] = ["mp4", "mkv", "webm"];

/// A video that ffmpeg did not make. Its frames are there.
#[derive(Debug, thiserror::Error)]
#[error("{video}: ffmpeg could not make it: {said}. The frames are kept in {frames}")]
pub(super) struct EncodingError {
    video: String,
    frames: String,
    said: String,
}

/// The frames' folder, and the video that is made of them.
#[derive(Debug)]
pub(super) struct VideoOutput {
    frames: PathBuf,
    video: Option<(PathBuf, Ffmpeg)>,
}

impl VideoOutput {
    /// What a name stands for: a video, or, where it has no such end, a folder. Fails where something is
    /// there that must not be lost.
    pub(super) fn of(file: &Path, overwrite: bool) -> anyhow::Result<Self> {
        let kind = file.extension().and_then(|kind| kind.to_str()).map(str::to_ascii_lowercase);
        let is_video = kind.as_deref().is_some_and(|kind| VIDEOS.contains(&kind));
        if !is_video && kind.is_some() && !file.is_dir() {
            return Err(UsageError(format!(
                "--file {}: end the name with .mp4, .mkv or .webm for a video, or name a folder for frames",
                file.display()
            ))
            .into());
        }
        let frames = if is_video { beside(file) } else { file.to_owned() };
        for place in [file, &frames] {
            refuse_loss(place, overwrite)?;
        }
        let video = match is_video.then(Ffmpeg::find) {
            Some(Ok(ffmpeg)) => Some((file.to_owned(), ffmpeg)),
            Some(Err(why)) => {
                tracing::warn!(
                    "--file {}: {why}. The frames are written as PNG into {} instead",
                    file.display(),
                    frames.display()
                );
                None
            }
            None => None,
        };
        remove_frames(&frames);
        create_folder(&frames)?;
        Ok(Self { frames, video })
    }

    /// Whether a video is made.
    pub(super) fn is_video(&self) -> bool {
        self.video.is_some()
    }

    /// Writes a frame.
    pub(super) fn write(&self, name: &Path, picture: &Picture) -> Result<(), OutputError> {
        let size = [picture.width, picture.height];
        write_png(&self.frames.join(name), size, &picture.rgb, ExtendedColorType::Rgb8)
    }

    /// Makes the video of the frames, which go then; what there is in the end.
    pub(super) fn finish(&self, fps: f64) -> Result<PathBuf, EncodingError> {
        let Some((video, ffmpeg)) = &self.video else { return Ok(self.frames.clone()) };
        // A video that is cut off by a failure must not stand under its name.
        let unfinished = video.with_file_name(format!(
            "unfinished-{}",
            video.file_name().unwrap_or_default().to_string_lossy()
        ));
        let made = ffmpeg.encode(&self.frames, fps, &unfinished);
        let made =
            made.and_then(|()| fs::rename(&unfinished, video).map_err(|error| error.to_string()));
        if let Err(said) = made {
            fs::remove_file(&unfinished).ok();
            let [video, frames] = [video, &self.frames].map(|path| path.display().to_string());
            return Err(EncodingError { video, frames, said });
        }
        remove_frames(&self.frames);
        Ok(video.clone())
    }
}

/// The folder of a video's frames, which has its name without the end.
fn beside(video: &Path) -> PathBuf {
    let stem = video.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    video.with_file_name(format!("{stem}_frames"))
}

/// Fails where a file or a folder with something in it would be replaced unasked, or cannot be.
fn refuse_loss(place: &Path, overwrite: bool) -> Result<(), UsageError> {
    let shown = place.display();
    let holds = fs::read_dir(place).is_ok_and(|mut entries| entries.next().is_some());
    let is_there = place.is_file() || holds;
    if is_there && !overwrite {
        return Err(UsageError(format!(
            "{shown}: is there already. Name another place with --file, or give --overwrite"
        )));
    }
    Ok(())
}

/// Removes frames of before, and the folder where nothing else is in it.
fn remove_frames(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_frame = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let is_number = stem.len() >= 5 && stem.bytes().all(|byte| byte.is_ascii_digit());
        is_number && path.extension().is_some_and(|kind| kind == "png")
    };
    for frame in entries.map(|entry| entry.path()).filter(is_frame) {
        fs::remove_file(frame).ok();
    }
    fs::remove_dir(folder).ok();
}

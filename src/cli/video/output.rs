//! Where the frames of a video go, and what becomes of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use image::ExtendedColorType;
use tempfile::TempDir;

use super::encoder::Ffmpeg;
use crate::cli::exit::UsageError;
use crate::cli::signals::remove_on_signals;
use crate::files::{OutputError, create_folder, follow_links, write_png};
use crate::train::event::Picture;

/// Ends of names of videos.
const VIDEOS: [&str; 3] = ["mp4", "mkv", "webm"];

/// A video that was not made. Its frames are there.
#[derive(Debug, thiserror::Error)]
#[error("{video}: is not made: {why}. The frames are kept in {frames}")]
pub(super) struct EncodingError {
    video: String,
    frames: String,
    why: String,
}

/// What is asked for by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VideoOutput {
    /// A folder of frames.
    Frames(PathBuf),
    /// A video.
    Video(PathBuf),
}

impl VideoOutput {
    /// What a name stands for: a video, or, where it has no such end, a folder. Fails where something is
    /// there that must not be lost. Nothing is written yet.
    pub(super) fn of(file: &Path, overwrite: bool) -> Result<Self, UsageError> {
        let shown = file.display();
        let kind = file.extension().and_then(|kind| kind.to_str()).map(str::to_ascii_lowercase);
        let is_video = kind.as_deref().is_some_and(|kind| VIDEOS.contains(&kind));
        if is_video && file.is_dir() {
            return Err(UsageError(format!("--file {shown}: is a folder. Name a file")));
        }
        if !is_video && kind.is_some() && !file.is_dir() {
            return Err(UsageError(format!(
                "--file {shown}: is the name of neither a video nor a folder. End it with .mp4, .mkv or .webm, or \
                 name a folder for frames, without a dot"
            )));
        }
        let holds = fs::read_dir(file).is_ok_and(|mut entries| entries.next().is_some());
        if (file.is_file() || holds) && !overwrite {
            return Err(UsageError(format!(
                "--file {shown}: is there already. Name another place, or give --overwrite, which replaces \
                 files of the same names"
            )));
        }
        let path = file.to_owned();
        Ok(if is_video { Self::Video(path) } else { Self::Frames(path) })
    }

    /// True if a video is made.
    pub(super) fn is_video(&self) -> bool {
        matches!(self, Self::Video(_))
    }

    /// Makes room for the frames. Those of a video go into a folder beside it that does not stay.
    pub(super) fn begin(self) -> Result<FrameWriter, OutputError> {
        match self {
            Self::Frames(folder) => {
                create_folder(&folder)?;
                Ok(FrameWriter { folder, video: None })
            }
            Self::Video(video) => {
                let ffmpeg = Ffmpeg::find();
                if ffmpeg.is_err() {
                    // The error at the end says why.
                    tracing::warn!("{}: no ffmpeg, so the frames are kept as PNG", video.display());
                }
                let fail = |source| OutputError::new(&video, source);
                let video = follow_links(&std::path::absolute(&video).map_err(fail)?);
                let parent = video.parent().unwrap_or(Path::new("."));
                create_folder(parent)?;
                remove_abandoned_frames(parent);
                let fail = |source| OutputError::new(parent, source);
                let work = tempfile::Builder::new().prefix(FRAMES).tempdir_in(parent);
                let work = work.map_err(fail)?;
                let lock = File::create(work.path().join(LOCK)).map_err(fail)?;
                // File systems without locks have no other program that could take one.
                lock.lock().ok();
                remove_on_signals(work.path());
                let folder = work.path().to_owned();
                let making = VideoInMaking { video, ffmpeg, work, _lock: lock };
                Ok(FrameWriter { folder, video: Some(making) })
            }
        }
    }
}

/// Writes frames, and makes a video of them where that is asked for.
#[derive(Debug)]
pub(super) struct FrameWriter {
    folder: PathBuf,
    video: Option<VideoInMaking>,
}

#[derive(Debug)]
struct VideoInMaking {
    video: PathBuf,
    ffmpeg: Result<Ffmpeg, String>,
    /// Holds the frames, and goes with this value.
    work: TempDir,
    /// Locked while the program is alive.
    _lock: File,
}

/// Prefix of the name of a temporary folder of frames.
const FRAMES: &str = ".frames-";

/// The file in such a folder that is locked.
const LOCK: &str = ".lock";

/// Removes the folders of frames that killed programs left here.
fn remove_abandoned_frames(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().to_string_lossy().starts_with(FRAMES);
        let lock = File::open(entry.path().join(LOCK));
        if is_ours && lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

impl FrameWriter {
    /// Writes a frame.
    pub(super) fn write(&self, name: &str, picture: &Picture) -> Result<(), OutputError> {
        let size = [picture.width, picture.height];
        write_png(&self.folder.join(name), size, &picture.rgb, ExtendedColorType::Rgb8)
    }

    /// Takes a copy of a picture as a frame.
    pub(super) fn copy(&self, name: &str, picture: &Path) -> Result<(), OutputError> {
        let to = self.folder.join(name);
        fs::copy(picture, &to).map(drop).map_err(|source| OutputError::new(&to, source))
    }

    /// Makes the video of the frames, which go then; what there is in the end.
    pub(super) fn finish(self, fps: f64) -> Result<PathBuf, EncodingError> {
        let Some(VideoInMaking { video, ffmpeg, work, .. }) = self.video else {
            return Ok(self.folder);
        };
        // A video that is cut off by a failure must not stand under its name.
        let unfinished = work.path().join(video.file_name().unwrap_or_default());
        let made = ffmpeg.and_then(|ffmpeg| ffmpeg.encode(work.path(), fps, &unfinished));
        if let Ok(before) = fs::metadata(&video) {
            fs::set_permissions(&unfinished, before.permissions()).ok();
        }
        let made =
            made.and_then(|()| fs::rename(&unfinished, &video).map_err(|error| error.to_string()));
        made.map(|()| video.clone()).map_err(|why| {
            fs::remove_file(&unfinished).ok();
            let [video, frames] =
                [video.clone(), kept(work, &video)].map(|path| path.display().to_string());
            EncodingError { video, frames, why }
        })
    }
}

/// Lets the frames of a video stay beside it, in a folder of a name that is free; where they are.
fn kept(work: TempDir, video: &Path) -> PathBuf {
    let stem = video.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let names = (1_u32..).map(|number| match number {
        1 => format!("{stem}_frames"),
        number => format!("{stem}_frames-{number}"),
    });
    let free = names.map(|name| video.with_file_name(name)).find(|path| !path.exists());
    fs::remove_file(work.path().join(LOCK)).ok();
    let from = work.keep();
    match free {
        Some(to) if fs::rename(&from, &to).is_ok() => to,
        _ => from,
    }
}

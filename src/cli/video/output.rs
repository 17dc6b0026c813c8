//! Frames of a video, and their encoding by ffmpeg.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use image::ExtendedColorType;
use tempfile::TempDir;

use crate::cli::exit::UsageError;
use crate::cli::signals::remove_on_signals;
use crate::files::{OutputError, create_folder, follow_links, write_png};
use crate::train::event::Picture;

const VIDEOS: [&str; 3] = ["mp4", "mkv", "webm"];

/// Failure to make a video. Its frames are kept.
#[derive(Debug, thiserror::Error)]
#[error("{video}: is not made: {why}. The frames are kept in {frames}")]
pub(super) struct EncodingError {
    video: String,
    frames: String,
    why: String,
}

/// Kind and path of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum VideoOutput {
    Frames(PathBuf),
    Video(PathBuf),
}

impl VideoOutput {
    /// Chooses a video or a folder by the name. Returns an error if the output exists without
    /// `overwrite`. Writes nothing.
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

    pub(super) fn is_video(&self) -> bool {
        matches!(self, Self::Video(_))
    }

    /// Creates the folder of the frames. For a video it is a temporary folder beside the file.
    pub(super) fn begin(self) -> Result<FrameWriter, OutputError> {
        match self {
            Self::Frames(folder) => {
                create_folder(&folder)?;
                Ok(FrameWriter { folder, video: None })
            }
            Self::Video(video) => {
                let ffmpeg = Ffmpeg::find();
                if ffmpeg.is_err() {
                    // The final error tells the reason.
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
                // On a file system without locks no other program can hold one either.
                lock.lock().ok();
                remove_on_signals(work.path());
                let folder = work.path().to_owned();
                let making = VideoInMaking { video, ffmpeg, work, _lock: lock };
                Ok(FrameWriter { folder, video: Some(making) })
            }
        }
    }
}

/// Writer of frames, which may become a video.
#[derive(Debug)]
pub(super) struct FrameWriter {
    folder: PathBuf,
    video: Option<VideoInMaking>,
}

#[derive(Debug)]
struct VideoInMaking {
    video: PathBuf,
    ffmpeg: Result<Ffmpeg, String>,
    /// Folder of the frames, removed when dropped.
    work: TempDir,
    /// Lock file, locked while the program lives.
    _lock: File,
}

/// Prefix of temporary folders of frames.
const FRAMES: &str = ".frames-";

/// Lock file in such a folder.
const LOCK: &str = ".lock";

/// Removes temporary folders of killed programs.
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
    pub(super) fn write(&self, name: &str, picture: &Picture) -> Result<(), OutputError> {
        let size = [picture.width, picture.height];
        write_png(&self.folder.join(name), size, &picture.rgb, ExtendedColorType::Rgb8)
    }

    /// Copies a picture as a frame.
    pub(super) fn copy(&self, name: &str, picture: &Path) -> Result<(), OutputError> {
        let to = self.folder.join(name);
        fs::copy(picture, &to).map(drop).map_err(|source| OutputError::new(&to, source))
    }

    /// Encodes the video and removes its frames. Returns the path of the video, or of the folder of frames.
    pub(super) fn finish(self, fps: f64) -> Result<PathBuf, EncodingError> {
        let Some(VideoInMaking { video, ffmpeg, work, .. }) = self.video else {
            return Ok(self.folder);
        };
        // Encode under a temporary path, so that a failure leaves no broken video.
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
                [video.clone(), keep_frames(work, &video)].map(|path| path.display().to_string());
            EncodingError { video, frames, why }
        })
    }
}

/// Keeps the frames of a video in a folder beside it with a free name. Returns the folder.
fn keep_frames(work: TempDir, video: &Path) -> PathBuf {
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

// Encoding by ffmpeg.

/// Environment variable that names the program.
const VARIABLE: &str = "FFMPEG";

/// H.264 encoders in order of preference.
const H264: [&str; 2] = ["libx264", "libopenh264"];

/// Number of characters of ffmpeg's output that an error quotes.
const QUOTED: usize = 2000;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ffmpeg {
    program: OsString,
    /// Available H.264 encoder.
    h264: &'static str,
}

impl Ffmpeg {
    /// Finds the ffmpeg of FFMPEG or of PATH. The error is a reason for users.
    pub(super) fn find() -> Result<Self, String> {
        let program = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let program = program.unwrap_or_else(|| "ffmpeg".into());
        let listed = Command::new(&program)
            .args(["-hide_banner", "-encoders"])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| {
                let shown = program.to_string_lossy();
                format!(
                    "{shown} cannot be started: {error}. Install ffmpeg, or name it by {VARIABLE}"
                )
            })?;
        let encoders = String::from_utf8_lossy(&listed.stdout).into_owned();
        let has = |name: &&&str| encoders.split_whitespace().any(|word| word == **name);
        // Without an encoder, ffmpeg reports the problem itself.
        let h264 = H264.iter().find(has).copied().unwrap_or(H264[0]);
        Ok(Self { program, h264 })
    }

    /// Encodes a folder's frames `00000.png` and so on. The error quotes ffmpeg.
    pub(super) fn encode(&self, frames: &Path, fps: f64, video: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments(frames, fps, video)).stdin(Stdio::null());
        let ended = command.output().map_err(|error| error.to_string())?;
        if ended.status.success() {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&ended.stderr);
        let output = output.trim();
        let from = output.char_indices().rev().take(QUOTED).last().map_or(0, |(at, _)| at);
        Err(format!("{}: {}", ended.status, &output[from..]))
    }

    /// Returns the arguments for sRGB frames at a visually lossless quality.
    fn arguments(&self, frames: &Path, fps: f64, video: &Path) -> Vec<OsString> {
        let is_webm = video.extension().is_some_and(|kind| kind.eq_ignore_ascii_case("webm"));
        let encoder: &[&str] = match (is_webm, self.h264) {
            (true, _) => &["-c:v", "libvpx-vp9", "-crf", "24", "-b:v", "0"],
            (false, "libopenh264") => &["-c:v", "libopenh264", "-b:v", "16M"],
            (false, other) => &["-c:v", other, "-crf", "18"],
        };
        let mut arguments: Vec<OsString> =
            ["-hide_banner", "-loglevel", "error", "-y", "-framerate"].map(Into::into).to_vec();
        arguments.extend([fps.to_string().into(), "-i".into()]);
        // ffmpeg expands per cent signs, so those of the path are escaped.
        let pattern = frames.display().to_string().replace('%', "%%");
        arguments.push(PathBuf::from(pattern).join("%05d.png").into());
        arguments.extend(encoder.iter().map(Into::into));
        let colors = "scale=out_color_matrix=bt709:out_range=tv";
        arguments.extend(["-vf", colors, "-pix_fmt", "yuv420p"].map(Into::into));
        for key in ["-colorspace", "-color_primaries", "-color_trc"] {
            arguments.extend([key, "bt709"].map(Into::into));
        }
        if !is_webm {
            arguments.extend(["-movflags", "+faststart"].map(Into::into));
        }
        arguments.push(video.into());
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(h264: &'static str, video: &str) -> String {
        let ffmpeg = Ffmpeg { program: "ffmpeg".into(), h264 };
        let arguments = ffmpeg.arguments(Path::new("a 50%/frames"), 24.0, Path::new(video));
        arguments.join(OsString::from(" ").as_os_str()).into_string().unwrap()
    }

    #[test]
    fn the_extension_selects_the_encoding() {
        let mp4 = arguments("libx264", "out.mp4");
        assert!(
            mp4.contains("-framerate 24 -i a 50%%/frames/%05d.png -c:v libx264 -crf 18"),
            "{mp4}"
        );
        assert!(mp4.ends_with("-movflags +faststart out.mp4"), "{mp4}");
        assert!(arguments("libopenh264", "out.mkv").contains("libopenh264 -b:v 16M"));
        let webm = arguments("libx264", "out.WebM");
        assert!(webm.contains("libvpx-vp9") && !webm.contains("faststart"), "{webm}");
    }
}

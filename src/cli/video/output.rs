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

// ffmpeg, which makes a video of frames.

/// The variable that names the program.
const VARIABLE: &str = "FFMPEG";

/// Encoders of H.264, the better first.
const H264: [&str; 2] = ["libx264", "libopenh264"];

/// Characters that are repeated of what ffmpeg says.
const QUOTED: usize = 2000;

/// ffmpeg as it is on this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ffmpeg {
    program: OsString,
    /// Its encoder of H.264.
    h264: &'static str,
}

impl Ffmpeg {
    /// The one that FFMPEG names, or that of PATH; why there is none.
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
        // ffmpeg itself says what it lacks.
        let h264 = H264.iter().find(has).copied().unwrap_or(H264[0]);
        Ok(Self { program, h264 })
    }

    /// Makes a video of a folder's frames `00000.png` and so on; what ffmpeg says where it cannot.
    pub(super) fn encode(&self, frames: &Path, fps: f64, video: &Path) -> Result<(), String> {
        let mut command = Command::new(&self.program);
        command.args(self.arguments(frames, fps, video)).stdin(Stdio::null());
        let ended = command.output().map_err(|error| error.to_string())?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.trim();
        let from = said.char_indices().rev().take(QUOTED).last().map_or(0, |(at, _)| at);
        Err(format!("{}: {}", ended.status, &said[from..]))
    }

    /// Arguments for frames with the colours of sRGB, at a quality that shows no loss.
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
        // A per cent sign is ffmpeg's; none is in the frames' own names but the number.
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
    fn the_name_of_the_video_says_how_it_is_encoded() {
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

//! ffmpeg, which makes a video of frames.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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

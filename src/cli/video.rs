//! `splat video`: film of a model along a camera path.

mod output;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args};
use serde::Serialize;

use self::output::{FrameWriter, VideoOutput};
use super::device::{self, DeviceOptions, Task};
use super::exit::{DataError, UsageError};
use super::output::print_report;
use super::scene::{ModelArgs, Opened, ReadModel, TriangleSamples};
use crate::backend::{RenderRequest, RenderSettings, TrainDevice};
use crate::dataset::{Dataset, Frame};
use crate::telemetry::{TIMELAPSE, timelapse_pictures};
use crate::train::eval::ShownViews;
use crate::train::event::Split;
use crate::train::near;
use crate::train::pictures::render_picture;
use crate::video::{
    FramesFile, PathCamera, SceneTransform, Surroundings, ellipse, orbit, read_frames,
    through_cameras,
};

const MAX_SIDE_PX: u32 = 16_384;

const MAX_FRAMES: f64 = 1e6;

#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Args)]
pub(super) struct VideoArgs {
    #[command(flatten)]
    pub(super) model: ModelArgs,

    /// Path of the camera: orbit, ellipse, cameras, or a file
    ///
    /// orbit: around what the cameras look at, at their median distance and height; where they have seen one
    /// side alone, to and fro. ellipse: as wide as they stand, and from low to high. cameras: through those of
    /// the scene. FILE.json: nerfstudio's `camera_path.json`; `frames` with position, target and fov; or
    /// `cameras.json` of a model.
    #[arg(long, value_name = "PATH", default_value = "orbit", help_heading = "Path")]
    path: PathBuf,

    /// Make the video of the pictures that a run has kept
    ///
    /// `splat train --timelapse IMAGE` keeps them. They appear in the order of training.
    #[arg(
        long,
        conflicts_with_all = ["path", "seconds", "turns", "closed", "path_transform", "width", "height"]
    )]
    timelapse: bool,

    /// Video (.mp4, .mkv, .webm), or folder for the frames as PNG
    ///
    /// A video needs ffmpeg, named by FFMPEG or found in PATH. Without it the frames are kept, in the folder
    /// `NAME_frames`, and the command ends with 1.
    #[arg(long, value_name = "FILE", default_value = "video.mp4")]
    file: PathBuf,

    /// Length [default: 10, or that of the file]
    #[arg(long, value_name = "SECONDS", help_heading = "Path")]
    seconds: Option<f64>,

    /// Number of turns of an orbit or an ellipse
    #[arg(long, value_name = "N", default_value_t = 1.0, help_heading = "Path")]
    turns: f64,

    /// Go back from the last camera to the first
    #[arg(long = "loop", help_heading = "Path")]
    closed: bool,

    /// Placement of the scene that a nerfstudio path is for, to be undone
    ///
    /// The `dataparser_transforms.json` of the nerfstudio model.
    #[arg(long, value_name = "FILE", help_heading = "Path")]
    path_transform: Option<PathBuf>,

    /// Frames a second [default: 30, or those of the file]
    #[arg(long, value_name = "N", help_heading = "Frames")]
    fps: Option<f64>,

    /// Width of a frame, px [default: that of the photographs]
    ///
    /// A path's file may say another.
    #[arg(long, value_name = "PX", help_heading = "Frames")]
    width: Option<u32>,

    /// Height of a frame, px
    ///
    /// With one of both, the other follows from the shape of the photographs. Videos have even sizes.
    #[arg(long, value_name = "PX", help_heading = "Frames")]
    height: Option<u32>,

    /// Replace the video, or frames of the same names
    #[arg(long)]
    overwrite: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    samples: TriangleSamples,
}

/// Cameras and format of a video.
struct Plan {
    cameras: Vec<PathCamera>,
    size_px: [u32; 2],
    fps: f64,
}

/// Renders the frames of the path and makes a video of them.
pub(super) fn run(args: &VideoArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    check(args)?;
    let output = VideoOutput::of(&args.file, args.overwrite)?;
    if args.timelapse {
        return make_timelapse(&args.model.model_path, output, args.fps)?.print(args.json);
    }
    let mut model = args.model.read(matches)?;
    args.samples.apply(model.triangles.as_mut(), matches);
    let Plan { cameras, size_px, fps } = plan(args, &model.dataset, output.is_video())?;
    let near = near(&model.dataset);
    let count = cameras.len();
    let opened = with_frames(model, &cameras, size_px).open(None)?;
    let frames = output.begin()?;
    let task = Filming { opened: &opened, near, frames: &frames };
    device::on(&DeviceOptions::of_earlier(&opened.config, matches), task)?;
    let file = frames.finish(fps)?;
    let [width, height] = size_px;
    VideoReport { file, frames: count, fps, width, height }.print(args.json)
}

/// Returns an error for numbers out of range.
fn check(args: &VideoArgs) -> Result<(), UsageError> {
    let above_0 = |flag: &str, value: Option<f64>, most: f64| match value {
        Some(value) if !(value > 0.0 && value <= most) => {
            Err(UsageError(format!("--{flag} {value}: must be above 0, and at most {most}")))
        }
        _ => Ok(()),
    };
    above_0("seconds", args.seconds, 86_400.0)?;
    above_0("fps", args.fps, 1000.0)?;
    above_0("turns", Some(args.turns.abs()), 1000.0)?;
    for (flag, px) in [("width", args.width), ("height", args.height)] {
        if px.is_some_and(|px| !(1..=MAX_SIDE_PX).contains(&px)) {
            let px = px.unwrap_or_default();
            return Err(UsageError(format!("--{flag} {px}: must be 1 to {MAX_SIDE_PX}")));
        }
    }
    Ok(())
}

/// Plans the cameras of all frames.
fn plan(args: &VideoArgs, dataset: &Dataset, is_video: bool) -> anyhow::Result<Plan> {
    let known: Vec<PathCamera> = dataset.views.iter().map(PathCamera::of).collect();
    let usual = dataset.views.first().map(|view| [view.camera.width, view.camera.height]);
    let around = Surroundings::of(&known, &dataset.points.positions)
        .map_err(|error| DataError(format!("--path {}: {error}", args.path.display())))?;
    let named = args.path.to_str().unwrap_or_default();
    let (cameras, shape, fps) = if ["orbit", "ellipse", "cameras"].contains(&named) {
        let fps = args.fps.unwrap_or(USUAL_FPS);
        let frames = frame_count(args.seconds.unwrap_or(10.0), fps)?;
        let cameras = match named {
            "orbit" => orbit(&around, args.turns, frames),
            "ellipse" => ellipse(&around, args.turns, frames),
            _ => through_cameras(&known, args.closed, frames),
        };
        (cameras, usual, fps)
    } else {
        let transform = args.path_transform.as_deref().map(SceneTransform::read).transpose();
        let transform = transform.map_err(|error| DataError(error.to_string()))?;
        let FramesFile { cameras, size_px, fps } = read_file(args, &around, transform.as_ref())?;
        let cameras = cameras.into_iter().map(|camera| PathCamera {
            centre_world: Frame::SCENE.to(&dataset.frame, camera.centre_world),
            ..camera
        });
        let cameras: Vec<_> = cameras.collect();
        let fps = args.fps.or(fps).unwrap_or(USUAL_FPS);
        let cameras = match args.seconds {
            Some(seconds) => resample(&cameras, frame_count(seconds, fps)?),
            None => cameras,
        };
        (cameras, size_px.or(usual), fps)
    };
    let size_px = frame_size(args, shape.unwrap_or([1280, 720]), is_video)?;
    Ok(Plan { cameras, size_px, fps })
}

fn read_file(
    args: &VideoArgs,
    around: &Surroundings,
    transform: Option<&SceneTransform>,
) -> anyhow::Result<FramesFile> {
    if !args.path.exists() {
        return Err(UsageError(format!(
            "--path {}: there is no such file. Name a file, or give orbit, ellipse or cameras",
            args.path.display()
        ))
        .into());
    }
    let read = read_frames(&args.path, around.up, transform);
    Ok(read.map_err(|error| DataError(error.to_string()))?)
}

fn frame_count(seconds: f64, fps: f64) -> Result<usize, UsageError> {
    let frames = (seconds * fps).round().max(1.0);
    if frames > MAX_FRAMES {
        return Err(UsageError(format!(
            "--seconds {seconds} --fps {fps}: are {frames} frames, and {MAX_FRAMES} are the most. Give fewer seconds"
        )));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1e6")]
    Ok(frames as usize)
}

/// Returns `frames` cameras, evenly spread over a path.
fn resample(cameras: &[PathCamera], frames: usize) -> Vec<PathCamera> {
    (0..frames).map(|at| cameras[at * cameras.len() / frames]).collect()
}

/// Returns the size of the frames: the typed size, or else `shape`. Videos get even sizes.
fn frame_size(args: &VideoArgs, shape: [u32; 2], is_video: bool) -> Result<[u32; 2], UsageError> {
    let [width, height] = shape.map(f64::from);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked below")]
    let follows = |px: u32, share: f64| (f64::from(px) * share).round().max(1.0) as u32;
    let wanted = match (args.width, args.height) {
        (Some(w), Some(h)) => [w, h],
        (Some(w), None) => [w, follows(w, height / width)],
        (None, Some(h)) => [follows(h, width / height), h],
        (None, None) => shape,
    };
    if wanted.iter().any(|px| !(1..=MAX_SIDE_PX).contains(px)) {
        let [width, height] = wanted;
        return Err(UsageError(format!(
            "frames of {width} x {height} px: each side must be 1 to {MAX_SIDE_PX}. Give --width and --height"
        )));
    }
    let size = if is_video { wanted.map(|px| (px & !1).max(2)) } else { wanted };
    if size != wanted {
        tracing::info!("frames are {} x {} px: videos have even sizes", size[0], size[1]);
    }
    Ok(size)
}

/// Replaces the views of the scene by the frames.
fn with_frames(mut model: ReadModel, cameras: &[PathCamera], size_px: [u32; 2]) -> ReadModel {
    let view = |(at, camera): (usize, &PathCamera)| camera.view(format!("{at:05}.png"), size_px);
    model.dataset.views = cameras.iter().enumerate().map(view).collect();
    model.dataset.sources = Vec::new();
    model.dataset.train = (0..cameras.len()).collect();
    model.dataset.test = Vec::new();
    model
}

struct Filming<'a> {
    opened: &'a Opened,
    near: f64,
    frames: &'a FrameWriter,
}

impl Task for Filming<'_> {
    type Output = ();

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<()> {
        let Self { opened, near, frames } = self;
        let model = opened.upload(device)?;
        let request = opened.request(Split::Train, ShownViews::Nothing);
        let settings = RenderSettings {
            sh_degree: request.sh_degree,
            background: request.background,
            near,
            footprint: request.footprint,
            ..RenderSettings::DEFAULT
        };
        for view in &opened.dataset.views {
            let frame = device
                .render(&model, view, &settings, RenderRequest::default())
                .with_context(|| format!("drawing {}", view.name))?;
            frames.write(&view.name, &render_picture(&device.image(&frame)?))?;
        }
        Ok(())
    }
}

// Videos of the pictures of `--timelapse`.

/// Makes a video of the pictures in a model folder, or copies them as frames.
fn make_timelapse(
    model_path: &Path,
    output: VideoOutput,
    fps: Option<f64>,
) -> anyhow::Result<VideoReport> {
    let fps = fps.unwrap_or(USUAL_FPS);
    let folder = model_path.join(TIMELAPSE);
    let pictures = pictures(&folder)?;
    let [width, height] = common_size(&pictures)?;
    check_output_folder(&output, &folder)?;
    let frames = output.begin()?;
    for (number, picture) in pictures.iter().enumerate() {
        frames.copy(&format!("{number:05}.png"), picture)?;
    }
    let file = frames.finish(fps)?;
    Ok(VideoReport { file, frames: pictures.len(), fps, width, height })
}

/// Returns the pictures in the order of training, at least two.
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

/// Rejects the pictures' own folder as output, because frames would replace pictures before they are copied.
fn check_output_folder(output: &VideoOutput, folder: &Path) -> Result<(), UsageError> {
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

/// Returns the common size of all pictures, px.
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
            anyhow::bail!(DataError(format!(
                "{}: is of {found:?} px, and {} of {expected:?} px: they are of two runs. Remove those of one",
                path.display(),
                first.display()
            )));
        }
    }
    Ok(expected)
}

/// Default frame rate, frames per second.
const USUAL_FPS: f64 = 30.0;

#[derive(Serialize)]
struct VideoReport {
    file: PathBuf,
    frames: usize,
    fps: f64,
    width: u32,
    height: u32,
}

impl VideoReport {
    /// Prints the report as JSON, or the path of the file.
    fn print(&self, as_json: bool) -> anyhow::Result<()> {
        print_report(self, as_json, |report| report.file.display().to_string())
    }
}

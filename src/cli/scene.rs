//! Scene and trained model, as commands open them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{ArgMatches, Args};
use splat_formats::{CameraSplit, SceneCamera};

use super::cfg_args::ConfigText;
use super::check::check;
use super::exit::{DataError, DoesNotFit, UsageError};
use super::folder::{self, TrainedViews};
use super::held_out::{check_unseen, nothing_held_out};
use super::host_limit::{AT_START, HostRoom, HostRun, OnProcessor, largest_to_decode, showing};
use super::parser::is_typed;
use crate::backend::{DeviceError, Footprint, MOST_SAMPLES, TrainDevice, Window, gpu};
use crate::config::{
    Config, Layers, MemoryOptions, MetricSet, Offset, PrimitiveName, RunOptions, SceneOptions,
    Typed, resolve,
};
use crate::dataset::{
    Dataset, DatasetError, Frame, ImageLoader, Residency, is_scene, read_test_list,
};
use crate::export::{
    CAMERAS_JSON, PlyModel, PlyTriangles, StoredCamera, StoredWindow, frame_of_file, read_ply_model,
};
use crate::memory::plan::PlannedRow;
use crate::memory::{Bytes, host_memory};
use crate::model::Gaussians;
use crate::perceptual::LpipsWeights;
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews};
use crate::train::event::Split;
use crate::train::{Views, forecast, render_footprint};

/// Options that choose a model and its scene.
#[derive(Args)]
pub(super) struct ModelArgs {
    /// Model folder
    #[arg(short, long, visible_alias = "output", short_alias = 'o', value_name = "MODEL")]
    pub(super) model_path: PathBuf,

    /// Iteration of the point cloud; -1 is the last
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = -1)]
    pub(super) iteration: i64,

    /// Only warnings and errors on stderr
    #[arg(long)]
    pub(super) quiet: bool,

    #[command(flatten)]
    pub(super) scene: SceneOptions,

    #[command(flatten)]
    pub(super) memory: MemoryOptions,

    #[command(flatten)]
    pub(super) run: RunOptions,
}

/// Trained model with its scene, before the images are opened.
pub(super) struct ReadModel {
    pub(super) config: Config,
    pub(super) dataset: Dataset,
    pub(super) gaussians: Gaussians,
    /// Triangles, if the Gaussians are their vertices.
    pub(super) triangles: Option<ShownTriangles>,
    pub(super) iteration: u32,
    /// True if the scene options differ from those of the training.
    pub(super) altered: bool,
    trained_scene: SceneOptions,
    /// Training views, if recorded.
    trained: Option<TrainedViews>,
}

impl ReadModel {
    /// Returns an error if a held-out view was a training view. `instead`: flags that need no held-out view.
    pub(super) fn check_held_out(&self, model_path: &Path, instead: &str) -> Result<(), DataError> {
        let Some(trained) = &self.trained else { return Ok(()) };
        let (before, now) = (&self.trained_scene, &self.config.scene);
        check_unseen(model_path, trained, before, now, instead, &self.dataset)
    }

    /// Returns the message of the row that names the model's primitive as an error.
    pub(super) fn check_primitive<const N: usize>(
        &self,
        rows: [(PrimitiveName, &str); N],
    ) -> Result<(), UsageError> {
        let found = self.config.optimize.primitive;
        check(rows.map(|(primitive, why)| (primitive == found, why)))
    }

    /// Keeps only those training views that the model was trained on, if they are recorded.
    pub(super) fn train_only_seen(&mut self) {
        let Some(trained) = &self.trained else { return };
        let Dataset { train, views, .. } = &mut self.dataset;
        train.retain(|&view| trained.contains_stem(views[view].stem()));
    }

    /// Returns the recorded training views, or none without a record.
    pub(super) fn trained_on(&self) -> TrainedViews {
        self.trained.clone().unwrap_or_default()
    }

    /// Returns an error if the held-out views are requested, but there are none or one was a training view.
    pub(super) fn check_split(&self, model_path: &Path, split: Split) -> anyhow::Result<()> {
        if split != Split::Test {
            return Ok(());
        }
        self.check_held_out(model_path, "--split train")?;
        if self.dataset.test.is_empty() {
            return Err(nothing_held_out(self.trained.as_ref(), &self.dataset).into());
        }
        Ok(())
    }

    /// Checks `--host-limit` for a command that draws the model and holds `beside` as well.
    pub(super) fn room(
        &self,
        lpips: Option<&LpipsWeights>,
        beside: Option<PlannedRow>,
    ) -> Result<HostRoom, DoesNotFit> {
        let Self { config, dataset, gaussians, .. } = self;
        let mut work = showing(config, gaussians.len() as u64);
        work.sh_degree = gaussians.sh_degree;
        let count_seen = &|| match self.triangles {
            // Vertices by themselves cover no pixels.
            Some(_) => forecast::seen_of_points(dataset, gaussians.means.as_chunks::<3>().0),
            None => forecast::seen_of_model(dataset, gaussians, render_footprint(config)),
        };
        let most = work.gaussians;
        self.room_for(&OnProcessor { work, most, count_seen, lpips, beside })
    }

    /// Opens the scene's images, within `--host-limit` and beside the memory of rendering and measuring.
    pub(super) fn open(self, lpips: Option<&LpipsWeights>) -> anyhow::Result<Opened> {
        let room = self.room(lpips, None)?;
        self.open_within(room)
    }

    /// True if the model will be on the processor.
    pub(super) fn is_on_processor(&self) -> bool {
        self.config.run.device.is_cpu(gpu::is_present)
    }

    /// Checks `--host-limit` for a command that does this work on the processor. On a GPU the host only holds
    /// `beside` and offloaded tables.
    pub(super) fn room_for(&self, model: &OnProcessor<'_>) -> Result<HostRoom, DoesNotFit> {
        let Self { config, dataset, .. } = self;
        match HostRun::new(config, dataset) {
            Some(run) if self.is_on_processor() => run.on_processor(model),
            Some(run) => {
                let nothing = PlannedRow { label: AT_START, bytes: Bytes(0) };
                run.on_gpu(model.beside.unwrap_or(nothing), model.most, model.most)
            }
            None => Ok(HostRoom::default()),
        }
    }

    /// Opens the images within the memory that is left.
    pub(super) fn open_within(self, room: HostRoom) -> anyhow::Result<Opened> {
        let Self { config, dataset, gaussians, triangles, iteration, altered, .. } = self;
        let images = open_images(&dataset, &config.memory, room.taken)?;
        Ok(Opened { config, dataset, images, gaussians, triangles, iteration, altered })
    }
}

/// Trained model with its opened scene.
pub(super) struct Opened {
    pub(super) config: Config,
    pub(super) dataset: Dataset,
    pub(super) images: ImageLoader,
    pub(super) gaussians: Gaussians,
    triangles: Option<ShownTriangles>,
    pub(super) iteration: u32,
    /// True if the scene options differ from those of the training.
    pub(super) altered: bool,
}

impl Opened {
    pub(super) fn upload<B: TrainDevice>(&self, device: &mut B) -> Result<B::Model, DeviceError> {
        let mut model = device.upload(&self.gaussians)?;
        if let Some(triangles) = &self.triangles {
            device.set_faces(&mut model, &triangles.faces)?;
        }
        Ok(model)
    }

    /// Returns the screen footprint of the Gaussians or triangles.
    fn footprint(&self) -> Footprint {
        let of_config = || render_footprint(&self.config);
        self.triangles.as_ref().map_or_else(of_config, ShownTriangles::footprint)
    }

    /// Returns a request to evaluate a split, without LPIPS and colour correction.
    pub(super) fn request(&self, split: Split, shown: ShownViews) -> EvalRequest<'static> {
        EvalRequest {
            split,
            most: None,
            iteration: self.iteration,
            sh_degree: self.gaussians.sh_degree,
            background: self.config.scene.background_color().0,
            footprint: self.footprint(),
            compensation: None,
            shown,
            metrics: MetricSet::Standard,
            surface: ShownSurface::None,
            lpips: None,
        }
    }
}

impl ModelArgs {
    /// Reads the model's configuration, scene and Gaussians. Flags override the configuration.
    pub(super) fn read(&self, matches: &ArgMatches) -> anyhow::Result<ReadModel> {
        let (iteration, ply) = folder::point_cloud(&self.model_path, self.wanted_iteration())?;
        let (mut config, trained_scene, altered) = self.configure(matches)?;
        let PlyModel { gaussians, primitive, triangles } = read_ply_model(&ply)?;
        // The file decides about surfels and triangles, because the configuration may be missing.
        match (primitive, config.optimize.primitive) {
            (PrimitiveName::Gaussians, PrimitiveName::Triangles) => {
                anyhow::bail!(DataError(format!(
                    "{}: holds Gaussians, but the model's config.toml says that they are triangles. Put \
                     the PLY of that run in its place",
                    ply.display()
                )));
            }
            (PrimitiveName::Gaussians, _) => {}
            (PrimitiveName::Surfels | PrimitiveName::Triangles, _) => {
                config.optimize.primitive = primitive;
            }
        }
        let triangles = triangles.map(ShownTriangles::new);
        let dataset = open_at(&mut config, &frame_of_file(&ply)?)?;
        let trained = TrainedViews::read(&self.model_path, iteration)?;
        Ok(ReadModel {
            config,
            dataset,
            gaussians,
            triangles,
            iteration,
            altered,
            trained_scene,
            trained,
        })
    }

    /// Returns the model's configuration with the flags applied, the scene options of its training, and true if the
    /// scene options differ.
    pub(super) fn configure(
        &self,
        matches: &ArgMatches,
    ) -> anyhow::Result<(Config, SceneOptions, bool)> {
        if self.scene.offset.is_some() || self.scene.unit.is_some() {
            anyhow::bail!(UsageError::new(
                "--offset, --unit: the coordinates of a trained model are those of its file. Leave them out"
            ));
        }
        let base = folder::read_options(&self.model_path)?;
        let flags = Config {
            scene: self.scene.clone(),
            memory: self.memory.clone(),
            run: self.run.clone(),
            ..Config::default()
        };
        let base = base.as_ref().map(ConfigText::layer);
        let trained_scene = resolve(Layers { base, ..Layers::default() })?.scene;
        let typed = Some(Typed { flags: &flags, matches });
        let mut config = resolve(Layers { base, typed, ..Layers::default() })?;
        read_test_list(&mut config.scene)?;
        // A moved scene is not an altered one.
        let source_path = config.scene.source_path.clone();
        // Depth maps matter only to training.
        let depths = config.scene.depths.clone();
        let same = SceneOptions { source_path, depths, ..trained_scene.clone() };
        let altered = base.is_some() && config.scene != same;
        if config.scene.source_path.is_none() {
            anyhow::bail!(UsageError(format!(
                "{} has neither config.toml nor cfg_args that names the scene. Name it with -s SCENE",
                self.model_path.display()
            )));
        }
        Ok((config, trained_scene, altered))
    }

    /// Returns the requested iteration, or `None` for the last.
    pub(super) fn wanted_iteration(&self) -> Option<u32> {
        match self.iteration {
            -1 => None,
            // An impossible number matches no saved iteration.
            other => Some(u32::try_from(other).unwrap_or(u32::MAX)),
        }
    }
}

/// Returns the named scene, or the working directory if it is a scene.
pub(super) fn named_or_here(scene: &SceneOptions, or_else: &str) -> Result<PathBuf, UsageError> {
    if let Some(named) = &scene.source_path {
        return Ok(absolute(named));
    }
    let here = absolute(Path::new("."));
    if !is_scene(&here, &scene.images) {
        return Err(UsageError(format!(
            "no scene is given. Use -s SCENE{or_else}, or run it inside a scene folder"
        )));
    }
    tracing::info!("no scene is given: the one in this folder is used, {}", here.display());
    Ok(here)
}

/// Reads the scene of a trained model in the coordinates of its file, without depth maps, which are for training.
pub(super) fn open_at(config: &mut Config, file: &Frame) -> Result<Dataset, DatasetError> {
    config.scene.offset = Some(Offset(file.offset));
    config.scene.unit = Some(file.unit);
    let dataset = open_scene(&SceneOptions { depths: None, ..config.scene.clone() })?;
    config.scene.keep_frame(file.offset, file.unit);
    Ok(dataset)
}

/// Reads a scene and logs its warnings.
pub(super) fn open_scene(options: &SceneOptions) -> Result<Dataset, DatasetError> {
    Dataset::load(options).inspect(log_warnings)
}

/// Reads a scene to train on and logs its warnings.
pub(super) fn open_to_train(config: &Config) -> Result<Dataset, DatasetError> {
    Dataset::load_to_train(config).inspect(log_warnings)
}

fn log_warnings(dataset: &Dataset) {
    for warning in &dataset.warnings {
        tracing::warn!(is_about_data = true, "{warning}");
    }
}

/// Returns the error of a split without a measurable image.
pub(super) fn none_to_compare(views: &Views<'_>, split: Split) -> DataError {
    if views.split(split).iter().all(|&index| views.is_hidden(index)) {
        return DataError(format!(
            "the {} views cannot be measured: their masks hide every pixel. {WHITE_COUNTS}",
            split.name()
        ));
    }
    let reason = views.first_problem().unwrap_or("no view has an image");
    DataError(format!("no image of the {} views can be decoded: {reason}", split.name()))
}

/// Advice for inverted masks.
const WHITE_COUNTS: &str =
    "Masks are white where a photograph counts: invert them, or move them away";

/// Returns an error if the masks hide every training view.
pub(super) fn check_not_all_hidden(
    dataset: &Dataset,
    images: &ImageLoader,
) -> Result<(), DataError> {
    let mut first_hidden = None;
    for &view in &dataset.train {
        match images.fetch(view) {
            Ok(image) if image.is_hidden() => {
                first_hidden.get_or_insert(view);
            }
            Ok(_) => return Ok(()),
            // Training reports unreadable images, and ends if none is left.
            Err(_) => {}
        }
    }
    let Some(view) = first_hidden else { return Ok(()) };
    let source = &dataset.sources[view];
    let mask = source.mask.as_ref().unwrap_or(&source.path);
    Err(DataError(format!(
        "the masks hide every pixel of all {} training views; the first is {}. {WHITE_COUNTS}",
        dataset.train.len(),
        mask.display()
    )))
}

/// Returns a path that is valid in every working directory.
pub(super) fn absolute(path: &Path) -> PathBuf {
    // A folder that does not exist yet has no canonical path.
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

// Images of a scene within the host's memory.

/// Opens a scene's images. `taken`: largest memory of the command without images.
pub(super) fn open_images(
    dataset: &Dataset,
    options: &MemoryOptions,
    taken: Bytes,
) -> anyhow::Result<ImageLoader> {
    let (images, keeps_all) = loader(dataset, options, taken);
    if keeps_all {
        tracing::debug!("decoding {} images", dataset.views.len());
        let failures = images
            .load_all(|_, _| {})
            .map_err(anyhow::Error::from)
            .context("no image of the scene can be decoded")?;
        tracing::debug!(
            "{} images decoded and kept, {:.2} GiB",
            dataset.views.len() - failures.len(),
            images.held().gib()
        );
    }
    Ok(images)
}

/// Returns the image loader, and true if all images are to be kept.
fn loader(dataset: &Dataset, options: &MemoryOptions, taken: Bytes) -> (ImageLoader, bool) {
    let host = host_memory();
    let limit = host.map_or(Bytes(u64::MAX), |host| options.host_limit.on(host.total));
    let held = host.map_or(Bytes(0), |host| host.resident).max(taken);
    let left = Bytes(limit.0.saturating_sub((held + largest_to_decode(dataset)).0));
    let open = |policy| ImageLoader::within(dataset.sources.clone(), policy, limit, taken);
    if options.high_dram {
        let images = open(Residency::All);
        let needed = images.decoded_bytes();
        if needed <= left {
            return (images, true);
        }
        tracing::warn!(
            "--high-dram has no effect: {} decoded images take {:.2} GiB, and of {:.2} GiB (--host-limit {}) {:.2} are left. \
             Images are decoded on demand, into a cache of {}",
            dataset.sources.len(),
            needed.gib(),
            limit.gib(),
            options.host_limit,
            left.gib(),
            options.image_cache
        );
    }
    let images = open(Residency::OnDemand { cache: options.image_cache });
    if let Some(needed) = images.least_to_decode_ahead() {
        tracing::warn!(
            "--image-cache {} is too small to decode photographs ahead, so that training waits \
             for each: give {:.0}MiB or more",
            options.image_cache,
            needed.mib().ceil()
        );
    }
    (images, false)
}

// Cameras of a model folder.

fn of_scene(camera: StoredCamera, split: CameraSplit, frame: &Frame) -> SceneCamera {
    let StoredCamera { img_name, width, height, position, rotation, fx, fy, .. } = camera;
    SceneCamera {
        name: img_name,
        position: Frame::SCENE.to(frame, position),
        rotation,
        focal_px: [fx, fy],
        principal_px: [width, height].map(|size| 0.5 * f64::from(size)),
        size_px: [width, height],
        split,
    }
}

/// Reads the cameras of a model folder in the coordinates of a frame. Returns none, with a warning, if they cannot be
/// read.
pub(super) fn cameras_of(model_path: &Path, iteration: u32, frame: &Frame) -> Vec<SceneCamera> {
    let path = model_path.join(CAMERAS_JSON);
    let trained = TrainedViews::read(model_path, iteration).unwrap_or_else(|error| {
        tracing::warn!("{error}. All cameras are taken for those of training");
        None
    });
    let read =
        || -> anyhow::Result<Vec<StoredCamera>> { Ok(serde_json::from_slice(&fs::read(&path)?)?) };
    let stored = read().unwrap_or_else(|error| {
        tracing::warn!(
            "{}: cannot be read: {error:#}. The cameras of the model are not known",
            path.display()
        );
        Vec::new()
    });
    let shown = |camera: StoredCamera| {
        let is_trained = trained.as_ref().is_none_or(|names| names.contains_stem(&camera.img_name));
        of_scene(
            camera,
            if is_trained { CameraSplit::Training } else { CameraSplit::HeldOut },
            frame,
        )
    };
    let (usable, broken): (Vec<_>, Vec<_>) =
        stored.into_iter().map(shown).partition(SceneCamera::is_usable);
    for camera in broken {
        tracing::warn!(
            "{}: the camera {} has a value that is not finite, or no size or focal length, and is left \
             out",
            path.display(),
            camera.name
        );
    }
    usable
}

/// Reads the cameras of the training views.
pub(super) fn training_cameras_of(
    model_path: &Path,
    iteration: u32,
    frame: &Frame,
) -> Vec<SceneCamera> {
    let mut cameras = cameras_of(model_path, iteration, frame);
    cameras.retain(|camera| camera.split == CameraSplit::Training);
    cameras
}

// Triangle models.

#[derive(Args)]
pub(super) struct TriangleSamples {
    /// Samples along each side of a pixel of a model of triangles
    ///
    /// More are slower and make smoother edges. Training ends with 4.
    #[arg(long, value_name = "1|2|4", help_heading = "Triangles", value_parser = samples)]
    samples: Option<u32>,
}

fn samples(text: &str) -> Result<u32, String> {
    let value = text.trim().parse().ok();
    value.filter(|value| [1, 2, 4].contains(value)).ok_or_else(|| "give 1, 2 or 4".to_owned())
}

/// Triangles of a model and their rendering options.
#[derive(Debug)]
pub(super) struct ShownTriangles {
    faces: Vec<[u32; 3]>,
    window: Window,
}

impl ShownTriangles {
    /// Uses the window of the file and the final number of samples of training.
    pub(super) fn new(stored: PlyTriangles) -> Self {
        let PlyTriangles { faces, window: StoredWindow { exponent, opacity_floor } } = stored;
        let window = Window { exponent, opacity_floor, samples: MOST_SAMPLES, ..Window::SOLID };
        Self { faces, window }
    }

    pub(super) fn footprint(&self) -> Footprint {
        Footprint::Triangle(self.window)
    }
}

impl TriangleSamples {
    /// Applies the option to triangles, or warns that it has no effect on other models.
    pub(super) fn apply(&self, triangles: Option<&mut ShownTriangles>, matches: &ArgMatches) {
        match (triangles, self.samples) {
            (Some(triangles), Some(samples)) => triangles.window.samples = samples,
            (None, _) if is_typed(matches, "samples") => tracing::warn!(
                "--samples has no effect: the model is not of triangles, which alone are sampled"
            ),
            _ => {}
        }
    }
}

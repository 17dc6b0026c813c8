//! `--refit`: fits the colours of a SOG to the training photographs.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::ArgMatches;
use splat_formats::{
    ColorFit, SceneCamera, ScenePlacement, SharedRows, SogTools, SplatFileError, SplatFormat,
    Splats, WriteReport, write, write_with,
};
use splat_mesh::Mesh;

use super::args::{ExportArgs, ExportFormat, FilePlacement, VertexColors};
use crate::backend::{RenderSettings, TrainDevice, gpu};
use crate::cli::check::{check as check_rows, warn_about_images};
use crate::cli::device::{self, DeviceOptions, Task};
use crate::cli::exit::{DataError, UsageError};
use crate::cli::mesh::exposures;
use crate::cli::scene::{ModelArgs, Opened, none_to_compare};
use crate::config::{Config, DeviceChoice, MemoryOptions, RunOptions, SceneOptions};
use crate::math::linalg::{add, length, scale, sub};
use crate::mesh::{TextureSource, VertexFit, fit_vertex_colors};
use crate::sog::{RefitScene, drawn_observations, footprint_of, with_device};
use crate::train::Views;
use crate::train::event::Split;

/// Model with its photographs, and the placements that undo the export's.
pub(super) struct Refit {
    opened: Opened,
    options: DeviceOptions,
    back: Vec<ScenePlacement>,
    images_drawn: u32,
}

impl Refit {
    /// Opens the scene of the model if colours are fitted.
    pub(super) fn open(
        args: &ExportArgs,
        placement: &FilePlacement,
        matches: &ArgMatches,
    ) -> anyhow::Result<Option<Self>> {
        let Some((images_drawn, model_path)) = args.sog.refit.zip(args.model_path.clone()) else {
            return Ok(None);
        };
        let run = RunOptions { device: args.sog.device, ..RunOptions::default() };
        let opened = open_trained_scene(args, model_path, run, "--refit", matches)?;
        let options = DeviceOptions::of_surface(&opened.config, matches);
        let steps = placement.steps.iter().rev();
        let back = steps.map(ScenePlacement::inverse).collect::<Result<_, _>>()?;
        Ok(Some(Self { opened, options, back, images_drawn }))
    }

    /// Fits the colours in the coordinates of the photographs.
    pub(super) fn fit<B: TrainDevice>(
        &self,
        device: &mut B,
        mut stored: Splats,
        alike: &SharedRows,
    ) -> anyhow::Result<Splats> {
        let Opened { config, dataset, images, .. } = &self.opened;
        for placement in &self.back {
            stored.place(placement)?;
        }
        let scene = RefitScene {
            dataset,
            images,
            settings: RenderSettings {
                sh_degree: stored.sh_degree(),
                background: config.scene.background_color().0,
                footprint: footprint_of(&stored, Some(config.optimize.kernel_size)),
                ..RenderSettings::DEFAULT
            },
            lambda_dssim: config.optimize.lambda_dssim,
            images_drawn: self.images_drawn,
            seed: config.run.seed,
        };
        let mut fitted = scene.fit(device, &stored, alike)?;
        for placement in self.back.iter().rev() {
            fitted.place(&placement.inverse()?)?;
        }
        Ok(fitted)
    }
}

/// Rejects `--refit` without a model, without harmonics, with a crop or with another format than SOG, and `--colors
/// photographs` without a model.
pub(super) fn check(args: &ExportArgs, format: &ExportFormat) -> Result<(), UsageError> {
    let is_refit = args.sog.refit.is_some();
    let place = &args.cut.place;
    check_rows([
        (
            is_refit && args.model_path.is_none(),
            "--refit fits colours to the photographs of a model's training. Give -m MODEL instead of a file",
        ),
        (is_refit && args.cut.sh_degree == 0, NO_HARMONICS),
        (
            is_refit
                && !matches!(
                    format,
                    ExportFormat::Splats(SplatFormat::Sog(_) | SplatFormat::SogFolder(_))
                ),
            "--refit is for SOG in one file (.sog) or a folder (meta.json), not for other formats or streamed SOG. Leave it \
             out",
        ),
        (
            is_refit && (!place.crop.is_empty() || place.crop_sphere.is_some()),
            "--refit and --crop: the photographs show what is cut off, and what is left would take its \
             colours. Leave one of them out",
        ),
        (args.colors == Some(VertexColors::Photographs) && args.model_path.is_none(), NO_MODEL),
    ])
}

/// Error of `--refit` without harmonics.
pub(super) const NO_HARMONICS: &str = "--refit makes up for harmonics that Gaussians share, and there are none above degree 0. Leave it out";

// `--colors photographs`: fits the vertex colours of triangles to the training photographs.

const FLAG: &str = "--colors photographs";

/// Error of the option without a model folder.
const NO_MODEL: &str = "--colors photographs fits colours to the photographs of a model's training. Give -m MODEL \
                        instead of a file";

/// Fits the colours of the whole mesh in training coordinates. Returns `None` unless `--colors photographs` is given.
pub(super) fn fit_to_photographs(
    args: &ExportArgs,
    mesh: &mut Mesh,
    matches: &ArgMatches,
) -> anyhow::Result<Option<VertexFit>> {
    if args.colors != Some(VertexColors::Photographs) {
        return Ok(None);
    }
    let Some(model_path) = args.model_path.clone() else {
        anyhow::bail!(UsageError::new(NO_MODEL))
    };
    let run = RunOptions::default();
    let opened = open_trained_scene(args, model_path.clone(), run, FLAG, matches)?;
    if opened.dataset.train.is_empty() {
        anyhow::bail!(DataError(format!(
            "{FLAG}: the scene has none of the photographs that the model was trained on. Name theirs with -s, or \
             give --colors views"
        )));
    }
    let exposures = exposures(TextureSource::Photographs, &model_path, &opened)?;
    let Opened { config, dataset, images, .. } = &opened;
    let mut views = Views::new(dataset, images);
    let background = config.scene.background_color().0;
    let fit = fit_vertex_colors(mesh, &mut views, background, &exposures);
    warn_about_images(&mut views);
    Ok(Some(fit.ok_or_else(|| none_to_compare(&views, Split::Train))?))
}

/// Opens the scene with the model's training views only. Errors begin with the flag that needs the scene.
pub(super) fn open_trained_scene(
    args: &ExportArgs,
    model_path: PathBuf,
    run: RunOptions,
    flag: &'static str,
    matches: &ArgMatches,
) -> anyhow::Result<Opened> {
    let named = ModelArgs {
        model_path,
        iteration: args.iteration,
        quiet: args.quiet,
        scene: SceneOptions {
            source_path: args.sog.source_path.clone(),
            ..SceneOptions::default()
        },
        memory: MemoryOptions::default(),
        run,
    };
    let mut model = named.read(matches).context(flag)?;
    model.train_only_seen();
    model.open(None).context(flag)
}

// Writing a SOG. A GPU speeds up the palette search and measures the visibility of each Gaussian.

/// Minimum number of Gaussians for a GPU. Fewer are written before a GPU has started.
const MIN_GAUSSIANS_FOR_GPU: usize = 20_000;

/// Gaussians to write, with their target.
pub(super) struct SogExport<'a> {
    pub(super) to: &'a Path,
    pub(super) splats: &'a Splats,
    pub(super) format: &'a SplatFormat,
    /// Near plane, units of the placed scene.
    pub(super) near: f64,
    /// Scene that the colours are fitted to.
    pub(super) refit: Option<&'a Refit>,
}

impl SogExport<'_> {
    /// Returns the cameras of the format's options.
    fn cameras(&self) -> &[SceneCamera] {
        match self.format {
            SplatFormat::Sog(options) | SplatFormat::SogFolder(options) => &options.cameras,
            SplatFormat::StreamedSog(options) => &options.sog.cameras,
            _ => &[],
        }
    }

    /// True if the format has a palette of harmonics to search for.
    fn has_palette(&self) -> bool {
        let is_sog = matches!(
            self.format,
            SplatFormat::Sog(_) | SplatFormat::SogFolder(_) | SplatFormat::StreamedSog(_)
        );
        is_sog && self.splats.sh_degree() > 0 && !self.splats.is_empty()
    }

    pub(super) fn write(self, device: DeviceChoice) -> anyhow::Result<WriteReport> {
        let count = self.splats.len();
        let has_gpu =
            || gpu::is_present() && gpu::kernels().is_some() && count >= MIN_GAUSSIANS_FOR_GPU;
        if let Some(refit) = self.refit {
            return Ok(device::on(&refit.options, self)??);
        }
        if !self.has_palette() || device.is_cpu(has_gpu) {
            return Ok(write(self.to, self.splats, self.format)?);
        }
        let mut config = Config::default();
        config.run.device = DeviceChoice::Cuda;
        let (to, splats, format) = (self.to, self.splats, self.format);
        match device::on(&DeviceOptions::of(&config), self) {
            Ok(written) => Ok(written?),
            Err(error) if device == DeviceChoice::Auto => {
                tracing::warn!(
                    "the GPU cannot be used: {error:#}. The palette of harmonics is searched for on the \
                     processor, which takes longer; --device cpu does so without asking"
                );
                Ok(write(to, splats, format)?)
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns the near plane that training with these cameras uses without `--near-share`.
fn near_of(cameras: &[SceneCamera]) -> f64 {
    let centres = || cameras.iter().map(|camera| camera.position);
    let mean = scale(centres().fold([0.0; 3], add), 1.0 / cameras.len().max(1) as f64);
    let reach = centres().map(|centre| length(sub(centre, mean))).fold(0.0, f64::max);
    let is_spread = reach > f64::EPSILON * length(mean);
    if is_spread { RenderSettings::DEFAULT.near * reach } else { f64::INFINITY }
}

impl Task for SogExport<'_> {
    /// Errors of the file format are part of the output, not failures of the device.
    type Output = Result<WriteReport, SplatFileError>;

    fn run<B: TrainDevice>(self, device: &mut B) -> anyhow::Result<Self::Output> {
        let cameras = self.cameras();
        // A small scene needs a nearer plane, as in training without `--near-share`.
        let near = self.near.min(near_of(cameras));
        let seen = match cameras {
            [] => None,
            _ => drawn_observations(device, self.splats, cameras, near)
                .map_err(|error| {
                    tracing::warn!(
                        "the Gaussians cannot be drawn: {error}. How much each counts in the palette of \
                         harmonics is estimated from the cameras alone"
                    );
                })
                .ok(),
        };
        let Self { to, splats, format, refit, .. } = self;
        let mut failure = None;
        let fit = |device: &mut B, stored: Splats, alike: &SharedRows| match refit?
            .fit(device, stored, alike)
        {
            Ok(fitted) => Some(fitted),
            Err(error) => {
                failure = Some(error.context("--refit"));
                None
            }
        };
        let written = with_device(device, fit, |tools| {
            let fit = refit.map(|_| tools as &dyn ColorFit);
            let tools = SogTools { search: tools, seen: seen.as_ref(), fit };
            write_with(to, splats, format, &tools)
        });
        failure.map_or(Ok(written), Err)
    }
}

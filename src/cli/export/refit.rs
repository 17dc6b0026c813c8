//! `--refit`: the colours of a SOG are fitted to the photographs that its model was trained on.

use clap::ArgMatches;
use splat_formats::{ScenePlacement, SharedRows, Splats};

use super::args::{ExportArgs, ExportFormat, FilePlacement};
use super::trained_scene;
use crate::backend::{RenderSettings, TrainDevice};
use crate::cli::device::DeviceOptions;
use crate::cli::exit::UsageError;
use crate::cli::scene::Opened;
use crate::config::{Config, RunOptions};
use crate::dataset::{Dataset, ImageLoader};
use crate::sog::{RefitScene, footprint_of};

/// A model with its photographs, and how its export goes back to where it was trained.
pub(super) struct Refit {
    config: Config,
    dataset: Dataset,
    images: ImageLoader,
    options: DeviceOptions,
    back: Vec<ScenePlacement>,
    images_drawn: u32,
}

impl Refit {
    /// Opens the scene of the model, where colours are to be fitted.
    pub(super) fn open(
        args: &ExportArgs,
        placement: &FilePlacement,
        matches: &ArgMatches,
    ) -> anyhow::Result<Option<Self>> {
        let Some((images_drawn, model_path)) = args.sog.refit.zip(args.model_path.clone()) else {
            return Ok(None);
        };
        let run = RunOptions { device: args.sog.device, ..RunOptions::default() };
        let Opened { config, dataset, images, .. } =
            trained_scene::open(args, model_path, run, "--refit", matches)?;
        let options = DeviceOptions::of_surface(&config, matches);
        let steps = placement.steps.iter().rev();
        let back = steps.map(ScenePlacement::inverse).collect::<Result<_, _>>()?;
        Ok(Some(Self { config, dataset, images, options, back, images_drawn }))
    }

    pub(super) fn device_options(&self) -> DeviceOptions {
        self.options.clone()
    }

    /// Fits the colours where the photographs were taken.
    pub(super) fn fit<B: TrainDevice>(
        &self,
        device: &mut B,
        mut stored: Splats,
        alike: &SharedRows,
    ) -> anyhow::Result<Splats> {
        let Self { config, dataset, images, .. } = self;
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

/// Fails where colours are to be fitted that no photograph can be compared with, or that are not shared.
pub(super) fn check(args: &ExportArgs, format: ExportFormat) -> Result<(), UsageError> {
    if args.sog.refit.is_none() {
        return Ok(());
    }
    if args.model_path.is_none() {
        return Err(UsageError(
            "--refit fits colours to the photographs of a model's training. Give -m MODEL instead of a file"
                .to_owned(),
        ));
    }
    if args.cut.sh_degree == 0 {
        return Err(no_harmonics());
    }
    if !matches!(format, ExportFormat::Sog | ExportFormat::SogFolder) {
        return Err(UsageError(
            "--refit is for SOG in one file (.sog) or a folder (meta.json), not for other formats or streamed SOG. Leave it \
                 out"
                .to_owned(),
        ));
    }
    if !args.cut.place.crop.is_empty() || args.cut.place.crop_sphere.is_some() {
        return Err(UsageError(
            "--refit and --crop: the photographs show what is cut off, and what is left would take its \
             colours. Leave one of them out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Without harmonics nothing is shared, and nothing is lost that could be made up for.
pub(super) fn no_harmonics() -> UsageError {
    UsageError(
        "--refit makes up for harmonics that Gaussians share, and there are none above degree 0. Leave it out"
            .to_owned(),
    )
}

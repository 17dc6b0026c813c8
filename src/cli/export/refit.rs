//! `--refit`: the colours of a SOG are fitted to the photographs that its model was trained on.

use std::path::Path;

use anyhow::Context as _;
use clap::ArgMatches;
use splat_formats::{ScenePlacement, SharedRows, Splats};

use super::args::{ExportArgs, ExportFormat};
use crate::backend::{RenderSettings, TrainDevice};
use crate::cli::device::DeviceOptions;
use crate::cli::exit::UsageError;
use crate::cli::scene::{ModelArgs, Opened};
use crate::config::{MemoryOptions, RunOptions, SceneOptions};
use crate::sog::RefitScene;
use crate::train::render_footprint;

/// A model with its photographs, and how its export goes back to where it was trained.
pub(super) struct Refit {
    opened: Opened,
    options: DeviceOptions,
    back: Vec<ScenePlacement>,
    images_drawn: u32,
}

impl Refit {
    /// Opens the scene of the model, where colours are to be fitted.
    pub(super) fn open(
        args: &ExportArgs,
        format: ExportFormat,
        matches: &ArgMatches,
    ) -> anyhow::Result<Option<Self>> {
        let Some(images_drawn) = args.sog.refit else { return Ok(None) };
        let model_path = check(args, format)?;
        let model = ModelArgs {
            model_path: model_path.to_owned(),
            iteration: args.iteration,
            quiet: args.quiet,
            scene: SceneOptions {
                source_path: args.sog.source_path.clone(),
                ..SceneOptions::default()
            },
            memory: MemoryOptions::default(),
            run: RunOptions { device: args.sog.device, ..RunOptions::default() },
        };
        let opened = model.read(matches)?.open(None).context("--refit")?;
        let options = DeviceOptions::of_surface(&opened.config, matches);
        let placements = args.place.placements();
        let back =
            placements.iter().rev().map(ScenePlacement::inverse).collect::<Result<_, _>>()?;
        Ok(Some(Self { opened, options, back, images_drawn }))
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
        let Opened { config, dataset, images, .. } = &self.opened;
        let geometry = stored.clone();
        for placement in &self.back {
            stored.place(placement)?;
        }
        let scene = RefitScene {
            dataset,
            images,
            settings: RenderSettings {
                sh_degree: stored.sh_degree(),
                background: config.scene.background_color().0,
                footprint: render_footprint(config),
                ..RenderSettings::DEFAULT
            },
            lambda_dssim: config.optimize.lambda_dssim,
            images_drawn: self.images_drawn,
            seed: config.run.seed,
        };
        let mut fitted = scene.fit(device, stored, alike)?;
        for placement in self.back.iter().rev() {
            fitted.place(&placement.inverse()?)?;
        }
        Ok(fitted.with_geometry_of(&geometry))
    }
}

/// The model, where its photographs can be compared with what is written.
fn check(args: &ExportArgs, format: ExportFormat) -> Result<&Path, UsageError> {
    let Some(model) = &args.model_path else {
        return Err(UsageError(
            "--refit fits colours to the photographs of a model's training: give -m MODEL instead of a file"
                .to_owned(),
        ));
    };
    if !matches!(format, ExportFormat::Sog | ExportFormat::SogFolder) {
        return Err(UsageError(
            "--refit is for SOG in one file (.sog) or in a folder (meta.json): other formats lose too little, \
             and the coarser levels of a streamed SOG fit no photograph. Leave it out"
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
    Ok(model)
}

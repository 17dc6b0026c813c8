//! Pseudo-views of `--ensemble`: mean renders of several models at cameras between the training views.
//!
//! Knowledge distillation (Hinton, Vinyals and Dean 2015): the errors of single models that depend on their seeds
//! average out, and a model that trains on the mean renders keeps most of the gain.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use image::ExtendedColorType;
use rayon::prelude::*;

use super::event::{Completion, Event, Picture, Sink};
use super::{TrainError, Trainer, TrainerSetup};
use crate::backend::TrainDevice;
use crate::config::Config;
use crate::dataset::{Dataset, ImageSource, decode};
use crate::files::{OutputError, create_folder, write_png, write_text};
use crate::math::random::RandomStream;
use crate::model::Gaussians;

/// Inputs of an ensemble.
pub struct EnsembleSetup<'a> {
    /// Set-up of a model of the ensemble. Its dataset has no pseudo-views.
    pub model: TrainerSetup<'a>,
    /// Number of models.
    pub models: u32,
    /// Scene with pseudo-views.
    pub dataset: &'a Dataset,
}

/// Trains the models one after another and writes the mean of their renders of the pseudo-views. Memory holds one model
/// at a time. `start`: Gaussians with which each model starts. Returns the seconds that it took, or `None` if it was stopped.
pub fn draw_pseudo_views<B: TrainDevice>(
    setup: &EnsembleSetup<'_>,
    device: &mut B,
    sink: &mut dyn Sink,
    start: &Gaussians,
) -> Result<Option<f64>, TrainError> {
    let EnsembleSetup { model, models, dataset } = *setup;
    let started = Instant::now();
    let views: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.views[index]).collect();
    let sources: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.sources[index]).collect();
    empty_folder(&sources)?;
    for number in 1..=models {
        let begun = Instant::now();
        let config = with_seed(model.config, number);
        let mut warnings = Warnings { sink };
        let trainer = Trainer::start(
            TrainerSetup { config: &config, ..model },
            device,
            &mut warnings,
            start,
        )?;
        let mut chunk = Vec::new();
        let drawn = trainer.train_and_draw(&views, |at, picture| {
            chunk.push((sources[at], picture));
            if chunk.len() < rayon::current_num_threads() && at + 1 < sources.len() {
                return Ok(());
            }
            let written = chunk.par_drain(..).map(|(source, picture)| add(source, picture, number));
            written.collect()
        })?;
        let Some(gaussians) = drawn else { return Ok(None) };
        tracing::info!(
            "model {number} of {models} of --ensemble: {gaussians} Gaussians in {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
    // Written last, so that the renders are complete where it is.
    write_text(&cameras_path(&sources).unwrap_or_default(), &cameras_text(dataset)?)?;
    Ok(Some(started.elapsed().as_secs_f64()))
}

/// True if the renders of all pseudo-views are there, and were drawn from these cameras.
pub fn has_pseudo_views(dataset: &Dataset) -> bool {
    let sources: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.sources[index]).collect();
    let written = cameras_path(&sources).and_then(|path| fs::read_to_string(path).ok());
    written.is_some()
        && written == cameras_text(dataset).ok()
        && sources.iter().all(|source| source.path.exists())
}

/// Returns the path of the file with the cameras of the pseudo-views, if there are any.
fn cameras_path(sources: &[&ImageSource]) -> Option<PathBuf> {
    Some(sources.first()?.path.with_file_name("cameras.json"))
}

/// Returns the cameras of the pseudo-views as JSON, in coordinates of the dataset's frame.
fn cameras_text(dataset: &Dataset) -> Result<String, OutputError> {
    let views: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.views[index]).collect();
    serde_json::to_string(&views)
        .map_err(|error| OutputError::new(Path::new("cameras.json"), std::io::Error::other(error)))
}

/// Returns the options of a model of the ensemble, with its own seed (below 2^63, as configurations need).
fn with_seed(config: &Config, number: u32) -> Config {
    let mut config = config.clone();
    config.run.seed = RandomStream::of_seed(config.run.seed).bits(number.into()) >> 1;
    config
}

/// Creates the folder of the pseudo-views, without those of an earlier run.
fn empty_folder(sources: &[&ImageSource]) -> Result<(), OutputError> {
    let Some(folder) = sources.first().and_then(|source| source.path.parent()) else {
        return Ok(());
    };
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|source| OutputError::new(folder, source))?;
    }
    create_folder(folder).map(drop)
}

/// Adds the render of model `number` (from 1) to the mean of those before. The mean is kept in 8 bits, so that each
/// model adds a rounding error of at most half a step divided by the number of later models.
fn add(source: &ImageSource, picture: Picture, number: u32) -> Result<(), TrainError> {
    let Picture { width, height, rgb } = picture;
    let rgb = if number == 1 { rgb } else { mean_with(&earlier(source)?, &rgb, number) };
    Ok(write_png(&source.path, [width, height], &rgb, ExtendedColorType::Rgb8)?)
}

/// Reads the mean render of the earlier models.
fn earlier(source: &ImageSource) -> Result<Vec<u8>, OutputError> {
    let unread = |error| OutputError::new(&source.path, std::io::Error::other(error));
    Ok(decode(source).map_err(unread)?.rgb)
}

/// Returns the mean of `number` values: the mean of all but the last, and the last.
fn mean_with(mean: &[u8], last: &[u8], number: u32) -> Vec<u8> {
    let of_two = |(&mean, &last): (&u8, &u8)| {
        let sum = u32::from(mean) * (number - 1) + u32::from(last);
        u8::try_from((sum + number / 2) / number).unwrap_or(u8::MAX)
    };
    mean.iter().zip(last).map(of_two).collect()
}

/// Sink that passes on the warnings and memory fallbacks of a model of the ensemble. Its steps are no steps of the run.
struct Warnings<'a> {
    sink: &'a mut dyn Sink,
}

impl Sink for Warnings<'_> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Warning { .. } | Event::Fallback { .. } => self.sink.on(event),
            _ => Ok(()),
        }
    }

    fn written(&mut self) -> Vec<Completion> {
        self.sink.written()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_models_one_after_another_are_within_a_step_of_their_mean() {
        let renders = [[10, 255, 0], [20, 255, 1], [60, 254, 0], [3, 255, 0_u8]];
        let mut mean = renders[0].to_vec();
        for (number, render) in (2..).zip(&renders[1..]) {
            mean = mean_with(&mean, render, number);
        }
        for (channel, mean) in mean.into_iter().enumerate() {
            let sum: u32 = renders.iter().map(|render| u32::from(render[channel])).sum();
            // Three roundings: at most (2 / 4 + 3 / 4 + 1) / 2 steps.
            assert!((f64::from(mean) - f64::from(sum) / 4.0).abs() <= 1.125, "{channel}: {mean}");
        }
    }

    #[test]
    fn models_have_seeds_of_their_own() {
        let config = Config::default();
        let seeds = [1, 2, 3].map(|number| with_seed(&config, number).run.seed);
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && !seeds.contains(&config.run.seed));
    }
}

//! Pseudo-views of `--ensemble`: mean renders of several models at cameras between the training views.
//!
//! Knowledge distillation (Hinton, Vinyals and Dean 2015): the errors of single models that depend on their seeds
//! average out, and a model that trains on the mean renders keeps most of the gain.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use image::ExtendedColorType;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::event::{Completion, Event, Picture, Sink};
use super::{TrainError, Trainer, TrainerSetup};
use crate::backend::TrainDevice;
use crate::config::Config;
use crate::dataset::{Dataset, ImageSource, decode};
use crate::files::{OutputError, create_folder, remove_if_there, write_png, write_text};
use crate::math::random::RandomStream;
use crate::model::Gaussians;

/// Number of renders that are held before they are written.
const CHUNK: usize = 8;

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
    let folder = clear_folder(&sources)?;
    let mut problems = Problems { sink, known: BTreeSet::new() };
    tracing::info!(is_headline = true, "an ensemble of {models} models trains first");
    for number in 1..=models {
        let begun = Instant::now();
        let config = with_seed(model.config, number);
        let of_model = TrainerSetup { config: &config, ..model };
        let trainer = Trainer::start(of_model, device, &mut problems, start)?;
        let mut chunk = Vec::new();
        let drawn = trainer.train_and_draw(&views, |at, picture| {
            chunk.push((sources[at], picture));
            if chunk.len() < CHUNK && at + 1 < sources.len() {
                return Ok(());
            }
            let written = chunk.par_drain(..).map(|(source, picture)| add(source, picture, number));
            written.collect()
        });
        let drawn = drawn.map_err(|error| match error {
            TrainError::Output(source) if source.is_for_space() => {
                TrainError::NoSpace { source, checkpoint: None }
            }
            other => other,
        })?;
        let Some(gaussians) = drawn else { return Ok(None) };
        tracing::info!(
            is_headline = true,
            "model {number} of {models} of the ensemble: {gaussians} Gaussians, {:.1} s",
            begun.elapsed().as_secs_f64()
        );
    }
    // Written last, so that the renders are complete if it exists.
    let text = describe(dataset, &folder)?;
    write_text(&folder.join(CAMERAS), &text)?;
    Ok(Some(started.elapsed().as_secs_f64()))
}

/// File with the cameras of the pseudo-views and the sizes of their renders, beside these.
pub const CAMERAS: &str = "cameras.json";

/// Checks that a folder has the renders of all pseudo-views, and that they were drawn from these cameras. Returns what is
/// wrong.
pub fn check_pseudo_views(dataset: &Dataset, folder: &Path) -> Result<(), String> {
    let path = folder.join(CAMERAS);
    let written =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = describe(dataset, folder).map_err(|error| error.to_string())?;
    if written == found {
        return Ok(());
    }
    Err(format!(
        "{}: its renders have changed, or belong to other training views or another --seed",
        path.display()
    ))
}

/// Describes the pseudo-views as JSON: cameras in the dataset's frame, and the sizes of their renders in bytes.
fn describe(dataset: &Dataset, folder: &Path) -> Result<String, OutputError> {
    let of_view = |&index: &usize| {
        let view = &dataset.views[index];
        let path = folder.join(dataset.sources[index].path.file_name().unwrap_or_default());
        let about = fs::metadata(&path).map_err(|source| OutputError::new(&path, source))?;
        Ok(json!({ "camera": view.camera, "pose": view.pose, "bytes": about.len() }))
    };
    let views = dataset.pseudo.iter().map(of_view).collect::<Result<Vec<_>, OutputError>>()?;
    Ok(Value::from(views).to_string())
}

/// Returns the options of a model of the ensemble, with its own seed (below 2^63, as configurations need).
fn with_seed(config: &Config, number: u32) -> Config {
    let mut config = config.clone();
    config.run.seed = RandomStream::of_seed(config.run.seed).bits(number.into()) >> 1;
    config
}

/// Creates the folder of the pseudo-views. Removes the files of an earlier ensemble, and no others.
fn clear_folder(sources: &[&ImageSource]) -> Result<PathBuf, OutputError> {
    let folder = sources.first().and_then(|source| source.path.parent()).unwrap_or(Path::new(""));
    create_folder(folder)?;
    let unread = |source| OutputError::new(folder, source);
    for file in fs::read_dir(folder).map_err(unread)? {
        let path = file.map_err(unread)?.path();
        let is_render = path.extension().is_some_and(|extension| extension == "png")
            && path.file_stem().and_then(OsStr::to_str).is_some_and(|stem| {
                stem.len() >= 5 && stem.bytes().all(|digit| digit.is_ascii_digit())
            });
        if is_render || path.file_name() == Some(OsStr::new(CAMERAS)) {
            remove_if_there(&path)?;
        }
    }
    Ok(folder.to_owned())
}

/// Adds the render of model `number` (from 1) to the mean of those before. The mean has 8 bits, and the rounding after
/// model k changes the mean of N models by at most k / (2 N) steps.
fn add(source: &ImageSource, picture: Picture, number: u32) -> Result<(), TrainError> {
    let Picture { width, height, rgb } = picture;
    let rgb = if number == 1 { rgb } else { mean_with(&decode(source)?.rgb, &rgb, number) };
    Ok(write_png(&source.path, [width, height], &rgb, ExtendedColorType::Rgb8)?)
}

/// Returns the mean of `number` values: the mean of all but the last, and the last.
fn mean_with(mean: &[u8], last: &[u8], number: u32) -> Vec<u8> {
    let of_two = |(&mean, &last): (&u8, &u8)| {
        let sum = u32::from(mean) * (number - 1) + u32::from(last);
        u8::try_from((sum + number / 2) / number).unwrap_or(u8::MAX)
    };
    mean.iter().zip(last).map(of_two).collect()
}

/// Sink that passes on the warnings and memory fallbacks of the models of an ensemble. Their steps are no steps of the run.
struct Problems<'a> {
    sink: &'a mut dyn Sink,
    /// Warnings so far: each model has the same photographs.
    known: BTreeSet<String>,
}

impl Sink for Problems<'_> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Warning { message, .. } if self.known.insert(message.clone()) => {
                self.sink.on(event)
            }
            Event::Fallback { change, held, budget, .. } => self.sink.on(&Event::Fallback {
                iteration: 0,
                change: *change,
                held: *held,
                budget: *budget,
            }),
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

//! Pseudo-views of `--ensemble`: mean renders of several models at cameras between the training views.
//!
//! Knowledge distillation (Hinton, Vinyals and Dean 2015): the errors of single models that depend on their seeds
//! average out, and a model that trains on the mean renders keeps most of the gain.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use image::ExtendedColorType;
use serde_json::{Value, json};

use super::event::{Completion, Event, Picture, Sink};
use super::{TrainError, Trainer, TrainerSetup};
use crate::backend::TrainDevice;
use crate::config::{Config, TimeBudget};
use crate::dataset::{Dataset, ImageSource, View, decode};
use crate::files::{OutputError, create_folder, remove_if_there, write_png, write_text};
use crate::math::random::RandomStream;
use crate::model::Gaussians;

/// Largest number of renders that are held before they are written.
const MOST_HELD: usize = 16;

/// Inputs of an ensemble.
pub struct EnsembleSetup<'a> {
    /// Set-up of a model of the ensemble. Its dataset has no pseudo-views.
    pub model: TrainerSetup<'a>,
    /// Number of models. With a time budget, the largest number.
    pub models: u32,
    /// Scene with pseudo-views.
    pub dataset: &'a Dataset,
    /// Images of the final model, at most.
    pub final_images: u64,
}

/// Result of an ensemble.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ensemble {
    /// The pseudo-views are drawn.
    Drawn {
        /// Models that were trained.
        models: u32,
        /// Time that it took.
        seconds: f64,
    },
    /// The time budget is too short. Nothing is drawn.
    TooShort {
        /// Time until this was known.
        seconds: f64,
    },
    /// The run was stopped.
    Stopped,
}

/// Trains the models one after another and writes the mean of their renders of the pseudo-views. Memory holds one model
/// at a time. `start`: Gaussians with which each model starts.
pub fn draw_pseudo_views<B: TrainDevice>(
    setup: &EnsembleSetup<'_>,
    device: &mut B,
    sink: &mut dyn Sink,
    start: &Gaussians,
) -> Result<Ensemble, TrainError> {
    let EnsembleSetup { model, models, dataset, final_images } = *setup;
    let started = Instant::now();
    let seconds = || started.elapsed().as_secs_f64();
    let views: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.views[index]).collect();
    let sources: Vec<_> = dataset.pseudo.iter().map(|&index| &dataset.sources[index]).collect();
    let mut clock = model.config.optimize.time_budget.map(|budget| Clock::new(budget.seconds()));
    // A time budget leaves the number open.
    let of_models = if clock.is_some() { String::new() } else { format!(" of {models}") };
    let mut problems = Problems { sink, known: BTreeSet::new() };
    let mut folder = None;
    let mut done = 0;
    while done < models {
        let begun = seconds();
        let least = LEAST_BY_CLOCK.min(models);
        if done >= least && clock.is_some_and(|clock| !clock.has_time(begun)) {
            break;
        }
        let number = done + 1;
        let mut config = with_seed(model.config, number);
        if let Some(clock) = clock {
            let left = (clock.of_models - begun) / f64::from(least.saturating_sub(done).max(1));
            if left <= 0.0 {
                break;
            }
            config.optimize.time_budget = Some(TimeBudget::of_seconds(left));
        }
        let of_model = TrainerSetup { config: &config, ..model };
        let mut trainer = Trainer::start(of_model, device, &mut problems, start)?;
        if let Some(clock) = clock.filter(|_| number == 1) {
            let photographs = model.dataset.train.len();
            if let Some(end) = probe(&mut trainer, &clock, [photographs, least as usize], seconds)?
            {
                return Ok(end);
            }
        }
        if folder.is_none() {
            folder = Some(clear_folder(&sources)?);
            tracing::info!(is_headline = true, "an ensemble{of_models} trains first");
        }
        if !trainer.train_alone(|_| false)? || !draw(&mut trainer, &views, &sources, number)? {
            return Ok(Ensemble::Stopped);
        }
        let took = seconds() - begun;
        tracing::info!(
            is_headline = true,
            "model {number}{of_models} of the ensemble: {} Gaussians, {took:.1} s",
            trainer.gaussians(),
        );
        if let Some(clock) = &mut clock {
            clock.finish_model(took, trainer.images_done(), final_images);
        }
        done = number;
    }
    // Written last, so that the renders are complete if it exists.
    let folder = folder.unwrap_or_default();
    let text =
        describe(dataset, &folder).map_err(|(path, source)| OutputError::new(&path, source))?;
    write_text(&folder.join(CAMERAS), &text)?;
    Ok(Ensemble::Drawn { models: done, seconds: seconds() })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws the pseudo-views and adds them to the means of earlier models, on threads beside the device. Returns false if
/// it was stopped.
fn draw<B: TrainDevice>(
    trainer: &mut Trainer<'_, B>,
    views: &[&View],
    sources: &[&ImageSource],
    number: u32,
) -> Result<bool, TrainError> {
    let failed = Mutex::new(None);
    let most = rayon::current_num_threads().min(MOST_HELD);
    let (begin, end) = sync_channel(most);
    let end = Mutex::new(end);
    let drawn = rayon::in_place_scope(|scope| {
        trainer.draw(views, |at, picture| {
            if let Some(error) = lock(&failed).take() {
                return Err(error);
            }
            // Waits while many renders are held.
            let _ = begin.send(());
            let (failed, end) = (&failed, &end);
            scope.spawn(move |_| {
                if let Err(error) = add(sources[at], picture, number) {
                    *lock(failed) = Some(error);
                }
                let _ = lock(end).recv();
            });
            Ok(())
        })
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    match failed.map_or(drawn, Err) {
        Err(TrainError::Output(source)) if source.is_for_space() => {
            Err(TrainError::NoSpace { source, checkpoint: None })
        }
        done => done,
    }
}

// Ensembles within a time budget.

/// Time of the models of an ensemble, seconds from its start.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Time of the run.
    all: f64,
    /// Time of the models. The final model has the rest.
    of_models: f64,
    /// Expected time of the next model.
    next: f64,
}

/// Share of a time budget that models of an ensemble may take. The final model needs the rest.
const MODELS_SHARE: f64 = 0.4;

/// Smallest number of models within a time budget. The final model gains more from the time of a single one.
const LEAST_BY_CLOCK: u32 = 2;

/// Share of a time budget that may pass until the time of a model is known.
const PROBE_SHARE: f64 = 0.05;

/// Time of a model by the time of its first images, which have fewer Gaussians.
const GROWTH: f64 = 1.5;

impl Clock {
    fn new(all: f64) -> Self {
        Self { all, of_models: MODELS_SHARE * all, next: 0.0 }
    }

    /// True if another model can be trained, `seconds` after the start.
    fn has_time(&self, seconds: f64) -> bool {
        seconds + self.next <= self.of_models
    }

    /// Uses the time of a model, and what the final model leaves of the budget: it has at most `final_images`.
    fn finish_model(&mut self, seconds: f64, images: u32, final_images: u64) {
        self.next = seconds;
        let of_final = final_images as f64 * seconds / f64::from(images.max(1));
        self.of_models = (self.all - of_final).max(MODELS_SHARE * self.all);
    }
}

/// Trains the first two passes of the first model: the first pass decodes the photographs, the second is measured.
/// Returns the end of the ensemble if it was stopped, or if this number of models will not end in time.
fn probe<B: TrainDevice>(
    trainer: &mut Trainer<'_, B>,
    clock: &Clock,
    [photographs, models]: [usize; 2],
    seconds: impl Fn() -> f64,
) -> Result<Option<Ensemble>, TrainError> {
    let photographs = u32::try_from(photographs).unwrap_or(u32::MAX);
    let mut decoded = None;
    let mut is_late = false;
    let goes_on = trainer.train_alone(|images| {
        if images >= photographs && decoded.is_none() {
            decoded = Some((images, seconds()));
        }
        is_late = seconds() > PROBE_SHARE * clock.all;
        is_late || decoded.is_some_and(|(before, _)| images - before >= photographs)
    })?;
    if !goes_on {
        return Ok(Some(Ensemble::Stopped));
    }
    let now = seconds();
    let too_short = Ok(Some(Ensemble::TooShort { seconds: now }));
    let Some((before, then)) = decoded.filter(|_| !is_late) else { return too_short };
    let images = trainer.images_done();
    let of_image = (now - then) / f64::from(images.saturating_sub(before).max(1));
    let left = f64::from(trainer.most_images().saturating_sub(images));
    let of_model = now + left * of_image * GROWTH;
    tracing::debug!("a model of the ensemble is expected to take {of_model:.1} s");
    if models as f64 * of_model <= clock.of_models { Ok(None) } else { too_short }
}

/// File with the cameras of the pseudo-views and the sizes of their renders, beside these.
pub const CAMERAS: &str = "cameras.json";

/// Checks that a folder has the renders of all pseudo-views, and that they were drawn from these cameras. Returns what is
/// wrong.
pub fn check_pseudo_views(dataset: &Dataset, folder: &Path) -> Result<(), String> {
    let path = folder.join(CAMERAS);
    let written =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let found = describe(dataset, folder)
        .map_err(|(path, source)| format!("{}: {source}", path.display()))?;
    if written == found {
        return Ok(());
    }
    Err(format!(
        "{}: its renders have changed, or belong to other training views or another --seed",
        path.display()
    ))
}

/// Describes the pseudo-views as JSON: cameras in the dataset's frame, and the sizes of their renders in bytes.
fn describe(dataset: &Dataset, folder: &Path) -> Result<String, (PathBuf, io::Error)> {
    let of_view = |&index: &usize| {
        let view = &dataset.views[index];
        let path = folder.join(dataset.sources[index].path.file_name().unwrap_or_default());
        let about = fs::metadata(&path).map_err(|source| (path, source))?;
        Ok(json!({ "camera": view.camera, "pose": view.pose, "bytes": about.len() }))
    };
    let views = dataset.pseudo.iter().map(of_view).collect::<Result<Vec<_>, _>>()?;
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

/// Adds the render of model `number` (from 1) to the mean of those before. The mean has 8 bits, so that a model counts
/// where it differs from the mean by at least half as many steps as its number: models after about the tenth change
/// little.
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
    fn models_leave_the_final_model_its_time_and_use_what_it_does_not_need() {
        let mut clock = Clock::new(60.0);
        clock.finish_model(3.0, 6000, 60_000);
        // The final model would need 30 s for 60,000 images, and has 36.
        assert!(
            (clock.of_models, clock.has_time(27.0), clock.has_time(27.1)) == (30.0, true, false)
        );
        clock.finish_model(3.0, 6000, u64::MAX);
        assert!(
            (clock.of_models, clock.has_time(21.0), clock.has_time(21.1)) == (24.0, true, false)
        );
    }

    #[test]
    fn models_have_seeds_of_their_own() {
        let config = Config::default();
        let seeds = [1, 2, 3].map(|number| with_seed(&config, number).run.seed);
        assert!(seeds[0] != seeds[1] && seeds[1] != seeds[2] && !seeds.contains(&config.run.seed));
    }
}

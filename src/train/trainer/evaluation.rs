//! Evaluations during a run.

use std::time::Instant;

use super::Trainer;
use super::saving::has_room;
use super::state::ReachedPsnr;
use crate::backend::TrainDevice;
use crate::config::{MetricSet, TrainSample};
use crate::memory::plan::{PICTURED_VIEWS, PICTURES_OF_VIEW};
use crate::memory::{Bytes, TrainingScale};
use crate::train::appearance::compensation;
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use crate::train::event::{Completion, Event, Phase, Split};
use crate::train::{MemoryFallbacks as _, TrainError, report, schedule};

impl<'a, B: TrainDevice> Trainer<'a, B> {
    /// Evaluates the held-out views and some training views, if there are any.
    pub(super) fn evaluate(&mut self) -> Result<(), TrainError> {
        let has_test = !self.setup.dataset.test.is_empty();
        if has_test {
            let shown = ShownViews::First(PICTURED_VIEWS);
            self.evaluate_split(Split::Test, None, shown)?;
        }
        let most = self.train_sample();
        if most != Some(0) {
            // Pictures take most of the time, and those of held-out views show more.
            let shown = ShownViews::First(if has_test { 0 } else { PICTURED_VIEWS });
            self.evaluate_split(Split::EvalTrain, most, shown)?;
        } else if !has_test {
            return Ok(());
        }
        if !self.distributions_are_due() {
            self.with_memory_retry(Self::report_distributions)?;
        }
        Ok(())
    }

    /// Evaluates views at full size. If training needs smaller views, a lack of memory only skips the evaluation.
    fn evaluate_split(
        &mut self,
        split: Split,
        most: Option<usize>,
        shown: ShownViews,
    ) -> Result<(), TrainError> {
        if self.feed.views.training_scale() == TrainingScale::FULL {
            return self.with_memory_retry(|run| run.evaluate_views(split, most, shown));
        }
        match self.evaluate_views(split, most, shown) {
            Err(TrainError::Device(error)) if error.is_out_of_memory() => {
                Ok(self.warn(format!("this evaluation is left out: {error}"))?)
            }
            done => done,
        }
    }

    fn evaluate_views(
        &mut self,
        split: Split,
        most: Option<usize>,
        shown: ShownViews,
    ) -> Result<(), TrainError> {
        let request = EvalRequest {
            shown,
            metrics: self.setup.config.output.metrics,
            surface: if self.is_in_coarse() {
                ShownSurface::WhereItFits
            } else {
                ShownSurface::None
            },
            lpips: self.setup.lpips,
            ..self.plain_request(split, most)
        };
        let (config, extent) = (self.setup.config, self.scale.extent);
        let (device, sink) = (&mut *self.device, &mut *self.sink);
        let evaluation = evaluate(device, &self.model, &mut self.feed.views, &request, |view| {
            sink.on(&report::pictures(&request, view, extent))?;
            // Without memory for more pictures, wait until the queued ones are written.
            if !has_room(config, Bytes(PICTURES_OF_VIEW * view.image.bytes().0)) {
                sink.written().iter().for_each(Completion::wait);
            }
            Ok(())
        })?;
        self.warn_about_images()?;
        match evaluation {
            Some(evaluation) => self.sink.on(&Event::Evaluated(evaluation))?,
            None => {
                let which = if split == Split::Test { "held-out view" } else { "training view" };
                self.warn(format!(
                    "no {which} has an image to measure by; none of them is evaluated"
                ))?;
            }
        }
        Ok(())
    }

    /// Returns the number of training views to evaluate. `None` means all.
    fn train_sample(&self) -> Option<usize> {
        match self.setup.config.output.eval_train {
            TrainSample::Views(count) => Some(count as usize),
            TrainSample::All => None,
        }
    }

    /// Returns a request without pictures and optional metrics.
    fn plain_request(&self, split: Split, most: Option<usize>) -> EvalRequest<'a> {
        let config = self.setup.config;
        EvalRequest {
            split,
            most,
            iteration: self.iteration,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            background: config.scene.background_color().0,
            footprint: self.shown_footprint(),
            compensation: compensation(&config.optimize),
            shown: ShownViews::Nothing,
            metrics: MetricSet::default(),
            surface: ShownSurface::None,
            lpips: None,
        }
    }

    /// Returns the split that a run is judged by: held-out views, or else the sample of training views.
    pub(super) fn judged_split(&self) -> Split {
        if self.setup.dataset.test.is_empty() { Split::EvalTrain } else { Split::Test }
    }

    /// Measures the mean PSNR of the judged views. `None` if none can be measured.
    pub(super) fn mean_psnr(&mut self) -> Result<Option<f64>, TrainError> {
        let split = self.judged_split();
        let most = if split == Split::Test { None } else { self.train_sample() };
        let request = self.plain_request(split, most);
        let (device, views) = (&mut *self.device, &mut self.feed.views);
        let is_full = views.training_scale() == TrainingScale::FULL;
        let evaluation = match evaluate(device, &self.model, views, &request, |_| Ok(())) {
            // If training needs smaller views, full-size evaluation may run out of memory.
            Err(TrainError::Device(error)) if error.is_out_of_memory() && !is_full => {
                self.warn(format!("the PSNR of these views is left out: {error}"))?;
                None
            }
            done => done?,
        };
        self.warn_about_images()?;
        Ok(evaluation.map(|evaluation| evaluation.mean.psnr))
    }
}

// Early ends of a run: `--until-psnr`, the time budget and passes over the views.

/// Approximate number of measurements of the target PSNR in a run.
const MEASUREMENTS: u32 = 20;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Measures the PSNR if that is due after the last step. Returns true if it reaches the target.
    pub(super) fn reaches_psnr(&mut self) -> Result<bool, TrainError> {
        let options = &self.setup.config.optimize;
        let interval = options.iterations.div_ceil(MEASUREMENTS);
        let is_due = self.iteration <= options.iterations
            && (self.last_step.crosses(interval) || self.last_step.hits(options.iterations));
        if options.until_psnr.is_none() || !is_due {
            return Ok(false);
        }
        self.settle_step()?;
        self.has_psnr()
    }

    /// Measures the PSNR. Returns true if it reaches the target.
    pub(super) fn has_psnr(&mut self) -> Result<bool, TrainError> {
        let (options, densify) = (&self.setup.config.optimize, &self.setup.config.densify);
        // A run with `--target-gaussians` must not end before the prune.
        let is_pruned =
            densify.target_gaussians.is_none() || self.iteration > densify.densify_until_iter;
        let Some(wanted) = options.until_psnr.filter(|_| is_pruned) else { return Ok(false) };
        let started = Instant::now();
        self.end_phase(self.phase());
        let measured = self.within_training(|run| run.with_memory_retry(Self::mean_psnr))?;
        self.end_phase(Phase::Evaluation);
        self.feed.schedule_decoding(self.device, self.pace.next_image());
        self.times.evaluation_seconds += started.elapsed().as_secs_f64();
        let Some(psnr) = measured else { return Ok(false) };
        self.reached.best = Some(self.reached.best.map_or(psnr, |best| best.max(psnr)));
        self.reached.is_enough = psnr >= wanted;
        Ok(self.reached.is_enough)
    }

    /// Reports the reason of the run's end besides its iterations, and its result.
    pub(super) fn announce_end(&mut self) -> Result<(), TrainError> {
        let options = &self.setup.config.optimize;
        let progress = self.pace.progress(self.iteration, self.clock.seconds());
        let (images, seconds) = (progress.images, progress.seconds);
        let by_psnr = options.until_psnr.map(|wanted| match self.reached {
            ReachedPsnr { best: Some(best), is_enough: true } => {
                format!("PSNR {best:.2} reaches --until-psnr {wanted} after {images} images")
            }
            ReachedPsnr { best: Some(best), .. } => {
                format!("--until-psnr {wanted} is not reached: the highest PSNR was {best:.2}")
            }
            ReachedPsnr { best: None, .. } => {
                format!("--until-psnr {wanted} is not reached: no view could be measured")
            }
        });
        let by_length = match (options.time_budget, self.pace.most_images()) {
            _ if self.reached.is_enough => None,
            (Some(budget), Some(most)) if images >= most => Some(format!(
                "{images} images in {seconds:.1} s: --max-passes {} ends the time budget of {budget}",
                options.max_passes
            )),
            (Some(budget), _) => Some(format!(
                "{images} images in {seconds:.1} s: the time budget of {budget} is over"
            )),
            (None, Some(most)) if most > options.iterations => Some(format!(
                "{most} images: --min-passes {} asks for more than one an iteration",
                options.min_passes
            )),
            (None, Some(most)) => {
                Some(format!("{most} images: --max-passes {} allows no more", options.max_passes))
            }
            (None, None) => None,
        };
        let views = self.setup.dataset.train.len();
        let is_short = !self.reached.is_enough && (images as usize) < views;
        if options.time_budget.is_some() && is_short {
            self.warn(format!(
                "the run has trained on {images} images, which are fewer than its {views} views: the model is poor. \
                 Give a longer --time-budget, or smaller photographs with -r"
            ))?;
        }
        let iteration = self.iteration;
        for message in by_psnr.into_iter().chain(by_length) {
            self.sink.on(&Event::Ended { iteration, images, message })?;
        }
        Ok(())
    }
}

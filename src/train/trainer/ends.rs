//! What ends a run beside its last iteration: a PSNR that was asked for, the clock, and passes over the views.

use std::time::Instant;

use super::Trainer;
use super::reached_psnr::ReachedPsnr;
use crate::backend::TrainDevice;
use crate::train::TrainError;
use crate::train::event::{Event, Phase};

/// About how often the PSNR that ends a run is measured.
const MEASUREMENTS: u32 = 20;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Measures the views, where that is due after the last step. Whether they have the PSNR that ends the run.
    pub(super) fn reaches_psnr(&mut self) -> Result<bool, TrainError> {
        let options = &self.setup.config.optimize;
        let interval = options.iterations.div_ceil(MEASUREMENTS);
        let is_due = self.iteration <= options.iterations
            && (self.last_step.crosses(interval) || self.last_step.hits(options.iterations));
        if options.until_psnr.is_none() || !is_due {
            return Ok(false);
        }
        self.report_pending()?;
        let started = Instant::now();
        self.device.synchronize()?;
        self.clock.add_since(started);
        self.has_psnr()
    }

    /// The same of a run that goes on from a checkpoint, before its first step.
    pub(super) fn has_reached_psnr(&mut self) -> Result<bool, TrainError> {
        if self.iteration == 0 || self.is_in_coarse() { Ok(false) } else { self.has_psnr() }
    }

    fn has_psnr(&mut self) -> Result<bool, TrainError> {
        let (options, densify) = (&self.setup.config.optimize, &self.setup.config.densify);
        // A run that is to end with fewer Gaussians has to come to their prune.
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

    /// Says what ended a run beside its iterations, and what it has reached.
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

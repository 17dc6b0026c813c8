//! What ends a run beside its last iteration: a PSNR that was asked for, and the clock.

use std::time::Instant;

use super::Trainer;
use super::reached_psnr::ReachedPsnr;
use crate::backend::TrainDevice;
use crate::train::TrainError;
use crate::train::eval::evaluate;
use crate::train::event::{Event, Split};

/// How often the PSNR that ends a run is measured.
const MEASUREMENTS: u32 = 20;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Measures the views, where that is due after the last step. Whether they have the PSNR that ends the run.
    pub(super) fn reaches_psnr(&mut self) -> Result<bool, TrainError> {
        let options = &self.setup.config.optimize;
        let interval = (options.iterations / MEASUREMENTS).max(1);
        let is_due = self.last_step.crosses(interval) && self.iteration <= options.iterations;
        let Some(wanted) = options.until_psnr.filter(|_| is_due) else { return Ok(false) };
        self.report_pending()?;
        let started = Instant::now();
        self.device.synchronize()?;
        self.clock.add_since(started);
        let started = Instant::now();
        let measured = self.with_memory_retry(Self::measured_psnr)?;
        self.times.evaluation_seconds += started.elapsed().as_secs_f64();
        let Some(psnr) = measured else { return Ok(false) };
        self.reached.best = Some(self.reached.best.map_or(psnr, |best| best.max(psnr)));
        self.reached.is_enough = psnr >= wanted;
        Ok(self.reached.is_enough)
    }

    /// Mean over the held-out views, or, where there are none, over the training views that are evaluated;
    /// nothing where no view can be measured.
    fn measured_psnr(&mut self) -> Result<Option<f64>, TrainError> {
        let (split, most) = match self.setup.dataset.test.is_empty() {
            true => (Split::EvalTrain, self.train_sample()),
            false => (Split::Test, None),
        };
        let request = self.plain_request(split, most);
        let views = &mut self.feed.views;
        let evaluation = evaluate(self.device, &self.model, views, &request, |_| Ok(()))?;
        self.feed.schedule_decoding(self.device, self.pace.next_image());
        Ok(evaluation.map(|evaluation| evaluation.mean.psnr))
    }

    /// Says what ended a run that a PSNR or the clock was to end, and what it has reached.
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
        let limited = self.pace.ends_by_images() && images < options.iterations;
        let by_clock = match options.time_budget {
            _ if self.reached.is_enough => None,
            Some(budget) if self.pace.ends_by_images() => Some(format!(
                "{images} images in {seconds:.1} s: --max-passes {} ends the time budget of {budget}",
                options.max_passes
            )),
            Some(budget) => Some(format!(
                "{images} images in {seconds:.1} s: the time budget of {budget} is over"
            )),
            None => limited
                .then(|| format!("{images} images, as --max-passes {} has it", options.max_passes)),
        };
        let iteration = self.iteration;
        for message in by_psnr.into_iter().chain(by_clock) {
            self.sink.on(&Event::Ended { iteration, images, message })?;
        }
        Ok(())
    }
}

//! Views held against their photographs in a run.

use super::Trainer;
use super::saving::has_room;
use crate::backend::TrainDevice;
use crate::config::{MetricSet, TrainSample};
use crate::memory::plan::{PICTURED_VIEWS, PICTURES_OF_VIEW};
use crate::memory::{Bytes, TrainingScale};
use crate::train::appearance::compensation;
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use crate::train::event::{Completion, Event, Split};
use crate::train::{TrainError, report, schedule};

impl<'a, B: TrainDevice> Trainer<'a, B> {
    /// Compares held-out views and some of those trained on, as far as there are any, with their
    /// photographs.
    pub(super) fn evaluate(&mut self) -> Result<(), TrainError> {
        let has_test = !self.setup.dataset.test.is_empty();
        if has_test {
            let shown = ShownViews::First(PICTURED_VIEWS);
            self.evaluate_split(Split::Test, None, shown)?;
        }
        let most = self.train_sample();
        if most != Some(0) {
            // They take most of the time, and held-out views show more.
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

    /// Evaluates views at their full size. Where training has no memory for that, evaluation may not have
    /// any either, and the run must not end for it.
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
            // Where no room is left for others, those that wait are written first.
            if !has_room(config, Bytes(PICTURES_OF_VIEW * view.image.bytes().0)) {
                sink.written().iter().for_each(Completion::wait);
            }
            Ok(())
        })?;
        self.warn_of_images()?;
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

    /// How many of the views trained on are evaluated; all where that is not said.
    fn train_sample(&self) -> Option<usize> {
        match self.setup.config.output.eval_train {
            TrainSample::Views(count) => Some(count as usize),
            TrainSample::All => None,
        }
    }

    /// What is asked of these views where nothing is shown, and nothing but the figures that every
    /// evaluation has is measured.
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

    /// The views by which a run is judged: those held out, or else the sample of those trained on.
    pub(super) fn judged_split(&self) -> Split {
        if self.setup.dataset.test.is_empty() { Split::EvalTrain } else { Split::Test }
    }

    /// Mean PSNR of these views; nothing where none is measured.
    pub(super) fn mean_psnr(&mut self) -> Result<Option<f64>, TrainError> {
        let split = self.judged_split();
        let most = if split == Split::Test { None } else { self.train_sample() };
        let request = self.plain_request(split, most);
        let (device, views) = (&mut *self.device, &mut self.feed.views);
        let is_full = views.training_scale() == TrainingScale::FULL;
        let evaluation = match evaluate(device, &self.model, views, &request, |_| Ok(())) {
            // As of other evaluations.
            Err(TrainError::Device(error)) if error.is_out_of_memory() && !is_full => {
                self.warn(format!("the PSNR of these views is left out: {error}"))?;
                None
            }
            done => done?,
        };
        self.warn_of_images()?;
        Ok(evaluation.map(|evaluation| evaluation.mean.psnr))
    }
}

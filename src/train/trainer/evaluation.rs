//! Evaluations of a run: which views, and how much memory they may take.

use super::Trainer;
use super::saving::has_room;
use crate::backend::TrainDevice;
use crate::config::TrainSample;
use crate::memory::Bytes;
use crate::memory::plan::{PICTURED_VIEWS, PICTURES_OF_VIEW};
use crate::train::appearance::compensation;
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use crate::train::event::{Completion, Event, Split};
use crate::train::{TrainError, render_filter, report, schedule};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Evaluates with no more of the device's memory than training has taken, as far as that can be.
    pub(super) fn evaluate_within_training(&mut self) -> Result<(), TrainError> {
        self.device.aim_below(self.peaks.peaks.vram_of_training())?;
        let done = self.evaluate();
        let aimed = self.device.aim_below(None);
        done.and(Ok(aimed?))
    }

    /// Compares held-out views and some of those trained on, as far as there are any, with their
    /// photographs.
    fn evaluate(&mut self) -> Result<(), TrainError> {
        let has_test = !self.setup.dataset.test.is_empty();
        if has_test {
            let shown = ShownViews::First(PICTURED_VIEWS);
            self.with_memory_retry(|run| run.evaluate_views(Split::Test, None, shown))?;
        }
        let most = match self.setup.config.output.eval_train {
            TrainSample::Views(count) => Some(count as usize),
            TrainSample::All => None,
        };
        if most != Some(0) {
            // They take most of the time, and held-out views show more.
            let shown = ShownViews::First(if has_test { 0 } else { PICTURED_VIEWS });
            self.with_memory_retry(|run| run.evaluate_views(Split::EvalTrain, most, shown))?;
        } else if !has_test {
            return Ok(());
        }
        if !self.distributions_are_due() {
            self.with_memory_retry(Self::report_distributions)?;
        }
        Ok(())
    }

    fn evaluate_views(
        &mut self,
        split: Split,
        most: Option<usize>,
        shown: ShownViews,
    ) -> Result<(), TrainError> {
        let config = self.setup.config;
        let request = EvalRequest {
            split,
            most,
            iteration: self.iteration,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            background: config.scene.background_color().0,
            screen_filter: render_filter(config),
            compensation: compensation(&config.optimize),
            shown,
            metrics: config.output.metrics,
            surface: if self.is_in_coarse() {
                ShownSurface::WhereItFits
            } else {
                ShownSurface::None
            },
            lpips: self.setup.lpips,
        };
        let extent = self.scale.extent;
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
}

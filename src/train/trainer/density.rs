//! Density control in a run: rounds, and what is done to all opacities.

use std::time::Instant;

use super::Trainer;
use crate::backend::{Adjust, TrainDevice};
use crate::train::event::{Event, Phase, Round};
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::{TrainError, strategy};

impl<B: TrainDevice> Trainer<'_, B> {
    /// What the iteration before this one asks of the number of Gaussians and their opacities.
    pub(super) fn control_density(&mut self) -> Result<(), TrainError> {
        let (iteration, span) = (self.iteration, self.last_step);
        let options = &self.setup.config.densify;
        let least = strategy::least_images(options, self.setup.dataset.train.len());
        let is_due = self.strategy.due(span) && self.pace.takes_round(least);
        // Floors of opacities only rise, and say themselves how far.
        let adjust =
            self.strategy.adjust(span, self.pace.images_since_adjustment()).filter(|adjust| {
                matches!(adjust, Adjust::RaiseOpacityFloor { .. })
                    || self.pace.takes_adjustment(options.densification_interval)
            });
        if is_due || adjust.is_some() {
            self.report_pending()?;
        }
        if is_due {
            let started = Instant::now();
            // So that the time of the round is the round's, and not that of the step before.
            self.device.synchronize()?;
            let begun = Instant::now();
            let before = self.device.len(&self.model);
            self.end_phase(Phase::Training);
            let report = self.run_round()?;
            if self.strategy.reorders(span) {
                self.reorder()?;
            }
            self.smooth()?;
            self.device.synchronize()?;
            let ms = begun.elapsed().as_secs_f64() * 1e3;
            let gaussians = self.device.len(&self.model);
            self.clock.add_beside_iterations(started);
            self.sink.on(&Event::Round(Round { iteration, report, gaussians, ms }))?;
            self.creep = UnexplainedGrowth::from(iteration);
            self.profile(Phase::DensityControl)?;
            self.end_phase(Phase::DensityControl);
            if gaussians == 0 && before > 0 {
                return Err(TrainError::Emptied { iteration });
            }
        }
        // Before opacities are lowered, which would hide what a Gaussian is worth.
        self.prune_to_target()?;
        if let Some(adjust) = adjust {
            self.device.adjust(&mut self.model, &adjust)?;
            match adjust {
                Adjust::ResetOpacity(_) | Adjust::FadeOpacity { .. } => {
                    self.sink.on(&Event::OpacityReset { iteration })?;
                }
                Adjust::RaiseOpacityFloor { .. } => {}
            }
        }
        Ok(())
    }
}

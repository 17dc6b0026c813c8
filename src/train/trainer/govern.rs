//! Where a run meets the limits of the device's memory: it asks before it grows, gives things up
//! rather than fail, and where nothing is left to give up it stops with a checkpoint.

use super::Trainer;
use crate::backend::{
    Densified, DensifyRule, DeviceError, Grant, LadderState, RelocateRule, TrainDevice,
};
use crate::memory::Rung;
use crate::train::densify::{self, Round};
use crate::train::event::Event;
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::{TrainError, checkpoint, scene_cube};

/// What a round of density control did.
pub(super) enum RoundResult {
    /// Gaussians were cloned, split and pruned.
    Densified(Densified),
    /// Gaussians moved and got copies.
    Relocated { relocated: usize, born: usize, refused: usize },
}

impl RoundResult {
    /// The event of a round that left so many Gaussians and took so long.
    pub(super) fn to_event(&self, iteration: u32, gaussians: usize, ms: f64) -> Event {
        match *self {
            Self::Densified(Densified { cloned, split, refused, pruned }) => {
                Event::Densified { iteration, cloned, split, refused, pruned, gaussians, ms }
            }
            Self::Relocated { relocated, born, refused } => {
                Event::Relocated { iteration, relocated, born, refused, gaussians, ms }
            }
        }
    }
}

impl<B: TrainDevice> Trainer<'_, B> {
    /// Lets the device put its memory in order, and tells what was given up or taken back.
    pub(super) fn govern(&mut self) -> Result<(), TrainError> {
        self.device.govern(&mut self.model, self.iteration)?;
        self.report_memory_changes()
    }

    fn report_memory_changes(&mut self) -> Result<(), TrainError> {
        let Some(LadderState { changes, held, budget }) = self.device.take_changes() else {
            return Ok(());
        };
        let iteration = self.iteration;
        for change in changes {
            if change.rung == Rung::Compact {
                // The model takes less from now on.
                self.creep = UnexplainedGrowth::from(iteration);
            }
            self.sink.on(&Event::Rung { iteration, change, held, budget })?;
        }
        Ok(())
    }

    /// Does something that leaves the model as it was where it fails. Where memory is short, tries
    /// again as long as something can be given up between two iterations, and then stops the run.
    pub(super) fn with_memory_retry<R>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<R, TrainError>,
    ) -> Result<R, TrainError> {
        loop {
            match work(self) {
                Err(TrainError::Device(error)) if error.is_out_of_memory() => {
                    if !self.device.relieve(&mut self.model, &error)? {
                        return Err(self.stop_for_memory(error));
                    }
                    self.drop_longer_neighbours();
                }
                other => return other,
            }
        }
    }

    /// Writes a checkpoint, so that nothing is lost, and says what the run lacked.
    fn stop_for_memory(&mut self, error: DeviceError) -> TrainError {
        let reported = self.report_pending().and_then(|()| self.report_memory_changes());
        match reported.and_then(|()| self.write_checkpoint()) {
            Ok(_) => TrainError::OutOfMemory {
                source: Box::new(error),
                checkpoint: checkpoint::path(self.setup.model_path, self.iteration),
            },
            Err(other) => other,
        }
    }

    /// A round of density control of a model of so many Gaussians.
    pub(super) fn run_round(
        &mut self,
        round: &Round,
        before: usize,
    ) -> Result<RoundResult, TrainError> {
        Ok(match round {
            Round::Densify(rule) => RoundResult::Densified(self.grow_and_prune(rule)?),
            Round::Relocate(rule) => {
                let [relocated, refused] = self.relocate_and_add(rule)?;
                let born = self.device.len(&self.model) - before;
                RoundResult::Relocated { relocated, born, refused }
            }
        })
    }

    /// A round of density control with as many births as the cap and the memory allow. Where memory
    /// is short in spite of that, a round without births; and where even that is refused, none.
    fn grow_and_prune(&mut self, rule: &DensifyRule) -> Result<Densified, TrainError> {
        let before = self.device.len(&self.model);
        let survey = self.device.survey(&self.model, rule)?;
        let capped = densify::grant(self.setup.config, before, survey).births;
        let births = self.device.grant_births(&mut self.model, capped)?;
        let mut round = |births| self.device.densify(&mut self.model, rule, Grant { births });
        let done = match round(births) {
            Err(error) if error.is_out_of_memory() && births > 0 => round(0),
            done => done,
        };
        self.report_memory_changes()?;
        match done {
            Err(error) if error.is_out_of_memory() => {
                self.warn(format!("a round of density control is left out: {error}"))?;
                Ok(Densified::default())
            }
            done => Ok(done?),
        }
    }

    /// A round in which the dead move to where others are, and as many copies are added as the cap
    /// and the memory allow; what there is no memory for is left out. Says how many moved, and how
    /// many copies there was no memory for.
    fn relocate_and_add(&mut self, rule: &RelocateRule) -> Result<[usize; 2], TrainError> {
        let relocated = match self.device.relocate(&mut self.model, rule) {
            Err(error) if error.is_out_of_memory() => {
                self.warn(format!("transparent Gaussians stay where they are: {error}"))?;
                0
            }
            done => done?,
        };
        let wish = densify::births_wanted(self.setup.config, self.device.len(&self.model));
        let births = self.device.grant_births(&mut self.model, wish)?;
        let added = match self.device.multiply(&mut self.model, rule, births) {
            Err(error) if error.is_out_of_memory() => {
                self.warn(format!("no Gaussians are added: {error}"))?;
                0
            }
            done => done.map(|()| births)?,
        };
        self.report_memory_changes()?;
        Ok([relocated, wish - added])
    }

    /// Puts the Gaussians in the order of their places. That costs speed where there is no memory for
    /// it, and nothing else.
    pub(super) fn reorder(&mut self) -> Result<(), TrainError> {
        match self.device.reorder(&mut self.model, &scene_cube(self.setup.dataset)) {
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians are not put in order: {error}");
                Ok(())
            }
            other => Ok(other?),
        }
    }
}

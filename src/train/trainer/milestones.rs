//! What is due after a step: the PLY, an evaluation, a checkpoint.

use std::time::Instant;

use super::Trainer;
use crate::backend::TrainDevice;
use crate::train::TrainError;
use crate::train::checkpoint::Occasion;
use crate::train::event::Phase;
use crate::train::schedule::Milestones;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Does what is due; a checkpoint where there is an occasion for one. `is_over`: no step follows.
    pub(super) fn meet(
        &mut self,
        due: Milestones,
        occasion: Option<Occasion>,
        is_over: bool,
    ) -> Result<(), TrainError> {
        if due.any() {
            self.end_phase(self.phase());
        }
        let last_files = occasion.filter(|_| is_over && due.save);
        if due.save && last_files.is_none() {
            // First, so that it is written during the evaluation.
            self.save_point_cloud()?;
            self.end_saving()?;
        }
        if due.evaluate {
            let started = Instant::now();
            self.evaluate_within_training()?;
            self.times.evaluation_seconds += started.elapsed().as_secs_f64();
            self.profile(Phase::Evaluation)?;
            self.end_phase(Phase::Evaluation);
        }
        if let Some(occasion) = last_files
            && self.write_last_files(occasion)?
        {
            return self.end_saving();
        }
        if last_files.is_some() {
            self.save_point_cloud()?;
            self.end_saving()?;
        }
        if let Some(occasion) = occasion {
            if is_over {
                // None follows the last one, and no room is kept for it.
                self.write_checkpoint(occasion)?;
                self.end_saving()?;
            } else {
                self.write_checkpoint_between(occasion)?;
            }
        }
        if due.evaluate || due.save {
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        Ok(())
    }

    /// Writes a checkpoint of a run that goes on.
    pub(super) fn write_checkpoint_between(
        &mut self,
        occasion: Occasion,
    ) -> Result<(), TrainError> {
        self.write_checkpoint(occasion)?;
        self.reserve_checkpoint()?;
        // A run that goes on from it has none.
        self.drop_neighbours();
        self.end_saving()
    }

    fn end_saving(&mut self) -> Result<(), TrainError> {
        self.profile(Phase::Saving)?;
        self.end_phase(Phase::Saving);
        Ok(())
    }
}

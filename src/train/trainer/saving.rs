//! What a run saves and when, and how it ends where the disk is full.

use std::path::PathBuf;
use std::time::Instant;

use super::Trainer;
use crate::backend::TrainDevice;
use crate::files::{OutputError, create_folder};
use crate::model::Gaussians;
use crate::train::TrainError;
use crate::train::checkpoint::{self, Checkpoint, Occasion};
use crate::train::event::{Saved, Split};
use crate::train::save::{DeviceModel, render_mode, write_point_cloud};
use crate::train::schedule::Milestones;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Why a checkpoint is written after the step that is done, if one is.
    pub(super) fn checkpoint_occasion(&self, is_asked: bool) -> Option<Occasion> {
        if is_asked {
            return Some(Occasion::Asked);
        }
        let minutes = self.setup.config.output.checkpoint_minutes;
        let is_time = minutes > 0.0 && self.saved_at.elapsed().as_secs_f64() >= 60.0 * minutes;
        // A run that resumes finds its neighbours anew: one that is not stopped must do so, too.
        (is_time && !self.keeps_neighbours()).then_some(Occasion::Time)
    }

    /// Saves the Gaussians as PLY. Where there is no space for it, the run stops with a checkpoint.
    pub(super) fn save_point_cloud(&mut self) -> Result<(), TrainError> {
        match self.with_memory_retry(Self::write_point_cloud) {
            Err(TrainError::Output(error)) if error.is_for_space() => {
                Err(self.stop_for_space(error))
            }
            done => done,
        }
    }

    /// Saves the Gaussians of a run that resumes if it stopped before it could: then its checkpoint is
    /// there, but not the PLY of that iteration.
    pub(super) fn save_missing(&mut self, due: Milestones) -> Result<(), TrainError> {
        let checkpoint = checkpoint::path(self.setup.model_path, self.iteration);
        if due.save && checkpoint.exists() && !self.point_cloud_path().exists() {
            self.save_point_cloud()?;
        }
        Ok(())
    }

    /// Writes a checkpoint, and says so.
    pub(super) fn write_checkpoint(&mut self, occasion: Occasion) -> Result<(), TrainError> {
        let checkpoint = Checkpoint {
            iteration: self.iteration,
            config: self.setup.config.clone(),
            train_views: self.feed.views.names(Split::Train),
            occasion,
            training_scale: self.feed.views.training_scale(),
        };
        let tables = self.read_appearance()?;
        let mut model = DeviceModel { device: &mut *self.device, model: &mut self.model };
        let written = self.keeper.write(&checkpoint, &mut model, tables.as_ref());
        self.saved_at = Instant::now();
        self.warn_of_checkpoints()?;
        match written {
            Ok(Some(path)) => self.saved(Saved::Checkpoint, path),
            Ok(None) => Ok(()),
            Err(TrainError::Output(source)) if source.is_for_space() => {
                let checkpoint = checkpoint::list(self.setup.model_path).into_iter().next();
                Err(TrainError::NoSpace { source, checkpoint })
            }
            Err(error) => Err(error),
        }
    }

    /// Keeps room on the disk for a checkpoint of the model as large as it is now.
    pub(super) fn reserve_checkpoint(&mut self) -> Result<(), TrainError> {
        let (rows, optional) = (self.device.len(&self.model), self.device.optional(&self.model));
        self.keeper.keep_room::<Gaussians>(rows, optional);
        self.warn_of_checkpoints()
    }

    fn warn_of_checkpoints(&mut self) -> Result<(), TrainError> {
        for message in self.keeper.take_warnings() {
            self.warn(message)?;
        }
        Ok(())
    }

    fn write_point_cloud(&mut self) -> Result<(), TrainError> {
        let path = self.point_cloud_path();
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let mode = render_mode(self.setup.config);
        write_point_cloud(&path, mode, self.device, &mut self.model)?;
        self.write_exposures()?;
        self.saved(Saved::PointCloud, path)
    }

    fn point_cloud_path(&self) -> PathBuf {
        let folder = self.setup.model_path.join("point_cloud");
        folder.join(format!("iteration_{}", self.iteration)).join("point_cloud.ply")
    }

    /// Writes a checkpoint, so that nothing is lost, and says what there was no space for.
    fn stop_for_space(&mut self, source: OutputError) -> TrainError {
        match self.write_checkpoint(Occasion::Asked) {
            Ok(()) => {
                let path = checkpoint::path(self.setup.model_path, self.iteration);
                TrainError::NoSpace { source, checkpoint: Some(path) }
            }
            Err(TrainError::NoSpace { checkpoint, .. }) => {
                TrainError::NoSpace { source, checkpoint }
            }
            Err(error) => error,
        }
    }
}

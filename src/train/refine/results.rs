//! What a refinement measures and writes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::Refiner;
use crate::backend::TrainDevice;
use crate::export::PlyStyle;
use crate::files::create_folder;
use crate::memory::{TrainingScale, peak_resident_memory};
use crate::train::checkpoint::{self, Checkpoint, Occasion};
use crate::train::eval::{EvalRequest, ShownSurface, ShownViews, evaluate};
use crate::train::event::{Evaluation, Event, Phase, PhasePeak, PhasePeaks, Saved, Split};
use crate::train::save::{DeviceModel, render_mode, write_point_cloud};
use crate::train::trainer::Outcome;
use crate::train::{TrainError, render_footprint, schedule};

/// Training views that are measured where none is held out.
const MEASURED_WITHOUT_TEST: usize = 5;

impl<B: TrainDevice> Refiner<'_, B> {
    /// Writes a checkpoint; those before it go.
    pub(super) fn write_checkpoint(&mut self) -> Result<(), TrainError> {
        let started = Instant::now();
        self.report_pending()?;
        let state = self.device.read_binding(&self.binding)?;
        let (setup, iteration) = (self.setup, self.iteration);
        let about = Checkpoint {
            paced: None,
            iteration,
            config: setup.config.clone(),
            train_views: self.feed.views.names(Split::Train),
            occasion: Occasion::Asked,
            training_scale: self.feed.views.training_scale(),
        };
        let mut rows = DeviceModel { device: &mut *self.device, model: &mut self.model };
        let path = about.write_bound(setup.folder, &mut rows, &state)?;
        for earlier in checkpoint::list(setup.folder).into_iter().filter(|other| *other != path) {
            // One that stays does no harm: the newest counts.
            fs::remove_file(earlier).ok();
        }
        self.sink.on(&Event::Saved { iteration, what: Saved::Checkpoint, path })?;
        self.times.saving_seconds += started.elapsed().as_secs_f64();
        self.reported = Instant::now();
        Ok(())
    }

    pub(super) fn save_point_cloud(&mut self) -> Result<(), TrainError> {
        let (config, iteration) = (self.setup.config, self.iteration);
        let path = point_cloud(self.setup.folder, iteration);
        if let Some(folder) = path.parent() {
            create_folder(folder)?;
        }
        let style = PlyStyle { mode: render_mode(config), frame: self.setup.dataset.frame };
        write_point_cloud(&path, style, self.device, &mut self.model, &[])?;
        self.sink.on(&Event::Saved { iteration, what: Saved::PointCloud, path })?;
        Ok(())
    }

    /// Compares the views held out, or else some of those trained on, with their photographs.
    pub(super) fn measure(&mut self) -> Result<Option<Evaluation>, TrainError> {
        let started = Instant::now();
        let config = self.setup.config;
        let has_test = !self.setup.dataset.test.is_empty();
        let request = EvalRequest {
            split: if has_test { Split::Test } else { Split::EvalTrain },
            most: (!has_test).then_some(MEASURED_WITHOUT_TEST),
            iteration: self.iteration,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            background: config.scene.background_color().0,
            footprint: render_footprint(config),
            compensation: None,
            shown: ShownViews::Nothing,
            metrics: config.output.metrics,
            surface: ShownSurface::None,
            lpips: None,
        };
        let views = &mut self.feed.views;
        let is_full = views.training_scale() == TrainingScale::FULL;
        let found = match evaluate(self.device, &self.model, views, &request, |_| Ok(())) {
            // Where training has no memory for full views, evaluation may not have any either.
            Err(TrainError::Device(error)) if error.is_out_of_memory() && !is_full => None,
            done => done?,
        };
        self.warn_of_images()?;
        if let Some(evaluation) = &found {
            self.sink.on(&Event::Evaluated(evaluation.clone()))?;
        }
        self.times.evaluation_seconds += started.elapsed().as_secs_f64();
        Ok(found)
    }

    pub(super) fn finish(&mut self, outcome: Outcome) -> Result<(), TrainError> {
        self.times.wall_seconds = self.setup.began.elapsed().as_secs_f64();
        let mut peaks = PhasePeaks::default();
        peaks.raise(
            Phase::Training,
            PhasePeak { vram: self.device.take_peak(), host: peak_resident_memory() },
        );
        self.sink.on(&Event::Finished {
            iteration: self.iteration,
            gaussians: self.device.len(&self.model),
            training_seconds: self.training_seconds,
            interrupted: outcome == Outcome::Interrupted,
            peaks,
            times: self.times,
        })?;
        Ok(())
    }
}

/// Where the Gaussians of an iteration lie in a model folder.
fn point_cloud(folder: &Path, iteration: u32) -> PathBuf {
    folder.join(format!("point_cloud/iteration_{iteration}/point_cloud.ply"))
}

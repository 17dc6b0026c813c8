//! The prune to `--target-gaussians` as part of a run.

use std::time::Instant;

use super::Trainer;
use crate::backend::{EditRule, Footprint, Pick, Remesh, ScoreRule, TrainDevice, Window};
use crate::config::PrimitiveName;
use crate::dataset::View;
use crate::math::Real as _;
use crate::train::event::{Event, Phase, Round, RoundReport, Split, TargetPsnr, TargetReport};
use crate::train::schedule::TargetPrune;
use crate::train::triangles::{UsedVertices, kept, schedule};
use crate::train::{TrainError, render_footprint};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Removes all Gaussians but those that matter most, where that is due after the last step.
    pub(super) fn prune_to_target(&mut self) -> Result<(), TrainError> {
        let prune = TargetPrune::of(self.setup.config);
        let Some(TargetPrune { target, .. }) = prune.filter(|prune| prune.is_due(self.last_step))
        else {
            return Ok(());
        };
        self.report_pending()?;
        let iteration = self.iteration;
        let gaussians = self.device.len(&self.model);
        let mut report = TargetReport { iteration, target, pruned: 0, gaussians, psnr: None };
        if gaussians > target {
            self.end_phase(self.phase());
            let before = self.psnr_of_target()?;
            report.pruned = self.retain_heaviest(target)?;
            report.gaussians = self.device.len(&self.model);
            let split = self.judged_split().name().to_owned();
            report.psnr = before.zip(self.psnr_of_target()?).map(|(before, after)| {
                let finite = |psnr: f64| Some(psnr).filter(|psnr| psnr.is_finite());
                TargetPsnr { split, before: finite(before), after: finite(after) }
            });
            // Other views were wanted in between.
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        self.sink.on(&Event::PrunedToTarget(report))?;
        Ok(())
    }

    fn psnr_of_target(&mut self) -> Result<Option<f64>, TrainError> {
        let psnr = self.within_training(|run| run.with_memory_retry(Self::mean_psnr))?;
        self.device.synchronize()?;
        self.end_phase(Phase::Evaluation);
        Ok(psnr)
    }

    /// Removes all but so many; says how many were removed.
    fn retain_heaviest(&mut self, target: usize) -> Result<usize, TrainError> {
        let started = Instant::now();
        // Left out like another round it would never come again.
        let pruned = self.with_memory_retry(|run| run.try_to_retain(target))?;
        self.device.synchronize()?;
        self.clock.add_beside_iterations(started);
        self.end_density_control()?;
        Ok(pruned)
    }

    fn try_to_retain(&mut self, target: usize) -> Result<usize, TrainError> {
        let settings = self.settings_of(self.iteration.max(1));
        let views = &self.feed.views;
        let trained: Vec<&View> =
            views.split(Split::Train).iter().map(|&index| views.training_view(index)).collect();
        let (device, model) = (&mut *self.device, &mut self.model);
        device.weigh(model, &trained, &settings)?;
        let candidates = device.score(model, &ScoreRule::Weight)?;
        let selection = device.select(model, &candidates, Pick::Best(target))?;
        Ok(device.edit(model, selection, &EditRule::Retain)?.removed)
    }

    /// Warns where a run continues from an iteration after the prune, and was not pruned then.
    pub(super) fn warn_of_missed_target(&mut self) -> Result<(), TrainError> {
        let prune = TargetPrune::of(self.setup.config);
        let Some(TargetPrune { iteration, target }) = prune else { return Ok(()) };
        let gaussians = self.device.len(&self.model);
        let is_loaded = self.setup.config.sugar.checkpoint_path.is_some();
        // A batch may end after that iteration, and the prune then comes before the next.
        let is_ahead = self.last_step.before < iteration
            && self.last_step.after < self.setup.config.optimize.iterations;
        if is_ahead || gaussians <= target || is_loaded {
            return Ok(());
        }
        self.warn(format!(
            "--target-gaussians {target} has no effect on the {gaussians} Gaussians: its prune follows iteration \
             {iteration}, and the run continues from {}. Start from an earlier checkpoint",
            self.last_step.after
        ))?;
        Ok(())
    }

    /// Returns the footprint of an image's view, after the changes that follow `changed` images.
    pub(super) fn footprint(&self, image: u32, changed: u32) -> Footprint {
        let config = self.setup.config;
        match config.optimize.primitive {
            PrimitiveName::Gaussians | PrimitiveName::Surfels => render_footprint(config),
            PrimitiveName::Triangles => {
                Footprint::Triangle(schedule::window(&config.triangles, image, changed))
            }
        }
    }

    /// Returns the footprint of the model after the last step, before the changes that follow it.
    pub(super) fn shown_footprint(&self) -> Footprint {
        self.footprint(self.iteration.max(1), self.last_step.before)
    }

    /// Removes triangles that are hidden in a connected mesh, where that is due after the last step. That saves time,
    /// so they stay where there is no memory to find them.
    pub(super) fn drop_hidden_in_time(&mut self) -> Result<(), TrainError> {
        let views = self.setup.dataset.train.len();
        let is_due = schedule::drops_hidden(&self.setup.config.triangles, self.last_step, views);
        if !is_due || !self.pace.takes_round(schedule::least_images_between_removals(views)) {
            return Ok(());
        }
        match self.drop_hidden(Self::try_to_drop_hidden) {
            Err(TrainError::Device(error)) if error.is_out_of_memory() => {
                self.warn(format!("hidden triangles stay for now: {error}"))?;
            }
            other => {
                other?;
            }
        }
        Ok(())
    }

    /// After the last step: removes the triangles that are hidden in all training views, and their vertices.
    pub(super) fn drop_hidden_triangles(&mut self) -> Result<(), TrainError> {
        if !self.drop_hidden(|run| run.with_memory_retry(Self::try_to_drop_hidden))? {
            self.warn(
                "no training view shows any triangle with a weight above half of the floor under all opacities: all \
                 stay. Train longer"
                    .to_owned(),
            )?;
        }
        Ok(())
    }

    /// Does the work of removing hidden triangles, and reports it; false where that would be all, which stay.
    fn drop_hidden(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<bool, TrainError>,
    ) -> Result<bool, TrainError> {
        if self.device.faces(&self.model).is_empty() {
            return Ok(true);
        }
        self.report_pending()?;
        self.end_phase(Phase::Training);
        let started = Instant::now();
        let before = self.device.faces(&self.model).len();
        let outcome = work(self);
        self.device.synchronize()?;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        self.clock.add_beside_iterations(started);
        self.end_density_control()?;
        let sees_any = outcome?;
        let triangles = self.device.faces(&self.model).len();
        tracing::info!(
            "{} hidden triangles were removed, {triangles} are left",
            before - triangles
        );
        let counts = vec![("pruned", before - triangles), ("triangles", triangles)];
        let report = RoundReport { event: "hidden_removed", counts };
        let (iteration, gaussians) = (self.iteration, self.device.len(&self.model));
        self.sink.on(&Event::Round(Round { iteration, report, gaussians, ms }))?;
        Ok(sees_any)
    }

    /// True if there are others: if all are hidden, all stay.
    fn try_to_drop_hidden(&mut self) -> Result<bool, TrainError> {
        let mut settings = self.settings_of(self.iteration.max(1));
        let Footprint::Triangle(window) = self.shown_footprint() else { return Ok(true) };
        // A small triangle may lie between the middles of all pixels.
        let samples = window.samples.max(self.setup.config.triangles.upscaling_factor);
        settings.footprint = Footprint::Triangle(Window { samples, ..window });
        let least = (HIDDEN_SHARE * window.opacity_floor).to_f32();
        let views = &self.feed.views;
        let wider = |&index: &usize| {
            let view = views.training_view(index);
            View { camera: view.camera.with_focal_times(FOCAL_FACTOR), ..view.clone() }
        };
        let wider: Vec<View> = views.split(Split::Train).iter().map(wider).collect();
        let (device, model) = (&mut *self.device, &mut self.model);
        device.weigh(model, &wider.iter().collect::<Vec<_>>(), &settings)?;
        let weights = device.face_statistics(model)?.weights;
        let is_seen: Vec<bool> = weights.iter().map(|&weight| weight > least).collect();
        let mut faces = kept(device.faces(model), &is_seen);
        if faces.is_empty() {
            return Ok(false);
        }
        let used = UsedVertices::of(&faces, device.len(model));
        used.renumber(&mut faces);
        device.remesh(model, &Remesh { kept: &used.kept, midpoints: &[], faces: &faces })?;
        Ok(true)
    }
}

// Drawing of triangles, and removal of hidden ones.

/// A triangle is hidden if no sample of any training view shows it with a weight above this share of the floor under all
/// opacities.
const HIDDEN_SHARE: f64 = 0.5;

/// How a training view's focal length is multiplied to find what is hidden. Other views see what lies just beyond the
/// edges of a photograph: judged by the photographs alone, a connected mesh of fox loses 0.4 to 0.8 dB.
const FOCAL_FACTOR: f64 = 0.8;

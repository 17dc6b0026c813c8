//! Prunes of a run: to `--target-gaussians`, and of hidden triangles.

use std::time::Instant;

use super::Trainer;
use crate::backend::{EditRule, Footprint, Pick, Remesh, ScoreRule, TrainDevice, Window};
use crate::config::PrimitiveName;
use crate::dataset::View;
use crate::math::Real as _;
use crate::train::event::{
    DensifyReport, DensifyStep, Event, Phase, Split, TargetPsnr, TargetReport,
};
use crate::train::schedule::TargetPrune;
use crate::train::triangles::{UsedVertices, kept, schedule};
use crate::train::{MemoryFallbacks as _, TrainError, render_footprint};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Prunes to the Gaussians with the largest contributions, if that is due after the last step.
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
            // The measurement scheduled other views.
            self.feed.schedule_decoding(self.device, self.pace.next_image());
        }
        Ok(self.sink.on(&Event::PrunedToTarget(report))?)
    }

    fn psnr_of_target(&mut self) -> Result<Option<f64>, TrainError> {
        let psnr = self.within_training(|run| run.with_memory_retry(Self::mean_psnr))?;
        self.device.synchronize()?;
        self.end_phase(Phase::Evaluation);
        Ok(psnr)
    }

    /// Removes all but `target` Gaussians. Returns the number of removed Gaussians.
    fn retain_heaviest(&mut self, target: usize) -> Result<usize, TrainError> {
        let started = Instant::now();
        // The prune comes only once, so it must not be skipped.
        let pruned = self.with_memory_retry(|run| {
            let settings = run.settings_of_all();
            let views = &run.feed.views;
            let trained: Vec<&View> =
                views.split(Split::Train).iter().map(|&index| views.training_view(index)).collect();
            let (device, model) = (&mut *run.device, &mut run.model);
            device.weigh(model, &trained, &settings)?;
            let candidates = device.score(model, &ScoreRule::Weight)?;
            let selection = device.select(model, &candidates, Pick::Best(target))?;
            Ok(device.edit(model, selection, &EditRule::Retain)?.removed)
        })?;
        self.device.synchronize()?;
        self.clock.add_beside_iterations(started);
        self.end_density_control()?;
        Ok(pruned)
    }

    /// Warns if a run resumes after the prune and was not pruned.
    pub(super) fn warn_about_missed_target(&mut self) -> Result<(), TrainError> {
        let prune = TargetPrune::of(self.setup.config);
        let Some(TargetPrune { iteration, target }) = prune else { return Ok(()) };
        let gaussians = self.device.len(&self.model);
        let is_loaded = self.setup.config.sugar.checkpoint_path.is_some();
        // A batch may end after that iteration. The prune then comes before the next.
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

    /// Removes hidden triangles of a connected mesh, if that is due after the last step. This only saves time, and is
    /// skipped without memory.
    pub(super) fn drop_hidden_in_time(&mut self) -> Result<(), TrainError> {
        let views = self.setup.dataset.train.len();
        let is_due = schedule::drops_hidden(&self.setup.config.triangles, self.last_step, views);
        if !is_due || !self.pace.takes_densify_step(schedule::least_images_between_removals(views))
        {
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

    /// Removes the triangles that no training view sees, and their vertices, after the last step.
    pub(super) fn drop_hidden_triangles(&mut self) -> Result<(), TrainError> {
        if !self.drop_hidden(|run| run.with_memory_retry(Self::try_to_drop_hidden))? {
            self.warn(
                "no training view shows any triangle with a weight above half of the floor under all opacities: all \
                 stay. Train longer",
            )?;
        }
        Ok(())
    }

    /// Removes hidden triangles by `work` and reports it. Returns false, without removal, if all are hidden.
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
        let report = DensifyReport { event: "hidden_removed", counts };
        let (iteration, gaussians) = (self.iteration, self.device.len(&self.model));
        self.sink.on(&Event::Densify(DensifyStep { iteration, report, gaussians, ms }))?;
        Ok(sees_any)
    }

    /// Returns false, without removal, if all triangles are hidden.
    fn try_to_drop_hidden(&mut self) -> Result<bool, TrainError> {
        let mut settings = self.settings_of_all();
        let Footprint::Triangle(window) = self.shown_footprint() else { return Ok(true) };
        // A small triangle may lie between all pixel centres.
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

// Hidden triangles.

/// Share of the opacity floor. A triangle is hidden if its weight in no sample of a training view exceeds this share.
const HIDDEN_SHARE: f64 = 0.5;

/// Factor on the focal lengths of the views that search for hidden triangles. Other views see beyond the edges of the
/// photographs: judged by the photographs alone, a connected mesh of fox loses 0.4 to 0.8 dB.
const FOCAL_FACTOR: f64 = 0.8;

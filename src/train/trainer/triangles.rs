//! How a run draws its triangles, and which it removes since they are hidden.

use std::time::Instant;

use super::Trainer;
use crate::backend::{Footprint, Remesh, TrainDevice, Window};
use crate::config::PrimitiveName;
use crate::dataset::View;
use crate::math::Real as _;
use crate::train::event::{Event, Phase, Round, RoundReport, Split};
use crate::train::triangles::prune::{UsedVertices, kept};
use crate::train::triangles::schedule;
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::{TrainError, render_footprint};

/// A triangle is hidden if no sample of any training view shows it with a weight above this share of the floor under all
/// opacities.
const HIDDEN_SHARE: f64 = 0.5;

/// How a training view's focal length is multiplied to find what is hidden. Other views see what lies just beyond the
/// edges of a photograph: judged by the photographs alone, a connected mesh of fox loses 0.4 to 0.8 dB.
const FOCAL_FACTOR: f64 = 0.8;

impl<B: TrainDevice> Trainer<'_, B> {
    /// What rows are on the screen in this image's view, after as many changes as follow so many images.
    pub(super) fn footprint(&self, image: u32, changed: u32) -> Footprint {
        let config = self.setup.config;
        match config.optimize.primitive {
            PrimitiveName::Gaussians | PrimitiveName::Surfels => render_footprint(config),
            PrimitiveName::Triangles => {
                Footprint::Triangle(schedule::window(&config.triangles, image, changed))
            }
        }
    }

    /// The same of the model as it is after the last step, before what follows on that.
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
        self.creep = UnexplainedGrowth::from(self.iteration);
        self.profile(Phase::DensityControl)?;
        self.end_phase(Phase::DensityControl);
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

    /// Whether there are others: if all are hidden, all stay.
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

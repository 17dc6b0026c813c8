//! SuGaR's coarse stage in a run: its start, prune, neighbours and reports.

use std::time::Instant;

use super::Trainer;
use crate::backend::{
    Candidates, Held as _, NeighbourLists as _, Pick, RenderRequest, RenderSettings, Snapshot,
    Terms, Topic, TrainDevice, chunks,
};
use crate::config::SugarOptions;
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive as _, fuse, make_rotations_unit};
use crate::train::coarse::{CoarseSchedule, PRUNE_RULE};
use crate::train::event::{Event, Split, SurfaceReport, TermValues};
use crate::train::report::{self, UnexplainedGrowth, mean_thickness, share_near_surface};
use crate::train::span::ImageSpan;
use crate::train::terms::open;
use crate::train::{MemoryFallbacks as _, TrainError, render_footprint, schedule};

impl<B: TrainDevice> Trainer<'_, B> {
    /// True if the next iteration belongs to the coarse stage.
    pub(super) fn is_in_coarse(&self) -> bool {
        self.coarse.as_ref().is_some_and(|coarse| coarse.schedule.contains(self.iteration + 1))
    }

    /// Begins the coarse stage, prunes and drops neighbours, as due before the next iteration of the stage.
    pub(super) fn prepare_coarse(&mut self) -> Result<(), TrainError> {
        let Some(coarse) = &self.coarse else { return Ok(()) };
        let (schedule, has_begun) = (coarse.schedule.clone(), coarse.has_begun);
        if !has_begun {
            self.begin_coarse(&schedule)?;
        }
        if self.last_step.hits(schedule.prune) {
            self.prune()?;
        }
        if schedule.is_neighbour_update(self.last_step) {
            self.drop_neighbours();
        }
        Ok(())
    }

    /// Starts the stage with zero moments and with the 3D filter applied, because surfaces are made of Gaussians as
    /// they are.
    fn begin_coarse(&mut self, schedule: &CoarseSchedule) -> Result<(), TrainError> {
        self.report_pending()?;
        self.end_phase(self.phase());
        let loaded = self.setup.config.sugar.checkpoint_path.is_some();
        if self.iteration == schedule.start && !loaded {
            let mut gaussians = self.fused()?;
            // The stage may also start from a PLY, which holds unit rotations.
            make_rotations_unit(&mut gaussians);
            // The device need not hold both models at once.
            self.model = self.device.upload(&Gaussians::zeros(gaussians.sh_degree, 0))?;
            self.model = self.device.upload(&gaussians)?;
            self.reorder()?;
            self.creep = UnexplainedGrowth::from(self.iteration);
        }
        if let Some(coarse) = &mut self.coarse {
            coarse.has_begun = true;
        }
        let gaussians = self.device.len(&self.model);
        let (iteration, iterations) = (self.iteration, schedule.last);
        self.sink.on(&Event::CoarseStarted { iteration, iterations, gaussians })?;
        if self.feed.others.as_ref().is_some_and(|others| others.views.is_empty()) {
            self.warn(
                "--multi-view compares nothing: no training view has a neighbour 2 to 30 degrees apart that \
                 sees the same points. Train with more photographs or with COLMAP's points",
            )?;
        }
        if iteration > schedule.prune && iteration == schedule.start {
            self.warn(format!(
                "transparent Gaussians stay: their prune follows iteration {}, and the coarse stage starts after \
                 {iteration}. To remove them: --sugar-schedule relative",
                schedule.prune
            ))?;
        }
        Ok(())
    }

    /// Downloads the Gaussians with the 3D filter applied.
    pub(super) fn fused(&mut self) -> Result<Gaussians, TrainError> {
        if !self.device.optional(&self.model).filter_3d {
            return Ok(self.device.download(&mut self.model)?);
        }
        let mut all = self.device.read_parameters(&mut self.model, 0..0)?;
        for rows in chunks(self.device.len(&self.model)) {
            let Snapshot { mut parameters, filter_3d, .. } =
                self.device.read(&mut self.model, rows)?;
            fuse(&mut parameters, &filter_3d);
            all.append(parameters);
        }
        Ok(all)
    }

    /// Removes transparent Gaussians.
    fn prune(&mut self) -> Result<(), TrainError> {
        self.report_pending()?;
        self.drop_neighbours();
        let started = Instant::now();
        let iteration = self.iteration;
        self.end_phase(self.phase());
        // The prune comes only once, so it must not be skipped.
        let pruned = self.with_memory_retry(|trainer| {
            let (device, model) = (&mut *trainer.device, &mut trainer.model);
            let selection = device.select(model, &Candidates::NONE, Pick::Best(0))?;
            Ok(device.edit(model, selection, &PRUNE_RULE)?.removed)
        })?;
        self.device.synchronize()?;
        self.clock.add_beside_iterations(started);
        let gaussians = self.device.len(&self.model);
        self.sink.on(&Event::Pruned { iteration, pruned, gaussians })?;
        self.end_density_control()?;
        if gaussians == 0 && pruned > 0 {
            self.warn(format!(
                "iteration {iteration}: no Gaussian was more opaque than transparent, and the model is \
                 empty. Train it longer before the coarse stage (--iterations)"
            ))?;
        }
        Ok(())
    }

    /// Drops the neighbours, which are found again when needed.
    pub(super) fn drop_neighbours(&mut self) {
        if let Some(coarse) = &mut self.coarse {
            coarse.near = None;
        }
        self.tensors.knn = Bytes(0);
    }

    /// True if the next iteration uses the present neighbours.
    pub(super) fn keeps_neighbours(&self) -> bool {
        self.coarse.as_ref().is_some_and(|coarse| {
            let schedule = &coarse.schedule;
            coarse.near.is_some()
                && !schedule.is_neighbour_update(self.last_step)
                && !self.last_step.hits(schedule.prune)
        })
    }

    /// Finds the nearest neighbours of all Gaussians if a term needs them and there are none that fit.
    pub(super) fn find_neighbours(&mut self, terms: &Terms) -> Result<(), TrainError> {
        let Some(coarse) = &mut self.coarse else { return Ok(()) };
        let most = self.device.max_neighbours();
        coarse.drop_longer_lists(most);
        if !terms.needs().neighbours || coarse.near.is_some() {
            return Ok(());
        }
        let SugarOptions { regularity_knn, .. } = self.setup.config.sugar;
        let wanted = regularity_knn.min(most);
        self.device.synchronize()?;
        let started = Instant::now();
        let near = self.device.neighbours(&self.model, wanted)?;
        self.device.synchronize()?;
        let seconds = started.elapsed().as_secs_f64();
        let count = near.count();
        if near.bytes() != self.tensors.knn {
            // Lists of another length explain a change of memory.
            self.creep = UnexplainedGrowth::from(self.iteration);
        }
        self.tensors.knn = near.bytes();
        if let Some(coarse) = &mut self.coarse {
            coarse.near = Some(near);
        }
        let (iteration, gaussians) = (self.iteration, self.device.len(&self.model));
        Ok(self.sink.on(&Event::Neighbours { iteration, count, gaussians, seconds })?)
    }

    /// Keeps the last value of each surface term. Values of terms that are no longer used are dropped.
    pub(super) fn keep_surface_losses(
        &mut self,
        iteration: u32,
        terms: &Terms,
        pairs: &[(&'static str, f64)],
    ) {
        let open = open(self.setup.config, self.stage(iteration), iteration);
        let is_reported = |schedule: &CoarseSchedule| {
            schedule.contains(iteration) && terms.has_topic(Topic::Surface)
        };
        let Some(coarse) = self.coarse.as_mut().filter(|coarse| is_reported(&coarse.schedule))
        else {
            return;
        };
        let is_open = |place: u32| {
            open.iter().any(|term| term.values().iter().any(|value| value.place == place))
        };
        coarse.losses.retain(|&place, _| is_open(place));
        let surface = terms.active().filter(|weighted| weighted.term.topic() == Topic::Surface);
        for value in surface.flat_map(|weighted| weighted.term.values()) {
            let found = pairs.iter().find(|(name, _)| *name == value.name);
            coarse.losses.extend(found.map(|&pair| (value.place, pair)));
        }
    }

    /// Reports the surface terms after a step, at intervals.
    pub(super) fn report_surfaces(&mut self, span: ImageSpan) -> Result<(), TrainError> {
        let Some(coarse) = &self.coarse else { return Ok(()) };
        if !coarse.schedule.is_reported(span) {
            return Ok(());
        }
        let values = TermValues(coarse.losses.values().copied().collect());
        let iteration = span.after;
        let mut report = SurfaceReport { iteration, values, ..SurfaceReport::default() };
        if span.crosses(report::DISTRIBUTION_INTERVAL) {
            (report.share_near_surface, report.mean_thickness) =
                self.with_memory_retry(Self::measure_surface)?;
        }
        Ok(self.sink.on(&Event::Surface(report))?)
    }

    /// Returns the share of sampled Gaussians near the visible surface, and the mean of their smallest scales, world
    /// units.
    fn measure_surface(&mut self) -> Result<(Option<f64>, Option<f64>), TrainError> {
        let config = self.setup.config;
        let rows = report::sample(self.device.len(&self.model), config.run.seed, self.iteration);
        let sample = self.device.sample(&mut self.model, &rows)?;
        let mean_thickness = mean_thickness(&sample);
        let Some(&view) = self.feed.views.split(Split::Train).first() else {
            return Ok((None, mean_thickness));
        };
        let view = self.feed.views.training_view(view);
        let near = self.feed.views.near();
        let settings = RenderSettings {
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            near,
            footprint: render_footprint(config),
            ..RenderSettings::DEFAULT
        };
        let frame = self.device.render(&self.model, view, &settings, RenderRequest::SURFACE)?;
        let drawn = self.device.image(&frame)?;
        Ok((share_near_surface(&sample, view, near, &drawn), mean_thickness))
    }
}

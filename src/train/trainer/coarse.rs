//! SuGaR's coarse stage as part of a run: its beginning, its prune, neighbours, and what is told of it.

use std::time::Instant;

use super::Trainer;
use crate::backend::{
    Grant, Neighbourhood, Pass, Pending, RenderSettings, Snapshot, Surface, SurfaceMaps,
    SurfaceTerms, chunks,
};
use crate::config::SugarOptions;
use crate::memory::Bytes;
use crate::model::{Gaussians, Primitive as _, fuse};
use crate::train::coarse::{Asked, CoarseSchedule, prune_rule};
use crate::train::descend::Surfaces;
use crate::train::event::{Event, Phase, Split, SurfaceReport};
use crate::train::near_surface::{mean_thickness, share_near_surface};
use crate::train::unexplained_growth::UnexplainedGrowth;
use crate::train::{TrainError, render_filter, report, schedule};

/// What a run holds of its coarse stage.
pub(super) struct Coarse<B: Surface + SurfaceMaps> {
    /// When it does what.
    pub(super) course: CoarseSchedule,
    /// Whether the model is one of it already.
    has_begun: bool,
    /// The nearest neighbours of all Gaussians.
    near: Option<B::Neighbours>,
    /// What is known of the terms.
    report: SurfaceReport,
}

/// The surface terms of an iteration, on their way.
pub(super) struct LaunchedTerms<B: Surface + SurfaceMaps> {
    asked: Asked,
    terms: B::SurfaceLoss,
    normals: Option<B::NormalLoss>,
}

impl<B: Surface + SurfaceMaps> LaunchedTerms<B> {
    pub(super) fn new(
        asked: Asked,
        (terms, normals): (B::SurfaceLoss, Option<B::NormalLoss>),
    ) -> Self {
        Self { asked, terms, normals }
    }
}

impl<B: Surface + SurfaceMaps> Coarse<B> {
    pub(super) fn new(course: CoarseSchedule) -> Self {
        Self { course, has_begun: false, near: None, report: SurfaceReport::default() }
    }

    /// The neighbours are those of a model that is not there any more, or no longer as it was.
    pub(super) fn forget_neighbours(&mut self) {
        self.near = None;
    }

    /// Lists of more neighbours than that go.
    fn drop_longer_lists(&mut self, most: u32) {
        self.near.take_if(|near| near.count() > most);
    }

    /// What is asked of surfaces where neighbours are found.
    pub(super) fn surfaces(&self, asked: Asked) -> Surfaces<'_, B::Neighbours> {
        Surfaces { asked, near: self.near.as_ref() }
    }

    /// Takes the values of an iteration's terms, those that were asked for.
    fn hear(&mut self, launched: LaunchedTerms<B>) -> Result<(), TrainError> {
        let LaunchedTerms { asked, terms, normals } = launched;
        let SurfaceTerms { entropy, density, sdf, normal } = terms.read()?;
        let rule = asked.rule;
        let report = &mut self.report;
        // A term that is asked for now and then stays as it was; one that is over goes.
        report.entropy = (rule.entropy != 0.0).then_some(entropy);
        for (weight, value, report) in [
            (rule.density, density, &mut report.density),
            (rule.sdf, sdf, &mut report.sdf),
            (rule.normal, normal, &mut report.normal),
        ] {
            if weight != 0.0 {
                *report = Some(value);
            }
        }
        if let Some(normals) = normals {
            report.dn = Some(normals.read()?);
        }
        Ok(())
    }
}

impl<B: Surface + SurfaceMaps> Trainer<'_, B> {
    /// Whether the coming iteration is one of the coarse stage.
    pub(super) fn is_in_coarse(&self) -> bool {
        self.coarse.as_ref().is_some_and(|coarse| coarse.course.contains(self.iteration + 1))
    }

    /// What the coarse stage does between the iterations that are done and the next one.
    pub(super) fn prepare_coarse(&mut self) -> Result<(), TrainError> {
        let Some(coarse) = &self.coarse else { return Ok(()) };
        let (course, has_begun) = (coarse.course.clone(), coarse.has_begun);
        if !course.contains(self.iteration + 1) {
            return Ok(());
        }
        if !has_begun {
            self.begin_coarse(&course)?;
        }
        if self.iteration == course.prune {
            self.prune()?;
        }
        if course.is_neighbour_update(self.iteration) {
            self.drop_neighbours();
        }
        Ok(())
    }

    /// Hands the model over to the stage, at its start: with the 3D filter baked in, since surfaces are
    /// made of Gaussians as they are, and with moments of zero.
    fn begin_coarse(&mut self, course: &CoarseSchedule) -> Result<(), TrainError> {
        self.report_launched()?;
        let loaded = self.setup.config.sugar.checkpoint_path.is_some();
        if self.iteration == course.start && !loaded {
            let gaussians = self.fused()?;
            // Of the device's memory, both do not have to fit at once.
            self.model = self.device.upload(&Gaussians::zeros(gaussians.sh_degree, 0))?;
            self.model = self.device.upload(&gaussians)?;
            self.reorder()?;
            self.creep = UnexplainedGrowth::from(self.iteration);
        }
        if let Some(coarse) = &mut self.coarse {
            coarse.has_begun = true;
        }
        let gaussians = self.device.len(&self.model);
        let (iteration, iterations) = (self.iteration, course.last);
        self.sink.on(&Event::CoarseStarted { iteration, iterations, gaussians })?;
        if iteration > course.prune && iteration == course.start {
            self.warn(format!(
                "the reference's schedule removes transparent Gaussians behind iteration {}, and the \
                 stage starts behind {iteration}: they stay. --sugar-schedule relative removes them",
                course.prune
            ))?;
        }
        Ok(())
    }

    /// The Gaussians as they are drawn.
    fn fused(&mut self) -> Result<Gaussians, TrainError> {
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

    /// Removes what is rather transparent than opaque.
    fn prune(&mut self) -> Result<(), TrainError> {
        self.report_launched()?;
        self.drop_neighbours();
        let started = Instant::now();
        let iteration = self.iteration;
        let rule = prune_rule(self.setup.config, iteration);
        // Left out like another round it would never come again.
        let pruned = self.with_memory_retry(|trainer| {
            trainer.device.survey(&trainer.model, &rule)?;
            let none = Grant { births: 0 };
            Ok(trainer.device.densify(&mut trainer.model, &rule, none)?.pruned)
        })?;
        self.device.synchronize()?;
        self.count_time(started);
        let gaussians = self.device.len(&self.model);
        self.sink.on(&Event::Pruned { iteration, pruned, gaussians })?;
        self.creep = UnexplainedGrowth::from(iteration);
        self.profile(Phase::DensityControl)?;
        if gaussians == 0 && pruned > 0 {
            self.warn(format!(
                "iteration {iteration}: no Gaussian was more opaque than transparent, and the model is \
                 empty. Train it longer before the coarse stage (--iterations)"
            ))?;
        }
        Ok(())
    }

    /// Neighbours are found anew when they are wanted next.
    pub(super) fn drop_neighbours(&mut self) {
        if let Some(coarse) = &mut self.coarse {
            coarse.forget_neighbours();
        }
        self.tensors.knn = Bytes(0);
    }

    /// Lets the neighbours go where the device has no more room for lists as long as they are.
    pub(super) fn shorten_neighbours(&mut self) {
        let most = self.device.most_neighbours();
        if let Some(coarse) = &mut self.coarse {
            coarse.drop_longer_lists(most);
        }
    }

    /// Finds the nearest neighbours of all Gaussians where `asked` wants them and there are none, or
    /// where the device has no more room for lists as long as they are.
    pub(super) fn find_neighbours(&mut self, asked: &Asked) -> Result<(), TrainError> {
        let Some(coarse) = &mut self.coarse else { return Ok(()) };
        let most = self.device.most_neighbours();
        coarse.drop_longer_lists(most);
        if !asked.rule.is_sampled() || coarse.near.is_some() {
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
            // Lists of another length explain what is held more.
            self.creep = UnexplainedGrowth::from(self.iteration);
        }
        self.tensors.knn = near.bytes();
        if let Some(coarse) = &mut self.coarse {
            coarse.near = Some(near);
        }
        let (iteration, gaussians) = (self.iteration, self.device.len(&self.model));
        self.sink.on(&Event::Neighbours { iteration, count, gaussians, seconds })?;
        Ok(())
    }

    /// Takes the terms of an iteration, and waits for it.
    pub(super) fn hear_surfaces(
        &mut self,
        launched: Option<LaunchedTerms<B>>,
    ) -> Result<(), TrainError> {
        match self.coarse.as_mut().zip(launched) {
            Some((coarse, launched)) => coarse.hear(launched),
            None => Ok(()),
        }
    }

    /// Tells of the terms after an iteration, at intervals.
    pub(super) fn report_surfaces(&mut self, iteration: u32) -> Result<(), TrainError> {
        let Some(coarse) = &self.coarse else { return Ok(()) };
        if !coarse.course.reports(iteration) {
            return Ok(());
        }
        let mut report = SurfaceReport { iteration, ..coarse.report };
        if iteration.is_multiple_of(report::DISTRIBUTION_INTERVAL) {
            (report.share_near_surface, report.mean_thickness) =
                self.with_memory_retry(Self::measure_surface)?;
        }
        self.sink.on(&Event::Surface(report))?;
        Ok(())
    }

    /// How near the Gaussians of a sample lie to the surface that a view shows, and how thin they are.
    fn measure_surface(&mut self) -> Result<(Option<f64>, Option<f64>), TrainError> {
        let config = self.setup.config;
        let rows = report::sample(self.device.len(&self.model), config.run.seed, self.iteration);
        let sample = self.device.sample(&mut self.model, &rows)?;
        let thickness = mean_thickness(&sample);
        let Some(&view) = self.feed.views.split(Split::Train).first() else {
            return Ok((None, thickness));
        };
        let view = self.feed.views.view(view);
        let near = self.feed.views.near();
        let settings = RenderSettings {
            pass: Pass::Eval,
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration),
            near,
            screen_filter: render_filter(config),
            surface: true,
            ..RenderSettings::DEFAULT
        };
        let frame = self.device.render(&self.model, view, &settings)?;
        let drawn = self.device.image(&frame)?;
        Ok((share_near_surface(&sample, view, near, &drawn), thickness))
    }
}

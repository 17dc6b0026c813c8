//! A model in training whose parameters stay, for measurements.

use super::costs::Pairs;
use crate::backend::{
    AdamStep, CopySpeed, DeviceError, Held as _, MemoryEntry, MemoryKind, ModelShape, Peaks,
    Pending, Photo, RenderRequest, RenderSettings, Stage, StageTime, Statistics, Stay, Terms,
    TrainDevice, TrainRequest, Work,
};
use crate::config::Config;
use crate::dataset::View;
use crate::math::Divisor;
use crate::math::quantile::median;
use crate::memory::Bytes;
use crate::train::TrainError;
use crate::train::coarse::CoarseSchedule;
use crate::train::event::Split;
use crate::train::feed::{Feed, TakenOther};
use crate::train::terms::{self, ViewExtras};
use crate::train::view_step::{ViewInputs, ViewOutputs, add_gradients};

pub(super) struct SteadyState<'a, B: TrainDevice> {
    device: &'a mut B,
    model: B::Model,
    feed: Feed<'a>,
    inputs: StepInputs,
    /// Surface terms of an iteration, with the Gaussians' neighbours.
    surfaces: Option<SurfaceWork<B>>,
    /// Loss of the previous iteration, read after the next is launched, as in training.
    pending: Option<B::Losses>,
    /// Bytes of the last frame and gradients.
    bytes: [Bytes; 2],
}

pub(super) struct StepInputs {
    pub(super) batch_views: u32,
    pub(super) settings: RenderSettings,
    pub(super) observe: Option<Statistics>,
    /// Terms without those of surfaces.
    pub(super) terms: Terms,
    pub(super) step: AdamStep,
}

pub(super) struct CountedWork {
    /// Work of each view; empty if the device does not count.
    pub(super) works: Vec<Work>,
    pub(super) pairs: Pairs,
}

pub(super) struct SurfaceWork<B: TrainDevice> {
    pub(super) config: Config,
    /// Schedule of a run with these options.
    pub(super) schedule: CoarseSchedule,
    pub(super) extent: f64,
    pub(super) near: B::Lists,
}

impl<B: TrainDevice> SurfaceWork<B> {
    /// Returns the iteration `number` after the first one with surface terms.
    fn iteration(&self, number: u32) -> u32 {
        let first = self.schedule.prune.max(self.schedule.start).saturating_add(1);
        first.saturating_add(number)
    }

    fn terms(&self, number: u32, extras: ViewExtras) -> Terms {
        let Self { config, schedule, extent, .. } = self;
        let stage = terms::TrainingStage::Coarse { schedule, extent: *extent };
        terms::active(config, stage, self.iteration(number), extras)
    }
}

impl<'a, B: TrainDevice> SteadyState<'a, B> {
    pub(super) fn new(
        device: &'a mut B,
        model: B::Model,
        feed: Feed<'a>,
        inputs: StepInputs,
        surfaces: Option<SurfaceWork<B>>,
    ) -> Self {
        Self { device, model, feed, inputs, surfaces, pending: None, bytes: [Bytes(0); 2] }
    }

    /// Uploads as many photographs as the device keeps. Training uploads them rarely.
    pub(super) fn upload_photographs(&mut self) -> Result<(), TrainError> {
        let views = &mut self.feed.views;
        let train = views.split(Split::Train);
        views.schedule_decoding(train);
        for &view in train {
            let Some(image) = views.fetch(view) else { continue };
            self.device.upload_target(Photo { image: &image, stay: Stay::Resident(view) })?;
            if !self.device.is_resident(view) {
                break;
            }
            drop(image);
            views.release(self.device, view);
        }
        self.feed.schedule_decoding(self.device, self.inputs.step.number + 1);
        Ok(())
    }

    pub(super) fn run(&mut self, steps: u32) -> Result<(), TrainError> {
        for _ in 0..steps {
            self.step(|_, _, _| Ok(()))?;
        }
        self.finish()
    }

    /// Runs one step. Calls `visit` for each of its views first.
    fn step(
        &mut self,
        mut visit: impl FnMut(&mut B, &B::Model, &View) -> Result<(), DeviceError>,
    ) -> Result<(), TrainError> {
        let mut gradients = B::Gradients::default();
        for _ in 0..self.inputs.batch_views {
            self.add_view(&mut visit, &mut gradients)?;
        }
        self.device.step(&mut self.model, gradients, &self.inputs.step)?;
        for warning in self.feed.views.take_warnings() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Adds the next view to the gradients, after `visit`.
    fn add_view(
        &mut self,
        visit: &mut impl FnMut(&mut B, &B::Model, &View) -> Result<(), DeviceError>,
        gradients: &mut B::Gradients,
    ) -> Result<(), TrainError> {
        let step = &mut self.inputs.step;
        *step = AdamStep::new(step.number + 1, step.rates);
        let number = step.number;
        let (index, target) = self.feed.take(self.device, number)?;
        visit(self.device, &self.model, self.feed.views.view(index))?;
        let (mut terms, mut other) = (self.inputs.terms.clone(), None);
        if let Some(surfaces) = &self.surfaces {
            other = self.feed.take_other(self.device, surfaces.iteration(number), index)?;
            let extras = ViewExtras { other_view: other.is_some(), ..ViewExtras::default() };
            terms = surfaces.terms(number, extras);
        }
        let view = self.feed.views.view(index);
        let StepInputs { settings, observe, .. } = self.inputs;
        let near = self.surfaces.as_ref().map(|surfaces| &surfaces.near);
        let inputs = ViewInputs {
            view,
            settings,
            observe,
            divisor: Divisor::One,
            compensation: None,
            terms: &terms,
            near,
            other: other.as_ref().map(TakenOther::as_view),
        };
        let (device, model) = (&mut *self.device, &mut self.model);
        let ViewOutputs { pixels, activations, .. } =
            add_gradients(device, model, &target, &inputs, None, gradients)?;
        self.bytes = [activations, gradients.bytes()];
        drop(target);
        self.feed.prefetch(self.device, number + 1)?;
        if let Some(before) = self.pending.replace(pixels) {
            before.read()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        if let Some(last) = self.pending.take() {
            last.read()?;
        }
        Ok(self.device.synchronize()?)
    }

    /// Counts the work of the views of some steps. Slow.
    pub(super) fn count(&mut self, steps: u32) -> Result<CountedWork, TrainError> {
        let StepInputs { settings, observe, .. } = self.inputs;
        let request = TrainRequest { observe, ..TrainRequest::default() };
        let mut works = Vec::new();
        let mut contributing = 0;
        for _ in 0..steps {
            self.step(|device, model, view| {
                let frame = device.render(model, view, &settings, RenderRequest::COUNTS)?;
                let blended = device.image(&frame)?.blended.unwrap_or_default();
                contributing += blended.into_iter().map(u64::from).sum::<u64>();
                drop(frame);
                let frame = device.render_train(model, view, &settings, &request)?;
                if let Some(profiler) = device.profiler() {
                    works.extend(profiler.work(model, &frame)?);
                }
                Ok(())
            })?;
        }
        self.finish()?;
        let pairs = Pairs {
            evaluated: Work::mean(&works).map(|work| work.pairs_evaluated),
            contributing: contributing / u64::from((steps * self.inputs.batch_views).max(1)),
        };
        Ok(CountedWork { works, pairs })
    }

    pub(super) fn copy_speed(&mut self) -> Result<Option<CopySpeed>, TrainError> {
        Ok(match self.device.profiler() {
            Some(profiler) => profiler.copy_speed()?,
            None => None,
        })
    }

    pub(super) fn reset_memory_peaks(&mut self) {
        let _ = self.device.memory(Peaks::Reset);
    }

    /// Returns medians of the stages' times per image, in the order of an iteration; empty if the device does not
    /// time them.
    pub(super) fn stages(&mut self, steps: u32) -> Result<Vec<StageTime>, TrainError> {
        let Some(profiler) = self.device.profiler() else { return Ok(Vec::new()) };
        profiler.time_stages(true)?;
        let mut times: Vec<(Stage, Vec<f64>)> = Vec::new();
        for step in 0..steps {
            self.run(1)?;
            let Some(profiler) = self.device.profiler() else { break };
            let found = profiler.stage_times()?;
            for StageTime { stage, ms } in found {
                let place = times.iter().position(|(known, _)| *known == stage);
                let place = place.unwrap_or_else(|| {
                    times.push((stage, Vec::new()));
                    times.len() - 1
                });
                // A stage may run several times in one step, or not at all.
                let sums = &mut times[place].1;
                sums.resize(step as usize + 1, 0.0);
                sums[step as usize] += ms / f64::from(self.inputs.batch_views);
            }
        }
        if let Some(profiler) = self.device.profiler() {
            profiler.time_stages(false)?;
        }
        let stage_time = |(stage, mut sums): (Stage, Vec<f64>)| {
            sums.resize(steps as usize, 0.0);
            StageTime { stage, ms: median(sums.into_iter()) }
        };
        Ok(times.into_iter().map(stage_time).collect())
    }

    pub(super) fn memory(&mut self) -> Vec<MemoryEntry> {
        if let Some(mut memory) = self.device.memory(Peaks::Keep) {
            // Without entries that only earlier measurements used.
            memory.entries.retain(|entry| entry.peak > Bytes(0));
            return memory.entries;
        }
        let ModelShape { parameters, optimizer, .. } = self.device.shape(&self.model);
        let [activations, gradients] = self.bytes;
        [
            ("parameters", parameters),
            ("optimizer", optimizer),
            ("activations", activations),
            ("gradients", gradients),
        ]
        .map(|(label, bytes)| MemoryEntry {
            label,
            kind: MemoryKind::Region,
            bytes,
            mapped: bytes,
            peak: bytes,
            at_peak: bytes,
        })
        .to_vec()
    }
}

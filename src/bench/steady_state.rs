//! A model in training that stays as it is: what is measured.

use super::costs::Pairs;
use crate::backend::{
    CopySpeed, DeviceError, MemoryEntry, MemoryKind, Pass, Pending, RenderSettings, Stage,
    StageTime, Surface, SurfaceMaps, Work,
};
use crate::config::SugarOptions;
use crate::dataset::View;
use crate::memory::Bytes;
use crate::train::TrainError;
use crate::train::coarse::Asked;
use crate::train::descend::{Descended, Descent, Surfaces, descend};
use crate::train::event::Split;
use crate::train::feed::Feed;

/// A model in training that stays as it is.
pub(super) struct SteadyState<'a, B: Surface + SurfaceMaps> {
    device: &'a mut B,
    model: B::Model,
    feed: Feed<'a>,
    descent: Descent,
    /// What surfaces are asked for in an iteration, and the Gaussians' neighbours.
    surfaces: Option<SurfaceWork<B>>,
    /// The loss of the iteration before, read after the next is launched as in training.
    launched: Option<B::Loss>,
    /// Bytes of the last frame and gradients.
    bytes: [Bytes; 2],
}

/// What views give the device to do.
pub(super) struct Counted {
    /// Of each view; none where the device does not count.
    pub(super) works: Vec<Work>,
    pub(super) pairs: Pairs,
}

/// What the iterations ask of surfaces.
pub(super) struct SurfaceWork<B: Surface> {
    pub(super) options: SugarOptions,
    pub(super) seed: u64,
    pub(super) extent: f64,
    pub(super) near: B::Neighbours,
}

impl<'a, B: Surface + SurfaceMaps> SteadyState<'a, B> {
    pub(super) fn new(
        device: &'a mut B,
        model: B::Model,
        feed: Feed<'a>,
        descent: Descent,
        surfaces: Option<SurfaceWork<B>>,
    ) -> Self {
        Self { device, model, feed, descent, surfaces, launched: None, bytes: [Bytes(0); 2] }
    }

    /// Gives the device as many photographs as it keeps: training brings each once in a while.
    pub(super) fn bring_photographs(&mut self) -> Result<(), TrainError> {
        let views = &mut self.feed.views;
        let train = views.split(Split::Train);
        views.schedule_decoding(train);
        for &view in train {
            let Some(image) = views.fetch(view) else { continue };
            self.device.target(view, &image)?;
            if !self.device.holds(view) {
                break;
            }
            drop(image);
            views.release(self.device, view);
        }
        self.feed.schedule_decoding(self.device, self.descent.step.number + 1);
        Ok(())
    }

    /// So many iterations, to their end.
    pub(super) fn run(&mut self, iterations: u32) -> Result<(), TrainError> {
        for _ in 0..iterations {
            self.iterate(|_, _, _| Ok(()))?;
        }
        self.finish()
    }

    /// One iteration, after a look at the model from its view.
    fn iterate(
        &mut self,
        look: impl FnOnce(&mut B, &B::Model, &View) -> Result<(), DeviceError>,
    ) -> Result<(), TrainError> {
        let step = &mut self.descent.step;
        step.number += 1;
        let number = step.number;
        let (view, target) = self.feed.take(self.device, number)?;
        let view = self.feed.views.view(view);
        look(self.device, &self.model, view)?;
        let surfaces = self.surfaces.as_ref().map(|SurfaceWork { options, seed, extent, near }| {
            let asked = Asked::surfaces(options, (*seed, *extent), number);
            Surfaces { asked, near: Some(near) }
        });
        let (device, model) = (&mut *self.device, &mut self.model);
        let Descended { loss, activations, gradients, .. } =
            descend(device, model, (view, &target), &self.descent, None, surfaces.as_ref())?;
        self.bytes = [activations, gradients];
        drop(target);
        self.feed.prefetch(self.device, number + 1)?;
        if let Some(before) = self.launched.replace(loss) {
            before.read()?;
        }
        for warning in self.feed.views.take_warnings() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TrainError> {
        if let Some(last) = self.launched.take() {
            last.read()?;
        }
        Ok(self.device.synchronize()?)
    }

    /// What the views of so many iterations, which are slow ones, give the device to do.
    pub(super) fn count(&mut self, iterations: u32) -> Result<Counted, TrainError> {
        let settings = self.descent.settings;
        let picture = RenderSettings { pass: Pass::Picture, ..settings };
        let mut works = Vec::new();
        let mut contributing = 0;
        for _ in 0..iterations {
            self.iterate(|device, model, view| {
                let frame = device.render(model, view, &picture)?;
                let blended = device.image(&frame)?.blended.unwrap_or_default();
                contributing += blended.into_iter().map(u64::from).sum::<u64>();
                drop(frame);
                let frame = device.render(model, view, &settings)?;
                if let Some(profiler) = device.profiler() {
                    works.extend(profiler.work(model, &frame)?);
                }
                Ok(())
            })?;
        }
        self.finish()?;
        let pairs = Pairs {
            evaluated: Work::mean(&works).map(|work| work.pairs_evaluated),
            contributing: contributing / u64::from(iterations.max(1)),
        };
        Ok(Counted { works, pairs })
    }

    /// How fast the device copies, with the model where it is.
    pub(super) fn copy_speed(&mut self) -> Result<Option<CopySpeed>, TrainError> {
        Ok(match self.device.profiler() {
            Some(profiler) => profiler.copy_speed()?,
            None => None,
        })
    }

    /// Has the device's memory peaks begin now.
    pub(super) fn reset_memory_peaks(&mut self) {
        self.device.reset_memory_peaks();
    }

    /// Medians of the stages' times, in the order in which they run; none of a device that does not
    /// time them.
    pub(super) fn stages(&mut self, iterations: u32) -> Result<Vec<StageTime>, TrainError> {
        let Some(profiler) = self.device.profiler() else { return Ok(Vec::new()) };
        profiler.time_stages(true)?;
        let mut times: Vec<(Stage, Vec<f64>)> = Vec::new();
        for iteration in 0..iterations {
            self.run(1)?;
            let Some(profiler) = self.device.profiler() else { break };
            let found = profiler.stage_times()?;
            for StageTime { stage, ms } in found {
                let place = times.iter().position(|(known, _)| *known == stage);
                let place = place.unwrap_or_else(|| {
                    times.push((stage, Vec::new()));
                    times.len() - 1
                });
                // A stage may run several times in one iteration, and in some not at all.
                let sums = &mut times[place].1;
                sums.resize(iteration as usize + 1, 0.0);
                sums[iteration as usize] += ms;
            }
        }
        if let Some(profiler) = self.device.profiler() {
            profiler.time_stages(false)?;
        }
        let stage_time = |(stage, mut sums): (Stage, Vec<f64>)| {
            sums.resize(iterations as usize, 0.0);
            StageTime { stage, ms: median(&mut sums) }
        };
        Ok(times.into_iter().map(stage_time).collect())
    }

    pub(super) fn memory(&self) -> Vec<MemoryEntry> {
        let mut entries = self.device.memory();
        if !entries.is_empty() {
            // What only a measurement before this one held.
            entries.retain(|entry| entry.peak > Bytes(0));
            return entries;
        }
        let [parameters, optimizer] = self.device.model_bytes(&self.model);
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

/// The middle value, or the mean of the two in the middle; 0 of none.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (_, None) => 0.0,
        (1, Some(value)) => *value,
        (_, Some(value)) => 0.5 * (values[middle - 1] + value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 9.0, 1.0]), 3.0);
        assert_eq!(median(&mut [4.0, 9.0, 1.0, 2.0]), 3.0);
    }
}

//! What one iteration costs in the steady state: milliseconds, by stage, and bytes.

use std::time::Instant;

use serde::Serialize;

use super::TrainError;
use super::descend::{Descended, Descent, descend};
use super::event::Split;
use super::feed::Feed;
use super::views::Views;
use crate::backend::{
    AdamStep, LossTerms, MemoryEntry, MemoryKind, Pass, Pending, Raster, Rates, RenderSettings,
    StageTime,
};
use crate::dataset::{Dataset, ImageLoader};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Iterations between two looks at the clock: to wait for the device after each would count the
/// gaps that training does not have.
const GROUP: u32 = 10;

/// Every parameter stays where it is, so that the last iteration is as dear as the first.
const NO_RATES: Rates = Rates {
    means: 0.0,
    log_scales: 0.0,
    quats: 0.0,
    opacity_logits: 0.0,
    sh_dc: 0.0,
    sh_rest: 0.0,
};

/// How a model is measured.
#[derive(Clone, Copy)]
pub struct BenchSetup<'a> {
    /// The scene.
    pub dataset: &'a Dataset,
    /// Its pixels.
    pub images: &'a ImageLoader,
    /// Seed of the order of the views.
    pub seed: u64,
    /// Weights of the loss.
    pub terms: LossTerms,
    /// Colour behind everything.
    pub background: [f32; 3],
    /// Whether density control's statistics are gathered, as in the first half of a training.
    pub observes: bool,
    /// Iterations before the clock starts.
    pub warm_up: u32,
    /// Iterations that are timed.
    pub iterations: u32,
}

/// What an iteration costs.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// Gaussians.
    pub gaussians: usize,
    /// Iterations that were timed.
    pub iterations: u32,
    /// Median wall time of an iteration, over groups of ten.
    pub ms_median: f64,
    /// Mean wall time of an iteration.
    pub ms_mean: f64,
    /// Median time on the device of each stage, timed in iterations of their own; nothing where
    /// the device does not tell.
    pub stages: Vec<StageTime>,
    /// The most memory at once.
    pub peak: Peak,
    /// What the memory is used for; of a device that shares the host's, what its model, frame and
    /// gradients take. Peaks are those since the warm-up.
    pub memory: Vec<MemoryEntry>,
}

/// The most memory that the device held at once since the warm-up, and its parts at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// All parts, as taken from the device.
    pub total: Bytes,
    /// Context and code.
    pub context: Bytes,
    /// Photographs.
    pub photographs: Bytes,
    /// Everything else: what the model and its training need.
    pub training: Bytes,
    /// Page-locked memory of the host, which is no part of the total; each entry at its own most.
    pub pinned: Bytes,
}

impl Peak {
    fn of(memory: &[MemoryEntry]) -> Self {
        let zero = Bytes(0);
        let mut peak =
            Self { total: zero, context: zero, photographs: zero, training: zero, pinned: zero };
        for entry in memory {
            let part = match entry.kind {
                MemoryKind::Context => &mut peak.context,
                MemoryKind::Photographs => &mut peak.photographs,
                MemoryKind::Region | MemoryKind::Arena | MemoryKind::Block => &mut peak.training,
                MemoryKind::Pinned => {
                    peak.pinned += entry.peak;
                    continue;
                }
            };
            *part += entry.at_peak;
            peak.total += entry.at_peak;
        }
        peak
    }
}

/// Trains the model in place: no learning rates, no density control.
pub fn bench<B: Raster<Gaussians>>(
    device: &mut B,
    setup: &BenchSetup<'_>,
    gaussians: &Gaussians,
) -> Result<Bench, TrainError> {
    let feed = Feed::new(Views::new(setup.dataset, setup.images), setup.seed);
    // What a measurement before this one needed is not this one's.
    device.trim_memory()?;
    let mut model = device.upload(gaussians)?;
    // As training has it.
    device.reorder(&mut model, &super::scene_cube(setup.dataset))?;
    let settings = RenderSettings {
        pass: if setup.observes { Pass::Observe } else { Pass::Train },
        sh_degree: gaussians.sh_degree,
        background: setup.background,
        near: feed.views.near(),
    };
    let step = AdamStep { number: 0, rates: NO_RATES };
    let descent = Descent { settings, terms: setup.terms, step };
    let mut treadmill =
        Treadmill { device, model, feed, descent, launched: None, bytes: [Bytes(0); 2] };
    treadmill.bring_photographs()?;
    treadmill.run(setup.warm_up)?;
    // What the iterations so far have taken stays taken; photographs that had to make room for
    // it are gone.
    treadmill.device.reset_memory_peaks();

    let mut groups = Vec::new();
    let mut seconds = 0.0;
    let mut left = setup.iterations;
    while left > 0 {
        let count = left.min(GROUP);
        let started = Instant::now();
        treadmill.run(count)?;
        let group = started.elapsed().as_secs_f64();
        seconds += group;
        groups.push(group * 1e3 / f64::from(count));
        left -= count;
    }
    let stages = treadmill.stages(setup.iterations)?;
    let memory = treadmill.memory();
    Ok(Bench {
        gaussians: gaussians.len(),
        iterations: setup.iterations,
        ms_median: median(&mut groups),
        ms_mean: seconds * 1e3 / f64::from(setup.iterations.max(1)),
        stages,
        peak: Peak::of(&memory),
        memory,
    })
}

/// A model in training that goes nowhere.
struct Treadmill<'a, B: Raster<Gaussians>> {
    device: &'a mut B,
    model: B::Model,
    feed: Feed<'a>,
    descent: Descent,
    /// The loss of the iteration before, read behind the next as in training.
    launched: Option<B::Loss>,
    /// Bytes of the last frame and gradients.
    bytes: [Bytes; 2],
}

impl<B: Raster<Gaussians>> Treadmill<'_, B> {
    /// Gives the device as many photographs as it keeps: training brings each once in a while.
    fn bring_photographs(&mut self) -> Result<(), TrainError> {
        let views = &mut self.feed.views;
        let train = views.split(Split::Train);
        views.announce(train);
        for &view in train {
            let Some(image) = views.fetch(view) else { continue };
            self.device.target(view, &image)?;
            if !self.device.holds(view) {
                break;
            }
            drop(image);
            views.let_go(self.device, view);
        }
        self.feed.announce(self.device, self.descent.step.number + 1);
        Ok(())
    }

    /// So many iterations, to their end.
    fn run(&mut self, iterations: u32) -> Result<(), TrainError> {
        for _ in 0..iterations {
            let step = &mut self.descent.step;
            step.number += 1;
            let number = step.number;
            let (view, target) = self.feed.take(self.device, number)?;
            let view = self.feed.views.view(view);
            let Descended { loss, activations, gradients } =
                descend(self.device, &mut self.model, view, &target, &self.descent)?;
            self.bytes = [activations, gradients];
            drop(target);
            self.feed.prefetch(self.device, number + 1)?;
            if let Some(before) = self.launched.replace(loss) {
                before.read()?;
            }
            for warning in self.feed.views.take_warnings() {
                tracing::warn!("{warning}");
            }
        }
        if let Some(last) = self.launched.take() {
            last.read()?;
        }
        Ok(self.device.synchronize()?)
    }

    /// Medians of the stages' times, in the order in which they run.
    fn stages(&mut self, iterations: u32) -> Result<Vec<StageTime>, TrainError> {
        self.device.time_stages(true);
        let mut times: Vec<(&'static str, Vec<f64>)> = Vec::new();
        for iteration in 0..iterations {
            self.run(1)?;
            let found = self.device.stage_times()?;
            if found.is_empty() {
                break;
            }
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
        self.device.time_stages(false);
        let stage_time = |(stage, mut sums): (&'static str, Vec<f64>)| {
            sums.resize(iterations as usize, 0.0);
            StageTime { stage, ms: median(&mut sums) }
        };
        Ok(times.into_iter().map(stage_time).collect())
    }

    fn memory(&self) -> Vec<MemoryEntry> {
        let mut told = self.device.memory();
        if !told.is_empty() {
            // What only a measurement before this one held.
            told.retain(|entry| entry.peak > Bytes(0));
            return told;
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
fn median(values: &mut [f64]) -> f64 {
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
    fn a_peak_counts_each_byte_of_the_device_once() {
        let entry = |kind, at_peak, peak| {
            let (peak, at_peak) = (Bytes(peak), Bytes(at_peak));
            MemoryEntry { label: "", kind, bytes: peak, mapped: at_peak, peak, at_peak }
        };
        let peak = Peak::of(&[
            entry(MemoryKind::Context, 500, 500),
            entry(MemoryKind::Photographs, 60, 60),
            entry(MemoryKind::Photographs, 1, 2),
            entry(MemoryKind::Region, 700, 900),
            entry(MemoryKind::Arena, 300, 300),
            entry(MemoryKind::Block, 0, 290),
            entry(MemoryKind::Pinned, 7, 70),
        ]);
        let [total, context, photographs, training, pinned] = [1561, 500, 61, 1000, 70].map(Bytes);
        assert_eq!(peak, Peak { total, context, photographs, training, pinned });
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(median(&mut [3.0, 9.0, 1.0]), 3.0);
        assert_eq!(median(&mut [4.0, 9.0, 1.0, 2.0]), 3.0);
    }
}

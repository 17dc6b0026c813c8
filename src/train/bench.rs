//! What one iteration costs in the steady state: milliseconds, by stage and beside the least that
//! they could be, and bytes.

mod costs;
mod steady_state;

use std::time::Instant;

use serde::Serialize;

use self::costs::costs;
pub use self::costs::{Pairs, StageCost, Traffic};
use self::steady_state::{Counted, SteadyState, SurfaceWork, median};
use super::TrainError;
use super::descend::Descent;
use super::feed::Feed;
use super::views::Views;
use crate::backend::{
    AdamStep, CopySpeed, LossTerms, MemoryEntry, MemoryKind, Pass, Rates, RenderSettings,
    ScreenFilter, Surface, SurfaceMaps, Work,
};
use crate::config::{Regularize, SugarOptions};
use crate::dataset::{Dataset, ImageLoader};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Iterations between two looks at the clock: to wait for the device after each would count the
/// gaps that training does not have.
const GROUP: u32 = 10;

/// Views whose work is counted: to count takes much longer than to do it.
const VIEWS_COUNTED: u32 = 10;

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
    /// What keeps splats from falling between pixels.
    pub screen_filter: ScreenFilter,
    /// Whether density control's statistics are gathered, as in the first half of a training.
    pub observes: bool,
    /// What surfaces are asked for, as in the last three quarters of the coarse stage.
    pub sugar: &'a SugarOptions,
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
    /// the device does not tell. Beside it, what a stage moves at least.
    pub stages: Vec<StageCost>,
    /// How fast the device copies its own memory, where it tells.
    pub copy: Option<CopySpeed>,
    /// What a view gives the stages to do, mean of a few; nothing where the device does not count.
    pub work: Option<Work>,
    /// What the blend stages evaluate, and what that is good for.
    pub pairs: Pairs,
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
pub fn bench<B: Surface + SurfaceMaps>(
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
        screen_filter: setup.screen_filter,
        ..RenderSettings::DEFAULT
    };
    let step = AdamStep::new(0, NO_RATES);
    let descent = Descent { settings, terms: setup.terms, depth_weight: None, step };
    let surfaces = match setup.sugar.regularize {
        Regularize::None => None,
        _ => Some(SurfaceWork {
            options: setup.sugar.clone(),
            seed: setup.seed,
            extent: super::scene_extent(setup.dataset),
            near: device.neighbours(&model, setup.sugar.regularity_knn)?,
        }),
    };
    let mut steady = SteadyState::new(device, model, feed, (descent, surfaces));
    steady.bring_photographs()?;
    steady.run(setup.warm_up)?;
    // What the iterations so far have taken stays taken; photographs that had to make room for
    // it are gone.
    steady.reset_memory_peaks();

    let mut groups = Vec::new();
    let mut seconds = 0.0;
    let mut left = setup.iterations;
    while left > 0 {
        let count = left.min(GROUP);
        let started = Instant::now();
        steady.run(count)?;
        let group = started.elapsed().as_secs_f64();
        seconds += group;
        groups.push(group * 1e3 / f64::from(count));
        left -= count;
    }
    let times = steady.stages(setup.iterations)?;
    let memory = steady.memory();
    // Only now, for both take memory that training does not.
    let Counted { works, pairs } = steady.count(setup.iterations.min(VIEWS_COUNTED))?;
    let copy = steady.copy_speed()?;
    Ok(Bench {
        gaussians: gaussians.len(),
        iterations: setup.iterations,
        ms_median: median(&mut groups),
        ms_mean: seconds * 1e3 / f64::from(setup.iterations.max(1)),
        stages: costs(&times, &works, copy),
        copy,
        work: Work::mean(&works),
        pairs,
        peak: Peak::of(&memory),
        memory,
    })
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
}

//! The measurement: timed iterations, then timed stages, then counted work.

use std::time::Instant;

use super::costs::costs;
use super::denser::denser;
use super::report::BenchReport;
use super::result::{Bench, Peak};
use super::steady_state::{CountedWork, SteadyState, StepInputs, SurfaceWork};
use crate::backend::{
    AdamStep, Footprint, Rates, RenderSettings, Statistics, Terms, TrainDevice, Work,
};
use crate::config::Config;
use crate::dataset::{Dataset, ImageLoader};
use crate::math::quantile::median;
use crate::model::Gaussians;
use crate::train::coarse::CoarseSchedule;
use crate::train::feed::Feed;
use crate::train::{TrainError, Views, scene_cube, scene_extent};

/// Steps between two readings of the clock. Waiting for the device after each step would add gaps that training does
/// not have.
const STEPS_PER_GROUP: u32 = 10;

/// Views whose work is counted. Counting is much slower than the work.
const VIEWS_COUNTED: u32 = 10;

/// Inputs of a measurement.
#[derive(Clone, Copy)]
pub struct BenchSetup<'a> {
    /// The scene.
    pub dataset: &'a Dataset,
    /// Loader of the photographs.
    pub images: &'a ImageLoader,
    /// Options for the order of the views, the weights of the loss, and the surface terms of the last three quarters
    /// of the coarse stage.
    pub config: &'a Config,
    /// Colour of the background.
    pub background: [f32; 3],
    /// Shape of the Gaussians on the screen.
    pub footprint: Footprint,
    /// True if density control's statistics are gathered, as in the first half of a training.
    pub observes: bool,
    /// Views of a step.
    pub batch_views: u32,
    /// Steps before the clock starts.
    pub warm_up: u32,
    /// Steps that are timed.
    pub iterations: u32,
}

/// Measures models with these numbers of Gaussians, the smallest first.
pub fn measure<B: TrainDevice>(
    device: &mut B,
    setup: &BenchSetup<'_>,
    gaussians: &Gaussians,
    mut counts: Vec<usize>,
) -> Result<BenchReport, TrainError> {
    counts.sort_unstable();
    let mut runs = Vec::with_capacity(counts.len());
    for count in counts {
        tracing::info!("{count} Gaussians");
        runs.push(bench(device, setup, &denser(gaussians, count, setup.config.run.seed))?);
    }
    let dataset = setup.dataset;
    let first = dataset.train.first().map(|&view| &dataset.views[view].camera);
    Ok(BenchReport {
        device: device.info().name,
        train_views: dataset.train.len(),
        view_px: first.map_or([0; 2], |camera| [camera.width, camera.height]),
        observes: setup.observes,
        batch_views: setup.batch_views,
        sugar: setup.config.sugar.clone(),
        runs,
    })
}

/// Measures training steps without learning rates and density control.
fn bench<B: TrainDevice>(
    device: &mut B,
    setup: &BenchSetup<'_>,
    gaussians: &Gaussians,
) -> Result<Bench, TrainError> {
    let config = setup.config;
    let mut feed = Feed::new(Views::new(setup.dataset, setup.images), config.run.seed);
    feed.compare_views(setup.dataset, config);
    // Memory of an earlier measurement must not count.
    if let Some(profiler) = device.profiler() {
        profiler.trim_memory()?;
    }
    let mut model = device.upload(gaussians)?;
    // Training sorts the model, too.
    device.reorder(&mut model, &scene_cube(setup.dataset))?;
    let settings = RenderSettings {
        sh_degree: gaussians.sh_degree,
        background: setup.background,
        near: feed.views.near(),
        footprint: setup.footprint,
        ..RenderSettings::DEFAULT
    };
    let inputs = StepInputs {
        batch_views: setup.batch_views,
        settings,
        observe: setup.observes.then_some(Statistics::Norms),
        terms: Terms::photometric(config.optimize.lambda_dssim),
        // The last iteration costs as much as the first if every parameter stays.
        step: AdamStep::new(0, Rates::NONE),
    };
    let surfaces = match CoarseSchedule::of(config) {
        None => None,
        Some(schedule) => Some(SurfaceWork {
            config: config.clone(),
            schedule,
            extent: scene_extent(setup.dataset),
            near: device.neighbours(&model, config.sugar.regularity_knn)?,
        }),
    };
    let mut steady = SteadyState::new(device, model, feed, inputs, surfaces);
    steady.upload_photographs()?;
    steady.run(setup.warm_up)?;
    // The peaks start after the warm-up, when photographs have been evicted for the iterations' memory.
    steady.reset_memory_peaks();

    let images = |steps: u32| f64::from(steps * setup.batch_views);
    let mut groups = Vec::new();
    let mut seconds = 0.0;
    let mut left = setup.iterations;
    while left > 0 {
        let count = left.min(STEPS_PER_GROUP);
        let started = Instant::now();
        steady.run(count)?;
        let group = started.elapsed().as_secs_f64();
        seconds += group;
        groups.push(group * 1e3 / images(count));
        left -= count;
    }
    let times = steady.stages(setup.iterations)?;
    let memory = steady.memory();
    // Last, because both take memory that training does not.
    let CountedWork { works, pairs } = steady.count(setup.iterations.min(VIEWS_COUNTED))?;
    let copy = steady.copy_speed()?;
    Ok(Bench {
        gaussians: gaussians.len(),
        iterations: setup.iterations,
        ms_median: median(groups.into_iter()),
        ms_mean: seconds * 1e3 / images(setup.iterations),
        stages: costs(&times, &works, copy),
        copy,
        work: Work::mean(&works),
        pairs,
        peak: Peak::of(&memory),
        memory,
    })
}

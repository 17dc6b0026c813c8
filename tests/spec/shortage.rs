//! A run on a device that runs out of memory: it retries after a fallback, grows less, and in the end stops with a
//! checkpoint to resume from.

use splat::config::{Config, OptimizeOptions, Regularize, TrainSample};
use splat::dataset::{Dataset, ImageLoader, Residency};
use splat::files::OutputError;
use splat::memory::Fallback;
use splat::model::from_points;
use splat::perceptual::{LpipsNet, LpipsWeights};
use splat::train::checkpoint::StoredCheckpoint;
use splat::train::event::{DensifyStep, Event, Sink};
use splat::train::{Outcome, TrainError, Trainer};

use crate::common::hooked::{ConstrainedBackend, Constraints};
use crate::common::program::{TestFolder, set_up};

#[derive(Default)]
struct Record {
    steps: Vec<u32>,
    fallbacks: Vec<(u32, Fallback)>,
    warnings: Vec<String>,
    /// Iterations of evaluations, and true if with LPIPS.
    evaluations: Vec<(u32, bool)>,
    /// Lengths of the neighbour lists, and their iterations.
    lists: Vec<(u32, u32)>,
    /// Cloned or split, refused, and resulting Gaussians.
    densify_steps: Vec<(usize, usize, usize)>,
}

impl Sink for Record {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Step(step) => self.steps.push(step.iteration),
            Event::Fallback { iteration, change, .. } => {
                self.fallbacks.push((*iteration, change.fallback))
            }
            Event::Neighbours { iteration, count, .. } => self.lists.push((*iteration, *count)),
            Event::Warning { message } => self.warnings.push(message.clone()),
            Event::Densify(DensifyStep { report, gaussians, .. }) => {
                assert_eq!(report.event, "densified");
                let counts = &report.counts[..];
                let [("cloned", cloned), ("split", split), ("refused", refused), _] = counts else {
                    panic!("{report:?}")
                };
                self.densify_steps.push((cloned + split, *refused, *gaussians));
            }
            Event::Evaluated(evaluation) => {
                let lpips = evaluation.mean.lpips;
                let is_measured = lpips.is_some();
                assert_eq!(is_measured, evaluation.lpips_net.is_some());
                let mut views = evaluation.views.iter();
                assert!(views.all(|view| view.metrics.lpips.is_some() == is_measured));
                self.evaluations.push((evaluation.iteration, lpips.is_some()));
            }
            _ => {}
        }
        Ok(())
    }
}

fn config(place: &TestFolder) -> Config {
    let mut config = Config::default();
    config.scene.source_path = Some(place.scene());
    config.optimize.iterations = 30;
    config.optimize.sh_degree = 0;
    config.densify.densify_from_iter = 5;
    config.densify.densification_interval = 10;
    // All visible Gaussians are candidates.
    config.densify.densify_grad_threshold = 0.0;
    // The test counts frames.
    config.output.eval_train = TrainSample::Views(0);
    config
}

fn run(
    place: &TestFolder,
    device: &mut ConstrainedBackend,
) -> (Record, Result<Outcome, TrainError>) {
    run_as(place, device, &config(place), None)
}

fn run_as(
    place: &TestFolder,
    device: &mut ConstrainedBackend,
    config: &Config,
    lpips: Option<&LpipsWeights>,
) -> (Record, Result<Outcome, TrainError>) {
    let mut record = Record::default();
    let ended = set_up(place, (config, lpips), &loader(config), |setup| {
        let init_opacity = config.optimize.init_opacity;
        let options = OptimizeOptions { sh_degree: 0, init_opacity, ..OptimizeOptions::default() };
        let gaussians = from_points(&setup.dataset.points, &options, 0);
        Trainer::start(setup, device, &mut record, &gaussians).unwrap().run()
    });
    (record, ended)
}

fn loader(config: &Config) -> ImageLoader {
    ImageLoader::new(Dataset::load(&config.scene).unwrap().sources, Residency::All)
}

fn finished(place: &TestFolder, device: &mut ConstrainedBackend, config: &Config) -> Record {
    let (record, ended) = run_as(place, device, config, None);
    assert_eq!(ended.unwrap(), Outcome::Finished);
    record
}

/// A finished run of these options on a device with these limits, and what the device was asked for.
fn limited(
    choose: impl FnOnce(&mut Config),
    limit: impl FnOnce(&mut Constraints),
) -> (Record, Constraints) {
    let (place, mut device) = (TestFolder::with_scene(), ConstrainedBackend::new(9));
    let mut config = config(&place);
    choose(&mut config);
    limit(&mut device.hooks);
    (finished(&place, &mut device, &config), device.hooks)
}

/// Evaluations use the full size, held-out or not.
fn evaluated(config: &mut Config, iterations: u32, at: u32) {
    (config.scene.eval, config.scene.test_every) = (true, 4);
    (config.optimize.iterations, config.output.test_iterations) = (iterations, vec![at.into()]);
}

fn final_ply(place: &TestFolder) -> Vec<u8> {
    std::fs::read(place.model().join("point_cloud/iteration_30/point_cloud.ply")).unwrap()
}

#[test]
fn a_refused_frame_is_drawn_again_after_a_fallback() {
    let (place, other) = (TestFolder::with_scene(), TestFolder::with_scene());
    let free = finished(&place, &mut ConstrainedBackend::new(9), &config(&place));
    let mut device = ConstrainedBackend::new(9);
    device.hooks.refused_frames = [4, 5, 17].into();
    device.hooks.reliefs = 3;
    let record = finished(&other, &mut device, &config(&other));
    // Reported at the end of the iteration.
    assert_eq!(
        record.fallbacks,
        [(4, Fallback::Compact), (4, Fallback::Compact), (15, Fallback::Compact)]
    );
    assert_eq!((record.steps, record.densify_steps), (free.steps, free.densify_steps));
    assert_eq!(final_ply(&other), final_ply(&place));
}

#[test]
fn a_run_without_fallbacks_left_stops_with_a_checkpoint() {
    let place = TestFolder::with_scene();
    let mut device = ConstrainedBackend::new(9);
    device.hooks.refused_frames = [13].into();
    let (record, ended) = run(&place, &mut device);
    let error = ended.unwrap_err();
    let TrainError::OutOfMemory { checkpoint, source } = &error else { panic!("{error}") };
    assert_eq!(record.steps.last(), Some(&12));
    let stored = StoredCheckpoint::open(checkpoint).unwrap();
    assert_eq!(stored.about.iteration, 12);
    assert_eq!(source.largest()[0].label, "sh");
    let text = error.to_string();
    for part in ["`splats` needs 2.0 MiB", "Nothing more can be given up", "chkpnt_12"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_short_grant_adds_fewer_gaussians_and_reports_the_refused() {
    let (record, hooks) = limited(|_| (), |hooks| hooks.new_gaussians = 5);
    assert_eq!(hooks.densify_steps, [5, 5]);
    assert!(record.densify_steps.iter().all(|&(born, refused, _)| born == 5 && refused > 0));
}

#[test]
fn a_refused_densification_step_only_prunes() {
    let (record, hooks) = limited(|_| (), |hooks| hooks.refused_steps = 1);
    assert_eq!(hooks.densify_steps.len(), 3);
    assert_eq!(hooks.densify_steps[1], 0);
    let [first, second] = record.densify_steps[..] else { panic!("{:?}", record.densify_steps) };
    assert_eq!(first.0, 0);
    assert!(first.1 > 0 && second.0 > 0, "{first:?}, {second:?}");
    assert!(record.warnings.is_empty(), "{:?}", record.warnings);
}

#[test]
fn a_host_without_memory_refuses_gaussians_or_stops_the_run() {
    let (record, _) =
        limited(|_| (), |hooks| (hooks.is_host_short, hooks.refused_steps) = (true, 1));
    assert!(
        record.densify_steps[0].0 == 0 && record.densify_steps[1].0 > 0,
        "{:?}",
        record.densify_steps
    );
    let place = TestFolder::with_scene();
    let mut device = ConstrainedBackend::new(9);
    (device.hooks.is_host_short, device.hooks.refused_frames) = (true, [13].into());
    let error = run(&place, &mut device).1.unwrap_err();
    let TrainError::OutOfMemory { checkpoint, .. } = &error else { panic!("{error}") };
    assert_eq!(StoredCheckpoint::open(checkpoint).unwrap().about.iteration, 12);
    assert!(error.to_string().contains("give --offload none"), "{error}");
}

#[test]
fn an_evaluation_without_memory_omits_lpips() {
    let weights = crate::common::lpips::weights(LpipsNet::Alex);
    let measured = |refuse: fn(&mut ConstrainedBackend)| {
        let place = TestFolder::with_scene();
        let mut config = config(&place);
        evaluated(&mut config, 4, 2);
        let mut device = ConstrainedBackend::new(9);
        refuse(&mut device);
        let (record, ended) = run_as(&place, &mut device, &config, Some(&weights));
        assert_eq!(ended.unwrap(), Outcome::Finished);
        assert_eq!(record.steps, [1, 2, 3, 4]);
        (record.evaluations, record.warnings)
    };
    assert_eq!(measured(|_| ()), (vec![(2, true), (4, true)], vec![]));
    let (evaluations, warnings) = measured(|device| device.hooks.refuses_lpips = true);
    assert_eq!(evaluations, [(2, false), (4, false)]);
    assert!(warnings.len() == 2 && warnings[0].contains("without LPIPS"), "{warnings:?}");
    // The fourth frame is the second of the two that are measured after two iterations.
    let (evaluations, warnings) = measured(|device| device.hooks.refused_frames = [4].into());
    assert_eq!(evaluations, [(2, false), (4, true)]);
    assert!(warnings.len() == 1 && warnings[0].contains("`splats` needs"), "{warnings:?}");
}

#[test]
fn lists_of_neighbours_shrink_without_memory() {
    let place = TestFolder::with_scene();
    let mut config = config(&place);
    config.sugar.regularize = Regularize::Density;
    (config.sugar.sugar_iterations, config.sugar.n_samples_for_sdf) = (20, 50);
    // More opaque than transparent, so that the prune leaves some.
    config.optimize.init_opacity = 0.9;
    // The frames of the photometric stage, of the time before the prune, and two after it. Distances to surfaces are
    // measured every 1,000 iterations only.
    let mut device = ConstrainedBackend::new(8);
    (device.hooks.reliefs, device.hooks.fewer_neighbours) = (1, 12);
    device.hooks.refused_frames = [30 + 6 + 3].into();
    let record = finished(&place, &mut device, &config);
    assert_eq!(record.lists, [(36, 16), (38, 12)]);
    assert_eq!(device.hooks.found_lists, [16, 12]);
    assert_eq!(record.steps, (1..=50).collect::<Vec<u32>>());
}

#[test]
fn a_batch_with_a_refused_view_steps_with_the_earlier_views() {
    for reliefs in [0, 1] {
        let refuse = |hooks: &mut Constraints| {
            (hooks.refused_frames, hooks.reliefs) = ([7].into(), reliefs);
        };
        let (record, _) = limited(|config| config.optimize.batch_views = 4, refuse);
        // The third view of the second step is refused; the next step ends where batches end.
        assert_eq!(record.steps, [4, 6, 8, 12, 16, 20, 24, 28, 30]);
        assert_eq!(record.fallbacks.len(), reliefs);
    }
}

/// Photographs of 48x36 px at full size, at 0.9 and at 0.81.
const SIZES: [[u32; 2]; 3] = [[48, 36], [43, 32], [39, 29]];

#[test]
fn views_shrink_while_memory_is_short_and_grow_again() {
    let refuse = |hooks: &mut Constraints| {
        hooks.refused_frames = [4, 9].into();
        (hooks.reliefs, hooks.smaller_views, hooks.full_size_from) = (2, 2, 25);
    };
    let (record, hooks) = limited(|config| evaluated(config, 30, 12), refuse);
    assert_eq!(record.steps, (1..=30).collect::<Vec<u32>>());
    // Two frames are refused, after 3 and 7 steps; two of the others are measured after 12.
    let [full, smaller, smallest] = SIZES;
    let trained = [(full, 4), (smaller, 5), (smallest, 14), (full, 9)];
    assert_eq!(hooks.trained_px, trained);
    let fallbacks = record.fallbacks.iter().map(|&(_, fallback)| fallback).collect::<Vec<_>>();
    assert_eq!(fallbacks, [Fallback::Resolution; 3]);
    let expected = [("0.90", "iteration 3"), ("0.81", "iteration 7")];
    assert_eq!(record.warnings.len(), 2, "{:?}", record.warnings);
    for (warning, (scale, iteration)) in record.warnings.iter().zip(expected) {
        for part in [scale, iteration, "--give-up resolution"] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
    }
    assert_eq!(record.evaluations, [(12, false), (30, false)]);
}

#[test]
fn an_evaluation_beyond_the_memory_is_left_out() {
    let refuse = |hooks: &mut Constraints| {
        // The second step, and the first measured view.
        hooks.refused_frames = [2, 6].into();
        (hooks.reliefs, hooks.smaller_views) = (1, 1);
    };
    let (record, _) = limited(|config| evaluated(config, 6, 4), refuse);
    assert_eq!(record.evaluations, [(6, false)]);
    let last = record.warnings.last().unwrap();
    assert!(last.contains("this evaluation is left out"), "{:?}", record.warnings);
}

#[test]
fn a_resumed_run_keeps_the_size_of_its_views() {
    let place = TestFolder::with_scene();
    let mut config = config(&place);
    config.output.checkpoint_iterations = vec![20];
    let mut device = ConstrainedBackend::new(9);
    device.hooks.refused_frames = [11].into();
    (device.hooks.reliefs, device.hooks.smaller_views) = (1, 1);
    finished(&place, &mut device, &config);
    let unbroken = final_ply(&place);
    let stored = place.checkpoint(20);
    let resume = |device: &mut ConstrainedBackend| {
        let checkpoint = StoredCheckpoint::open(&stored).unwrap();
        assert_eq!(checkpoint.about.training_scale.times(), 1);
        let ended = set_up(&place, (&config, None), &loader(&config), |setup| {
            let mut record = Record::default();
            Trainer::resume(setup, device, &mut record, checkpoint).unwrap().run()
        });
        assert_eq!(ended.unwrap(), Outcome::Finished);
    };
    let mut device = ConstrainedBackend::new(9);
    resume(&mut device);
    assert_eq!(device.hooks.trained_px, [(SIZES[1], 10)]);
    assert!(final_ply(&place) == unbroken);
    // A device with enough memory draws views at full size.
    let mut device = ConstrainedBackend::new(9);
    device.hooks.is_ample = true;
    resume(&mut device);
    assert_eq!(device.hooks.trained_px, [(SIZES[0], 10)]);
}

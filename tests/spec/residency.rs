//! A device that keeps photographs gets each of them once, in time, and the host drops them.

use std::time::{Duration, Instant};

use splat::config::{Color, Config, OptimizeOptions, SceneOptions, TrainSample};
use splat::dataset::{Dataset, ImageLoader, LoaderStatistics, Residency, decode};
use splat::files::OutputError;
use splat::memory::Bytes;
use splat::model::from_points;
use splat::train::Trainer;
use splat::train::event::{Evaluation, Event, Sink};

use crate::common::hooked::{ConstrainedBackend, Constraints};
use crate::common::prelude::*;
use crate::common::program::{TestFolder, cut, set_up};

#[derive(Default)]
struct Record {
    losses: Vec<f64>,
    warnings: Vec<String>,
    pictures: usize,
    evaluations: Vec<Evaluation>,
    training_seconds: f64,
}

impl Sink for Record {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        match event {
            Event::Step(step) => {
                assert_eq!(step.iteration as usize, self.losses.len() + 1);
                assert!(step.ms > 0.0);
                self.losses.push(step.total);
            }
            Event::Warning { message } => self.warnings.push(message.clone()),
            Event::Pictures(_) => self.pictures += 1,
            Event::Finished { training_seconds, .. } => self.training_seconds = *training_seconds,
            Event::Evaluated(evaluation) => self.evaluations.push(evaluation.clone()),
            _ => {}
        }
        Ok(())
    }
}

struct Tap<S> {
    observe: S,
    record: Record,
}

impl<S: FnMut(&Event)> Sink for Tap<S> {
    fn on(&mut self, event: &Event) -> Result<(), OutputError> {
        (self.observe)(event);
        self.record.on(event)
    }
}

struct Run {
    record: Record,
    ply: Vec<u8>,
    loader: LoaderStatistics,
    host: Bytes,
}

/// Epochs of a run. The tiny scene has seven training views and one held-out view.
const EPOCHS: u32 = 4;
const TRAIN_VIEWS: usize = 7;

fn scene(place: &TestFolder) -> SceneOptions {
    let mut options = Config::default().scene;
    options.source_path = Some(place.scene());
    options.eval = true;
    options
}

fn dataset(place: &TestFolder) -> Dataset {
    Dataset::load(&scene(place)).unwrap()
}

fn run<B: TrainDevice>(place: &TestFolder, device: &mut B, residency: Residency) -> Run {
    let images = ImageLoader::new(dataset(place).sources, residency);
    run_observed(|_| (), place, device, &images)
}

fn plain(place: &TestFolder) -> Run {
    run(place, &mut Cpu::<f32>::new(), CACHE)
}

/// Runs the training; `observe` gets the events first.
fn run_observed<B: TrainDevice>(
    observe: impl FnMut(&Event),
    place: &TestFolder,
    device: &mut B,
    images: &ImageLoader,
) -> Run {
    let mut config = Config { scene: scene(place), ..Config::default() };
    config.optimize.iterations = EPOCHS * 7;
    config.optimize.sh_degree = 1;
    config.output.test_iterations = vec![10];
    config.output.eval_train = TrainSample::Views(0);
    let mut seen = Tap { observe, record: Record::default() };
    set_up(place, (&config, None), images, |setup| {
        assert_eq!(setup.dataset.train.len(), TRAIN_VIEWS);
        let options = OptimizeOptions { sh_degree: 1, ..OptimizeOptions::default() };
        let gaussians = from_points(&setup.dataset.points, &options, 0);
        Trainer::start(setup, device, &mut seen, &gaussians).unwrap().run().unwrap();
    });
    let record = seen.record;
    let ply = std::fs::read(place.ply(EPOCHS * 7)).unwrap();
    Run { record, ply, loader: images.statistics(), host: images.held() }
}

const CACHE: Residency = Residency::OnDemand { cache: Bytes(1 << 20) };

#[test]
fn a_device_with_room_gets_each_photograph_once_and_the_host_keeps_none() {
    let place = TestFolder::with_scene();
    let plain = plain(&place);
    let mut backend = ConstrainedBackend::new(8);
    let kept = run(&place, &mut backend, CACHE);
    let (hooks, dataset) = (backend.hooks, dataset(&place));
    assert!(kept.ply == plain.ply && kept.record.losses == plain.record.losses);
    assert_eq!(hooks.late_uploads.len(), 1, "the first: {:?}", hooks.late_uploads);
    let mut given = [hooks.late_uploads, hooks.prefetched].concat();
    given.sort_unstable();
    assert_eq!(given, dataset.train);
    // Announced views are drawn next. None is announced before the first step and after the last.
    assert_eq!(hooks.expected.len(), hooks.trained.len() - 1);
    for (after, (before, name)) in (1..).zip(&hooks.expected) {
        assert_eq!((*before, name), (after, &hooks.trained[after]));
    }
    assert_eq!(hooks.nears.len(), EPOCHS as usize * TRAIN_VIEWS + 2);
    assert!(hooks.nears.iter().all(|&near| near == 0.01 * dataset.extent()));
    // The held-out photograph is uploaded each time and stays on the host.
    assert_eq!((kept.record.evaluations.len(), kept.record.pictures), (2, 2));
    assert_eq!((hooks.transient_uploads, kept.loader.decoded), (2, 8));
    let image = decode(&dataset.sources[dataset.test[0]]).unwrap();
    let mask = image.mask.map_or(0, |mask| mask.len());
    assert_eq!(kept.host, Bytes::of::<u8>(image.rgb.len() + mask));
    let means = |ran: &Run| ran.record.evaluations.iter().map(|e| e.mean).collect::<Vec<_>>();
    assert_eq!(means(&kept), means(&plain));
}

#[test]
fn a_device_with_room_for_few_gets_every_photograph_in_time() {
    let place = TestFolder::with_scene();
    let plain = plain(&place);
    for room in [1, 3] {
        let mut backend = ConstrainedBackend::new(room);
        let kept = run(&place, &mut backend, CACHE);
        assert!(kept.ply == plain.ply, "room for {room}");
        let hooks = backend.hooks;
        assert_eq!(hooks.late_uploads.len(), 1, "room for {room}: {:?}", hooks.late_uploads);
        assert!(hooks.prefetched.len() > 7, "room for {room}: {:?}", hooks.prefetched);
    }
}

#[test]
fn a_device_without_room_gets_views_read_ahead() {
    let place = TestFolder::with_scene();
    let plain = plain(&place);
    let mut backend = ConstrainedBackend::new(0);
    let kept = run(&place, &mut backend, CACHE);
    assert!(kept.ply == plain.ply);
    assert_eq!(backend.hooks.late_uploads.len(), EPOCHS as usize * TRAIN_VIEWS);
    assert_eq!(backend.hooks.transient_uploads, 2);
    // Reading ahead adds no fetches.
    let fetches = |ran: &Run| ran.loader.ready + ran.loader.waited + ran.loader.missed;
    assert_eq!(fetches(&kept), fetches(&plain));
}

#[test]
fn held_out_photographs_are_decoded_before_they_are_evaluated() {
    let place = TestFolder::with_scene();
    let images = ImageLoader::new(dataset(&place).sources, CACHE);
    let plain = plain(&place);
    // Well before the evaluation after ten iterations, all photographs are decoded ahead.
    let wait = |event: &Event| {
        let Event::Step(step) = event else { return };
        let started = Instant::now();
        while step.iteration == 5 && images.statistics().decoded < TRAIN_VIEWS as u64 + 1 {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?}", images.statistics());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let ran = run_observed(wait, &place, &mut Cpu::<f32>::new(), &images);
    assert!(ran.ply == plain.ply && ran.record.evaluations.len() == 2);
    assert_eq!(ran.loader.decoded, TRAIN_VIEWS as u64 + 1);
}

#[test]
fn photographs_that_a_device_drops_are_decoded_ahead_again() {
    let place = TestFolder::with_scene();
    let plain = plain(&place);
    let mut backend = ConstrainedBackend::new(8);
    // With the first frame of the third epoch, after an evaluation of one view: at the start of the epoch the device
    // held everything.
    backend.hooks.gives_way = 2 * TRAIN_VIEWS + 1 + 1;
    let kept = run(&place, &mut backend, CACHE);
    assert!(kept.ply == plain.ply && kept.record.losses == plain.record.losses);
    let late = backend.hooks.late_uploads;
    assert_eq!(late.len(), 1 + 2 * TRAIN_VIEWS - 1, "{late:?}");
    // Without the announcement all other views of the epoch would be missed.
    assert!(kept.loader.missed < TRAIN_VIEWS as u64 - 1, "{:?}", kept.loader);
}

#[test]
fn broken_photographs_are_skipped_on_every_device() {
    let place = TestFolder::with_scene();
    cut(&place.image(3), 200);
    cut(&place.image(5), 200);
    let plain = plain(&place);
    for room in [0, 2, 8] {
        let kept = run(&place, &mut ConstrainedBackend::new(room), CACHE);
        assert!(kept.ply == plain.ply, "room for {room}");
        assert_eq!(kept.record.warnings, plain.record.warnings, "room for {room}");
    }
    assert_eq!(plain.record.warnings.len(), 2, "{:?}", plain.record.warnings);
}

#[test]
fn beyond_the_host_limit_training_finishes_without_kept_photographs() {
    let place = TestFolder::with_scene();
    let plain = plain(&place);
    for policy in [CACHE, Residency::All] {
        // The process holds more than that in any case.
        let images = ImageLoader::within(dataset(&place).sources, policy, Bytes(1 << 16), Bytes(0));
        let ran = run_observed(|_| (), &place, &mut Cpu::<f32>::new(), &images);
        assert!(ran.ply == plain.ply && ran.record.losses == plain.record.losses);
        assert_eq!(ran.host, Bytes(0));
        let LoaderStatistics { ready, waited, missed, decoded } = ran.loader;
        // One decode for each trained or evaluated view, none ahead.
        assert_eq!([ready, waited], [0, 0]);
        assert_eq!([missed, decoded], [u64::from(EPOCHS) * 7 + 2; 2]);
    }
}

#[test]
fn saving_does_not_count_as_training_time() {
    let place = TestFolder::with_scene();
    let mut slow = ConstrainedBackend::new(8);
    slow.hooks.pause = Duration::from_millis(150);
    let started = Instant::now();
    let ran = run(&place, &mut slow, CACHE);
    // A PLY and a checkpoint are read at least once each.
    let training = ran.record.training_seconds;
    assert!(training > 0.0 && training + 0.3 < started.elapsed().as_secs_f64(), "{training} s");
}

/// Ignores the events of a run.
struct Unread;

impl Sink for Unread {
    fn on(&mut self, _: &Event) -> Result<(), OutputError> {
        Ok(())
    }
}

/// Trains six images and evaluates the one held-out view. Returns what the device was asked for.
fn six_images(change: impl Fn(&mut Config)) -> Constraints {
    let place = TestFolder::with_scene();
    let mut config = Config { scene: scene(&place), ..Config::default() };
    (config.optimize.iterations, config.optimize.sh_degree) = (6, 0);
    config.output.eval_train = TrainSample::Views(0);
    change(&mut config);
    let images = ImageLoader::new(dataset(&place).sources, CACHE);
    let mut device = ConstrainedBackend::new(usize::MAX);
    set_up(&place, (&config, None), &images, |setup| {
        let gaussians = from_points(&setup.dataset.points, &config.optimize, 0);
        Trainer::start(setup, &mut device, &mut Unread, &gaussians).unwrap().run().unwrap();
    });
    device.hooks
}

#[test]
fn with_a_near_share_every_second_image_leaves_out_what_is_right_before_or_beside_it() {
    let hooks = |near_share: f64| six_images(|config| config.scene.near_share = near_share);
    let all = hooks(0.0);
    assert_eq!(all.cuts_sides, [false; 7]);
    let least = all.nears[0];
    assert_eq!(all.nears, [least; 7]);
    let half = hooks(0.06);
    assert_eq!(half.cuts_sides, [true, false, true, false, true, false, false]);
    let near = half.nears[0];
    assert!(near > least, "{near}");
    // The last is the evaluation.
    assert_eq!(half.nears, [near, least, near, least, near, least, near]);
    // Seven images of fourteen iterations: images count.
    let of_few_images = six_images(|config| {
        config.scene.near_share = 0.06;
        (config.optimize.iterations, config.optimize.max_passes) = (14, 1);
    });
    assert_eq!(of_few_images.cuts_sides, [true, false, true, false, true, false, true, false]);
    assert_eq!(of_few_images.nears, [near, least, near, least, near, least, near, near]);
}

#[test]
fn a_random_background_changes_each_iteration_and_not_in_evaluation() {
    let of_color = |seed: u64, random: bool, color: Color| {
        let hooks = six_images(|config| {
            config.scene.background = Some(color);
            (config.optimize.random_background, config.run.seed) = (random, seed);
        });
        hooks.backgrounds
    };
    let backgrounds = |seed: u64, random: bool| of_color(seed, random, Color::WHITE);
    let found = backgrounds(3, true);
    let (training, evaluation) = found.split_at(6);
    for (i, background) in training.iter().enumerate() {
        assert!(background.iter().all(|value| (0.0..1.0).contains(value)), "{background:?}");
        assert!(training[..i].iter().all(|before| before != background), "{training:?}");
    }
    assert_eq!(evaluation, [[1.0; 3]], "the one held-out view, on white");
    assert_eq!(backgrounds(3, true), found, "they follow from the seed");
    assert_ne!(backgrounds(4, true)[0], found[0]);
    assert_eq!(backgrounds(3, false), [[1.0; 3]; 7]);
    assert_eq!(of_color(3, false, Color([0.2, 0.4, 1.0])), [[0.2, 0.4, 1.0]; 7]);
}

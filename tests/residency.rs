//! A device that keeps photographs is given each once, in time, and the host lets them go.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should say so and stop"
)]

mod common;
#[path = "common/program.rs"]
mod program;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use program::{Place, cut};
use splat::backend::cpu::{Cpu, Frame, Gradients, Model, Ready};
use splat::backend::{
    AdamStep, Backend, Densified, DensifyRule, DeviceError, Grant, LossTerms, Measured, Raster,
    RenderSettings, Rendered, Snapshot, Survey,
};
use splat::config::{Config, SceneOptions};
use splat::dataset::{Dataset, Image, ImageLoader, LoaderStatistics, Residency, View, decode};
use splat::files::OutputError;
use splat::math::morton::Cube;
use splat::memory::Bytes;
use splat::model::{Gaussians, from_points};
use splat::train::event::{Evaluation, Event, Sink};
use splat::train::{Trainer, TrainerSetup};

/// The CPU with room of its own for so many photographs; the one used longest ago goes first.
struct Keeper {
    cpu: Cpu<f32>,
    room: usize,
    held: BTreeMap<usize, (u64, Arc<Image>)>,
    clock: u64,
    /// Photographs that training had to wait for.
    waited_for: Vec<usize>,
    /// Photographs that were on their way in time.
    prefetched: Vec<usize>,
    /// Photographs that were shown for one look.
    glances: usize,
    /// Near planes of the frames drawn.
    nears: Vec<f64>,
    /// The frame from which on there is no room at all.
    gives_way: usize,
}

impl Keeper {
    fn new(room: usize) -> Self {
        let (held, waited_for, prefetched, glances, nears) = Default::default();
        let (cpu, clock, gives_way) = (Cpu::new(), 0, usize::MAX);
        Self { cpu, room, held, clock, waited_for, prefetched, glances, nears, gives_way }
    }

    /// A copy, as on a device: the host's may go.
    fn keep(&mut self, view: usize, image: &Image) -> Arc<Image> {
        self.clock += 1;
        let copy = Arc::new(image.clone());
        self.held.insert(view, (self.clock, Arc::clone(&copy)));
        while self.held.len() > self.room {
            let oldest = self.held.iter().min_by_key(|(_, (used, _))| *used).unwrap();
            let oldest = *oldest.0;
            self.held.remove(&oldest);
        }
        copy
    }
}

impl Backend for Keeper {
    type Target = Arc<Image>;
    type Loss = Ready;

    fn name(&self) -> String {
        "keeper".to_owned()
    }

    fn target(&mut self, view: usize, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        self.waited_for.push(view);
        Ok(self.keep(view, image))
    }

    fn glance(&mut self, image: &Arc<Image>) -> Result<Arc<Image>, DeviceError> {
        self.glances += 1;
        Ok(Arc::new(Image::clone(image)))
    }

    fn prefetch(&mut self, view: usize, image: &Arc<Image>) -> Result<(), DeviceError> {
        self.prefetched.push(view);
        self.keep(view, image);
        Ok(())
    }

    fn resident(&mut self, view: usize) -> Option<Arc<Image>> {
        self.clock += 1;
        let (used, image) = self.held.get_mut(&view)?;
        *used = self.clock;
        Some(Arc::clone(image))
    }

    fn holds(&self, view: usize) -> bool {
        self.held.contains_key(&view)
    }
}

impl Raster<Gaussians> for Keeper {
    type Model = Model<f32>;
    type Frame = Frame<f32>;
    type Gradients = Gradients<f32>;

    fn upload(&mut self, host: &Gaussians) -> Result<Model<f32>, DeviceError> {
        self.cpu.upload(host)
    }
    fn download(&mut self, model: &mut Model<f32>) -> Result<Gaussians, DeviceError> {
        self.cpu.download(model)
    }
    fn sample(&mut self, model: &mut Model<f32>, rows: &[usize]) -> Result<Gaussians, DeviceError> {
        self.cpu.sample(model, rows)
    }
    fn snapshot(&mut self, model: &mut Model<f32>) -> Result<Snapshot<Gaussians>, DeviceError> {
        self.cpu.snapshot(model)
    }
    fn restore(&mut self, snapshot: Snapshot<Gaussians>) -> Result<Model<f32>, DeviceError> {
        self.cpu.restore(snapshot)
    }
    fn len(&self, model: &Model<f32>) -> usize {
        self.cpu.len(model)
    }
    fn model_bytes(&self, model: &Model<f32>) -> [Bytes; 2] {
        self.cpu.model_bytes(model)
    }
    fn render(
        &mut self,
        model: &Model<f32>,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Frame<f32>, DeviceError> {
        self.nears.push(settings.near);
        if self.nears.len() == self.gives_way {
            self.room = 0;
            self.held.clear();
        }
        self.cpu.render(model, view, settings)
    }
    fn loss(
        &mut self,
        frame: &mut Frame<f32>,
        target: &Arc<Image>,
        terms: &LossTerms,
    ) -> Result<Ready, DeviceError> {
        self.cpu.loss(frame, target, terms)
    }
    fn measure(
        &mut self,
        frame: &Frame<f32>,
        target: &Arc<Image>,
    ) -> Result<Measured, DeviceError> {
        self.cpu.measure(frame, target)
    }
    fn frame_bytes(&self, frame: &Frame<f32>) -> Bytes {
        self.cpu.frame_bytes(frame)
    }
    fn gradients(&mut self, model: &Model<f32>) -> Result<Gradients<f32>, DeviceError> {
        self.cpu.gradients(model)
    }
    fn backward(
        &mut self,
        model: &mut Model<f32>,
        frame: Frame<f32>,
        gradients: &mut Gradients<f32>,
    ) -> Result<(), DeviceError> {
        self.cpu.backward(model, frame, gradients)
    }
    fn gradient_bytes(&self, gradients: &Gradients<f32>) -> Bytes {
        self.cpu.gradient_bytes(gradients)
    }
    fn step(
        &mut self,
        model: &mut Model<f32>,
        gradients: Gradients<f32>,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        self.cpu.step(model, gradients, step)
    }
    fn survey(&mut self, model: &Model<f32>, rule: &DensifyRule) -> Result<Survey, DeviceError> {
        self.cpu.survey(model, rule)
    }
    fn densify(
        &mut self,
        model: &mut Model<f32>,
        rule: &DensifyRule,
        grant: Grant,
    ) -> Result<Densified, DeviceError> {
        self.cpu.densify(model, rule, grant)
    }
    fn reorder(&mut self, model: &mut Model<f32>, cube: &Cube) -> Result<(), DeviceError> {
        self.cpu.reorder(model, cube)
    }
    fn reset_opacity(&mut self, model: &mut Model<f32>, ceiling: f64) -> Result<(), DeviceError> {
        self.cpu.reset_opacity(model, ceiling)
    }
    fn image(&mut self, frame: &Frame<f32>) -> Result<Rendered, DeviceError> {
        self.cpu.image(frame)
    }
}

#[derive(Default)]
struct Record {
    losses: Vec<f64>,
    warnings: Vec<String>,
    pictures: usize,
    evaluations: Vec<Evaluation>,
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
            Event::Evaluated(evaluation) => self.evaluations.push(evaluation.clone()),
            _ => {}
        }
        Ok(())
    }
}

/// What is left of a run.
struct Ran {
    record: Record,
    ply: Vec<u8>,
    loader: LoaderStatistics,
    host: Bytes,
}

/// Epochs of a run; the tiny scene has seven training views and one that is held out.
const EPOCHS: u32 = 4;
const TRAIN_VIEWS: usize = 7;

fn scene(place: &Place) -> SceneOptions {
    let mut options = Config::default().scene;
    options.source_path = Some(place.scene());
    options.eval = true;
    options
}

fn dataset(place: &Place) -> Dataset {
    Dataset::load(&scene(place)).unwrap()
}

fn run<B: Raster<Gaussians>>(place: &Place, device: &mut B, residency: Residency) -> Ran {
    let mut config = Config { scene: scene(place), ..Config::default() };
    config.optimize.iterations = EPOCHS * 7;
    config.optimize.sh_degree = 1;
    config.output.test_iterations = vec![10];
    let dataset = dataset(place);
    assert_eq!(dataset.train.len(), TRAIN_VIEWS);
    let images = ImageLoader::new(dataset.sources.clone(), residency);
    let model_path = place.model();
    std::fs::create_dir_all(&model_path).unwrap();
    let setup = TrainerSetup {
        dataset: &dataset,
        images: &images,
        config: &config,
        model_path: &model_path,
        stop: &AtomicBool::new(false),
    };
    let mut record = Record::default();
    let gaussians = from_points(&dataset.points, 1, 0);
    Trainer::start(setup, device, &mut record, &gaussians).unwrap().run().unwrap();
    let ply = std::fs::read(place.ply(EPOCHS * 7)).unwrap();
    Ran { record, ply, loader: images.statistics(), host: images.held() }
}

const CACHE: Residency = Residency::OnDemand { cache: Bytes(1 << 20) };

#[test]
fn a_device_with_room_for_all_is_given_each_photograph_once_and_the_host_keeps_none_of_them() {
    let place = Place::with_scene();
    let plain = run(&place, &mut Cpu::<f32>::new(), CACHE);
    let mut keeper = Keeper::new(8);
    let kept = run(&place, &mut keeper, CACHE);
    assert!(kept.ply == plain.ply && kept.record.losses == plain.record.losses);
    assert_eq!(keeper.waited_for.len(), 1, "the first: {:?}", keeper.waited_for);
    let mut given = [keeper.waited_for, keeper.prefetched].concat();
    given.sort_unstable();
    assert_eq!(given, dataset(&place).train);
    // The held-out photograph is shown to the device each time, and stays with the host.
    assert_eq!((kept.record.evaluations.len(), kept.record.pictures), (2, 2));
    assert_eq!((keeper.glances, kept.loader.decoded), (2, 8));
    let held_out = dataset(&place).test[0];
    let image = decode(&dataset(&place).sources[held_out]).unwrap();
    assert_eq!(
        kept.host,
        Bytes::of::<u8>(image.rgb.len() + image.mask.map_or(0, |mask| mask.len()))
    );
    let means = |ran: &Ran| ran.record.evaluations.iter().map(|e| e.mean).collect::<Vec<_>>();
    assert_eq!(means(&kept), means(&plain));
}

#[test]
fn a_device_with_room_for_few_gets_every_photograph_in_time() {
    let place = Place::with_scene();
    let plain = run(&place, &mut Cpu::<f32>::new(), CACHE);
    for room in [1, 3] {
        let mut keeper = Keeper::new(room);
        let kept = run(&place, &mut keeper, CACHE);
        assert!(kept.ply == plain.ply, "room for {room}");
        assert_eq!(keeper.waited_for.len(), 1, "room for {room}: {:?}", keeper.waited_for);
        assert!(keeper.prefetched.len() > 7, "room for {room}: {:?}", keeper.prefetched);
    }
}

#[test]
fn a_device_without_any_room_is_given_what_was_read_ahead() {
    let place = Place::with_scene();
    let plain = run(&place, &mut Cpu::<f32>::new(), CACHE);
    let mut keeper = Keeper::new(0);
    let kept = run(&place, &mut keeper, CACHE);
    assert!(kept.ply == plain.ply);
    assert_eq!(keeper.waited_for.len(), EPOCHS as usize * TRAIN_VIEWS);
    assert_eq!(keeper.glances, 2);
    // Nothing is fetched twice for it.
    let fetches = |ran: &Ran| ran.loader.ready + ran.loader.waited + ran.loader.missed;
    assert_eq!(fetches(&kept), fetches(&plain));
}

#[test]
fn what_a_device_lets_go_is_decoded_ahead_again() {
    let place = Place::with_scene();
    let plain = run(&place, &mut Cpu::<f32>::new(), CACHE);
    let mut keeper = Keeper::new(8);
    // With the first frame of the third epoch, after an evaluation of one view: when the epoch began
    // the device held everything.
    keeper.gives_way = 2 * TRAIN_VIEWS + 1 + 1;
    let kept = run(&place, &mut keeper, CACHE);
    assert!(kept.ply == plain.ply && kept.record.losses == plain.record.losses);
    assert_eq!(keeper.waited_for.len(), 1 + 2 * TRAIN_VIEWS - 1, "{:?}", keeper.waited_for);
    // All others of the epoch, had they not been announced.
    assert!(kept.loader.missed < TRAIN_VIEWS as u64 - 1, "{:?}", kept.loader);
}

#[test]
fn training_and_evaluation_draw_from_a_hundredth_of_the_extent_of_the_training_cameras_on() {
    let place = Place::with_scene();
    let mut keeper = Keeper::new(8);
    run(&place, &mut keeper, CACHE);
    let dataset = dataset(&place);
    assert_eq!(keeper.nears.len(), EPOCHS as usize * TRAIN_VIEWS + 2);
    assert!(keeper.nears.iter().all(|&near| near == 0.01 * dataset.extent()));
}

#[test]
fn with_high_dram_the_host_keeps_all() {
    let place = Place::with_scene();
    let kept = run(&place, &mut Keeper::new(8), Residency::All);
    assert_eq!(kept.loader.decoded, 8);
    assert!(kept.host > Bytes(0));
}

#[test]
fn broken_photographs_are_passed_over_alike_on_every_device() {
    let place = Place::with_scene();
    cut(&place.image(3), 200);
    cut(&place.image(5), 200);
    let plain = run(&place, &mut Cpu::<f32>::new(), CACHE);
    for room in [0, 2, 8] {
        let kept = run(&place, &mut Keeper::new(room), CACHE);
        assert!(kept.ply == plain.ply, "room for {room}");
        assert_eq!(kept.record.warnings, plain.record.warnings, "room for {room}");
    }
    assert_eq!(plain.record.warnings.len(), 2, "{:?}", plain.record.warnings);
}

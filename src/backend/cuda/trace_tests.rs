//! What training takes of the scratch, block by block, without a GPU: the real stages run on a heap
//! over a device that is not there, and on queues that do no work and answer a case's counts.
//!
//! With `SPLAT_TRACES=FOLDER` the traces of all cases are written there, to be compared with those of
//! another version.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use super::device::dry::DryQueue;
use super::memory::heap::tests::heap_of;
use super::memory::heap::trace::{Event, Kind};
use super::session::Session;
use super::{BandPolicy, ColorTables, Cuda, CudaOptions, NearestLists, Target};
use crate::backend::{
    AdamStep, Appearance as _, AppearanceRule, AppearanceTables, Compensation, Criterion,
    DensifyRule, Device as _, DeviceError, Edit as _, Extra, Filter3d as _, Grant, Inputs, Look,
    Neighbours as _, Objective, Pending as _, Photo, Rates, RelocateRule, Render as _,
    RenderSettings, SampleRule, ScreenFilter, Statistics, Stay, Store as _, TableStep, Term, Terms,
    Wants,
};
use crate::dataset::{Camera, DepthMap, Image, Pose, View};
use crate::math::morton::Cube;
use crate::math::random::{Purpose, Stream};
use crate::memory::Bytes;
use crate::memory::plan::Storage;
use crate::model::Gaussians;

/// Cases of the test.
const CASES: u64 = 200;

/// More than any case takes.
const BUDGET: Bytes = Bytes(64 << 30);

/// Blocks begin at multiples of this.
const ALIGNMENT: u64 = 256;

/// What is drawn of surfaces in the coarse stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coarse {
    Entropy,
    Density,
    Normals,
    Distances,
}

/// What a view shows.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    visible: u32,
    instances: u64,
}

/// A run.
#[derive(Clone, Copy, Debug)]
struct Case {
    gaussians: usize,
    sh_degree: u32,
    storage: Storage,
    px: [u32; 2],
    bands: BandPolicy,
    views: [Seen; 2],
    inverse_depth: bool,
    compensation: Option<Compensation>,
    statistics: Statistics,
    antialiasing: bool,
    filter_3d: bool,
    coarse: Option<Coarse>,
    neighbours: u32,
    /// Clones, splits and births granted.
    densify: [usize; 3],
    /// Rows that a round removes, and rows from the first of them on.
    pruned: [usize; 2],
    /// Gaussians that are dead, and copies born.
    relocate: [usize; 2],
}

/// Random numbers in turn.
struct Dice {
    stream: Stream,
    next: u64,
}

impl Dice {
    fn unit(&mut self) -> f64 {
        self.next += 1;
        self.stream.uniform(self.next)
    }

    fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        let count = range.end() - range.start() + 1;
        range.start() + ((self.unit() * count as f64) as u64).min(count - 1)
    }

    /// As likely small as large.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
    fn magnitude(&mut self, most: u64) -> u64 {
        let power = self.unit() * (most as f64 + 1.0).ln();
        (power.exp() as u64).min(most)
    }

    fn size(&mut self, most: usize) -> usize {
        usize::try_from(self.magnitude(most as u64)).unwrap_or(most)
    }
}

impl Case {
    fn of(seed: u64) -> Self {
        let dice = &mut Dice { stream: Stream::new(seed, 0, Purpose::Sample), next: 0 };
        let gaussians = dice.size(150_000).max(1);
        let px = [(); 2].map(|()| u32::try_from(dice.within(1..=500)).unwrap_or(1));
        // Every tenth has more tiles than keys of 16 bits tell apart.
        let px = if seed % 10 == 9 { [4112, 4096] } else { px };
        let wanted = [dice.size(gaussians / 2), dice.size(gaussians - gaussians / 2)];
        let births = dice.size(wanted.iter().sum());
        let births = if dice.chance(0.5) { wanted.iter().sum() } else { births };
        let pruned = if dice.chance(0.2) { 0 } else { dice.size(gaussians + births) };
        let hole = pruned + dice.size(gaussians + births - pruned);
        let coarse = match dice.within(0..=7) {
            0 => Some(Coarse::Entropy),
            1 => Some(Coarse::Density),
            2 => Some(Coarse::Normals),
            3 | 4 => Some(Coarse::Distances),
            _ => None,
        };
        let compensation = match dice.within(0..=3) {
            0 => Some(Compensation::Exposure),
            1 => Some(Compensation::BilateralGrid),
            _ => None,
        };
        let statistics = match dice.within(0..=2) {
            0 => Statistics::Norms,
            1 => Statistics::AbsoluteNorms,
            _ => Statistics::Both,
        };
        let bands = match dice.within(0..=2) {
            0 => BandPolicy::AtLeast(u32::try_from(dice.within(1..=9)).unwrap_or(1)),
            _ => BandPolicy::Never,
        };
        Self {
            gaussians,
            sh_degree: u32::try_from(dice.within(0..=3)).unwrap_or(0),
            storage: if dice.chance(0.4) { Storage::Compact } else { Storage::Full },
            px,
            bands,
            views: [Seen::of(dice, gaussians), Seen::of(dice, gaussians)],
            inverse_depth: dice.chance(0.3),
            compensation,
            statistics,
            antialiasing: dice.chance(0.3),
            filter_3d: dice.chance(0.3),
            coarse,
            neighbours: u32::try_from(dice.within(1..=32)).unwrap_or(1),
            densify: [wanted[0], wanted[1], births],
            pruned: [pruned, if pruned == 0 { 0 } else { hole }],
            relocate: [dice.size(gaussians), dice.size(gaussians)],
        }
    }

    fn settings(&self) -> RenderSettings {
        let variance_px2 = 0.1;
        RenderSettings {
            sh_degree: self.sh_degree,
            screen_filter: match self.antialiasing {
                true => ScreenFilter { variance_px2, compensates: true },
                false => ScreenFilter::DILATION,
            },
            ..RenderSettings::DEFAULT
        }
    }

    /// What an iteration draws, in the coarse stage or before it.
    fn wants(&self, coarse: Option<Coarse>) -> Wants {
        Wants {
            observe: coarse.is_none().then_some(self.statistics),
            inputs: Inputs {
                inverse_depths: self.inverse_depth,
                maps: matches!(coarse, Some(Coarse::Normals | Coarse::Distances)),
                ..Inputs::NONE
            },
            compensation: self.compensation,
            in_batch: false,
        }
    }

    /// What an iteration compares.
    fn terms(&self, coarse: Option<Coarse>) -> Terms {
        let weight = |on: bool| if on { 0.2 } else { 0.0 };
        let terms = Terms::photometric(0.2).with(Term::InverseDepth, weight(self.inverse_depth));
        let Some(coarse) = coarse else { return terms };
        let has_entropy = coarse == Coarse::Entropy || self.neighbours.is_multiple_of(3);
        let has_density = matches!(coarse, Coarse::Density | Coarse::Normals);
        terms
            .with(Term::Entropy, weight(has_entropy))
            .with(Term::Density, weight(has_density))
            .with(Term::Normal, weight(coarse != Coarse::Entropy))
            .with(Term::Sdf { unit: 0.1 }, weight(coarse == Coarse::Distances))
            .with(Term::DepthNormal { by_opacity: false }, weight(coarse == Coarse::Normals))
            .sampled_by(SampleRule { count: 1000, seed: 0, iteration: 7 })
    }

    fn view(&self) -> View {
        let [width, height] = self.px;
        View {
            name: "a.png".to_owned(),
            camera: Camera {
                width,
                height,
                focal_px: [100.0; 2],
                centre_px: self.px.map(|side| f64::from(side) / 2.0),
            },
            pose: Pose {
                rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
                translation: [0.0; 3],
            },
        }
    }

    fn photograph(&self) -> Arc<Image> {
        let [width, height] = self.px;
        let pixels = width as usize * height as usize;
        let values = vec![0; pixels];
        let depth = self.inverse_depth.then_some(DepthMap { values, scale: 1.0, offset: 0.0 });
        Arc::new(Image { width, height, rgb: vec![0; pixels * 3], mask: None, depth })
    }

    /// What the device would have in the buffer of a label.
    fn answer(&self, seen: Seen, label: &str, host: &mut [u8]) {
        match (label, host.len()) {
            ("status", 16) => {
                host[..8].copy_from_slice(&seen.instances.to_le_bytes());
                host[8..12].copy_from_slice(&seen.visible.to_le_bytes());
            }
            // No fault: before the sums.
            ("status", 80) => host[..8].fill(0xff),
            ("instances of rows", bytes) => {
                let rows = bytes as u64 / 8;
                let before = |row| seen.instances * row / rows;
                for (row, word) in (0..).zip(host.chunks_exact_mut(8)) {
                    word.copy_from_slice(&(before(row + 1) - before(row)).to_le_bytes());
                }
            }
            ("density counts", _) => {
                let [clones, splits, _] = self.densify;
                let words = [clones, splits, clones, splits, self.pruned[0], self.pruned[1]];
                for (word, count) in host.chunks_exact_mut(4).zip(words) {
                    word.copy_from_slice(&u32::try_from(count).unwrap_or(0).to_le_bytes());
                }
            }
            // All have the first digit.
            ("density digits", _) => host[..4].fill(0xff),
            ("density sources", _) => {
                let dead = u32::try_from(self.relocate[0]).unwrap_or(0);
                host.copy_from_slice(&dead.to_le_bytes());
            }
            ("density weights", _) => host[0] = 1,
            _ => {}
        }
    }
}

impl Seen {
    fn of(dice: &mut Dice, gaussians: usize) -> Self {
        let visible = if dice.chance(0.1) { 0 } else { dice.size(gaussians) };
        let instances = if visible == 0 { 0 } else { dice.magnitude(3_000_000) };
        Self { visible: u32::try_from(visible).unwrap_or(0), instances }
    }
}

/// A device that is not there, and what happened on it.
struct Run {
    case: Case,
    device: Cuda,
    queue: DryQueue,
    seen: Rc<Cell<Seen>>,
    text: String,
    live: BTreeMap<u64, Event>,
    /// Whether steps take several views.
    in_batch: bool,
}

impl Run {
    fn open(case: Case) -> Result<Self, DeviceError> {
        let seen = Rc::new(Cell::new(Seen::default()));
        let queue = DryQueue::new({
            let seen = Rc::clone(&seen);
            Rc::new(move |label, host| case.answer(seen.get(), label, host))
        });
        let session = Session::dry(heap_of(BUDGET), [queue.clone(), queue.clone()])?;
        let options = CudaOptions { storage: case.storage, ..CudaOptions::default() };
        let mut device = Cuda::over(session, &options)?;
        device.set_bands(case.bands);
        let text = format!("{case:?}\n");
        Ok(Self { case, device, queue, seen, text, live: BTreeMap::new(), in_batch: false })
    }

    /// Writes down what happened since the last time, and looks whether it could.
    fn record(&mut self, stage: &str) {
        let _ = writeln!(self.text, "# {stage}");
        for event in self.device.session.heap.trace().take() {
            let Event { kind, label, start, bytes } = event;
            let word = match kind {
                Kind::Take => "take",
                Kind::Give => "give",
            };
            let _ = writeln!(self.text, "{word} {start} {bytes} {label}");
            match kind {
                Kind::Take => {
                    let top = self.live.values().map(|block| block.start + block.bytes).max();
                    // A block of no bytes shares its place with the next.
                    let top = top.unwrap_or(0).next_multiple_of(ALIGNMENT);
                    assert_eq!(start, top, "`{label}` does not lie behind all others");
                    self.live.insert(self.live.len() as u64 + start * 1000, event);
                }
                Kind::Give => {
                    let matches = |block: &Event| {
                        (block.label, block.start, block.bytes) == (label, start, bytes)
                    };
                    let id = self.live.iter().find(|(_, block)| matches(block)).map(|(id, _)| *id);
                    let id = id.unwrap_or_else(|| panic!("`{label}` was not taken"));
                    self.live.remove(&id);
                }
            }
        }
    }

    /// An iteration as the trainer has it.
    fn iteration(
        &mut self,
        model: &mut super::Model,
        number: u32,
        target: &Target,
        near: Option<&NearestLists>,
    ) -> Result<(), DeviceError> {
        let mut gradients = super::Gradients::default();
        let tables = self.add_view(model, number, (target, near), &mut gradients)?;
        let rates = Rates {
            means: 1e-4,
            log_scales: 5e-3,
            quats: 1e-3,
            opacity_logits: 0.05,
            sh_dc: 2.5e-3,
            sh_rest: 1e-4,
        };
        self.device.step(model, gradients, &AdamStep::new(number, rates))?;
        drop(tables);
        self.record(&format!("iteration {number}"));
        Ok(())
    }

    /// A view of a step; gives the tables of its colours.
    fn add_view(
        &mut self,
        model: &mut super::Model,
        number: u32,
        (target, near): (&Target, Option<&NearestLists>),
        gradients: &mut super::Gradients,
    ) -> Result<Option<ColorTables>, DeviceError> {
        let case = self.case;
        let seen = case.views[number as usize % 2];
        let visible = seen.visible.min(u32::try_from(model.len()).unwrap_or(u32::MAX));
        let instances = if visible == 0 { 0 } else { seen.instances };
        self.seen.set(Seen { visible, instances });
        let coarse = case.coarse.filter(|_| near.is_some());
        let terms = &case.terms(coarse);
        let device = &mut self.device;
        let wants = Wants { in_batch: self.in_batch, ..case.wants(coarse) };
        let frame = device.render_train(model, &case.view(), &case.settings(), &wants)?;
        let rule = AppearanceRule {
            rate_init: 1e-3,
            rate_final: 1e-4,
            iterations: 100,
            warm_up: 10,
            epsilon: 1e-15,
            total_variation: 10.0,
        };
        let step = TableStep { view: 0, number, rule };
        let objective = Objective { target, terms, near };
        let (frame, loss, tables) = match case.compensation {
            None => {
                let (frame, loss) = device.objective(model, frame, &objective)?;
                (frame, loss, None)
            }
            Some(kind) => {
                let mut tables = device.upload_tables(&AppearanceTables::identity(kind, 1))?;
                let frame = device.compensate(&mut tables, frame, &step)?;
                let (frame, loss) = device.objective(model, frame, &objective)?;
                (device.learn(&mut tables, frame, &step)?, loss, Some(tables))
            }
        };
        let samples = device.backward(model, frame, near, gradients)?;
        assert!(samples.is_ready() && loss.is_ready());
        Ok(tables)
    }

    /// All that training does to a model.
    fn play(&mut self) -> Result<(), DeviceError> {
        let case = self.case;
        let (view, photograph) = (case.view(), case.photograph());
        let mut model = self.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        self.record("upload");
        if case.filter_3d {
            self.device.update_filter_3d(&mut model, &[&view], 0.2)?;
            self.record("filter");
        }
        let target =
            self.device.upload_target(Photo { image: &photograph, stay: Stay::Resident(0) })?;
        for number in 1..=2 {
            self.iteration(&mut model, number, &target, None)?;
        }
        self.density_control(&mut model)?;
        self.iteration(&mut model, 3, &target, None)?;
        let near = self.device.neighbours(&model, case.neighbours)?;
        self.record("neighbours");
        for number in 4..=5 {
            self.iteration(&mut model, number, &target, Some(&near))?;
        }
        drop(near);
        self.look(&mut model, &target)
    }

    fn density_control(&mut self, model: &mut super::Model) -> Result<(), DeviceError> {
        let case = self.case;
        let rule = DensifyRule {
            gradient_min: 2e-4,
            clone_scale_max: 0.1,
            opacity_min: 0.005,
            scale_max: Some(1.0),
            seed: 1,
            iteration: 2,
            criterion: match case.statistics {
                Statistics::Both => Criterion::Quantile,
                Statistics::Norms | Statistics::AbsoluteNorms => Criterion::Gradient,
            },
        };
        self.device.survey(model, &rule)?;
        self.record("survey");
        self.device.densify(model, &rule, Grant { births: case.densify[2] })?;
        self.record("densify");
        let rule = RelocateRule { opacity_min: 0.005, seed: 1, iteration: 2 };
        self.device.relocate(model, &rule)?;
        self.record("relocate");
        self.device.multiply(model, &rule, case.relocate[1])?;
        self.record("multiply");
        let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
        self.device.reorder(model, &cube)?;
        self.record("reorder");
        self.device.reset_opacity(model, 0.01)?;
        if case.filter_3d {
            self.device.update_filter_3d(model, &[&case.view()], 0.2)?;
        }
        self.record("reset and filter");
        Ok(())
    }

    /// What an evaluation and a checkpoint do.
    fn look(&mut self, model: &mut super::Model, target: &Target) -> Result<(), DeviceError> {
        let (case, view) = (self.case, self.case.view());
        let frame = self.device.render(model, &view, &case.settings(), Look::COUNTS)?;
        self.device.image(&frame)?;
        drop(frame);
        self.record("picture");
        let corrects_colors = case.compensation.is_some();
        let extra = Extra::Maps { inverse_depths: case.inverse_depth, surface: false };
        let look = Look { extra, corrects_colors };
        let mut frame = self.device.render(model, &view, &case.settings(), look)?;
        self.device.measure(&frame, target)?;
        if corrects_colors {
            frame = self.device.correct(frame, target)?;
        }
        drop(frame);
        self.record("evaluation");
        let rows = 0..model.len().min(5000);
        self.device.read(model, rows.clone())?;
        self.record("checkpoint");
        self.device.sample(model, &rows.step_by(7).collect::<Vec<_>>())?;
        self.record("sample");
        Ok(())
    }
}

/// Plays a case and tells what happened.
fn trace(case: Case) -> String {
    let mut run = Run::open(case).unwrap();
    if let Err(error) = run.play() {
        panic!("{error} in {case:?}");
    }
    assert!(run.live.is_empty(), "{:?} stay in {case:?}", run.live);
    assert_eq!(run.device.session.heap.live_scratch(), Bytes(0));
    assert!(run.queue.work().launches > 0 && run.queue.work().transfers > 0);
    run.text
}

#[test]
fn an_iteration_runs_to_its_end_without_a_gpu() {
    let case = Case {
        gaussians: 5000,
        px: [97, 61],
        views: [Seen { visible: 3000, instances: 9000 }; 2],
        ..Case::of(1)
    };
    let text = trace(case);
    for label in ["splats", "instances", "sort", "states of pixels", "density flags"] {
        assert!(text.lines().any(|line| line.ends_with(&format!(" {label}"))), "{label}: {text}");
    }
}

#[test]
fn every_block_lies_behind_all_others_and_is_given_back() {
    let folder = std::env::var_os("SPLAT_TRACES");
    for seed in 0..CASES {
        let text = trace(Case::of(seed));
        if let Some(folder) = &folder {
            fs::write(Path::new(folder).join(format!("{seed:03}.txt")), text).unwrap();
        }
    }
}

/// Labels of the blocks that are live, with how many there are of each.
fn labels(run: &Run) -> BTreeMap<&'static str, u32> {
    let mut labels = BTreeMap::new();
    for block in run.live.values() {
        *labels.entry(block.label).or_default() += 1;
    }
    labels
}

/// Where maps are drawn, what splats gave to them stays with its gradients.
#[test]
fn views_of_a_batch_keep_their_settled_gradients_alone_until_the_step() -> Result<(), DeviceError> {
    for seed in 0..60 {
        let mut run = Run::open(Case { compensation: None, ..Case::of(seed) })?;
        run.in_batch = true;
        let case = run.case;
        let mut model = run.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let photograph = case.photograph();
        let photo = Photo { image: &photograph, stay: Stay::Resident(0) };
        let target = run.device.upload_target(photo)?;
        let lists = run.device.neighbours(&model, case.neighbours)?;
        run.record("before");
        for near in [None, Some(&lists)] {
            let mut gradients = super::Gradients::default();
            for number in 1..=4 {
                run.add_view(&mut model, number, (&target, near), &mut gradients)?;
                run.record("view");
                let mut live = labels(&run);
                for label in ["splat of each Gaussian", "gradients of splats"] {
                    assert_eq!(live.remove(label), Some(number), "{label} in {case:?}");
                }
                let drawn = near.and(case.coarse);
                if matches!(drawn, Some(Coarse::Normals | Coarse::Distances)) {
                    let features = live.remove("features of splats").unwrap_or(0);
                    assert_eq!(live.remove("gradients of features").unwrap_or(0), features);
                }
                if drawn.is_some() {
                    assert!(live.remove("surface gradients").unwrap_or(0) <= 1);
                }
                assert!(live.is_empty(), "{live:?} in {case:?}");
            }
            let rates = Rates {
                means: 1e-4,
                log_scales: 5e-3,
                quats: 1e-3,
                opacity_logits: 0.05,
                sh_dc: 2.5e-3,
                sh_rest: 1e-4,
            };
            run.device.step(&mut model, gradients, &AdamStep::new(4, rates))?;
            run.record("step");
            assert!(run.live.is_empty(), "{:?} stay in {case:?}", run.live);
        }
    }
    Ok(())
}

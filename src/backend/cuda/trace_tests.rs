//! What training takes of the scratch, block by block, without a GPU: the real stages run on a heap
//! over a device that is not there, and on queues that do no work and answer a case's counts. It is
//! what a forecast says: each stage is replayed, and takes the same blocks at the same places.
//!
//! With `SPLAT_TRACES=FOLDER` the traces of all cases are written there, to be compared with those of
//! another version.

mod case;
mod expected;

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use self::case::{Case, Coarse, Seen};
use self::expected::Expected;
use super::device::dry::DryQueue;
use super::memory::heap::tests::heap_of;
use super::session::Session;
use super::{Cuda, CudaOptions, Model, Neighbours, Target};
use crate::backend::{
    AdamStep, AppearanceRule, AppearanceStep, AppearanceTables, Backend as _, Criterion,
    DensifyRule, DeviceError, Grant, LossTerms, NormalRule, Pass, Pending as _, Raster as _, Rates,
    RelocateRule, Statistics, Surface as _, SurfaceMaps as _,
};
use crate::layout::{Event, Replay, RoundSizes};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::rounds;
use crate::model::Gaussians;

/// Cases of the test.
const CASES: u64 = 200;

/// More than any case takes.
const BUDGET: Bytes = Bytes(64 << 30);

/// A device that is not there, and what happened on it.
struct Run {
    case: Case,
    device: Cuda,
    queue: DryQueue,
    seen: Rc<Cell<Seen>>,
    text: String,
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
        Ok(Self { case, device, queue, seen, text })
    }

    /// Writes down what happened since the last time, and compares it with what was to happen.
    fn record(&mut self, stage: &str, expect: impl FnOnce(&Replay)) {
        let found = self.device.session.heap.trace().take();
        let _ = writeln!(self.text, "# {stage}");
        for Event { is_take, label, start, bytes } in &found {
            let word = if *is_take { "take" } else { "give" };
            let _ = writeln!(self.text, "{word} {start} {bytes} {label}");
        }
        let replay = Replay::recording();
        expect(&replay);
        let (found, expected) = (ordered(found), ordered(replay.events()));
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let at = differs.unwrap_or(found.len().min(expected.len()));
        let before = at.saturating_sub(2);
        let near = |events: &[Event]| {
            format!("{:#?}", events.iter().skip(before).take(5).collect::<Vec<_>>())
        };
        assert!(
            found == expected,
            "{stage}, event {at}: found {}\nexpected {}\n{:?}",
            near(&found),
            near(&expected),
            self.case
        );
        assert_eq!(self.device.session.heap.live_scratch(), Bytes(0), "after {stage}");
    }

    /// An iteration as the trainer has it.
    fn iteration(
        &mut self,
        model: &mut Model,
        number: u32,
        target: &Target,
        near: Option<&Neighbours>,
    ) -> Result<(), DeviceError> {
        let case = self.case;
        let seen = case.views[number as usize % 2];
        let visible = seen.visible.min(u32::try_from(model.len()).unwrap_or(u32::MAX));
        let instances = if visible == 0 { 0 } else { seen.instances };
        self.seen.set(Seen { visible, instances });
        let coarse = case.coarse.filter(|_| near.is_some());
        let pass = if coarse.is_some() { Pass::Train } else { Pass::Observe };
        let settings = case.settings(pass);
        let expected =
            Expected::of(&self.device.session, model, self.seen.get(), case.px, settings);
        let device = &mut self.device;
        let mut frame = device.render(model, &case.view(), &settings)?;
        if case.inverse_depth {
            device.compare_depths(&mut frame, target, 0.5)?;
        }
        let rule = AppearanceRule {
            rate_init: 1e-3,
            rate_final: 1e-4,
            iterations: 100,
            warm_up: 10,
            epsilon: 1e-15,
            total_variation: 10.0,
        };
        let step = AppearanceStep { number, rule };
        let mut tables = None;
        if let Some(kind) = case.compensation {
            let tables = tables.insert(device.appearance(&AppearanceTables::identity(kind, 1))?);
            device.compensate(tables, 0, &mut frame, &step)?;
        }
        let loss = device.loss(&mut frame, target, &LossTerms { lambda_dssim: 0.2 })?;
        let rule = coarse.map(|coarse| case.surface_rule(coarse));
        if coarse == Some(Coarse::Normals) {
            let normals = device.compare_normals(&mut frame, 0.05, NormalRule::EveryPixel)?;
            assert!(normals.is_ready());
        }
        if let (Some(rule), Some(near), Some(Coarse::Distances)) = (&rule, near, coarse) {
            device.compare_sampled_depths(model, &mut frame, near, rule)?;
        }
        if let Some(tables) = &mut tables {
            device.learn_appearance(tables, 0, &mut frame, &step)?;
        }
        let mut sums = device.gradients(model)?;
        device.backward(model, frame, &mut sums)?;
        if let Some(rule) = &rule {
            let terms = device.regularise(model, near, &mut sums, rule)?;
            assert!(terms.is_ready());
        }
        let rates = Rates {
            means: 1e-4,
            log_scales: 5e-3,
            quats: 1e-3,
            opacity_logits: 0.05,
            sh_dc: 2.5e-3,
            sh_rest: 1e-4,
        };
        device.step(model, sums, &AdamStep::new(number, rates))?;
        assert!(loss.is_ready());
        self.record(&format!("iteration {number}"), |source| {
            expected.drawing(source, rule.as_ref())
        });
        Ok(())
    }

    /// All that training does to a model.
    fn play(&mut self) -> Result<(), DeviceError> {
        let case = self.case;
        let (view, photograph) = (case.view(), case.photograph());
        let mut model = self.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let rows = case.gaussians as u64;
        self.record("upload", |source| rounds::upload(source, &model.size(), rows));
        if case.filter_3d {
            self.device.smooth(&mut model, &[&view], 0.2)?;
            self.record("filter", |source| rounds::smooth(source, 1));
        }
        let target = self.device.target(0, &photograph)?;
        for number in 1..=2 {
            self.iteration(&mut model, number, &target, None)?;
        }
        self.density_control(&mut model)?;
        self.iteration(&mut model, 3, &target, None)?;
        let near = self.device.neighbours(&model, case.neighbours)?;
        self.record("neighbours", |source| rounds::search(source, model.size().gaussians));
        for number in 4..=5 {
            self.iteration(&mut model, number, &target, Some(&near))?;
        }
        drop(near);
        self.look(&mut model, &target)
    }

    fn density_control(&mut self, model: &mut Model) -> Result<(), DeviceError> {
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
        let before = model.size();
        let has_quantile = before.optional.absolute_norm_sums;
        self.record("survey", |source| rounds::survey(source, has_quantile));
        self.device.densify(model, &rule, Grant { births: case.densify[2] })?;
        let [clones, splits, granted] = case.densify.map(|count| count as u64);
        let wanted = clones + splits;
        let sizes = RoundSizes { model: before, births: wanted.min(granted), wanted };
        self.record("densify", |source| rounds::densify(source, &sizes, case.pruned[0] > 0));
        let rule = RelocateRule { opacity_min: 0.005, seed: 1, iteration: 2 };
        self.device.relocate(model, &rule)?;
        let rows = model.size().gaussians;
        self.record("relocate", |source| {
            if rows > 0 {
                rounds::relocate(source, rows)
            }
        });
        self.device.multiply(model, &rule, case.relocate[1])?;
        let births = if rows > 0 { case.relocate[1] as u64 } else { 0 };
        self.record("multiply", |source| rounds::add_copies(source, rows, births));
        let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
        self.device.reorder(model, &cube)?;
        self.record("reorder", |source| rounds::reorder(source, &model.size()));
        self.device.reset_opacity(model, 0.01)?;
        if case.filter_3d {
            self.device.smooth(model, &[&case.view()], 0.2)?;
        }
        self.record("reset and filter", |source| {
            if case.filter_3d {
                rounds::smooth(source, 1);
            }
        });
        Ok(())
    }

    /// What an evaluation and a checkpoint do.
    fn look(&mut self, model: &mut Model, target: &Target) -> Result<(), DeviceError> {
        let (case, view) = (self.case, self.case.view());
        let settings = case.settings(Pass::Picture);
        let expected =
            Expected::of(&self.device.session, model, self.seen.get(), case.px, settings);
        let frame = self.device.render(model, &view, &settings)?;
        self.device.image(&frame)?;
        drop(frame);
        self.record("picture", |source| expected.drawing(source, None));
        let settings = case.settings(Pass::Eval);
        let expected =
            Expected::of(&self.device.session, model, self.seen.get(), case.px, settings);
        let mut frame = self.device.render(model, &view, &settings)?;
        self.device.measure(&frame, target)?;
        if case.compensation.is_some() {
            self.device.correct_colors(&mut frame, target)?;
        }
        drop(frame);
        self.record("evaluation", |source| expected.drawing(source, None));
        let rows = 0..model.len().min(5000);
        self.device.read(model, rows.clone())?;
        let count = rows.len() as u64;
        self.record("checkpoint", |source| rounds::read(source, &model.size(), count));
        let rows: Vec<usize> = rows.step_by(7).collect();
        self.device.sample(model, &rows)?;
        let count = rows.len() as u64;
        self.record("sample", |source| rounds::sample(source, &model.size(), count));
        Ok(())
    }
}

/// Blocks that are given back between two that are taken, in one order: it makes no difference.
fn ordered(mut events: Vec<Event>) -> Vec<Event> {
    for gives in events.chunk_by_mut(|a, b| !a.is_take && !b.is_take) {
        gives.sort_by_key(|event| (event.start, event.bytes, event.label));
    }
    events
}

/// Plays a case and tells what happened.
fn trace(case: Case) -> String {
    let mut run = Run::open(case).unwrap();
    if let Err(error) = run.play() {
        panic!("{error} in {case:?}");
    }
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
fn the_stages_take_what_the_plan_replays() {
    let folder = std::env::var_os("SPLAT_TRACES");
    for seed in 0..CASES {
        let text = trace(Case::of(seed));
        if let Some(folder) = &folder {
            fs::write(Path::new(folder).join(format!("{seed:03}.txt")), text).unwrap();
        }
    }
}

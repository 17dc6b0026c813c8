//! What training takes of the scratch, block by block, without a GPU: the real stages run on a heap
//! over a device that is not there, and on queues that do no work and answer a case's counts. It is
//! what a forecast says: each stage is replayed, and takes the same blocks at the same places.
//!
//! With `SPLAT_TRACES=FOLDER` the traces of all cases are written there, to be compared with those of
//! another version.

mod batches;
mod case;
mod expected;
mod offload;
mod primitives;
mod sizes;
mod surfaces;

use std::cell::Cell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use self::case::{Case, SeenView};
use self::expected::Expected;
use super::device::dry::DryQueue;
use super::memory::heap::Heap;
use super::memory::heap::tests::heap_of;
use super::session::Session;
use super::{Cuda, CudaOptions, Gradients, Model, NearestLists, Target};
use crate::backend::{
    AdamStep, Adjust, Appearance as _, AppearanceRule, AppearanceTables, Candidates, Device as _,
    DeviceError, Drawing, Edit as _, EditRule, Extra, Filter3d as _, Grow, Into, Keep, Look,
    Neighbours as _, Objective, Pending as _, Photo, Pick, Rates, Render as _, ScoreRule,
    Statistics, Stay, Store as _, TableStep, Wants,
};
use crate::layout::{BlockEvent, Replay, RoundSizes};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::rounds;
use crate::model::Gaussians;

/// Cases of the test.
const CASES: u64 = 200;

/// More than any case takes.
const BUDGET: Bytes = Bytes(64 << 30);

/// Rates of a step.
const RATES: Rates = Rates {
    means: 1e-4,
    log_scales: 5e-3,
    quats: 1e-3,
    opacity_logits: 0.05,
    sh_dc: 2.5e-3,
    sh_rest: 1e-4,
};

/// Rates of a step after which every parameter is where it was.
const AT_REST: Rates = Rates {
    means: 0.0,
    log_scales: 0.0,
    quats: 0.0,
    opacity_logits: 0.0,
    sh_dc: 0.0,
    sh_rest: 0.0,
};

/// A device that is not there, and what happened on it.
struct DryRun {
    case: Case,
    device: Cuda,
    queue: DryQueue,
    seen: Rc<Cell<SeenView>>,
    text: String,
}

impl DryRun {
    fn open(case: Case) -> Result<Self, DeviceError> {
        let options = CudaOptions { storage: case.storage, ..CudaOptions::default() };
        Self::open_with(case, &options, BUDGET)
    }

    fn open_with(case: Case, options: &CudaOptions, budget: Bytes) -> Result<Self, DeviceError> {
        Self::over(case, options, heap_of(budget))
    }

    fn over(case: Case, options: &CudaOptions, heap: Heap) -> Result<Self, DeviceError> {
        let seen = Rc::new(Cell::new(SeenView::default()));
        let queue = DryQueue::new({
            let seen = Rc::clone(&seen);
            Rc::new(move |label, host| case.answer(seen.get(), label, host))
        });
        let session = Session::dry(heap, [queue.clone(), queue.clone()])?;
        let mut device = Cuda::over(session, options)?;
        device.set_bands(case.bands);
        let text = format!("{case:?}\n");
        Ok(Self { case, device, queue, seen, text })
    }

    /// Writes down what happened since the last time, and compares it with what was to happen.
    fn record(&mut self, stage: &str, expect: impl FnOnce(&Replay)) {
        let found = self.device.session.heap.trace().take();
        let _ = writeln!(self.text, "# {stage}");
        for BlockEvent { is_take, label, start, bytes } in &found {
            let word = if *is_take { "take" } else { "give" };
            let _ = writeln!(self.text, "{word} {start} {bytes} {label}");
        }
        let replay = Replay::recording();
        expect(&replay);
        let (found, expected) = (ordered(found), ordered(replay.events()));
        let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        let at = differs.unwrap_or(found.len().min(expected.len()));
        let before = at.saturating_sub(2);
        let near = |events: &[BlockEvent]| {
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
        near: Option<&NearestLists>,
    ) -> Result<(), DeviceError> {
        let case = self.case;
        let seen = case.views[number as usize % 2];
        let visible = seen.visible.min(u32::try_from(model.len()).unwrap_or(u32::MAX));
        let instances = if visible == 0 { 0 } else { seen.instances };
        self.seen.set(SeenView { visible, instances });
        let coarse = case.coarse.filter(|_| near.is_some());
        let mut how = (case.settings(), case.wants(coarse), case.terms(coarse));
        if case.surfels && near.is_none() {
            how = case.of_surfels(how.0, how.1, how.2);
        }
        let (settings, wants, terms) = &how;
        let drawing = Drawing::trained(settings, wants);
        let expected = Expected::of(&self.device.session, model, self.seen.get(), case.px, drawing);
        let device = &mut self.device;
        let frame = device.render_train(model, &case.view(), settings, wants)?;
        let rule = AppearanceRule {
            rate_init: 1e-3,
            rate_final: 1e-4,
            iterations: 100,
            warm_up: 10,
            epsilon: 1e-15,
            total_variation: 10.0,
        };
        let step = TableStep { view: 0, number, rule };
        let objective = Objective { target, terms, near, other: case.other(target) };
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
        let mut gradients = Gradients::default();
        let samples = device.backward(model, frame, near, &mut gradients)?;
        assert!(samples.is_ready());
        device.step(model, gradients, &AdamStep::new(number, RATES))?;
        drop(tables);
        assert!(loss.is_ready());
        self.record(&format!("iteration {number}"), |source| expected.replay(source, Some(terms)));
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
            self.device.update_filter_3d(&mut model, &[&view], 0.2)?;
            self.record("filter", |source| rounds::smooth(source, 1));
        }
        let target =
            self.device.upload_target(Photo { image: &photograph, stay: Stay::Resident(0) })?;
        let larger = case.larger_photograph();
        let larger =
            self.device.upload_target(Photo { image: &larger, stay: Stay::Resident(1) })?;
        for number in 1..=2 {
            self.iteration(&mut model, number, &larger, None)?;
        }
        self.density_control(&mut model)?;
        self.prune_to_target()?;
        self.iteration(&mut model, 3, &larger, None)?;
        let near = self.device.neighbours(&model, case.neighbours)?;
        self.record("neighbours", |source| rounds::search(source, model.size().gaussians));
        let photograph = if case.coarse.is_some() { &target } else { &larger };
        for number in 4..=5 {
            self.iteration(&mut model, number, photograph, Some(&near))?;
        }
        drop(near);
        self.look(&mut model, &target)?;
        self.light(&model)?;
        self.worths(&model, &target)?;
        self.fuse(&model)?;
        self.refine(&target)
    }

    fn density_control(&mut self, model: &mut Model) -> Result<(), DeviceError> {
        let case = self.case;
        let (min, small_max) = (2e-4, 0.1);
        let rule = match case.statistics {
            Statistics::Both => ScoreRule::GradientOrQuantile { min, small_max },
            Statistics::Norms | Statistics::AbsoluteNorms => ScoreRule::Gradient { min, small_max },
            Statistics::Disagreement => ScoreRule::Disagreement { small_max, key: 3 },
        };
        let candidates = self.device.score(model, &rule)?;
        let before = model.size();
        let has_quantile = before.optional.absolute_norm_sums;
        self.record("score", |source| rounds::score(source, has_quantile));
        let large = Grow::SplitRandom { shrink: 1.6, key: 1 };
        let rule = EditRule::Grow {
            large,
            keep: Keep { opacity_min: 0.005, scale_max: Some(1.0), unseen: true },
        };
        self.edit(model, (&candidates, Pick::Best(case.densify[2])), &rule)?;
        let [clones, splits, granted] = case.densify.map(|count| count as u64);
        let wanted = clones + splits;
        let sizes = RoundSizes { model: before, births: wanted.min(granted), wanted };
        self.record("densify", |source| rounds::edit(source, &sizes, case.pruned[0] > 0));
        let candidates = self.device.score(model, &ScoreRule::Opacity { min: 0.005 })?;
        let pick = Pick::WithReplacement { into: Into::Dead, key: 1 };
        self.edit(model, (&candidates, pick), &EditRule::Share)?;
        let rows = model.size().gaussians;
        self.record("relocate", |source| {
            if rows > 0 {
                rounds::relocate(source, rows)
            }
        });
        let pick = Pick::WithReplacement { into: Into::NewRows(case.relocate[1]), key: 2 };
        self.edit(model, (&candidates, pick), &EditRule::Share)?;
        let births = if rows > 0 { case.relocate[1] as u64 } else { 0 };
        self.record("multiply", |source| rounds::add_copies(source, rows, births));
        let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
        self.device.reorder(model, &cube)?;
        self.record("reorder", |source| rounds::reorder(source, &model.size()));
        self.device.adjust(model, &Adjust::ResetOpacity(0.01))?;
        if case.filter_3d {
            self.device.update_filter_3d(model, &[&case.view()], 0.2)?;
        }
        self.record("reset and filter", |source| {
            if case.filter_3d {
                rounds::smooth(source, 1);
            }
        });
        Ok(())
    }

    /// The prune to a number of Gaussians, by weights in two views, of a model of which as many are
    /// candidates as the device answers.
    fn prune_to_target(&mut self) -> Result<(), DeviceError> {
        let (case, view) = (self.case, self.case.view());
        let model = &mut self.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        let rows = model.size().gaussians;
        let seen = case.views[0];
        let visible = seen.visible.min(u32::try_from(rows).unwrap_or(u32::MAX));
        let instances = if visible == 0 { 0 } else { seen.instances };
        self.seen.set(SeenView { visible, instances });
        let settings = case.settings();
        let drawing = Drawing::trained(&settings, &Wants::default());
        // The first view may raise the room for splats.
        self.device.weigh(model, &[&view], &settings)?;
        drop(self.device.session.heap.trace().take());
        let each = Expected::of(&self.device.session, model, self.seen.get(), case.px, drawing);
        self.device.weigh(model, &[&view, &view], &settings)?;
        self.record("weights", |source| (0..2).for_each(|_| each.replay(source, None)));
        let before = model.size();
        let candidates = self.device.score(model, &ScoreRule::Weight)?;
        self.edit(model, (&candidates, Pick::Best(case.retained)), &EditRule::Retain)?;
        let [clones, splits, _] = case.densify.map(|count| count as u64);
        let kept = case.retained as u64;
        self.record("retain", |source| rounds::retain(source, &before, clones + splits, kept));
        assert_eq!(model.size().gaussians, kept.min(clones + splits));
        Ok(())
    }

    fn edit(
        &mut self,
        model: &mut Model,
        (candidates, pick): (&Candidates, Pick),
        rule: &EditRule,
    ) -> Result<(), DeviceError> {
        let selection = self.device.select(model, candidates, pick)?;
        self.device.edit(model, selection, rule).map(drop)
    }

    /// What an evaluation and a checkpoint do.
    fn look(&mut self, model: &mut Model, target: &Target) -> Result<(), DeviceError> {
        let (case, view) = (self.case, self.case.view());
        let settings = case.settings();
        let drawing = Drawing::shown(&settings, Look::COUNTS);
        let expected = Expected::of(&self.device.session, model, self.seen.get(), case.px, drawing);
        let frame = self.device.render(model, &view, &settings, Look::COUNTS)?;
        self.device.image(&frame)?;
        drop(frame);
        self.record("picture", |source| expected.replay(source, None));
        let corrects_colors = case.compensation.is_some();
        let inverse_depths = case.inverse_depth;
        let extra = Extra::Maps { inverse_depths, surface: false, median: case.filter_3d };
        let look = Look { extra, corrects_colors };
        let drawing = Drawing::shown(&settings, look);
        let expected = Expected::of(&self.device.session, model, self.seen.get(), case.px, drawing);
        let mut frame = self.device.render(model, &view, &settings, look)?;
        self.device.measure(&frame, target)?;
        if corrects_colors {
            frame = self.device.correct(frame, target)?;
        }
        drop(frame);
        self.record("evaluation", |source| expected.replay(source, None));
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
fn ordered(mut events: Vec<BlockEvent>) -> Vec<BlockEvent> {
    for gives in events.chunk_by_mut(|a, b| !a.is_take && !b.is_take) {
        gives.sort_by_key(|event| (event.start, event.bytes, event.label));
    }
    events
}

/// Plays a case and tells what happened.
fn trace(case: Case) -> String {
    let mut run = DryRun::open(case).unwrap();
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
        views: [SeenView { visible: 3000, instances: 9000 }; 2],
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

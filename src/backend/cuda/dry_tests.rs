//! Runs on a device that is not there: the real stages on a heap that rejects what a driver would reject,
//! and on queues that do no work and answer a case's counts.

mod case;
mod offload;
mod primitives;
mod sizes;
mod surfaces;

use std::cell::Cell;
use std::rc::Rc;

use self::case::{Case, SeenView};
use super::device::dry::DryQueue;
use super::memory::heap::Heap;
use super::memory::heap::tests::heap_of;
use super::session::Session;
use super::{Cuda, CudaOptions, Gradients, Model, NearestLists, Target};
use crate::backend::{
    AdamStep, Adjust, Appearance as _, AppearanceRule, AppearanceTables, Candidates, Device as _,
    DeviceError, Edit as _, EditRule, Extra, Filter3d as _, Grow, Into, Keep, Look,
    Neighbours as _, Objective, Pending as _, Photo, Pick, Rates, Render as _, ScoreRule,
    Statistics, Stay, Store as _, TableStep,
};
use crate::math::morton::Cube;
use crate::memory::Bytes;
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
        Ok(Self { case, device, queue, seen })
    }

    /// Nothing of a stage stays in the arena.
    fn ends(&self, stage: &str) {
        let live = self.device.session.heap.live_scratch();
        assert_eq!(live, Bytes(0), "after {stage} of {:?}", self.case);
    }

    /// The next view shows this, as far as the model has it.
    fn see(&self, seen: SeenView, rows: usize) {
        let visible = seen.visible.min(u32::try_from(rows).unwrap_or(u32::MAX));
        let instances = if visible == 0 { 0 } else { seen.instances };
        self.seen.set(SeenView { visible, instances });
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
        self.see(case.views[number as usize % 2], model.len());
        let coarse = case.coarse.filter(|_| near.is_some());
        let mut how = (case.settings(), case.wants(coarse), case.terms(coarse));
        if case.surfels && near.is_none() {
            how = case.of_surfels(how.0, how.1, how.2);
        }
        let (settings, wants, terms) = &how;
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
        self.ends("an iteration");
        Ok(())
    }

    /// All that training does to a model.
    fn play(&mut self) -> Result<(), DeviceError> {
        let case = self.case;
        let (view, photograph) = (case.view(), case.photograph());
        let mut model = self.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        self.ends("the upload");
        if case.filter_3d {
            self.device.update_filter_3d(&mut model, &[&view], 0.2)?;
            self.ends("the filter");
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
        self.ends("the search");
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
        self.ends("the score");
        let large = Grow::SplitRandom { shrink: 1.6, key: 1 };
        let rule = EditRule::Grow {
            large,
            keep: Keep { opacity_min: 0.005, scale_max: Some(1.0), unseen: true },
        };
        self.edit(model, (&candidates, Pick::Best(case.densify[2])), &rule)?;
        self.ends("the edit");
        let candidates = self.device.score(model, &ScoreRule::Opacity { min: 0.005 })?;
        let pick = Pick::WithReplacement { into: Into::Dead, key: 1 };
        self.edit(model, (&candidates, pick), &EditRule::Share)?;
        self.ends("moving the dead");
        let pick = Pick::WithReplacement { into: Into::NewRows(case.relocate[1]), key: 2 };
        self.edit(model, (&candidates, pick), &EditRule::Share)?;
        self.ends("the copies");
        let cube = Cube { centre: [0.0; 3], half_side: 1.0 };
        self.device.reorder(model, &cube)?;
        self.ends("putting rows in order");
        self.device.adjust(model, &Adjust::ResetOpacity(0.01))?;
        if case.filter_3d {
            self.device.update_filter_3d(model, &[&case.view()], 0.2)?;
        }
        self.ends("the reset");
        Ok(())
    }

    /// The prune to a number of Gaussians, by weights in two views, of a model of which as many are
    /// candidates as the device answers.
    fn prune_to_target(&mut self) -> Result<(), DeviceError> {
        let (case, view) = (self.case, self.case.view());
        let model = &mut self.device.upload(&Gaussians::zeros(case.sh_degree, case.gaussians))?;
        self.see(case.views[0], model.len());
        let settings = case.settings();
        self.device.weigh(model, &[&view, &view], &settings)?;
        self.ends("the weights");
        let candidates = self.device.score(model, &ScoreRule::Weight)?;
        self.edit(model, (&candidates, Pick::Best(case.retained)), &EditRule::Retain)?;
        let [clones, splits, _] = case.densify.map(|count| count as u64);
        let kept = case.retained as u64;
        self.ends("the prune");
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
        let frame = self.device.render(model, &view, &settings, Look::COUNTS)?;
        self.device.image(&frame)?;
        drop(frame);
        self.ends("a picture");
        let corrects_colors = case.compensation.is_some();
        let inverse_depths = case.inverse_depth;
        let extra = Extra::Maps { inverse_depths, surface: false, median: case.filter_3d };
        let look = Look { extra, corrects_colors };
        let mut frame = self.device.render(model, &view, &settings, look)?;
        self.device.measure(&frame, target)?;
        if corrects_colors {
            frame = self.device.correct(frame, target)?;
        }
        drop(frame);
        self.ends("an evaluation");
        let rows = 0..model.len().min(5000);
        self.device.read(model, rows.clone())?;
        self.ends("a checkpoint");
        let rows: Vec<usize> = rows.step_by(7).collect();
        self.device.sample(model, &rows)?;
        self.ends("a sample");
        Ok(())
    }
}

#[test]
fn an_iteration_runs_to_its_end_without_a_gpu() {
    let case = Case {
        gaussians: 5000,
        px: [97, 61],
        views: [SeenView { visible: 3000, instances: 9000 }; 2],
        ..Case::of(1)
    };
    let mut run = DryRun::open(case).unwrap();
    run.play().unwrap();
    let ledger = run.device.session.heap.ledger();
    for label in ["splats", "instances", "sort", "states of pixels", "density flags"] {
        assert!(ledger.iter().any(|entry| entry.label == label), "{label}: {ledger:?}");
    }
}

/// The heap and the queues reject what a driver would reject.
#[test]
fn all_stages_run_in_all_cases() {
    for seed in 0..CASES {
        let case = Case::of(seed);
        let mut run = DryRun::open(case).unwrap();
        if let Err(error) = run.play() {
            panic!("{error} in {case:?}");
        }
        assert!(run.queue.work().launches > 0 && run.queue.work().transfers > 0);
    }
}

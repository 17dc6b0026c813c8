//! Ranks must train the same model, bit for bit, as one process with the same number of views per step.

use std::sync::Arc;
use std::thread;

use splat_ranks::exchange::Exchange;

use super::CpuShard;
use crate::abi::terms::{Term, Terms};
use crate::backend::Edited;
use crate::backend::cpu::Cpu;
use crate::backend::ranks::{Follower, Leader, Opening, Problem, RankLine, RankOrder, RankTarget};
use crate::backend::{
    AdamStep, Adjust, DeviceError, EditRule, Footprint, Grow, Into, Keep, MotionReach, Noise,
    Objective, Pending, Pick, RankOutcome, RankView, Ranks, Rates, Regularisers, RenderRequest,
    RenderSettings, Rendered, ScoreRule, Snapshot, Statistics, Store, TrainDevice, TrainRequest,
    ViewSetup,
};
use crate::dataset::{Camera, Image, InverseDepthMap, NormalMap, Pose, View};
use crate::math::morton::Cube;
use crate::math::random::{RandomStream, RandomUse};
use crate::math::{Divisor, Real};
use crate::memory::plan::Storage;
use crate::model::{Gaussians, Primitive};

const SIZE: [u32; 2] = [40, 32];
const ROWS: usize = 400;
const CUBE: Cube = Cube { centre: [0.0; 3], half_side: 3.0 };

/// Returns Gaussians of various sizes and opacities in front of the cameras.
fn gaussians() -> Gaussians {
    let stream = RandomStream::new(7, 0, RandomUse::Initialise);
    let mut next = (0..).map(|index| f32::of(stream.normal(index)));
    let mut next = |share: f32| share * next.next().unwrap_or(0.0);
    let mut host = Gaussians::zeros(1, ROWS);
    host.means.iter_mut().for_each(|v| *v = next(0.8));
    host.log_scales.iter_mut().for_each(|v| *v = -2.2 + next(0.5));
    host.quats.iter_mut().for_each(|v| *v = next(1.0));
    host.opacity_logits.iter_mut().for_each(|v| *v = next(3.0));
    host.sh_dc.iter_mut().for_each(|v| *v = next(0.8));
    host.sh_rest.iter_mut().for_each(|v| *v = next(0.3));
    host
}

/// Returns views side by side.
fn views() -> Vec<View> {
    let [width, height] = SIZE;
    let camera = Camera { width, height, focal_px: [40.0; 2], centre_px: [20.0, 16.0] };
    let rotation = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    let view = |number: u8| View {
        name: format!("{number}.png"),
        camera,
        pose: Pose { rotation, translation: [0.3 * f64::from(number) - 0.6, 0.1, 4.0] },
    };
    (0..5).map(view).collect()
}

/// Returns the photograph of a view, with maps of a tilted wall.
fn photograph(index: usize) -> Arc<Image> {
    let [width, height] = SIZE;
    let stream = RandomStream::new(index as u64, 1, RandomUse::Initialise);
    let rgb =
        (0..u64::from(width * height * 3)).map(|at| stream.bits(at).to_le_bytes()[0]).collect();
    let pixels = (width * height) as usize;
    let values = vec![16_384; pixels];
    let depth = Some(InverseDepthMap { values, scale: 1.0, offset: 0.0 });
    let normals = Some(NormalMap { values: [30, -50, -110].repeat(pixels) });
    Arc::new(Image { width, height, rgb, mask: None, depth, normals })
}

/// Returns all terms that ranks support.
fn terms() -> Terms {
    Terms::photometric(0.2).with(Term::InverseDepth, 0.01).with(Term::NormalMap, 0.01)
}

fn settings() -> RenderSettings {
    RenderSettings { sh_degree: 1, background: [0.1, 0.2, 0.3], ..RenderSettings::DEFAULT }
}

/// View whose photograph cannot be decoded.
const BROKEN: usize = 99;

type RankedCpu = Leader<CpuShard>;

/// Creates rank 0.
fn leader_of(exchange: Exchange, storage: Storage) -> RankedCpu {
    let line = RankLine::new(exchange);
    let mut leader = Leader::new(CpuShard::new(Cpu::with_storage(storage, 3), line));
    Ranks::begin(&mut leader, String::new(), 0).unwrap();
    leader
}

/// Follows rank 0 until its end.
fn follow(exchange: Exchange, storage: Storage) -> Result<(), DeviceError> {
    let line = RankLine::new(exchange);
    assert!(matches!(Opening::receive(&line)?, Opening::Begin { .. }));
    let mut cpu = Follower::join(CpuShard::new(Cpu::with_storage(storage, 3), line))?;
    loop {
        match cpu.follow()? {
            RankOrder::Done => {}
            RankOrder::End => return Ok(()),
            RankOrder::Train(views) => {
                let own = views[cpu.rank() as usize].as_ref();
                let comparison = own.map(|view| match view.index {
                    BROKEN => Err("99.png: cut short".to_owned()),
                    index => Ok(RankTarget { target: photograph(index), terms: terms() }),
                });
                cpu.train(&views, comparison)?;
            }
        }
    }
}

/// Returns the result of `work` on rank 0 of N ranks.
fn with_ranks<T>(world: u32, storage: Storage, work: impl FnOnce(&mut RankedCpu) -> T) -> T {
    let mut group = Exchange::threads(world).into_iter();
    let leader = group.next().unwrap();
    thread::scope(|scope| {
        let follower = group.map(|exchange| scope.spawn(move || follow(exchange, storage)));
        let follower: Vec<_> = follower.collect();
        let mut leader = leader_of(leader, storage);
        let done = work(&mut leader);
        leader.end().unwrap();
        drop(leader);
        follower.into_iter().for_each(|rank| rank.join().unwrap().unwrap());
        done
    })
}

/// Returns the result of `work`, after which all ranks have failed.
fn with_failing_ranks<T>(world: u32, work: impl FnOnce(&mut RankedCpu) -> T) -> T {
    let mut group = Exchange::threads(world).into_iter();
    let leader = group.next().unwrap();
    thread::scope(|scope| {
        for exchange in group {
            scope.spawn(|| follow(exchange, Storage::Full).unwrap_err());
        }
        work(&mut leader_of(leader, Storage::Full))
    })
}

/// A run on a device.
struct TestRun<'a, D: TrainDevice> {
    device: &'a mut D,
    model: D::Model,
    steps: u32,
    statistics: Statistics,
    footprint: Footprint,
    cuts_sides: bool,
}

impl<'a, D: TrainDevice<Target = Arc<Image>>> TestRun<'a, D> {
    fn new(device: &'a mut D) -> Self {
        Self::of(device, &gaussians())
    }

    fn of(device: &'a mut D, host: &Gaussians) -> Self {
        let model = device.upload(host).unwrap();
        let (statistics, footprint) = (Statistics::Norms, Footprint::DILATED);
        Self { device, model, steps: 0, statistics, footprint, cuts_sides: false }
    }

    fn settings(&self) -> RenderSettings {
        RenderSettings { footprint: self.footprint, cuts_sides: self.cuts_sides, ..settings() }
    }

    fn setup(&self, index: usize) -> ViewSetup {
        let (view, settings) = (views()[index % 5].clone(), self.settings());
        let observe = Some(self.statistics);
        ViewSetup { view, settings, surface: false, observe, divisor: Divisor::One }
    }

    /// Trains a step on these views. Returns their losses.
    fn step(&mut self, indices: &[usize]) -> Vec<f64> {
        self.try_step(indices).unwrap()
    }

    fn try_step(&mut self, indices: &[usize]) -> Result<Vec<f64>, DeviceError> {
        let terms = terms();
        let mut gradients = D::Gradients::default();
        let mut losses = Vec::new();
        for round in indices.chunks(self.device.world() as usize) {
            let others = round[1..].iter().map(|&index| RankView {
                image: 1,
                iteration: 1,
                index,
                setup: self.setup(index),
                terms: terms.clone(),
            });
            self.device.share_views(1, others.collect());
            let (observe, inputs) = (Some(self.statistics), terms.needs());
            let request = TrainRequest { observe, inputs, ..TrainRequest::default() };
            let (view, settings) = (&views()[round[0]], self.settings());
            let frame = self.device.render_train(&self.model, view, &settings, &request).unwrap();
            let target = &photograph(round[0]);
            let objective = Objective { target, terms: &terms, near: None, other: None };
            let (frame, values) = self.device.objective(&self.model, frame, &objective).unwrap();
            self.device.backward(&mut self.model, frame, None, &mut gradients).unwrap();
            let of_others = self.device.take_shared().into_iter().filter_map(|view| match view {
                RankOutcome::Added([values, _]) => Some(values),
                RankOutcome::Undecodable(_) => None,
            });
            let all = std::iter::once(values).chain(of_others);
            losses.extend(all.map(|values| values.read().unwrap().total));
        }
        self.steps += 1;
        let rates = Rates {
            means: 2e-3,
            log_scales: 5e-3,
            quats: 1e-3,
            opacity_logits: 2e-2,
            sh_dc: 3e-3,
            sh_rest: 2e-4,
        };
        let key = RandomStream::new(1, u64::from(self.steps), RandomUse::Noise).key();
        let step = AdamStep {
            regularisers: Regularisers { opacity: 0.01, scale: 0.01, ..Default::default() },
            noise: Some(Noise { rate: 10.0, key, moved: MotionReach::All }),
            scale_limit: 0.05,
            ..AdamStep::new(self.steps, rates)
        };
        self.device.step(&mut self.model, gradients, &step)?;
        Ok(losses)
    }

    fn densify(&mut self, rule: &ScoreRule, pick: Pick, edit: &EditRule) -> Edited {
        let candidates = self.device.score(&self.model, rule).unwrap();
        let selection = self.device.select(&mut self.model, &candidates, pick).unwrap();
        self.device.edit(&mut self.model, selection, edit).unwrap()
    }

    fn snapshot(&mut self) -> Snapshot<Gaussians> {
        self.device.snapshot(&mut self.model).unwrap()
    }
}

const KEEP: Keep = Keep { opacity_min: 0.2, scale_max: Some(0.5), unseen: true };

/// Makes all changes of strategies. Returns the model after each part.
fn script<D: TrainDevice<Target = Arc<Image>>>(
    device: &mut D,
) -> Vec<(&'static str, Snapshot<Gaussians>)> {
    let mut run = TestRun::new(device);
    let mut found = vec![("upload", run.snapshot())];
    run.device.reorder(&mut run.model, &CUBE).unwrap();
    found.push(("reorder", run.snapshot()));
    run.step(&[0, 1, 2]);
    run.step(&[3, 4]);
    run.step(&[1, 4, 0, 2]);
    found.push(("steps", run.snapshot()));
    let by_gradient = ScoreRule::Gradient { min: 1e-6, small_max: 0.17 };
    let large = Grow::SplitRandom { shrink: 1.6, key: 5 };
    let grown = run.densify(&by_gradient, Pick::Best(120), &EditRule::Grow { large, keep: KEEP });
    assert!(grown.split > 20 && grown.copied > 20 && grown.removed > 20, "{grown:?}");
    found.push(("ADC", run.snapshot()));
    run.statistics = Statistics::Both;
    run.step(&[2, 0, 3]);
    let by_quantile = ScoreRule::GradientOrQuantile { min: 2e-5, small_max: 0.17 };
    let large = Grow::AddChild { shrink: 1.6, key: 6 };
    run.densify(&by_quantile, Pick::Best(40), &EditRule::Grow { large, keep: KEEP });
    found.push(("GOF", run.snapshot()));
    run.statistics = Statistics::Disagreement;
    run.step(&[4, 1, 2]);
    let by_draw = ScoreRule::Disagreement { small_max: 0.17, key: 8 };
    run.densify(&by_draw, Pick::Best(30), &EditRule::Grow { large, keep: KEEP });
    found.push(("budget", run.snapshot()));
    let by_opacity = ScoreRule::Opacity { min: 0.4 };
    let dead = Pick::WithReplacement { into: Into::Dead, key: 9 };
    let moved = run.densify(&by_opacity, dead, &EditRule::Share);
    assert!(moved.moved > 5, "{moved:?}");
    found.push(("relocation", run.snapshot()));
    let born = Pick::WithReplacement { into: Into::NewRows(50), key: 10 };
    assert_eq!(run.densify(&by_opacity, born, &EditRule::Share).copied, 50);
    found.push(("births", run.snapshot()));
    run.step(&[0, 3, 1]);
    let all = views();
    let views: Vec<&View> = all.iter().collect();
    run.device.update_filter_3d(&mut run.model, &views, 0.2).unwrap();
    run.device.adjust(&mut run.model, &Adjust::ResetOpacity(0.3)).unwrap();
    run.footprint = Footprint::Ellipse { variance_px2: 0.1, compensates: true };
    run.step(&[2, 4, 3]);
    found.push(("filter and reset", run.snapshot()));
    run.device.reorder(&mut run.model, &CUBE).unwrap();
    run.device.weigh(&mut run.model, &views, &settings()).unwrap();
    found.push(("weights", run.snapshot()));
    let kept = run.densify(&ScoreRule::Weight, Pick::Best(100), &EditRule::Retain);
    assert!(kept.removed > 50, "{kept:?}");
    run.step(&[1, 2, 3]);
    found.push(("retained", run.snapshot()));
    found
}

#[test]
fn ranks_compute_the_bytes_of_one_process() {
    let one = script(&mut Cpu::<f32>::new());
    for world in [1, 2, 3, 4] {
        let ranks = with_ranks(world, Storage::Full, script);
        for ((part, expected), (_, found)) in one.iter().zip(&ranks) {
            assert_eq!(expected.views_seen.len(), found.views_seen.len(), "{part}, {world} ranks");
            assert!(expected == found, "{part}, {world} ranks");
        }
    }
}

#[test]
fn compact_state_is_that_of_one_process_until_it_is_rounded() {
    let (start, after) = with_ranks(3, Storage::Compact, first_step);
    let (expected_start, expected) = first_step(&mut Cpu::<f32>::with_storage(Storage::Compact, 3));
    assert!(start == expected_start);
    let far = expected.parameters.sh_dc.iter().zip(&after.parameters.sh_dc);
    // A step is 3e-3, and 16-bit floats next to 1 are 5e-4 apart.
    assert!(far.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max) < 2e-3);
    assert_eq!(expected.views_seen, after.views_seen);
}

/// Returns the model before and after a step.
fn first_step<D: TrainDevice<Target = Arc<Image>>>(
    device: &mut D,
) -> (Snapshot<Gaussians>, Snapshot<Gaussians>) {
    let mut run = TestRun::new(device);
    run.device.reorder(&mut run.model, &CUBE).unwrap();
    let start = run.snapshot();
    run.step(&[0, 1, 2]);
    (start, run.snapshot())
}

/// A step with one large Gaussian beside the images.
fn step_beside<D: TrainDevice<Target = Arc<Image>>>(
    device: &mut D,
    cuts_sides: bool,
) -> Snapshot<Gaussians> {
    let mut host = gaussians();
    // The bound is x/z = 1.5. The cameras are 4 before the middle.
    host.means[..3].copy_from_slice(&[9.0, 0.0, 0.0]);
    host.log_scales[..3].fill(1.2);
    host.opacity_logits[0] = 3.0;
    let mut run = TestRun::of(device, &host);
    run.cuts_sides = cuts_sides;
    run.step(&[2, 0, 3]);
    run.snapshot()
}

#[test]
fn all_ranks_leave_out_gaussians_beside_an_image() {
    let of_one = |cuts_sides| step_beside(&mut Cpu::<f32>::new(), cuts_sides);
    let of_two = with_ranks(2, Storage::Full, |device| step_beside(device, true));
    assert!(of_two == of_one(true));
    assert!(of_two != of_one(false), "the Gaussian is seen otherwise");
}

#[test]
fn shown_views_and_samples_are_those_of_one_process() {
    assert_eq!(shown(&mut Cpu::<f32>::new()), with_ranks(3, Storage::Full, shown));
}

/// Returns two pictures and a sample.
fn shown<D: TrainDevice>(device: &mut D) -> ([Rendered; 2], Gaussians) {
    let mut model = device.upload(&gaussians()).unwrap();
    let pictures = [RenderRequest::COUNTS, RenderRequest::SURFACE].map(|request| {
        let frame = device.render(&model, &views()[1], &settings(), request).unwrap();
        device.image(&frame).unwrap()
    });
    (pictures, Store::sample(device, &mut model, &[399, 0, 0, 77]).unwrap())
}

#[test]
fn a_model_that_is_read_and_dealt_to_other_ranks_stays_the_same() {
    let mut after = with_ranks(4, Storage::Full, |leader| {
        let mut run = TestRun::new(leader);
        run.step(&[0, 1, 2, 3]);
        run.snapshot()
    });
    after.filter_3d = vec![0.5; ROWS];
    for world in [1, 2, 3] {
        let again = with_ranks(world, Storage::Full, |leader| {
            let mut model = Store::load(leader, &mut after.clone()).unwrap();
            Store::snapshot(leader, &mut model).unwrap()
        });
        assert!(again == after, "{world} ranks");
    }
}

// Broken photographs and rows, and ranks without rows.

#[test]
fn a_view_that_cannot_be_decoded_is_left_out_of_the_step() {
    let (losses, found) = with_ranks(3, Storage::Full, |leader| {
        let mut run = TestRun::new(leader);
        (run.step(&[0, BROKEN, 2]), run.snapshot())
    });
    let mut one = Cpu::<f32>::new();
    let mut one = TestRun::new(&mut one);
    assert_eq!((one.step(&[0, 2]), losses.len()), (losses, 2));
    assert!(one.snapshot() == found);
}

#[test]
fn a_row_that_is_not_finite_is_reported_by_its_number_on_any_rank() {
    for row in [0, 150, 399] {
        let message = with_failing_ranks(3, |leader| {
            let mut host = gaussians();
            host.log_scales[row * 3] = f32::NAN;
            TestRun::of(leader, &host).try_step(&[0]).unwrap_err().to_string()
        });
        assert!(message.contains(&format!("Gaussian {row}:")), "{message}");
    }
}

/// Uses a small model, all of whose rows are on one rank.
#[test]
fn ranks_without_rows_draw_and_get_rows_at_the_next_distribution() {
    let mut one = Cpu::<f32>::new();
    assert!(small(&mut one) == with_ranks(3, Storage::Full, small));
}

fn small<D: TrainDevice<Target = Arc<Image>>>(device: &mut D) -> [Snapshot<Gaussians>; 2] {
    let mut run = TestRun::of(device, &Primitive::rows(&gaussians(), 0..20));
    run.statistics = Statistics::Both;
    run.step(&[0, 1, 2]);
    let optional = run.device.optional(&run.model);
    assert!(optional.absolute_norm_sums, "on any rank");
    let before = run.snapshot();
    for key in 0..3 {
        let all = ScoreRule::Gradient { min: 0.0, small_max: 0.0 };
        let large = Grow::AddChild { shrink: 1.2, key };
        let keep = Keep { opacity_min: 0.0, scale_max: None, unseen: true };
        run.densify(&all, Pick::Best(1000), &EditRule::Grow { large, keep });
    }
    run.device.reorder(&mut run.model, &CUBE).unwrap();
    run.step(&[3, 0, 2]);
    let after = run.snapshot();
    // All opacities are below 2, so no Gaussian is left.
    let none = Keep { opacity_min: 2.0, scale_max: None, unseen: true };
    let edit = EditRule::Grow { large: Grow::Copy, keep: none };
    let by_gradient = ScoreRule::Gradient { min: f64::INFINITY, small_max: 0.0 };
    run.densify(&by_gradient, Pick::Best(0), &edit);
    assert_eq!(run.device.len(&run.model), 0);
    run.step(&[1, 2, 3]);
    [before, after]
}

#[test]
fn a_rank_with_another_scene_is_named_by_all() {
    let mut group = Exchange::threads(3).into_iter();
    let leader = group.next().unwrap();
    thread::scope(|scope| {
        for exchange in group {
            scope.spawn(|| {
                let line = RankLine::new(exchange);
                let opening = Opening::receive(&line).unwrap();
                let Opening::Begin { config, scene } = opening else { panic!("no run") };
                assert_eq!((config.as_str(), scene), ("a = 1", 7));
                if line.rank() == 2 {
                    let problem = Problem::Scene("scene: has other points".to_owned());
                    Opening::decline(&line, problem).unwrap();
                } else {
                    let refused = Follower::join(CpuShard::new(Cpu::new(), line)).err().unwrap();
                    assert_eq!(refused.to_string(), "rank 2: scene: has other points");
                }
            });
        }
        let line = RankLine::new(leader);
        let mut leader = Leader::new(CpuShard::new(Cpu::new(), line));
        let refused = Ranks::begin(&mut leader, "a = 1".to_owned(), 7).unwrap_err();
        assert_eq!(refused.to_string(), "rank 2: scene: has other points");
    });
}

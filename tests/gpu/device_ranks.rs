//! GPUs as ranks against one GPU that takes as many views a step. Needs two GPUs and NCCL.

use std::sync::{Mutex, PoisonError};
use std::thread;

use splat::abi::terms::Terms;
use splat::backend::cuda::ranks::CudaShard;
use splat::backend::ranks::{Follower, Leader, Opening, RankLine, RankOrder, RankTarget};
use splat::backend::{Into, RankOutcome, RankView, Ranks, ViewSetup};
use splat_ranks::exchange::Exchange;

use crate::prelude::*;

const ROWS: usize = 6000;
const SIZE: [u32; 2] = [80, 64];
const MIP: Footprint = Footprint::Ellipse { variance_px2: 0.1, compensates: true };
const CUBE: Cube = Cube { centre: [0.0; 3], half_side: 8.0 };

/// A view whose photograph no rank other than 0 can decode.
const BROKEN: usize = 2;

fn views() -> Vec<View> {
    let aside = |i: u8| moved(&resized(&straight(), SIZE), [0.1 * f64::from(i) - 0.2, 0.05, 0.3]);
    (0..4).map(aside).collect()
}

fn terms() -> Terms {
    Terms::photometric(0.2)
}

fn open(ordinal: u32, storage: Storage) -> Cuda {
    Cuda::open(&CudaOptions { ordinal, storage, ..CudaOptions::default() }).unwrap()
}

fn follow(exchange: Exchange, (ordinal, storage): (u32, Storage)) {
    let line = RankLine::new(exchange);
    assert!(matches!(Opening::receive(&line).unwrap(), Opening::Begin { .. }));
    let mut rank = Follower::join(CudaShard::new(open(ordinal, storage), line)).unwrap();
    loop {
        match rank.follow().unwrap() {
            RankOrder::Done => {}
            RankOrder::End => return,
            RankOrder::Train(all) => {
                let own = all[rank.rank() as usize].as_ref();
                let comparison = own.map(|view| {
                    if view.index == BROKEN {
                        return Err("2.png: cut short".to_owned());
                    }
                    let image = photo(SIZE[0], SIZE[1], None);
                    let stay = Stay::Resident(view.index);
                    let target = rank.device().upload_target(Photo { image: &image, stay });
                    Ok(RankTarget { target: target.unwrap(), terms: terms() })
                });
                rank.train(&all, comparison).unwrap();
            }
        }
    }
}

/// Kernels of several communicators can wait for each other, so that one group at a time uses the GPUs.
static GROUP: Mutex<()> = Mutex::new(());

/// Does `work` on rank 0 of two GPUs.
fn with_gpus<T>(storage: Storage, work: impl FnOnce(&mut Leader<CudaShard>) -> T) -> T {
    cuda::share();
    let _only = GROUP.lock().unwrap_or_else(PoisonError::into_inner);
    let mut group = Exchange::threads(2).into_iter();
    let leader = group.next().unwrap();
    thread::scope(|scope| {
        let follower: Vec<_> = (1..)
            .zip(group)
            .map(|(ordinal, way)| scope.spawn(move || follow(way, (ordinal, storage))))
            .collect();
        let line = RankLine::new(leader);
        let mut leader = Leader::new(CudaShard::new(open(0, storage), line));
        Ranks::begin(&mut leader, String::new(), 0).unwrap();
        let done = work(&mut leader);
        leader.end().unwrap();
        drop(leader);
        follower.into_iter().for_each(|rank| rank.join().unwrap());
        done
    })
}

fn with_one_gpu<T>(storage: Storage, work: impl FnOnce(&mut Cuda) -> T) -> T {
    cuda::share();
    work(&mut open(0, storage))
}

struct TestRun<'a, D: TrainDevice> {
    device: &'a mut D,
    model: D::Model,
    footprint: Footprint,
    steps: u32,
}

impl<'a, D: TrainDevice> TestRun<'a, D> {
    fn new(device: &'a mut D) -> Self {
        let model = device.upload(&tame_gaussians(ROWS, 3, 2)).unwrap();
        Self { device, model, footprint: Footprint::DILATED, steps: 0 }
    }

    fn settings(&self) -> RenderSettings {
        RenderSettings { sh_degree: 2, footprint: self.footprint, ..RenderSettings::DEFAULT }
    }

    fn step(&mut self, indices: &[usize]) -> Vec<f64> {
        let (all, settings, observe) = (views(), self.settings(), Some(Statistics::Both));
        let mut gradients = D::Gradients::default();
        let mut losses = Vec::new();
        for round in indices.chunks(self.device.world() as usize) {
            let others = round[1..].iter().map(|&index| {
                let view = all[index].clone();
                let divisor = Divisor::One;
                let setup = ViewSetup { view, settings, surface: false, observe, divisor };
                RankView { image: 1, iteration: 1, index, setup, terms: terms() }
            });
            self.device.share_views(1, others.collect());
            let request = TrainRequest { observe, ..TrainRequest::default() };
            let view = &all[round[0]];
            let frame = self.device.render_train(&self.model, view, &settings, &request).unwrap();
            let image = photo(SIZE[0], SIZE[1], None);
            let stay = Stay::Resident(round[0]);
            let target = self.device.upload_target(Photo { image: &image, stay }).unwrap();
            let terms = terms();
            let objective = Objective { target: &target, terms: &terms, near: None, other: None };
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
        let step = AdamStep::new(self.steps, RATES);
        self.device.step(&mut self.model, gradients, &step).unwrap();
        losses
    }

    fn densify(&mut self, rule: &ScoreRule, pick: Pick, edit: &EditRule) -> (Candidates, Edited) {
        let candidates = self.device.score(&self.model, rule).unwrap();
        let selection = self.device.select(&mut self.model, &candidates, pick).unwrap();
        (candidates, self.device.edit(&mut self.model, selection, edit).unwrap())
    }

    fn snapshot(&mut self) -> Snapshot<Gaussians> {
        self.device.snapshot(&mut self.model).unwrap()
    }

    fn image(&mut self) -> Vec<f32> {
        let (settings, view) = (self.settings(), &views()[1]);
        let frame = self.device.render(&self.model, view, &settings, RenderRequest::IMAGE).unwrap();
        self.device.image(&frame).unwrap().rgb
    }
}

/// The row of the one GPU that each row of the ranks is, by its centre.
fn rows_of(ranks: &Gaussians, one: &Gaussians) -> Vec<usize> {
    let key = |mean: &[f32; 3]| mean.map(f32::to_bits);
    let known: std::collections::HashMap<_, _> =
        one.means.as_chunks::<3>().0.iter().map(key).zip(0..).collect();
    let rows: Vec<usize> = ranks.means.as_chunks::<3>().0.iter().map(|m| known[&key(m)]).collect();
    let mut sorted = rows.clone();
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..ROWS), "each row once");
    rows
}

/// Values of the ranks, `width` a row, against those of the same rows of one GPU, within a share of the largest.
fn assert_close(found: &[f32], one: &[f32], rows: &[usize], (width, share): (usize, f32)) {
    let largest = one.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
    assert!(largest > 0.0, "there are values");
    for (found, &row) in found.chunks(width).zip(rows) {
        let (expected, allowed) = (&one[row * width..][..width], f64::from(share * largest));
        assert_near(found, expected, |_| allowed, format_args!("row {row}, largest {largest}:"));
    }
}

/// Images, losses and snapshots of three steps over seven views.
struct Stepped {
    start: Snapshot<Gaussians>,
    image: Vec<f32>,
    losses: Vec<f64>,
    end: Snapshot<Gaussians>,
}

/// Rank 0 has the first of each pair of views.
fn stepped<D: TrainDevice>(device: &mut D) -> Stepped {
    let mut run = TestRun::new(device);
    let (start, image) = (run.snapshot(), run.image());
    let losses = [run.step(&[0, 1]), run.step(&[2, 3, 1, 0]), run.step(&[3])].concat();
    Stepped { start, image, losses, end: run.snapshot() }
}

/// Compares results of two GPUs and of one, but for moments. Returns the one's row of each row of the two.
fn assert_same_steps(two: &Stepped, one: &Stepped, loss_share: f64) -> Vec<usize> {
    let rows = rows_of(&two.start.parameters, &one.start.parameters);
    // Splats of one depth may come in another order.
    assert_near(&two.image, &one.image, |_| 1e-5, "value");
    assert_near(&two.losses, &one.losses, |loss| loss_share * loss, "loss");
    let seen = rows.iter().map(|&row| one.end.views_seen[row]);
    assert!(seen.eq(two.end.views_seen.iter().copied()), "views that have seen each");
    rows
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn steps_of_two_gpus_are_those_of_one_with_as_many_views() {
    let one = with_one_gpu(Storage::Full, stepped);
    let two = with_gpus(Storage::Full, stepped);
    let rows = assert_same_steps(&two, &one, 1e-5);
    // Gradients are summed in the order of arrival, and steps of Adam go by their signs: moments add up what is
    // within 1e-5 of the largest, but for rows whose gradients cancel.
    let (two, one) = (&two.end, &one.end);
    for (two, one) in paired(&two.first_moments, &one.first_moments) {
        assert_close(two.values, one.values, &rows, (two.width, 1e-3));
    }
    assert_close(&two.gradient_norm_sums, &one.gradient_norm_sums, &rows, (1, 1e-3));
    assert_close(&two.absolute_norm_sums, &one.absolute_norm_sums, &rows, (1, 1e-3));
}

/// Values of the ranks, `width` a row, against those of the same rows of one GPU: all differences together are within
/// a share of all values, and as rounding has no direction, they cancel to a tenth of that.
fn assert_same_but_rounded(
    found: &[f32],
    one: &[f32],
    rows: &[usize],
    (width, share): (usize, f64),
) {
    let (mut values, mut differences, mut bias) = (0.0, 0.0, 0.0);
    for (place, &row) in rows.iter().enumerate() {
        for column in 0..width {
            let expected = f64::from(one[row * width + column]);
            let difference = f64::from(found[place * width + column]) - expected;
            values += expected.abs();
            differences += difference.abs();
            bias += difference;
        }
    }
    assert!(values > 0.0, "there are values");
    assert!(differences <= share * values, "{differences} of {values}");
    assert!(bias.abs() <= 0.1 * share * values, "{bias} of {values} on average");
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn compact_steps_of_two_gpus_are_those_of_one_up_to_rounding() {
    let one = with_one_gpu(Storage::Compact, stepped);
    let two = with_gpus(Storage::Compact, stepped);
    // Each rank has random numbers of its own. Random rounding moves a colour by a 1,024th at most.
    let rows = assert_same_steps(&two, &one, 2e-3);
    let moved = |run: &Stepped| -> Vec<f32> {
        let pairs = run.start.parameters.sh_dc.iter().zip(&run.end.parameters.sh_dc);
        pairs.map(|(start, end)| end - start).collect()
    };
    // Steps of 0.005, and colours of about 1 that are rounded by a 1,024th at most in each, on both sides.
    assert_same_but_rounded(&moved(&two), &moved(&one), &rows, (3, 0.4));
    let (two, one) = (&two.end, &one.end);
    for (two, one) in paired(&two.first_moments, &one.first_moments) {
        // In each of three steps first moments are rounded by a 128th of themselves at most, those of colours by an
        // eighth; of what cancels, more is left.
        let share = if two.name.starts_with("sh_") { 0.2 } else { 0.02 };
        assert_same_but_rounded(two.values, one.values, &rows, (two.width, share));
    }
    assert_same_but_rounded(&two.gradient_norm_sums, &one.gradient_norm_sums, &rows, (1, 0.01));
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn a_view_that_the_other_gpu_cannot_decode_leaves_the_step_to_the_first() {
    fn found<D: TrainDevice>(device: &mut D, first: &[usize]) -> [Snapshot<Gaussians>; 2] {
        let mut run = TestRun::new(device);
        let start = run.snapshot();
        assert_eq!(run.step(first).len(), 1);
        run.step(&[3, 1]);
        [start, run.snapshot()]
    }
    let [start_one, one] = with_one_gpu(Storage::Full, |device| found(device, &[0]));
    let [start_two, two] = with_gpus(Storage::Full, |device| found(device, &[0, BROKEN]));
    let rows = rows_of(&start_two.parameters, &start_one.parameters);
    let seen = rows.iter().map(|&row| one.views_seen[row]);
    assert!(seen.eq(two.views_seen.iter().copied()), "views that have seen each");
    assert_close(&two.first_moments.sh_dc, &one.first_moments.sh_dc, &rows, (3, 1e-3));
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn filters_and_weights_of_two_gpus_are_those_of_one() {
    fn found<D: TrainDevice>(device: &mut D) -> [Snapshot<Gaussians>; 2] {
        let mut run = TestRun::new(device);
        let all = views();
        let views: Vec<&View> = all.iter().take(3).collect();
        let start = run.snapshot();
        run.device.update_filter_3d(&mut run.model, &views, 0.2).unwrap();
        run.footprint = MIP;
        let settings = run.settings();
        run.device.weigh(&mut run.model, &views, &settings).unwrap();
        run.device.reorder(&mut run.model, &CUBE).unwrap();
        [start, run.snapshot()]
    }
    for storage in [Storage::Full, Storage::Compact] {
        let [_, one] = with_one_gpu(storage, found);
        let [_, two] = with_gpus(storage, found);
        let rows = rows_of(&two.parameters, &one.parameters);
        let filters = rows.iter().map(|&row| one.filter_3d[row].to_bits());
        let of_two = two.filter_3d.iter().map(|value| value.to_bits());
        assert!(filters.eq(of_two), "the farthest is that of all");
        assert_close(&two.gradient_norm_sums, &one.gradient_norm_sums, &rows, (1, 1e-4));
    }
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn density_control_of_two_gpus_comes_to_the_numbers_of_one() {
    fn found<D: TrainDevice>(device: &mut D) -> Vec<(Candidates, Edited, usize)> {
        let mut run = TestRun::new(device);
        let mut found = Vec::new();
        let mut note = |run: &mut TestRun<'_, D>, (candidates, edited)| {
            found.push((candidates, edited, run.device.len(&run.model)));
        };
        run.step(&[0, 1]);
        let keep = Keep { opacity_min: 0.0, scale_max: None, unseen: true };
        let large = Grow::SplitRandom { shrink: 1.6, key: 5 };
        let all = ScoreRule::Gradient { min: 1e-9, small_max: 0.05 };
        let grown = run.densify(&all, Pick::Best(30), &EditRule::Grow { large, keep });
        note(&mut run, grown);
        run.step(&[2, 3]);
        let keep = Keep { opacity_min: 0.3, scale_max: None, unseen: true };
        let pruned = run.densify(&all, Pick::Best(0), &EditRule::Grow { large: Grow::Copy, keep });
        note(&mut run, pruned);
        let by_opacity = ScoreRule::Opacity { min: 0.35 };
        let born = Pick::WithReplacement { into: Into::NewRows(301), key: 10 };
        let copied = run.densify(&by_opacity, born, &EditRule::Share);
        note(&mut run, copied);
        let dead = Pick::WithReplacement { into: Into::Dead, key: 11 };
        let moved = run.densify(&by_opacity, dead, &EditRule::Share);
        note(&mut run, moved);
        run.step(&[1, 0]);
        assert!(run.snapshot().parameters.means.iter().all(|v| v.is_finite()));
        found
    }
    for storage in [Storage::Full, Storage::Compact] {
        let (one, two) = (with_one_gpu(storage, found), with_gpus(storage, found));
        assert_same_densify_steps(&one, &two);
    }
}

fn assert_same_densify_steps(
    one: &[(Candidates, Edited, usize)],
    two: &[(Candidates, Edited, usize)],
) {
    let [first, second, third, fourth] = two else { panic!("four rounds") };
    let (of_one, of_two) = (one[0].0.count(), first.0.count());
    assert!(of_one > 40, "more than are selected: {of_one}");
    assert!(of_one.abs_diff(of_two) <= 3, "candidates near the threshold: {of_one}, {of_two}");
    assert_eq!(
        first.1.copied + first.1.split,
        30,
        "as many new Gaussians as are wanted, and no more"
    );
    assert_eq!(first.2, ROWS + 30);
    // Which rows have grown differs a little, and with it what is pruned of them.
    assert!(one[1].1.removed.abs_diff(second.1.removed) < 60, "{one:?} {two:?}");
    assert_eq!((third.1.copied, third.2), (301, second.2 + 301));
    assert!(fourth.1.moved > 0 && fourth.2 == third.2, "{fourth:?}");
}

#[test]
#[ignore = "needs two CUDA devices and NCCL"]
fn rows_of_a_model_on_two_gpus_are_read_and_dealt_again() {
    let (before, after, sample) = with_gpus(Storage::Full, |device| {
        let mut run = TestRun::new(device);
        run.step(&[0, 1]);
        let mut before = run.snapshot();
        let mut again = run.device.load(&mut before).unwrap();
        let after = run.device.snapshot(&mut again).unwrap();
        let sample = run.device.sample(&mut again, &[ROWS - 1, 0, 17]).unwrap();
        (before, after, sample)
    });
    let rows = rows_of(&after.parameters, &before.parameters);
    for (place, &row) in rows.iter().enumerate() {
        let moments = |of: &Snapshot<Gaussians>, at: usize| {
            of.first_moments.sh_rest[at * 24..][..24].to_vec()
        };
        assert_eq!(moments(&after, place), moments(&before, row), "row {row}");
        let [sum, expected] = [after.gradient_norm_sums[place], before.gradient_norm_sums[row]];
        assert_eq!(sum.to_bits(), expected.to_bits());
    }
    assert_eq!(sample.means[3..6], after.parameters.means[..3]);
}

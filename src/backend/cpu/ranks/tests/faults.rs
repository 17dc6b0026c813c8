//! Broken photographs and rows, and ranks that have none.

use super::*;

#[test]
fn a_view_that_cannot_be_decoded_leaves_the_step_to_the_others() {
    let (losses, found) = with_ranks(3, Storage::Full, |lead| {
        let mut run = TestRun::new(lead);
        (run.step(&[0, BROKEN, 2]), run.snapshot())
    });
    let mut one = Cpu::<f32>::new();
    let mut one = TestRun::new(&mut one);
    assert_eq!((one.step(&[0, 2]), losses.len()), (losses, 2));
    assert!(one.snapshot() == found);
}

#[test]
fn a_row_that_is_not_finite_is_told_by_its_number_whoever_has_it() {
    for row in [0, 150, 399] {
        let message = with_failing_ranks(3, |lead| {
            let mut host = gaussians();
            host.log_scales[row * 3] = f32::NAN;
            TestRun::of(lead, &host).try_step(&[0]).unwrap_err().to_string()
        });
        assert!(message.contains(&format!("Gaussian {row}:")), "{message}");
    }
}

/// A model so small that one rank has all of it.
#[test]
fn ranks_without_rows_draw_and_are_given_some_when_rows_are_dealt_anew() {
    let run = |device: &mut RankedCpu| small(device);
    let mut one = Cpu::<f32>::new();
    assert!(small(&mut one) == with_ranks(3, Storage::Full, run));
}

fn small<D: TrainDevice<Target = Arc<Image>>>(device: &mut D) -> [Snapshot<Gaussians>; 2] {
    let mut run = TestRun::of(device, &Primitive::rows(&gaussians(), 0..20));
    run.statistics = Statistics::Both;
    run.step(&[0, 1, 2]);
    let optional = run.device.optional(&run.model);
    assert!(optional.absolute_norm_sums, "whoever has the rows");
    let before = run.snapshot();
    for key in 0..3 {
        let all = ScoreRule::Gradient { min: 0.0, small_max: 0.0 };
        let large = Grow::AddChild { shrink: 1.2, key };
        let keep = Keep { opacity_min: 0.0, scale_max: None, unseen: true };
        run.round(&all, Pick::Best(1000), &EditRule::Grow { large, keep });
    }
    run.device.reorder(&mut run.model, &CUBE).unwrap();
    run.step(&[3, 0, 2]);
    let after = run.snapshot();
    // What is dead goes; then there is nothing.
    let none = Keep { opacity_min: 2.0, scale_max: None, unseen: true };
    let edit = EditRule::Grow { large: Grow::Copy, keep: none };
    let by_gradient = ScoreRule::Gradient { min: f64::INFINITY, small_max: 0.0 };
    run.round(&by_gradient, Pick::Best(0), &edit);
    assert_eq!(run.device.len(&run.model), 0);
    run.step(&[1, 2, 3]);
    [before, after]
}

#[test]
fn a_rank_whose_scene_is_another_one_is_named_by_all() {
    let mut group = Exchange::threads(3).into_iter();
    let lead = group.next().unwrap();
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
        let line = RankLine::new(lead);
        let mut lead = Leader::new(CpuShard::new(Cpu::new(), line));
        let refused = Ranks::begin(&mut lead, "a = 1".to_owned(), 7).unwrap_err();
        assert_eq!(refused.to_string(), "rank 2: scene: has other points");
    });
}

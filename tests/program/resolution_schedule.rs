//! `--resolution-schedule`: views that are drawn smaller at first.

use std::fs;

use crate::common::program::{TestFolder, end, splat, text};
use rstest::rstest;
use serde_json::Value;

/// Views are quartered, then halved, then whole: of 100 iterations from the 11th and the 31st on, of 400 from
/// the 21st and the 91st.
const GROWING: [&str; 9] = [
    "--resolution-schedule=linear",
    "--densify-from-iter=10",
    "--densification-interval=10",
    "--densify-until-iter=200",
    "--densify-grad-threshold=0.00005",
    "--max-points=1500",
    "--seed=3",
    "--eval",
    "--save-iterations=-1",
];

const ITERATIONS: u32 = 400;

fn events(place: &TestFolder, model: &str, name: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let records = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    records.filter(|record| record["event"] == name).collect()
}

/// The iterations after which views have another size, and what divides it.
fn sizes(place: &TestFolder, model: &str) -> Vec<(u64, u64)> {
    let number = |event: &Value, key: &str| event[key].as_u64().unwrap();
    let events = events(place, model, "view_size");
    events.iter().map(|event| (number(event, "iteration"), number(event, "divisor"))).collect()
}

#[test]
fn views_grow_and_are_evaluated_at_full_size() {
    let place = TestFolder::with_scene();
    let flags = [&GROWING[..], &["--test-iterations", "5", "30", "400", "--progress=plain"]];
    let ended = place.trained(ITERATIONS, &flags.concat());
    for line in [
        "[ITER 0] Training views are drawn at 1/4 of their size",
        "[ITER 20] Training views are drawn at 1/2 of their size",
        "[ITER 90] Training views are drawn at full size",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    assert_eq!(sizes(&place, "model"), [(0, 4), (20, 2), (90, 1)]);
    // There are rounds among views of every size.
    assert!(!events(&place, "model", "densified").is_empty());
    let psnr = |model| -> Vec<f64> {
        let mut evaluated = events(&place, model, "evaluated");
        evaluated.retain(|event| event["split"] == "test");
        evaluated.iter().map(|event| event["mean"]["psnr"].as_f64().unwrap()).collect()
    };
    let evaluated = psnr("model");
    assert_eq!(evaluated.len(), 3);
    assert!(evaluated.is_sorted(), "{evaluated:?}");
    // As well as a run whose views are always whole, or nearly so.
    place.trained_into("whole", ITERATIONS, &[&GROWING[1..], &["--test-iterations=400"]].concat());
    assert!(sizes(&place, "whole").is_empty());
    let whole = psnr("whole");
    assert!(evaluated[2] > whole[0] - 1.0, "{evaluated:?} instead of {whole:?}");
    // What is drawn later is of full size, too.
    end(splat().args(["render", "--device=cpu", "--skip-train", "-m", text(&place.model())]))
        .done();
    let picture = fs::read(place.model().join("test/ours_400/renders/00000.png")).unwrap();
    let side = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| picture[at + i]));
    assert_eq!([side(16), side(20)], [48, 36]);
}

#[rstest]
#[case::at_a_quarter(5, &[(5, 4), (10, 2), (30, 1)])]
#[case::where_it_changes(10, &[(10, 2), (30, 1)])]
#[case::at_a_half(15, &[(15, 2), (30, 1)])]
#[case::when_views_are_whole(31, &[])]
fn a_run_that_stopped_goes_on_at_the_size_that_it_had(
    #[case] iteration: u32,
    #[case] expected: &[(u64, u64)],
) {
    let place = TestFolder::with_scene();
    let at = format!("--checkpoint-iterations={iteration}");
    place.trained_into("unbroken", 100, &[&GROWING[..8], &[&at]].concat());
    let checkpoint = place.checkpoint_of("unbroken", iteration);
    end(place.train().args(["--start-checkpoint", text(&checkpoint)])).done();
    assert_eq!(sizes(&place, "model"), expected);
    let ply = |model| fs::read(place.ply_of(model, 100)).unwrap();
    assert!(ply("unbroken") == ply("model"));
}

#[rstest]
#[case::exposures(&["--exposure"])]
#[case::bilateral_grids(&["--bilateral-grid"])]
#[case::batches(&["--batch-views=4"])]
#[case::filters(&["--antialiasing", "--filter-3d"])]
#[case::gof(&["--strategy=gof"])]
#[case::budget(&["--strategy=budget"])]
#[case::mcmc(&["--strategy=mcmc"])]
#[case::smaller_photographs(&["-r=2"])]
#[case::a_coarse_stage(&["--regularize=density", "--sugar-iterations=8"])]
fn it_goes_with_other_options(#[case] flags: &[&str]) {
    let place = TestFolder::with_scene();
    place.trained(100, &[&GROWING[..], flags].concat());
    let found = sizes(&place, "model");
    // Of 24 x 18 px nothing smaller than a half is drawn, but what is asked for is told.
    assert_eq!(found.first(), Some(&(0, 4)));
    // In batches, after the one in which that iteration lies.
    let (whole_after, divisor) = found[found.len() - 1];
    assert!((30..=32).contains(&whole_after) && divisor == 1, "{found:?}");
    let steps = events(&place, "model", "step");
    assert!(steps.iter().all(|step| step["total"].as_f64().is_some_and(f64::is_finite)));
}

#[test]
fn a_plan_has_the_smaller_views_and_the_same_peak() {
    let place = TestFolder::with_scene();
    let plan = |flags: &[&str]| -> Value {
        let mut plan = splat();
        plan.args(["plan", "--json", "--gaussians=100000", "-s"]).arg(place.scene()).args(flags);
        serde_json::from_str(&end(&mut plan).done().stdout).unwrap()
    };
    let [plain, growing] = [&[][..], &["--resolution-schedule=linear"]].map(plan);
    let stage = |report: &Value| {
        let stages = report["stages"].as_array().unwrap();
        stages.iter().find(|stage| stage["name"] == "smaller views").cloned()
    };
    assert!(stage(&plain).is_none());
    assert!(stage(&growing).unwrap().to_string().contains("smaller photograph"));
    assert_eq!(plain["peak"], growing["peak"]);
}

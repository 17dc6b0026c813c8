//! `--target-gaussians`: a run that is pruned to a number of Gaussians when density control has ended.

use std::fs;

use crate::common::program::{TestFolder, end, splat, text};
use rstest::rstest;
use serde_json::Value;

/// Density control from 40 to 130 of a run of 160, which is pruned to 120 then.
const PRUNED: [&str; 9] = [
    "--densify-from-iter=30",
    "--densify-until-iter=130",
    "--densification-interval=20",
    "--densify-grad-threshold=0.0005",
    "--position-lr-max-steps=160",
    "--sh-degree-interval=50",
    "--target-gaussians=120",
    "--save-iterations=-1",
    "--test-iterations=-1",
];

/// The events of one kind of a run.
fn events(place: &TestFolder, model: &str, kind: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

fn summary(place: &TestFolder, model: &str) -> Value {
    serde_json::from_slice(&fs::read(place.path(model).join("summary.json")).unwrap()).unwrap()
}

fn gaussians(place: &TestFolder, model: &str, iteration: u32) -> usize {
    splat::export::read_ply(&place.ply_of(model, iteration)).unwrap().len()
}

#[rstest]
#[case::adc(&["--strategy=adc", "--eval"], "test")]
#[case::gof(&["--strategy=gof"], "eval_train")]
#[case::mcmc(&["--strategy=mcmc", "--max-points=300", "--batch-views=4"], "eval_train")]
#[case::filters(&["--antialiasing", "--filter-3d", "--optimize-memory"], "eval_train")]
fn a_run_is_pruned_once_and_stays_so(#[case] flags: &[&str], #[case] split: &str) {
    let place = TestFolder::with_scene();
    let ended =
        place.trained(160, &[&PRUNED[..], flags, &["--checkpoint-iterations=132"]].concat());
    let pruned = events(&place, "model", "pruned_to_target");
    let [event] = &pruned[..] else { panic!("{pruned:#?}") };
    let steps = events(&place, "model", "step");
    let before =
        steps.iter().rfind(|step| step["iteration"].as_u64() <= event["iteration"].as_u64());
    let before = before.and_then(|step| step["gaussians"].as_u64());
    let number = |key: &str| event[key].as_u64().unwrap();
    assert_eq!((number("target"), number("gaussians")), (120, 120));
    assert_eq!(Some(number("pruned") + 120), before);
    // The step of four views ends at 132.
    assert_eq!(number("iteration"), if flags.contains(&"--batch-views=4") { 132 } else { 130 });
    let psnr = |key: &str| event["psnr"][key].as_f64().unwrap();
    assert!(psnr("after") > 5.0 && psnr("after") < psnr("before") + 1.0, "{event}");
    assert_eq!(event["psnr"]["split"], split);
    let line = format!(
        "] Pruned {} Gaussians, 120 left; {split} PSNR {:.3} before, {:.3} after",
        number("pruned"),
        psnr("before"),
        psnr("after")
    );
    ended.says(&[&line]);
    assert_eq!(gaussians(&place, "model", 160), 120);
    let summary = summary(&place, "model");
    assert_eq!(summary["target"]["psnr"], event["psnr"]);
    assert_eq!(
        (&summary["target"]["pruned"], &summary["gaussians"]),
        (&event["pruned"], &120.into())
    );
}

#[rstest]
#[case::before(120)]
#[case::at(130)]
#[case::after(140)]
fn a_pruned_run_that_is_resumed_ends_in_the_same_bytes(#[case] iteration: u32) {
    let place = TestFolder::with_scene();
    for strategy in ["adc", "mcmc"] {
        let (strategy, stop) =
            (format!("--strategy={strategy}"), format!("--checkpoint-iterations={iteration}"));
        let flags = [&PRUNED[..], &[&strategy, &stop, "--max-points=300"]].concat();
        place.trained_into("unbroken", 160, &flags);
        let unbroken = fs::read(place.ply_of("unbroken", 160)).unwrap();
        let name = format!("unbroken/checkpoints/chkpnt_{iteration}.safetensors");
        end(place.train_into("resumed").args(["--start-checkpoint", text(&place.path(&name))]))
            .done();
        assert!(fs::read(place.ply_of("resumed", 160)).unwrap() == unbroken, "{strategy}");
        let pruned = events(&place, "resumed", "pruned_to_target").len();
        assert_eq!(pruned, usize::from(iteration <= 130));
        // In the folder itself the summary keeps what was done before.
        let before = summary(&place, "unbroken")["target"].clone();
        let longer = ["--resume", "--iterations=162"];
        end(place.train_into("unbroken").args(longer)).done();
        assert_eq!(summary(&place, "unbroken")["target"], before);
        for model in ["unbroken", "resumed"] {
            fs::remove_dir_all(place.path(model)).unwrap();
        }
    }
}

#[rstest]
#[case::of_the_run(&[], "--iterations=17")]
#[case::before_the_coarse_stage(
    &["--regularize=density", "--sugar-iterations=4"],
    "--sugar-iterations=6",
)]
fn a_prune_that_falls_into_the_last_step_comes_after_it(
    #[case] flags: &[&str],
    #[case] longer: &str,
) {
    let place = TestFolder::with_scene();
    let prune = ["--batch-views=4", "--densify-until-iter=13", "--target-gaussians=120"];
    let flags = [&prune, flags, &["--checkpoint-iterations=14"]].concat();
    place.trained(14, &flags).says(&["[ITER 14] Pruned", "120 left"]);
    let pruned = events(&place, "model", "pruned_to_target");
    let [event] = &pruned[..] else { panic!("{pruned:#?}") };
    assert_eq!((&event["iteration"], &event["gaussians"]), (&14.into(), &120.into()));
    assert_eq!(gaussians(&place, "model", 14), 120);
    let before = summary(&place, "model");
    assert!(before["gaussians"].as_u64().unwrap() <= 120);
    // Nothing is left to prune after the checkpoint.
    end(place.train().args(["--resume", longer])).done();
    assert_eq!(summary(&place, "model")["target"], before["target"]);
}

#[test]
fn a_resumed_step_across_the_end_of_density_control_is_still_pruned() {
    let place = TestFolder::with_scene();
    let flags = ["--batch-views=4", "--densify-until-iter=13", "--checkpoint-iterations=16"];
    place.trained(16, &flags);
    let resumed = ["--resume", "--iterations=24", "--target-gaussians=120"];
    let resumed = end(place.train().args(resumed)).done().says(&["[ITER 16] Pruned", "120 left"]);
    assert!(!resumed.stderr.contains("Gaussians stay"), "{resumed:#?}");
}

#[test]
fn the_fewer_stay_the_more_it_costs() {
    let place = TestFolder::with_scene();
    let psnr = |target: &str| {
        place.trained_into(target, 160, &[&PRUNED[..], &["--target-gaussians", target]].concat());
        let event = events(&place, target, "pruned_to_target").remove(0);
        ["before", "after"].map(|key| event["psnr"][key].as_f64().unwrap())
    };
    // Half of the Gaussians go, and then most of them.
    let [before, after] = psnr("2000");
    let [same, fewer] = psnr("20");
    assert!(same == before && fewer < after, "{before} {after}, {same} {fewer}");
    assert!(before - after < 0.5, "{before} {after}");
}

#[test]
fn a_target_above_the_number_of_gaussians_changes_nothing() {
    let place = TestFolder::with_scene();
    let plain = [&PRUNED[..6], &PRUNED[7..]].concat();
    place.trained_into("plain", 160, &plain);
    let many = [&plain[..], &["--target-gaussians=100000"]].concat();
    place.trained(160, &many).says(&["Nothing to prune", "--target-gaussians 100000"]);
    let event = events(&place, "model", "pruned_to_target").remove(0);
    assert_eq!((&event["pruned"], event.get("psnr")), (&0.into(), None));
    assert_eq!(summary(&place, "model")["target"], {
        let mut event = event.clone();
        event.as_object_mut().unwrap().retain(|key, _| key != "event" && key != "time");
        event
    });
    let ply = |model: &str| fs::read(place.ply_of(model, 160)).unwrap();
    assert!(ply("plain") == ply("model"));
}

#[test]
fn a_target_that_cannot_be_met_is_refused_or_said() {
    let place = TestFolder::with_scene();
    let train = |flags: &[&str]| end(place.train().args(["--iterations=40"]).args(flags));
    train(&["--target-gaussians", "0"]).refused(2, &["--target-gaussians", "0", "1 to"]);
    train(&["--preset=reference", "--target-gaussians=9"]).refused(
        2,
        &["--densify-until-iter", "15000", "--target-gaussians", "less than --iterations"],
    );
    train(&["--max-gaussian=9"]).refused(2, &["--max-gaussians"]);
    train(&["--preset=reference", "--max-gaussians=250"]).done();
    // Density control ended before: the run continues from a later checkpoint.
    let late = ["--resume", "--iterations=50", "--densify-until-iter=30", "--target-gaussians=9"];
    end(place.train().args(late)).done().says(&[
        "warning",
        "has no effect on the 200 Gaussians",
        "iteration 30",
    ]);
}

#[test]
fn the_plan_shows_the_prune_and_what_is_left_for_the_coarse_stage() {
    let place = TestFolder::with_scene();
    let plan = |flags: &[&str]| {
        let ended = end(splat()
            .args(["plan", "-s", text(&place.scene()), "--gaussians=2000000", "--json"])
            .args(["--regularize=sdf"])
            .args(flags))
        .done();
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let stages = report["stages"].as_array().unwrap().clone();
        move |name: &str| {
            let stage = stages.iter().find(|stage| stage["name"] == name)?;
            stage["total"].as_u64()
        }
    };
    let (plain, pruned) = (plan(&[]), plan(&["--target-gaussians=500000"]));
    assert_eq!(plain("prune to target"), None);
    assert!(pruned("prune to target").unwrap() > pruned("start").unwrap());
    assert!(pruned("coarse training").unwrap() < plain("coarse training").unwrap() * 3 / 4);
    assert_eq!(pruned("iteration"), plain("iteration"));
    assert_eq!(plan(&["--target-gaussians=2000000"])("prune to target"), None);
}

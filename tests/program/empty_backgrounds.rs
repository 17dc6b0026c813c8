//! SuGaR's coarse stage where nothing is seen around an object: depth-normal consistency must not draw there.

use std::fs;
use std::path::PathBuf;

use crate::common::program::{TestFolder, end, splat};
use rstest::rstest;
use serde_json::Value;

/// Iterations of the photometric stage.
const START: u32 = 300;

/// A coarse stage with the term so heavy that it shows soon what it does in thousands of iterations.
struct Stage {
    iterations: u32,
    weight: &'static str,
    /// The views that are measured.
    split: &'static str,
}

/// Writes solids before a black background, with masks or without.
fn write_scene(place: &TestFolder, is_masked: bool) -> PathBuf {
    let scene = place.path("solids");
    let mut command = splat();
    command.args(["synth", "--scene=dtu", "--views=12", "--width=48", "--height=36"]);
    end(command.args(["--points=400", "--truth-cells=48", "-o"]).arg(&scene)).done();
    if !is_masked {
        fs::remove_dir_all(scene.join("masks")).unwrap();
    }
    scene
}

/// The mean PSNR of a split's views after the last iteration.
fn psnr(place: &TestFolder, model: &str, split: &str) -> f64 {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut of_split =
        events.filter(|event| event["event"] == "evaluated" && event["split"] == split);
    of_split.next_back().unwrap()["mean"]["psnr"].as_f64().unwrap()
}

#[rstest]
// What covers the object is seen from other sides.
#[case::black(false, Stage { iterations: 1200, weight: "0.5", split: "test" })]
// Pixels around the object do not count, so that what is drawn there soon grows over it.
#[case::masked(true, Stage { iterations: 300, weight: "0.3", split: "eval_train" })]
fn empty_backgrounds_stay_empty(#[case] is_masked: bool, #[case] stage: Stage) {
    let place = TestFolder::empty();
    let scene = write_scene(&place, is_masked);
    let train = |model: &str, flags: &[&str]| {
        let mut command = splat();
        command.args(["train", "--device=cpu", "--eval", "-s"]).arg(&scene);
        command.arg("-m").arg(place.path(model)).args(flags);
        end(&mut command).done();
    };
    let length = format!("--iterations={START}");
    train("photometric", &["--preset=reference", &length, "--test-iterations=-1"]);
    let photometric = place.path("photometric").display().to_string();
    let coarse = |model: &str, weight: &str, flags: &[&str]| {
        let kind = ["--regularize=dn-consistency", "-c", &photometric, "--dn-factor", weight];
        let last = (START + stage.iterations).to_string();
        let iterations = format!("--sugar-iterations={}", stage.iterations);
        let few = ["--n-samples-for-sdf=1000", "--regularity-knn=8", &iterations];
        train(model, &[&kind[..], &few, &["--test-iterations", &last], flags].concat());
        psnr(&place, model, stage.split)
    };
    let without = coarse("without", "0", &[]);
    let with = coarse("with", stage.weight, &[]);
    let of_all = coarse("of_all", stage.weight, &["--dn-by-opacity=false"]);
    let found = format!("{without} dB without the term, {with} with it, {of_all} of all pixels");
    assert!(without - of_all > 2.9, "{found}");
    assert!(without - with < 0.5, "{found}");
}

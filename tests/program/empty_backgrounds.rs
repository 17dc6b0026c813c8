//! SuGaR's coarse stage where nothing is seen around an object: depth-normal consistency must not draw there.

use std::fs;
use std::path::PathBuf;

use crate::common::program::{TestFolder, end, splat};
use rstest::rstest;
use serde_json::Value;

/// Iterations of the photometric stage, and of the coarse one.
const START: u32 = 300;
const COARSE: u32 = 300;

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

/// The mean PSNR of the training views after the last iteration.
fn psnr(place: &TestFolder, model: &str, last: u32) -> f64 {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut means = events.filter(|event| {
        event["event"] == "evaluated"
            && event["iteration"] == last
            && event["split"] == "eval_train"
    });
    means.next().unwrap()["mean"]["psnr"].as_f64().unwrap()
}

#[rstest]
#[case::black(false)]
#[case::masked(true)]
fn empty_backgrounds_stay_empty(#[case] is_masked: bool) {
    let place = TestFolder::empty();
    let scene = write_scene(&place, is_masked);
    let train = |model: &str, flags: &[&str]| {
        let mut command = splat();
        command.args(["train", "--device=cpu", "--eval", "-s"]).arg(&scene);
        command.arg("-m").arg(place.path(model)).args(flags);
        end(&mut command).done();
    };
    train("photometric", &["--iterations=300", "--test-iterations=-1"]);
    let photometric = place.path("photometric").display().to_string();
    let coarse = |model: &str, flags: &[&str]| {
        let stage =
            ["--regularize=dn-consistency", "--sugar-iterations=300", "--test-iterations=600"];
        let few = ["--n-samples-for-sdf=1000", "--regularity-knn=8", "-c", &photometric];
        train(model, &[&stage[..], &few, flags].concat());
        psnr(&place, model, START + COARSE)
    };
    let without = coarse("without", &["--dn-factor=0"]);
    // So heavy that 300 iterations show what thousands do.
    let with = coarse("with", &["--dn-factor=2"]);
    let of_all = coarse("of_all", &["--dn-factor=2", "--dn-by-opacity=false"]);
    let found = format!("{without} dB without the term, {with} with it, {of_all} of all pixels");
    assert!(without - of_all > 3.0, "{found}");
    assert!(without - with < 0.5, "{found}");
}

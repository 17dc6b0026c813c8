//! `--multi-view`: views are compared with those beside them.

use std::fs;
use std::sync::LazyLock;

use crate::common::program::{Ended, SIZE, TestFolder, end, splat, text};
use crate::common::synthetic::write_synthetic;
use crate::fixtures::fixture_of;
use serde_json::Value;
use splat::synth::SynthOptions;

/// The iterations of the photometric stage, and of both.
const START: u32 = 60;
const LAST: u32 = START + 60;

/// A stage whose surface terms come after 16 iterations and are told of after the hundredth of all.
const STAGE: [&str; 6] = [
    "--sugar-iterations=60",
    "--n-samples-for-sdf=200",
    "--regularity-knn=8",
    "--test-iterations=-1",
    "--regularize=median-normal",
    "--init-opacity=0.6",
];

/// Photographs from 25 degrees aside, of which each has others beside it.
fn write_scene(place: &TestFolder) {
    let [width, height] = [SIZE.0, SIZE.1];
    let options = SynthOptions { views: 20, width, height, points: 400, ..SynthOptions::default() };
    write_synthetic(&place.scene(), &options);
}

fn trained(place: &TestFolder, model: &str, flags: &[&str]) -> Ended {
    place.trained_into(model, START, &[&STAGE[..], flags].concat())
}

/// A run with the comparison and a checkpoint in the middle of it, in `unbroken`.
static UNBROKEN: LazyLock<TestFolder> = LazyLock::new(|| {
    fixture_of("multi_view", write_scene, |place| {
        trained(place, "unbroken", &["--multi-view", "--checkpoint-iterations=95"]);
    })
});

fn surface_reports(place: &TestFolder, model: &str) -> Vec<Value> {
    let log = fs::read_to_string(place.path(model).join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == "surface").collect()
}

fn ply(place: &TestFolder, model: &str) -> Vec<u8> {
    fs::read(place.ply_of(model, LAST)).unwrap()
}

#[test]
fn views_are_compared_with_others_and_the_log_says_how_they_agree() {
    let reports = surface_reports(&UNBROKEN, "unbroken");
    assert_eq!(reports.len(), 1, "{reports:?}");
    let value = reports[0]["multi_view"].as_f64().unwrap();
    // At most 0.9 in each pixel.
    assert!(value > 0.0 && value < 0.9, "{}", reports[0]);
    let place = TestFolder::beside(&UNBROKEN);
    let run = trained(&place, "without", &[]);
    assert!(!run.stderr.contains("--multi-view"), "{run:#?}");
    assert!(surface_reports(&place, "without")[0]["multi_view"].is_null());
    assert!(ply(&UNBROKEN, "unbroken") != ply(&place, "without"), "it changes nothing");
    trained(&place, "weightless", &["--multi-view", "--multi-view-factor=0"]);
    assert!(ply(&place, "weightless") == ply(&place, "without"));
}

#[test]
fn a_resumed_run_compares_what_the_unbroken_one_does() {
    let place = TestFolder::beside(&UNBROKEN);
    let checkpoint = UNBROKEN.checkpoint_of("unbroken", 95);
    end(place.train().args(["--start-checkpoint", text(&checkpoint)])).done();
    assert!(ply(&UNBROKEN, "unbroken") == ply(&place, "model"));
}

#[test]
fn a_run_without_views_side_by_side_says_so_and_trains_on() {
    // Eight photographs from 60 degrees aside.
    let place = TestFolder::with_scene();
    trained(&place, "model", &["--multi-view"])
        .says(&["--multi-view compares nothing", "30 degrees"]);
    assert!(surface_reports(&place, "model")[0]["multi_view"].is_null());
}

#[test]
fn views_are_compared_with_median_normals_alone() {
    let place = TestFolder::with_scene();
    for kind in [&[][..], &["--regularize=density"], &["--regularize=dn-consistency"]] {
        end(place.train().arg("--multi-view").args(kind))
            .refused(2, &["--multi-view", "--regularize median-normal"]);
    }
    assert!(!place.model().exists());
    let idle = ["--iterations=1", "--multi-view-factor=0.3"];
    end(place.train().args(idle))
        .done()
        .says(&["--multi-view-factor has no effect", "--multi-view"]);
}

#[test]
fn a_measurement_of_speed_compares_views_too() {
    let mut command = splat();
    command.args(["bench", "--device=cpu", "--iterations=2", "--warm-up=1", "-m"]);
    command.arg(UNBROKEN.path("unbroken")).args(["--regularize=median-normal", "--multi-view"]);
    let ended = end(command.args(["--n-samples-for-sdf=200", "--regularity-knn=8"])).done();
    assert!(ended.stdout.contains("each view compared with another"), "{}", ended.stdout);
}

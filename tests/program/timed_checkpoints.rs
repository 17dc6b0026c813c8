//! Checkpoints by time: they change nothing in a run, and the newest stay.

use std::fs;
use std::path::PathBuf;

use crate::common::program::{TestFolder, assert_no_litter, end, text};
use splat::train::checkpoint::{is_timed, list};

/// Density control with random backgrounds.
const EVENTFUL: [&str; 9] = [
    "--densify-from-iter=40",
    "--densification-interval=30",
    "--densify-grad-threshold=0.00005",
    "--max-points=900",
    "--random-background",
    "--seed=3",
    "--save-iterations=-1",
    "--test-iterations=-1",
    "--eval",
];

/// So little time that every iteration is due.
const ALWAYS: &str = "--checkpoint-minutes=0.0000001";

fn ply(place: &TestFolder, model: &str, iteration: u32) -> Vec<u8> {
    fs::read(place.ply_of(model, iteration)).unwrap()
}

/// The checkpoints of a model folder, newest first.
fn names(place: &TestFolder, model: &str) -> Vec<String> {
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    list(&place.path(model)).iter().map(name).collect()
}

#[test]
fn they_change_no_result_and_a_run_resumes_from_each() {
    let place = TestFolder::with_scene();
    let without = [&EVENTFUL[..], &["--checkpoint-minutes=0"]].concat();
    place.trained_into("without", 150, &without);
    assert_eq!(names(&place, "without"), ["chkpnt_150"]);
    let timed = [ALWAYS, "--keep-checkpoints=4", "--checkpoint-iterations=31"];
    place.trained_into("timed", 150, &[&EVENTFUL[..], &timed].concat());
    let expected = ["chkpnt_150", "chkpnt_149", "chkpnt_148", "chkpnt_147", "chkpnt_31"];
    assert_eq!(names(&place, "timed"), expected);
    let paths = list(&place.path("timed"));
    let by_time: Vec<bool> = paths.iter().map(|path| is_timed(path)).collect();
    assert_eq!(by_time, [false, true, true, true, false]);
    assert!(ply(&place, "without", 150) == ply(&place, "timed", 150));

    // Of those at a round of density control and between two.
    let keep = ["--keep-checkpoints=100", "--iterations=125"];
    end(place.train_into("kept").args(EVENTFUL).args([ALWAYS]).args(keep)).done();
    for from in [60, 75, 101] {
        let start = place.checkpoint_of("kept", from);
        assert!(is_timed(&start), "{}", start.display());
        let on = ["--start-checkpoint", text(&start), "--iterations=150", "--checkpoint-minutes=0"];
        end(place.train_into("resumed").args(on)).done();
        assert!(ply(&place, "without", 150) == ply(&place, "resumed", 150), "from {from}");
    }
}

#[test]
fn a_resumed_run_removes_those_of_the_run_before() {
    let place = TestFolder::with_scene();
    // At the end, one by time is kept besides the last.
    place.trained(10, &[ALWAYS]);
    assert_eq!(names(&place, "model"), ["chkpnt_10", "chkpnt_9"]);
    end(place.train().args(["--resume", "--iterations=20"])).done();
    assert_eq!(names(&place, "model"), ["chkpnt_20", "chkpnt_19", "chkpnt_10"]);
    assert_no_litter(&place.model());
}

#[test]
fn five_minutes_have_not_passed_at_the_end_of_a_short_run() {
    let place = TestFolder::with_scene();
    place.trained(20, &[]);
    assert_eq!(names(&place, "model"), ["chkpnt_20"]);
    let config = fs::read_to_string(place.model().join("config.toml")).unwrap();
    let expected =
        ["checkpoint_minutes = 5.0", "keep_checkpoints = 2", "checkpoint_reserve = true"];
    for option in expected {
        assert!(config.contains(option), "{option}: {config}");
    }
    for (flag, problem) in [
        ("--checkpoint-minutes=-1", "0 and more"),
        ("--checkpoint-minutes=inf", "a finite number"),
        ("--keep-checkpoints=0", "1 and more"),
    ] {
        end(place.train().arg(flag)).refused(2, &[flag.split('=').next().unwrap(), problem]);
    }
}

#[test]
fn neighbours_of_the_coarse_stage_are_not_searched_anew_for_them() {
    let place = TestFolder::with_scene();
    let stage = [
        "--regularize=dn-consistency",
        "--sugar-iterations=60",
        "--n-samples-for-sdf=300",
        "--regularity-knn=8",
        "--test-iterations=-1",
    ];
    place.trained_into("without", 40, &[&stage[..], &["--checkpoint-minutes=0"]].concat());
    let timed = [ALWAYS, "--keep-checkpoints=100"];
    place.trained_into("timed", 40, &[&stage[..], &timed].concat());
    assert!(ply(&place, "without", 100) == ply(&place, "timed", 100));
    // The prune comes after 16 iterations of the stage; from then on the neighbours stay.
    let names = names(&place, "timed");
    assert_eq!(names[..2], ["chkpnt_100", "chkpnt_56"]);
    let start = place.checkpoint_of("timed", 56);
    let on = ["--start-checkpoint", text(&start), "--checkpoint-minutes=0"];
    end(place.train_into("resumed").args(on)).done();
    assert!(ply(&place, "without", 100) == ply(&place, "resumed", 100));
}

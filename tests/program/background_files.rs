//! Files that threads write while a run trains on: when they come, what is in them, and what a kill leaves.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::common::background::training;
use crate::common::program::{Ended, TestFolder, assert_no_litter, end};
use splat::synth::{SynthOptions, write_scene};

/// A scene whose model takes a disk longer than an iteration takes: 17 MB as a PLY, 50 as a checkpoint. It
/// is read in two chunks.
fn place_with_many_points() -> TestFolder {
    let place = TestFolder::empty();
    let options =
        SynthOptions { views: 6, width: 48, height: 36, points: 70_000, ..SynthOptions::default() };
    write_scene(&place.scene(), &options).unwrap();
    place
}

/// Files after some iterations; both after the one before that of which the log has a line.
const FLAGS: [&str; 14] = [
    "--eval",
    "--test-iterations=-1",
    "--densify-until-iter=0",
    "--checkpoint-iterations",
    "2",
    "4",
    "9",
    "--save-iterations",
    "3",
    "7",
    "9",
    "--seed=3",
    "--checkpoint-minutes=0",
    "--iterations=12",
];
const CHECKPOINTS: [u64; 3] = [2, 4, 9];
const PLYS: [u32; 4] = [3, 7, 9, 12];

/// The lines of `run.jsonl`.
fn events(model: &Path) -> Vec<Value> {
    let log = fs::read_to_string(model.join("run.jsonl")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Whether this is the beginning or the end of writing a file of an iteration.
fn is(event: &Value, name: &str, what: &str, iteration: u64) -> bool {
    event["event"] == name && event["what"] == what && event["iteration"] == iteration
}

/// What happened from the beginning to the end of writing a file.
fn during<'a>(events: &'a [Value], what: &str, iteration: u64) -> &'a [Value] {
    let at = |name| events.iter().position(|it| is(it, name, what, iteration)).unwrap();
    let (begin, end) = (at("saving"), at("saved"));
    assert!(begin < end, "{what} of {iteration}: {begin}, {end}");
    &events[begin + 1..end]
}

/// What a checkpoint holds of the model: all but the header, where the options stand.
fn tensors(path: &Path) -> Vec<u8> {
    let file = fs::read(path).unwrap();
    let header = u64::from_le_bytes(file[..8].try_into().unwrap());
    file[8 + usize::try_from(header).unwrap()..].to_vec()
}

/// The least limit of the host's memory that the error about one that is too low proposes.
fn least_limit(place: &TestFolder) -> String {
    let Ended { stderr, .. } =
        end(place.train().args(FLAGS).arg("--host-limit=1MiB")).refused(4, &["Give "]);
    let (_, rest) = stderr.split_once("Give ").unwrap();
    rest.split_whitespace().next().unwrap().trim_end_matches(['.', ',']).to_owned()
}

#[test]
fn training_continues_while_files_are_written_and_they_hold_the_same() {
    let place = place_with_many_points();
    end(place.train().args(FLAGS)).done();
    assert_no_litter(&place.model());
    let log = events(&place.model());
    // The next iteration was done before the file was there.
    for what in ["checkpoint", "point_cloud"] {
        let is_step = |event: &Value| event["event"] == "step" && event["iteration"] == 10;
        assert!(during(&log, what, 9).iter().any(is_step), "training waited for the {what}");
    }
    // One file of a kind at a time: what a kind begins, it ends first.
    for what in ["checkpoint", "point_cloud"] {
        let names: Vec<&str> = log
            .iter()
            .filter(|event| event["what"] == what)
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert!(names.chunks(2).all(|pair| pair == ["saving", "saved"]), "{what}: {names:?}");
    }

    // Where memory is short nothing is copied, and training waits.
    let limit = format!("--host-limit={}", least_limit(&place));
    end(place.train_into("limited").args(FLAGS).arg(limit)).done();
    let limited = events(&place.path("limited"));
    for iteration in CHECKPOINTS {
        assert!(during(&limited, "checkpoint", iteration).is_empty(), "{iteration}");
    }
    for iteration in PLYS {
        let [a, b] = ["model", "limited"].map(|model| place.ply_of(model, iteration));
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "PLY of {iteration}");
    }
    for iteration in [2, 4, 9, 12] {
        let [a, b] = ["model", "limited"].map(|model| place.checkpoint_of(model, iteration));
        assert!(tensors(&a) == tensors(&b), "checkpoint of {iteration}");
    }

    let finished = log.last().unwrap();
    let seconds = |name: &str| finished[&format!("{name}_seconds")].as_f64().unwrap();
    let parts = ["training", "start", "evaluation", "saving", "waiting"].map(seconds);
    assert!(parts.iter().all(|&part| part >= 0.0) && parts[0] > 0.0, "{parts:?}");
    assert!(parts.iter().sum::<f64>() <= seconds("wall"), "{parts:?}");
}

#[test]
fn a_run_killed_while_a_checkpoint_is_written_ends_in_the_same_bytes() {
    let place = place_with_many_points();
    end(place.train_into("unbroken").args(FLAGS)).done();
    let whole = tensors(&place.checkpoint_of("unbroken", 4));
    let log = place.model().join("run.jsonl");
    for patience in [0, 30] {
        fs::remove_dir_all(place.model()).ok();
        let mut child = training(&place, &FLAGS).spawn().unwrap();
        // A line may be half written.
        let begun = || {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let events = log.lines().filter_map(|line| serde_json::from_str(line).ok());
            events.into_iter().any(|event| is(&event, "saving", "checkpoint", 4))
        };
        while !begun() {
            assert!(child.try_wait().unwrap().is_none(), "the run ended before it was killed");
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(patience));
        child.kill().unwrap();
        child.wait().unwrap();
        // It is there whole, or not at all.
        let checkpoint = place.checkpoint(4);
        assert!(!checkpoint.exists() || tensors(&checkpoint) == whole);
        end(place.train().arg("--resume").args(FLAGS)).done();
        assert_no_litter(&place.model());
        // Those of before the checkpoint, too.
        for iteration in PLYS {
            let [a, b] = ["model", "unbroken"].map(|model| place.ply_of(model, iteration));
            assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "PLY of {iteration}");
        }
        assert!(tensors(&place.checkpoint(12)) == tensors(&place.checkpoint_of("unbroken", 12)));
    }
}

#[test]
fn a_disk_that_fills_up_under_a_checkpoint_ends_the_run() {
    let place = place_with_many_points();
    // The PLY of an iteration fits, and no checkpoint does.
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 40000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_splat")]);
    command.args(["train", "--device=cpu", "-s"]).arg(place.scene());
    command.arg("-m").arg(place.model());
    command.args(["--iterations=100000", "--save-iterations=1", "--checkpoint-iterations=2"]);
    let ended = Ended::from(command.output().unwrap());
    ended.refused(1, &["chkpnt_2.safetensors: cannot be written", "no room for a checkpoint"]);
    assert!(place.ply(1).exists() && !place.checkpoint(2).exists());
    assert_no_litter(&place.model());
}

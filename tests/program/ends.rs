//! Ends of a run before its last iteration: `--time-budget`, passes over the views, `--until-psnr`.

use std::fs;
use std::path::PathBuf;

use rstest::rstest;
use splat::train::checkpoint::{StoredCheckpoint, is_timed, list};

use crate::common::program::{TestFolder, Text as _, assert_no_litter, end, text, words};
use crate::synthetic_scenes::with_model;

/// A run that a small scene takes.
const GROWING: [&str; 4] =
    ["--preset=fast", "--max-points=400", "--eval", "--checkpoint-iterations=3000"];

/// Seconds of training, images, and what was said.
fn ended(place: &TestFolder, model: &str) -> (f64, u64, String) {
    let last = |name| place.events(model, name).pop().unwrap();
    let (end, finished) = (last("ended"), last("finished"));
    let message = end["message"].as_str().unwrap().to_owned();
    (finished["training_seconds"].as_f64().unwrap(), end["images"].as_u64().unwrap(), message)
}

#[test]
fn a_time_budget_ends_in_time_with_its_schedule_done() {
    let place = TestFolder::with_scene();
    let flags = [&GROWING[..], &["--time-budget=2s", "--max-passes=0"]].concat();
    end(place.train().args(flags)).done().says(&["the time budget of 2s is over"]);
    let (seconds, images, message) = ended(&place, "model");
    // A step of this scene takes some ten milliseconds, but a shared machine may stop in any.
    assert!((1.9..20.0).contains(&seconds), "{seconds} s: {message}");
    assert!(images > 0, "{message}");
    assert!(place.ply(6000).exists());
    assert!(!place.events("model", "densified").is_empty());
}

#[test]
fn what_is_left_of_a_budget_is_for_what_is_left_of_the_schedule() {
    let place = TestFolder::with_scene();
    let flags = [&GROWING[..], &["--time-budget=2s", "--max-passes=0", "--save-iterations=-1"]];
    end(place.train().args(flags.concat())).done();
    let checkpoint = first_checkpoint(&place);
    let second = place.train_from(&checkpoint, "second", &[]);
    second.done().says(&["the time budget of 2s is over"]);
    let [whole, rest] = ["model", "second"].map(|model| ended(&place, model));
    // What a shared machine may stop for is in both.
    assert!((0.1..20.0).contains(&rest.0), "{} s", rest.0);
    let spent = place.train_from(&checkpoint, "third", &["--time-budget=0.1s"]);
    spent.refused(2, &["0.1s is over", "longer"]);
    // It counts on from the images of the first half.
    let stored = StoredCheckpoint::open(&checkpoint).unwrap();
    let half = u64::from(stored.about.progress().images);
    assert!(half > 0 && rest.1 > half && whole.1 > half, "{half} of {whole:?}, {rest:?}");
}

/// The checkpoint that `run.jsonl` names first.
fn first_checkpoint(place: &TestFolder) -> PathBuf {
    let saved = place.events("model", "saved");
    let first = saved.iter().find(|saved| saved["what"] == "checkpoint").unwrap();
    place.model().join(first["path"].as_str().unwrap())
}

#[test]
fn a_long_budget_keeps_a_picture_an_iteration_at_most() {
    let place = TestFolder::with_scene();
    let flags =
        ["--preset=reference", "--iterations=20", "--time-budget=1s", "--timelapse=view_000.png"];
    end(place.train().args(flags)).done();
    let pictures = fs::read_dir(place.path("model").join("timelapse")).unwrap().count();
    // One of the start, and the folder may say of which view they are.
    assert!((2..=22).contains(&pictures), "{pictures} pictures");
    let (_, images, _) = ended(&place, "model");
    assert!(images > 0);
}

#[test]
fn triangles_become_opaque_in_the_time_that_there_is() {
    let place = TestFolder::with_scene();
    let flags = ["--primitive=triangles", "--time-budget=1.5s", "--max-points=2000", "--eval"];
    end(place.train().args(flags)).done().says(&["the time budget of 1.5s is over"]);
    assert!(place.ply(30_000).exists());
}

#[rstest]
#[case::many(100, "--min-passes=20", "--min-passes 20 asks for more")]
#[case::few(300, "--max-passes=20", "images: --max-passes 20 allows no more")]
fn passes_over_views_set_the_length_of_a_run_and_of_a_resumed_one(
    #[case] iterations: u32,
    #[case] passes: &str,
    #[case] expected: &str,
) {
    let place = TestFolder::with_scene();
    let middle = format!("--checkpoint-iterations={}", iterations / 2 - 1);
    let flags = words::<6>(
        "--densify-from-iter=20 --densify-until-iter=200 --densification-interval=49 \
         --opacity-reset-interval=90 --sh-degree-interval=50 --batch-views=2",
    );
    place.trained(iterations, &[&flags[..], &[passes, &middle]].concat());
    let checkpoint = first_checkpoint(&place);
    place.train_from(&checkpoint, "second", &[]).done();
    let [(_, images, message), (_, second, _)] =
        ["model", "second"].map(|model| ended(&place, model));
    let views = place.numbers("model", "started", "train_views")[0];
    assert_eq!((images, second), (20 * views, images));
    message.assert_holds(&[expected]);
    place.assert_same(["model", "second"], iterations);
    let is_longer = passes.starts_with("--min");
    assert_eq!(images > u64::from(iterations), is_longer, "the scene has other views");
    if !is_longer {
        let fewer = place.train_from(&checkpoint, "third", &["--max-passes=5"]);
        fewer.refused(2, &["--max-passes 5 allows", "0 for no limit"]);
    }
}

#[test]
fn a_run_ends_once_its_held_out_views_have_a_psnr() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=100", "--eval", "--until-psnr=5"];
    end(place.train().args(flags)).done().says(&["reaches --until-psnr 5 after 5 images"]);
    assert!(place.ply(5).exists() && place.checkpoint(5).exists());
    let tested = place.events("model", "evaluated");
    assert!(tested[0]["mean"]["psnr"].as_f64() >= Some(5.0), "{tested:?}");
    // Who asks again finds it done, and nothing is written anew.
    place.resume(&["auto"]).done().says(&["reaches --until-psnr 5"]);
    assert_eq!(fs::read_dir(place.path("model").join("point_cloud")).unwrap().count(), 1);
    // The rest of the run can still be had.
    let rest = place.resume(&["auto", "--until-psnr=80"]).done();
    rest.says(&["--until-psnr 80 is not reached: the highest PSNR was"]);
    assert!(place.ply(100).exists());
}

#[test]
fn a_psnr_ends_no_run_before_its_prune() {
    let place = TestFolder::with_scene();
    let flags = ["--eval", "--until-psnr=5", "--target-gaussians=100", "--densify-until-iter=20"];
    place.trained(60, &[&flags[..], &["--checkpoint-iterations=10"]].concat());
    // At 21 the Gaussians are pruned, and 3 iterations lie between two measurements.
    assert!(place.ply(21).exists());
    place.train_from(&place.checkpoint(10), "second", &[]).done();
    assert!(place.ply_of("second", 21).exists());
}

#[test]
fn without_held_out_views_training_views_are_measured() {
    let place = TestFolder::with_scene();
    let two = place.trained(40, &["--until-psnr=5", "--eval-train=2"]);
    two.says(&["reaches --until-psnr 5 after 2 images"]);
    let none = place.trained_into("none", 40, &["--until-psnr=5", "--eval-train=0"]);
    none.says(&["--until-psnr 5 is not reached: no view could be measured"]);
}

#[test]
fn a_quality_is_a_preset_by_another_name() {
    let place = TestFolder::with_scene();
    for (quality, preset) in [("draft", "draft"), ("normal", "fast"), ("high", "best")] {
        let model = format!("by_{quality}");
        let flags = [format!("--quality={quality}"), "--iterations=10".to_owned()];
        end(place.train_into(&model).args(flags)).done();
        let named = format!("as_{preset}");
        place.trained_into(&named, 10, &[&format!("--preset={preset}")]);
        let config = |model: &str| {
            let config = place.read(&format!("{model}/config.toml"));
            config.replace(&format!("\"{}\"", text(&place.path(model))), "MODEL")
        };
        assert_eq!(config(&model), config(&named), "{quality}");
    }
}

// Checkpoints by time: they change nothing in a run, and the newest stay.

/// Density control with random backgrounds.
const EVENTFUL: [&str; 9] = words(
    "--densify-from-iter=20 --densification-interval=15 --densify-grad-threshold=0.00005 \
     --max-points=900 --random-background --seed=3 --save-iterations=-1 --test-iterations=-1 \
     --eval",
);

/// A time so short that every iteration is due.
const ALWAYS: &str = "--checkpoint-minutes=0.0000001";

/// The checkpoints of a model folder, newest first.
fn names(place: &TestFolder, model: &str) -> Vec<String> {
    let name = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
    list(&place.path(model)).iter().map(name).collect()
}

#[test]
fn they_change_no_result_and_a_run_resumes_from_each() {
    let place = TestFolder::with_scene();
    let without = [&EVENTFUL[..], &["--checkpoint-minutes=0"]].concat();
    place.trained_into("without", 75, &without);
    let steps = place.events("without", "densified");
    assert!(steps.iter().any(|step| step["split"].as_u64() > Some(0)), "{steps:?}");
    assert_eq!(names(&place, "without"), ["chkpnt_75"]);
    let timed = [ALWAYS, "--keep-checkpoints=4", "--checkpoint-iterations=16"];
    place.trained_into("timed", 75, &[&EVENTFUL[..], &timed].concat());
    let expected = ["chkpnt_75", "chkpnt_74", "chkpnt_73", "chkpnt_72", "chkpnt_16"];
    assert_eq!(names(&place, "timed"), expected);
    let paths = list(&place.path("timed"));
    let by_time: Vec<bool> = paths.iter().map(|path| is_timed(path)).collect();
    assert_eq!(by_time, [false, true, true, true, false]);
    place.assert_same(["without", "timed"], 75);

    // Checkpoints at a densification step and between two.
    let keep = ["--keep-checkpoints=100", "--iterations=62"];
    end(place.train_into("kept").args(EVENTFUL).args([ALWAYS]).args(keep)).done();
    for from in [30, 37, 50] {
        let start = place.checkpoint_of("kept", from);
        assert!(is_timed(&start), "{}", start.display());
        let on = ["--iterations=75", "--checkpoint-minutes=0"];
        place.train_from(&start, "resumed", &on).done();
        place.assert_same(["without", "resumed"], 75);
    }
}

#[test]
fn a_resumed_run_removes_those_of_the_run_before() {
    // At the end, one by time is kept besides the last.
    let place = with_model(10, &[ALWAYS]);
    assert_eq!(names(&place, "model"), ["chkpnt_10", "chkpnt_9"]);
    place.resume(&["--iterations=20"]).done();
    assert_eq!(names(&place, "model"), ["chkpnt_20", "chkpnt_19", "chkpnt_10"]);
    assert_no_litter(&place.model());
}

#[test]
fn five_minutes_have_not_passed_at_the_end_of_a_short_run() {
    let place = with_model(20, &[]);
    assert_eq!(names(&place, "model"), ["chkpnt_20"]);
    let options = ["checkpoint_minutes = 5.0", "keep_checkpoints = 2", "checkpoint_reserve = true"];
    place.read("model/config.toml").assert_holds(&options);
}

#[test]
fn neighbours_of_the_coarse_stage_are_not_searched_anew_for_them() {
    let place = TestFolder::with_scene();
    let stage = words::<5>(
        "--regularize=dn-consistency --sugar-iterations=60 --n-samples-for-sdf=300 \
         --regularity-knn=8 --test-iterations=-1",
    );
    place.trained_into("without", 40, &[&stage[..], &["--checkpoint-minutes=0"]].concat());
    let timed = [ALWAYS, "--keep-checkpoints=100"];
    place.trained_into("timed", 40, &[&stage[..], &timed].concat());
    place.assert_same(["without", "timed"], 100);
    // The prune comes after 16 iterations of the stage; from then on the neighbours stay.
    let names = names(&place, "timed");
    assert_eq!(names[..2], ["chkpnt_100", "chkpnt_56"]);
    let start = place.checkpoint_of("timed", 56);
    place.train_from(&start, "resumed", &["--checkpoint-minutes=0"]).done();
    place.assert_same(["without", "resumed"], 100);
}

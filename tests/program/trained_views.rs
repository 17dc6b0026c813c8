//! Views that a model was trained on are never measured as held out.

use std::fs;
use std::path::Path;

use crate::common::program::{Ended, TestFolder, end, files_below, splat, text};

fn run(place: &TestFolder, command: &str, flags: &[&str]) -> Ended {
    end(splat().args([command, "--device=cpu", "-m"]).arg(place.model()).args(flags))
}

/// `eval` and `render` end with 3, name the record and say all of these, and change nothing.
fn refused(place: &TestFolder, flags: &[&str], parts: &[&str]) {
    let record = place.model().join("trained_views.json");
    let before = files_below(&place.model());
    for (command, more, instead) in [
        ("eval", None, "or use --split train"),
        ("eval", Some("--json"), "or use --split train"),
        ("render", None, "or use --skip-test"),
        ("render", Some("--skip-train"), "or use --skip-test"),
    ] {
        let flags: Vec<&str> = more.iter().copied().chain(flags.iter().copied()).collect();
        let parts = [&[text(&record), "trained on", instead], parts].concat();
        run(place, command, &flags).refused(3, &parts);
    }
    assert!(files_below(&place.model()) == before, "nothing is changed");
}

fn list(place: &TestFolder, names: &str) -> String {
    let path = place.path("list.txt");
    fs::write(&path, names).unwrap();
    format!("--test-list={}", text(&path))
}

#[test]
fn views_that_move_up_where_a_photograph_was_lost_are_not_measured() {
    let place = TestFolder::with_scene();
    // View 0.
    place.trained(2, &["--eval"]);
    fs::remove_file(place.image(0)).unwrap();
    let restore = "The scene has changed since: restore its photographs, or use";
    refused(
        &place,
        &[],
        &["1 of the held-out views was trained on, for instance view_001.png", restore],
    );
    run(&place, "eval", &["--split=train"]).done();
    run(&place, "render", &["--skip-test"]).done();
    assert!(!place.model().join("test").exists());
}

#[test]
fn what_is_left_of_the_held_out_views_can_be_named() {
    let place = TestFolder::with_scene();
    // Views 0, 2 and 5; of those that are left, it would be 1, 3 and 5.
    place.trained(2, &["--test-views=3"]);
    fs::remove_file(place.image(0)).unwrap();
    let such_as = "name views that it was not trained on with --test-list, such as view_002.png";
    let seen = "2 of the held-out views were trained on, for instance view_001.png";
    refused(&place, &[], &[seen, "restore its photographs", such_as]);
    let tables = fs::read(place.model().join("results.json")).unwrap();
    let left = list(&place, "view_002.png\nview_005.png\n");
    run(&place, "eval", &[&left]).done().says(&["measured with other scene options"]);
    assert!(fs::read(place.model().join("results.json")).unwrap() == tables);
    run(&place, "render", &[&left]).done();
    assert_eq!(fs::read_dir(place.model().join("test/ours_2/renders")).unwrap().count(), 2);
}

#[test]
fn views_are_not_held_out_by_eval_alone() {
    let place = TestFolder::with_scene();
    place.trained(2, &[]);
    let none = "It was trained with no view held out: train it again with";
    refused(&place, &["--eval"], &["view_000.png", none, "--eval --test-every 8"]);
    refused(&place, &["--test-views=2"], &["2 of the held-out views were", none, "--test-views 2"]);
    let one = list(&place, "view_003\n");
    refused(&place, &[&one], &["view_003.png", none, "a --test-list of 1 view"]);
    let all = ["no view is held out", "--split train", "again with --eval", "trained on all views"];
    run(&place, "eval", &[]).refused(2, &all);

    place.trained(2, &["--eval"]);
    let was = "It was trained with --eval --test-every 8, which is kept";
    refused(&place, &["--test-every=4"], &["view_004.png", was, "leave --eval --test-every 4 out"]);
    refused(&place, &["--test-views=2"], &["view_004.png", was, "leave --test-views 2 out"]);
    // By other options it is the same view.
    run(&place, "eval", &[&list(&place, "view_000\n")]).done();
    run(&place, "eval", &["--test-every=16"]).done();
    run(&place, "eval", &["--eval=false"]).refused(2, &["--test-list, such as view_000.png"]);
}

#[test]
fn the_record_knows_since_when_a_view_is_trained_on() {
    let place = TestFolder::with_scene();
    let resume = |flags: &[&str]| end(place.train().arg("--resume").args(flags));
    place.trained(2, &["--eval"]);
    resume(&["--iterations=4", "--eval=false"]).done();
    refused(&place, &["--eval"], &["view_000.png"]);
    // The model of iteration 2 has not seen it.
    run(&place, "eval", &["--eval", "--iteration=2"]).done();
    let record = fs::read_to_string(place.model().join("trained_views.json")).unwrap();
    assert!(record.contains("\"view_000.png\": 2,\n  \"view_001.png\": 0,\n"), "{record}");

    // Nor is a view forgotten whose photograph was gone for a while.
    let photograph = fs::read(place.image(3)).unwrap();
    fs::remove_file(place.image(3)).unwrap();
    resume(&["--iterations=6"]).done();
    fs::write(place.image(3), photograph).unwrap();
    let third = list(&place, "view_003.png\n");
    refused(&place, &[&third], &["view_003.png"]);
    resume(&["--iterations=8", &third]).refused(2, &["has seen view_003.png"]);
    // From an earlier checkpoint, the view is new again.
    let start = place.checkpoint(2);
    let flags = ["--start-checkpoint", text(&start), "--iterations=3", "--eval"];
    end(place.train().args(flags)).done();
    run(&place, "eval", &["--iteration=3"]).done();
}

#[test]
fn a_coarse_stage_starts_from_no_model_that_has_seen_its_held_out_views() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    fs::remove_file(place.image(0)).unwrap();
    let coarse = |flags: &[&str]| {
        let mut command = place.train_into("coarse");
        command.args(["--regularize=density", "--sugar-iterations=2", "--regularity-knn=4"]);
        command.args(["--n-samples-for-sdf=100", "-c"]).arg(place.model());
        end(command.args(flags))
    };
    let changed = "the scene has changed since the model of -c was trained";
    coarse(&[]).refused(
        3,
        &[changed, "1 of its held-out views was trained on, for instance view_001.png"],
    );
    assert!(!place.path("coarse").exists());
    // What the model has seen is in the record of the next.
    fs::remove_file(place.image(1)).unwrap();
    end(place.train().args(["--resume", "--iterations=3", "--eval=false"])).done();
    coarse(&["--eval=false"]).done();
    let record = fs::read_to_string(place.path("coarse").join("trained_views.json")).unwrap();
    assert!(record.contains("view_001.png") && !record.contains("view_000.png"), "{record}");
}

#[test]
fn folders_without_a_record_work_and_one_that_is_damaged_is_named() {
    let place = TestFolder::with_scene();
    place.trained(2, &[]);
    let record = place.model().join("trained_views.json");
    for content in ["", "[]", "{\"view_000.png\": -1}"] {
        fs::write(&record, content).unwrap();
        let parts = [text(&record), "cannot be used", "Restore it, or remove it"];
        run(&place, "eval", &["--eval"]).refused(3, &parts);
        end(place.train().args(["--resume", "--iterations=4"])).refused(3, &parts);
    }
    // As another program leaves its folder.
    fs::remove_file(&record).unwrap();
    fs::remove_file(place.model().join("config.toml")).unwrap();
    let scene = place.scene();
    let foreign = ["-s", text(&scene)];
    let own = "give the --eval, --test-views or --test-list that the model was trained with";
    run(&place, "eval", &foreign).refused(2, &["no view is held out", own]);
    run(&place, "eval", &[&foreign[..], &["--eval"]].concat()).done();
    run(&place, "render", &[&foreign[..], &["--eval"]].concat()).done();
    assert!(Path::new(&place.model().join("test/ours_2/renders/00000.png")).exists());
}

#[test]
fn figures_of_held_out_views_go_where_these_are_trained_on() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let resume = |flags: &[&str]| end(place.train().args(["--resume", "auto"]).args(flags)).done();
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(place.model().join(name)).unwrap()).unwrap()
    };
    let metrics = || read("summary.json")["metrics"].clone();
    let before = metrics();
    assert!(before["test"]["psnr"].is_f64(), "{before}");
    resume(&["--iterations=4", "--test-iterations=-1"]);
    assert_eq!(metrics()["test"]["iteration"], 4);
    resume(&["--iterations=6", "--eval", "false"]);
    let after = metrics();
    assert!(after["test"].is_null(), "{after}");
    assert_eq!(after["eval_train"]["iteration"], 6);
    // Tables keep what was measured while they were held out, by iteration.
    let results = read("results.json");
    assert!(results["ours_4"]["PSNR"].is_f64() && results["ours_6"].is_null(), "{results}");
    let shown = end(splat().arg("compare").arg(place.model())).done().stdout;
    assert!(!shown.contains("test PSNR"), "{shown}");
}

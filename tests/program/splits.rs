//! Which views are measured: a sample of those trained on, and held-out views that are chosen.

use std::fs;
use std::path::Path;

use crate::common::events::{events_files, steps_of_tags};
use crate::common::program::{Ended, TestFolder, end, files_below, splat, text};
use rstest::rstest;
use serde_json::Value;

fn read(place: &TestFolder, model: &str, name: &str) -> String {
    fs::read_to_string(place.path(model).join(name)).unwrap()
}

/// Iteration and split of each row of `metrics.csv`.
fn rows(place: &TestFolder) -> Vec<String> {
    let table = read(place, "model", "metrics.csv");
    let start = |row: &str| row.splitn(3, ',').take(2).collect::<Vec<_>>().join(",");
    table.lines().skip(1).map(start).collect()
}

/// The evaluations of a run: split, and the names of the views.
fn evaluations(place: &TestFolder, model: &str) -> Vec<(String, Vec<String>)> {
    let log = read(place, model, "run.jsonl");
    let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let evaluated = events.filter(|event| event["event"] == "evaluated");
    evaluated
        .map(|event| {
            let name = |view: &Value| view["name"].as_str().unwrap().to_owned();
            let names = event["views"].as_array().unwrap().iter().map(name).collect();
            (event["split"].as_str().unwrap().to_owned(), names)
        })
        .collect()
}

fn names(numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| format!("view_{number:03}.png")).collect()
}

#[test]
fn without_held_out_views_a_sample_of_the_training_views_is_measured() {
    let place = TestFolder::with_scene();
    let flags = ["--test-iterations", "2", "--progress", "plain"];
    let ended = place.trained(4, &flags);
    ended.says(&["[ITER 2] Evaluating eval_train: L1 ", "[ITER 4] Evaluating eval_train: "]);
    assert_eq!(rows(&place), ["2,eval_train", "4,eval_train"]);
    // Five of eight.
    let sample = ("eval_train".to_owned(), names(&[0, 1, 3, 4, 6]));
    assert_eq!(evaluations(&place, "model"), [sample.clone(), sample]);
    let tags = steps_of_tags(&events_files(&place.model())[0]);
    for tag in ["eval_train/psnr", "eval_train/ssim", "eval_train/l1"] {
        assert_eq!(tags[tag], [2, 4], "{tag}");
    }
    assert_eq!(tags["eval_train/view_000.png/render"], [2, 4]);
    assert!(!place.model().join("results.json").exists(), "these are no results");
}

#[test]
fn the_sample_is_measured_beside_held_out_views_as_large_as_asked_for() {
    let place = TestFolder::with_scene();
    let measured = |model: &str, flags: &[&str]| {
        place.trained_into(model, 2, &[&["--test-iterations=-1"], flags].concat());
        evaluations(&place, model)
    };
    let test = ("test".to_owned(), names(&[0]));
    let sample = |numbers: &[usize]| ("eval_train".to_owned(), names(numbers));
    let beside = measured("beside", &["--eval"]);
    assert_eq!(beside, [test.clone(), sample(&[1, 2, 3, 5, 6])]);
    let all = measured("all", &["--eval", "--eval_train", "all"]);
    assert_eq!(all, [test.clone(), sample(&[1, 2, 3, 4, 5, 6, 7])]);
    assert_eq!(measured("two", &["--eval-train", "2"]), [sample(&[0, 4])]);
    assert_eq!(measured("none", &["--eval", "--eval-train", "0"]), [test]);
    let mut silent = place.train_into("silent");
    let ended = end(silent.args(["--iterations=1", "--eval-train=0"])).done();
    ended.says(&["warning", "--eval-train 0", "nothing is measured", "--eval"]);
    end(place.train().args(["--eval-train", "some"])).refused(2, &["--eval-train", "`all`"]);
}

/// Names of the held-out views, as `splat eval` measures them.
fn held_out(place: &TestFolder, model: &str) -> Vec<String> {
    let mut eval = splat();
    let eval = end(eval.args(["eval", "--json", "--device=cpu", "-m"]).arg(place.path(model)));
    let report: Value = serde_json::from_str(&eval.done().stdout).unwrap();
    let views = report["views"].as_array().unwrap();
    views.iter().map(|view| view["name"].as_str().unwrap().to_owned()).collect()
}

/// Every later stage holds out what the run did.
fn assert_kept(place: &TestFolder, numbers: &[usize]) {
    assert_eq!(held_out(place, "model"), names(numbers));
    let mut render = splat();
    end(render.args(["render", "--skip-train", "--device=cpu", "-m"]).arg(place.model())).done();
    let folder = place.model().join("test/ours_4/renders");
    assert_eq!(fs::read_dir(folder).unwrap().count(), numbers.len());
    end(place.train().args(["--resume", "--iterations=6", "--eval-train=0"])).done();
    assert_eq!(evaluations(place, "model").pop().unwrap().1, names(numbers));
    let coarse = ["--regularize=density", "--sugar-iterations=4", "--n-samples-for-sdf=100"];
    let start = |model: &str, flags: &[&str]| -> Ended {
        let mut train = splat();
        train.args(["train", "--device=cpu", "--regularity-knn=4", "--eval-train=0", "-c"]);
        train.arg(place.model()).arg("-m").arg(place.path(model));
        end(train.args(coarse).args(flags))
    };
    start("coarse", &[]).done();
    assert_eq!(evaluations(place, "coarse").pop().unwrap().1, names(numbers));
    assert_eq!(held_out(place, "coarse"), names(numbers));
    // The model has seen what these hold out.
    start("other", &["--test-every", "5"])
        .refused(2, &["--eval --test-every 5", "has seen", "Use"]);
    start("other", &["--test-views", "1"]).refused(2, &["--test-views 1", "has seen", "Use"]);
}

#[test]
fn so_many_views_as_asked_for_are_held_out() {
    let place = TestFolder::with_scene();
    place.trained(4, &["--test-views", "3"]).says(&["5 views, 3 held out"]);
    let config = read(&place, "model", "config.toml");
    assert!(config.contains("test_views = 3") && config.contains("eval = true"), "{config}");
    assert!(read(&place, "model", "cfg_args").contains("eval=True"));
    assert_kept(&place, &[0, 2, 5]);
}

#[test]
fn listed_views_are_held_out_also_where_the_list_has_gone() {
    let place = TestFolder::with_scene();
    let list = place.path("held out.txt");
    let lines = "\u{feff}# of a walk around\r\nview_006.png\r\n\r\nview_001\r\n";
    fs::write(&list, lines).unwrap();
    place.trained(4, &["--test-list", text(&list)]).says(&["6 views, 2 held out"]);
    fs::remove_file(&list).unwrap();
    let config = read(&place, "model", "config.toml");
    assert!(config.contains("test_list = [\"view_006.png\", \"view_001\"]"), "{config}");
    assert_kept(&place, &[1, 6]);
}

#[test]
fn a_resumed_run_holds_out_what_it_did() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let checkpoint = place.checkpoint(2);
    let before = files_below(&place.model());
    let refused = |model: &str, flags: &[&str], parts: &[&str]| {
        let command = ["--start-checkpoint", text(&checkpoint), "--iterations=4"];
        let parts =
            [&[text(&checkpoint), "has seen view_00", "Leave that out or use"], parts].concat();
        end(place.train_into(model).args(command).args(flags)).refused(2, &parts);
    };
    for (flags, named) in [
        (["--test-views=3", "--eval-train=0"], "--test-views 3 holds out"),
        (["--test-every=4", "--eval"], "--eval --test-every 4 holds out"),
    ] {
        let stored = "trained with --eval --test-every 8";
        refused("other", &flags, &[stored, named]);
        refused("model", &flags, &[stored, named]);
        end(place.train().args(["--resume", "--iterations=4"]).args(flags)).refused(2, &[stored]);
    }
    assert!(!place.path("other").exists());
    assert!(files_below(&place.model()) == before, "nothing is changed");
    // The same again, and no views at all, are no harm.
    end(place.train().args(["--resume", "--iterations=3", "--eval", "--test-every=8"])).done();
    // By other options the same view is held out.
    let list = place.path("list.txt");
    fs::write(&list, "view_000.png\n").unwrap();
    for flags in [["--eval", "--test-every=16"], ["--test-list", text(&list)]] {
        let ended = end(place.train_into("same").args(flags).args([
            "--start-checkpoint",
            text(&checkpoint),
            "--iterations=3",
        ]));
        ended.done();
    }
    end(place.train().args(["--resume", "--iterations=4", "--eval=false"])).done();
    let all =
        ["trained with no view held out", "use --eval false", "--eval --test-every 8 holds out"];
    end(place.train().args(["--resume", "--iterations=5", "--eval"])).refused(2, &all);
}

#[test]
fn a_resumed_run_may_list_its_held_out_views_in_another_order() {
    let place = TestFolder::with_scene();
    let list = place.path("list.txt");
    fs::write(&list, "view_001.png\nview_006.png\n").unwrap();
    place.trained(2, &["--test-list", text(&list)]);
    let resumed = |iterations: &str| {
        end(place.train().args(["--resume", iterations, "--test-list", text(&list)]))
    };
    fs::write(&list, "view_006.png\nview_001.png\n").unwrap();
    resumed("--iterations=3").done();
    fs::write(&list, "view_006.png\nview_002.png\n").unwrap();
    resumed("--iterations=4")
        .refused(2, &["a --test-list of 2 views", "has seen view_002.png", "Leave that out"]);
    // Its held-out views may be fewer.
    fs::write(&list, "view_006.png\n").unwrap();
    resumed("--iterations=4").done();
}

#[test]
fn a_resumed_run_holds_out_nothing_seen_where_photographs_went() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let before = files_below(&place.model());
    // Every eighth view by name is another one now.
    fs::remove_file(place.image(0)).unwrap();
    let resume = || end(place.train().args(["--resume", "--iterations=4"]));
    let parts = ["scene has changed", "1 of its held-out views was trained on", "view_001.png"];
    resume().refused(3, &parts);
    assert!(files_below(&place.model()) == before, "nothing is changed");
    end(place.train().args(["--resume", "--iterations=4", "--eval=false"])).done();
}

#[test]
fn a_configuration_file_may_list_the_views() {
    let place = TestFolder::with_scene();
    let config = place.path("split.toml");
    fs::write(&config, "[scene]\ntest_list = [\"view_003.png\"]\n").unwrap();
    place.trained(1, &["--config", text(&config)]);
    assert_eq!(held_out(&place, "model"), names(&[3]));
    // What is typed wins over it.
    place.trained_into("typed", 1, &["--config", text(&config), "--test-views", "2"]);
    assert_eq!(held_out(&place, "typed"), names(&[0, 4]));
    let none = ["--config", text(&config), "--eval", "false"];
    place.trained_into("none", 1, &none).says(&["8 views, 0 held out"]);
}

#[rstest]
#[case::all_views(&["--test-views", "8"], 3, &["--test-views 8", "8 views", "less than 8"])]
#[case::no_view(&["--test-views", "0"], 2, &["--test-views", "1 and more"])]
#[case::at_once(&["--eval", "False", "--test-views=3"], 2, &["--eval", "is false", "--test-views"])]
#[case::no_file(&["--test-list", "nowhere.txt"], 3, &["nowhere.txt", "--test-list"])]
fn splits_that_cannot_be_are_refused(
    #[case] flags: &[&str],
    #[case] code: i32,
    #[case] parts: &[&str],
) {
    let place = TestFolder::with_scene();
    end(place.train().args(flags)).refused(code, parts);
    assert!(!place.model().exists());
}

#[test]
fn lists_that_do_not_fit_the_scene_are_refused() {
    let place = TestFolder::with_scene();
    let list = place.path("list.txt");
    let refused = |content: &str, parts: &[&str]| {
        fs::write(&list, content).unwrap();
        let path: &Path = &list;
        end(place.train().arg("--test-list").arg(path)).refused(3, parts);
        assert!(!place.model().exists());
    };
    refused("# nothing\n\n", &["list.txt", "lists no view", "one name a line"]);
    let unknown = ["2 views that the scene does not have: IMG_1.png", "IMG_2", "view_000.png"];
    refused("IMG_1.png\nview_001.png\nIMG_2\n", &unknown);
    refused("IMG_1.png\n", &["names 1 view that the scene does not have: IMG_1.png"]);
    let all: String = (0..8).map(|number| format!("view_{number:03}.png\n")).collect();
    refused(&all, &["all of its 8 views", "none is left"]);
}

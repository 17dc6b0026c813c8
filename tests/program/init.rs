//! `--init`: a run starts from a model that another run, or another program, wrote.

use std::fs;
use std::path::Path;

use serde_json::Value;
use splat::export::{read_ply, write_ply};
use splat::math::Real;
use splat::math::random::{RandomStream, RandomUse};
use splat::model::{Gaussians, Primitive};

use crate::common::program::{
    Ended, TestFolder, Text as _, end, events_files, files_below, header, patch, steps_of_tags,
    text, words,
};
use crate::common::scene::as_in_a_ply;
use crate::synthetic_scenes::with_model;

/// Learning rates of zero: what is saved is what training started from.
const FROZEN: [&str; 14] = words(
    "--feature-rest-lr 0 --position-lr-init 0 --position-lr-final 0 --feature-lr 0 --opacity-lr 0 \
     --scaling-lr 0 --rotation-lr 0",
);

/// Gaussians within the tiny scene, no two alike.
fn model(sh_degree: u32) -> Gaussians {
    let stream = RandomStream::new(7, 0, RandomUse::Initialise);
    let mut model = Gaussians::zeros(sh_degree, 40);
    let mut index = 0;
    for values in model.groups_mut() {
        for value in values {
            index += 1;
            *value = (stream.uniform(index) * 0.8 + 0.1).to_f32();
        }
    }
    model.log_scales.iter_mut().for_each(|scale| *scale -= 4.0);
    as_in_a_ply(model)
}

fn train(place: &TestFolder, init: &Path, more: &[&str]) -> Ended {
    let flags = [&["--init", text(init)], &FROZEN[..], more].concat();
    place.splat("train --device cpu --progress none --iterations 1 -s SCENE -m MODEL", &flags)
}

/// Rows in the order of their first coordinate: training keeps them in another order than the file.
fn sorted(model: &Gaussians) -> Vec<Vec<f32>> {
    let mut rows: Vec<Vec<f32>> = (0..model.len())
        .map(|row| {
            model.rows(row..row + 1).groups().iter().flat_map(|g| g.values.to_vec()).collect()
        })
        .collect();
    rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
    rows
}

#[test]
fn a_run_starts_from_a_model_and_goes_on_without_its_file() {
    let model = model(1);
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model).unwrap();
    train(&place, &file, &["--sh-degree", "1"]).done();
    assert_eq!(sorted(&read_ply(&place.ply(1)).unwrap()), sorted(&model));
    // What viewers show as the run's beginning is that model, not the scene's points.
    header(&place.path("model/input.ply")).assert_holds(&["element vertex 40\n"]);
    fs::remove_file(&file).unwrap();
    place.splat("train --device cpu --progress none --iterations 2 -m MODEL --resume", &[]).done();
    assert_eq!(sorted(&read_ply(&place.ply(2)).unwrap()), sorted(&model));
}

#[test]
fn a_cut_out_object_without_points_starts_inside_its_silhouettes() {
    let place = TestFolder::empty();
    let line = "synth --scene=dtu --views=12 --width=48 --height=36 --truth-cells=48 -o SCENE";
    place.splat(line, &[]).done();
    // The file begins with the number of its points.
    fs::write(place.points(), 0_u64.to_le_bytes()).unwrap();
    // Returns the largest coordinate of the Gaussians.
    let size = |region: &str, expected: &str| {
        let flags = [&["--init-num-pts=300", region], &FROZEN[..]].concat();
        let line = "train --device cpu --iterations 1 -s SCENE -m MODEL";
        place.splat(line, &flags).says(&[expected]).done();
        let means = read_ply(&place.ply(1)).unwrap().means;
        fs::remove_dir_all(place.model()).unwrap();
        assert_eq!(means.len(), 3 * 300);
        means.iter().fold(0.0_f32, |most, coordinate| most.max(coordinate.abs()))
    };
    let [inside, around] = ["inside the silhouettes", "random ones within"];
    let cube = size("--init-region=cube", around);
    // The cube is three times as large as the circle of the cameras, and the object smaller.
    assert!(size("--init-region=silhouettes", inside) < cube / 3.0);
    fs::remove_dir_all(place.scene().join("masks")).unwrap();
    assert_eq!(size("--init-region=silhouettes", around), cube);
}

#[test]
fn another_sh_degree_drops_harmonics_or_adds_zeros() {
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model(2)).unwrap();
    let says = ["above --sh-degree 0 are dropped", "up to --sh-degree 3 start from zero"];
    for (wanted, says) in [0, 3].into_iter().zip(says) {
        let degree = wanted.to_string();
        train(&place, &file, &["--sh-degree", &degree]).done().says(&[says]);
        let mut expected = model(2);
        expected.set_sh_degree(wanted);
        assert_eq!(sorted(&read_ply(&place.ply(1)).unwrap()), sorted(&expected), "{wanted}");
    }
}

#[test]
fn a_model_that_does_not_serve_is_refused_before_anything_is_written() {
    let place = TestFolder::with_scene();
    let file = place.path("model.ply");
    write_ply(&file, &model(1)).unwrap();
    train(&place, &file, &["--max-points", "39"])
        .refused(2, &["model.ply", "40", "--max-points 39"]);
    train(&place, &place.path("nothing.ply"), &[]).refused(3, &["nothing.ply"]);
    patch(&file, b"property float opacity\n", b"property float opacitx\n");
    train(&place, &file, &[]).refused(3, &["model.ply", "`opacity`"]);
    assert!(!place.model().exists());
}

// Measured views: a sample of the training views, and chosen held-out views.

/// Iteration and split of each row of `metrics.csv`.
fn rows(place: &TestFolder) -> Vec<String> {
    let table = place.read("model/metrics.csv");
    let start = |row: &str| row.splitn(3, ',').take(2).collect::<Vec<_>>().join(",");
    table.lines().skip(1).map(start).collect()
}

/// The evaluations of a run: split, and the names of the views.
fn evaluations(place: &TestFolder, model: &str) -> Vec<(String, Vec<String>)> {
    let evaluated = place.events(model, "evaluated");
    evaluated
        .iter()
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
    let report = place.splat("eval --json --device=cpu -m", &[model]).done().json();
    let views = report["views"].as_array().unwrap();
    views.iter().map(|view| view["name"].as_str().unwrap().to_owned()).collect()
}

/// Every later stage holds out what the run did.
fn assert_kept(place: &TestFolder, numbers: &[usize]) {
    assert_eq!(held_out(place, "model"), names(numbers));
    place.run("render", &["--skip-train"]).done();
    let folder = place.model().join("test/ours_4/renders");
    assert_eq!(fs::read_dir(folder).unwrap().count(), numbers.len());
    place.resume(&["--iterations=6", "--eval-train=0"]).done();
    assert_eq!(evaluations(place, "model").pop().unwrap().1, names(numbers));
    let coarse = ["--regularize=density", "--sugar-iterations=4", "--n-samples-for-sdf=100"];
    let start = |model: &str, flags: &[&str]| {
        let line = "train --device=cpu --regularity-knn=4 --eval-train=0 -c MODEL -m";
        place.splat(line, &[&[model], &coarse[..], flags].concat())
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
    place.read("model/config.toml").assert_holds(&["test_views = 3", "eval = true"]);
    place.read("model/cfg_args").assert_holds(&["eval=True"]);
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
    let listed = "test_list = [\"view_006.png\", \"view_001\"]";
    place.read("model/config.toml").assert_holds(&[listed]);
    assert_kept(&place, &[1, 6]);
}

#[test]
fn a_resumed_run_holds_out_what_it_did() {
    let place = with_model(2, &["--eval"]);
    let checkpoint = place.checkpoint(2);
    let before = files_below(&place.model());
    let refused = |model: &str, flags: &[&str], parts: &[&str]| {
        let parts =
            [&[text(&checkpoint), "has seen view_00", "Leave that out or use"], parts].concat();
        let flags = [&["--iterations=4"], flags].concat();
        place.train_from(&checkpoint, model, &flags).refused(2, &parts);
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
    // Equal options, or none for held-out views, are accepted.
    place.resume(&["--iterations=3", "--eval", "--test-every=8"]).done();
    // By other options the same view is held out.
    let list = place.path("list.txt");
    fs::write(&list, "view_000.png\n").unwrap();
    for flags in [["--eval", "--test-every=16"], ["--test-list", text(&list)]] {
        let flags = [&["--iterations=3"], &flags[..]].concat();
        place.train_from(&checkpoint, "same", &flags).done();
    }
    place.resume(&["--iterations=4", "--eval=false"]).done();
    let all =
        ["trained with no view held out", "use --eval false", "--eval --test-every 8 holds out"];
    place.resume(&["--iterations=5", "--eval"]).refused(2, &all);
}

#[test]
fn a_resumed_run_may_list_its_held_out_views_in_another_order() {
    let place = TestFolder::with_scene();
    let list = place.path("list.txt");
    fs::write(&list, "view_001.png\nview_006.png\n").unwrap();
    place.trained(2, &["--test-list", text(&list)]);
    let resumed = |iterations: &str| place.resume(&[iterations, "--test-list", text(&list)]);
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
    let parts = ["scene has changed", "1 of its held-out views was trained on", "view_001.png"];
    place.resume(&["--iterations=4"]).refused(3, &parts);
    assert!(files_below(&place.model()) == before, "nothing is changed");
    place.resume(&["--iterations=4", "--eval=false"]).done();
}

#[test]
fn a_configuration_file_may_list_the_views() {
    let place = TestFolder::with_scene();
    let config = place.path("split.toml");
    // With a byte order mark, as some editors write it.
    fs::write(&config, "\u{feff}[scene]\ntest_list = [\"view_003.png\"]\n").unwrap();
    place.trained(1, &["--config", text(&config)]);
    assert_eq!(held_out(&place, "model"), names(&[3]));
    // Typed options win over the file.
    place.trained_into("typed", 1, &["--config", text(&config), "--test-views", "2"]);
    assert_eq!(held_out(&place, "typed"), names(&[0, 4]));
    let none = ["--config", text(&config), "--eval", "false"];
    place.trained_into("none", 1, &none).says(&["8 views, 0 held out"]);
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

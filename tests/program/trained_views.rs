//! Views that a model was trained on are never measured as held out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use image::DynamicImage;
use serde_json::Value;
use splat::export::write_ply;
use splat::math::Real;
use splat::model::Gaussians;

use crate::common::program::{
    SIZE, TestFolder, Text as _, end, events_files, files_below, steps_of_tags, text, words,
};
use crate::synthetic_scenes::with_model;

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
        place.run(command, &flags).refused(3, &parts);
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
    let seen = "1 of the held-out views was trained on, for instance view_001.png";
    refused(&place, &[], &[seen, restore]);
    place.run("eval", &["--split=train"]).done();
    place.run("render", &["--skip-test"]).done();
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
    place.run("eval", &[&left]).done().says(&["measured with other scene options"]);
    assert!(fs::read(place.model().join("results.json")).unwrap() == tables);
    place.run("render", &[&left]).done();
    assert_eq!(fs::read_dir(place.model().join("test/ours_2/renders")).unwrap().count(), 2);
}

#[test]
fn views_are_not_held_out_by_eval_alone() {
    let place = with_model(2, &[]);
    let none = "It was trained with no view held out: train it again with";
    refused(&place, &["--eval"], &["view_000.png", none, "--eval --test-every 8"]);
    refused(&place, &["--test-views=2"], &["2 of the held-out views were", none, "--test-views 2"]);
    let one = list(&place, "view_003\n");
    refused(&place, &[&one], &["view_003.png", none, "a --test-list of 1 view"]);
    let all = ["no view is held out", "--split train", "again with --eval", "trained on all views"];
    place.run("eval", &[]).refused(2, &all);

    place.trained(2, &["--eval"]);
    let was = "It was trained with --eval --test-every 8, which is kept";
    refused(&place, &["--test-every=4"], &["view_004.png", was, "leave --eval --test-every 4 out"]);
    refused(&place, &["--test-views=2"], &["view_004.png", was, "leave --test-views 2 out"]);
    // By other options it is the same view.
    place.run("eval", &[&list(&place, "view_000\n")]).done();
    place.run("eval", &["--test-every=16"]).done();
    place.run("eval", &["--eval=false"]).refused(2, &["--test-list, such as view_000.png"]);
}

#[test]
fn the_record_knows_since_when_a_view_is_trained_on() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    place.resume(&["--iterations=4", "--eval=false"]).done();
    refused(&place, &["--eval"], &["view_000.png"]);
    // The model of iteration 2 has not seen it.
    place.run("eval", &["--eval", "--iteration=2"]).done();
    let since = "\"view_000.png\": 2,\n  \"view_001.png\": 0,\n";
    place.read("model/trained_views.json").assert_holds(&[since]);

    // Nor is a view forgotten whose photograph was gone for a while.
    let photograph = fs::read(place.image(3)).unwrap();
    fs::remove_file(place.image(3)).unwrap();
    place.resume(&["--iterations=6"]).done();
    fs::write(place.image(3), photograph).unwrap();
    let third = list(&place, "view_003.png\n");
    refused(&place, &[&third], &["view_003.png"]);
    place.resume(&["--iterations=8", &third]).refused(2, &["has seen view_003.png"]);
    // From an earlier checkpoint, the view is new again.
    let start = place.checkpoint(2);
    place.train_from(&start, "model", &["--iterations=3", "--eval"]).done();
    place.run("eval", &["--iteration=3"]).done();
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
    let seen = "1 of its held-out views was trained on, for instance view_001.png";
    coarse(&[]).refused(3, &[changed, seen]);
    assert!(!place.path("coarse").exists());
    // What the model has seen is in the record of the next.
    fs::remove_file(place.image(1)).unwrap();
    place.resume(&["--iterations=3", "--eval=false"]).done();
    coarse(&["--eval=false"]).done();
    let record = place.read("coarse/trained_views.json");
    assert!(record.contains("view_001.png") && !record.contains("view_000.png"), "{record}");
}

#[test]
fn folders_without_a_record_work_and_one_that_is_damaged_is_named() {
    let place = with_model(2, &[]);
    let record = place.model().join("trained_views.json");
    for content in ["", "[]", "{\"view_000.png\": -1}"] {
        fs::write(&record, content).unwrap();
        let parts = [text(&record), "cannot be used", "Restore it, or remove it"];
        place.run("eval", &["--eval"]).refused(3, &parts);
        place.resume(&["--iterations=4"]).refused(3, &parts);
    }
    // As another program leaves its folder.
    fs::remove_file(&record).unwrap();
    fs::remove_file(place.model().join("config.toml")).unwrap();
    let scene = place.scene();
    let foreign = ["-s", text(&scene)];
    let own = "give the --eval, --test-views or --test-list that the model was trained with";
    place.run("eval", &foreign).refused(2, &["no view is held out", own]);
    place.run("eval", &[&foreign[..], &["--eval"]].concat()).done();
    place.run("render", &[&foreign[..], &["--eval"]].concat()).done();
    assert!(Path::new(&place.model().join("test/ours_2/renders/00000.png")).exists());
}

#[test]
fn figures_of_held_out_views_go_where_these_are_trained_on() {
    let place = with_model(2, &["--eval"]);
    let metrics = || place.json("model/summary.json")["metrics"].clone();
    let before = metrics();
    assert!(before["test"]["psnr"].is_f64(), "{before}");
    place.resume(&["--iterations=4", "--test-iterations=-1"]).done();
    assert_eq!(metrics()["test"]["iteration"], 4);
    place.resume(&["--iterations=6", "--eval", "false"]).done();
    let after = metrics();
    assert!(after["test"].is_null(), "{after}");
    assert_eq!(after["eval_train"]["iteration"], 6);
    // Tables keep what was measured while they were held out, by iteration.
    let results = place.json("model/results.json");
    assert!(results["ours_4"]["PSNR"].is_f64() && results["ours_6"].is_null(), "{results}");
    let shown = place.splat("compare MODEL", &[]).done().stdout;
    assert!(!shown.contains("test PSNR"), "{shown}");
}

// `splat render --depth --normals`, and the same pictures in the coarse stage's TensorBoard.

/// Distance of the disc from the camera, world units.
const DEPTH: f32 = 3.0;

/// Position and view axis of the first held-out camera, as the model folder lists it.
fn camera(place: &TestFolder) -> [[f32; 3]; 2] {
    let list = place.json("model/cameras.json");
    let first = list.as_array().unwrap().iter().find(|c| c["img_name"] == "view_000").unwrap();
    let number = |value: &Value| value.as_f64().unwrap().to_f32();
    let axis = |i: usize| number(&first["rotation"][i][2]);
    [[0, 1, 2].map(|i| number(&first["position"][i])), [0, 1, 2].map(axis)]
}

/// Discs at these depths before the camera that face it and fill its image: z is turned onto the view axis.
fn discs([position, axis]: [[f32; 3]; 2], depths: &[f32]) -> Gaussians {
    let mut model = Gaussians::zeros(0, depths.len());
    let place = |&depth: &f32| [0, 1, 2].map(|i| position[i] + depth * axis[i]);
    model.means = depths.iter().flat_map(place).collect();
    model.quats = [1.0 + axis[2], -axis[1], axis[0], 0.0].repeat(depths.len());
    model.log_scales = [3.0, 3.0, -6.0].repeat(depths.len());
    model.opacity_logits = vec![8.0; depths.len()];
    model
}

fn rendered(place: &TestFolder, flags: &[&str]) {
    place.run("render", &[&["--skip-train"][..], flags].concat()).done();
}

fn folder(place: &TestFolder) -> PathBuf {
    place.model().join("test/ours_1")
}

/// A place with a model, whose Gaussians a test replaces.
fn place_of_discs() -> TestFolder {
    with_model(1, &["--eval", "--test-iterations=-1", "--sh-degree=0"])
}

/// The values of the pixel in the middle of a picture of 16 bits a channel.
fn centre<const CHANNELS: usize>(place: &TestFolder, name: &str) -> [u16; CHANNELS] {
    let image = image::open(folder(place).join(name)).unwrap();
    assert_eq!((image.width(), image.height()), SIZE);
    assert!(matches!(image, DynamicImage::ImageLuma16(_) | DynamicImage::ImageRgb16(_)), "{name}");
    let pixel = (SIZE.1 / 2 * SIZE.0 + SIZE.0 / 2) as usize;
    let values = image.as_bytes().as_chunks::<2>().0.iter().skip(pixel * CHANNELS);
    let values: Vec<u16> = values.take(CHANNELS).map(|&value| u16::from_ne_bytes(value)).collect();
    values.try_into().unwrap()
}

/// The depth that a view has in its centre, world units, and steps of a depth a unit.
fn depth_in_centre(place: &TestFolder) -> (f64, f64) {
    let scale = place.json("model/test/ours_1/depth/scale.json");
    let steps = scale["values_per_world_unit"].as_f64().unwrap();
    let [value] = centre(place, "depth/00000.png");
    (f64::from(value) / steps, steps)
}

#[test]
fn depths_and_normals_of_a_disc_before_the_camera_are_its_own() {
    let place = place_of_discs();
    write_ply(&place.ply(1), &discs(camera(&place), &[DEPTH])).unwrap();
    rendered(&place, &["--depth", "--normals"]);
    // Half of a value is what rounding loses, the disc's centre is known to single precision.
    let (depth, steps) = depth_in_centre(&place);
    assert!((depth - f64::from(DEPTH)).abs() * steps < 0.6, "{depth}, {steps} steps a unit");
    // A thousandth of the way from -1 to 1.
    let normal: [u16; 3] = centre(&place, "normals/00000.png");
    let is_near = |(found, expected): (&u16, u16)| found.abs_diff(expected) < 66;
    assert!(normal.iter().zip([32_768, 32_768, 65_535]).all(is_near), "{normal:?}");
    let color = image::open(folder(&place).join("depth_color/00000.png")).unwrap();
    assert!(matches!(color, DynamicImage::ImageRgb8(_)));
    // Behind the camera it is in no picture.
    let [position, axis] = camera(&place);
    write_ply(&place.ply(1), &discs([position, axis.map(|a| -a)], &[DEPTH])).unwrap();
    rendered(&place, &["--depth", "--normals"]);
    for name in ["depth", "depth_color", "normals"] {
        let image = image::open(folder(&place).join(name).join("00000.png")).unwrap();
        assert!(image.as_bytes().iter().all(|&byte| byte == 0), "{name}");
    }
}

#[test]
fn median_depths_are_those_of_what_stops_half_of_the_light() {
    let place = place_of_discs();
    // The first stops 0.6 of the light, the second what is left.
    let mut model = discs(camera(&place), &[DEPTH, DEPTH + 1.0]);
    model.opacity_logits[0] = (0.6_f32 / 0.4).ln();
    write_ply(&place.ply(1), &model).unwrap();
    rendered(&place, &["--depth"]);
    let (mean, _) = depth_in_centre(&place);
    assert!((mean - 3.4).abs() < 0.01, "{mean}");
    rendered(&place, &["--depth", "--median-depth"]);
    let (median, _) = depth_in_centre(&place);
    assert!((median - f64::from(DEPTH)).abs() < 0.01, "{median}");
    // Alone the first lets most of the light pass once it is fainter.
    let mut model = discs(camera(&place), &[DEPTH]);
    model.opacity_logits[0] = (0.4_f32 / 0.6).ln();
    write_ply(&place.ply(1), &model).unwrap();
    rendered(&place, &["--depth", "--median-depth", "--normals"]);
    assert_eq!(depth_in_centre(&place).0, 0.0);
    assert_eq!(centre::<3>(&place, "normals/00000.png"), [0; 3]);
}

#[test]
fn what_is_not_asked_for_is_not_written() {
    let place = with_model(1, &["--eval", "--test-iterations=-1"]);
    let names = || -> BTreeSet<String> {
        let entries = fs::read_dir(folder(&place)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    rendered(&place, &[]);
    assert_eq!(names(), ["gt", "renders"].map(str::to_owned).into());
    rendered(&place, &["--normals"]);
    assert_eq!(names(), ["gt", "normals", "renders"].map(str::to_owned).into());
}

#[test]
fn evaluations_of_the_coarse_stage_show_depths_and_normals() {
    let place = TestFolder::with_scene();
    let stage = ["--regularize=density", "--sugar-iterations=20", "--n-samples-for-sdf=100"];
    // Opaque from the beginning, so that the prune before the stage leaves them.
    let often =
        words::<7>("--eval --init-opacity=0.8 --regularity-knn=4 --test-iterations 5 10 20");
    place.trained(10, &[&stage[..], &often].concat());
    let tags = steps_of_tags(&events_files(&place.model())[0]);
    // The first shows what the stage begins with.
    for tag in ["depth", "normals"] {
        assert_eq!(tags[&format!("test/view_000.png/{tag}")], [10, 20, 30], "{tag}");
    }
    assert_eq!(tags["test/view_000.png/density"], [5, 10, 20, 30]);
}

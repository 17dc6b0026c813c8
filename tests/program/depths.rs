//! `--depths`: what training does with inverse depths, and what is said where they are wrong.

use std::fs;

use crate::common::program::{SIZE, TestFolder, VIEWS, end, splat, text};
use image::{ImageBuffer, Luma};
use serde_json::{Value, json};

const PARAMETERS: &str = "sparse/0/depth_params.json";

/// The tiny scene with maps of an even inverse depth for these views: 0.5 per world unit.
fn scene_with_depths(views: impl Iterator<Item = usize>) -> TestFolder {
    let place = TestFolder::with_scene();
    fs::create_dir(place.scene().join("depths")).unwrap();
    let mut parameters = serde_json::Map::new();
    for number in views {
        let name = format!("view_{number:03}");
        let map = ImageBuffer::from_pixel(SIZE.0, SIZE.1, Luma([16_384_u16]));
        map.save(place.scene().join(format!("depths/{name}.png"))).unwrap();
        parameters.insert(name, json!({"scale": 1.2, "offset": 0.2}));
    }
    let text = serde_json::to_string(&Value::Object(parameters)).unwrap();
    fs::write(place.scene().join(PARAMETERS), text).unwrap();
    place
}

#[test]
fn views_with_a_map_report_their_error_and_it_falls() {
    let place = scene_with_depths(0..VIEWS - 1);
    // So much that colours hardly matter: over the black of the photographs both want the same.
    let flags = ["-d", "depths", "--depth-l1-weight-init=50", "--depth-l1-weight-final=50"];
    let ended = place.trained(120, &flags);
    assert!(ended.stderr.contains("1 of 8 photographs are trained without"), "{}", ended.stderr);
    let steps = place.steps();
    let errors: Vec<f64> = steps.iter().filter_map(|step| step["depth_l1"].as_f64()).collect();
    assert!(errors.len() < steps.len() || steps.len() < VIEWS, "all views have maps");
    let (first, last) = (errors[0], errors[errors.len() - 1]);
    assert!(last < 0.7 * first, "{errors:?}");
    // Looking at the model takes no maps.
    fs::remove_dir_all(place.scene().join("depths")).unwrap();
    end(splat().args(["render", "--device", "cpu", "-m", text(&place.model())])).done();
}

#[test]
fn without_the_option_nothing_is_compared() {
    let place = scene_with_depths(0..VIEWS);
    place.trained(5, &[]);
    let steps = place.steps();
    assert!(!steps.is_empty() && steps.iter().all(|step| step.get("depth_l1").is_none()));
}

#[test]
fn weights_of_zero_train_as_without_maps() {
    let place = scene_with_depths(0..VIEWS);
    place.trained_into("without", 5, &[]);
    let off = ["--depth-l1-weight-init", "0", "--depth-l1-weight-final", "0"];
    place.trained(5, &[&["-d", "depths"], &off[..]].concat());
    let plies = [place.ply_of("without", 5), place.ply(5)].map(|ply| fs::read(ply).unwrap());
    assert!(plies[0] == plies[1], "the maps changed the model");
}

#[test]
fn what_is_wrong_is_named_with_a_remedy() {
    let place = scene_with_depths(0..VIEWS);
    let train = |flags: &[&str]| end(place.train().args(["--iterations", "2"]).args(flags));
    train(&["-d", "nowhere"]).refused(3, &["nowhere", "no such folder", "-d"]);
    fs::write(place.scene().join(PARAMETERS), "{\"view_000\": {\"scale\": []}}").unwrap();
    train(&["-d", "depths"]).refused(3, &["depth_params.json", "\"scale\": 1.0"]);
    fs::remove_file(place.scene().join(PARAMETERS)).unwrap();
    train(&["-d", "depths"]).refused(3, &["depth_params.json", "make_depth_scale.py"]);
}

#[test]
fn a_damaged_map_costs_its_view_and_a_warning() {
    let place = scene_with_depths(0..VIEWS);
    let colours = image::RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| {
        image::Rgb([u8::try_from(x).unwrap(), u8::try_from(y).unwrap(), 0])
    });
    colours.save(place.scene().join("depths/view_003.png")).unwrap();
    let ended = place.trained(12, &["-d", "depths"]);
    for part in ["depths/view_003.png", "is no depth map", "The view is left out"] {
        assert!(ended.stderr.contains(part), "no `{part}` in {}", ended.stderr);
    }
}

#[test]
fn a_plan_counts_the_maps() {
    let place = scene_with_depths(0..VIEWS);
    let plan = |flags: &[&str]| -> Value {
        let flags = [&["--gaussians", "5000", "--json"], flags].concat();
        let ended = end(splat().args(["plan", "-s", text(&place.scene())]).args(flags)).done();
        serde_json::from_str(&ended.stdout).unwrap()
    };
    let bytes = |report: &Value, label: &str| -> u64 {
        let stages = report["stages"].as_array().unwrap();
        let iteration = stages.iter().find(|stage| stage["name"] == "iteration").unwrap();
        let rows = iteration["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["label"] == label);
        row.map_or(0, |row| row["bytes"].as_u64().unwrap())
    };
    let (without, with) = (plan(&[]), plan(&["-d", "depths"]));
    let map = u64::from(SIZE.0 * SIZE.1) * 4;
    for label in ["inverse depths", "gradient of inverse depths"] {
        assert_eq!((bytes(&without, label), bytes(&with, label)), (0, map), "{label}");
    }
}

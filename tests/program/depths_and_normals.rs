//! `splat render --depth --normals`, and the same pictures in the coarse stage's TensorBoard.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::events::{events_files, steps_of_tags};
use crate::common::program::{SIZE, TestFolder, end, splat};
use image::DynamicImage;
use serde_json::Value;
use splat::export::write_ply;
use splat::math::Real;
use splat::model::Gaussians;

/// How far in front of the camera the disc is, world units.
const DEPTH: f32 = 3.0;

/// Position and view axis of the first held-out camera, as the model folder lists it.
fn camera(place: &TestFolder) -> [[f32; 3]; 2] {
    let list: Value =
        serde_json::from_slice(&fs::read(place.model().join("cameras.json")).unwrap()).unwrap();
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
    let mut render = splat();
    render.args(["render", "--skip-train", "--device=cpu", "-m"]).arg(place.model()).args(flags);
    end(&mut render).done();
}

fn folder(place: &TestFolder) -> PathBuf {
    place.model().join("test/ours_1")
}

fn centre(path: &Path) -> (usize, DynamicImage) {
    let image = image::open(path).unwrap();
    assert_eq!((image.width(), image.height()), SIZE);
    ((SIZE.1 / 2 * SIZE.0 + SIZE.0 / 2) as usize, image)
}

#[test]
fn depths_and_normals_of_a_disc_before_the_camera_are_its_own() {
    let place = TestFolder::with_scene();
    place.trained(1, &["--eval", "--test-iterations=-1", "--sh-degree=0"]);
    write_ply(&place.ply(1), &discs(camera(&place), &[DEPTH])).unwrap();
    rendered(&place, &["--depth", "--normals"]);

    let scale: Value =
        serde_json::from_slice(&fs::read(folder(&place).join("depth/scale.json")).unwrap())
            .unwrap();
    let factor = scale["values_per_world_unit"].as_f64().unwrap();
    let (at, depth) = centre(&folder(&place).join("depth/00000.png"));
    let DynamicImage::ImageLuma16(depth) = depth else { panic!("not 16 bits of grey") };
    // Half of a value is what rounding loses, the disc's centre is known to single precision.
    let value = f64::from(depth.as_raw()[at]);
    assert!((value - f64::from(DEPTH) * factor).abs() < 0.6, "{value} of {scale}");

    let (at, normals) = centre(&folder(&place).join("normals/00000.png"));
    let DynamicImage::ImageRgb16(normals) = normals else { panic!("not 16 bits of colour") };
    let normal = &normals.as_raw()[3 * at..3 * at + 3];
    // A thousandth of the way from -1 to 1.
    let close = |value: u16, expected: u16| value.abs_diff(expected) < 66;
    assert!(close(normal[0], 32_768) && close(normal[1], 32_768), "{normal:?}");
    assert!(close(normal[2], 65_535), "{normal:?}");
    let (_, color) = centre(&folder(&place).join("depth_color/00000.png"));
    assert!(matches!(color, DynamicImage::ImageRgb8(_)));
}

/// The depth that a view has in its centre, world units.
fn depth_in_centre(place: &TestFolder) -> f64 {
    let scale = fs::read(folder(place).join("depth/scale.json")).unwrap();
    let scale: Value = serde_json::from_slice(&scale).unwrap();
    let (at, depth) = centre(&folder(place).join("depth/00000.png"));
    let DynamicImage::ImageLuma16(depth) = depth else { panic!("not 16 bits of grey") };
    f64::from(depth.as_raw()[at]) / scale["values_per_world_unit"].as_f64().unwrap()
}

#[test]
fn median_depths_are_those_of_what_stops_half_of_the_light() {
    let place = TestFolder::with_scene();
    place.trained(1, &["--eval", "--test-iterations=-1", "--sh-degree=0"]);
    // The first stops 0.6 of the light, the second what is left.
    let mut model = discs(camera(&place), &[DEPTH, DEPTH + 1.0]);
    model.opacity_logits[0] = (0.6_f32 / 0.4).ln();
    write_ply(&place.ply(1), &model).unwrap();
    rendered(&place, &["--depth"]);
    let mean = depth_in_centre(&place);
    assert!((mean - 3.4).abs() < 0.01, "{mean}");
    rendered(&place, &["--depth", "--median-depth"]);
    let median = depth_in_centre(&place);
    assert!((median - f64::from(DEPTH)).abs() < 0.01, "{median}");
    // Alone the first lets most of the light pass once it is fainter.
    let mut model = discs(camera(&place), &[DEPTH]);
    model.opacity_logits[0] = (0.4_f32 / 0.6).ln();
    write_ply(&place.ply(1), &model).unwrap();
    rendered(&place, &["--depth", "--median-depth", "--normals"]);
    assert_eq!(depth_in_centre(&place), 0.0);
    let (at, normals) = centre(&folder(&place).join("normals/00000.png"));
    let DynamicImage::ImageRgb16(normals) = normals else { panic!("not 16 bits of colour") };
    assert_eq!(normals.as_raw()[3 * at..3 * at + 3], [0; 3]);
}

#[test]
fn where_nothing_is_drawn_depths_and_normals_are_0() {
    let place = TestFolder::with_scene();
    place.trained(1, &["--eval", "--test-iterations=-1", "--sh-degree=0"]);
    let [position, axis] = camera(&place);
    write_ply(&place.ply(1), &discs([position, axis.map(|a| -a)], &[DEPTH])).unwrap();
    rendered(&place, &["--depth", "--normals"]);
    for name in ["depth", "depth_color", "normals"] {
        let image = image::open(folder(&place).join(name).join("00000.png")).unwrap();
        assert!(image.as_bytes().iter().all(|&byte| byte == 0), "{name}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_written() {
    let place = TestFolder::with_scene();
    place.trained(1, &["--eval", "--test-iterations=-1"]);
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
    let often = [
        "--eval",
        "--init-opacity=0.8",
        "--regularity-knn=4",
        "--test-iterations",
        "5",
        "10",
        "20",
    ];
    place.trained(10, &[&stage[..], &often].concat());
    let tags = steps_of_tags(&events_files(&place.model())[0]);
    // The first shows what the stage begins with.
    for tag in ["depth", "normals"] {
        assert_eq!(tags[&format!("test/view_000.png/{tag}")], [10, 20, 30], "{tag}");
    }
    assert_eq!(tags["test/view_000.png/density"], [5, 10, 20, 30]);
}

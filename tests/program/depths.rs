//! `--depths`: what training does with inverse depths, and what is said where they are wrong.

use std::fs;
use std::path::Path;

use image::{DynamicImage, ImageBuffer, Luma, Rgb, RgbImage};
use rstest::rstest;
use serde_json::{Value, json};
use splat::config::{Config, SceneOptions};
use splat::dataset::{Dataset, View};
use splat::math::Real;
use splat::math::linalg::{add, cross, dot, mul, mul_transposed, normalize, scale, sub};
use splat::synth::{SynthOptions, SynthScene};
use splat::train::forecast::{full_size, photographs};

use crate::common::program::{SIZE, TestFolder, VIEWS, end};
use crate::common::synthetic::write_synthetic;

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
    fs::write(place.scene().join("sparse/0/depth_params.json"), text).unwrap();
    place
}

#[test]
fn views_with_a_map_report_their_error_and_it_falls() {
    let place = scene_with_depths(0..VIEWS - 1);
    // So much that colours hardly matter: over the black of the photographs both want the same.
    let flags = ["-d", "depths", "--depth-l1-weight-init=50", "--depth-l1-weight-final=50"];
    place.trained(120, &flags).says(&["1 of 8 photographs are trained without"]);
    let steps = place.events("model", "step");
    let errors: Vec<f64> = steps.iter().filter_map(|step| step["depth_l1"].as_f64()).collect();
    assert!(errors.len() < steps.len() || steps.len() < VIEWS, "all views have maps");
    let (first, last) = (errors[0], errors[errors.len() - 1]);
    assert!(last < 0.7 * first, "{errors:?}");
    // Looking at the model takes no maps.
    fs::remove_dir_all(place.scene().join("depths")).unwrap();
    place.run("render", &[]).done();
}

#[test]
fn without_the_option_nothing_is_compared() {
    let place = scene_with_depths(0..VIEWS);
    place.trained(5, &[]);
    let steps = place.events("model", "step");
    assert!(!steps.is_empty() && steps.iter().all(|step| step.get("depth_l1").is_none()));
}

#[test]
fn a_damaged_map_costs_its_view_and_a_warning() {
    let place = scene_with_depths(0..VIEWS);
    let colours = RgbImage::from_fn(SIZE.0, SIZE.1, |x, y| {
        Rgb([u8::try_from(x).unwrap(), u8::try_from(y).unwrap(), 0])
    });
    colours.save(place.scene().join("depths/view_003.png")).unwrap();
    place.trained(12, &["-d", "depths"]).says(&[
        "depths/view_003.png",
        "is no depth map",
        "The view is left out",
    ]);
}

/// The largest planned sizes of inverse depths and of their gradient.
fn planned_bytes(place: &TestFolder, flags: &[&str]) -> [u64; 2] {
    let report = place.plan(&[&["--gaussians=5000"], flags].concat());
    ["inverse depths", "gradient of inverse depths"].map(|label| {
        let stages = report["stages"].as_array().unwrap();
        let rows = stages.iter().flat_map(|stage| stage["rows"].as_array().unwrap());
        let all = rows.filter(|row| row["label"] == label);
        all.map(|row| row["bytes"].as_u64().unwrap()).max().unwrap_or(0)
    })
}

#[test]
fn a_plan_counts_the_maps() {
    let place = scene_with_depths(0..VIEWS);
    let [without, with] = [&[][..], &["-d", "depths"]].map(|flags| planned_bytes(&place, flags));
    let map = u64::from(SIZE.0 * SIZE.1) * 4;
    assert_eq!((without, with), ([0; 2], [map; 2]));
}

// `--normals`: what training does with maps of normals, and what is said where they are wrong.

/// The normal, in the scene's axes, of the ball of radius 1 that a view shows in a pixel.
fn normal_of_ball(view: &View, pixel: [u32; 2]) -> Option<[f64; 3]> {
    let camera = &view.camera;
    let ray =
        [0, 1].map(|i| (f64::from(pixel[i]) + 0.5 - camera.centre_px[i]) / camera.focal_px[i]);
    let centre = view.pose.centre_world();
    let direction = normalize(mul_transposed(&view.pose.rotation, [ray[0], ray[1], 1.0]));
    let middle = -dot(centre, direction);
    let squared = 1.0 - (dot(centre, centre) - middle * middle);
    (squared > 0.0).then(|| add(centre, scale(direction, middle - squared.sqrt())))
}

/// The colour by which a map stores a normal.
fn colour(normal: Option<[f64; 3]>) -> Rgb<u8> {
    let value = |n: f64| u8::try_from((127.5 * (n + 1.0) + 0.5).floor_i32()).unwrap();
    Rgb(normal.map_or([0; 3], |normal| normal.map(value)))
}

/// Writes a map for each of these views.
fn write_maps<'a>(
    folder: &Path,
    views: impl Iterator<Item = &'a View>,
    normal: impl Fn(&View, [u32; 2]) -> Option<[f64; 3]>,
) {
    fs::create_dir(folder).unwrap();
    for view in views {
        let (width, height) = (view.camera.width, view.camera.height);
        let map = RgbImage::from_fn(width, height, |x, y| colour(normal(view, [x, y])));
        map.save(folder.join(Path::new(&view.name).with_extension("png"))).unwrap();
    }
}

/// The ball, seen from all around, and its views.
fn ball() -> (TestFolder, Dataset) {
    let place = TestFolder::empty();
    let scene = SynthScene::Sphere;
    let options =
        SynthOptions { scene, views: 24, width: 64, height: 48, points: 150, ..Default::default() };
    write_synthetic(&place.scene(), &options);
    let source_path = Some(place.scene());
    let dataset =
        Dataset::load(&SceneOptions { source_path, eval: true, ..Default::default() }).unwrap();
    (place, dataset)
}

/// Mean of 1 - cos between the normals of the depths that the held-out views show and the
/// ball's, away from its outline.
fn disagreement(place: &TestFolder, model: &str, dataset: &Dataset) -> f64 {
    place.splat("render --skip-train --depth --device=cpu -m", &[model]).done();
    let test = fs::read_dir(place.path(model).join("test")).unwrap().next().unwrap().unwrap();
    let folder = test.path().join("depth");
    let scale_of: Value =
        serde_json::from_slice(&fs::read(folder.join("scale.json")).unwrap()).unwrap();
    let unit = scale_of["values_per_world_unit"].as_f64().unwrap();
    let mut found = Vec::new();
    for (number, &index) in dataset.test.iter().enumerate() {
        let view = &dataset.views[index];
        let image = image::open(folder.join(format!("{number:05}.png"))).unwrap();
        let DynamicImage::ImageLuma16(depths) = image else { panic!("not 16 bits of grey") };
        let camera = &view.camera;
        let point = |pixel: [u32; 2]| {
            let depth = f64::from(depths.get_pixel(pixel[0], pixel[1])[0]) / unit;
            let [x, y] = [0, 1]
                .map(|i| (f64::from(pixel[i]) + 0.5 - camera.centre_px[i]) / camera.focal_px[i]);
            scale([x, y, 1.0], depth)
        };
        for (x, y) in (1..63).flat_map(|x| (1..47).map(move |y| (x, y))) {
            let expected = normal_of_ball(view, [x, y]).map(|n| mul(&view.pose.rotation, n));
            let Some(expected) = expected.filter(|normal| normal[2] < -0.6) else { continue };
            let down = sub(point([x, y + 1]), point([x, y - 1]));
            let right = sub(point([x + 1, y]), point([x - 1, y]));
            found.push(1.0 - dot(normalize(cross(down, right)), expected));
        }
    }
    assert!(found.len() > 500, "{} pixels of the ball", found.len());
    found.iter().sum::<f64>() / found.len() as f64
}

#[test]
fn depths_get_the_normals_of_the_maps_whatever_axes_these_are_in() {
    let (place, dataset) = ball();
    let trained = || dataset.train.iter().map(|&index| &dataset.views[index]);
    let in_camera = |view: &View, pixel| {
        normal_of_ball(view, pixel).map(|normal| mul(&view.pose.rotation, normal))
    };
    let folder = |name| place.scene().join(name);
    write_maps(&folder("world"), trained(), normal_of_ball);
    write_maps(&folder("camera"), trained(), in_camera);
    let turned = |view: &View, pixel, signs: [f64; 3]| {
        in_camera(view, pixel).map(|normal| [0, 1, 2].map(|axis| signs[axis] * normal[axis]))
    };
    write_maps(&folder("opengl"), trained(), |view, at| turned(view, at, [1.0, -1.0, -1.0]));
    write_maps(&folder("inverted"), trained(), |view, at| turned(view, at, [-1.0; 3]));
    let flags = ["--eval", "--test-iterations=-1", "--sh-degree=0", "--lambda-dssim=0.2"];
    place.trained_into("without", 300, &flags);
    let without = disagreement(&place, "without", &dataset);
    for frame in ["camera", "opengl", "inverted", "world"] {
        let normals = ["--lambda-normals-super=0.3", "--normals-from-iter=50", "--normals", frame];
        let axes = format!("--normals-frame={frame}");
        let all = [&flags[..], &normals, &[axes.as_str()]].concat();
        place.trained_into(frame, 300, &all);
        let with = disagreement(&place, frame, &dataset);
        assert!(with < 0.5 * without, "{frame}: {with}, without maps {without}");
    }
}

/// The tiny scene with maps that face the camera for these views.
fn scene_with_normals(views: impl Iterator<Item = usize>) -> TestFolder {
    let place = TestFolder::with_scene();
    fs::create_dir(place.scene().join("normals")).unwrap();
    for number in views {
        let map = RgbImage::from_pixel(SIZE.0, SIZE.1, Rgb([128, 128, 0]));
        map.save(place.scene().join(format!("normals/view_{number:03}.png"))).unwrap();
    }
    place
}

#[test]
fn views_with_a_map_report_their_error_from_a_given_iteration_on() {
    let place = scene_with_normals(0..VIEWS - 1);
    let flags = ["--normals=normals", "--normals-from-iter=20"];
    place.trained(60, &flags).says(&["1 of 8 photographs are trained without"]);
    let steps = place.events("model", "step");
    let with: Vec<u64> = steps
        .iter()
        .filter(|step| step["normals"].as_f64().is_some_and(|normals| normals > 0.0))
        .map(|step| step["iteration"].as_u64().unwrap())
        .collect();
    let is_early = |step: &Value| step["iteration"].as_u64().unwrap() <= 20;
    assert!(steps.iter().any(is_early) && !with.is_empty(), "{with:?} of {}", steps.len());
    assert!(with.iter().all(|&iteration| iteration > 20), "{with:?}");
    // Looking at the model takes no maps.
    fs::remove_dir_all(place.scene().join("normals")).unwrap();
    place.run("render", &[]).done();
}

#[rstest]
#[case::depths(
    scene_with_depths(0..VIEWS),
    &["-d", "depths"],
    &["--depth-l1-weight-init", "0", "--depth-l1-weight-final", "0"],
)]
#[case::normals(
    scene_with_normals(0..VIEWS),
    &["--normals=normals", "--normals-from-iter=0"],
    &["--lambda-normals-super=0"],
)]
fn weights_of_zero_train_as_without_maps_and_others_do_not(
    #[case] place: TestFolder,
    #[case] maps: &[&str],
    #[case] zero: &[&str],
) {
    place.trained_into("without", 5, &[]);
    place.trained_into("off", 5, &[maps, zero].concat());
    place.assert_same(["without", "off"], 5);
    place.trained_into("on", 5, maps);
    assert!(place.ply_bytes("without", 5) != place.ply_bytes("on", 5), "the maps change nothing");
}

#[test]
fn maps_that_count_after_the_end_of_the_run_are_said_to_have_no_effect() {
    let place = scene_with_normals(0..VIEWS);
    let ended = place.trained(2, &["--normals=normals", "--normals-from-iter=2"]);
    ended.says(&["--normals has no effect", "--normals-from-iter"]);
    place.trained(2, &["--normals=normals", "--normals-from-iter=1"]).omits(&["no effect"]);
}

#[test]
fn maps_in_other_axes_than_was_said_stop_the_run() {
    let place = scene_with_normals(0..VIEWS);
    let flags = ["--iterations=12", "--normals=normals", "--normals-frame=opengl"];
    let ended = end(place.train().args(flags));
    ended.refused(3, &["100 % of its normals point away from the camera", "--normals-frame"]);
}

#[test]
fn a_run_goes_on_with_its_normals() {
    let place = scene_with_normals(0..VIEWS);
    place.trained(12, &["--normals=normals", "--normals-from-iter=20"]);
    let is_compared = |step: &Value| step["normals"].as_f64().is_some_and(|sum| sum > 0.0);
    assert!(!place.events("model", "step").iter().any(is_compared));
    end(place.train().args(["--resume=auto", "--iterations=40"])).done();
    assert!(place.events("model", "step").iter().any(is_compared));
}

#[test]
fn a_map_that_is_none_costs_its_term_and_a_warning() {
    let place = scene_with_normals(0..VIEWS);
    let grey = image::GrayImage::from_pixel(SIZE.0, SIZE.1, Luma([9]));
    grey.save(place.scene().join("normals/view_003.png")).unwrap();
    let narrow = RgbImage::from_pixel(SIZE.1, SIZE.0, Rgb([128, 128, 0]));
    narrow.save(place.scene().join("normals/view_004.png")).unwrap();
    let ended = place.trained(12, &["--normals=normals", "--normals-from-iter=0"]);
    ended
        .says(&["2 of 8 photographs are trained without", "view_003.png: is no normal map"])
        .says(&["normals/view_004.png", "the normal map has 36x48 px", "48x36"])
        .omits(&["view is left out"]);
}

#[test]
fn a_plan_counts_the_normals() {
    let place = scene_with_normals(0..VIEWS);
    let [without, with] =
        [&[][..], &["--normals", "normals"]].map(|flags| planned_bytes(&place, flags));
    let pixels = u64::from(SIZE.0 * SIZE.1);
    assert_eq!((without, with), ([0; 2], [4 * pixels; 2]));
    let options = |normals: Option<&str>| {
        let mut config = Config::default();
        config.scene.source_path = Some(place.scene());
        config.optimize.normals = normals.map(str::to_owned);
        config
    };
    let datasets =
        [None, Some("normals")].map(|normals| Dataset::load_to_train(&options(normals)).unwrap());
    let photographs = datasets.each_ref().map(|dataset| photographs(dataset).trained);
    assert_eq!(photographs, [vec![3 * pixels; VIEWS], vec![6 * pixels; VIEWS]]);
    assert_eq!(full_size(&datasets[1]), vec![6 * pixels; VIEWS]);
}

//! Reading scenes that are written into temporary folders.

use std::fs;
use std::path::{Path, PathBuf};

use image::{Rgb, RgbImage};
use splat::config::SceneOptions;
use splat::dataset::colmap::{self, TrackedPoint};
use splat::dataset::points_ply::write_points_ply;
use splat::dataset::{AlphaMeaning, Camera, Dataset, Frame, PointCloud, Pose, View};
use splat::math::Real as _;
use tempfile::TempDir;

use crate::common::synthetic::real_scenes;

/// Odd and different, so that mistaking one for another shows.
const WIDTH: u32 = 37;
const HEIGHT: u32 = 23;

fn camera() -> Camera {
    Camera { width: WIDTH, height: HEIGHT, focal_px: [41.5, 43.25], centre_px: [18.25, 11.75] }
}

/// Returns a camera at `x` turned by `angle` about the vertical.
fn view(name: &str, angle: f64, x: f64) -> View {
    let (sin, cos) = angle.sin_cos();
    let rotation = [[cos, 0.0, sin], [0.0, 1.0, 0.0], [-sin, 0.0, cos]];
    // -R (x, 0, 0)
    let translation = [-cos * x, 0.0, sin * x];
    View { name: name.to_owned(), camera: camera(), pose: Pose { rotation, translation } }
}

fn points() -> PointCloud {
    PointCloud {
        positions: vec![[1.0, -2.5, 3.25], [4.0, 5.5, -6.125]],
        colors: vec![[10, 20, 30], [40, 50, 255]],
    }
}

fn untracked(points: &PointCloud) -> Vec<TrackedPoint> {
    let points = points.positions.iter().zip(&points.colors);
    let point = |(position, &color): (&[f32; 3], &[u8; 3])| TrackedPoint {
        position: position.map(f64::from),
        color,
        error_px: -1.0,
        track: Vec::new(),
    };
    points.map(point).collect()
}

fn write_image(path: &Path, width: u32, height: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    RgbImage::from_pixel(width, height, Rgb([90, 60, 30])).save(path).unwrap();
}

/// Writes a COLMAP scene with these images, in this order.
fn scene(names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let views: Vec<View> =
        names.iter().enumerate().map(|(i, name)| view(name, 0.1 * i as f64, i as f64)).collect();
    colmap::write_colmap(&folder.path().join("sparse/0"), &views, &untracked(&points())).unwrap();
    for name in names {
        write_image(&folder.path().join("images").join(name), WIDTH, HEIGHT);
    }
    folder
}

fn options(scene: &Path) -> SceneOptions {
    SceneOptions { source_path: Some(scene.to_owned()), ..Default::default() }
}

fn load(scene: &Path) -> Dataset {
    Dataset::load(&options(scene)).unwrap()
}

fn refused(scene: &Path, parts: &[&str]) {
    refused_with(&options(scene), parts);
}

fn refused_with(options: &SceneOptions, parts: &[&str]) {
    let error = Dataset::load(options).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
}

fn warned(dataset: &Dataset, parts: &[&str]) {
    for part in parts {
        assert!(dataset.warnings[0].contains(part), "{part}: {:?}", dataset.warnings);
    }
}

fn names(dataset: &Dataset) -> Vec<&str> {
    dataset.views.iter().map(|view| view.name.as_str()).collect()
}

#[test]
fn a_written_scene_is_read_back_sorted_by_name() {
    let folder = scene(&["b.png", "left/a.png", "a.png"]);
    let dataset = load(folder.path());
    assert_eq!(names(&dataset), ["a.png", "b.png", "left/a.png"]);
    assert_eq!(dataset.points, points());
    assert_eq!((dataset.train.len(), dataset.test.len()), (3, 0));
    assert!(dataset.warnings.is_empty(), "{:?}", dataset.warnings);
    for (name, i) in [("b.png", 0.0), ("left/a.png", 1.0), ("a.png", 2.0)] {
        let read = dataset.views.iter().find(|view| view.name == name).unwrap();
        let written = view(name, 0.1 * i, i);
        assert_eq!(read.camera, written.camera);
        assert_eq!(read.pose.translation, written.pose.translation);
        let (read, written) = (read.pose.rotation, written.pose.rotation);
        for (a, b) in read.iter().flatten().zip(written.iter().flatten()) {
            // A rotation passes through a quaternion: a few roundings.
            assert!((a - b).abs() < 1e-15);
        }
    }
    let source = &dataset.sources[2];
    assert_eq!(source.path, folder.path().join("images/left/a.png"));
    assert_eq!((source.full_size, source.size), ([WIDTH, HEIGHT], [WIDTH, HEIGHT]));
    assert_eq!((source.alpha, source.undistort.is_none()), (AlphaMeaning::Mask, true));
    // Cameras at 0, 1 and 2 on the x axis: the farthest is 1 from the mean.
    assert!((dataset.extent() - 1.1).abs() < 1e-12, "{}", dataset.extent());
    assert_eq!(splat::train::near(&dataset), 0.01 * dataset.extent());
    let distance = dataset.viewing_distance().min(dataset.extent());
    assert!(distance > 0.1, "{distance}");
    let with_share = SceneOptions { near_share: 0.5, ..options(folder.path()) };
    let mut nearer = Dataset::load(&with_share).unwrap();
    nearer.points.positions.clear();
    assert_eq!(splat::train::near(&nearer), 0.5 * distance);
    // Half of the depth of the nearest points, if that is less.
    let View { pose, .. } = &nearer.views[nearer.train[0]];
    let ahead = |depth: f64| {
        [0, 1, 2].map(|axis| (pose.centre_world()[axis] + depth * pose.rotation[2][axis]).to_f32())
    };
    nearer.points.positions = vec![ahead(0.2)];
    assert!((splat::train::near(&nearer) - 0.1).abs() < 1e-6);
}

#[test]
fn every_nth_view_by_name_is_held_out() {
    let names: Vec<String> = (0..10).rev().map(|i| format!("{i}.png")).collect();
    let folder = scene(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let mut options = SceneOptions { eval: true, ..options(folder.path()) };
    let dataset = Dataset::load(&options).unwrap();
    assert_eq!(dataset.test, [0, 8]);
    assert_eq!(dataset.train, [1, 2, 3, 4, 5, 6, 7, 9]);
    options.test_every = 0;
    assert_eq!(Dataset::load(&options).unwrap().test, [0; 0]);
    options.test_every = 1;
    refused_with(&options, &["all of its 10 views", "--test-every"]);
}

#[test]
fn a_model_directly_in_sparse_and_text_files_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let sparse = folder.path().join("sparse");
    fs::create_dir_all(&sparse).unwrap();
    fs::write(sparse.join("cameras.txt"), "3 SIMPLE_PINHOLE 37 23 40 18 11\n").unwrap();
    fs::write(sparse.join("images.txt"), "5 1 0 0 0 1 2 3 3 a b.png\n\n").unwrap();
    fs::write(sparse.join("points3D.txt"), "1 1 2 3 4 5 6 0.5\n2 nan 2 3 4 5 6 0.5\n").unwrap();
    fs::write(sparse.join("rigs.bin"), "of no interest").unwrap();
    fs::write(sparse.join("frames.bin"), "of no interest").unwrap();
    write_image(&folder.path().join("images/a b.png"), WIDTH, HEIGHT);
    let dataset = load(folder.path());
    assert_eq!(names(&dataset), ["a b.png"]);
    assert_eq!(dataset.views[0].camera.focal_px, [40.0, 40.0]);
    assert_eq!(dataset.views[0].pose.translation, [1.0, 2.0, 3.0]);
    assert_eq!(dataset.points.positions, [[1.0, 2.0, 3.0]]);
    warned(&dataset, &["1 of its 2 points"]);

    fs::remove_file(sparse.join("points3D.txt")).unwrap();
    let dataset = load(folder.path());
    assert!(dataset.points.positions.is_empty());
    warned(&dataset, &["random places"]);
}

#[test]
fn missing_and_unreadable_photographs_are_left_out_with_a_warning() {
    let folder = scene(&["a.png", "b.png", "c.png"]);
    fs::remove_file(folder.path().join("images/a.png")).unwrap();
    fs::write(folder.path().join("images/b.png"), "not a photograph").unwrap();
    let dataset = load(folder.path());
    assert_eq!(names(&dataset), ["c.png"]);
    warned(&dataset, &["2 of 3", "a.png (not found)"]);

    fs::remove_file(folder.path().join("images/c.png")).unwrap();
    refused(folder.path(), &["none of the scene's 3", "--images"]);
    fs::remove_dir_all(folder.path().join("images")).unwrap();
    refused(folder.path(), &["images: no such folder"]);
}

#[test]
fn photographs_are_found_under_another_extension_or_in_another_folder() {
    let folder = scene(&["a.png", "deep/b.png", "left/c.png", "right/c.png"]);
    let images = folder.path().join("images");
    fs::rename(images.join("a.png"), images.join("a.JPG")).unwrap();
    fs::rename(images.join("deep/b.png"), images.join("b.png")).unwrap();
    fs::remove_file(images.join("left/c.png")).unwrap();
    let dataset = load(folder.path());
    // `right/c.png` must not stand in for `left/c.png`: two names share its base name.
    assert_eq!(names(&dataset), ["a.png", "deep/b.png", "right/c.png"]);
    let paths: Vec<PathBuf> = dataset.sources.iter().map(|source| source.path.clone()).collect();
    assert_eq!(paths, ["a.JPG", "b.png", "right/c.png"].map(|name| images.join(name)));
    warned(&dataset, &["2 photographs were found"]);
}

#[test]
fn masks_are_found_by_either_name() {
    let folder = scene(&["a.png", "left/b.png", "c.png"]);
    let masks = folder.path().join("masks");
    for mask in ["a.png.png", "a.png", "left/b.png"] {
        write_image(&masks.join(mask), WIDTH, HEIGHT);
    }
    let dataset = load(folder.path());
    let found: Vec<_> = dataset.sources.iter().map(|source| source.mask.clone()).collect();
    let expected = [Some(masks.join("a.png.png")), None, Some(masks.join("left/b.png"))];
    assert_eq!(found, expected);
    warned(&dataset, &["no mask for 1 of 3", "a.jpg.png"]);
}

#[test]
fn cameras_follow_the_photographs_size_and_the_resolution() {
    let folder = scene(&["a.png"]);
    let path = folder.path().join("images/a.png");
    write_image(&path, 2 * WIDTH, 2 * HEIGHT);
    let with = |resolution| SceneOptions { resolution, ..options(folder.path()) };
    let dataset = Dataset::load(&with(4)).unwrap();
    let (camera, source) = (dataset.views[0].camera, &dataset.sources[0]);
    assert_eq!((source.full_size, source.size), ([74, 46], [18, 12]));
    assert_eq!([camera.width, camera.height], source.size);
    let expected = 41.5 * 18.0 / 37.0;
    assert!((camera.focal_px[0] - expected).abs() < 1e-12, "{camera:?}");
    assert_eq!(Dataset::load(&with(37)).unwrap().sources[0].size, [37, 23]);
    refused_with(&with(0), &["--resolution 0"]);

    write_image(&path, WIDTH, HEIGHT + 4);
    refused(folder.path(), &["37x27", "37x23"]);
}

#[test]
fn a_distorted_camera_is_straightened() {
    let folder = scene(&["a.png"]);
    let sparse = folder.path().join("sparse/0");
    fs::remove_file(sparse.join("cameras.bin")).unwrap();
    fs::write(sparse.join("cameras.txt"), "1 SIMPLE_RADIAL 37 23 40 18.5 11.5 -0.1\n").unwrap();
    let dataset = load(folder.path());
    let source = &dataset.sources[0];
    let [width, height] = source.full_size;
    assert!(width >= WIDTH && height >= HEIGHT, "{width}x{height}");
    let undistortion = source.undistort.as_ref().unwrap();
    let centre = undistortion.source_px(dataset.views[0].camera.centre_px);
    for (found, expected) in centre.iter().zip([18.5, 11.5]) {
        assert!((found - expected).abs() < 1e-12, "{centre:?}");
    }

    for (camera, parts) in [
        ("1 FOV 37 23 40 40 18.5 11.5 0.9\n", ["FOV", "image_undistorter"]),
        ("1 PINHOLE 37 23 40 nan 18.5 11.5\n", ["camera 1", "NaN"]),
    ] {
        fs::write(sparse.join("cameras.txt"), camera).unwrap();
        refused(folder.path(), &parts);
    }
}

#[test]
fn broken_scenes_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    refused_with(&SceneOptions::default(), &["-s"]);
    refused(&folder.path().join("nowhere"), &["nowhere: there is no such folder"]);
    let file = folder.path().join("a.jpg");
    fs::write(&file, "a photograph").unwrap();
    refused(&file, &["a.jpg: is a file, not the folder of a scene"]);
    fs::remove_file(&file).unwrap();
    refused(folder.path(), &["sparse/0", "transforms.json"]);

    let folder = scene(&["a.png", "b.png"]);
    let sparse = folder.path().join("sparse/0");
    let images = fs::read(sparse.join("images.bin")).unwrap();
    fs::write(sparse.join("images.bin"), &images[..images.len() - 1]).unwrap();
    refused(folder.path(), &["images.bin", "image 2 of 2"]);
    fs::write(sparse.join("images.bin"), 0_u64.to_le_bytes()).unwrap();
    refused(folder.path(), &["no image with a pose"]);
    fs::remove_file(sparse.join("images.bin")).unwrap();
    refused(folder.path(), &["neither images.bin nor images.txt"]);

    let text = sparse.join("images.txt");
    fs::write(&text, "1 1 0 0 0 0 0 0 1 a.png\n\n2 1 0 0 0 0 0 0 1 a.png\n\n").unwrap();
    refused(folder.path(), &["\"a.png\" is listed twice"]);
    fs::write(&text, "1 1 0 0 0 0 0 0 9 a.png\n\n").unwrap();
    refused(folder.path(), &["camera 9", "images.txt"]);
    fs::write(&text, "1 nan 0 0 0 0 0 0 1 b.png\n\n2 1 0 0 0 0 0 0 1 a.png\n\n").unwrap();
    let dataset = load(folder.path());
    assert_eq!(names(&dataset), ["a.png"]);
    warned(&dataset, &["1 images with a pose"]);
}

const MATRIX: &str = "[[1,0,0,1],[0,1,0,2],[0,0,1,3],[0,0,0,1]]";

#[test]
fn blender_scenes_hold_out_their_test_file() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["train", "test"] {
        let frames = format!(
            r#"{{"camera_angle_x": 1.2, "frames": [
                {{"file_path": "./{part}/r_1", "rotation": 0.1, "transform_matrix": {MATRIX}}},
                {{"file_path": "./{part}/r_0", "transform_matrix": {MATRIX}}}]}}"#
        );
        fs::write(folder.path().join(format!("transforms_{part}.json")), frames).unwrap();
        for name in ["r_0.png", "r_1.png"] {
            write_image(&folder.path().join(part).join(name), 30, 20);
        }
    }
    let dataset = load(folder.path());
    assert_eq!(names(&dataset), ["test/r_0.png", "test/r_1.png", "train/r_0.png", "train/r_1.png"]);
    assert_eq!((dataset.train.len(), dataset.test.len()), (4, 0));
    assert_eq!(dataset.random_half_side, Some(1.3));
    assert_eq!(dataset.sources[0].alpha, AlphaMeaning::BlendOver([0.0; 3]));
    let camera = dataset.views[0].camera;
    assert!((camera.focal_px[1] - 15.0 / 0.6_f64.tan()).abs() < 1e-12, "{camera:?}");
    assert_eq!(camera.centre_px, [15.0, 10.0]);
    assert_eq!(dataset.views[0].pose.centre_world(), [1.0, 2.0, 3.0]);

    let held_out = SceneOptions { eval: true, white_background: true, ..options(folder.path()) };
    let dataset = Dataset::load(&held_out).unwrap();
    assert_eq!((dataset.train, dataset.test), (vec![2, 3], vec![0, 1]));
    assert_eq!(dataset.sources[0].alpha, AlphaMeaning::BlendOver([1.0; 3]));
}

#[test]
fn nerfstudio_scenes_are_read_with_their_overrides_points_and_masks() {
    let folder = tempfile::tempdir().unwrap();
    write_points_ply(&folder.path().join("points.ply"), &points(), &Frame::SCENE).unwrap();
    for name in ["images/a.png", "images/b.png", "masks/b.png"] {
        write_image(&folder.path().join(name), WIDTH, HEIGHT);
    }
    let json = format!(
        r#"{{"camera_model": "OPENCV", "fl_x": 40.0, "fl_y": 41.0, "cx": 18.0, "cy": 11.5,
            "w": 37, "h": 23.0, "k1": 0.0, "k2": 0.0, "p1": 0.0, "p2": 0.0,
            "ply_file_path": "points.ply", "applied_transform": [[1,0,0,0]],
            "frames": [
              {{"file_path": "images/b.png", "mask_path": "masks/b.png", "fl_x": 50.0,
                "transform_matrix": {MATRIX}}},
              {{"file_path": "images/a.png", "k1": -0.1, "transform_matrix": {MATRIX}}}]}}"#
    );
    let file = folder.path().join("transforms.json");
    fs::write(&file, &json).unwrap();
    let dataset = Dataset::load(&SceneOptions { eval: true, ..options(folder.path()) }).unwrap();
    assert_eq!(names(&dataset), ["images/a.png", "images/b.png"]);
    assert_eq!((&dataset.test, &dataset.train), (&vec![0], &vec![1]));
    assert_eq!(dataset.points, points());
    assert_eq!((dataset.random_half_side, dataset.sources[0].alpha), (None, AlphaMeaning::Mask));
    assert_eq!(dataset.views[1].camera.focal_px, [50.0, 41.0]);
    assert_eq!(dataset.sources[1].mask, Some(folder.path().join("masks/b.png")));
    assert!(dataset.sources[0].undistort.is_some() && dataset.sources[1].undistort.is_none());

    fs::remove_file(folder.path().join("masks/b.png")).unwrap();
    let dataset = load(folder.path());
    assert_eq!(dataset.sources[1].mask, None);
    warned(&dataset, &["masks/b.png"]);

    for (from, to, expected) in [
        ("\"w\": 37,", "", "no w"),
        ("\"w\": 37,", "\"w\": -3,", "w = -3"),
        ("\"OPENCV\"", "\"EQUIRECTANGULAR\"", "EQUIRECTANGULAR"),
        ("[0,1,0,2]", "[0,1,0]", "not 4x4"),
        ("\"fl_y\": 41.0", "\"fl_y\": -41.0", "focal length is -41"),
        ("\"points.ply\"", "\"images/a.png\"", "not a PLY"),
        ("{\"camera_model\"", "camera_model", "line 1"),
    ] {
        fs::write(&file, json.replace(from, to)).unwrap();
        refused(folder.path(), &[expected]);
    }
}

#[test]
fn the_real_scenes_have_their_known_counts() {
    let Some(scenes) = real_scenes() else { return };
    for (name, views, size, points, held_out) in
        [("fox", 50, [1061, 1894], 12_415, 7), ("bonsai", 292, [800, 533], 87_083, 37)]
    {
        let options = SceneOptions { eval: true, ..options(&scenes.join(name)) };
        let dataset = Dataset::load(&options).unwrap();
        let counts = (dataset.views.len(), dataset.points.positions.len());
        assert_eq!(counts, (views, points), "{name}");
        assert!(dataset.sources.iter().all(|source| source.full_size == size), "{name}");
        assert_eq!((dataset.test.len(), dataset.train.len()), (held_out, views - held_out));
        assert!(dataset.warnings.is_empty(), "{name}: {:?}", dataset.warnings);
        assert!(dataset.extent() > 0.0);
        // As gsplat's normalisation over all cameras; the held-out ones change little.
        let distance = dataset.viewing_distance();
        let expected = if name == "fox" { 3.295 } else { 4.049 };
        assert!((distance / expected - 1.0).abs() < 0.05, "{name}: {distance}");
    }
}

//! Unusual input that still trains: backgrounds, sizes, masks, scenes without points, JPEG.

use std::fs;

use crate::common::program::{SIZE, TestFolder, VIEWS, cut, end, patch, splat, text};
use image::{Rgb, RgbImage};
use rstest::rstest;
use splat::config::SceneOptions;
use splat::dataset::Dataset;

fn dataset(place: &TestFolder) -> Dataset {
    let source_path = Some(place.scene());
    Dataset::load(&SceneOptions { source_path, ..SceneOptions::default() }).unwrap()
}

#[test]
fn a_corrupt_jpeg_among_good_ones_is_passed_over() {
    let place = TestFolder::with_scene();
    for number in 0..VIEWS {
        let picture = image::open(place.image(number)).unwrap();
        let jpeg = place.image(number).with_extension("jpg");
        picture.to_rgb8().save(&jpeg).unwrap();
        fs::remove_file(place.image(number)).unwrap();
        if number == 4 {
            cut(&jpeg, 40);
        }
    }
    let images = place.scene().join("sparse/0/images.bin");
    let mut model = fs::read(&images).unwrap();
    for at in 0..model.len() - 4 {
        if &model[at..at + 4] == b".png" {
            model[at..at + 4].copy_from_slice(b".jpg");
        }
    }
    fs::write(&images, model).unwrap();
    place.trained(16, &[]).says(&["warning", "view_004.jpg"]);
}

#[test]
fn photographs_of_another_size_but_the_same_shape_train() {
    let place = TestFolder::with_scene();
    for number in 0..VIEWS {
        let picture = image::open(place.image(number)).unwrap();
        picture.thumbnail_exact(24, 18).save(place.image(number)).unwrap();
    }
    place.trained(2, &[]);
    let path = place.model().join("cameras.json");
    let cameras: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!((&cameras[0]["width"], &cameras[0]["height"]), (&24.into(), &18.into()));
}

#[rstest]
#[case::white("--white-background")]
#[case::random("--random-background")]
#[case::all_decoded("--high-dram")]
#[case::a_tiny_cache("--image-cache=1KiB")]
#[case::smaller("-r2")]
#[case::narrower("-r24")]
#[case::no_harmonics("--sh-degree=0")]
#[case::few_gaussians("--max-points=100")]
fn unusual_choices_train(#[case] flag: &str) {
    let place = TestFolder::with_scene();
    place.trained(10, &["--eval", flag]);
    let results = fs::read_to_string(place.model().join("results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&results).unwrap();
    // Far from trained, but an image: black or noise would be below.
    assert!(results["ours_10"]["PSNR"].as_f64().unwrap() > 3.0, "{results}");
}

#[test]
fn where_decoded_photographs_are_kept_does_not_change_the_result() {
    let place = TestFolder::with_scene();
    for (model, flags) in
        [("low", "--low-dram"), ("high", "--high-dram"), ("tiny", "--image-cache=1KiB")]
    {
        place.trained_into(model, 10, &[flags]);
    }
    let ply = |model| fs::read(place.ply_of(model, 10)).unwrap();
    assert!(ply("low") == ply("high") && ply("low") == ply("tiny"));
}

#[test]
fn a_scene_without_points_starts_from_random_ones() {
    let place = TestFolder::with_scene();
    fs::write(place.points(), 0_u64.to_le_bytes()).unwrap();
    place.trained(5, &["--init-num-pts", "500"]).says(&["500 random", "500 Gaussians"]);
    fs::remove_file(place.points()).unwrap();
    place.trained(5, &["--init-num-pts", "300"]).says(&["300 random"]);
}

#[rstest]
#[case::extended_name("view_000.png.png")]
#[case::same_name("view_000.png")]
fn masks_leave_pixels_out(#[case] name: &str) {
    let place = TestFolder::with_scene();
    place.trained_into("whole", 10, &[]);
    let masks = place.scene().join("masks");
    fs::create_dir(&masks).unwrap();
    let (width, height) = SIZE;
    RgbImage::from_fn(width, height, |x, _| Rgb([if x < width / 2 { 0 } else { 255 }; 3]))
        .save(masks.join(name))
        .unwrap();
    place.trained(10, &[]);
    let ply = |model| fs::read(place.ply_of(model, 10)).unwrap();
    assert!(ply("whole") != ply("model"), "the mask changes nothing");
    end(splat().args(["render", "-m"]).arg(place.model())).done();
    for kind in ["gt", "renders"] {
        let path = place.model().join(format!("train/ours_10/{kind}/00000.png"));
        let picture = image::open(path).unwrap().to_rgb8();
        assert!((0..height).all(|y| picture.get_pixel(3, y).0 == [0; 3]), "{kind}");
        assert!((0..height).any(|y| picture.get_pixel(width - 3, y).0 != [0; 3]), "{kind}");
    }
}

#[test]
fn a_transforms_scene_trains_as_its_colmap_twin() {
    let place = TestFolder::with_scene();
    place.trained_into("colmap", 2, &[]);
    let frames: Vec<serde_json::Value> = dataset(&place)
        .views
        .iter()
        .map(|view| {
            let (rotation, centre) = (view.pose.rotation, view.pose.centre_world());
            // Camera to world; OpenGL's camera has y up and z backwards.
            let row = |i: usize| [rotation[0][i], -rotation[1][i], -rotation[2][i], centre[i]];
            serde_json::json!({
                "file_path": format!("images/{}", view.name),
                "transform_matrix": [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]],
            })
        })
        .collect();
    let camera = dataset(&place).views[0].camera;
    let transforms = serde_json::json!({
        "w": camera.width, "h": camera.height,
        "fl_x": camera.focal_px[0], "fl_y": camera.focal_px[1],
        "cx": camera.centre_px[0], "cy": camera.centre_px[1],
        "frames": frames,
    });
    fs::remove_dir_all(place.scene().join("sparse")).unwrap();
    let path = place.scene().join("transforms.json");
    fs::write(&path, transforms.to_string()).unwrap();
    place.trained(5, &["--init-num-pts", "200", "--eval"]).says(&["7 views, 1 held out"]);

    let cameras = |model: &str| -> Vec<[f64; 3]> {
        let text = fs::read_to_string(place.path(model).join("cameras.json")).unwrap();
        let list: Vec<serde_json::Value> = serde_json::from_str(&text).unwrap();
        let position =
            |camera: &serde_json::Value| [0, 1, 2].map(|i| camera["position"][i].as_f64().unwrap());
        let mut found: Vec<_> =
            list.iter().map(|camera| (camera["img_name"].to_string(), position(camera))).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().map(|(_, position)| position).collect()
    };
    for (a, b) in cameras("colmap").into_iter().zip(cameras("model")) {
        // Both read doubles; only the rounding of a rotation differs.
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
    }

    fs::write(&path, &transforms.to_string()[..200]).unwrap();
    end(&mut place.train()).refused(3, &[text(&path)]);
}

/// Views of the scene side by side, as COLMAP writes them as text.
fn write_text_model(place: &TestFolder, mark: &str) {
    let sparse = place.scene().join("sparse/0");
    fs::remove_dir_all(&sparse).unwrap();
    fs::create_dir(&sparse).unwrap();
    let write = |name: &str, text: String| fs::write(sparse.join(name), mark.to_owned() + &text);
    let image = |i: usize| format!("{i} 1 0 0 0 0.{i} 0 4 3 view_{i:03}.png\n\n");
    write("cameras.txt", "3 PINHOLE 48 36 40 40 24 18\n".to_owned()).unwrap();
    write("images.txt", (0..VIEWS).map(image).collect()).unwrap();
    let point = |i: usize| format!("{i} 0.{i} 0.2 0 200 100 50 0.5\n");
    write("points3D.txt", (1..9).map(point).collect()).unwrap();
}

/// The same as nerfstudio writes them.
fn write_transforms(place: &TestFolder, mark: &str) {
    fs::remove_dir_all(place.scene().join("sparse")).ok();
    let frame = |i: usize| {
        serde_json::json!({
            "file_path": format!("images/view_{i:03}.png"),
            "transform_matrix": [[1, 0, 0, i], [0, 1, 0, 0], [0, 0, 1, 4], [0, 0, 0, 1]],
        })
    };
    let frames: Vec<_> = (0..VIEWS).map(frame).collect();
    let scene = serde_json::json!({
        "w": 48, "h": 36, "fl_x": 40, "fl_y": 40, "cx": 24, "cy": 18, "frames": frames,
    });
    fs::write(place.scene().join("transforms.json"), format!("{mark}{scene}")).unwrap();
}

#[rstest]
#[case::colmap(write_text_model as fn(&TestFolder, &str))]
#[case::nerfstudio(write_transforms as fn(&TestFolder, &str))]
fn a_byte_order_mark_before_text_is_passed_over(#[case] write: fn(&TestFolder, &str)) {
    let place = TestFolder::with_scene();
    let [plain, marked] = [("plain", ""), ("marked", "\u{feff}")].map(|(model, mark)| {
        write(&place, mark);
        place.trained_into(model, 2, &["--init-num-pts=50"]);
        fs::read(place.ply_of(model, 2)).unwrap()
    });
    assert!(plain == marked);
}

#[test]
fn a_configuration_may_begin_with_a_byte_order_mark() {
    let place = TestFolder::with_scene();
    let config = place.path("c.toml");
    fs::write(&config, "\u{feff}[optimize]\niterations = 2\n").unwrap();
    end(place.train().args(["--config", text(&config)])).done();
    assert!(place.ply(2).exists());
}

#[test]
fn control_characters_of_names_are_escaped_in_messages() {
    let place = TestFolder::with_scene();
    // COLMAP's names end with a zero, and hold anything else.
    let images = place.scene().join("sparse/0/images.bin");
    patch(&images, b"view_001.png", b"v\x1b[31m\r\n.png");
    let trained = place.trained(2, &[]).says(&[r"v\u{1b}[31m\r\n.png"]);
    assert!(trained.stderr.chars().all(|letter| letter == '\n' || !letter.is_control()));
    place.trained_into("new\nline", 1, &[]).says(&[", into ", r"new\nline"]);
    let nowhere = place.path("no\u{9b}2J\nerror: all is lost");
    let refused = end(splat().args(["train", "--device", "cpu", "-s"]).arg(&nowhere));
    let refused = refused.refused(3, &[r"no\u{9b}2J\nerror: all is lost"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:#?}");
}

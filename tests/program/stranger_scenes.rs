//! Scenes as other programs, other systems and other people write them: what means the same trains the
//! same, and what cannot be read is named.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use crate::bad_input::overwrite;
use crate::common::program::{Ended, TestFolder, VIEWS, cut, end, header, patch, put, text};
use image::{Rgb, RgbImage};
use rstest::rstest;
use serde_json::{Value, json};
use splat::dataset::points_ply::write_points_ply;
use splat::math::linalg::{quaternion, transpose};

const ITERATIONS: u32 = 30;

/// Largest difference in PSNR between scenes that mean the same, dB: rounding of poses.
const SAME_DB: f64 = 0.02;

/// Trains with held-out views, and returns their PSNR and what was said.
fn trained(place: &TestFolder, flags: &[&str]) -> (f64, Ended) {
    if place.model().exists() {
        fs::remove_dir_all(place.model()).unwrap();
    }
    let ended = place.trained(ITERATIONS, &[&["--eval"], flags].concat());
    (place.psnr("model", ITERATIONS), ended)
}

fn refused(place: &TestFolder, flags: &[&str], parts: &[&str]) {
    end(place.train().args(["--iterations", "2"]).args(flags)).refused(3, parts);
}

/// PSNR of the COLMAP scene that all others mean.
static USUAL_PSNR: LazyLock<f64> = LazyLock::new(|| trained(&TestFolder::with_scene(), &[]).0);

fn assert_usual(place: &TestFolder, flags: &[&str]) -> Ended {
    let (psnr, ended) = trained(place, flags);
    assert!((psnr - *USUAL_PSNR).abs() < SAME_DB, "{psnr} is not {}: {ended:#?}", *USUAL_PSNR);
    ended
}

/// The tiny scene as nerfstudio would write it, with its points in `p.ply`.
fn transforms(place: &TestFolder) -> Value {
    place.write_scene();
    let dataset = place.dataset();
    let frame = |view: &splat::dataset::View| {
        let (rotation, centre) = (view.pose.rotation, view.pose.centre_world());
        // Camera to world; OpenGL's camera has y up and z backwards.
        let row = |i: usize| json!([rotation[0][i], -rotation[1][i], -rotation[2][i], centre[i]]);
        json!({
            "file_path": format!("images/{}", view.name),
            "transform_matrix": [row(0), row(1), row(2), [0.0, 0.0, 0.0, 1.0]],
        })
    };
    let frames: Vec<Value> = dataset.views.iter().map(frame).collect();
    let camera = dataset.views[0].camera;
    write_points_ply(&place.scene().join("p.ply"), &dataset.points, &dataset.frame).unwrap();
    fs::remove_dir_all(place.scene().join("sparse")).unwrap();
    json!({
        "w": camera.width, "h": camera.height, "fl_x": camera.focal_px[0], "fl_y": camera.focal_px[1],
        "cx": camera.centre_px[0], "cy": camera.centre_px[1], "ply_file_path": "p.ply", "frames": frames,
    })
}

/// A scene of transforms after a change.
fn changed(change: impl Fn(&TestFolder, &mut Value)) -> TestFolder {
    let place = TestFolder::empty();
    let mut scene = transforms(&place);
    change(&place, &mut scene);
    fs::write(place.scene().join("transforms.json"), scene.to_string()).unwrap();
    place
}

fn remove(scene: &mut Value, keys: &[&str]) {
    keys.iter().for_each(|key| drop(scene.as_object_mut().unwrap().remove(*key)));
}

fn each_frame(scene: &mut Value, change: impl Fn(usize, &mut Value)) {
    let frames = scene["frames"].as_array_mut().unwrap();
    frames.iter_mut().enumerate().for_each(|(number, frame)| change(number, frame));
}

fn each_name(scene: &mut Value, name: impl Fn(&str) -> String) {
    each_frame(scene, |_, frame| {
        frame["file_path"] = name(frame["file_path"].as_str().unwrap()).into()
    });
}

/// A file of Git LFS that was not fetched.
const POINTER: &str = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";

/// A change of the tiny scene.
type Change = fn(&TestFolder, &mut Value);
/// The name of the photograph of a number.
type Name = fn(usize) -> String;

#[test]
fn the_same_scene_in_other_words_trains_the_same() {
    let cases: [(&str, Change); 6] = [
        ("no_size", |_, scene| remove(scene, &["w", "h"])),
        ("harmless_keys", |_, scene| {
            scene["applied_transform"] = json!([[1, 0, 0, 0], [0, 0, 1, 0], [0, -1, 0, 0]]);
            (scene["aabb_scale"], scene["scale"]) = (16.into(), json!(0.33));
            (scene["offset"], scene["k1"], scene["p2"]) =
                (json!([0.5, 0.5, 0.5]), 0.into(), json!(0.0));
            (scene["is_fisheye"], scene["ortho"]) = (false.into(), false.into());
            each_frame(scene, |number, frame| {
                (frame["sharpness"], frame["colmap_im_id"]) = (20.5.into(), number.into());
            });
        }),
        ("last_row_left_out", |_, scene| {
            each_frame(scene, |_, frame| {
                drop(frame["transform_matrix"].as_array_mut().unwrap().pop())
            });
        }),
        ("points_of_windows", |place, scene| {
            fs::create_dir(place.scene().join("points")).unwrap();
            fs::rename(place.scene().join("p.ply"), place.scene().join("points/p.ply")).unwrap();
            scene["ply_file_path"] = "D:\\work\\points\\p.ply".into();
        }),
        ("points_beside", |place, scene| {
            fs::rename(place.scene().join("p.ply"), place.scene().join("points3D.PLY")).unwrap();
            remove(scene, &["ply_file_path"]);
        }),
        ("no_extension", |_, scene| each_name(scene, |name| name.replace(".png", ""))),
    ];
    for (case, change) in cases {
        println!("{case}");
        assert_usual(&changed(change), &[]).omits(&["warning"]);
    }
}

#[test]
fn cameras_of_transforms_are_those_of_their_colmap_twin() {
    let twin = TestFolder::with_scene();
    twin.trained(2, &[]);
    let place = changed(|_, scene| remove(scene, &["ply_file_path"]));
    place.trained(5, &["--init-num-pts", "200", "--eval"]).says(&["7 views, 1 held out"]);
    let positions = |place: &TestFolder| {
        let cameras = place.json("model/cameras.json");
        let number = |value: &Value| value.as_f64().unwrap();
        let named = cameras.as_array().unwrap().iter().map(|camera| {
            (camera["img_name"].to_string(), [0, 1, 2].map(|i| number(&camera["position"][i])))
        });
        named.collect::<BTreeMap<String, [f64; 3]>>().into_values()
    };
    for (a, b) in positions(&twin).zip(positions(&place)) {
        // Both read doubles; only the rounding of a rotation differs.
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
    }
    let path = place.scene().join("transforms.json");
    cut(&path, 200);
    refused(&place, &[], &[text(&path)]);
}

#[test]
fn names_of_other_systems_are_found() {
    let cases: [(&str, Change); 7] = [
        ("backslashes", |_, scene| {
            each_name(scene, |name| format!(".\\{}", name.replace('/', "\\")))
        }),
        ("windows", |_, scene| {
            each_name(scene, |name| format!("C:\\Users\\me\\{}", name.replace('/', "\\")))
        }),
        ("another_home", |_, scene| each_name(scene, |name| format!("/home/other/scene/{name}"))),
        ("another_extension", |_, scene| each_name(scene, |name| name.replace(".png", ".JPG"))),
        ("another_case", |_, scene| {
            each_name(scene, |name| name.replace("images/view", "Images/VIEW"))
        }),
        ("another_unicode_form", |place, scene| {
            rename_photographs(place, |number| format!("bu\u{308}ro_{number:03}.png"));
            each_name(scene, |name| name.replace("view", "b\u{fc}ro"));
        }),
        ("photographs_without_folder", |_, scene| {
            each_name(scene, |name| name.replace("images/", ""))
        }),
    ];
    for (case, change) in cases {
        println!("{case}");
        let place = changed(change);
        assert_usual(&place, &[]).says(&["8 photographs were found under another"]);
    }
}

fn rename_photographs(place: &TestFolder, name: impl Fn(usize) -> String) {
    for number in 0..VIEWS {
        let from = place.image(number);
        fs::rename(&from, from.with_file_name(name(number))).unwrap();
    }
}

#[test]
fn text_may_be_wide() {
    let place = changed(|_, _| {});
    let path = place.scene().join("transforms.json");
    let json = fs::read_to_string(&path).unwrap();
    fs::write(&path, utf16(&json)).unwrap();
    assert_usual(&place, &[]).omits(&["warning"]);
}

#[test]
fn a_camera_that_is_not_read_is_named() {
    fn write_points(place: &TestFolder, bytes: &str) {
        fs::write(place.scene().join("p.ply"), bytes).unwrap();
    }
    let cases: [(Change, &str); 8] = [
        (|place, _| write_points(place, POINTER), "git lfs pull"),
        (|place, _| write_points(place, ""), "p.ply: line 1 of the header: the file is empty"),
        (|_, scene| scene["frames"][3]["latlong"] = true.into(), "view_003.png"),
        (|_, scene| remove(&mut scene["frames"][2], &["transform_matrix"]), "transform_matrix"),
        (|_, scene| remove(&mut scene["frames"][2], &["file_path"]), "number 2"),
        (|_, scene| scene["test_filenames"] = "a.png".into(), "test_filenames"),
        (|_, scene| scene["frames"] = json!([]), "no frames"),
        (|_, scene| scene["ply_file_path"] = "q.ply".into(), "q.ply"),
    ];
    for (change, named) in cases {
        println!("{named}");
        refused(&changed(change), &[], &[named, "scene"]);
    }
}

#[rstest]
#[case::nan("NaN")]
#[case::infinite("-Infinity")]
#[case::small_nan("nan")]
#[case::small_infinite("-inf")]
#[case::none("None")]
fn numbers_of_python_are_named_with_their_line(#[case] word: &str) {
    let place = changed(|_, scene| scene["frames"][1]["transform_matrix"][0][3] = 7777.into());
    let path = place.scene().join("transforms.json");
    let json = fs::read_to_string(&path).unwrap().replace("7777", word);
    fs::write(&path, json).unwrap();
    refused(&place, &[], &["transforms.json", "line 1", word]);
}

#[test]
fn keys_without_use_are_named() {
    let place = changed(|_, scene| {
        scene["white_transparent"] = true.into();
        each_frame(scene, |_, frame| frame["exposure_time"] = json!(0.01));
    });
    assert_usual(&place, &[]).says(&["not used: exposure_time, white_transparent"]);
}

#[test]
fn a_camera_far_from_all_others_is_named() {
    let place = changed(|_, scene| {
        scene["frames"][3]["transform_matrix"][0][3] = json!(1e9);
    });
    place.trained(2, &[]).says(&["1 of 8 cameras stand far", "view_003.png", "remove such images"]);
}

#[test]
fn a_photograph_of_two_frames_is_used_once() {
    let place = changed(|_, scene| {
        let frames = scene["frames"].as_array_mut().unwrap();
        let mut again = frames.clone();
        for frame in &mut again {
            frame["file_path"] =
                format!("./images//../{}", frame["file_path"].as_str().unwrap()).into();
        }
        frames.append(&mut again);
    });
    assert_usual(&place, &[]).says(&["8 views are left out", "twice", "7 views, 1 held out"]);
    // A link makes another name of the same file.
    let place = changed(|place, scene| {
        std::os::unix::fs::symlink(place.image(1), place.scene().join("images/again.png")).unwrap();
        let mut frame = scene["frames"][1].clone();
        frame["file_path"] = "images/again.png".into();
        scene["frames"].as_array_mut().unwrap().push(frame);
    });
    trained(&place, &[]).1.says(&["1 views are left out", "7 views, 1 held out"]);
}

#[test]
fn lists_of_file_names_choose_the_held_out_views() {
    let name = |number: usize| format!("images/view_{number:03}.png");
    let place = changed(|_, scene| {
        scene["train_filenames"] = (0..5).map(name).collect();
        scene["val_filenames"] = (5..6).map(name).collect();
        scene["test_filenames"] = (6..7).map(|number| name(number).replace('/', "\\")).collect();
    });
    let (psnr, ended) = trained(&place, &[]);
    ended.says(&["5 views, 2 held out", "1 of 8 frames are in none"]);
    let list = place.path("held_out.txt");
    fs::write(&list, "images/view_005.png\nimages/view_006.png\n").unwrap();
    let listed = changed(|_, scene| drop(scene["frames"].as_array_mut().unwrap().remove(7)));
    let expected = trained(&listed, &["--test-list", text(&list)]).0;
    assert!((psnr - expected).abs() < 1e-9, "{psnr} {expected}");
    place.trained_into("all", 2, &[]).says(&["7 views"]);
    let split = place.trained_into("split", 2, &["--eval", "--test-every=3"]);
    split.says(&["--test-every 3: not used"]);
}

#[test]
fn lists_name_frames_by_their_files_and_say_nothing_if_empty() {
    let whole = |number: usize| format!("images/view_{number:03}.png");
    let base = |number: usize| format!("view_{number:03}.png");
    let stem = |number: usize| format!("view_{number:03}");
    for name in [whole, base, stem] {
        let place = changed(|_, scene| {
            scene["train_filenames"] = (0..6).map(name).collect();
            scene["test_filenames"] = (6..8).map(name).collect();
        });
        trained(&place, &[]).1.says(&["6 views, 2 held out"]).omits(&["warning"]);
    }
    let place = changed(|_, scene| {
        (scene["train_filenames"], scene["test_filenames"]) = (json!([]), json!([]));
    });
    assert_usual(&place, &[]).omits(&["warning"]);
    // Two frames have the name.
    let place = changed(|place, scene| {
        fs::create_dir(place.scene().join("b")).unwrap();
        fs::copy(place.image(1), place.scene().join("b/view_000.png")).unwrap();
        scene["frames"][1]["file_path"] = "b/view_000.png".into();
        scene["train_filenames"] = json!(["view_000.png"]);
    });
    refused(&place, &["--eval"], &["transforms.json", "train_filenames", "none of its frames"]);
}

/// A number of a camera in each form of a scene, and what becomes of the scene.
type Intrinsic = (&'static str, f64, u8, &'static [&'static str]);

#[test]
fn numbers_that_no_camera_has_are_named_with_file_key_and_value() {
    let cases: [Intrinsic; 6] = [
        ("cx", -5000.0, 3, &["outside of a photograph of 48 px", "Give it in px"]),
        ("fl_x", 1e9, 3, &["a field of view of 2.8e-6 degrees over 48 px", "Give it in px"]),
        ("fl_y", 1e-3, 3, &["a field of view of 179.99 degrees over 36 px"]),
        ("fl_x", -40.0, 3, &["focal length", "no camera has"]),
        ("cx", 0.5, 0, &["8 of 8 cameras are unusual", "at the edge of", "Right for crops alone"]),
        ("fl_y", 200.0, 0, &["pixels that are far from square"]),
    ];
    for (key, value, code, parts) in cases {
        println!("{key} = {value}");
        // Its place in the parameters of PINHOLE.
        let place_of = ["fl_x", "fl_y", "cx", "cy"].iter().position(|it| *it == key).unwrap();
        let transforms = changed(|_, scene| scene[key] = value.into());
        let text_scene = TestFolder::with_scene();
        let mut model = text_model(view_name);
        let mut fields: Vec<String> = model[0].split(' ').map(str::to_owned).collect();
        fields[4 + place_of] = format!("{value}");
        model[0] = fields.join(" ");
        write_model(&text_scene, &model, utf8);
        let binary = TestFolder::with_scene();
        let path = binary.scene().join("sparse/0/cameras.bin");
        overwrite(&path, 32 + 8 * place_of, &value.to_le_bytes());
        for (place, file) in
            [(transforms, "transforms.json"), (text_scene, "cameras.txt"), (binary, "cameras.bin")]
        {
            let key = if file == "transforms.json" { key } else { &key.replace("fl_", "f") };
            let shown = if value.abs() < 1e7 { format!("{value}") } else { format!("{value:e}") };
            let named = [file, &format!("{key} = {shown} ")];
            let named =
                if value > 0.0 || code == 0 || key == "cx" { &named[..] } else { &named[..1] };
            let parts = [named, parts].concat();
            if code == 3 {
                refused(&place, &[], &parts);
                assert!(!place.model().exists());
            } else {
                place.trained(2, &[]).says(&parts);
            }
        }
    }
    let place = changed(|_, scene| scene["frames"][0]["cx"] = json!(-5000));
    place.trained(2, &[]).says(&[
        "transforms.json: 1 of 8 photographs are left out",
        "the camera of images/view_000.png has cx = -5000 px",
        "Give it in px",
    ]);
    // Without a size in the file, the photograph's counts.
    let place = changed(|_, scene| {
        remove(scene, &["w", "h"]);
        scene["cx"] = json!(-5000);
    });
    refused(&place, &[], &["transforms.json", "view_000.png has cx = -5000 px"]);
    for (key, value) in [("camera_angle_x", 55.0), ("camera_angle_x", 1e-7), ("x_fov", 179.9)] {
        let place = changed(|_, scene| {
            remove(scene, &["fl_x", "fl_y"]);
            scene[key] = value.into();
        });
        let unit = if key == "x_fov" { "degrees" } else { "radians" };
        refused(&place, &[], &["transforms.json", key, &format!("no field of view in {unit}")]);
    }
}

#[test]
fn files_with_the_content_of_something_else_are_named() {
    for (content, expected) in [
        (POINTER, "git lfs pull"),
        ("<!DOCTYPE html><html><body>404", "is a web page"),
        ("\n<html lang=\"en\">", "is a web page"),
    ] {
        for part in ["cameras", "images", "points3D"] {
            let place = TestFolder::with_scene();
            let path = place.scene().join(format!("sparse/0/{part}.bin"));
            fs::write(&path, content).unwrap();
            refused(&place, &[], &[text(&path), expected]);
            fs::rename(&path, path.with_extension("txt")).unwrap();
            refused(&place, &[], &[&format!("{part}.txt"), expected]);
        }
        let place = changed(|_, _| {});
        fs::write(place.scene().join("transforms.json"), content).unwrap();
        refused(&place, &[], &["transforms.json", expected]);
    }
    for (content, parts) in [
        ("{\n  // cameras\n}", &["line 2, column 3: a comment", "Correct the file"][..]),
        ("", &["is empty"]),
        (" \n", &["is empty"]),
    ] {
        let place = changed(|_, _| {});
        fs::write(place.scene().join("transforms.json"), content).unwrap();
        refused(&place, &[], &[&["transforms.json"], parts].concat());
    }
}

#[test]
fn data_of_other_programs_is_named_with_a_command() {
    const THEN: &str = "--output-dir ROOT/processed && splat train -s ROOT/processed";
    let cases: [(&[&str], &str); 12] = [
        (&["walk.MP4"], "ffmpeg -i ROOT/walk.MP4 -r 2 ROOT/images/%05d.jpg, then this again"),
        (&["raw/a.mov"], "no scene: no sparse/0, no transforms.json. Run mkdir -p ROOT/images"),
        (&["a.HEIC"], "magick mogrify -format jpg -path ROOT/images ROOT/*.HEIC, then"),
        (&["keyframes/cameras/1.json"], "ns-process-data polycam --data ROOT THEN"),
        (&["metadata", "rgb/0.png"], "ns-process-data record3d --data ROOT THEN"),
        (&["metadata.json", "rgb/0.png"], "ns-process-data record3d --data ROOT THEN"),
        (&["reconstruction.json"], "opensfm export_colmap ROOT && splat train -s ROOT"),
        (&["odm_report/shots.geojson"], "ns-process-data odm --data ROOT THEN"),
        (&["cameras.xml"], "ns-process-data metashape --data ROOT --xml ROOT/cameras.xml THEN"),
        (
            &["cameras.xml", "images/a.png"],
            "ns-process-data metashape --data ROOT/images --xml ROOT/cameras.xml THEN",
        ),
        (
            &["images/a.png", "Transforms_Test.json"],
            "Rename Transforms_Test.json to transforms.json",
        ),
        (&["images/a.png"], "colmap automatic_reconstructor"),
    ];
    for (files, command) in cases {
        let place = TestFolder::empty();
        for file in files {
            put(&place.scene().join(file), "x");
        }
        let command = command.replace("THEN", THEN).replace("ROOT", text(&place.scene()));
        refused(&place, &[], &["and no scene", &command, text(&place.scene())]);
    }
    let place = TestFolder::empty();
    let scene = place.path("my scene");
    put(&scene.join("images/a.png"), "x");
    let shown = text(&scene);
    let command = format!("--workspace_path '{shown}' --image_path '{shown}/images'");
    place.splat("train --device=cpu -s", &[shown]).refused(3, &[&command]);
}

#[test]
fn a_start_that_no_camera_sees_is_refused() {
    let place = TestFolder::with_scene();
    place.trained_into("first", 2, &[]);
    let model = place.ply_of("first", 2);
    let far = place.path("far.ply");
    let export = |by| {
        let flags = [text(&model), "--overwrite", "-o", "far.ply", "--translate", by];
        place.splat("export", &flags).done()
    };
    let init = ["--init", text(&far)];
    export("5e4,0,0");
    let parts = ["far.ply", "no training camera sees any of its 200", "splat export --translate"];
    refused(&place, &init, &parts);
    export("0.1,0,0");
    place.trained(1, &init);
    let header = header(&model);
    let (header, _) = header.split_once("end_header\n").unwrap();
    fs::write(&far, header.replace("vertex 200", "vertex 0") + "end_header\n").unwrap();
    refused(&place, &init, &["far.ply", "holds no Gaussians"]);
    // Points of another coordinate system than the cameras.
    let moved = changed(|_, scene| {
        each_frame(scene, |_, frame| {
            let x = frame["transform_matrix"][0][3].as_f64().unwrap();
            frame["transform_matrix"][0][3] = json!(x + 5e5);
        });
    });
    let parts = ["scene", "no training camera sees any of its 200 points"];
    refused(&moved, &[], &[&parts[..], &["Export cameras and points together"]].concat());
}

#[test]
fn the_folder_of_a_model_leads_to_its_scene() {
    let place = TestFolder::with_scene();
    for folder in ["sparse", "sparse/0"] {
        let scene = place.scene();
        let parts = ["no such folder of photographs", &format!("or use -s {}", text(&scene))];
        place
            .splat("train --device=cpu -m MODEL -s", &[text(&scene.join(folder))])
            .refused(3, &parts);
    }
}

#[test]
fn what_a_scene_lacks_is_said() {
    let without_colors =
        changed(|place, _| patch(&place.scene().join("p.ply"), b"uchar red", b"uchar scalar_r"));
    without_colors.trained(1, &[]).says(&["p.ply", "start grey"]);
    let place = changed(|place, scene| {
        fs::write(place.scene().join("transforms_train.json"), scene.to_string()).unwrap();
    });
    place.trained(1, &["--eval"]).says(&["holds out none of its 8 views", "--test-views"]);
    let place = changed(|_, scene| scene["ply_file_path"] = 5.into());
    refused(&place, &[], &["ply_file_path = 5, which is no name of a file"]);
}

fn write_masks(place: &TestFolder, name: impl Fn(usize) -> String) {
    for number in 0..VIEWS {
        let path = place.scene().join(name(number));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let size = image::image_dimensions(place.image(number)).unwrap();
        let mask = RgbImage::from_fn(size.0, size.1, |x, _| Rgb([if x < 20 { 0 } else { 255 }; 3]));
        mask.save(path).unwrap();
    }
}

#[test]
fn masks_of_transforms_count_as_those_of_colmap() {
    // Places of masks, and their names in frames.
    let cases: [(Name, Option<Name>); 7] = [
        (|number| format!("mask/view_{number:03}.png"), None),
        (|number| format!("masks/view_{number:03}.png"), None),
        (|number| format!("masks/view_{number:03}.png.png"), None),
        (|number| format!("masks/images/view_{number:03}.png"), None),
        (|number| format!("masks/VIEW_{number:03}.PNG"), None),
        (|number| format!("m/{number}.png"), Some(|number| format!("m\\{number}.png"))),
        (|number| format!("m/{number}.png"), Some(|number| format!("/home/a/m/{number}.png"))),
    ];
    for (name, path) in cases {
        println!("{} {:?}", name(0), path.map(|path| path(0)));
        static MASKED_PSNR: LazyLock<f64> = LazyLock::new(|| {
            let place = TestFolder::with_scene();
            write_masks(&place, |number| format!("masks/view_{number:03}.png"));
            trained(&place, &[]).0
        });
        let place = changed(|place, scene| {
            write_masks(place, name);
            if let Some(path) = path {
                each_frame(scene, |number, frame| frame["mask_path"] = path(number).into());
            }
        });
        let (psnr, ended) = trained(&place, &[]);
        ended.omits(&["warning"]);
        assert!((psnr - *MASKED_PSNR).abs() < SAME_DB, "{psnr} {}", *MASKED_PSNR);
        assert!((psnr - *USUAL_PSNR).abs() > 0.05, "the masks change nothing");
    }
}

#[test]
fn blender_scenes_start_from_the_points_beside_them() {
    let place = changed(|place, scene| {
        fs::rename(place.scene().join("p.ply"), place.scene().join("points3d.ply")).unwrap();
        remove(scene, &["ply_file_path"]);
        let frames = scene["frames"].as_array_mut().unwrap();
        let held_out = frames.split_off(6);
        let mut test = scene.clone();
        test["frames"] = held_out.into();
        fs::write(place.scene().join("transforms_val.json"), test.to_string()).unwrap();
    });
    let file = |name: &str| place.scene().join(name);
    fs::rename(file("transforms.json"), file("transforms_train.json")).unwrap();
    trained(&place, &[]).1.says(&["6 views, 2 held out, 200 Gaussians"]);
}

/// Writes copies of half the size into a folder.
fn write_halves(place: &TestFolder, folder: &str) {
    fs::create_dir_all(place.scene().join(folder)).unwrap();
    for number in 0..VIEWS {
        let half = image::open(place.image(number)).unwrap().thumbnail_exact(24, 18);
        half.save(place.scene().join(folder).join(format!("view_{number:03}.png"))).unwrap();
    }
}

#[test]
fn a_folder_of_photographs_that_is_named_is_used() {
    let place = changed(|place, _| write_halves(place, "images_2"));
    let (psnr, _) = trained(&place, &["-i", "images_2"]);
    let camera = &place.json("model/cameras.json")[0];
    assert_eq!([&camera["width"], &camera["height"]], [24, 18]);
    refused(&place, &["-i", "images_8"], &["images_8", "images_2"]);
    // Lengths in px are of the photographs that frames name.
    let sizeless = changed(|place, scene| {
        write_halves(place, "images_2");
        remove(scene, &["w", "h"]);
    });
    assert!((trained(&sizeless, &["-i", "images_2"]).0 - psnr).abs() < 1e-9);
    fs::remove_dir_all(sizeless.scene().join("images")).unwrap();
    refused(&sizeless, &[], &["images_2", "neither w nor h"]);
    fs::remove_dir_all(place.scene().join("images")).unwrap();
    let (alone, ended) = trained(&place, &[]);
    ended.says(&["photographs are taken from images_2"]);
    assert!((alone - psnr).abs() < 1e-9);
}

/// Moves the model and the photographs of the COLMAP scene.
fn moved(moves: &[(&str, &str)]) -> TestFolder {
    let place = TestFolder::with_scene();
    for (from, to) in moves {
        let to = place.scene().join(to);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::rename(place.scene().join(from), to).unwrap();
    }
    place
}

#[rstest]
#[case::below_output(&[("sparse", "output/sparse")], &["read from output/sparse/0"])]
#[case::named(&[("sparse/0", "sparse/best")], &["read from sparse/best"])]
#[case::of_another_name(&[("sparse/0", "model")], &["read from model"])]
#[case::deep(&[("sparse/0", "a/b/c")], &["read from a/b/c"])]
#[case::upper_case(&[("images", "Images")], &["taken from Images"])]
#[case::lower_case(&[("sparse/0/points3D.bin", "sparse/0/points3d.BIN")], &["200 Gaussians"])]
#[case::of_nerfstudio(&[("sparse", "colmap/sparse")], &["read from colmap/sparse/0"])]
#[case::of_colmap(&[("sparse/0", "dense/sparse"), ("images", "dense/images")], &["dense/sparse", "dense/images"])]
#[case::of_automatic_colmap(&[("sparse/0", "dense/0/sparse"), ("images", "dense/0/images")], &["dense/0/sparse"])]
#[case::of_convert(&[("sparse", "distorted/sparse"), ("images", "input")], &["distorted/sparse/0", "taken from input"])]
#[case::numbered(&[("sparse/0", "sparse/7")], &["read from sparse/7"])]
#[case::root(&[("sparse/0/cameras.bin", "cameras.bin"), ("sparse/0/images.bin", "images.bin"),
    ("sparse/0/points3D.bin", "points3D.bin")], &["read from"])]
#[case::input(&[("images", "input")], &["taken from input"])]
#[case::smaller_copies(&[("images", "images_4")], &["taken from images_4"])]
fn models_and_photographs_elsewhere_are_found(
    #[case] moves: &[(&str, &str)],
    #[case] expected: &[&str],
) {
    assert_usual(&moved(moves), &[]).says(expected);
}

#[test]
fn a_model_is_found_with_photographs_in_any_folder() {
    let place = moved(&[("sparse/0", "solved"), ("images", "../elsewhere")]);
    let images = place.path("elsewhere");
    assert_usual(&place, &["--images", text(&images)]).says(&["read from solved"]);
    for number in 0..VIEWS {
        let name = view_name(number);
        fs::rename(images.join(&name), place.scene().join(&name)).unwrap();
    }
    assert_usual(&place, &["--images", "."]).says(&["read from solved"]);
}

#[test]
fn folders_of_photographs_do_not_hide_a_model() {
    let place = moved(&[("sparse/0", "recon/sparse")]);
    for number in 0..600 {
        fs::create_dir(place.scene().join(format!("images/{number:04}"))).unwrap();
    }
    assert_usual(&place, &[]).says(&["read from recon/sparse"]);
}

#[test]
fn the_largest_of_several_models_is_read() {
    let place = moved(&[("sparse/0", "sparse/1")]);
    let small = TestFolder::with_scene();
    let model = fs::read(small.scene().join("sparse/0/images.bin")).unwrap();
    // Two images: the name, its zero and the number of observations end the second.
    let second = model.windows(12).position(|part| part == b"view_001.png").unwrap();
    let observations = u64::from_le_bytes(model[second + 13..second + 21].try_into().unwrap());
    let length = second + 21 + usize::try_from(observations).unwrap() * 24;
    let mut part = model[..length].to_vec();
    part[..8].copy_from_slice(&2_u64.to_le_bytes());
    for (folder, bytes) in [("0", &part), ("2", &part)] {
        let folder = place.scene().join("sparse").join(folder);
        fs::create_dir(&folder).unwrap();
        for file in ["cameras.bin", "points3D.bin"] {
            fs::copy(small.scene().join("sparse/0").join(file), folder.join(file)).unwrap();
        }
        fs::write(folder.join("images.bin"), bytes).unwrap();
    }
    let expected = ["model in sparse/1", "most images (8)", "sparse/0 (2), sparse/2 (2)"];
    assert_usual(&place, &[]).says(&expected);
    fs::remove_dir_all(place.scene().join("sparse/1")).unwrap();
    trained(&place, &[]).1.says(&["6 of the 8 photographs", "no camera"]);
}

/// The model of the tiny scene as text, with these names of photographs.
fn text_model(rename: impl Fn(usize) -> String) -> [String; 3] {
    let dataset = TestFolder::with_scene().dataset();
    let camera = dataset.views[0].camera;
    let ([fx, fy], [cx, cy]) = (camera.focal_px, camera.centre_px);
    let cameras = format!("1 PINHOLE {} {} {fx} {fy} {cx} {cy}\n", camera.width, camera.height);
    let mut images = "# images\n".to_owned();
    for (number, view) in dataset.views.iter().enumerate() {
        let [w, x, y, z] = quaternion(transpose(&view.pose.rotation));
        let [tx, ty, tz] = view.pose.translation;
        let name = rename(number);
        images += &format!("{} {w} {x} {y} {z} {tx} {ty} {tz} 1 {name}\n\n", number + 1);
    }
    let mut points = String::new();
    for (number, (position, color)) in
        dataset.points.positions.iter().zip(&dataset.points.colors).enumerate()
    {
        let [x, y, z] = position;
        let [r, g, b] = color;
        points += &format!("{number} {x} {y} {z} {r} {g} {b} 0.5 1 2\n");
    }
    [cameras, images, points]
}

fn write_model(place: &TestFolder, model: &[String; 3], bytes: fn(&str) -> Vec<u8>) {
    let folder = place.scene().join("sparse/0");
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    for (name, text) in ["cameras.txt", "images.txt", "points3D.txt"].iter().zip(model) {
        fs::write(folder.join(name), bytes(text)).unwrap();
    }
}

fn view_name(number: usize) -> String {
    format!("view_{number:03}.png")
}

fn utf8(text: &str) -> Vec<u8> {
    text.as_bytes().to_vec()
}

fn utf16(text: &str) -> Vec<u8> {
    format!("\u{feff}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn text_models_are_read() {
    for bytes in [utf8 as fn(&str) -> Vec<u8>, utf16] {
        let place = TestFolder::with_scene();
        write_model(&place, &text_model(view_name), bytes);
        assert_usual(&place, &[]).omits(&["warning"]);
    }
}

#[rstest]
#[case::tiff("tif")]
#[case::upper_case("TIFF")]
#[case::bmp("bmp")]
fn photographs_of_other_formats_train_the_same(#[case] extension: &str) {
    let place = TestFolder::with_scene();
    let format =
        if extension == "bmp" { image::ImageFormat::Bmp } else { image::ImageFormat::Tiff };
    for number in 0..VIEWS {
        let picture = image::open(place.image(number)).unwrap();
        let path = place.image(number).with_extension(extension);
        picture.to_rgb8().save_with_format(path, format).unwrap();
        fs::remove_file(place.image(number)).unwrap();
    }
    assert_usual(&place, &[]);
}

#[rstest]
#[case::empty(b"", &["is empty (0 bytes)"])]
#[case::avif(b"\0\0\0\x1cftypavif\0\0\0\0avifmif1", &["AVIF", "magick"])]
#[case::heic(b"\0\0\0\x1cftypheic\0\0\0\0heicmif1", &["HEIC", "magick"])]
#[case::pointer(POINTER.as_bytes(), &["git lfs pull"])]
#[case::page(b"<!DOCTYPE html><html>", &["web page"])]
#[case::ppm(b"P6\n1 1\n255\n\0\0\0", &["PNM", "magick mogrify -format png /"])]
#[case::gif(b"GIF89a\x01\0\x01\0", &["GIF", "magick"])]
fn what_is_no_photograph_is_named(#[case] bytes: &[u8], #[case] expected: &[&str]) {
    let place = TestFolder::with_scene();
    fs::write(place.image(4), bytes).unwrap();
    trained(&place, &[]).1.says(&["1 of 8 photographs are left out: view_004.png"]).says(expected);
}

#[test]
fn a_converted_photograph_takes_the_place_of_one_that_is_not_read() {
    let place = changed(|place, scene| {
        each_name(scene, |name| name.replace(".png", ".avif"));
        for number in 0..VIEWS {
            fs::write(place.image(number).with_extension("avif"), "\0\0\0\x1cftypavif").unwrap();
        }
    });
    assert_usual(&place, &[]);
}

#[test]
fn what_a_folder_holds_is_listed() {
    let place = TestFolder::with_scene();
    let scene = place.scene();
    let remedy = format!("Use -s {}", text(&scene));
    for (folder, expected) in
        [(place.path(""), "and no scene"), (scene.join("images"), "8 photographs")]
    {
        let train = place.splat("train --device=cpu -m MODEL -s", &[text(&folder)]);
        train.refused(3, &[expected, &remedy]);
    }
    fs::remove_dir_all(scene.join("sparse")).unwrap();
    let parts = [text(&scene), "images/ (8 photographs)", "sparse/0", "transforms.json"];
    refused(&place, &[], &parts);
    assert!(!place.model().exists());
}

#[test]
fn depth_scales_that_no_scene_has_are_named() {
    let place = TestFolder::with_scene();
    fs::create_dir(place.scene().join("depths")).unwrap();
    let mut all = json!({});
    for number in 0..VIEWS {
        all[format!("view_{number:03}")] = json!({"scale": 1e300, "offset": 0.1});
    }
    let path = place.scene().join("sparse/0/depth_params.json");
    fs::write(&path, all.to_string()).unwrap();
    refused(&place, &["-d", "depths"], &[text(&path), "scale", "view_000"]);
}

#[test]
fn a_model_of_another_trainer_is_measured_by_its_cfg_args() {
    let place = TestFolder::with_scene();
    let (psnr, _) = trained(&place, &[]);
    let folder = place.path("inria");
    put(&place.ply_of("inria", ITERATIONS), place.ply_bytes("model", ITERATIONS));
    let cfg_args = |text: String| fs::write(folder.join("cfg_args"), text).unwrap();
    let eval = || place.splat("eval --json --device=cpu -m inria", &[]);
    cfg_args(format!(
        "Namespace(sh_degree=3, source_path='{}', model_path='/x', images='images', resolution=-1, \
         white_background=False, data_device='cuda', eval=True)",
        text(&place.scene())
    ));
    let ended = eval().done();
    assert_eq!(ended.json()["views"].as_array().unwrap().len(), 1);
    let found = ended.psnr();
    assert!((found - psnr).abs() < 0.01, "{found} {psnr}");
    cfg_args("source_path: /x".to_owned());
    eval().refused(3, &["cfg_args", "Namespace(", "-s"]);
    fs::remove_file(folder.join("cfg_args")).unwrap();
    eval().refused(2, &["neither config.toml nor cfg_args", "-s"]);
}

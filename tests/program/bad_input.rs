//! Damaged and missing input: what is refused and with which exit code, and what is passed over.

use std::fs;
use std::path::Path;

use crate::common::program::{
    Ended, TestFolder, VIEWS, assert_no_litter, cut, end, files_below, patch, splat, text,
};
use image::{Rgb, RgbImage};
use rstest::rstest;

/// Trains for two iterations; refused with this code and these words.
fn refused(place: &TestFolder, flags: &[&str], code: i32, parts: &[&str]) -> Ended {
    end(place.train().args(["--iterations", "2"]).args(flags)).refused(code, parts)
}

#[test]
fn a_scene_that_is_not_there_is_refused() {
    let place = TestFolder::empty();
    refused(&place, &[], 3, &[text(&place.scene())]);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[test]
fn a_folder_without_sparse_is_refused() {
    let place = TestFolder::with_scene();
    fs::remove_dir_all(place.scene().join("sparse")).unwrap();
    refused(&place, &[], 3, &[text(&place.scene()), "sparse"]);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[rstest]
#[case::cameras("cameras.bin")]
#[case::images("images.bin")]
#[case::points("points3D.bin")]
fn a_truncated_or_garbage_model_is_refused(#[case] name: &str) {
    let place = TestFolder::with_scene();
    let path = place.scene().join("sparse/0").join(name);
    let whole = fs::read(&path).unwrap();
    for length in [0, 5, 20, whole.len() - 3] {
        fs::write(&path, &whole[..length]).unwrap();
        refused(&place, &[], 3, &[text(&path)]);
    }
    fs::write(&path, [0xff; 300]).unwrap();
    refused(&place, &[], 3, &[text(&path)]);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[test]
fn points_that_are_no_numbers_are_left_out_and_counted() {
    let place = TestFolder::with_scene();
    let mut points = fs::read(place.points()).unwrap();
    // The count and the first point's number come before its position.
    points[16..24].copy_from_slice(&f64::NAN.to_le_bytes());
    fs::write(place.points(), points).unwrap();
    place.trained(2, &[]).says(&["warning", "1 of its 200 points", "199 Gaussians"]);
}

#[test]
fn missing_photographs_are_counted_until_none_is_left() {
    let place = TestFolder::with_scene();
    fs::remove_file(place.image(0)).unwrap();
    fs::remove_file(place.image(3)).unwrap();
    place.trained(2, &[]).says(&["warning", "2 of", "6 views"]);
    for number in 0..VIEWS {
        fs::remove_file(place.image(number)).ok();
    }
    refused(&place, &[], 3, &[text(&place.scene().join("images"))]);
    fs::remove_dir(place.scene().join("images")).unwrap();
    refused(&place, &[], 3, &[text(&place.scene().join("images")), "--images"]);
}

#[test]
fn photographs_that_are_no_images_are_counted_until_none_is_left() {
    let place = TestFolder::with_scene();
    fs::write(place.image(2), "not a photograph").unwrap();
    place.trained(2, &[]).says(&["warning", "1 of", "view_002.png"]);
    for number in 0..VIEWS {
        fs::write(place.image(number), "").unwrap();
    }
    refused(&place, &[], 3, &[text(&place.scene().join("images"))]);
}

#[rstest]
#[case::on_demand("--low-dram")]
#[case::kept("--high-dram")]
fn a_photograph_with_a_good_header_and_a_broken_body_is_passed_over(#[case] memory: &str) {
    let place = TestFolder::with_scene();
    cut(&place.image(1), 200);
    place.trained(20, &[memory]).says(&["warning", "view_001.png"]);
    for number in 0..VIEWS {
        if number != 1 {
            cut(&place.image(number), 200);
        }
    }
    refused(&place, &[memory], 3, &["view_00"]);
}

#[test]
fn a_photograph_of_another_shape_than_its_camera_is_refused() {
    let place = TestFolder::with_scene();
    RgbImage::from_pixel(30, 40, Rgb([9, 9, 9])).save(place.image(5)).unwrap();
    refused(&place, &[], 3, &[text(&place.image(5)), "30x40", "48x36"]);
}

#[rstest]
#[case::unknown_key("[optimize]\niteration = 5\n", &["line 2", "iteration"])]
#[case::unknown_section("[training]\niterations = 5\n", &["line 1", "training"])]
#[case::key_outside_of_a_section("iterations = 5\n", &["line 1", "[optimize]"])]
#[case::wrong_type("[scene]\n\neval = \"maybe\"\n", &["line 3", "eval"])]
#[case::negative_count("[optimize]\niterations = -5\n", &["line 2", "iterations"])]
#[case::out_of_range("[optimize]\nsh_degree = 7\n", &["sh_degree", "0 to 3"])]
#[case::no_toml("[optimize\n", &["TOML"])]
fn a_wrong_configuration_names_file_line_and_key(#[case] toml: &str, #[case] parts: &[&str]) {
    let place = TestFolder::with_scene();
    let path = place.path("mine.toml");
    fs::write(&path, toml).unwrap();
    let ended = refused(&place, &["--config", text(&path)], 2, parts);
    // A value out of range may come from any layer; its key is named instead of the file.
    assert!(toml.contains("= 7") || ended.stderr.contains("mine.toml"), "{}", ended.stderr);
    assert!(!place.model().exists(), "a refused run leaves no folder");
}

#[test]
fn a_configuration_that_cannot_be_read_is_refused() {
    let place = TestFolder::with_scene();
    let missing = place.path("missing.toml");
    refused(&place, &["--config", text(&missing)], 2, &[text(&missing)]);
    let binary = place.path("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    refused(&place, &["--config", text(&binary)], 2, &[text(&binary)]);
}

#[test]
fn a_model_folder_that_cannot_be_written_ends_with_1() {
    let place = TestFolder::with_scene();
    fs::write(place.model(), "a file in the way").unwrap();
    refused(&place, &[], 1, &[text(&place.model())]);
    let below = place.path("model/below");
    let ended = end(place.train_into("model/below").args(["--iterations", "2"]));
    ended.refused(1, &[text(&below)]);
    assert_eq!(fs::read_to_string(place.model()).unwrap(), "a file in the way");
}

#[test]
fn a_folder_where_a_result_should_go_ends_with_1() {
    let place = TestFolder::with_scene();
    fs::create_dir_all(place.ply(2).join("occupied")).unwrap();
    // Without a file of that name there is no earlier run to be moved aside.
    fs::create_dir_all(place.model().join("checkpoints")).unwrap();
    end(place.train().args(["--iterations", "2", "--eval"])).done();
    fs::remove_file(place.model().join("results.json")).unwrap();
    fs::create_dir_all(place.model().join("results.json/occupied")).unwrap();
    let ended = end(place.train().args(["--iterations", "4", "--eval", "--resume", "auto"]));
    ended.refused(1, &["results.json"]);
    assert_no_litter(&place.model());
}

#[test]
fn a_scene_cannot_be_written_into_a_file() {
    let place = TestFolder::empty();
    fs::write(place.scene(), "a file in the way").unwrap();
    end(splat().args(["synth", "-o"]).arg(place.scene())).refused(1, &[text(&place.scene())]);
}

#[test]
fn a_scene_of_other_photographs_is_not_overwritten_by_a_synthetic_one() {
    let place = TestFolder::with_scene();
    let synth = || end(splat().args(["synth", "--views", "2", "-o"]).arg(place.scene()));
    let photograph = place.scene().join("images/DSC_0001.jpg");
    fs::write(&photograph, "precious").unwrap();
    let before = files_below(&place.scene());
    synth().refused(1, &[text(&photograph)]);
    assert!(files_below(&place.scene()) == before);
    // The demonstration's scene goes into `scene` of the model folder.
    let mut demo = splat();
    demo.args(["train", "--demo", "--device", "cpu", "-m"]).arg(place.path(""));
    end(&mut demo).refused(1, &[text(&photograph)]);
    fs::remove_dir_all(place.scene().join("images")).unwrap();
    synth().refused(1, &["sparse"]);
    fs::create_dir(place.scene().join("images")).unwrap();
    synth().done();
}

#[test]
fn an_optimisation_that_diverges_is_no_fault_of_the_device() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=50", "--feature-lr=1e30"];
    end(place.train().args(flags)).refused(1, &["diverged", "learning rates"]);
    // Its record is not taken for that of the next run.
    place.trained(2, &[]).says(&["previous_1"]);
}

#[test]
fn more_random_gaussians_than_memory_holds_are_refused() {
    let place = TestFolder::with_scene();
    fs::write(place.points(), 0_u64.to_le_bytes()).unwrap();
    refused(&place, &["--init-num-pts", "4294967295"], 2, &["--init-num-pts", "GiB"]);
    place.trained(2, &["--init-num-pts", "4294967295", "--max-points", "70"]).says(&["70 random"]);
}

#[test]
fn the_cap_holds_from_the_start() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--max-points=77"]).says(&["warning", "200 points", " 77 Gaussians"]);
}

#[test]
fn a_checkpoint_of_another_sh_degree_is_refused() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--sh-degree", "1"]);
    let path = place.checkpoint(2);
    let flags = ["--resume", "auto", "--sh-degree", "3"];
    refused(&place, &flags, 3, &[text(&path), "--sh-degree 1"]);
    let flags = ["--start-checkpoint", text(&path), "--sh-degree", "3"];
    refused(&place, &flags, 3, &[text(&path), "--sh-degree 1"]);
}

#[test]
fn a_checkpoint_of_another_version_is_refused() {
    let place = TestFolder::with_scene();
    place.trained(2, &[]);
    let path = place.checkpoint(2);
    patch(&path, br#""version":"1""#, br#""version":"9""#);
    refused(&place, &["--resume", "auto"], 3, &[text(&path), "version 9", "version 1"]);
    refused(&place, &["--start-checkpoint", text(&path)], 3, &[text(&path), "version 9"]);
}

#[test]
fn a_truncated_checkpoint_gives_way_to_the_one_before_aloud() {
    let place = TestFolder::with_scene();
    place.trained(6, &["--checkpoint-iterations", "2", "4"]);
    for iteration in [4, 6] {
        cut(&place.checkpoint(iteration), 5000);
    }
    let ended = end(place.train().args(["--iterations", "8", "--resume", "auto"])).done();
    let (newest, before) = (place.checkpoint(6), place.checkpoint(4));
    ended.says(&["warning", text(&newest), text(&before), "iteration 2"]);
    assert!(place.ply(8).exists());
}

#[test]
fn when_no_checkpoint_is_whole_nothing_is_thrown_away() {
    let place = TestFolder::with_scene();
    place.trained(4, &["--checkpoint-iterations", "2"]);
    cut(&place.checkpoint(2), 7);
    fs::write(place.checkpoint(4), "").unwrap();
    let before = files_below(&place.model());
    let ended = refused(&place, &["--resume", "auto"], 3, &[text(&place.checkpoint(4))]);
    ended.says(&[text(&place.checkpoint(2))]);
    assert!(files_below(&place.model()) == before);
}

#[test]
fn a_checkpoint_that_is_none_is_refused() {
    let place = TestFolder::with_scene();
    let missing = place.path("missing.safetensors");
    refused(&place, &["--start-checkpoint", text(&missing)], 3, &[text(&missing)]);
    let image = place.image(0);
    refused(&place, &["--start-checkpoint", text(&image)], 3, &[text(&image)]);
    let folder = place.scene();
    refused(&place, &["--start-checkpoint", text(&folder)], 3, &[text(&folder)]);
}

#[test]
fn a_ply_with_missing_columns_or_rows_is_refused() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let path = place.ply(2);
    let eval = || end(splat().args(["eval", "-m"]).arg(place.model()));
    let whole = fs::read(&path).unwrap();
    patch(&path, b"property float opacity\n", b"property float opacitx\n");
    eval().refused(3, &[text(&path), "opacity"]);
    fs::write(&path, &whole).unwrap();
    patch(&path, b"property float f_rest_44\n", b"property float other_44\n");
    eval().refused(3, &[text(&path), "f_rest"]);
    for length in [0, 10, 300, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        eval().refused(3, &[text(&path)]);
    }
    fs::remove_file(&path).unwrap();
    eval().refused(3, &[text(&place.model()), "point_cloud.ply"]);
    end(splat().args(["render", "-m"]).arg(place.model())).refused(3, &[text(&place.model())]);
}

/// Goes on from iteration 2 to 4 in a process whose files cannot grow beyond `kibibytes`.
#[cfg(unix)]
fn resumed_on_a_full_disk(place: &TestFolder, kibibytes: u32) -> Ended {
    // With the signal ignored, a write beyond the limit fails as on a full disk.
    let script = format!("ulimit -f {kibibytes}; exec \"$@\"");
    let mut command = assert_cmd::Command::new("bash");
    command.args(["-c", &script, "bash", env!("CARGO_BIN_EXE_splat"), "train"]);
    command.args(["--iterations", "4", "--start-checkpoint"]).arg(place.checkpoint(2));
    end(command.arg("-m").arg(place.model()))
}

#[cfg(unix)]
#[test]
fn a_disk_that_fills_while_saving_leaves_the_old_files() {
    let place = TestFolder::with_scene();
    place.trained(4, &["--checkpoint-iterations", "2"]);
    let results = [place.ply(4), place.checkpoint(2), place.checkpoint(4)];
    let content = |path: &Path| fs::read(path).unwrap();
    let before = results.each_ref().map(|path| content(path));
    let ply_kibibytes = u32::try_from(before[0].len() / 1024).unwrap();
    // Too small for the PLY, then for the checkpoint, which is about three times as large.
    for (kibibytes, path) in [(ply_kibibytes / 2, &results[0]), (ply_kibibytes + 20, &results[2])] {
        resumed_on_a_full_disk(&place, kibibytes).refused(1, &[text(path), "free space"]);
        assert_no_litter(&place.model());
        assert!(results.each_ref().map(|path| content(path)) == before, "an old file is damaged");
    }
}

#[cfg(unix)]
#[test]
fn a_disk_that_is_full_from_the_start_ends_with_1() {
    let place = TestFolder::with_scene();
    place.trained(4, &["--checkpoint-iterations", "2"]);
    let config = fs::read(place.model().join("config.toml")).unwrap();
    resumed_on_a_full_disk(&place, 0).refused(1, &[text(&place.model())]);
    assert!(fs::read(place.model().join("config.toml")).unwrap() == config);
    assert_no_litter(&place.model());
}

//! Errors of what people type point to what works.

use std::fs;
use std::path::Path;

use crate::common::program::{Ended, TestFolder, cut, end, splat, text};
use rstest::rstest;
use splat::config::Config;

#[rstest]
#[case::of_other_programs("gpu")]
#[case::by_its_maker("NVIDIA")]
#[case::as_pytorch_numbers_them("cuda:0")]
fn other_names_of_the_gpu_point_to_cuda(#[case] name: &str) {
    let ended = end(splat().args(["train", "-s", ".", "--device", name]));
    ended.refused(2, &["--device", name, "'cuda'", "auto, cuda, cpu"]);
    let other = end(splat().args(["train", "-s", ".", "--device", "toaster"]));
    assert!(!other.refused(2, &["toaster"]).stderr.contains("'cuda'"));
}

#[rstest]
#[case::commas(&["1,2,3"])]
#[case::spaces(&["1", "2", "3"])]
#[case::both(&["1,2", "3"])]
#[case::as_one_writes_a_list(&["1,", "2,", "3"])]
fn lists_take_commas_and_spaces(#[case] list: &[&str]) {
    let place = TestFolder::with_scene();
    for flag in ["--test-iterations", "--save_iterations", "--checkpoint-iterations"] {
        let mut command = splat();
        command.args(["train", "--device=cpu", "--iterations=1", flag]).args(list);
        let model = place.path(flag);
        end(command.arg("-s").arg(place.scene()).arg("-m").arg(&model)).done();
        let output = config(&model).output;
        let found = match flag {
            "--test-iterations" => output.test_iterations,
            "--save_iterations" => output.save_iterations,
            _ => output.checkpoint_iterations,
        };
        assert_eq!(found, [1, 2, 3], "{flag}");
    }
}

fn config(model: &Path) -> Config {
    Config::from_toml("config.toml", &fs::read_to_string(model.join("config.toml")).unwrap())
        .unwrap()
}

/// `splat train --resume` of the model folder, without a word of its scene.
fn resumed(place: &TestFolder, flags: &[&str]) -> Ended {
    end(splat().args(["train", "--resume", "-m"]).arg(place.model()).args(flags))
}

#[test]
fn a_run_that_stopped_before_its_first_checkpoint_starts_again_as_it_was() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval", "--seed", "7"]);
    let ply = fs::read(place.ply(2)).unwrap();
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    let path = place.model().join("config.toml");
    let said = ["has no checkpoint; training starts", "the options of", text(&path), "previous_1"];
    resumed(&place, &["--verbose"]).done().says(&said);
    assert!(fs::read(place.ply(2)).unwrap() == ply, "other options than before");
    let scene = fs::canonicalize(place.scene()).unwrap();
    assert_eq!(config(&place.model()).scene.source_path, Some(scene));
    // Flags win.
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    resumed(&place, &["--iterations", "3"]).done();
    assert!(place.ply(3).exists() && config(&place.model()).run.seed == 7);
}

#[test]
fn a_coarse_stage_that_stopped_before_its_first_checkpoint_starts_again() {
    let place = TestFolder::with_scene();
    place.trained_into("photometric", 5, &[]);
    let stage = ["--regularize=density", "--sugar-iterations=8", "--n-samples-for-sdf=100", "-c"];
    end(place.train().args(stage).arg(place.path("photometric"))).done();
    let ply = fs::read(place.ply(13)).unwrap();
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    resumed(&place, &["--device=cpu", "--verbose"])
        .done()
        .says(&["starting the coarse stage", "iteration 5"]);
    assert!(fs::read(place.ply(13)).unwrap() == ply, "other options than before");
}

#[test]
fn a_model_path_that_is_a_file_says_so() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let (ply, model) = (place.ply(2), place.model());
    let said = [text(&ply), "is a file, not a model folder", text(&model)];
    for command in ["eval", "render"] {
        end(splat().args([command, "-m"]).arg(&ply)).refused(3, &said);
    }
    end(splat().arg("profile").arg(&ply)).refused(3, &said);
    let photograph = place.image(0);
    end(splat().args(["eval", "-m"]).arg(&photograph)).refused(3, &["is a file", "Name a folder"]);
    let mut train = splat();
    train.args(["train", "--device=cpu", "-s"]).arg(place.scene()).arg("-m").arg(&photograph);
    end(&mut train).refused(1, &[text(&photograph), "is a file, not a model folder"]);
    end(train.arg("--resume")).refused(1, &["is a file, not a model folder"]);
}

#[test]
fn the_only_checkpoint_gets_no_advice_to_use_another() {
    let place = TestFolder::with_scene();
    place.trained(4, &["--checkpoint-iterations", "2"]);
    let (earlier, newest, ply) = (place.checkpoint(2), place.checkpoint(4), place.ply(4));
    let start = || end(place.train().args(["--start-checkpoint", text(&newest)]));
    cut(&newest, 3000);
    let advice = format!("Use --start-checkpoint {}", text(&earlier));
    start().refused(3, &[text(&newest), "is damaged", &advice]);
    // One that is damaged as well is no help.
    cut(&earlier, 3000);
    let init = format!("--init {}", text(&ply));
    let without = |ended: Ended| {
        let ended = ended.refused(3, &[text(&newest), "is damaged", "Train again", &init]);
        assert!(!ended.stderr.contains("--start-checkpoint"), "{ended:#?}");
        ended
    };
    without(start());
    without(resumed(&place, &[])).says(&["none of the model folder's checkpoints"]);
    fs::remove_file(&earlier).unwrap();
    without(start());
    without(resumed(&place, &[])).says(&["the model folder's only checkpoint"]);
}

#[cfg(unix)]
mod permissions {
    use std::io::ErrorKind;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::os::unix::process::CommandExt as _;
    use std::path::PathBuf;
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    /// `nobody`, whom folders can be closed to: root may read everything.
    const NOBODY: u32 = 65_534;

    /// Runs the program for somebody who has no special rights.
    fn run(place: &TestFolder, args: &[&str]) -> Ended {
        let program = PathBuf::from(env!("CARGO_BIN_EXE_splat"));
        let mut command = Command::new(&program);
        if fs::metadata(place.path("")).unwrap().uid() == 0 {
            // The folder of the build may be closed to others, too.
            let copy = place.path("splat");
            if !copy.exists() {
                fs::copy(program, &copy).unwrap();
            }
            command = Command::new(copy);
            command.uid(NOBODY).gid(NOBODY);
        }
        command.current_dir("/").args(args);
        loop {
            match command.output() {
                // Another test's child held the copy open for writing until it began a program of its own.
                Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                ended => return Ended::from(ended.unwrap()),
            }
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn folders_that_cannot_be_read_are_told_from_those_that_are_missing() {
        let place = TestFolder::with_scene();
        place.trained(2, &["--eval"]);
        set_mode(&place.path(""), 0o755);
        let (scene, model) = (place.scene(), place.model());
        let [scene, model] = [&scene, &model].map(|path| text(path));
        let plan = ["plan", "-s", scene];
        let eval = ["eval", "--device=cpu", "-m", model];
        let resume = ["train", "--device=cpu", "--resume", "-m", model, "-s", scene];
        for (folder, args) in [
            (place.scene(), &plan[..]),
            (place.scene().join("sparse"), &plan),
            (place.scene().join("sparse/0"), &plan),
            (place.scene().join("images"), &plan),
            (place.model(), &eval),
            (place.model().join("point_cloud"), &eval),
        ] {
            set_mode(&folder, 0o000);
            let ended = run(&place, args);
            set_mode(&folder, 0o755);
            ended.refused(3, &[text(&folder), "Permission denied"]);
        }
        // A run locks its folder before it reads there, and cannot.
        set_mode(&place.model(), 0o000);
        let ended = run(&place, &resume);
        ended.refused(1, &[model, "Permission denied", "permissions"]);
        set_mode(&place.model(), 0o777);
        let checkpoints = place.model().join("checkpoints");
        set_mode(&checkpoints, 0o000);
        let ended = run(&place, &resume);
        set_mode(&checkpoints, 0o755);
        ended.refused(3, &[text(&checkpoints), "Permission denied"]);
        run(&place, &plan).done();
    }

    #[test]
    fn a_model_folder_of_somebody_else_is_measured_without_waiting() {
        let place = TestFolder::with_scene();
        place.trained(2, &["--eval"]);
        set_mode(&place.path(""), 0o755);
        let model = place.model();
        set_mode(&model, 0o555);
        let ended = run(&place, &["eval", "--json", "--device=cpu", "-m", text(&model)]);
        set_mode(&model, 0o755);
        let ended = ended.done().says(&["warning", "the tables are left", "Permission denied"]);
        assert!(!ended.stderr.contains("another program"), "{ended:#?}");
        assert!(ended.stdout.contains("psnr"), "{ended:#?}");
    }
}

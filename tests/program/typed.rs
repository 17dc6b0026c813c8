//! Commands as people type them: inside a scene folder, and as SuGaR's programs take them.

use std::fs;
use std::path::{Path, PathBuf};

use rstest::rstest;
use splat::config::{Compactness, Fragmentation, Regularize};

use crate::common::program::{
    Ended, TestFolder, Text as _, cut, end, ended, holds, program, put, splat, started_once, text,
};
use crate::synthetic_scenes::with_model;

/// Runs a line in a folder until this file is there with these words in it, and ends the run.
fn run_until(place: &TestFolder, folder: &str, line: &str, file: &str, words: &str) -> Ended {
    let mut command = program(&[]);
    command.current_dir(place.path(folder)).args(line.split_whitespace().skip(1));
    let path = place.path(folder).join(file);
    let mut child = started_once(command, words, || holds(&path, words));
    child.kill().unwrap();
    ended(child)
}

#[test]
fn the_line_of_the_card_trains_the_scene_in_this_folder() {
    let place = TestFolder::with_scene();
    let line = "splat train --low-dram --optimize-memory";
    let ended = run_until(&place, "scene", line, "output/scene/run.jsonl", "\"step\"");
    let here = fs::canonicalize(place.scene()).unwrap();
    ended.says(&["no scene is given: the one in this folder is used", text(&here)]);
    let config = place.config("scene/output/scene");
    assert_eq!(config.scene.source_path, Some(here));
    assert!(config.memory.optimize_memory == Compactness::All && !config.memory.high_dram);
}

#[test]
fn a_scene_in_this_folder_may_have_its_model_in_any_folder() {
    let place = TestFolder::with_scene();
    fs::rename(place.scene().join("sparse/0"), place.scene().join("model")).unwrap();
    let line = ["plan", "--low-dram", "--gaussians", "1000"];
    end(splat().current_dir(place.scene()).args(line))
        .done()
        .says(&["the one in this folder is used", "read from model"]);
}

#[test]
fn inside_a_scene_folder_a_run_is_planned_and_resumed() {
    let place = TestFolder::with_scene();
    let here = |line: &str| end(splat().current_dir(place.scene()).args(line.split_whitespace()));
    let planned = here("plan --low-dram --optimize-memory --gaussians 1000").done();
    planned.says(&["the one in this folder is used"]);
    here("train --device cpu --iterations 2").done();
    here("train --device cpu --iterations 3 --resume").done().says(&["iteration 2"]);
    assert!(place.scene().join("output/scene/point_cloud/iteration_3").exists());
}

#[test]
fn a_folder_with_a_transforms_file_is_a_scene_and_another_is_none() {
    let place = TestFolder::empty();
    let plan = || place.splat("plan", &[]);
    let advice = "or run it inside a scene folder";
    plan().refused(2, &["-s SCENE", advice]);
    place.splat("train -m m", &[]).refused(2, &["-s SCENE", "--demo", advice]);
    // Cameras without photographs are no scene.
    put(&place.path("sparse/0/cameras.bin"), "");
    plan().refused(2, &[advice]);
    // A scene that is broken is one nevertheless, and its own error is shown.
    fs::write(place.path("transforms.json"), "{").unwrap();
    fs::remove_dir_all(place.path("sparse")).unwrap();
    plan().refused(3, &["transforms.json"]);
}

/// A place with a scene in `data/scene`, and in `gs_model` what 3DGS's own trainer would leave.
fn place_of_sugar() -> TestFolder {
    let place = TestFolder::with_scene();
    place.trained(2, &["--sh-degree", "2"]);
    fs::create_dir(place.path("data")).unwrap();
    fs::rename(place.scene(), place.path("data/scene")).unwrap();
    for iteration in [7000, 30_000] {
        put(&place.ply_of("gs_model", iteration), place.ply_bytes("model", 2));
    }
    place
}

#[rstest]
#[case::density("splat train -s data/scene -c gs_model/ -i 7000 -r density", Regularize::Density)]
#[case::with_a_card_s_options(
    "splat train -s data/scene -c gs_model/ -i 7000 -r density --optimize_memory True \
     --fragmentation aggressive --sh_degree 2",
    Regularize::Density
)]
#[case::consistency(
    "splat train -s data/scene -c gs_model/ -i 7000 -r dn_consistency",
    Regularize::DnConsistency
)]
#[case::attached("splat train -s data/scene -cgs_model/ -i7000 -rsdf", Regularize::Sdf)]
fn the_lines_of_sugar_run(#[case] line: &str, #[case] terms: Regularize) {
    let place = place_of_sugar();
    run_until(&place, ".", line, "output/scene/run.jsonl", "\"coarse_started\"");
    let name = line.rsplit("-r").next().unwrap().split_whitespace().next().unwrap();
    let log = place.read("output/scene/run.jsonl");
    log.assert_holds(&[
        &format!("-r {name} is read as --regularize {name}"),
        "-i 7000 is read as --iteration-to-load 7000",
    ]);
    let config = place.config("output/scene");
    assert_eq!((config.sugar.regularize, config.optimize.iterations), (terms, 7000));
    assert_eq!((config.scene.images.as_str(), config.scene.resolution), ("images", -1));
    if line.contains("--sh_degree 2") {
        let memory = (config.memory.optimize_memory, config.memory.fragmentation);
        assert_eq!(memory, (Compactness::All, Fragmentation::Aggressive));
        assert_eq!(config.optimize.sh_degree, 2);
    }
}

#[test]
fn a_folder_of_photographs_may_be_called_7000() {
    let place = place_of_sugar();
    fs::rename(place.path("data/scene/images"), place.path("data/scene/7000")).unwrap();
    let line = "splat train -s data/scene -c gs_model/ -i 7000 -r density";
    run_until(&place, ".", line, "output/scene/run.jsonl", "\"coarse_started\"");
    let config = place.config("output/scene");
    assert_eq!((config.scene.images.as_str(), config.optimize.iterations), ("7000", 30_000));
}

#[test]
fn every_switch_takes_true_and_false() {
    let place = with_model(2, &["--eval", "True", "--low_dram", "False", "--quiet", "False"]);
    let config = place.config("model");
    assert!(config.scene.eval && config.memory.high_dram);
    let run = |line: &str| place.splat(line, &["-m", "model"]).done();
    let measured = run("eval --json True --quiet True --convert_SHs_python False");
    assert!(measured.stdout.starts_with('{'), "{measured:#?}");
    assert!(!run("eval --json=false").stdout.starts_with('{'));
    let rendered = run("render --skip_train True --skip_test False --convert_SHs_python");
    assert_eq!(rendered.stdout.lines().count(), 1, "{rendered:#?}");
    // What follows a switch without a value stays what it is.
    place.splat("profile --json MODEL", &[]).done();
    end(splat().args(["doctor", "--json=maybe"])).refused(2, &["--json", "true or false"]);
}

#[test]
fn two_names_of_one_option_with_two_values_are_noted() {
    let place = TestFolder::with_scene();
    let run = |flags: &[&str]| {
        place.trained(1, flags);
        let stored = place.config("model").optimize.batch_views;
        (stored, end(place.train().args(["--iterations=1"]).args(flags)).done())
    };
    let words = "--batch-views and --accumulate are two names of one option: the last one counts, ";
    for (flags, views) in [
        (&["--accumulate", "2", "--batch-views=3"][..], 3),
        (&["--batch_views=3", "--accumulate=2"], 2),
    ] {
        let (stored, ended) = run(flags);
        assert_eq!(stored, views, "{flags:?}");
        ended.says(&[&format!("{words}{views}")]);
    }
    for (flags, views) in
        [(&["--accumulate=2", "--batch-views=2"][..], 2), (&["--accumulate=3"], 3)]
    {
        let (stored, ended) = run(flags);
        assert_eq!(stored, views, "{flags:?}");
        ended.omits(&[words]);
    }
}

#[test]
fn the_parser_escapes_what_it_quotes() {
    for line in [
        &["train", "--\u{1b}[31mred"][..],
        &["train", "--iterations", "\u{1b}[2J"],
        &["tra\u{1b}in"],
        &["eval", "-m", "a\u{1b}b", "--nothing\n"],
    ] {
        let ended = end(splat().args(line)).refused(2, &["error: "]);
        let is_plain = |letter: char| letter == '\n' || !letter.is_control();
        assert!(ended.stderr.chars().all(is_plain), "{line:?}: {ended:#?}");
    }
    let ended = end(splat().args(["train", "--iterations", "\u{1b}[2J"]));
    ended.refused(2, &["\\u{1b}[2J", "--iterations"]);
}

#[rstest]
#[case::of_other_programs("gpu")]
#[case::by_its_maker("NVIDIA")]
#[case::as_pytorch_numbers_them("cuda:0")]
fn other_names_of_the_gpu_point_to_cuda(#[case] name: &str) {
    let ended = end(splat().args(["train", "-s", ".", "--device", name]));
    ended.refused(2, &["--device", name, "'cuda'", "auto, cuda, cpu"]);
    let other = end(splat().args(["train", "-s", ".", "--device", "toaster"]));
    other.refused(2, &["toaster"]).omits(&["'cuda'"]);
}

#[rstest]
#[case::commas(&["1,2,3"])]
#[case::spaces(&["1", "2", "3"])]
#[case::both(&["1,2", "3"])]
#[case::as_one_writes_a_list(&["1,", "2,", "3"])]
fn lists_take_commas_and_spaces(#[case] list: &[&str]) {
    let place = TestFolder::with_scene();
    let flags = ["--test-iterations", "--save_iterations", "--checkpoint-iterations"];
    place.trained(1, &flags.map(|flag| [&[flag], list].concat()).concat());
    let output = place.config("model").output;
    let found = [output.test_iterations, output.save_iterations, output.checkpoint_iterations];
    assert_eq!(found.each_ref().map(Vec::as_slice), [[1, 2, 3]; 3]);
}

/// `splat train --resume` of the model folder, without a word of its scene.
fn resumed(place: &TestFolder, flags: &[&str]) -> Ended {
    place.splat("train --resume -m MODEL", flags)
}

#[test]
fn a_run_that_stopped_before_its_first_checkpoint_starts_again_as_it_was() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval", "--seed", "7"]);
    let ply = place.ply_bytes("model", 2);
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    let path = place.model().join("config.toml");
    let expected =
        ["has no checkpoint; training starts", "the options of", text(&path), "previous_1"];
    resumed(&place, &["--verbose"]).done().says(&expected);
    assert!(place.ply_bytes("model", 2) == ply, "other options than before");
    let scene = fs::canonicalize(place.scene()).unwrap();
    assert_eq!(place.config("model").scene.source_path, Some(scene));
    // Flags win.
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    resumed(&place, &["--iterations", "3"]).done();
    assert!(place.ply(3).exists() && place.config("model").run.seed == 7);
}

#[test]
fn a_coarse_stage_that_stopped_before_its_first_checkpoint_starts_again() {
    let place = TestFolder::with_scene();
    place.trained_into("photometric", 5, &[]);
    let stage = ["--regularize=density", "--sugar-iterations=8", "--n-samples-for-sdf=100", "-c"];
    end(place.train().args(stage).arg(place.path("photometric"))).done();
    let ply = place.ply_bytes("model", 13);
    fs::remove_dir_all(place.model().join("checkpoints")).unwrap();
    let again = resumed(&place, &["--device=cpu", "--verbose"]).done();
    again.says(&["starting the coarse stage", "iteration 5"]);
    assert!(place.ply_bytes("model", 13) == ply, "other options than before");
}

#[test]
fn a_model_path_that_is_a_file_says_so() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let (ply, model) = (place.ply(2), place.model());
    let expected = [text(&ply), "is a file, not a model folder", text(&model)];
    for command in ["eval", "render"] {
        end(splat().args([command, "-m"]).arg(&ply)).refused(3, &expected);
    }
    end(splat().arg("profile").arg(&ply)).refused(3, &expected);
    let photograph = place.image(0);
    let photograph = text(&photograph);
    place.splat("eval -m", &[photograph]).refused(3, &["is a file", "Name a folder"]);
    let train = "train --device=cpu -s SCENE -m";
    place.splat(train, &[photograph]).refused(1, &[photograph, "is a file, not a model folder"]);
    place.splat(train, &[photograph, "--resume"]).refused(1, &["is a file, not a model folder"]);
}

#[test]
fn the_only_checkpoint_gets_no_advice_to_use_another() {
    let place = with_model(4, &["--checkpoint-iterations", "2"]);
    let (earlier, newest, ply) = (place.checkpoint(2), place.checkpoint(4), place.ply(4));
    let start = || place.train_from(&newest, "model", &[]);
    cut(&newest, 3000);
    let advice = format!("Use --start-checkpoint {}", text(&earlier));
    start().refused(3, &[text(&newest), "is damaged", &advice]);
    // One that is damaged as well is no help.
    cut(&earlier, 3000);
    let init = format!("--init {}", text(&ply));
    let without = |ended: Ended| {
        ended
            .refused(3, &[text(&newest), "is damaged", "Train again", &init])
            .omits(&["--start-checkpoint"])
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
    use std::process::Command;
    use std::thread::sleep;
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
                    sleep(Duration::from_millis(20));
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
        run(&place, &resume).refused(1, &[model, "Permission denied", "permissions"]);
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
        ended
            .done()
            .prints(&["psnr"])
            .says(&["warning", "the tables are left", "Permission denied"])
            .omits(&["another program"]);
    }
}

//! The program as a user runs it: flags, configuration, output.

use std::fs;
use std::process::Command;

use rstest::rstest;

use crate::common::program::{
    Ended, SIZE, TestFolder, Text as _, VIEWS, cut, end, files_below, program, splat, text, words,
};
use crate::synthetic_scenes::with_model;

/// The folder of the demonstration, as a user may call one.
const DEMO_MODEL: &str = "it's a demo";

#[rstest]
#[case::program("", &["train", "eval", "render", "plan", "synth", "profile", "compare", "doctor", "Exit codes"])]
#[case::train("train", &["Scene", "Optimisation", "Density control", "Memory", "Output", "Run"])]
#[case::eval("eval", &["Scene", "Memory", "Run", "--split", "--lpips-weights", "--json", "Geometry"])]
#[case::render("render", &["Scene", "Memory", "Run", "--skip-train"])]
#[case::clean("clean", &["Cleaning", "Scene", "--max-loss", "--near", "--crop", "--dry-run", "-o, --output"])]
#[case::plan("plan", &["Forecast", "Scene", "Memory", "--gaussians", "--model", "--json"])]
#[case::synth("synth", &["Scene", "--output", "--seed", "torus", "--truth-cells", "--gaussians"])]
#[case::profile("profile", &["MODEL", "latest", "--follow", "--top", "--json"])]
#[case::compare("compare", &["RUN", "--baseline", "--tolerance", "--json", "--markdown", "Exit code 1"])]
#[case::doctor("doctor", &["--json", "Exit"])]
#[case::mesh("mesh", &["--method", "[default: tsdf]", "[default: 1000000]", "[default: ply glb]", "Texture"])]
#[case::refine("refine", &["Refinement", "[default: long]", "--gaussians-per-triangle", "Texture"])]
#[case::sugar("sugar", &["--skip-coarse", "--refinement-iterations", "[default: none]", "Texture"])]
#[case::completions("completions", &["SHELL", "bash", "man", "--output"])]
fn every_command_explains_itself(#[case] command: &str, #[case] parts: &[&str]) {
    let ended = end(splat().args(command.split_whitespace()).arg("--help")).done();
    assert_eq!(ended.stderr, "");
    ended.stdout.assert_holds(parts);
}

#[rstest]
#[case("train scene", "tip: name the folder by its option: splat train -s scene")]
#[case("eval out/fox", "splat eval -m out/fox")]
#[case("mesh out/fox", "splat mesh -m out/fox")]
#[case("train --iterations abc", "not a whole number that the option takes")]
#[case("train --opacity-lr fast", "not a number")]
#[case("train --preset fst", "do you mean fast?")]
#[case("train --strategy budgt", "'budget'")]
#[case("train --config c.toml", "do you mean [optimize]?")]
#[case("train --config d.toml", "expected a whole number of 0 or more")]
fn a_misspelt_line_gets_a_suggestion(#[case] line: &str, #[case] expected: &str) {
    let place = TestFolder::empty();
    fs::write(place.path("c.toml"), "[optimise]\niterations = 3\n").unwrap();
    fs::write(place.path("d.toml"), "[optimize]\niterations = \"a\"\n").unwrap();
    place.splat(line, &[]).refused(2, &[expected]);
}

#[test]
fn help_finds_guides_by_words_of_their_text() {
    let help = |topic: &str| end(splat().args(["help", topic])).done().stdout;
    assert_eq!(help("Memory"), help("memory"));
    for (word, topic) in [("blender", "meshes"), ("web", "export")] {
        // A command of this name follows its guide.
        let (found, all) = (help(word), help(topic));
        assert!(!found.is_empty() && all.starts_with(found.trim_end()), "{word}: {found}");
    }
}

/// The default of what a model's configuration says is what that says.
#[test]
fn commands_on_a_model_show_no_defaults_of_training() {
    let help = |command: &str| end(splat().args([command, "--help"])).done().stdout;
    assert!(help("train").contains("[default: images]"));
    for command in ["eval", "render", "mesh", "refine", "clean"] {
        let shown = help(command);
        assert!(shown.contains("--images") && !shown.contains("[default: images]"), "{shown}");
    }
}

#[test]
fn the_version_is_a_result() {
    let ended = end(splat().arg("--version")).done();
    assert_eq!(ended.stdout.trim(), concat!("splat ", env!("CARGO_PKG_VERSION")));
}

#[rstest]
#[case::nothing("", "Usage")]
#[case::no_such_command("fly", "fly")]
#[case::no_such_flag("train -s . --no-such-flag", "--no-such-flag")]
#[case::no_scene_named("train -m nowhere", "-s SCENE")]
#[case::not_a_number("train -s . --iterations many", "--iterations")]
#[case::more_iterations_than_a_count_holds("train -s . --iterations 99999999999", "--iterations")]
#[case::resolution_of_no_screen("train -s . -r 1000000", "--resolution")]
#[case::not_a_size("train -s . --image-cache lots", "--image-cache")]
#[case::not_a_switch("train -s . --eval maybe", "--eval")]
#[case::not_a_device("train -s . --device toaster", "--device")]
#[case::two_ways_to_go_on("train -s . --resume auto --start-checkpoint x", "--start-checkpoint")]
#[case::two_scenes("train --demo -s .", "--demo")]
#[case::eval_without_a_model("eval", "--model-path")]
#[case::synth_without_a_folder("synth", "--output")]
#[case::synth_without_views("synth --views 0 -o scene", "--views")]
fn bad_usage_names_the_flag_and_ends_with_2(#[case] line: &str, #[case] part: &str) {
    let place = TestFolder::empty();
    let ended = place.splat(line, &[]).ends(2).says(&[part]);
    assert_eq!(ended.stdout, "");
    assert!(files_below(&place.path("")).is_empty(), "something was written");
    if !line.is_empty() {
        assert!(ended.stderr.lines().count() <= 4, "{}", ended.stderr);
    }
}

#[test]
fn a_gpu_that_cannot_be_used_is_refused_with_the_reason_and_the_way_out() {
    if cfg!(kernels) && splat::backend::gpu::is_present() {
        // Here it can be used.
        return;
    }
    let place = TestFolder::with_scene();
    let parts = ["--device cuda", "--device cpu"];
    place.splat("train --device cuda -s SCENE -m MODEL", &[]).refused(5, &parts);
    assert!(!place.model().exists());
}

#[rstest]
#[case("--random-background --training-background=grey --densify-until-iter=8",
    &["--training-background has no effect with --random-background"])]
#[case("--multi-view-factor=0.3", &["--multi-view-factor has no effect", "--multi-view"])]
#[case("--set_sigma=0.5 --set_weight=0.2 --indoor", &["--set-sigma has no effect without --primitive triangles",
    "--indoor has no effect without --primitive triangles"])]
#[case("--primitive=triangles --min-opacity=0.1 --scaling-lr=0.1", &["--scaling-lr has no effect",
    "--min-opacity has no effect with --primitive triangles"])]
#[case("--normals-frame=world --lambda-normals-super=1 --normals-from-iter=1", &["--normals-frame has no effect without --normals",
    "--lambda-normals-super has no effect without --normals", "--normals-from-iter has no effect without --normals"])]
#[case("--ray_jitter --resample_gt_image --load_allres --sample_more_highres", &["--resample-gt-image is ignored",
    "--ray-jitter is ignored: pixels are drawn and compared at their centres", "--sample-more-highres is ignored",
    "--load-allres is ignored: photographs are trained at the one size of --resolution"])]
fn options_without_effect_are_named(#[case] line: &str, #[case] expected: &[&str]) {
    let flags: Vec<&str> = line.split(' ').collect();
    TestFolder::with_scene().trained(1, &flags).says(expected);
}

#[test]
fn rates_of_exposures_are_taken_by_the_reference_trainers_names() {
    let place = TestFolder::with_scene();
    place.trained(2, &words::<4>("--exposure --exposure_lr_init=0.02 --exposure_lr_final 0.002"));
    let options = place.config("model").optimize;
    assert_eq!((options.exposure_lr_init, options.exposure_lr_final), (0.02, 0.002));
}

#[test]
fn customary_ways_to_write_switches_and_never_are_understood() {
    let place = TestFolder::with_scene();
    let flags = "--eval True --test_iterations -1 --save_iterations -1 -w False \
                 --checkpoint_iterations -1";
    place.trained(3, &words::<10>(flags));
    let config = place.config("model");
    assert!(config.scene.eval && !config.scene.white_background);
    // The last iteration is saved and measured nevertheless.
    assert!(place.ply(3).exists());
    assert!(place.read("model/results.json").contains("ours_3"));
}

#[test]
fn the_written_configuration_reproduces_the_run() {
    let place = TestFolder::with_scene();
    let flags = |seed| [seed, "--random-background", "--feature-lr", "0.01"];
    place.trained_into("a", 8, &flags("--seed=5"));
    place.splat("train --config a/config.toml -m b", &[]).done();
    place.assert_same(["a", "b"], 8);
    place.trained_into("c", 8, &flags("--seed=6"));
    assert!(place.ply_bytes("a", 8) != place.ply_bytes("c", 8), "the seed changes nothing");
}

#[test]
fn json_progress_is_one_object_a_line() {
    let place = TestFolder::with_scene();
    let ended = place.trained(12, &["--eval", "--progress", "json", "--debug"]);
    assert_eq!(ended.stdout, "");
    let events: Vec<String> = ended
        .stderr
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            line["event"].as_str().unwrap().to_owned()
        })
        .collect();
    for event in ["log", "started", "step", "evaluated", "saved", "finished"] {
        assert!(events.iter().any(|found| found == event), "no {event} in {events:?}");
    }
}

#[test]
fn the_error_of_a_json_run_is_json_too() {
    let place = TestFolder::with_scene();
    fs::remove_dir_all(place.scene().join("sparse")).unwrap();
    let ended = end(place.train().args(["--progress", "json"])).refused(3, &["sparse"]);
    for line in ended.stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["message"].is_string(), "{line}");
    }
}

#[test]
fn quiet_says_nothing_when_all_is_well() {
    let place = TestFolder::with_scene();
    let Ended { stdout, stderr, .. } = place.trained(3, &["--quiet", "--eval"]);
    assert_eq!([stdout, stderr], ["", ""]);
}

#[rstest]
#[case::of_results(&["eval", "--json"])]
#[case::of_messages(&["train", "--iterations=5"])]
#[case::of_events(&["train", "--iterations=5", "--progress=json"])]
fn a_reader_that_goes_away_does_not_stop_the_program(#[case] line: &[&str]) {
    let place = with_model(2, &["--eval"]);
    let mut command = program(&[]);
    command.args(line).args(["--device=cpu", "-s"]).arg(place.scene());
    let mut child = command.arg("-m").arg(place.model()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(line[0] == "eval" || place.ply(5).exists());
}

#[test]
fn an_earlier_run_is_moved_aside_whole() {
    let place = with_model(4, &["--eval"]);
    place.run("render", &[]).done();
    let before = files_below(&place.model());
    place.trained(2, &["--eval"]).says(&["previous_1"]);
    place.trained(2, &["--eval"]).says(&["previous_2"]);
    let aside = place.model().join("previous_1");
    for (path, content) in before {
        let name = path.strip_prefix(place.model()).unwrap();
        assert!(fs::read(aside.join(name)).unwrap() == content, "{} is lost", name.display());
    }
    assert!(!place.ply(4).exists() && place.ply(2).exists());
    assert!(!place.model().join("test").exists(), "the renders belong to the run before");
}

#[test]
fn a_scene_that_is_its_own_model_folder_keeps_its_photographs() {
    let place = TestFolder::with_scene();
    // Blender's scenes have their photographs in folders of these names.
    let photograph = place.scene().join("train/r_0.png");
    fs::create_dir(place.scene().join("train")).unwrap();
    fs::copy(place.image(0), &photograph).unwrap();
    place.trained_into("scene", 2, &[]);
    end(splat().args(["render", "-m"]).arg(place.scene())).done();
    place.trained_into("scene", 2, &[]).says(&["previous_1"]);
    assert!(photograph.exists() && place.image(0).exists());
    assert!(place.scene().join("previous_1/train/ours_2/renders/00000.png").exists());
}

#[test]
fn synth_says_where_the_scene_is() {
    let place = TestFolder::empty();
    let line = "synth --views 3 --width 24 --height 18 --points 20 --truth-cells 64 -o";
    let made = place.path("a");
    assert_eq!(place.splat(line, &[text(&made)]).done().stdout.trim(), text(&made));
    // Photographs, the scene's three files and the true mesh.
    assert_eq!(files_below(&made).len(), 3 + 3 + 1);
}

#[cfg(unix)]
#[test]
fn files_are_for_those_whom_the_umask_allows() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestFolder::empty();
    for (umask, mode) in [("077", 0o600), ("002", 0o664)] {
        let mut command = assert_cmd::Command::new("sh");
        command.args(["-c", &format!("umask {umask}; exec \"$@\""), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_splat")).args(["synth", "--views", "1", "--points", "5"]);
        end(command.args(["--width", "16", "--height", "16", "-o"]).arg(place.path(umask))).done();
        let cameras = place.path(umask).join("sparse/0/cameras.bin");
        assert_eq!(cameras.metadata().unwrap().permissions().mode() & 0o777, mode, "{umask}");
    }
}

#[test]
fn doctor_speaks_text_and_json() {
    let ended = end(splat().arg("doctor"));
    let text = ended.stdout;
    assert!(text.contains(env!("CARGO_PKG_VERSION")), "{text}");
    let doctor = end(splat().args(["doctor", "--json"]));
    let json = doctor.json();
    // A GPU that this program cannot use keeps training from running, as does a full disk.
    let can_train = json["can_train"].as_bool().unwrap();
    assert_eq!([ended.code, doctor.code], [Some(i32::from(!can_train)); 2]);
    let usable = json["gpu_problem"].is_null() && json["disk_free"].as_u64().unwrap() > 1 << 26;
    assert_eq!(can_train, usable, "{json}");
    assert!(["GPU ", "NVML ", "RAM ", "disk "].iter().all(|part| text.contains(part)), "{text}");
    assert!(json["host_memory"].as_u64().unwrap() <= json["host_machine"].as_u64().unwrap());
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert!(json["devices"].as_array().unwrap().contains(&"cpu".into()), "{json}");
    assert_eq!(json["kernels"].is_null(), !cfg!(kernels));
    if !cfg!(kernels) {
        assert!(text.contains("nvcc of CUDA 13.0"), "how to build with kernels: {text}");
    }
    assert!(json["cpu_threads"].as_u64().unwrap() > 0);
}

#[test]
fn bench_measures_a_model_at_the_sizes_asked_for_and_changes_nothing() {
    let place = with_model(3, &["--eval"]);
    let before = files_below(&place.model());
    let bench =
        |flags: &[&str]| place.splat("bench --iterations=12 --warm-up=2 -m MODEL", flags).done();
    let json = bench(&["--json", "--gaussians", "777", "50"]).json();
    assert_eq!((&json["train_views"], &json["view_px"][0]), (&7.into(), &48.into()));
    let runs = json["runs"].as_array().unwrap();
    for (run, gaussians) in runs.iter().zip([50, 777]) {
        assert_eq!(run["gaussians"], gaussians);
        assert!(run["ms_median"].as_f64().unwrap() > 0.0 && run["ms_mean"].as_f64().unwrap() > 0.0);
        let bytes = |label: &str| {
            let entries = run["memory"].as_array().unwrap();
            entries.iter().find(|entry| entry["label"] == label).unwrap()["peak"].as_u64()
        };
        // 59 parameters, each with two moments; two numbers of statistics.
        assert_eq!(bytes("parameters"), Some(59 * 4 * gaussians));
        assert_eq!(bytes("optimizer"), Some((2 * 59 * 4 + 8) * gaussians));
        let parts = ["parameters", "optimizer", "activations", "gradients"].map(bytes);
        let sum: u64 = parts.into_iter().flatten().sum();
        assert_eq!((&run["peak"]["total"], &run["peak"]["training"]), (&sum.into(), &sum.into()));
        // Without a GPU that tells how it fares, only what pictures show.
        assert!(run["pairs"]["contributing"].as_u64().unwrap() > 0 && run["work"].is_null());
        assert!(run["stages"].as_array().unwrap().is_empty() && run["copy"].is_null());
    }
    assert_eq!(runs.len(), 2);
    bench(&["--observe"]).prints(&[
        "density control's statistics",
        "200 Gaussians, 12 steps",
        "ms (median)",
        "pairs contributing",
    ]);
    assert!(files_below(&place.model()) == before, "the model is not touched");
}

#[test]
fn render_writes_pairs_in_two_folders_for_each_split() {
    let place = with_model(3, &["--eval"]);
    let ended = place.run("render", &[]).done();
    assert_eq!(ended.stdout.lines().count(), 2, "{}", ended.stdout);
    for (split, count) in [("train", 7), ("test", 1)] {
        for kind in ["renders", "gt"] {
            let folder = place.model().join(split).join("ours_3").join(kind);
            let names: Vec<String> = files_below(&folder)
                .iter()
                .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            let expected: Vec<String> = (0..count).map(|i| format!("{i:05}.png")).collect();
            assert_eq!(names, expected, "{split} {kind}");
            let first = image::open(folder.join("00000.png")).unwrap();
            assert_eq!((first.width(), first.height()), SIZE);
        }
    }
    place.run("render", &["--skip-train", "--skip-test"]).refused(2, &["skip"]);
}

#[test]
fn render_without_a_photograph_that_can_be_decoded_is_refused() {
    let place = TestFolder::with_scene();
    place.trained(3, &["--eval"]);
    for number in 0..VIEWS {
        // The header stays, so that the scene opens.
        cut(&place.image(number), 100);
    }
    place.run("render", &[]).refused(3, &["no image of the train views", text(&place.image(1))]);
}

#[test]
fn eval_gives_the_figures_of_the_run() {
    let place = with_model(6, &["--eval"]);
    let written = place.json("model/results.json");
    let json = place.run("eval", &["--json"]).done().json();
    assert_eq!(json["iteration"], 6);
    assert_eq!(json["views"].as_array().unwrap().len(), 1);
    let difference = |found: &serde_json::Value, name: &str| {
        (found.as_f64().unwrap() - written["ours_6"][name].as_f64().unwrap()).abs()
    };
    // The PLY holds all that the run had, so only the printed digits differ.
    assert!(difference(&json["mean"]["psnr"], "PSNR") < 1e-4, "{json} {written}");
    assert!(difference(&json["mean"]["ssim"], "SSIM") < 1e-5, "{json} {written}");
    let train = place.splat("eval --split train --json -m MODEL", &[]).done().json();
    assert_eq!(train["views"].as_array().unwrap().len(), 7);
}

#[test]
fn eval_of_another_iteration_or_scene_follows_the_flags() {
    let place = TestFolder::with_scene();
    place.trained(6, &["--eval", "--save-iterations", "2"]);
    let moved = place.path("moved");
    fs::rename(place.scene(), &moved).unwrap();
    let eval = |flags: &[&str]| -> Ended { place.run("eval", &[&["--json"][..], flags].concat()) };
    eval(&[]).refused(3, &[text(&place.scene())]);
    let json = eval(&["-s", text(&moved), "--iteration", "2"]).done().json();
    assert_eq!(json["iteration"], 2);
    eval(&["-s", text(&moved), "--iteration", "5"]).refused(3, &["5", "2, 6"]);
}

#[test]
fn the_demonstration_trains_says_what_is_next_and_is_found_from_every_folder() {
    let place = TestFolder::empty();
    let run = |folder: &str, args: &[&str]| {
        end(splat().current_dir(place.path(folder)).args(args).arg("--device=cpu")).done()
    };
    let ended = run("", &["train", "--demo", "--iterations=5", "-m", DEMO_MODEL]);
    assert!(cfg!(kernels) || !ended.stderr.contains("CUDA"), "nothing to warn of: {ended:#?}");
    let output = ended.stdout;
    // Commands that it suggests can be pasted.
    let quoted = format!("-m '{}'", DEMO_MODEL.replace('\'', r"'\''"));
    output.assert_holds(&[
        "scene",
        "iteration_5/point_cloud.ply",
        "results.json",
        "tensorboard",
        "splat export -m",
        &quoted,
    ]);
    assert!(place.ply_of(DEMO_MODEL, 5).exists());
    fs::create_dir(place.path("elsewhere")).unwrap();
    let model = format!("../{DEMO_MODEL}");
    run("elsewhere", &["eval", "-m", &model]);
}

#[test]
fn a_negative_value_names_its_flag_and_the_last_of_two_flags_wins() {
    end(splat().args(["train", "-s", "x", "--iterations", "-5"])).refused(2, &["--iterations"]);
    let place = with_model(3, &["--iterations", "2"]);
    assert!(place.model().join("point_cloud/iteration_2").is_dir());
}

#[test]
fn measuring_with_other_scene_options_leaves_the_tables_alone() {
    let place = with_model(3, &["--eval"]);
    let read = || place.read("model/results.json");
    let before = read();
    place.run("eval", &["-r", "2"]).done().says(&["left as they are"]).prints(&["PSNR", "SSIM"]);
    assert_eq!(read(), before);
}

// `splat completions`: text for shells and for `man`.

#[rstest]
#[case::bash("bash", "splat.bash")]
#[case::elvish("elvish", "splat.elv")]
#[case::fish("fish", "splat.fish")]
#[case::powershell("powershell", "_splat.ps1")]
#[case::zsh("zsh", "_splat")]
fn completions_know_commands_and_flags(#[case] shell: &str, #[case] file: &str) {
    let printed = end(splat().args(["completions", shell])).done().stdout;
    printed.assert_holds(&["train", "doctor", "vram-limit", "densify-grad-threshold"]);
    let place = TestFolder::empty();
    let folder = place.path("made/here");
    let listed = end(splat().args(["completions", shell, "-o", text(&folder)])).done().stdout;
    assert_eq!(listed.trim(), text(&folder.join(file)));
    assert_eq!(fs::read_to_string(folder.join(file)).unwrap().trim_end(), printed.trim_end());
}

#[test]
#[cfg(unix)]
fn bash_completes_a_flag_with_them() {
    let place = TestFolder::empty();
    end(splat().args(["completions", "bash", "-o", text(&place.path("."))])).done();
    let script = "source splat.bash; COMP_WORDS=(splat train --vram-l); COMP_CWORD=2; \
                  _splat splat --vram-l train; echo ${COMPREPLY[@]}";
    let output = Command::new("bash").args(["-c", script]).current_dir(place.path(".")).output();
    let Ok(output) = output else { return eprintln!("there is no bash here") };
    assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), "--vram-limit");
}

#[test]
fn the_manual_has_a_page_for_the_program_and_for_each_command() {
    let page = end(splat().args(["completions", "man"])).done().stdout;
    page.assert_holds(&[".TH splat 1", "splat\\-train(1)", "Exit codes"]);
    let place = TestFolder::empty();
    let listed = end(splat().args(["completions", "man", "-o", text(&place.path("man1"))])).done();
    let names: Vec<_> =
        listed.stdout.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(names[0], "splat.1");
    for name in ["splat-train.1", "splat-eval.1", "splat-doctor.1", "splat-completions.1"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert!(!names.contains(&"splat-bench.1"), "the hidden command has a page");
    let train = place.read("man1/splat-train.1");
    assert!(train.contains("vram\\-limit"), "{train}");
    end(splat().args(["completions", "tcsh"])).refused(2, &["tcsh", "bash", "man"]);
}

/// A program without CUDA kernels on a machine with an NVIDIA GPU.
#[cfg(all(target_os = "linux", not(kernels)))]
mod on_a_machine_with_a_gpu {
    use super::*;

    /// Runs its arguments where `/dev` holds the file of a GPU; `$0` is an empty folder.
    const WITH_GPU_FILE: &str = r#"
        mount -t tmpfs tmpfs "$0" && touch "$0/nvidia0" "$0/null" &&
        mount --bind /dev/null "$0/null" && mount --bind "$0" /dev && exec "$@"
    "#;

    /// The program on a machine with the files of a GPU. Nothing where this user may not mount, even in a
    /// namespace of their own.
    fn on_gpu_machine(place: &TestFolder, args: &[&str]) -> Option<Ended> {
        let devices = place.path("dev");
        fs::create_dir_all(&devices).unwrap();
        let run = |command: &[&str]| {
            let mut unshare = assert_cmd::Command::new("unshare");
            unshare.args(["--map-root-user", "--mount", "sh", "-c", WITH_GPU_FILE]).arg(&devices);
            end(unshare.env_remove("SPLAT_LOG").args(command))
        };
        if run(&["true"]).code != Some(0) {
            eprintln!("no mount namespace can be made here");
            return None;
        }
        Some(run(&[&[env!("CARGO_BIN_EXE_splat")], args].concat()))
    }

    #[test]
    fn the_demonstration_trains_and_says_what_is_missing() {
        let place = TestFolder::empty();
        let model = place.path("demo");
        let demo = ["train", "--demo", "--iterations", "3", "-m", text(&model)];
        let Some(ended) = on_gpu_machine(&place, &demo) else { return };
        let expected = ["warning", "has no CUDA kernels", "nvcc", "NVCC or CUDA_HOME"];
        ended.done().says(&expected);
        // The commands for next steps work there, too.
        let render = ["render", "--skip-train", "-m", text(&model)];
        on_gpu_machine(&place, &render).unwrap().done();
        let resume = [&demo[..], &["--resume"]].concat();
        on_gpu_machine(&place, &resume).unwrap().done();
    }

    #[test]
    fn scenes_of_the_users_own_are_refused_unless_the_processor_is_asked_for() {
        let place = TestFolder::with_scene();
        let (scene, model) = (place.scene(), place.model());
        let train = ["train", "-s", text(&scene), "-m", text(&model)];
        let train = [&train[..], &["--iterations", "2"]].concat();
        let Some(ended) = on_gpu_machine(&place, &train) else { return };
        ended.refused(5, &["has an NVIDIA GPU", "built without CUDA kernels", "--device cpu"]);
        on_gpu_machine(&place, &[&train[..], &["--device", "cpu"]].concat()).unwrap().done();
        let demo = ["train", "--demo", "--device", "cuda", "-m", text(&model)];
        let ended = on_gpu_machine(&place, &demo).unwrap();
        ended.refused(5, &["--device cuda: this program was built without CUDA kernels"]);
    }
}

//! Output on a terminal, which `script` of every Linux simulates.

use std::fs;
use std::os::unix::fs::symlink;

use assert_cmd::Command;

use crate::common::program::{Ended, TestFolder, Text as _, assert_no_litter, end, words};
use crate::synthetic_scenes::with_model;

const ESCAPE: char = '\x1b';

/// Runs the program on a terminal of this kind.
fn shown(place: &TestFolder, arguments: &[&str], environment: [(&str, &str); 2]) -> Ended {
    let program = env!("CARGO_BIN_EXE_splat");
    let words = arguments.iter().map(|word| format!(" '{word}'")).collect::<String>();
    let mut command = Command::new("script");
    command.current_dir(place.path("")).env_remove("SPLAT_LOG").env_remove("NO_COLOR");
    // Some libraries take any terminal for a colourful one on machines that test.
    command.envs(environment).env("CI", "true").env_remove("CLICOLOR_FORCE");
    command.args(["-q", "-e", "-c", &format!("'{program}'{words}"), "/dev/null"]);
    end(&mut command)
}

#[test]
fn a_terminal_without_escape_sequences_gets_none() {
    let place = TestFolder::with_scene();
    let train = ["train", "-s", "scene", "-m", "model", "--device=cpu", "--iterations=20"];
    let wrong = ["train", "--iterations=never"];
    // A terminal that takes them gets a bar, and colours.
    let usual = [("TERM", "xterm"), ("NO_COLOR", "")];
    assert!(shown(&place, &train, usual).done().stdout.contains(ESCAPE));
    assert!(shown(&place, &["--help"], usual).stdout.contains(ESCAPE));
    for plain in [[("TERM", "dumb"), ("NO_COLOR", "")], [("TERM", "xterm"), ("NO_COLOR", "1")]] {
        // The model folder is there already: a warning is shown, too.
        let run = shown(&place, &train, plain).done().stdout;
        run.assert_holds(&["Training 20/20", "warning: "]);
        let help = shown(&place, &["--help"], plain).stdout;
        assert!(help.contains("Usage:"), "{help}");
        let refused = shown(&place, &wrong, plain);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        for text in [run, help, refused.stdout] {
            assert!(!text.contains(ESCAPE), "{plain:?}: {text:?}");
        }
    }
}

#[test]
fn creep_on_the_processor_is_what_the_gaussians_do_not_explain() {
    let place = TestFolder::with_scene();
    // Gaussians are born up to iteration 600.
    let flags = words::<6>(
        "--densify-from-iter=100 --densify-until-iter=650 --densify-grad-threshold=0.00001 \
         --max-points=20000 --progress=plain --sh-degree-interval=100",
    );
    place.trained(1000, &flags).says(&["Iter 1000: ", "Creep: 0."]);
    let reports = place.events("model", "memory");
    let of = |key: &str, iteration: u64| {
        reports.iter().find(|report| report["iteration"] == iteration).unwrap()[key].as_u64()
    };
    let resident = |iteration| of("host_resident", iteration).unwrap();
    assert!(resident(700) > resident(100) + (4 << 20), "the model did not grow");
    // The model has had its size since iteration 600.
    assert_eq!((of("host_creep", 100), of("host_creep", 700)), (Some(0), Some(0)));
    assert!(of("host_creep", 1000).unwrap() < 4 << 20, "{:?}", of("host_creep", 1000));
    place.splat("profile MODEL", &[]).done();
}

/// A run with four warnings: a photograph is missing, and three options have no effect.
fn noticed(place: &TestFolder, flags: &[&str]) -> Vec<String> {
    let line = "train --device=cpu --iterations=5 -s SCENE -m MODEL --test-iterations=99 \
                --save-iterations=99 --checkpoint-iterations=99";
    place.splat(line, flags).done().stderr.lines().map(str::to_owned).collect()
}

#[test]
fn a_run_without_warnings_prints_at_most_four_lines_before_the_progress() {
    let place = TestFolder::with_scene();
    let line = "train --device=cpu --iterations=5 -s SCENE -m MODEL";
    let output = place.splat(line, &[]).done().stderr;
    let before = output.lines().position(|line| line.starts_with("Training 1/5"));
    assert!(before.unwrap() <= 4, "{output}");
}

#[test]
fn all_warnings_come_before_the_progress_and_the_log_has_all_notices() {
    let place = TestFolder::with_scene();
    fs::remove_file(place.image(3)).unwrap();
    let lines = noticed(&place, &[]);
    let before = lines.iter().position(|line| line.starts_with("Training 1/5")).unwrap();
    let warnings = lines[..before].iter().filter(|line| line.starts_with("warning: ")).count();
    assert_eq!(warnings, 4, "{lines:#?}");
    assert!(lines[1].contains("view_003.png"), "{lines:#?}");
    let notices = place.events("model", "log");
    let is_warning = |notice: &&serde_json::Value| notice["level"] == "warning";
    assert_eq!(notices.iter().filter(is_warning).count(), 4, "{notices:#?}");
    for flag in ["--verbose", "--quiet"] {
        let lines = noticed(&place, &[flag]);
        let warnings = lines.iter().filter(|line| line.starts_with("warning: ")).count();
        // The earlier run is moved aside, which is one more.
        assert_eq!(warnings, 5, "{flag}: {lines:#?}");
    }
}

#[test]
fn notices_of_a_run_that_cannot_begin_come_before_its_error() {
    let place = TestFolder::with_scene();
    let line = "train --device=cpu -s nowhere -m MODEL --iterations=5 --test-iterations=99 \
                --save-iterations=99 --checkpoint-iterations=99";
    let ended = place.splat(line, &[]).refused(3, &["nowhere"]);
    let kinds: Vec<&str> =
        ended.stderr.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(kinds, ["warning", "warning", "warning", "error"], "{ended:#?}");
}

#[test]
fn a_run_that_ends_names_the_commands_that_follow() {
    let place = TestFolder::with_scene();
    let train = ["train", "-s", "scene", "-m", "my model", "--device=cpu", "--iterations=5"];
    let plain = [("TERM", "dumb"), ("NO_COLOR", "")];
    let next = "  view      splat view -m 'my model'";
    let run = shown(&place, &train, plain).done().stdout;
    assert!(run.contains(next), "{run:?}");
    for silent in ["--quiet", "--progress=json"] {
        let run = shown(&place, &[&train[..], &[silent]].concat(), plain).done().stdout;
        assert!(!run.contains("splat view"), "{run:?}");
    }
    let ended = place.trained(5, &[]);
    let block = ended.stderr.lines().skip_while(|line| !line.starts_with("Training complete"));
    let commands: Vec<&str> = block.filter(|line| line.contains("splat ")).collect();
    assert!(commands.len() >= 4, "{ended:#?}");
}

#[test]
fn a_mesh_shows_its_progress_and_the_resolution_of_the_device() {
    let place = TestFolder::with_scene();
    // A mesh needs a hundred opaque Gaussians.
    place.trained(20, &["--init-opacity=0.9"]);
    // Most voxels of this box are empty, which saves time.
    let mesh = [
        "mesh",
        "-m",
        "model",
        "--device=cpu",
        "--force",
        "--bbox-min=-20,-20,-20",
        "--bbox-max=20,20,20",
    ];
    let terminal = [("TERM", "xterm"), ("NO_COLOR", "")];
    let output = shown(&place, &mesh, terminal).stdout;
    output.assert_holds(&["512 voxels along it", "finding the surface"]);
    let quiet = shown(&place, &[&mesh[..], &["--quiet"]].concat(), terminal).done();
    assert!(!quiet.stdout.contains("finding the surface"), "{quiet:#?}");
}

// A disk that is full: lines of logs are lost, not runs.

/// A scene whose model is far larger than all else that a run writes: a PLY takes half a megabyte, a
/// checkpoint 1.4.
fn place_with_many_points() -> TestFolder {
    let place = TestFolder::empty();
    place.write_views(8, (48, 36), 2000);
    place
}

/// Times that a text holds another.
fn count(ended: &Ended, part: &str) -> usize {
    ended.stderr.matches(part).count()
}

#[test]
fn a_log_that_cannot_be_written_costs_its_lines_and_one_warning() {
    let place = TestFolder::with_scene();
    // A preset whose schedule does not follow the length of the run.
    let flags = ["--preset=reference", "--eval"];
    place.trained_into("unbroken", 120, &flags);
    place.trained(5, &flags);
    let log = place.model().join("run.jsonl");
    fs::remove_file(&log).unwrap();
    symlink("/dev/full", &log).unwrap();
    let ended = place.resume(&["--iterations=120", "--test-iterations", "50", "100"]).done();
    let words = format!("{}: cannot be written", log.display());
    assert_eq!(count(&ended, &words), 1, "{ended:#?}");
    assert_eq!(count(&ended, "Training continues"), 1, "{ended:#?}");
    place.assert_same(["unbroken", "model"], 120);
    place.read("model/results.json").assert_holds(&["ours_120", "ours_50"]);
}

#[test]
fn tables_that_do_not_fit_stay_as_they_were_with_one_warning_each() {
    let place = with_model(5, &["--eval"]);
    let tables = ["results.json", "per_view.json"].map(|name| place.model().join(name));
    // Larger than files may be, but for what another program wrote into them.
    let large = format!("{{\"theirs\": \"{}\"}}", "a".repeat(400 << 10));
    for path in &tables {
        fs::write(path, &large).unwrap();
    }
    let flags = ["--resume", "--iterations=20", "--test-iterations", "10", "15"];
    let ended = place.train_on_full_disk(300, &flags).done();
    for path in &tables {
        let words = format!("{}: cannot be written", path.display());
        assert_eq!(count(&ended, &words), 1, "{ended:#?}");
        assert!(fs::read_to_string(path).unwrap() == large);
    }
    place.read("model/metrics.csv").assert_holds(&["\n15,test,", "\n20,test,"]);
}

#[test]
fn tensorboard_loses_what_does_not_fit_and_the_run_goes_on() {
    let place = TestFolder::with_scene();
    // Pictures of a view take most of these files' bytes.
    let evaluations: Vec<String> = (1..=60).map(|at| at.to_string()).collect();
    let evaluations = format!("--test-iterations={}", evaluations.join(","));
    let flags =
        ["--iterations=60", "--eval", "--sh-degree=0", "--checkpoint-reserve=false", &evaluations];
    let ended = place.train_on_full_disk(128, &flags).done();
    assert_eq!(count(&ended, "tfevents"), 1, "{ended:#?}");
    ended.says(&["warning: ", "File too large", "Training continues"]);
    assert!(place.ply(60).exists() && place.checkpoint(60).exists());
}

#[test]
fn a_checkpoint_by_time_that_does_not_fit_is_left_out() {
    let place = place_with_many_points();
    let flags = ["--iterations=6", "--checkpoint-minutes=0.0000001"];
    let ended = place.train_on_full_disk(1000, &flags);
    // The PLY fits, and no checkpoint does.
    assert!(place.ply(6).exists());
    assert_eq!(count(&ended, "Training continues without this checkpoint"), 1, "{ended:#?}");
    assert_eq!(count(&ended, "--checkpoint-reserve: no room can be kept"), 1, "{ended:#?}");
    ended.refused(1, &["chkpnt_6.safetensors: cannot be written", "no room for a checkpoint"]);
    assert!(!place.checkpoint(6).exists());
    assert_no_litter(&place.model());
}

/// Runs `splat train` on a disk of `kib` KiB and copies its files to the place's `saved`. `None` if the system does not
/// let its users mount such disks.
fn on_small_disk(place: &TestFolder, kib: u32, flags: &[&str]) -> Option<Ended> {
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let (here, saved) = (disk.display(), place.path("saved"));
    let mount = format!("mount -t tmpfs -o size={kib}k disk '{here}'");
    let can = Command::new("unshare").args(["-Urm", "sh", "-c", &mount]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let script =
        format!("{mount}; \"$@\"; code=$?; cp -R '{here}/model' '{}'; exit $code", saved.display());
    let mut command = Command::new("unshare");
    command.env_remove("SPLAT_LOG").args(["-Urm", "sh", "-c", &script, "sh"]);
    command.args([env!("CARGO_BIN_EXE_splat"), "train", "--device=cpu", "-s"]).arg(place.scene());
    Some(end(command.arg("-m").arg(disk.join("model")).args(flags)))
}

#[test]
fn the_room_that_was_kept_saves_a_run_whose_disk_is_full() {
    let place = place_with_many_points();
    let flags = ["--save-iterations=20", "--sh-degree-interval=5"];
    place.trained_into("unbroken", 40, &flags);
    // Beside the reserve there is room for the small files, but not for the PLY.
    let small = [&flags[..], &["--iterations=40"]].concat();
    let Some(ended) = on_small_disk(&place, 1950, &small) else { return };
    let parts = [
        "No space left",
        "released",
        "iteration_20/point_cloud.ply: cannot be written",
        "chkpnt_20.safetensors",
        "splat train --resume -m",
    ];
    assert_eq!(count(&ended, "no room can be kept"), 0, "for none that follows: {ended:#?}");
    ended.refused(1, &parts);
    let saved = place.path("saved");
    assert_no_litter(&saved);
    assert!(!place.ply_of("saved", 20).parent().unwrap().exists());
    // With space again, the run goes on, and what was missing is written, too.
    end(place.train_into("saved").arg("--resume")).done().says(&["iteration 20"]);
    for iteration in [20, 40] {
        assert!(place.ply_bytes("unbroken", iteration) == place.ply_bytes("saved", iteration));
    }
}

#[test]
fn without_a_reserve_a_full_disk_costs_the_run_and_says_so() {
    let place = place_with_many_points();
    let flags = ["--iterations=20", "--checkpoint-reserve=false"];
    let Some(ended) = on_small_disk(&place, 400, &flags) else { return };
    ended.refused(1, &["No space left", "no room for a checkpoint", "Free space"]);
    assert_no_litter(&place.path("saved"));
}

#[test]
fn old_checkpoints_by_time_make_way_for_new_ones() {
    let place = place_with_many_points();
    // Room for two checkpoints, but not for the three that there are while the oldest is replaced.
    let flags = ["--iterations=12", "--checkpoint-minutes=0.0000001", "--checkpoint-reserve=false"];
    let Some(ended) = on_small_disk(&place, 3900, &flags) else { return };
    ended.done().omits(&["cannot be written"]);
    assert!(place.ply_of("saved", 12).exists() && place.checkpoint_of("saved", 12).exists());
}

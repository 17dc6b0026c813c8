//! What the program writes to a terminal, as `script` of every Linux shows it one.

use assert_cmd::Command;

use crate::common::program::{Ended, TestFolder, end, splat};

const ESCAPE: char = '\x1b';

/// What the program shows on a terminal of this kind.
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
        for part in ["Training 20/20", "warning: "] {
            assert!(run.contains(part), "{run:?}");
        }
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
    let flags = [
        "--densify-from-iter=100",
        "--densify-until-iter=650",
        "--densify-grad-threshold=0.00001",
        "--max-points=20000",
        "--progress=plain",
        "--sh-degree-interval=100",
    ];
    place.trained(1000, &flags).says(&["Iter 1000: ", "Creep: 0."]);
    let log = std::fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    let reports = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let reports: Vec<_> = reports.filter(|line| line["event"] == "memory").collect();
    let of = |key: &str, iteration: u64| {
        let report = reports.iter().find(|report| report["iteration"] == iteration).unwrap();
        report[key].as_u64()
    };
    let resident = |iteration| of("host_resident", iteration).unwrap();
    assert!(resident(700) > resident(100) + (4 << 20), "the model did not grow");
    // The model has had its size since iteration 600.
    assert_eq!((of("host_creep", 100), of("host_creep", 700)), (Some(0), Some(0)));
    assert!(of("host_creep", 1000).unwrap() < 4 << 20, "{:?}", of("host_creep", 1000));
    end(splat().arg("profile").arg(place.model())).done();
}

/// A run with four warnings: a photograph is missing, and three options have no effect.
fn noticed(place: &TestFolder, flags: &[&str]) -> Vec<String> {
    let mut command = splat();
    command.args(["train", "--device=cpu", "--iterations=5", "-s"]).arg(place.scene());
    command.args(["--test-iterations=99", "--save-iterations=99", "--checkpoint-iterations=99"]);
    let ended = end(command.arg("-m").arg(place.model()).args(flags)).done();
    ended.stderr.lines().map(str::to_owned).collect()
}

#[test]
fn a_run_without_warnings_prints_at_most_four_lines_before_the_progress() {
    let place = TestFolder::with_scene();
    let mut command = splat();
    command.args(["train", "--device=cpu", "--iterations=5", "-s"]).arg(place.scene());
    let ended = end(command.arg("-m").arg(place.model())).done();
    let before = ended.stderr.lines().position(|line| line.starts_with("Training 1/5"));
    assert!(before.unwrap() <= 4, "{}", ended.stderr);
}

#[test]
fn all_warnings_come_before_the_progress_and_the_log_has_all_notices() {
    let place = TestFolder::with_scene();
    std::fs::remove_file(place.image(3)).unwrap();
    let lines = noticed(&place, &[]);
    let before = lines.iter().position(|line| line.starts_with("Training 1/5")).unwrap();
    let warnings = lines[..before].iter().filter(|line| line.starts_with("warning: ")).count();
    assert_eq!(warnings, 4, "{lines:#?}");
    assert!(lines[1].contains("view_003.png"), "{lines:#?}");
    let log = std::fs::read_to_string(place.model().join("run.jsonl")).unwrap();
    let events = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let notices: Vec<_> = events.filter(|event| event["event"] == "log").collect();
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
    let flags = ["--iterations=5", "--test-iterations=99", "--save-iterations=99"];
    let mut command = splat();
    command.args(["train", "--device=cpu", "-s"]).arg(place.path("nowhere")).args(flags);
    let ended = end(command.args(["--checkpoint-iterations=99", "-m"]).arg(place.model()));
    let ended = ended.refused(3, &["nowhere"]);
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
    let mesh = ["mesh", "-m", "model", "--device=cpu", "--force"];
    let terminal = [("TERM", "xterm"), ("NO_COLOR", "")];
    let said = shown(&place, &mesh, terminal).stdout;
    for part in ["512 voxels along it", "finding the surface"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let quiet = shown(&place, &[&mesh[..], &["--quiet"]].concat(), terminal).done();
    assert!(!quiet.stdout.contains("finding the surface"), "{quiet:#?}");
}

//! Results that cannot be printed, and folders that cannot be written.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::program::{Ended, TestFolder, end, files_below, splat, text};
use rstest::rstest;

/// Runs a command whose standard output is a full disk.
fn on_full_stdout(command: &mut Command) -> Ended {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    command.env_remove("SPLAT_LOG").stdout(full).stderr(Stdio::piped()).output().unwrap().into()
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_splat"));
    command.args(args);
    command
}

#[test]
fn results_that_do_not_reach_stdout_end_with_1() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let said = ["results cannot be written to the standard output", "No space left"];
    let model = place.model();
    fs::remove_file(model.join("results.json")).unwrap();
    on_full_stdout(command(&["eval", "--json", "--device=cpu", "-m"]).arg(&model))
        .refused(1, &said);
    assert!(model.join("results.json").is_file(), "what was measured is kept all the same");
    on_full_stdout(command(&["eval", "--device=cpu", "-m"]).arg(&model)).refused(1, &said);
    on_full_stdout(command(&["render", "--device=cpu", "-m"]).arg(&model)).refused(1, &said);
    for split in ["train", "test"] {
        assert!(model.join(split).join("ours_2/renders/00000.png").is_file(), "{split}");
    }
    for json in [&["plan", "-s"][..], &["plan", "--json", "-s"]] {
        on_full_stdout(command(json).arg(place.scene())).refused(1, &said);
    }
    on_full_stdout(command(&["synth", "--views=1", "-o"]).arg(place.path("other")))
        .refused(1, &said);
    on_full_stdout(&mut command(&["doctor"])).refused(1, &said);
    on_full_stdout(command(&["profile"]).arg(&model)).refused(1, &said);
    on_full_stdout(command(&["compare"]).arg(&model)).refused(1, &said);
    for asked in [&["--version"][..], &["--help"], &["help", "train"], &["completions", "man"]] {
        on_full_stdout(&mut command(asked)).refused(1, &said);
    }
}

/// `splat eval` in a process whose files cannot grow at all, as on a full disk.
fn eval_on_a_full_disk(place: &TestFolder, flags: &[&str]) -> Ended {
    // With the signal ignored, a write fails instead of ending the process.
    let script = "ulimit -f 0; exec \"$@\"";
    let mut command = assert_cmd::Command::new("bash");
    command.args(["-c", script, "bash", env!("CARGO_BIN_EXE_splat"), "eval", "--device=cpu", "-m"]);
    end(command.arg(place.model()).args(flags))
}

#[test]
fn a_folder_that_takes_no_tables_is_said_before_anything_is_measured() {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    let before = files_below(&place.model());
    let ended = eval_on_a_full_disk(&place, &[]).refused(1, &[text(&place.model()), "permissions"]);
    assert!(!ended.stderr.contains("results.json"), "{ended:#?}");
    // A table in the way shows only later; what was measured is printed all the same.
    let said = ["warning", "the tables are left as they were", "metrics.csv"];
    let ended = eval_on_a_full_disk(&place, &["--json"]).done().says(&said);
    let report: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(report["mean"]["psnr"].is_number(), "{report}");
    assert!(files_below(&place.model()) == before);
}

#[rstest]
#[case::results("results.json")]
#[case::views("per_view.json")]
fn json_is_printed_and_done_whatever_stands_in_the_way_of_a_table(#[case] name: &str) {
    let place = TestFolder::with_scene();
    place.trained(2, &["--eval"]);
    fs::remove_file(place.model().join(name)).unwrap();
    fs::create_dir_all(place.model().join(name).join("occupied")).unwrap();
    let eval = || {
        let mut command = splat();
        command.args(["eval", "--device=cpu", "-m"]).arg(place.model());
        command
    };
    let ended = end(eval().arg("--json")).done().says(&["warning", name]);
    assert!(ended.stdout.contains("psnr"), "{ended:#?}");
    let ended = end(&mut eval());
    assert!(ended.code == Some(1) && ended.stdout.contains("PSNR"), "{ended:#?}");
}

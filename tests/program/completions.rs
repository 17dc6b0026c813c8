//! `splat completions`: text for shells and for `man`.

use std::fs;
use std::process::Command;

use crate::common::program::{TestFolder, end, splat, text};
use rstest::rstest;

#[rstest]
#[case::bash("bash", "splat.bash")]
#[case::elvish("elvish", "splat.elv")]
#[case::fish("fish", "splat.fish")]
#[case::powershell("powershell", "_splat.ps1")]
#[case::zsh("zsh", "_splat")]
fn completions_know_commands_and_flags(#[case] shell: &str, #[case] file: &str) {
    let printed = end(splat().args(["completions", shell])).done().stdout;
    for part in ["train", "doctor", "vram-limit", "densify-grad-threshold"] {
        assert!(printed.contains(part), "{part} is missing:\n{printed}");
    }
    let place = TestFolder::empty();
    let folder = place.path("made/here");
    let ended = end(splat().args(["completions", shell, "-o", text(&folder)])).done();
    let path = folder.join(file);
    assert_eq!(ended.stdout.trim(), text(&path));
    assert_eq!(fs::read_to_string(path).unwrap().trim_end(), printed.trim_end());
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
    for part in [".TH splat 1", "splat\\-train(1)", "Exit codes"] {
        assert!(page.contains(part), "{part} is missing:\n{page}");
    }
    let place = TestFolder::empty();
    let listed = end(splat().args(["completions", "man", "-o", text(&place.path("man1"))])).done();
    let names: Vec<_> =
        listed.stdout.lines().map(|line| line.rsplit('/').next().unwrap()).collect();
    assert_eq!(names[0], "splat.1");
    for name in ["splat-train.1", "splat-eval.1", "splat-doctor.1", "splat-completions.1"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert!(!names.contains(&"splat-bench.1"), "the hidden command has a page");
    let train = fs::read_to_string(place.path("man1/splat-train.1")).unwrap();
    assert!(train.contains("vram\\-limit"), "{train}");
}

#[test]
fn a_shell_that_is_not_known_is_bad_usage() {
    end(splat().args(["completions", "tcsh"])).refused(2, &["tcsh", "bash", "man"]);
}

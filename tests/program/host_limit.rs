//! `--host-limit`: kept, or refused before anything is trained.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::program::{Ended, TestFolder, end, text};
use splat::synth::{SynthOptions, write_scene};

/// Photographs of which a few take most of what the program takes while they are decoded.
fn with_large_photographs() -> TestFolder {
    let place = TestFolder::empty();
    let options =
        SynthOptions { views: 6, width: 960, height: 720, points: 200, ..SynthOptions::default() };
    write_scene(&place.scene(), &options).unwrap();
    place
}

const FLAGS: [&str; 4] = ["--iterations=10", "-r=8", "--eval", "--eval-train=0"];

/// The limit that an error proposes, MiB.
fn proposed(ended: &Ended) -> u64 {
    let (_, rest) = ended.stderr.split_once("Give ").unwrap_or_else(|| panic!("{ended:#?}"));
    rest.split("MiB").next().unwrap().trim().parse().unwrap()
}

/// The most that the run had in RAM, MiB.
fn peak_of(place: &TestFolder, limit: u64) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_splat"))
        .args(["train", "--device=cpu", "-s", text(&place.scene()), "-m", text(&place.model())])
        .args(FLAGS)
        .arg(format!("--host-limit={limit}MiB"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    loop {
        if let Some(line) = fs::read_to_string(&status)
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
        {
            let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
            most = most.max(kib / 1024);
        }
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return most;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused_and_the_one_proposed_is_kept() {
    let place = with_large_photographs();
    let refused = end(place.train().args(FLAGS).arg("--host-limit=1MiB"))
        .refused(4, &["--host-limit 1MiB", "cannot be kept", "largest photograph 8 MiB", "Give "]);
    assert!(!place.model().exists(), "nothing is begun");
    let limit = proposed(&refused);
    let peak = peak_of(&place, limit);
    assert!(peak <= limit, "{peak} MiB of {limit}");
    assert!(place.ply(10).is_file());
    // It is refused where a model is measured, too.
    let mut eval = crate::common::program::splat();
    eval.args(["eval", "--device=cpu", "--host-limit=1MiB", "-m"]).arg(place.model());
    end(&mut eval).refused(4, &["--host-limit 1MiB", "cannot be kept"]);
}

#[test]
fn photographs_that_are_to_be_kept_give_way_to_the_limit() {
    let place = with_large_photographs();
    let flags = ["--iterations=1", "-r=1", "--eval-train=0"];
    let limit = proposed(&end(place.train().args(flags).arg("--host-limit=1MiB")));
    let limit = format!("--host-limit={limit}MiB");
    let trained = |model: &str, more: &[&str]| {
        let ended = end(place.train_into(model).args(flags).args(more)).done();
        (ended, fs::read(place.ply_of(model, 1)).unwrap())
    };
    let (_, plain) = trained("plain", &[]);
    let (ended, limited) = trained("limited", &["--high-dram", &limit]);
    ended.says(&["warning", "--high-dram", "6 decoded images", "GiB", "on demand", "2GiB"]);
    assert!(plain == limited, "the limit changes no result");
}

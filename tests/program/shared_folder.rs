//! Several programs in one folder at the same time, some of which are killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::common::background::{program, send, started_until, training};
use crate::common::program::{Ended, TestFolder, assert_no_litter, end, files_below, splat, text};

/// Rounds of random kills; this variable asks for another number of them.
const ROUNDS: (&str, u32) = ("SPLAT_TEST_KILLS", 4);

fn rounds() -> u32 {
    std::env::var(ROUNDS.0).ok().map_or(ROUNDS.1, |number| number.parse().unwrap())
}

/// Durations that are different in every run of the test.
struct Chance {
    state: u64,
}

impl Chance {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let state = u64::from(now.subsec_nanos());
        println!("chance begins with {state}");
        Self { state }
    }

    /// Waits for at most so long.
    fn wait(&mut self, most: Duration) {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sleep(most.mul_f64((self.state >> 40) as f64 / (1_u64 << 24) as f64));
    }
}

fn ended(command: &mut Command) -> Ended {
    command.output().unwrap().into()
}

/// The hidden folder of unfinished files.
fn work_folder(folder: &Path) -> PathBuf {
    folder.join(".splat")
}

#[test]
fn a_second_training_is_refused_and_readers_are_not() {
    let place = TestFolder::with_scene();
    let flags = ["--iterations=1000000", "--save-iterations=10", "--eval"];
    let stop_at = ["--checkpoint-iterations=20", "--test-iterations=15"];
    let first =
        started_until(training(&place, &[&flags[..], &stop_at].concat()), &place.checkpoint(20));
    let said = fs::read(place.ply(10)).unwrap();
    let process = format!("process {} on ", first.id());
    for resume in [&[][..], &["--resume", "auto"]] {
        let second = end(place.train().args(["--iterations=5"]).args(resume));
        second.refused(1, &[text(&place.model()), &process, ", started 20", "-m"]);
    }
    for reader in ["render", "eval"] {
        end(splat().args([reader, "--device", "cpu", "-m"]).arg(place.model())).done();
    }
    end(splat().arg("profile").arg(place.model())).done();
    send("TERM", &first);
    Ended::from(first.wait_with_output().unwrap()).refused(130, &["--resume"]);
    assert!(fs::read(place.ply(10)).unwrap() == said);
    assert!(!place.model().join("previous_1").exists());
    assert!(!work_folder(&place.model()).exists(), "a run that ended leaves nothing hidden");
    // The folder is free again.
    end(place.train().args(["--iterations=5"])).done().says(&["previous_1"]);
}

#[test]
fn of_two_trainings_that_start_at_once_one_goes_on() {
    let place = TestFolder::with_scene();
    place.trained(30, &[]);
    let expected = fs::read(place.ply(30)).unwrap();
    fs::remove_dir_all(place.model()).unwrap();
    let flags = ["--iterations=30"];
    let both = [0, 1].map(|_| training(&place, &flags).spawn().unwrap());
    let both = both.map(|child| Ended::from(child.wait_with_output().unwrap()));
    let done = both.iter().filter(|ended| ended.code == Some(0)).count();
    assert!(done >= 1, "{both:#?}");
    for ended in both.into_iter().filter(|ended| ended.code != Some(0)) {
        ended.refused(1, &["another run", text(&place.model())]);
    }
    // One that came when the other was over has put its results aside, whole.
    let aside = place.model().join("previous_1/point_cloud/iteration_30/point_cloud.ply");
    assert_eq!(aside.exists(), done == 2);
    for path in [Some(place.ply(30)), Some(aside).filter(|_| done == 2)].into_iter().flatten() {
        assert!(fs::read(path).unwrap() == expected);
    }
}

#[test]
fn two_trainings_in_one_folder_and_kills_lose_no_byte() {
    let place = TestFolder::with_scene();
    let stops = ["--checkpoint-iterations", "20", "40", "60", "80", "100", "120", "140"];
    let flags = [&["--iterations=160", "--resume=auto", "--eval"][..], &stops].concat();
    let run = || training(&place, &flags);
    let started = Instant::now();
    ended(&mut run()).done();
    let whole = started.elapsed();
    let expected = results(&place);
    assert_eq!(expected.len(), 8 + 1);
    fs::remove_dir_all(place.model()).unwrap();

    let mut chance = Chance::new();
    for round in 0..rounds() {
        let before = results(&place);
        let mut first = run().spawn().unwrap();
        chance.wait(whole / 2);
        let second = run().spawn().unwrap();
        chance.wait(whole / 2);
        first.kill().unwrap();
        first.wait().unwrap();
        let second = Ended::from(second.wait_with_output().unwrap());
        match second.code {
            Some(0) => {}
            _ => drop(second.refused(1, &["another run", "process "])),
        }
        let now = results(&place);
        for (path, content) in &now {
            assert!(expected.get(path) == Some(content), "round {round}: {}", path.display());
        }
        assert!(before.keys().all(|path| now.contains_key(path)), "round {round}: a file is lost");
        if now.len() == expected.len() {
            fs::remove_dir_all(place.model()).unwrap();
        }
    }
    ended(&mut run()).done();
    assert!(results(&place) == expected);
    assert_no_litter(&place.model());
    assert!(!work_folder(&place.model()).exists());
}

/// The checkpoints and point clouds of a run.
fn results(place: &TestFolder) -> BTreeMap<PathBuf, Vec<u8>> {
    let folders = ["checkpoints", "point_cloud"].map(|name| place.model().join(name));
    let files =
        folders.into_iter().filter(|folder| folder.exists()).flat_map(|it| files_below(&it));
    files.filter(|(path, _)| path.extension() != Some(OsStr::new("tmp"))).collect()
}

/// A path of an unfinished file in a folder, which is made.
fn abandoned(folder: &Path) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let path = folder.join(".splat-Ab1c2D.tmp");
    fs::write(&path, "half").unwrap();
    path
}

#[test]
fn what_a_killed_render_leaves_is_hidden_and_swept() {
    let place = TestFolder::with_scene();
    place.trained(3, &[]);
    let render = || {
        let mut command = program(&[]);
        command.args(["render", "--device", "cpu", "-m"]).arg(place.model());
        command
    };
    let folder = place.model().join("train/ours_3");
    killed_at_random(render, &place.model(), &folder.join("renders/00000.png"));
    abandoned(&work_folder(&place.model()));
    ended(&mut render()).done();
    assert_no_litter(&place.model());
    assert!(!work_folder(&place.model()).exists());
    // What an older program left, or one on a disk where the hidden folder cannot be made.
    let beside = [abandoned(&folder.join("gt")), abandoned(place.ply(3).parent().unwrap())];
    abandoned(&work_folder(&place.model()));
    end(place.train().args(["--resume", "--iterations=4"])).done();
    assert!(beside.iter().all(|path| !path.exists()));
    assert!(!work_folder(&place.model()).exists());
}

#[test]
fn what_a_killed_synth_leaves_is_hidden_and_swept() {
    let place = TestFolder::empty();
    let synth = || {
        let mut command = program(&[]);
        command.args(["synth", "--views=60", "--width=64", "--height=48", "--points=50", "-o"]);
        command.arg(place.path("scene"));
        command
    };
    killed_at_random(synth, &place.path("scene"), &place.scene().join("images/view_000.png"));
    abandoned(&work_folder(&place.scene()));
    let beside = abandoned(&place.scene().join("images"));
    ended(&mut synth()).done();
    assert!(!beside.exists());
    assert_eq!(files_below(&place.scene()).len(), 60 + 3 + 1);
    assert!(!work_folder(&place.scene()).exists());
}

/// Kills a program a few times after this file has come: outside of the hidden folder there are only
/// whole files.
fn killed_at_random(start: impl Fn() -> Command, folder: &Path, first: &Path) {
    let mut chance = Chance::new();
    for _ in 0..rounds() {
        fs::remove_file(first).ok();
        let mut child = start().spawn().unwrap();
        while !first.exists() && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_micros(100));
        }
        chance.wait(Duration::from_millis(20));
        child.kill().unwrap();
        child.wait().unwrap();
        for (path, _) in files_below(folder) {
            let is_whole = path.extension() != Some(OsStr::new("tmp"));
            assert!(is_whole || path.starts_with(work_folder(folder)), "{}", path.display());
        }
    }
}

#[test]
fn evaluations_at_the_same_time_lose_no_row_of_each_other() {
    let place = TestFolder::with_scene();
    let iterations = ["1", "2", "3", "4", "5", "6"];
    place.trained(6, &[&["--eval", "--save-iterations"], &iterations[..]].concat());
    fs::remove_file(place.model().join("metrics.csv")).unwrap();
    std::thread::scope(|scope| {
        for iteration in iterations {
            let model = place.model();
            scope.spawn(move || {
                let mut eval = splat();
                eval.args(["eval", "--device=cpu", "--iteration", iteration, "-m"]).arg(model);
                end(&mut eval).done();
            });
        }
    });
    let table = fs::read_to_string(place.model().join("metrics.csv")).unwrap();
    for iteration in iterations {
        let row = format!("\n{iteration},test,");
        assert!(table.contains(&row), "no row of iteration {iteration}: {table}");
    }
    let results = fs::read_to_string(place.model().join("results.json")).unwrap();
    assert_eq!(results.matches("ours_").count(), iterations.len(), "{results}");
    assert_no_litter(&place.model());
}

//! Inputs that people had trouble with, which are no part of this package.

use std::collections::BTreeMap;
use std::env::{join_paths, split_paths, var_os};
use std::ffi::OsStr;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use splat::math::random::{RandomStream, RandomUse};
use splat_formats::{Splats, SpzAxes, read, read_with_axes};
use tempfile::TempDir;

use crate::common::program::{
    Ended, TestFolder, Text as _, assert_no_litter, end, ended, files_below, kill, program, send,
    splat, started_until, text, training,
};
use crate::common::synthetic::outside;
use crate::synthetic_scenes::with_model;
use crate::view::Served;

/// Names the folder that holds `_base/` and a folder for each fault.
const FAULTS: &str = "SPLAT_TEST_FAULTS";

/// Largest difference in PSNR of the same pixels and cameras, dB.
const SAME: f64 = 0.005;

/// Tolerance for scenes far away and in other units, dB.
const MOVED: f64 = 0.05;

/// Tolerance where poses or pixels differ a little, dB.
const NEAR: f64 = 0.2;

/// Largest difference between the presets of two days, dB.
const PRESETS: f64 = 0.4;

/// PSNR of the base with the preset of which the folders give figures, dB. Theirs move with it.
const GIVEN_BASE: f64 = 23.57;

/// A copy of all faults, and the PSNR of the scene without a fault.
struct Faults {
    folder: TempDir,
    base: f64,
}

impl Faults {
    /// Copies the faults and trains the scene without a fault.
    fn copy(from: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(from, folder.path());
        let mut faults = Self { folder, base: 0.0 };
        faults.base = faults.trained("_base", &[]);
        println!("without a fault: {:.3} dB", faults.base);
        faults
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the command of a fault as it stands, of which stderr has all output.
    fn run(&self, name: &str) -> Ended {
        let mut sh = assert_cmd::Command::new("sh");
        sh.arg(self.path(name).join("cmd")).env("SPLAT", splat().get_program());
        let mut ended = end(sh.timeout(Duration::from_secs(600)));
        ended.stderr = std::mem::take(&mut ended.stdout) + &ended.stderr;
        ended
    }

    /// PSNR of the held-out views in the folder of a fault, dB.
    fn psnr(&self, name: &str) -> f64 {
        let results = fs::read(self.path(name).join("out/results.json")).unwrap();
        let results: Value = serde_json::from_slice(&results).unwrap();
        results.as_object().unwrap().values().next_back().unwrap()["PSNR"].as_f64().unwrap()
    }

    /// Runs the command of a fault, which reaches this PSNR.
    fn reaches(&self, name: &str, expected: f64, within: f64) -> Ended {
        let ended = self.run(name).done();
        let found = self.psnr(name);
        println!("    {found:.3} dB, expected {expected:.3}");
        assert!((found - expected).abs() <= within, "{found} dB, not {expected}: {ended:#?}");
        ended
    }

    /// Trains a folder's scene as the commands do. Returns the PSNR, dB.
    fn trained(&self, name: &str, flags: &[&str]) -> f64 {
        let folder = self.path(name);
        let scene = if name == "_base" { folder.clone() } else { folder.join("scene") };
        let mut train = splat();
        train.current_dir(&folder).args(["train", "--device=cpu", "--eval", "-m", "out", "-s"]);
        train.arg(scene).args(["--iterations", "200"]).args(flags);
        end(train.timeout(Duration::from_secs(600))).done();
        self.psnr(name)
    }

    /// Makes a copy of the scene without a fault.
    fn another(&self, name: &str) -> PathBuf {
        copy(&self.path("_base"), &self.path(name).join("scene"));
        self.path(name).join("scene")
    }

    fn gaussians(&self, file: &str) -> Splats {
        read(&self.path(file)).unwrap().splats
    }

    /// A folder with a model in `work/m1`, as the scripts of these faults expect it.
    fn with_model(&self, name: &str) -> PathBuf {
        let folder = self.path(name);
        let model = folder.join("work/m1");
        fs::create_dir_all(folder.join("work")).unwrap();
        let mut train = splat();
        train.args(["train", "--device=cpu", "--iterations=5", "-m", text(&model), "-s"]);
        end(train.arg(self.path("_base"))).done();
        folder
    }
}

/// Copies a folder. A file that holds a path to another folder was a link before it was packed.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let to = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &to);
            continue;
        }
        let bytes = fs::read(&entry).unwrap();
        if bytes.starts_with(b"../") && bytes.len() < 200 {
            symlink(String::from_utf8(bytes).unwrap().trim(), to).unwrap();
        } else {
            fs::write(to, bytes).unwrap();
        }
    }
}

fn python(folder: &Path, script: &str, more: &[&str]) -> Command {
    let program = Path::new(splat().get_program()).parent().unwrap().to_owned();
    let path = var_os("PATH").unwrap_or_default();
    let path = join_paths([program].into_iter().chain(split_paths(&path))).unwrap();
    let mut python = Command::new("python3");
    python.current_dir(folder).arg(script).args(more).env("PATH", path);
    python
}

/// Largest difference between the centres of two files whose rows have the same order.
fn farthest(a: &Splats, b: &Splats) -> f32 {
    let pairs = a.columns().means.iter().flatten().zip(b.columns().means.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

type Check = fn(&Faults, &str);

/// Faults whose command reaches the PSNR of the base and so much more, dB, within a tolerance, and
/// says these words.
const REACHED: [(&str, f64, f64, &[&str]); 12] = [
    ("angle-cx-cy", 0.0, SAME, &[]),
    ("backslash-transforms", 0.0, SAME, &["16 photographs were found under another"]),
    ("blender-points3d", 20.5 - GIVEN_BASE, NEAR, &["14 views, 2 held out, 1.5k Gaussians"]),
    ("dup-frames", 0.0, SAME, &["14 views, 2 held out", "twice"]),
    ("georef-transforms-utm", 0.0, MOVED, &[]),
    ("georef-utm", 0.0, MOVED, &[]),
    ("noblank-three-words", 0.0, SAME, &["14 views, 2 held out"]),
    ("ply-diffuse-red", 0.0, NEAR, &[]),
    ("ply-float-0-255", 0.0, NEAR, &[]),
    ("small-scale-1e-4", 0.0, MOVED, &[]),
    ("transforms-ext-mismatch", 0.0, SAME, &["found under another extension"]),
    ("two-models", 0.0, SAME, &["sparse/1", "sparse/0"]),
];

/// Faults of which something else is asked.
const TABLE: [(&str, Check); 17] = [
    ("C1-compare-panic", |all, name| {
        // The test views differ: a table, and code 3.
        let args = ["compare", "a.json", "b.json"];
        let ended = end(splat().current_dir(all.path(name)).args(args)).ends(3);
        let ended = ended.says(&["a.json and b.json", "test views differ"]).prints(&["test PSNR"]);
        assert!(ended.stdout.lines().all(|line| line.chars().count() < 200), "{ended:#?}");
    }),
    ("E1-export-tmp", interrupted_exports),
    ("I1-nan-exit1", |all, name| {
        let mut train = splat();
        train.args(["train", "--device=cpu", "--iterations=2", "-m", "out", "-s"]);
        train.arg(all.path("_base")).args(["--init", "a.glb"]).current_dir(all.path(name));
        end(&mut train).refused(3, &["a.glb"]);
    }),
    ("R1-ranks-path", impostor),
    ("V1-slots", half_open),
    ("ascii-gaussians", |all, name| {
        all.run(name).done();
        let text = fs::read_to_string(all.path(name).join("in.ply")).unwrap();
        let (_, rows) = text.split_once("end_header").unwrap();
        let found = all.gaussians("ascii-gaussians/in.ply");
        assert_eq!(found.len(), rows.split('\n').filter(|row| !row.trim().is_empty()).count());
    }),
    ("empty-photograph", |all, name| {
        all.run(name).done().says(&["view_004.png", "is empty (0 bytes)", "13 views, 2 held out"]);
    }),
    ("images-flag-transforms", |all, name| {
        all.run(name).done().says(&["\"largest_px\":[80,60]"]);
    }),
    ("is-fisheye", |all, name| {
        let path = all.path(name).join("scene/transforms.json");
        let json = fs::read_to_string(&path).unwrap();
        all.reaches(name, all.base + 24.9 - GIVEN_BASE, NEAR);
        let found = all.psnr(name);
        let model = "\"camera_model\": \"OPENCV_FISHEYE\"";
        fs::write(&path, json.replace("\"is_fisheye\": true", model)).unwrap();
        all.reaches(name, found, SAME);
    }),
    ("masks-transforms", |all, name| {
        let masked = all.another("masked");
        copy(&all.path(name).join("scene/masks"), &masked.join("masks"));
        let expected = all.trained("masked", &[]);
        assert!(expected - all.base > 0.1, "the masks change nothing: {expected}");
        all.reaches(name, expected, SAME);
    }),
    ("ns-splits", |all, name| {
        let scene = all.another("listed");
        let list: String = (12..16).map(|number| format!("view_{number:03}.png\n")).collect();
        fs::write(scene.join("list.txt"), list).unwrap();
        let list = scene.join("list.txt");
        let expected = all.trained("listed", &["--test-list", text(&list)]);
        all.reaches(name, expected, SAME).says(&["12 views, 4 held out"]);
    }),
    ("rgb-gaussians", |all, name| {
        all.run(name).done();
        let colors = all.gaussians("rgb-gaussians/in.ply").into_columns().sh_dc;
        let [least, most] =
            [f32::min, f32::max].map(|pick| colors.iter().flatten().copied().reduce(pick).unwrap());
        // 0 to 255 in harmonics of order 0.
        assert!(least >= -1.773 && most <= 1.773 && most - least > 1.0, "{least} {most}");
    }),
    ("scale-neg-inf", |all, name| {
        let ended = all.run(name).done().says(&["beyond the range"]);
        let percent = ended.stderr.split("scale ").nth(1).and_then(|it| it.split(' ').next());
        assert!(percent.unwrap().parse::<f64>().unwrap() < 10.0, "{ended:#?}");
    }),
    ("spz-init-axes", |all, name| {
        let truth = all.path("spz-read-axes/truth.ply");
        let expected = all.trained(name, &["--iterations=1", "--init", text(&truth)]);
        assert!(expected > 23.0, "{expected}");
        all.reaches(name, expected, NEAR);
    }),
    ("spz-read-axes", |all, name| {
        // The largest difference, which a script prints.
        let ended = all.run(name).done();
        let (_, found) = ended.stderr.split_once("max difference of positions ").unwrap();
        let found: f64 = found.lines().next().unwrap().parse().unwrap();
        assert!(found < 0.01, "{found}");
    }),
    ("spz-write-default-axes", |all, name| {
        // The file itself: npm has versions of the script's reader that take either axes.
        all.run(name);
        let file = all.path(name).join("out.spz");
        let rub = SpzAxes::of_name("rub").unwrap();
        let found = read_with_axes(&file, Some(rub)).unwrap().splats;
        let difference = farthest(&found, &all.gaussians("spz-write-default-axes/truth.ply"));
        assert!(difference < 0.01, "{difference}");
    }),
    ("_base", |all, _| assert!((all.base - GIVEN_BASE).abs() < PRESETS, "{}", all.base)),
];

/// Signals and kills leave no unfinished file, and a rerun works.
fn interrupted_exports(all: &Faults, name: &str) {
    let folder = all.with_model(name);
    for (script, more, good) in [
        ("sig.py", "", "runs with leftover tmp 0 "),
        ("kill4.py", "sog,lod", "   bad 0 leftover kinds after kill {} "),
    ] {
        let more: &[&str] = if more.is_empty() { &[] } else { &[more] };
        let ended = run(python(&folder, script, more)).done();
        let results = ended.stdout.lines().filter(|line| !line.starts_with("##"));
        let results: Vec<_> = results.collect();
        assert!(!results.is_empty() && results.iter().all(|it| it.contains(good)), "{ended:#?}");
    }
}

/// A false rank 0 has no file overwritten.
fn impostor(all: &Faults, name: &str) {
    let folder = all.path(name);
    let precious = folder.join("precious.bin");
    fs::write(&precious, vec![b'A'; 300_000]).unwrap();
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let words = [&port.to_string(), text(&precious)];
    let mut python = python(&folder, "impostor.py", &words).spawn().unwrap();
    let mut rank = splat();
    rank.args(["train", "--ranks=auto", "--device=cpu", "-m", "out", "-s"]).arg(all.path("_base"));
    rank.env("SPLAT_RANK", "1").env("SPLAT_WORLD", "2").env("SPLAT_LOCAL_WORLD", "2");
    rank.env("SPLAT_RENDEZVOUS", format!("127.0.0.1:{port}")).env_remove("SPLAT_TOKEN");
    rank.env("XDG_STATE_HOME", &folder).current_dir(&folder);
    let ended = end(&mut rank);
    python.kill().ok();
    python.wait().unwrap();
    assert!(fs::read(&precious).unwrap().iter().all(|&byte| byte == b'A'), "{ended:#?}");
    assert!(ended.code.is_some_and(|code| code != 0), "{ended:#?}");
}

/// Connections without the token keep nobody out.
fn half_open(all: &Faults, name: &str) {
    let folder = all.with_model(name);
    let served = Served::of_model(&folder.join("work/m1"), &[]);
    fs::write(folder.join("work/tok"), &served.token).unwrap();
    fs::write(folder.join("pid"), served.child.0.id().to_string()).unwrap();
    let words = [&served.port.to_string(), "pid"];
    let ended = run(python(&folder, "viewatk.py", &words)).done();
    let waits = ended.stdout.lines().filter_map(|line| {
        let (_, answer) = line.split_once("half-open: ")?;
        assert!(answer.contains("200 OK"), "{answer}");
        answer.split(' ').rev().nth(3)?.parse::<f64>().ok()
    });
    let longest = waits.reduce(f64::max).unwrap();
    assert!(longest < 5.0, "{longest} s: {ended:#?}");
}

#[test]
fn every_fault_does_what_is_right() {
    let Some(from) = outside(FAULTS) else { return };
    let all = Faults::copy(&from);
    let names = || REACHED.iter().map(|row| row.0).chain(TABLE.iter().map(|row| row.0));
    let mut folders: Vec<_> =
        fs::read_dir(&from).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    let unknown = folders.iter().find(|folder| {
        let name = folder.file_name().unwrap();
        !names().any(|known| known == name)
    });
    assert_eq!((unknown, folders.len()), (None, names().count()));
    let is_failed = |name: &&str| {
        println!("{name}");
        let check = || {
            if let Some((_, more, within, words)) = REACHED.iter().find(|row| row.0 == *name) {
                all.reaches(name, all.base + more, *within).says(words);
            }
            TABLE.iter().filter(|row| row.0 == *name).for_each(|(_, check)| check(&all, name));
        };
        catch_unwind(AssertUnwindSafe(check)).is_err()
    };
    let failed: Vec<_> = names().filter(is_failed).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

// Several programs in one folder at the same time. Some are killed.

/// Returns the rounds of random kills; `SPLAT_TEST_KILLS` asks for another number of them.
fn rounds() -> u32 {
    std::env::var("SPLAT_TEST_KILLS").map_or(4, |number| number.parse().unwrap())
}

/// Waits for at most so long, in every run of the test for another time.
fn wait_by_chance(most: Duration) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let draws = RandomStream::new(u64::from(now.subsec_nanos()), 0, RandomUse::Sample);
    let wait = most.mul_f64(draws.uniform(0));
    println!("waits {wait:?}");
    sleep(wait);
}

/// Runs a command to its end.
fn run(mut command: Command) -> Ended {
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
    let expected = place.ply_bytes("model", 10);
    let process = format!("process {} on ", first.id());
    for resume in [&[][..], &["--resume", "auto"]] {
        let second = end(place.train().args(["--iterations=5"]).args(resume));
        second.refused(1, &[text(&place.model()), &process, ", started 20", "-m"]);
    }
    for reader in ["render", "eval"] {
        place.run(reader, &[]).done();
    }
    place.splat("profile MODEL", &[]).done();
    send("TERM", &first);
    ended(first).refused(130, &["--resume"]);
    assert!(place.ply_bytes("model", 10) == expected);
    assert!(!place.model().join("previous_1").exists());
    assert!(!work_folder(&place.model()).exists(), "a run that ended leaves nothing hidden");
    // The folder is free again.
    end(place.train().args(["--iterations=5"])).done().says(&["previous_1"]);
}

#[test]
fn of_two_trainings_that_start_at_once_one_goes_on() {
    let place = with_model(30, &[]);
    let expected = place.ply_bytes("model", 30);
    fs::remove_dir_all(place.model()).unwrap();
    let flags = ["--iterations=30"];
    let both = [0, 1].map(|_| training(&place, &flags).spawn().unwrap());
    let both = both.map(ended);
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
    let train = || training(&place, &flags);
    let started = Instant::now();
    run(train()).done();
    let whole = started.elapsed();
    let expected = results(&place);
    assert_eq!(expected.len(), 8 + 1);
    fs::remove_dir_all(place.model()).unwrap();

    for round in 0..rounds() {
        let before = results(&place);
        let mut first = train().spawn().unwrap();
        wait_by_chance(whole / 2);
        let second = train().spawn().unwrap();
        wait_by_chance(whole / 2);
        kill(&mut first);
        let second = ended(second);
        if second.code != Some(0) {
            second.refused(1, &["another run", "process "]);
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
    run(train()).done();
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
    let place = with_model(3, &[]);
    let render = || {
        let mut command = program(&[]);
        command.args(["render", "--device", "cpu", "-m"]).arg(place.model());
        command
    };
    let folder = place.model().join("train/ours_3");
    killed_at_random(render, &place.model(), &folder.join("renders/00000.png"));
    abandoned(&work_folder(&place.model()));
    run(render()).done();
    assert_no_litter(&place.model());
    assert!(!work_folder(&place.model()).exists());
    // Files of an older program, or of a disk where the hidden folder cannot be made.
    let beside = [abandoned(&folder.join("gt")), abandoned(place.ply(3).parent().unwrap())];
    abandoned(&work_folder(&place.model()));
    place.resume(&["--iterations=4"]).done();
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
    run(synth()).done();
    assert!(!beside.exists());
    assert_eq!(files_below(&place.scene()).len(), 60 + 3 + 1);
    assert!(!work_folder(&place.scene()).exists());
}

/// Kills a program a few times after this file has come: outside of the hidden folder there are only
/// whole files.
fn killed_at_random(start: impl Fn() -> Command, folder: &Path, first: &Path) {
    for _ in 0..rounds() {
        fs::remove_file(first).ok();
        let mut child = start().spawn().unwrap();
        while !first.exists() && child.try_wait().unwrap().is_none() {
            sleep(Duration::from_micros(100));
        }
        wait_by_chance(Duration::from_millis(20));
        kill(&mut child);
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
            let place = &place;
            scope.spawn(move || place.run("eval", &["--iteration", iteration]).done());
        }
    });
    let table = place.read("model/metrics.csv");
    for iteration in iterations {
        table.assert_holds(&[&format!("\n{iteration},test,")]);
    }
    let results = place.read("model/results.json");
    assert_eq!(results.matches("ours_").count(), iterations.len(), "{results}");
    assert_no_litter(&place.model());
}

//! The program itself: scenes to run it on, and what it says when it ends.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::synthetic::write_synthetic;
use splat::config::Config;
use splat::dataset::{Dataset, ImageLoader};
use splat::perceptual::LpipsWeights;
use splat::synth::SynthOptions;
use splat::train::TrainerSetup;
use tempfile::TempDir;

/// Long enough for a busy machine; only a program that hangs takes it.
const PATIENCE: Duration = Duration::from_secs(180);

/// The program, ready to get arguments.
pub fn splat() -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_splat"));
    command.env_remove("SPLAT_LOG").timeout(PATIENCE);
    // Nor does it find what lies on this machine by chance.
    command.env_remove("SPLAT_LPIPS_WEIGHTS").env_remove("TORCH_HOME");
    command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX");
    command.env("XDG_CACHE_HOME", "/nonexistent");
    command
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Runs a command to its end.
pub fn end(command: &mut assert_cmd::Command) -> Ended {
    command.output().unwrap().into()
}

impl From<std::process::Output> for Ended {
    fn from(output: std::process::Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Ended {
    /// The run reached its end.
    pub fn done(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        assert!(!self.stderr.contains("panicked"), "{self:#?}");
        self
    }

    /// The run ended with this code, nothing on stdout and one clear error that says all of these.
    pub fn refused(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        assert_eq!(self.stdout, "", "{self:#?}");
        for bad in ["panicked", "defect", "RUST_BACKTRACE"] {
            assert!(!self.stderr.contains(bad), "{self:#?}");
        }
        let error = self.stderr.lines().find(|line| line.contains("error")).map(str::to_owned);
        assert!(error.is_some(), "no error is named: {self:#?}");
        self.says(parts)
    }

    /// stderr holds all of these.
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not said: {self:#?}");
        }
        self
    }
}

/// A temporary folder with a tiny COLMAP scene in `scene`; the model goes to `model`.
pub struct TestFolder {
    folder: PathBuf,
    scene: PathBuf,
    /// Removes the folder, where it is a temporary one.
    _temporary: Option<TempDir>,
}

/// Views of the tiny scene.
pub const VIEWS: usize = 8;
/// Size of its photographs, px.
pub const SIZE: (u32, u32) = (48, 36);

/// Calls `run` with the set-up of a run in this place, and with its dataset.
pub fn set_up<T>(
    place: &TestFolder,
    (config, lpips): (&Config, Option<&LpipsWeights>),
    images: &ImageLoader,
    run: impl FnOnce(TrainerSetup<'_>) -> T,
) -> T {
    let dataset = &Dataset::load(&config.scene).unwrap();
    fs::create_dir_all(place.model()).unwrap();
    let (model_path, stop) = (&place.model(), &AtomicBool::new(false));
    let began = Instant::now();
    run(TrainerSetup { lpips, dataset, images, config, model_path, began, stop })
}

impl TestFolder {
    /// The steps in the log of its model.
    pub fn steps(&self) -> Vec<serde_json::Value> {
        let log = fs::read_to_string(self.model().join("run.jsonl")).unwrap();
        let records =
            log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        records.filter(|record| record["event"] == "step").collect()
    }

    /// With the tiny scene in it.
    pub fn with_scene() -> Self {
        let place = Self::empty();
        place.write_scene();
        place
    }

    pub fn empty() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        Self { scene: folder.join("scene"), folder, _temporary: Some(temporary) }
    }

    /// With the scene of another place, which a test must not change.
    pub fn beside(other: &Self) -> Self {
        Self { scene: other.scene(), ..Self::empty() }
    }

    /// This folder, which stays.
    pub fn lasting(folder: PathBuf) -> Self {
        Self { scene: folder.join("scene"), folder, _temporary: None }
    }

    /// Writes the tiny scene.
    pub fn write_scene(&self) {
        let (width, height) = SIZE;
        let options =
            SynthOptions { views: 8, width, height, points: 200, ..SynthOptions::default() };
        write_synthetic(&self.scene(), &options);
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn scene(&self) -> PathBuf {
        self.scene.clone()
    }

    pub fn model(&self) -> PathBuf {
        self.path("model")
    }

    pub fn image(&self, number: usize) -> PathBuf {
        self.scene().join(format!("images/view_{number:03}.png"))
    }

    /// The points of the scene, as COLMAP stores them.
    pub fn points(&self) -> PathBuf {
        self.scene().join("sparse/0/points3D.bin")
    }

    /// `splat train` of the scene into `model`, on the CPU.
    pub fn train(&self) -> assert_cmd::Command {
        self.train_into("model")
    }

    /// The same into another folder.
    pub fn train_into(&self, model: &str) -> assert_cmd::Command {
        let mut command = splat();
        command.args(["train", "--device", "cpu", "-s"]).arg(self.scene());
        // All notices: a test looks for its own.
        command.arg("-m").arg(self.path(model)).arg("--verbose");
        command
    }

    /// Trains for so many iterations with these flags, to the end.
    pub fn trained(&self, iterations: u32, flags: &[&str]) -> Ended {
        self.trained_into("model", iterations, flags)
    }

    /// The same into another folder.
    pub fn trained_into(&self, model: &str, iterations: u32, flags: &[&str]) -> Ended {
        end(self
            .train_into(model)
            .args(["--iterations".to_owned(), iterations.to_string()])
            .args(flags))
        .done()
    }

    pub fn ply(&self, iteration: u32) -> PathBuf {
        self.ply_of("model", iteration)
    }

    pub fn ply_of(&self, model: &str, iteration: u32) -> PathBuf {
        self.path(model).join(format!("point_cloud/iteration_{iteration}/point_cloud.ply"))
    }

    pub fn checkpoint(&self, iteration: u32) -> PathBuf {
        self.checkpoint_of("model", iteration)
    }

    pub fn checkpoint_of(&self, model: &str, iteration: u32) -> PathBuf {
        self.path(model).join(format!("checkpoints/chkpnt_{iteration}.safetensors"))
    }
}

/// Cuts a file to its first `bytes`.
pub fn cut(path: &Path, bytes: usize) {
    let content = fs::read(path).unwrap();
    assert!(bytes < content.len(), "{} is too short to be cut", path.display());
    fs::write(path, &content[..bytes]).unwrap();
}

/// Replaces in a file the one place where `old` stands.
pub fn patch(path: &Path, old: &[u8], new: &[u8]) {
    let mut content = fs::read(path).unwrap();
    let places: Vec<usize> = content
        .windows(old.len())
        .enumerate()
        .filter_map(|(at, window)| (window == old).then_some(at))
        .collect();
    assert_eq!(places.len(), 1, "{} in {}", String::from_utf8_lossy(old), path.display());
    content.splice(places[0]..places[0] + old.len(), new.iter().copied());
    fs::write(path, content).unwrap();
}

/// Every file below a folder, with its content, in the order of names.
pub fn files_below(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

/// No temporary file was left behind.
pub fn assert_no_litter(folder: &Path) {
    for (path, _) in files_below(folder) {
        assert!(path.extension() != Some(OsStr::new("tmp")), "left behind: {}", path.display());
    }
}

/// A path as the program writes it in messages.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

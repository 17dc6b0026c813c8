//! The program itself: scenes to run it on, and what it says when it ends.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use protobuf::Message as _;
use serde_json::Value;
use splat::config::{Config, SceneOptions};
use splat::dataset::{Dataset, ImageLoader};
use splat::perceptual::LpipsWeights;
use splat::synth::SynthOptions;
use splat::train::TrainerSetup;
use tempfile::TempDir;
use tensorboard_proto::event::Event as Record;

use super::synthetic::{enlarge, write_synthetic};

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

/// Exit code and output of a run.
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

/// Waits for the end of a started program.
pub fn ended(child: Child) -> Ended {
    child.wait_with_output().unwrap().into()
}

/// Returns the program with a limit of `kib` KiB on the size of a file, as on a full disk.
pub fn on_full_disk(kib: u32) -> assert_cmd::Command {
    let mut command = assert_cmd::Command::new("bash");
    command.env_remove("SPLAT_LOG").args(["-c", &format!("ulimit -f {kib}; exec \"$@\""), "bash"]);
    command.arg(env!("CARGO_BIN_EXE_splat"));
    command
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
    /// The run ended with this code.
    pub fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The run reached its end.
    pub fn done(self) -> Self {
        self.ends(0).omits(&["panicked"])
    }

    /// The run ended with this code, nothing on stdout and one clear error that says all of these.
    pub fn refused(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.stdout, "", "{self:#?}");
        assert!(self.stderr.contains("error"), "no error is named: {self:#?}");
        self.ends(code).omits(&["panicked", "defect", "RUST_BACKTRACE"]).says(parts)
    }

    /// Returns what was printed, which is JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// stderr holds all of these.
    pub fn says(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is missing: {self:#?}");
        }
        self
    }

    /// Returns the limit of the host's memory that the error proposes, MiB.
    pub fn proposed_limit(&self) -> u64 {
        let (_, rest) = self.stderr.split_once("Give ").unwrap_or_else(|| panic!("{self:#?}"));
        rest.split("MiB").next().unwrap().trim().parse().unwrap()
    }

    /// Returns the mean PSNR that `splat eval --json` printed, dB.
    pub fn psnr(&self) -> f64 {
        self.json()["mean"]["psnr"].as_f64().unwrap()
    }

    /// stderr holds none of these.
    pub fn omits(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(!self.stderr.contains(part), "`{part}` is said: {self:#?}");
        }
        self
    }

    /// stdout holds all of these.
    pub fn prints(self, parts: &[&str]) -> Self {
        for part in parts {
            assert!(self.stdout.contains(part), "`{part}` is not printed: {self:#?}");
        }
        self
    }
}

/// A text that tests look into.
pub trait Text {
    /// Asserts that all of these are in the text.
    fn assert_holds(&self, parts: &[&str]);
}

impl Text for str {
    fn assert_holds(&self, parts: &[&str]) {
        for part in parts {
            assert!(self.contains(part), "`{part}` is missing:\n{self}");
        }
    }
}

/// Returns the words of a line, between which there is one space.
pub const fn words<const N: usize>(line: &str) -> [&str; N] {
    let mut words = [""; N];
    let (mut count, mut from, mut at) = (0, 0, 0);
    while at <= line.len() {
        if at == line.len() || line.as_bytes()[at] == b' ' {
            words[count] = line.split_at(at).0.split_at(from).1;
            (count, from) = (count + 1, at + 1);
        }
        at += 1;
    }
    assert!(count == N, "another number of words");
    words
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
    let most = config.densify.max_points.map_or(usize::MAX, |most| most.try_into().unwrap());
    let began = Instant::now();
    run(TrainerSetup { lpips, dataset, images, config, most, model_path, began, stop })
}

impl TestFolder {
    /// Reads a text file of the place.
    pub fn read(&self, name: &str) -> String {
        let path = self.path(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Reads a JSON file of the place.
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Returns the configuration that a run stored.
    pub fn config(&self, model: &str) -> Config {
        Config::from_toml("config.toml", &self.read(&format!("{model}/config.toml"))).unwrap()
    }

    /// Opens the scene.
    pub fn dataset(&self) -> Dataset {
        let source_path = Some(self.scene());
        Dataset::load(&SceneOptions { source_path, ..SceneOptions::default() }).unwrap()
    }

    /// Returns the PSNR of the held-out views after an iteration, dB.
    pub fn psnr(&self, model: &str, iteration: u32) -> f64 {
        let results = self.json(&format!("{model}/results.json"));
        results[format!("ours_{iteration}")]["PSNR"].as_f64().unwrap()
    }

    /// Returns the events of one kind in the log of a model.
    pub fn events(&self, model: &str, kind: &str) -> Vec<Value> {
        let log = self.read(&format!("{model}/run.jsonl"));
        let events = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["event"] == kind).collect()
    }

    /// Returns a number of each event of one kind.
    pub fn numbers(&self, model: &str, kind: &str, key: &str) -> Vec<u64> {
        self.events(model, kind).iter().map(|event| event[key].as_u64().unwrap()).collect()
    }

    /// Runs a line in the folder with `more` at its end. SCENE and MODEL stand for the paths.
    pub fn splat(&self, line: &str, more: &[&str]) -> Ended {
        let word = |word: &str| match word {
            "SCENE" => self.scene(),
            "MODEL" => self.model(),
            _ => PathBuf::from(word),
        };
        end(splat().current_dir(&self.folder).args(line.split_whitespace().map(word)).args(more))
    }

    /// Runs a command on the model, on the CPU.
    pub fn run(&self, command: &str, flags: &[&str]) -> Ended {
        let mut splat = splat();
        splat.current_dir(&self.folder).args([command, "--device=cpu", "-m"]);
        end(splat.arg(self.model()).args(flags))
    }

    /// Returns the plan of a run on the scene.
    pub fn plan(&self, flags: &[&str]) -> Value {
        self.splat("plan --json -s SCENE", flags).done().json()
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
        self.write_views(8, SIZE, 200);
    }

    /// Writes a synthetic scene in views of this size, px.
    pub fn write_views(&self, views: u32, (width, height): (u32, u32), points: u32) {
        let options = SynthOptions { views, width, height, points, ..SynthOptions::default() };
        write_synthetic(&self.scene(), &options);
    }

    /// With a synthetic scene in three views ten times this size, px.
    pub fn with_three_large_views(tenth: (u32, u32)) -> Self {
        let place = Self::empty();
        place.write_views(3, tenth, 200);
        enlarge(&place, 10);
        place
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

    /// As above, into another folder.
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

    /// As above, into another folder.
    pub fn trained_into(&self, model: &str, iterations: u32, flags: &[&str]) -> Ended {
        end(self
            .train_into(model)
            .args(["--iterations".to_owned(), iterations.to_string()])
            .args(flags))
        .done()
    }

    /// Continues the run in `model` with these flags.
    pub fn resume(&self, flags: &[&str]) -> Ended {
        end(self.train().arg("--resume").args(flags))
    }

    /// Trains from a checkpoint into a folder.
    pub fn train_from(&self, checkpoint: &Path, model: &str, flags: &[&str]) -> Ended {
        end(self.train_into(model).arg("--start-checkpoint").arg(checkpoint).args(flags))
    }

    /// Trains with a limit of `kib` KiB on the size of a file.
    pub fn train_on_full_disk(&self, kib: u32, flags: &[&str]) -> Ended {
        let mut command = on_full_disk(kib);
        command.args(["train", "--device=cpu", "-s"]).arg(self.scene());
        end(command.arg("-m").arg(self.model()).args(flags))
    }

    pub fn ply(&self, iteration: u32) -> PathBuf {
        self.ply_of("model", iteration)
    }

    pub fn ply_of(&self, model: &str, iteration: u32) -> PathBuf {
        self.path(model).join(format!("point_cloud/iteration_{iteration}/point_cloud.ply"))
    }

    /// Returns the bytes of a model's PLY.
    pub fn ply_bytes(&self, model: &str, iteration: u32) -> Vec<u8> {
        fs::read(self.ply_of(model, iteration)).unwrap()
    }

    /// Two models are the same, byte by byte.
    pub fn assert_same(&self, [one, other]: [&str; 2], iteration: u32) {
        let are_same = self.ply_bytes(one, iteration) == self.ply_bytes(other, iteration);
        assert!(are_same, "{one} and {other}");
    }

    /// A run that starts from a checkpoint of a model ends in the same bytes.
    pub fn assert_continues(&self, model: &str, from: u32, last: u32) {
        let place = Self::beside(self);
        place.train_from(&self.checkpoint_of(model, from), "model", &[]).done();
        assert!(self.ply_bytes(model, last) == place.ply_bytes("model", last), "{model}, {from}");
    }

    pub fn checkpoint(&self, iteration: u32) -> PathBuf {
        self.checkpoint_of("model", iteration)
    }

    pub fn checkpoint_of(&self, model: &str, iteration: u32) -> PathBuf {
        self.path(model).join(format!("checkpoints/chkpnt_{iteration}.safetensors"))
    }
}

/// Writes a file, and makes the folders above it.
pub fn put(path: &Path, content: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
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

/// Returns the header of a PLY or a checkpoint as text.
pub fn header(path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    String::from_utf8_lossy(&bytes[..bytes.len().min(6000)]).into_owned()
}

/// Kills a program.
pub fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Waits for something that a busy machine may need two minutes for.
pub fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} never came");
        sleep(Duration::from_millis(2));
    }
}

/// A path as the program writes it in messages.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

// The program while it runs: started, signalled and killed by a test.

/// The program, or another one that starts it, with what it says kept for the test.
pub fn program(before: &[&str]) -> Command {
    let line = [before, &[env!("CARGO_BIN_EXE_splat")]].concat();
    let mut command = Command::new(line[0]);
    command.args(&line[1..]).env_remove("SPLAT_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `splat train` of the place's scene into `model`, on the CPU.
pub fn training(place: &TestFolder, flags: &[&str]) -> Command {
    training_by(&[], place, flags)
}

/// `splat train` as above, started by another program.
pub fn training_by(before: &[&str], place: &TestFolder, flags: &[&str]) -> Command {
    let mut command = program(before);
    command.args(["train", "--device", "cpu", "-s"]).arg(place.scene());
    command.arg("-m").arg(place.model()).args(flags);
    command
}

/// Starts a program and comes back once this file is there.
pub fn started_until(command: Command, file: &Path) -> Child {
    started_once(command, text(file), || file.exists())
}

/// Starts a program and comes back once this is true, which has to be before the program's end.
pub fn started_once(mut command: Command, what: &str, mut is_true: impl FnMut() -> bool) -> Child {
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    loop {
        let has_ended = child.try_wait().unwrap().is_some();
        if is_true() {
            return child;
        }
        assert!(!has_ended, "before {what}: {:#?}", ended(child));
        assert!(begun.elapsed() < Duration::from_secs(120), "{what} never came");
        sleep(Duration::from_millis(2));
    }
}

/// True if a file is there with these words in it.
pub fn holds(path: &Path, words: &str) -> bool {
    fs::read_to_string(path).is_ok_and(|content| content.contains(words))
}

pub fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

// Tests that look at their whole process, in which no other test may run meanwhile.

/// Names the test that a process was started for.
const TEST: &str = "SPLAT_TEST_OF_THIS_PROCESS";

/// True if this process runs `test` (its full name) and nothing else. If not, the test is run in a
/// process of its own, and fails if it fails there.
pub fn is_of(test: &str) -> bool {
    if env::var_os(TEST).is_some_and(|found| found == test) {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(TEST, test);
    let output = command.output().unwrap();
    let [told, errors] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    print!("{told}");
    assert!(output.status.success() && told.contains("1 passed"), "{told}\n{errors}");
    false
}

// Requests of a browser, byte by byte.

/// Long enough for a busy machine.
const HTTP_PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Lines of its head, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// Sends these bytes to a port of this machine and reads to the end of the connection.
pub fn exchange(port: u16, request: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(HTTP_PATIENCE)).unwrap();
    // A server that has read enough may close before all is sent.
    stream.write_all(request).ok();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok();
    let end = bytes.windows(4).position(|part| part == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", String::from_utf8_lossy(&bytes)));
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body: bytes.split_off(end + 4) }
}

/// A request without a body, with these lines in its head.
pub fn request(port: u16, method: &str, path: &str, lines: &[&str]) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
    for line in lines {
        text += &format!("{line}\r\n");
    }
    exchange(port, format!("{text}Connection: close\r\n\r\n").as_bytes())
}

/// Records of an events file; their checksums must be right.
pub fn records(path: &Path) -> Vec<Record> {
    use tensorboard_rs::masked_crc32c::masked_crc32c;
    let bytes = fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut records = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let length = usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        let length = length.unwrap();
        assert_eq!(word(at + 8), masked_crc32c(&bytes[at..at + 8]));
        let data = &bytes[at + 12..at + 12 + length];
        assert_eq!(word(at + 12 + length), masked_crc32c(data));
        records.push(Record::parse_from_bytes(data).unwrap());
        at += 16 + length;
    }
    records
}

/// Returns the lines of the log in a model folder.
pub fn log_lines(folder: &Path) -> Vec<Value> {
    let log = fs::read_to_string(folder.join("run.jsonl")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub fn events_files(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.to_string_lossy().contains("events.out.tfevents.")).collect();
    files.sort();
    files
}

/// Steps at which each tag stands in the file.
pub fn steps_of_tags(path: &Path) -> BTreeMap<String, Vec<i64>> {
    let steps = |values: Vec<(i64, f32)>| values.into_iter().map(|(step, _)| step).collect();
    values_of_tags(path).into_iter().map(|(tag, values)| (tag, steps(values))).collect()
}

/// Values of each tag by step.
pub fn values_of_tags(path: &Path) -> BTreeMap<String, Vec<(i64, f32)>> {
    let mut values: BTreeMap<String, Vec<(i64, f32)>> = BTreeMap::new();
    for record in records(path) {
        for value in record.get_summary().get_value() {
            let tag = values.entry(value.get_tag().to_owned()).or_default();
            tag.push((record.get_step(), value.get_simple_value()));
        }
    }
    values
}

//! The program while it runs: started, signalled and killed by a test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::program::TestFolder;

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
pub fn started_until(mut command: Command, file: &Path) -> Child {
    let mut child = command.spawn().unwrap();
    let started = Instant::now();
    while !file.exists() {
        assert!(started.elapsed() < Duration::from_secs(120), "{} never came", file.display());
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was stopped");
        sleep(Duration::from_millis(1));
    }
    child
}

pub fn send(signal: &str, child: &Child) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
}

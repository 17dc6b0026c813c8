//! Folder that a run and its live page share.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::files::{numbered, remove_abandoned};
use crate::train::event::ControlAction;

/// Name of the folder in the model folder.
const NAME: &str = "live";

/// File that the page touches while it is watched.
const WATCH: &str = "watch";

/// Prefix and suffix of request files.
const CONTROL: [&str; 2] = ["control_", ".json"];

/// Name of a request while it is read.
const TAKEN: &str = "control.taken";

/// Time after a touch for which the page counts as watched.
const WATCHED_FOR: Duration = Duration::from_secs(10);

/// Number of attempts to empty a folder, because a page may write into it at the same time.
const ATTEMPTS: u32 = 3;

/// Folder `MODEL/live/`. The page creates it and the run removes it.
#[derive(Clone, Debug)]
pub struct LiveFolder {
    path: PathBuf,
}

impl LiveFolder {
    /// Returns the folder of a model. It need not exist.
    pub fn of(model_path: &Path) -> Self {
        Self { path: model_path.join(NAME) }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file that the page touches while it is watched.
    pub fn watch(&self) -> PathBuf {
        self.path.join(WATCH)
    }

    /// Returns the newest Gaussians that the run wrote for its page, with their iteration.
    pub fn newest_splats(&self) -> Option<(u32, PathBuf)> {
        if !self.is_there() {
            return None;
        }
        let is_file = |(_, path): &(u32, PathBuf)| {
            fs::symlink_metadata(path).is_ok_and(|about| about.is_file())
        };
        numbered(&self.path, splats_iteration).into_iter().rev().find(is_file)
    }

    /// True if the folder exists. A link does not count, because its target belongs to others.
    pub fn is_there(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|about| about.is_dir())
    }

    /// Returns the path of a request. Requests are carried out in the order of their names.
    pub fn control(&self, id: &str) -> PathBuf {
        let [before, behind] = CONTROL;
        self.path.join(format!("{before}{id}{behind}"))
    }

    /// Returns the waiting requests in order.
    pub fn requests(&self) -> Vec<PathBuf> {
        let [before, behind] = CONTROL;
        let is_request = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.strip_prefix(before).is_some_and(|rest| rest.ends_with(behind))
        };
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(is_request).collect();
        paths.sort();
        paths
    }

    /// Returns the path of a request while it is read.
    pub(super) fn taken(&self) -> PathBuf {
        self.path.join(TAKEN)
    }

    /// True if the page is watched at this time.
    pub(super) fn is_watched(&self, now: SystemTime) -> bool {
        let touched = fs::metadata(self.watch()).and_then(|about| about.modified());
        let Ok(touched) = touched else { return false };
        // The clock of a network folder may be ahead of the local clock.
        let age = now.duration_since(touched).unwrap_or_else(|ahead| ahead.duration());
        age < WATCHED_FOR
    }

    /// Returns the file of the Gaussians of an iteration.
    pub(super) fn splats(&self, iteration: u32) -> PathBuf {
        self.path.join(format!("splats_{iteration}.spz"))
    }

    /// Removes the Gaussians of other iterations.
    pub(super) fn remove_splats_but(&self, iteration: Option<u32>) {
        for (found, path) in numbered(&self.path, splats_iteration) {
            if Some(found) != iteration {
                fs::remove_file(path).ok();
            }
        }
    }

    /// Removes the folder and the files of run and page. The folder stays if it has other files.
    pub fn remove(&self) {
        for _ in 0..ATTEMPTS {
            if !self.is_there() {
                return;
            }
            remove_abandoned(&self.path);
            self.remove_splats_but(None);
            let own = [WATCH, TAKEN].map(|name| self.path.join(name));
            for path in own.into_iter().chain(self.requests()) {
                fs::remove_file(path).ok();
            }
            fs::remove_dir(&self.path).ok();
        }
    }
}

fn splats_iteration(name: &str) -> Option<u32> {
    name.strip_prefix("splats_")?.strip_suffix(".spz")?.parse().ok()
}

// Request files.

/// Largest size of a request, bytes.
const MAX_REQUEST_BYTES: u64 = 4096;

/// Request of the page.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// Identifier by which the page recognises the request.
    pub id: String,
    /// Kind of the request.
    pub action: ControlAction,
}

/// Error of a request file.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlFault {
    /// Not a request.
    #[error(
        "{path}: {problem}. The request is dropped. Write {{\"id\": \"1\", \"action\": \"pause\"}}, or resume, \
         checkpoint or stop"
    )]
    Unreadable { path: PathBuf, problem: String },
    /// Not removable. The request would be carried out again and again.
    #[error(
        "{path}: cannot be removed: {source}. The run obeys no buttons any more; check the permissions of \
         the folder"
    )]
    Stays { path: PathBuf, source: io::Error },
}

/// Takes a request: the first stop request, or else the first of all. It is renamed before it is read, so that no
/// newer request can replace it in between.
pub(super) fn take_request(folder: &LiveFolder) -> Result<Option<ControlRequest>, ControlFault> {
    let requests = folder.requests();
    let stops = |path: &&PathBuf| {
        read_request(path).is_ok_and(|request| request.action == ControlAction::Stop)
    };
    let Some(path) = requests.iter().find(stops).or(requests.first()).cloned() else {
        return Ok(None);
    };
    let taken = folder.taken();
    match fs::rename(&path, &taken) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(ControlFault::Stays { path, source }),
        Ok(()) => {}
    }
    let read = read_request(&taken);
    if let Err(source) = fs::remove_file(&taken).or_else(|_| fs::remove_dir_all(&taken)) {
        return Err(ControlFault::Stays { path: taken, source });
    }
    read.map(Some).map_err(|problem| ControlFault::Unreadable { path, problem })
}

fn read_request(path: &Path) -> Result<ControlRequest, String> {
    // Reading a pipe would block.
    match fs::metadata(path) {
        Ok(about) if about.is_file() && about.len() <= MAX_REQUEST_BYTES => {}
        Ok(about) if about.is_file() => {
            return Err(format!("is longer than {MAX_REQUEST_BYTES} bytes"));
        }
        Ok(_) => return Err("is no file".to_owned()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_REQUEST_BYTES).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("cannot be understood: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rstest::rstest;

    use super::*;

    fn empty() -> (tempfile::TempDir, LiveFolder) {
        let model = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(model.path());
        fs::create_dir(&folder.path).unwrap();
        (model, folder)
    }

    #[test]
    fn a_touch_counts_for_ten_seconds() {
        let (_model, folder) = empty();
        let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |seconds: f64| folder.is_watched(touched + Duration::from_secs_f64(seconds));
        assert!(!at(0.0), "nothing is touched yet");
        File::create(folder.path.join(WATCH)).unwrap().set_modified(touched).unwrap();
        assert!(at(0.0) && at(9.9) && !at(10.0) && !at(3600.0));
        // A clock that is ahead by less than ten seconds is accepted, one of tomorrow is not.
        assert!(folder.is_watched(touched - Duration::from_secs(5)));
        assert!(!folder.is_watched(touched - Duration::from_secs(86_400)));
    }

    #[cfg(unix)]
    #[test]
    fn link_targets_are_left_alone() {
        let [model, other] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        for name in [WATCH, "splats_5.spz", "control_1.json"] {
            fs::write(other.path().join(name), "mine").unwrap();
        }
        let link = |to: &Path, from: &Path| std::os::unix::fs::symlink(to, from).unwrap();
        link(other.path(), &model.path().join(NAME));
        let folder = LiveFolder::of(model.path());
        assert!(!folder.is_there() && folder.newest_splats().is_none());
        folder.remove();
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 3);
        // A file behind a link in the folder is not shown either.
        fs::remove_file(model.path().join(NAME)).unwrap();
        fs::create_dir(&folder.path).unwrap();
        link(&other.path().join(WATCH), &folder.splats(9));
        fs::write(folder.splats(7), "x").unwrap();
        assert_eq!(folder.newest_splats(), Some((7, folder.splats(7))));
    }

    #[test]
    fn requests_wait_in_the_order_of_their_names() {
        let (_model, folder) = empty();
        for name in ["control_2-0.json", "control_1-9.json", "control.json", "control_3.tmp"] {
            fs::write(folder.path.join(name), "").unwrap();
        }
        assert_eq!(folder.requests(), ["1-9", "2-0"].map(|id| folder.control(id)));
    }

    #[test]
    fn removal_deletes_only_own_files() {
        let (model, folder) = empty();
        for name in
            [WATCH, "control_1-0.json", TAKEN, "splats_7.spz", "splats_12.spz", ".splat-a.tmp"]
        {
            fs::write(folder.path.join(name), "x").unwrap();
        }
        assert_eq!(folder.newest_splats(), Some((12, folder.splats(12))));
        folder.remove_splats_but(Some(12));
        assert!(folder.splats(12).exists() && !folder.splats(7).exists());
        let photograph = folder.path.join("photograph.png");
        fs::write(&photograph, "of somebody").unwrap();
        folder.remove();
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 1);
        fs::remove_file(photograph).unwrap();
        folder.remove();
        assert_eq!(fs::read_dir(model.path()).unwrap().count(), 0);
        folder.remove();
    }

    fn taken(text: &[u8]) -> (Result<Option<ControlRequest>, ControlFault>, usize) {
        let model = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(model.path());
        let path = folder.control("1");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let request = take_request(&folder);
        (request, fs::read_dir(path.parent().unwrap()).unwrap().count())
    }

    #[rstest]
    #[case("pause", ControlAction::Pause)]
    #[case("resume", ControlAction::Resume)]
    #[case("checkpoint", ControlAction::Checkpoint)]
    #[case("stop", ControlAction::Stop)]
    fn a_request_is_taken_away_and_read(#[case] name: &str, #[case] action: ControlAction) {
        let text = format!(r#"{{"id": "a b", "action": "{name}"}}"#);
        let (request, left) = taken(text.as_bytes());
        assert_eq!(request.unwrap().unwrap(), ControlRequest { id: "a b".to_owned(), action });
        assert_eq!(left, 0);
    }

    #[rstest]
    #[case::no_json(b"pause", "cannot be understood")]
    #[case::empty(b"", "cannot be understood")]
    #[case::unknown(br#"{"id": "1", "action": "explode"}"#, "explode")]
    #[case::no_id(br#"{"action": "stop"}"#, "id")]
    #[case::no_text(b"\xff\xfe", "cannot be read")]
    #[case::long(&[b' '; 5000], "longer than 4096 bytes")]
    fn invalid_requests_are_removed_and_reported(#[case] text: &[u8], #[case] expected: &str) {
        let (request, left) = taken(text);
        let message = request.unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("control_1.json: "), "{message}");
        assert!(message.contains("The request is dropped"), "{message}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_stop_request_comes_first() {
        let model = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(model.path());
        fs::create_dir(folder.path()).unwrap();
        let write = |id: &str, action: &str| {
            let text = format!(r#"{{"id": "{id}", "action": "{action}"}}"#);
            fs::write(folder.control(id), text).unwrap();
        };
        for number in 0..400 {
            write(&format!("{number:03}"), if number % 2 == 0 { "pause" } else { "resume" });
        }
        write("400", "stop");
        let taken = || take_request(&folder).unwrap().unwrap().id;
        assert_eq!([taken(), taken(), taken()], ["400", "000", "001"]);
    }

    #[test]
    fn a_folder_is_no_request() {
        let model = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(model.path());
        assert!(take_request(&folder).unwrap().is_none());
        fs::create_dir_all(folder.control("1").join("deep")).unwrap();
        let message = take_request(&folder).unwrap_err().to_string();
        assert!(message.contains("is no file"), "{message}");
        assert!(take_request(&folder).unwrap().is_none());
    }
}

//! What the page asks for, read from the file that says it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::LiveFolder;
use crate::train::event::ControlAction;

/// Bytes of the file, at most.
const BYTES: u64 = 4096;

/// What is asked of the run.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// By which who asks knows it again.
    pub id: String,
    /// What it is.
    pub action: ControlAction,
}

/// A file that says nothing that can be done.
#[derive(Debug, thiserror::Error)]
pub(super) enum ControlFault {
    /// It is no request.
    #[error(
        "{path}: {problem}. The request is dropped. Write {{\"id\": \"1\", \"action\": \"pause\"}}, or resume, \
         checkpoint or stop"
    )]
    Unreadable { path: PathBuf, problem: String },
    /// It cannot be taken away, so that it would be obeyed again and again.
    #[error(
        "{path}: cannot be removed: {source}. The run obeys no buttons any more; check the permissions of \
         the folder"
    )]
    Stays { path: PathBuf, source: io::Error },
}

/// Takes a request away and reads it, if there is one: the first that stops the run, or else the first of
/// all. Under another name no newer one can take its place between the two.
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
    // A pipe would be waited for.
    match fs::metadata(path) {
        Ok(about) if about.is_file() && about.len() <= BYTES => {}
        Ok(about) if about.is_file() => return Err(format!("is longer than {BYTES} bytes")),
        Ok(_) => return Err("is no file".to_owned()),
        Err(error) => return Err(format!("cannot be read: {error}")),
    }
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(BYTES).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    serde_json::from_str(&text).map_err(|error| format!("cannot be understood: {error}"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

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
    fn what_is_no_request_is_removed_and_named(#[case] text: &[u8], #[case] said: &str) {
        let (request, left) = taken(text);
        let message = request.unwrap_err().to_string();
        assert!(message.contains(said) && message.contains("control_1.json: "), "{message}");
        assert!(message.contains("The request is dropped"), "{message}");
        assert_eq!(left, 0);
    }

    #[test]
    fn a_stop_comes_before_all_that_waits() {
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
    fn a_folder_of_that_name_is_no_request_and_nothing_is_none() {
        let model = tempfile::tempdir().unwrap();
        let folder = LiveFolder::of(model.path());
        assert!(take_request(&folder).unwrap().is_none());
        fs::create_dir_all(folder.control("1").join("deep")).unwrap();
        let message = take_request(&folder).unwrap_err().to_string();
        assert!(message.contains("is no file"), "{message}");
        assert!(take_request(&folder).unwrap().is_none());
    }
}

//! Files that threads write while a run trains on.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::TrainError;
use super::event::Saved;

/// The path of a file that was written; nothing where it was left out.
pub(super) type FileResult = Result<Option<PathBuf>, TrainError>;

/// What became of a file.
pub(super) struct WrittenFile {
    pub(super) what: Saved,
    /// Iterations that it holds.
    pub(super) iteration: u32,
    pub(super) result: FileResult,
}

/// A file that is being written.
struct Writing {
    what: Saved,
    iteration: u32,
    thread: JoinHandle<FileResult>,
}

impl Writing {
    fn end(self) -> WrittenFile {
        let result = self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        WrittenFile { what: self.what, iteration: self.iteration, result }
    }
}

/// The files that are being written. They are whole before this value ends.
#[derive(Default)]
pub(super) struct BackgroundFiles {
    writing: Vec<Writing>,
}

impl BackgroundFiles {
    /// Has a thread write a file. Where there is no thread for it, it is written at once, and this
    /// returns what became of it.
    pub(super) fn start(
        &mut self,
        what: Saved,
        iteration: u32,
        write: impl FnOnce() -> FileResult + Send + 'static,
    ) -> Option<WrittenFile> {
        // What a thread that cannot be started was given would be lost.
        let job = Arc::new(Mutex::new(Some(write)));
        let take =
            |job: &Mutex<Option<_>>| job.lock().unwrap_or_else(PoisonError::into_inner).take();
        let jobs = Arc::clone(&job);
        let run = move || take(&jobs).map_or(Ok(None), |write| write());
        match Builder::new().name("files".to_owned()).spawn(run) {
            Ok(thread) => {
                self.writing.push(Writing { what, iteration, thread });
                None
            }
            Err(_) => {
                let write = job.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                Some(WrittenFile { what, iteration, result: write() })
            }
        }
    }

    /// Whether a file of this kind is being written.
    pub(super) fn is_writing(&self, what: Saved) -> bool {
        self.writing.iter().any(|writing| writing.what == what && !writing.thread.is_finished())
    }

    /// The files that are written since the last call.
    pub(super) fn take_written(&mut self) -> Vec<WrittenFile> {
        let done = self.writing.extract_if(.., |writing| writing.thread.is_finished());
        done.map(Writing::end).collect()
    }

    /// Waits for the files of a kind, or for all.
    pub(super) fn wait(&mut self, what: Option<Saved>) -> Vec<WrittenFile> {
        let wanted =
            self.writing.extract_if(.., |writing| what.is_none_or(|what| writing.what == what));
        wanted.map(Writing::end).collect()
    }
}

impl Drop for BackgroundFiles {
    fn drop(&mut self) {
        for writing in self.writing.drain(..) {
            // The run ends with an error already.
            writing.thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn files_are_told_when_they_are_written() {
        let mut files = BackgroundFiles::default();
        let (go, wait) = channel::<()>();
        let slow = move || {
            wait.recv().ok();
            Ok(Some(PathBuf::from("a")))
        };
        assert!(files.start(Saved::Checkpoint, 7, slow).is_none());
        assert!(files.start(Saved::PointCloud, 8, || Ok(None)).is_none());
        let first = files.wait(Some(Saved::PointCloud));
        assert_eq!((first.len(), first[0].iteration), (1, 8));
        assert!(files.is_writing(Saved::Checkpoint) && files.take_written().is_empty());
        go.send(()).unwrap();
        let second = files.wait(None);
        assert_eq!((second.len(), second[0].iteration), (1, 7));
        assert!(matches!(&second[0].result, Ok(Some(path)) if path.ends_with("a")));
        assert!(!files.is_writing(Saved::Checkpoint) && files.wait(None).is_empty());
    }
}

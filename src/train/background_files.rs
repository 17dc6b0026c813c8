//! Files that threads write while a run trains on.

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use super::TrainError;
use super::event::{Completion, Saved};
use crate::memory::Bytes;

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
    /// What the thread holds of the model.
    copy: Bytes,
    over: Completion,
    thread: JoinHandle<FileResult>,
}

impl Writing {
    fn end(self) -> WrittenFile {
        let result = self.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        WrittenFile { what: self.what, iteration: self.iteration, result }
    }
}

/// The files that are being written. They are whole before this value goes.
#[derive(Default)]
pub(super) struct BackgroundFiles {
    writing: Vec<Writing>,
}

impl BackgroundFiles {
    /// Has a thread write a file, of which it holds so many bytes. Where no thread can be started, the file is written at once, and this
    /// returns what became of it.
    pub(super) fn start(
        &mut self,
        what: Saved,
        iteration: u32,
        copy: Bytes,
        write: impl FnOnce() -> FileResult + Send + 'static,
    ) -> Option<WrittenFile> {
        let (completes, over) = Completion::new();
        // A thread that is not started drops what it was given.
        let job = Arc::new(Mutex::new(Some(write)));
        let job_of_thread = Arc::clone(&job);
        let run = move || {
            let _completes = completes;
            take(&job_of_thread).map_or(Ok(None), |write| write())
        };
        if let Ok(thread) = Builder::new().name("files".to_owned()).spawn(run) {
            self.writing.push(Writing { what, iteration, copy, over, thread });
            return None;
        }
        let write = take(&job)?;
        Some(WrittenFile { what, iteration, result: write() })
    }

    /// Over when the files are written that are being written now.
    pub(super) fn written(&self) -> Vec<Completion> {
        self.writing.iter().map(|writing| writing.over.clone()).collect()
    }

    /// Bytes of the model that threads hold.
    pub(super) fn held(&self) -> Bytes {
        let unfinished = self.writing.iter().filter(|writing| !writing.thread.is_finished());
        unfinished.map(|writing| writing.copy).sum()
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
            // The run has ended with an error already.
            writing.thread.join().ok();
        }
    }
}

fn take<T>(job: &Mutex<Option<T>>) -> Option<T> {
    job.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn files_are_reported_when_they_are_written() {
        let mut files = BackgroundFiles::default();
        let (go, wait) = channel::<()>();
        let slow = move || {
            wait.recv().ok();
            Ok(Some(PathBuf::from("a")))
        };
        assert!(files.start(Saved::Checkpoint, 7, Bytes(3), slow).is_none());
        assert!(files.start(Saved::PointCloud, 8, Bytes(1), || Ok(None)).is_none());
        let first = files.wait(Some(Saved::PointCloud));
        assert_eq!((first.len(), first[0].iteration), (1, 8));
        assert!(files.take_written().is_empty());
        assert_eq!(files.held(), Bytes(3));
        let over = files.written();
        go.send(()).unwrap();
        over.iter().for_each(Completion::wait);
        let second = files.wait(None);
        assert_eq!((second.len(), second[0].iteration), (1, 7));
        assert!(matches!(&second[0].result, Ok(Some(path)) if path.ends_with("a")));
        assert!(files.wait(None).is_empty() && files.held() == Bytes(0));
    }
}

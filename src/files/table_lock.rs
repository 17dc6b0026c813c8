//! The lock of a folder's tables, which a run and `splat eval` both change.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::folder_lock::{is_at, open};
use super::{WORK_FOLDER, WorkFolder};

const LOCK: &str = "tables";

/// Longest wait. Tables are written faster, even on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(10);

const PAUSE: Duration = Duration::from_millis(5);

/// The exclusive right to read, change and write tables. It ends with this value or with the process.
#[derive(Debug)]
pub struct TableLock {
    held: Option<HeldTables>,
}

#[derive(Debug)]
struct HeldTables {
    _file: File,
    path: PathBuf,
    _work: WorkFolder,
}

impl TableLock {
    /// Waits for other programs. Continues without a lock if the folder cannot be locked: a read-only folder fails on
    /// writing, and a file system without locks is used by one program at a time.
    pub fn take(folder: &Path) -> Self {
        let work_folder = folder.join(WORK_FOLDER);
        let path = work_folder.join(LOCK);
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            // In each attempt, because the previous holder may have removed the folder last.
            let work = WorkFolder::open(folder);
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound && can_create(&work_folder) => {
                    sleep(PAUSE);
                    continue;
                }
                Err(_) => return Self { held: None },
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    return Self { held: Some(HeldTables { _file: file, path, _work: work }) };
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => sleep(PAUSE),
                Err(TryLockError::Error(_)) => return Self { held: None },
            }
        }
        tracing::warn!(
            "{}: another program has held the tables for {} s; they are written without waiting for it",
            folder.display(),
            TIMEOUT.as_secs()
        );
        Self { held: None }
    }
}

/// Returns true if a missing folder was only removed a moment ago.
fn can_create(folder: &Path) -> bool {
    fs::create_dir(folder).map_or_else(|error| error.kind() == ErrorKind::AlreadyExists, |()| true)
}

impl Drop for TableLock {
    fn drop(&mut self) {
        // While it is locked, so that waiting programs see the removal and create a new file.
        if let Some(held) = &self.held {
            fs::remove_file(&held.path).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unusable_folder_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, taken) = (folder.path().join("file"), folder.path().join("folder"));
        fs::write(&file, "").unwrap();
        let begun = Instant::now();
        assert!(TableLock::take(&file).held.is_none());
        // The name of the lock is in use.
        fs::create_dir_all(taken.join(WORK_FOLDER).join(LOCK)).unwrap();
        assert!(TableLock::take(&taken).held.is_none());
        assert!(begun.elapsed() < TIMEOUT / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn tables_have_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = TableLock::take(folder.path());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| TableLock::take(folder.path()));
            sleep(20 * PAUSE);
            drop(first);
            assert!(second.join().unwrap().held.is_some());
        });
        // Without waiting the second lock would come at once; without the release it would fail after the timeout.
        assert!((20 * PAUSE..TIMEOUT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(!folder.path().join(WORK_FOLDER).exists(), "nothing is left in the folder");
    }
}

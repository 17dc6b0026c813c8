//! The lock of a folder's tables, which a run and `splat eval` beside it both change.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::folder_lock::{is_at, open};
use super::unfinished::{WORK_FOLDER, WorkFolder};

/// The file in the work folder that is locked.
const LOCK: &str = "tables";

/// Tables are written in less than that, also on a slow disk.
const PATIENCE: Duration = Duration::from_secs(10);

/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// The right to read tables, change them and write them back, which one program at a time has. It ends
/// with this value or with the process.
#[derive(Debug)]
pub struct TableLock {
    held: Option<HeldTables>,
}

/// The lock's file, locked while it is open.
#[derive(Debug)]
struct HeldTables {
    _file: File,
    path: PathBuf,
    _work: WorkFolder,
}

impl TableLock {
    /// Waits for the other program. Where the folder cannot be locked, what is written says why it
    /// cannot be written, or a file system without locks is used by one program at a time.
    pub fn take(folder: &Path) -> Self {
        let path = folder.join(WORK_FOLDER).join(LOCK);
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            // Each time: the holder before may have removed the folder as the last thing that it did.
            let work = WorkFolder::open(folder);
            let Ok(file) = open(&path) else {
                if folder.join(WORK_FOLDER).is_dir() {
                    return Self { held: None };
                }
                sleep(PAUSE);
                continue;
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
            PATIENCE.as_secs()
        );
        Self { held: None }
    }
}

impl Drop for TableLock {
    fn drop(&mut self) {
        // While it is locked: whoever waits for it sees that it is gone, and makes another.
        if let Some(held) = &self.held {
            fs::remove_file(&held.path).ok();
        }
    }
}

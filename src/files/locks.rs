//! Locks in the hidden folder of an output folder: of a run, and of the tables, which a run and `splat eval` both
//! change.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{OutputError, WORK_FOLDER, WorkFolder};

/// File in the work folder that is locked. It names the holder.
const RUN_LOCK: &str = "lock";

/// Number of attempts, for holders that are ending or have not signed yet.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);
const MAX_QUOTED: usize = 200;

/// A folder that cannot be locked.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages explain variants and fields")]
pub enum LockError {
    #[error(
        "{folder}: another run is being trained in this folder, by {holder}. Wait for its end or \
         stop it, or name another folder with -m"
    )]
    InUse { folder: PathBuf, holder: String },
    #[error(transparent)]
    Output(#[from] OutputError),
}

/// The exclusive right to write a run into a folder. It ends with this value or with the process.
#[derive(Debug)]
pub struct FolderLock {
    _held: LockedFile,
}

#[derive(Debug)]
struct LockedFile {
    /// Locked while it is open.
    _file: File,
    path: PathBuf,
    _work: WorkFolder,
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        // While it is locked, so that waiting programs see the removal and create a new file.
        fs::remove_file(&self.path).ok();
    }
}

impl FolderLock {
    /// Locks the folder, which is created if it is missing.
    pub fn take(folder: &Path) -> Result<Self, LockError> {
        let path = folder.join(WORK_FOLDER).join(RUN_LOCK);
        let mut last = io::Error::from(ErrorKind::NotFound);
        let mut is_held = false;
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                sleep(PAUSE);
            }
            // In each attempt, because the previous holder may have removed the folder last.
            let work = WorkFolder::open(folder);
            let made = fs::create_dir_all(folder.join(WORK_FOLDER));
            let file = match made.and_then(|()| open(&path)) {
                Ok(file) => file,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            match file.try_lock() {
                Ok(()) if !is_at(&file, &path) => continue,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    is_held = true;
                    continue;
                }
                Err(TryLockError::Error(error)) => tracing::warn!(
                    "{}: cannot be locked: {error}. Start no second run in this folder",
                    folder.display()
                ),
            }
            write_holder(&file).map_err(|source| OutputError::new(&path, source))?;
            return Ok(Self { _held: LockedFile { _file: file, path, _work: work } });
        }
        if is_held {
            return Err(LockError::InUse { folder: folder.to_owned(), holder: holder(&path) });
        }
        Err(OutputError::new(folder, last).into())
    }
}

/// True if a program holds this folder's lock.
pub fn is_locked(folder: &Path) -> bool {
    lock_state(folder) == LockState::Held
}

/// State of a folder's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// A program holds it.
    Held,
    /// No program holds it.
    Free,
    /// The file system has no locks.
    Unknown,
}

/// Returns the state of this folder's lock.
pub fn lock_state(folder: &Path) -> LockState {
    let Ok(file) = File::open(folder.join(WORK_FOLDER).join(RUN_LOCK)) else {
        return LockState::Free;
    };
    match file.try_lock_shared() {
        Ok(()) => LockState::Free,
        Err(TryLockError::WouldBlock) => LockState::Held,
        Err(TryLockError::Error(_)) => LockState::Unknown,
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Returns true if the open file is still the one at `path`, which the last holder removes.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |about: fs::Metadata| (about.dev(), about.ino());
    let found = path.metadata().ok().map(place);
    found.is_some() && found == file.metadata().ok().map(place)
}

#[cfg(not(unix))]
fn is_at(_file: &File, path: &Path) -> bool {
    path.exists()
}

fn write_holder(mut file: &File) -> io::Result<()> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let text = format!(
        "process {} on {}, started {}\n",
        process::id(),
        gethostname::gethostname().to_string_lossy(),
        utc(seconds)
    );
    file.set_len(0)?;
    file.write_all(text.as_bytes())
}

fn holder(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    match text.trim().chars().take(MAX_QUOTED).collect::<String>() {
        name if name.is_empty() => "a process that does not say which".to_owned(),
        name => name,
    }
}

/// Formats a time since the Unix epoch as date and time of day.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    // Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last one.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

const TABLE_LOCK: &str = "tables";

/// Longest wait. Tables are written faster, even on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(10);
const TABLE_PAUSE: Duration = Duration::from_millis(5);

/// The exclusive right to read, change and write tables. It ends with this value or with the process.
#[derive(Debug)]
pub struct TableLock {
    _held: Option<LockedFile>,
}

impl TableLock {
    /// Waits for other programs. Continues without a lock if the folder cannot be locked: a read-only folder fails on
    /// writing, and a file system without locks is used by one program at a time.
    pub fn take(folder: &Path) -> Self {
        let work_folder = folder.join(WORK_FOLDER);
        let path = work_folder.join(TABLE_LOCK);
        let begun = Instant::now();
        while begun.elapsed() < TIMEOUT {
            // In each attempt, because the previous holder may have removed the folder last.
            let work = WorkFolder::open(folder);
            let file = match open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == ErrorKind::NotFound && can_create(&work_folder) => {
                    sleep(TABLE_PAUSE);
                    continue;
                }
                Err(_) => return Self { _held: None },
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    return Self { _held: Some(LockedFile { _file: file, path, _work: work }) };
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => sleep(TABLE_PAUSE),
                Err(TryLockError::Error(_)) => return Self { _held: None },
            }
        }
        tracing::warn!(
            "{}: another program has held the tables for {} s; they are written without waiting for it",
            folder.display(),
            TIMEOUT.as_secs()
        );
        Self { _held: None }
    }
}

/// Returns true if a missing folder was only removed a moment ago.
fn can_create(folder: &Path) -> bool {
    fs::create_dir(folder).map_or_else(|error| error.kind() == ErrorKind::AlreadyExists, |()| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_match_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(utc(1_795_391_969), "2026-11-22 23:59:29 UTC");
    }

    #[test]
    fn a_lock_is_exclusive_and_leaves_no_files() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_locked(folder.path()));
        let lock = FolderLock::take(folder.path()).unwrap();
        assert!(is_locked(folder.path()));
        let error = FolderLock::take(folder.path()).unwrap_err().to_string();
        let process = format!("process {} on ", process::id());
        assert!(error.contains(&process) && error.contains("started 20"), "{error}");
        drop(lock);
        assert!(!is_locked(folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let in_the_way = folder.path().join(WORK_FOLDER);
        fs::write(&in_the_way, "of somebody else").unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err().to_string();
        assert!(error.contains("cannot be written"), "{error}");
        fs::remove_file(&in_the_way).unwrap();
        // A killed program leaves an unlocked file, whose text the next holder replaces.
        let left = folder.path().join(WORK_FOLDER);
        fs::create_dir(&left).unwrap();
        fs::write(left.join(RUN_LOCK), "process 1, of the last century, with a long name\n")
            .unwrap();
        let _lock = FolderLock::take(folder.path()).unwrap();
        let text = fs::read_to_string(left.join(RUN_LOCK)).unwrap();
        assert!(text.starts_with(&process) && text.lines().count() == 1, "{text}");
    }

    #[test]
    fn a_folder_has_one_holder_at_a_time() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let Ok(_lock) = FolderLock::take(folder.path()) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        taken.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 50);
    }

    #[test]
    fn an_unusable_folder_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (file, taken) = (folder.path().join("file"), folder.path().join("folder"));
        fs::write(&file, "").unwrap();
        let begun = Instant::now();
        assert!(TableLock::take(&file)._held.is_none());
        // The name of the lock is in use.
        fs::create_dir_all(taken.join(WORK_FOLDER).join(TABLE_LOCK)).unwrap();
        assert!(TableLock::take(&taken)._held.is_none());
        assert!(begun.elapsed() < TIMEOUT / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn tables_have_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let first = TableLock::take(folder.path());
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| TableLock::take(folder.path()));
            sleep(20 * TABLE_PAUSE);
            drop(first);
            assert!(second.join().unwrap()._held.is_some());
        });
        // Without waiting the second lock would come at once; without the release it would fail after the timeout.
        assert!((20 * TABLE_PAUSE..TIMEOUT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(!folder.path().join(WORK_FOLDER).exists(), "nothing is left in the folder");
    }
}

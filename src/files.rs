//! Writing files so that a failure never costs what was there before, and finding them again.

mod disk_reserve;
mod error;
mod folder_lock;
mod json_fault;
mod new_file;
mod png;
mod shell_word;
mod table_lock;
mod unfinished;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

pub use disk_reserve::DiskReserve;
pub use error::OutputError;
pub use folder_lock::{FolderLock, LockError, LockState, is_locked, lock_state};
pub use json_fault::JsonFault;
pub use new_file::NewFile;
pub use png::write_png;
pub use shell_word::shell_word;
pub use splat_formats::{follow_links, remove_abandoned};
pub use table_lock::TableLock;
pub use unfinished::WorkFolder;
use unfinished::unfinished_file;

/// Replaces `path` by what `write` makes of an empty file, or leaves it as it was.
///
/// The content goes to a temporary file (in the [`WorkFolder`] above `path`, or beside it), is synced
/// to the disk and renamed, so that a full disk, a crash or a power cut leaves either the old file or
/// the new one, whole.
pub fn replace_file<E: From<OutputError>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    NewFile::begin(path)?.finish(write)
}

/// Replaces `path` as [`replace_file`] does by what `write` produces from front to back.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), OutputError> {
    replace_file(path, |file| {
        let mut buffered = BufWriter::with_capacity(1 << 20, file);
        write(&mut buffered)
            .and_then(|()| buffered.flush())
            .map_err(|source| OutputError::new(path, source))
    })
}

/// Replaces `path` by `text`, or leaves it as it was.
pub fn write_text(path: &Path, text: &str) -> Result<(), OutputError> {
    write_atomically(path, |out| out.write_all(text.as_bytes()))
}

/// Whether files can be written into this folder: their names, and something into them.
pub fn check_writable(folder: &Path) -> Result<(), OutputError> {
    let fail = |source| OutputError::new(folder, source);
    let mut temporary = unfinished_file(&folder.join("table")).map_err(fail)?;
    temporary.as_file_mut().write_all(b"\n").map_err(fail)
}

/// Makes the folder and those above it.
pub fn create_folder(path: &Path) -> Result<PathBuf, OutputError> {
    fs::create_dir_all(path).map_err(|source| OutputError::new(path, source))?;
    Ok(path.to_owned())
}

/// Bytes that files can still take on the disk of this folder; nothing where the system does not say.
#[cfg(unix)]
pub fn free_space(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
pub fn free_space(_folder: &Path) -> Option<u64> {
    None
}

/// Why the system does not let us look into a folder that is there.
pub fn entry_refusal(folder: &Path) -> Option<io::Error> {
    // Of a folder that may not be entered, not even the entry `.` can be looked at.
    fs::metadata(folder.join(".")).err().filter(is_refusal)
}

/// Why the system does not list a folder that is there.
pub fn listing_refusal(folder: &Path) -> Option<io::Error> {
    fs::read_dir(folder).err().filter(is_refusal)
}

fn is_refusal(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The entries of a folder whose names hold a number, ascending; of a folder that is not there, none.
pub fn numbered(folder: &Path, number: impl Fn(&str) -> Option<u32>) -> Vec<(u32, PathBuf)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            Some((number(path.file_name()?.to_str()?)?, path))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.ply");
        write_text(&path, "old").unwrap();
        let error = write_atomically(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert!(error.to_string().contains("model.ply"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

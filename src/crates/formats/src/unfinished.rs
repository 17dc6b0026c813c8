//! Temporary files that become visible when complete.
//!
//! On Linux they have no name, so a killed program leaves nothing behind. Elsewhere they have a locked name, and
//! [`remove_abandoned`] removes those without a lock.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::folder::PartSink;
use crate::open::folder_of;

/// Prefix and suffix of the names of unfinished files, including the trainer's.
const PREFIX: &str = ".splat-";
const SUFFIX: &str = ".tmp";

/// Largest number of links to follow.
const MAX_LINKS: usize = 40;

/// A file that replaces another one when complete. Dropping the value deletes it.
#[derive(Debug)]
pub struct UnfinishedFile {
    file: File,
    folder: PathBuf,
    /// Name, if the file has one.
    name: Option<TempPath>,
}

impl UnfinishedFile {
    /// Creates an empty file in a folder. The file can be renamed to other folders of the same disk.
    pub fn begin(folder: &Path) -> io::Result<Self> {
        let (file, name) = match without_name(folder) {
            Some(file) => (file, None),
            None => {
                let (file, name) = builder().tempfile_in(folder)?.into_parts();
                (file, Some(name))
            }
        };
        // Failure is fine: without lock support no other program can hold a lock.
        file.lock().ok();
        Ok(Self { file, folder: folder.to_owned(), name })
    }

    /// Returns the file.
    pub fn as_file(&self) -> &File {
        &self.file
    }

    /// Returns the file, mutable.
    pub fn as_file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Syncs the file to disk and renames it to this path, keeping the mode of an existing file.
    pub fn finish(self, path: &Path) -> io::Result<()> {
        if let Ok(before) = fs::metadata(path) {
            self.file.set_permissions(before.permissions())?;
        }
        self.file.sync_all()?;
        let name = match self.name {
            Some(name) => name,
            None => {
                let named = builder().make_in(&self.folder, |name| give_name(&self.file, name))?;
                named.into_temp_path()
            }
        };
        name.persist(path).map_err(|error| error.error)?;
        // The rename is durable after the folder is synced; some systems cannot sync folders.
        if let Ok(folder) = File::open(folder_of(path)) {
            folder.sync_all().ok();
        }
        Ok(())
    }
}

fn builder() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    // Temporary files are private by default; results follow the user's umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// Opens a file without a name; `None` if the file system does not support it.
#[cfg(target_os = "linux")]
fn without_name(folder: &Path) -> Option<File> {
    use rustix::fs::{Mode, OFlags, open};
    if !Path::new("/proc/self/fd").is_dir() {
        return None;
    }
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    open(folder, flags, Mode::from_raw_mode(0o666)).ok().map(File::from)
}

#[cfg(target_os = "linux")]
fn give_name(file: &File, name: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::{AtFlags, CWD, linkat};
    let from = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, from, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn without_name(_folder: &Path) -> Option<File> {
    None
}

#[cfg(not(target_os = "linux"))]
fn give_name(_file: &File, _name: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes unfinished files of ended programs from a folder.
pub fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_unfinished = |name: &str| name.starts_with(PREFIX) && name.ends_with(SUFFIX);
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.file_name().and_then(|name| name.to_str()).is_some_and(is_unfinished)
            && let Ok(file) = File::options().write(true).open(&path)
            && file.try_lock().is_ok()
        {
            fs::remove_file(&path).ok();
        }
    }
}

/// Resolves links, including dangling ones.
pub fn follow_links(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = fs::read_link(&path) else { break };
        path = folder_of(&path).join(target);
    }
    path
}

/// Replaces `path` by the output of `write`. Keeps the old file on failure.
pub(crate) fn replace_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<T, E>,
) -> Result<T, E> {
    let path = follow_links(path);
    let mut file = UnfinishedFile::begin(folder_of(&path))?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    let made = write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    file.finish(&path)?;
    Ok(made)
}

/// Parts that appear in a folder, in order, when all are complete.
pub(crate) struct FolderSink {
    folder: PathBuf,
    parts: Vec<(PathBuf, UnfinishedFile)>,
    bytes: u64,
}

impl FolderSink {
    /// Creates the folder and removes what killed programs left in it.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        remove_abandoned(folder);
        for entry in fs::read_dir(folder)?.flatten() {
            remove_abandoned(&entry.path());
        }
        Ok(Self { folder: folder.to_owned(), parts: Vec::new(), bytes: 0 })
    }

    /// Renames the parts into place, the list last, and returns their size in bytes. First removes an earlier list, so
    /// that readers never mix parts of two scenes.
    pub(crate) fn finish(self) -> io::Result<u64> {
        if let Some((list, _)) = self.parts.last().filter(|(list, _)| list.exists()) {
            fs::remove_file(list)?;
        }
        for (path, file) in self.parts {
            fs::create_dir_all(folder_of(&path))?;
            file.finish(&follow_links(&path))?;
        }
        Ok(self.bytes)
    }
}

impl PartSink for FolderSink {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        let mut file = UnfinishedFile::begin(&self.folder)?;
        file.as_file_mut().write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        self.parts.push((path, file));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut file = UnfinishedFile::begin(folder_of(path))?;
        file.as_file_mut().write_all(text.as_bytes())?;
        file.finish(path)
    }

    #[test]
    fn file_appears_when_complete_and_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut file = UnfinishedFile::begin(folder.path()).unwrap();
        file.as_file_mut().write_all(b"new").unwrap();
        assert!(!path.exists());
        if cfg!(target_os = "linux") && file.name.is_none() {
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
        }
        file.finish(&path).unwrap();
        write(&path, "newer").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newer");
        drop(UnfinishedFile::begin(folder.path()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn mode_is_kept_and_new_files_follow_the_umask() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, "a").unwrap();
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        fs::write(folder.path().join("b"), "").unwrap();
        assert_eq!(mode(&path), mode(&folder.path().join("b")));
        for kept in [0o600, 0o640, 0o444] {
            fs::set_permissions(&path, fs::Permissions::from_mode(kept)).unwrap();
            write(&path, "again").unwrap();
            assert_eq!(mode(&path), kept);
        }
    }

    #[test]
    fn only_unlocked_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let [dead, held, other] =
            [".splat-Ab1.tmp", ".splat-Cd2.tmp", "splat.tmp"].map(|name| folder.path().join(name));
        for path in [&dead, &held, &other] {
            fs::write(path, "half").unwrap();
        }
        let lock = File::options().write(true).open(&held).unwrap();
        lock.lock().unwrap();
        remove_abandoned(folder.path());
        assert_eq!([dead, held, other].map(|path| path.exists()), [false, true, true]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_to_files_that_are_not_there_yet() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("deep")).unwrap();
        for (target, link) in [("deep/b", "a"), ("../c", "deep/b"), ("loop", "loop")] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        assert_eq!(follow_links(&at("a")), at("deep/../c"));
        assert_eq!(follow_links(&at("c")), at("c"));
        write(&follow_links(&at("a")), "text").unwrap();
        assert_eq!(fs::read_to_string(at("c")).unwrap(), "text");
        assert_eq!(follow_links(&at("loop")), at("loop"));
    }

    #[test]
    fn failed_write_keeps_the_old_file_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.spz");
        fs::write(&path, "old").unwrap();
        let failed: io::Result<()> = replace_file(&path, |out| {
            out.write_all(b"half of the new")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn old_list_is_removed_before_parts_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("meta.json");
        fs::write(&list, "of other parts").unwrap();
        let mut sink = FolderSink::create(folder.path()).unwrap();
        // A part cannot take the place of a folder.
        fs::create_dir_all(folder.path().join("one/two")).unwrap();
        sink.put("one", b"1").unwrap();
        sink.put("meta.json", b"new").unwrap();
        assert!(sink.finish().is_err());
        assert!(!list.exists());
    }

    #[test]
    fn parts_have_no_names_before_all_are_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut sink = FolderSink::create(&path).unwrap();
        sink.put("a/one", b"1").unwrap();
        sink.put("two", b"22").unwrap();
        assert_eq!(sink.parts.len(), 2);
        assert!(!path.join("two").exists() && !path.join("a").exists());
        assert_eq!(sink.finish().unwrap(), 3);
        assert_eq!(fs::read(path.join("two")).unwrap(), b"22");
        let mut sink = FolderSink::create(&path).unwrap();
        sink.put("two", b"other").unwrap();
        drop(sink);
        assert_eq!(fs::read(path.join("two")).unwrap(), b"22");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }
}

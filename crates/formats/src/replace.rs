//! Files that take the place of others when they are whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::folder::PartSink;
use crate::open::folder_of;

/// How the names of unfinished files begin and end; those of the trainer are the same.
const PREFIX: &str = ".splat-";
const SUFFIX: &str = ".tmp";

/// An empty file beside `path`.
fn unfinished(path: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    // Temporary files are private; results are for everybody whom the user's umask allows.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder_of(path))?;
    // The trainer takes one that nobody has locked for abandoned. File systems without locks have none.
    file.as_file().lock().ok();
    Ok(file)
}

fn finish(file: NamedTempFile, path: &Path) -> io::Result<()> {
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // The rename itself reaches the disk with the folder; systems that cannot sync one need not.
    if let Ok(folder) = File::open(folder_of(path)) {
        folder.sync_all().ok();
    }
    Ok(())
}

/// Replaces `path` by what `write` makes of an empty file, or leaves it as it was.
pub(crate) fn replace_file<T, E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<&mut File>) -> Result<T, E>,
) -> Result<T, E> {
    let mut file = unfinished(path)?;
    let mut buffered = BufWriter::with_capacity(1 << 20, file.as_file_mut());
    let made = write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    finish(file, path)?;
    Ok(made)
}

/// Parts that get their names in a folder when all are whole, in the order in which they came.
pub(crate) struct FolderSink {
    folder: PathBuf,
    parts: Vec<NewPart>,
    bytes: u64,
}

struct NewPart {
    path: PathBuf,
    file: NamedTempFile,
}

impl FolderSink {
    /// Makes the folder, if it is not there.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned(), parts: Vec::new(), bytes: 0 })
    }

    /// Gives the parts their names, the list of them last; how many bytes they have. An earlier list goes
    /// first, so that nobody reads parts of two scenes as one.
    pub(crate) fn finish(self) -> io::Result<u64> {
        if let Some(list) = self.parts.last().filter(|list| list.path.exists()) {
            fs::remove_file(&list.path)?;
        }
        for NewPart { path, file } in self.parts {
            finish(file, &path)?;
        }
        Ok(self.bytes)
    }
}

impl PartSink for FolderSink {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.folder.join(name);
        fs::create_dir_all(folder_of(&path))?;
        let mut file = unfinished(&path)?;
        file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        self.parts.push(NewPart { path, file });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_litter() {
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
    fn an_unfinished_file_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        replace_file(&folder.path().join("model.spz"), |_| {
            let entry = fs::read_dir(folder.path())?.next().unwrap()?;
            assert!(File::open(entry.path())?.try_lock().is_err(), "{entry:?}");
            Ok::<_, io::Error>(())
        })
        .unwrap();
    }

    #[test]
    fn a_list_goes_before_the_parts_that_it_names() {
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
    fn parts_have_no_names_before_all_are_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut sink = FolderSink::create(&path).unwrap();
        sink.put("a/one", b"1").unwrap();
        sink.put("two", b"22").unwrap();
        assert!(!path.join("two").exists() && !path.join("a/one").exists());
        assert_eq!(sink.finish().unwrap(), 3);
        assert_eq!(fs::read(path.join("two")).unwrap(), b"22");
        let mut sink = FolderSink::create(&path).unwrap();
        sink.put("two", b"other").unwrap();
        drop(sink);
        assert_eq!(fs::read(path.join("two")).unwrap(), b"22");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 2);
    }
}

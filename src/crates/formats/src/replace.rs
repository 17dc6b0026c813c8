//! Files that take the place of others when they are whole.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::folder::PartSink;
use crate::open::folder_of;
use crate::unfinished::{UnfinishedFile, follow_links, remove_abandoned};

/// Replaces `path` by what `write` makes of an empty file, or leaves it as it was.
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

/// Parts that get their names in a folder when all are whole, in the order in which they came.
pub(crate) struct FolderSink {
    folder: PathBuf,
    parts: Vec<NewPart>,
    bytes: u64,
}

struct NewPart {
    path: PathBuf,
    file: UnfinishedFile,
}

impl FolderSink {
    /// Makes the folder, if it is not there, and removes what killed programs left in it.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        remove_abandoned(folder);
        for entry in fs::read_dir(folder)?.flatten() {
            remove_abandoned(&entry.path());
        }
        Ok(Self { folder: folder.to_owned(), parts: Vec::new(), bytes: 0 })
    }

    /// Gives the parts their names, the list of them last; how many bytes they have. An earlier list goes
    /// first, so that nobody reads parts of two scenes as one.
    pub(crate) fn finish(self) -> io::Result<u64> {
        if let Some(list) = self.parts.last().filter(|list| list.path.exists()) {
            fs::remove_file(&list.path)?;
        }
        for NewPart { path, file } in self.parts {
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

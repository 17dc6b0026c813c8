//! A file in the making, which appears under its name when it is whole.

use std::fs::File;
use std::path::{Path, PathBuf};

use splat_formats::{UnfinishedFile, follow_links};

use super::error::OutputError;
use super::unfinished::work_folder_of;

/// A temporary file that takes the place of another one when it is whole. It goes with this value.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    temporary: UnfinishedFile,
}

impl NewFile {
    /// An empty file for `path`, in the [`super::WorkFolder`] above or beside it.
    pub fn begin(path: &Path) -> Result<Self, OutputError> {
        let path = follow_links(path);
        let temporary = UnfinishedFile::begin(&work_folder_of(&path))
            .map_err(|source| OutputError::new(&path, source))?;
        Ok(Self { path, temporary })
    }

    /// The same with room on the disk for so many bytes, so that a full disk shows now. Nothing where the
    /// file system keeps no room.
    pub fn with_room(path: &Path, bytes: u64) -> Result<Option<Self>, OutputError> {
        let file = Self::begin(path)?;
        let keeps = keep_room(file.temporary.as_file(), bytes)
            .map_err(|source| OutputError::new(path, source))?;
        Ok(keeps.then_some(file))
    }

    /// Fills the file, syncs it to the disk and renames it, so that a full disk, a crash or a power cut
    /// leaves either the old file or the new one, whole.
    pub fn finish<E: From<OutputError>>(
        mut self,
        write: impl FnOnce(&mut File) -> Result<(), E>,
    ) -> Result<(), E> {
        let temporary = &mut self.temporary;
        write(temporary.as_file_mut())?;
        let Self { path, temporary } = self;
        Ok(temporary.finish(&path).map_err(|source| OutputError::new(&path, source))?)
    }
}

/// Keeps room on the disk for so many bytes of an empty file, without making it longer; whether that can be
/// done.
#[cfg(target_os = "linux")]
fn keep_room(file: &File, bytes: u64) -> std::io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    if bytes == 0 {
        return Ok(true);
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, bytes) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

#[cfg(not(target_os = "linux"))]
fn keep_room(_file: &File, _bytes: u64) -> std::io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_file_with_room_is_as_long_as_what_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.ply");
        let Some(file) = NewFile::with_room(&path, 1 << 20).unwrap() else { return };
        assert!(!path.exists());
        file.finish::<OutputError>(|file| {
            file.write_all(b"ply").map_err(|source| OutputError::new(&path, source))
        })
        .unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ply");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn room_that_no_disk_has_is_refused_before_anything_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.ply");
        let refused = NewFile::with_room(&path, 1 << 60);
        // Some file systems keep no room at all.
        assert!(refused.map_or_else(|error| error.is_for_space(), |file| file.is_none()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

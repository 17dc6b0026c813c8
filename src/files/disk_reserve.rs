//! Room on a disk that is kept for a file to come.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::error::OutputError;
use super::unfinished::unfinished_file;

/// Bytes of zeros that are written at once.
const ZEROS: usize = 1 << 20;

/// A file that takes room on a disk, so that there is some when it is removed. It goes with this value,
/// and what a killed program leaves of it goes as other unfinished files do.
#[derive(Debug)]
pub struct DiskReserve {
    folder: PathBuf,
    held: Option<ReservedFile>,
}

#[derive(Debug)]
struct ReservedFile {
    file: NamedTempFile,
    bytes: u64,
}

impl DiskReserve {
    /// No room yet, on the disk of this folder, which is there.
    pub fn on_disk_of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), held: None }
    }

    /// Takes room for a file of so many bytes, or keeps what it has where that is more. Where there is
    /// too little, what was taken before stays.
    pub fn grow(&mut self, bytes: u64) -> Result<(), OutputError> {
        let fail = |source| OutputError::new(&self.folder, source);
        if self.held.is_none() {
            let file = unfinished_file(&self.folder.join("reserve")).map_err(fail)?;
            self.held = Some(ReservedFile { file, bytes: 0 });
        }
        let Some(held) = self.held.as_mut().filter(|held| held.bytes < bytes) else {
            return Ok(());
        };
        let file = held.file.as_file_mut();
        if let Err(error) = extend(file, held.bytes, bytes) {
            // Of a part of it, nobody could tell what it is good for.
            file.set_len(held.bytes).ok();
            return Err(fail(error));
        }
        held.bytes = bytes;
        Ok(())
    }

    /// Gives the room back, and says how many bytes that were.
    pub fn release(&mut self) -> u64 {
        self.held.take().map_or(0, |held| held.bytes)
    }
}

/// Makes a file take room from `from` to `to`.
#[cfg(target_os = "linux")]
fn extend(file: &mut File, from: u64, to: u64) -> io::Result<()> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    match fallocate(&*file, FallocateFlags::empty(), from, to - from) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(file, from, to),
        done => Ok(done?),
    }
}

#[cfg(not(target_os = "linux"))]
fn extend(file: &mut File, from: u64, to: u64) -> io::Result<()> {
    fill(file, from, to)
}

fn fill(file: &mut File, from: u64, to: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    file.seek(SeekFrom::Start(from))?;
    let mut left = to - from;
    while left > 0 {
        let now = usize::try_from(left).map_or(ZEROS, |left| left.min(ZEROS));
        file.write_all(&zeros[..now])?;
        left -= now as u64;
    }
    // Some file systems find out only now that there is no room.
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_reserve_takes_room_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let files = || fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
        let mut reserve = DiskReserve::on_disk_of(folder.path());
        assert_eq!((reserve.release(), files().count()), (0, 0));
        for (bytes, held) in [(5000, 5000), (3 << 20, 3 << 20), (7, 3 << 20)] {
            reserve.grow(bytes).unwrap();
            let about = files().next().unwrap().metadata().unwrap();
            assert_eq!((files().count(), about.len()), (1, held));
            #[cfg(unix)]
            assert!(std::os::unix::fs::MetadataExt::blocks(&about) * 512 >= held);
        }
        assert_eq!((reserve.release(), files().count()), (3 << 20, 0));
        reserve.grow(9).unwrap();
        drop(reserve);
        assert_eq!(files().count(), 0);
    }

    #[test]
    fn zeros_take_room_where_the_file_system_offers_nothing_better() {
        let mut file = tempfile::tempfile().unwrap();
        fill(&mut file, 0, 10).unwrap();
        fill(&mut file, 10, (ZEROS + 100) as u64).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (ZEROS + 100) as u64);
    }
}

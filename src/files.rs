//! Writing files so that a failure never costs what was there before, and finding them again.

mod folder_lock;
mod json_fault;
mod table_lock;

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageEncoder, ImageError};
use splat_formats::{UnfinishedFile, folder_of};
use tempfile::NamedTempFile;

pub use folder_lock::{FolderLock, LockError, LockState, is_locked, lock_state};
pub use json_fault::JsonFault;
pub use splat_formats::{follow_links, remove_abandoned};
pub use table_lock::TableLock;

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

// What can go wrong with an output.

/// An output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: cannot be written: {source}. Check the free space and the permissions of the folder"
)]
pub struct OutputError {
    path: String,
    #[source]
    source: io::Error,
}

impl OutputError {
    /// The error of writing `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }

    /// The file or folder that cannot be written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// True if it cannot be written because the disk, or what the user may have of it, is full.
    pub fn is_for_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

// Pictures in PNG files.

/// Writes samples, row by row, in the machine's order of bytes. The file appears when it is whole.
pub fn write_png(
    path: &Path,
    [width, height]: [u32; 2],
    bytes: &[u8],
    kind: ExtendedColorType,
) -> Result<(), OutputError> {
    write_atomically(path, |out| {
        let encoder = image::codecs::png::PngEncoder::new(out);
        encoder.write_image(bytes, width, height, kind).map_err(|error| match error {
            // What the system says, such as that the disk is full.
            ImageError::IoError(error) => error,
            error => io::Error::other(error),
        })
    })
}

// Paths in commands that messages show.

/// Returns a path as a word of a shell's command: in quotes if it needs them.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

// Files that are not whole yet: where they lie, and what becomes of those of killed programs.
//
// Each is locked while its program writes it. The lock ends with the program, however that ends, so a
// file that can be locked by another is nobody's any more.

/// The hidden folder in an output folder that holds unfinished files.
const WORK_FOLDER: &str = ".splat";

/// How the names of unfinished files begin.
const PREFIX: &str = ".splat-";

/// How they end.
const SUFFIX: &str = ".tmp";

/// How far above a file its work folder may be: renders lie four folders deep in a model folder.
const LEVELS: usize = 4;

/// Number of times a file is made again that another program removed before it was locked.
const ATTEMPTS: usize = 10;

/// The hidden folder for unfinished files, while a program writes into the folder that it lies in.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Makes the hidden folder in `output`, which is made too, and removes what killed programs left
    /// in it. Where it cannot be made, unfinished files lie beside the finished ones.
    pub fn open(output: &Path) -> Self {
        let path = output.join(WORK_FOLDER);
        fs::create_dir_all(&path).ok();
        remove_abandoned(&path);
        Self { path }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Only where no other program has something in it.
        fs::remove_dir(&self.path).ok();
    }
}

/// An empty, locked file that can be renamed to `path`: in the work folder above it, or beside it.
fn unfinished_file(path: &Path) -> io::Result<NamedTempFile> {
    locked_file(&work_folder_of(path)).or_else(|_refused| locked_file(folder_of(path)))
}

/// The folder for the unfinished form of a file: the work folder above it, or the file's own.
fn work_folder_of(path: &Path) -> PathBuf {
    let folder = folder_of(path);
    work_folder_above(folder).unwrap_or_else(|| folder.to_owned())
}

/// The nearest work folder in `folder` or above it, on the same disk: files are not renamed across disks.
fn work_folder_above(folder: &Path) -> Option<PathBuf> {
    let folder = folder.canonicalize().ok()?;
    let work =
        folder.ancestors().take(LEVELS).map(|above| above.join(WORK_FOLDER)).find(|it| it.is_dir());
    work.filter(|work| are_on_one_disk(work, &folder))
}

#[cfg(unix)]
fn are_on_one_disk(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let disk = |path: &Path| path.metadata().ok().map(|about| about.dev());
    disk(a) == disk(b)
}

#[cfg(not(unix))]
fn are_on_one_disk(_a: &Path, _b: &Path) -> bool {
    true
}

fn locked_file(folder: &Path) -> io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    // Temporary files are private; results are for everybody whom the user's umask allows.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    for _ in 1..ATTEMPTS {
        let file = builder.tempfile_in(folder)?;
        // File systems without locks have no other program that could take one.
        file.as_file().lock().ok();
        if file.path().exists() {
            return Ok(file);
        }
        // Another program took it for abandoned in the moment before it was locked.
    }
    builder.tempfile_in(folder)
}

// A file in the making, which appears under its name when it is whole.

/// A temporary file that takes the place of another one when it is whole. It goes with this value.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    temporary: UnfinishedFile,
}

impl NewFile {
    /// An empty file for `path`, in the [`WorkFolder`] above or beside it.
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
fn keep_room(file: &File, bytes: u64) -> io::Result<bool> {
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

// Room on a disk that is kept for a file to come.

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
    use std::io::Write as _;

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

    #[test]
    fn only_files_of_ended_programs_are_abandoned() {
        let output = tempfile::tempdir().unwrap();
        let work = WorkFolder::open(output.path());
        let file = unfinished_file(&output.path().join("model.ply")).unwrap();
        assert_eq!(file.path().parent(), Some(work.path.canonicalize().unwrap().as_path()));
        let dead = work.path.join(".splat-Ab1c2D.tmp");
        fs::write(&dead, "half").unwrap();
        // What a second program does.
        drop(WorkFolder::open(output.path()));
        assert!(file.path().exists() && !dead.exists());
        drop(file);
        drop(work);
        assert_eq!(fs::read_dir(output.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_work_folder_far_above_is_none_of_a_files() {
        let output = tempfile::tempdir().unwrap();
        let _work = WorkFolder::open(output.path());
        let parent_of_file_in = |below: &str| {
            let folder = output.path().join(below).canonicalize().unwrap();
            let file = unfinished_file(&folder.join("a.png")).unwrap();
            (file.path().parent().unwrap().to_owned(), folder)
        };
        fs::create_dir_all(output.path().join("test/ours_7/gt/deeper")).unwrap();
        let (parent, _) = parent_of_file_in("test/ours_7/gt");
        assert!(parent.ends_with(WORK_FOLDER), "{}", parent.display());
        let (parent, folder) = parent_of_file_in("test/ours_7/gt/deeper");
        assert_eq!(parent, folder);
    }

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

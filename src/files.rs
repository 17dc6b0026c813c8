//! Files that a failure leaves whole, and searches for files.

mod locks;

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use image::{ExtendedColorType, ImageEncoder, ImageError};
use splat_formats::{UnfinishedFile, folder_of};

pub use locks::{FolderLock, LockError, LockState, TableLock, is_locked, lock_state};
pub use splat_formats::{follow_links, remove_abandoned};

/// Replaces `path` with the result of `write` on an empty file. After an error `path` is unchanged.
///
/// The content goes to a temporary file (in the [`WorkFolder`] above `path`, or beside it), is synced to the disk and
/// renamed. A full disk, a crash or a power cut leaves either the old or the new file, complete.
pub fn replace_file<E: From<OutputError>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    NewFile::begin(path)?.finish(write)
}

/// Replaces `path` as [`replace_file`] does, with the output of `write`.
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

/// Replaces `path` with `text` as [`replace_file`] does.
pub fn write_text(path: &Path, text: &str) -> Result<(), OutputError> {
    write_atomically(path, |out| out.write_all(text.as_bytes()))
}

/// Fails if files cannot be created and written in this folder.
pub fn check_writable(folder: &Path) -> Result<(), OutputError> {
    let fail = |source| OutputError::new(folder, source);
    let mut temporary = unfinished_file(&folder.join("table")).map_err(fail)?;
    temporary.as_file_mut().write_all(b"\n").map_err(fail)
}

/// Creates the folder and its parents.
pub fn create_folder(path: &Path) -> Result<PathBuf, OutputError> {
    fs::create_dir_all(path).map_err(|source| OutputError::new(path, source))?;
    Ok(path.to_owned())
}

/// Returns the bytes that files can still take on the disk of this folder; `None` if the system does not report them.
#[cfg(unix)]
pub fn free_space(folder: &Path) -> Option<u64> {
    let system = rustix::fs::statvfs(folder).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(not(unix))]
pub fn free_space(_folder: &Path) -> Option<u64> {
    None
}

/// Returns the error if the system does not let this program enter a folder that exists.
pub fn entry_refusal(folder: &Path) -> Option<io::Error> {
    // A folder without permission to enter refuses even the entry `.`.
    fs::metadata(folder.join(".")).err().filter(is_refusal)
}

/// Returns the error if the system does not list a folder that exists.
pub fn listing_refusal(folder: &Path) -> Option<io::Error> {
    fs::read_dir(folder).err().filter(is_refusal)
}

fn is_refusal(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Returns the paths of a folder's entries, sorted; none if the folder cannot be listed.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = read.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Returns the entries of a folder whose names contain a number, ascending; none if the folder does not exist.
pub fn numbered(folder: &Path, number: impl Fn(&str) -> Option<u32>) -> Vec<(u32, PathBuf)> {
    let numbered = |path: PathBuf| Some((number(path.file_name()?.to_str()?)?, path));
    let mut found: Vec<(u32, PathBuf)> = entries(folder).into_iter().filter_map(numbered).collect();
    found.sort();
    found
}

/// An output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path}: cannot be written: {source}. Check the free space and the permissions of the folder"
)]
pub struct OutputError {
    path: String,
    source: io::Error,
}

impl OutputError {
    /// Creates the error of writing `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.display().to_string(), source }
    }

    /// Returns the file or folder that cannot be written.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns true if the disk or the user's quota is full.
    pub fn is_for_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(self.source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }
}

/// Writes samples row by row, in the machine's byte order. The file appears when it is complete.
pub fn write_png(
    path: &Path,
    [width, height]: [u32; 2],
    bytes: &[u8],
    kind: ExtendedColorType,
) -> Result<(), OutputError> {
    write_atomically(path, |out| {
        let encoder = image::codecs::png::PngEncoder::new(out);
        encoder.write_image(bytes, width, height, kind).map_err(|error| match error {
            // Keep the system's error, such as a full disk.
            ImageError::IoError(error) => error,
            error => io::Error::other(error),
        })
    })
}

/// Returns a path as a word of a shell's command: in quotes if it needs them.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |letter: char| letter.is_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(plain) {
        return text;
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

// Folder of unfinished files.

/// Hidden folder in an output folder for unfinished files.
const WORK_FOLDER: &str = ".splat";

/// Number of folders searched for a work folder: renders are four levels deep in a model folder.
const LEVELS: usize = 4;

/// The hidden folder for unfinished files, while a program writes into its parent.
#[derive(Debug)]
pub struct WorkFolder {
    path: PathBuf,
}

impl WorkFolder {
    /// Creates the hidden folder in `output`, with its parents, and removes files of killed programs. If that fails,
    /// unfinished files lie beside the finished ones.
    pub fn open(output: &Path) -> Self {
        let path = output.join(WORK_FOLDER);
        fs::create_dir_all(&path).ok();
        remove_abandoned(&path);
        Self { path }
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Fails if another program has files in the folder.
        fs::remove_dir(&self.path).ok();
    }
}

/// Creates an empty file that can be renamed to `path`, in the work folder above or beside it.
fn unfinished_file(path: &Path) -> io::Result<UnfinishedFile> {
    UnfinishedFile::begin(&work_folder_of(path))
        .or_else(|_refused| UnfinishedFile::begin(folder_of(path)))
}

/// Returns the folder for the unfinished form of a file: the nearest work folder in or above its own on the same disk,
/// because renaming needs one disk; else its own.
fn work_folder_of(path: &Path) -> PathBuf {
    let folder = folder_of(path);
    let above = || {
        let folder = folder.canonicalize().ok()?;
        let mut above = folder.ancestors().take(LEVELS).map(|above| above.join(WORK_FOLDER));
        above.find(|it| it.is_dir()).filter(|work| are_on_one_disk(work, &folder))
    };
    above().unwrap_or_else(|| folder.to_owned())
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

/// A temporary file that replaces another one when it is complete. Dropping it removes the file.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    temporary: UnfinishedFile,
}

impl NewFile {
    /// Creates an empty file for `path` in the [`WorkFolder`] above or beside it.
    pub fn begin(path: &Path) -> Result<Self, OutputError> {
        let path = follow_links(path);
        let temporary = UnfinishedFile::begin(&work_folder_of(&path))
            .map_err(|source| OutputError::new(&path, source))?;
        Ok(Self { path, temporary })
    }

    /// Creates a file with `bytes` reserved on the disk, so that a full disk fails now. `None` if the file system
    /// cannot reserve space.
    pub fn with_room(path: &Path, bytes: u64) -> Result<Option<Self>, OutputError> {
        let file = Self::begin(path)?;
        // An empty range cannot be reserved.
        let keeps = bytes == 0
            || reserve_space(file.temporary.as_file(), 0..bytes, true)
                .map_err(|source| OutputError::new(path, source))?;
        Ok(keeps.then_some(file))
    }

    /// Fills the file, syncs it to the disk and renames it. A full disk, a crash or a power cut leaves either the old
    /// or the new file, complete.
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

/// Reserves disk space for a range of a file. Returns false if the file system cannot.
#[cfg(target_os = "linux")]
fn reserve_space(file: &File, range: Range<u64>, keeps_length: bool) -> io::Result<bool> {
    use rustix::fs::{FallocateFlags, fallocate};
    use rustix::io::Errno;
    let flags = if keeps_length { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
    match fallocate(file, flags, range.start, range.end - range.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        done => Ok(done.map(|()| true)?),
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve_space(_file: &File, _range: Range<u64>, _keeps_length: bool) -> io::Result<bool> {
    Ok(false)
}

/// Bytes of zeros of one write.
const ZEROS: usize = 1 << 20;

/// A file that reserves disk space until it is released. Dropping the value removes it; after a kill it is removed
/// like other unfinished files.
#[derive(Debug)]
pub struct DiskReserve {
    folder: PathBuf,
    held: Option<ReservedFile>,
}

#[derive(Debug)]
struct ReservedFile {
    file: UnfinishedFile,
    bytes: u64,
}

impl DiskReserve {
    /// Creates a reserve without space on the disk of this folder, which must exist.
    pub fn on_disk_of(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), held: None }
    }

    /// Reserves `bytes`, or keeps a larger reserve. After an error the earlier reserve stays.
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
        let growth = held.bytes..bytes;
        let reserved = reserve_space(file, growth.clone(), false)
            .and_then(|reserved| if reserved { Ok(()) } else { fill(file, growth) });
        if let Err(error) = reserved {
            // A part of the growth would be of no use.
            file.set_len(held.bytes).ok();
            return Err(fail(error));
        }
        held.bytes = bytes;
        Ok(())
    }

    /// Frees the space and returns its size in bytes.
    pub fn release(&mut self) -> u64 {
        self.held.take().map_or(0, |held| held.bytes)
    }
}

/// Makes a file longer by a range of zeros.
fn fill(file: &mut File, range: Range<u64>) -> io::Result<()> {
    let zeros = vec![0; ZEROS];
    file.seek(SeekFrom::Start(range.start))?;
    let mut left = range.end - range.start;
    while left > 0 {
        let now = usize::try_from(left).map_or(ZEROS, |left| left.min(ZEROS));
        file.write_all(&zeros[..now])?;
        left -= now as u64;
    }
    // Some file systems report a full disk only here.
    file.sync_data()
}

/// Removes a file if it is there.
pub fn remove_if_there(path: &Path) -> Result<(), OutputError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(OutputError::new(path, error)),
        _ => Ok(()),
    }
}

/// Asserts that a text has these parts.
#[cfg(test)]
pub(crate) fn assert_parts(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in: {text}");
    }
}

// Errors in JSON that people edit.

/// Position and kind of an error in JSON text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {found}")]
pub struct JsonFault {
    line: usize,
    column: usize,
    found: String,
}

impl JsonFault {
    /// Creates the fault from the parser's error.
    pub fn new(text: &[u8], error: &serde_json::Error) -> Self {
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            let before = &text[..at];
            let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |it| it + 1);
            let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            let found = "a NUL byte, so the file is damaged".to_owned();
            return Self { line, column: at - start + 1, found };
        }
        let (line, column) = (error.line(), error.column());
        let found = if error.is_eof() {
            "the file ends too early".to_owned()
        } else if error.is_syntax() && has_comment(text, line, column) {
            "a comment, which JSON does not allow".to_owned()
        } else {
            let text = error.to_string();
            let place = format!(" at line {line} column {column}");
            match text.strip_suffix(&place).unwrap_or(&text) {
                "trailing comma" => "a comma before the closing bracket".to_owned(),
                other => other.to_owned(),
            }
        };
        Self { line, column, found }
    }
}

/// Returns true if a comment starts where the parser stopped, or one character beside.
fn has_comment(text: &[u8], line: usize, column: usize) -> bool {
    let line = text.split(|&byte| byte == b'\n').nth(line.saturating_sub(1)).unwrap_or_default();
    let rest = line.get(column.saturating_sub(2)..).unwrap_or_default();
    let first = rest.trim_ascii_start();
    [&b"//"[..], b"/*", b"#"]
        .iter()
        .any(|mark| first.starts_with(mark) || rest[1.min(rest.len())..].starts_with(mark))
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
        let of_model = work_folder_of(&output.path().join("model.ply"));
        assert_eq!(of_model, work.path.canonicalize().unwrap());
        let [dead, held] = [".splat-Ab1c2D.tmp", ".splat-Cd3e4F.tmp"].map(|it| work.path.join(it));
        fs::write(&dead, "half").unwrap();
        let file = File::create(&held).unwrap();
        file.lock().unwrap();
        // A second program opens the folder.
        drop(WorkFolder::open(output.path()));
        assert!(held.exists() && !dead.exists());
        fs::remove_file(held).unwrap();
        drop(work);
        assert_eq!(fs::read_dir(output.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_distant_work_folder_is_not_used() {
        let output = tempfile::tempdir().unwrap();
        let _work = WorkFolder::open(output.path());
        let near = output.path().join("test/ours_7/gt");
        let far = near.join("deeper");
        fs::create_dir_all(&far).unwrap();
        let found = work_folder_of(&near.join("a.png"));
        assert!(found.ends_with(WORK_FOLDER), "{}", found.display());
        assert_eq!(work_folder_of(&far.join("a.png")), far);
    }

    #[test]
    fn a_file_with_reserved_space_has_the_written_length() {
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
    fn too_large_a_reservation_fails_before_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.ply");
        let refused = NewFile::with_room(&path, 1 << 60);
        // Some file systems cannot reserve space.
        assert!(refused.map_or_else(|error| error.is_for_space(), |file| file.is_none()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_reserve_takes_space_until_it_is_released() {
        let folder = tempfile::tempdir().unwrap();
        let mut reserve = DiskReserve::on_disk_of(folder.path());
        assert_eq!(reserve.release(), 0);
        for (bytes, held) in [(5000, 5000), (3 << 20, 3 << 20), (7, 3 << 20)] {
            reserve.grow(bytes).unwrap();
            let about = reserve.held.as_ref().unwrap().file.as_file().metadata().unwrap();
            assert_eq!(about.len(), held);
            #[cfg(unix)]
            assert!(std::os::unix::fs::MetadataExt::blocks(&about) * 512 >= held);
        }
        assert_eq!(reserve.release(), 3 << 20);
        reserve.grow(9).unwrap();
        drop(reserve);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn zeros_reserve_space_without_fallocate() {
        let mut file = tempfile::tempfile().unwrap();
        fill(&mut file, 0..10).unwrap();
        fill(&mut file, 10..(ZEROS + 100) as u64).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (ZEROS + 100) as u64);
    }

    #[test]
    fn faults_are_named_with_their_line() {
        let cases: [(&[u8], &str); 8] = [
            (b"{\n  \"a\": 1, // one\n  \"b\": 2\n}", "line 2, column 11: a comment"),
            (b"{\n  # first\n  \"a\": 1\n}", "line 2, column 3: a comment"),
            (b"{\"a\": /* one */ 1}", "line 1, column 7: a comment"),
            (b"{\n  \"a\": [1, 2,]\n}", "line 2, column 14: a comma before"),
            (b"{\n  \"a\": 1,\n}", "line 3, column 1: a comma before"),
            (b"{\n\"a\": \"b\0\"}", "line 2, column 8: a NUL byte"),
            (b"{\"a\": [1", "line 1, column 8: the file ends too early"),
            (b"{\"a\" 1}", "line 1, column 6: expected `:`"),
        ];
        for (text, expected) in cases {
            let error = serde_json::from_slice::<serde_json::Value>(text).unwrap_err();
            let found = JsonFault::new(text, &error).to_string();
            assert!(found.starts_with(expected), "{found} for {expected}");
        }
    }
}

//! Files that are not whole yet: where they lie, and what becomes of those of killed programs.
//!
//! Each is locked while its program writes it. The lock ends with the program, however that ends, so a
//! file that can be locked by another is nobody's any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use splat_formats::{folder_of, remove_abandoned};
use tempfile::NamedTempFile;

/// The hidden folder in an output folder that holds unfinished files.
pub(super) const WORK_FOLDER: &str = ".splat";

/// How the names of unfinished files begin.
const PREFIX: &str = ".splat-";

/// How they end.
const SUFFIX: &str = ".tmp";

/// How far above a file its work folder may be: renders lie four folders deep in a model folder.
const LEVELS: usize = 4;

/// How often a file is made anew that another program removed before it was locked.
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
pub(super) fn unfinished_file(path: &Path) -> io::Result<NamedTempFile> {
    locked_file(&work_folder_of(path)).or_else(|_refused| locked_file(folder_of(path)))
}

/// The folder for the unfinished form of a file: the work folder above it, or the file's own.
pub(super) fn work_folder_of(path: &Path) -> PathBuf {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

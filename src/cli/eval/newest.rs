//! The mesh that is measured where none is named.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::cli::exit::DataError;
use crate::cli::folder;
use crate::cli::output::shell_word;
use crate::files::numbered;

/// The mesh that was written last for an iteration, or else for the last iteration that has one.
/// Files with these extensions count.
pub(super) fn newest_mesh(
    model_path: &Path,
    wanted: Option<u32>,
    extensions: &[&str],
) -> Result<PathBuf, DataError> {
    folder::check_readable(model_path)?;
    let number = |name: &str| name.strip_prefix("iteration_")?.parse().ok();
    let mut iterations = numbered(&model_path.join("mesh"), number);
    iterations.retain(|&(iteration, _)| wanted.is_none_or(|wanted| wanted == iteration));
    let newest = iterations.iter().rev().find_map(|(_, folder)| newest_of(folder, extensions));
    newest.ok_or_else(|| {
        let of = wanted.map_or(String::new(), |wanted| format!(" of iteration {wanted}"));
        DataError(format!(
            "{}: holds no mesh{of}, mesh/iteration_N/*.ply. Write one with: splat mesh -m {}, or name a \
             file with --mesh",
            model_path.display(),
            shell_word(model_path)
        ))
    })
}

/// The file of a mesh in a folder that was written last; of several at that time, the last by name.
fn newest_of(folder: &Path, extensions: &[&str]) -> Option<PathBuf> {
    let paths = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_mesh = |path: &PathBuf| {
        let extension = path.extension().and_then(OsStr::to_str);
        extension.is_some_and(|extension| extensions.contains(&extension))
    };
    let time = |path: &Path| fs::metadata(path).and_then(|file| file.modified());
    paths
        .filter(is_mesh)
        .max_by_key(|path| (time(path).unwrap_or(SystemTime::UNIX_EPOCH), path.clone()))
}

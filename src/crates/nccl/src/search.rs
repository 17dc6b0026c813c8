//! Where NCCL is looked for.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::NcclError;

/// The library's names. The second is there where developers' packages are installed.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// What the search depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `SPLAT_NCCL`; an empty one counts as unset.
    pub(crate) named: Option<OsString>,
    /// The folder of the program's file.
    pub(crate) program: Option<PathBuf>,
    /// Python's environments: `VIRTUAL_ENV` and `CONDA_PREFIX`, those that are set.
    pub(crate) prefixes: Vec<PathBuf>,
}

/// A place where the library may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// The system's loader looks for a file of this name.
    Loader(&'static str),
    /// This file, if it is there.
    File(PathBuf),
}

impl Environment {
    /// That of this process.
    pub(crate) fn of_process() -> Self {
        let program = std::env::current_exe().ok();
        let prefixes = ["VIRTUAL_ENV", "CONDA_PREFIX"];
        Self {
            named: std::env::var_os("SPLAT_NCCL"),
            program: program.and_then(|file| Some(file.parent()?.to_path_buf())),
            prefixes: prefixes.iter().filter_map(std::env::var_os).map(PathBuf::from).collect(),
        }
    }
}

/// The places, in the order in which they are tried.
///
/// # Errors
/// If `SPLAT_NCCL` is set, and the library is not there.
pub(crate) fn candidates(environment: &Environment) -> Result<Vec<Candidate>, NcclError> {
    if let Some(named) = environment.named.as_ref().filter(|named| !named.is_empty()) {
        return Ok(vec![Candidate::File(named_file(Path::new(named))?)]);
    }
    let mut found: Vec<_> = NAMES.into_iter().map(Candidate::Loader).collect();
    if let Some(program) = &environment.program {
        found.extend(NAMES.map(|name| Candidate::File(program.join("lib").join(name))));
    }
    for prefix in environment.prefixes.iter().filter(|prefix| !prefix.as_os_str().is_empty()) {
        found.extend(wheels(prefix).into_iter().map(Candidate::File));
    }
    Ok(found)
}

/// The file that `SPLAT_NCCL` means. Its path is absolute: the system's loader looks for bare names elsewhere.
fn named_file(named: &Path) -> Result<PathBuf, NcclError> {
    let nothing = || NcclError::NamesNothing { path: named.to_path_buf() };
    let file = if named.is_dir() {
        NAMES.iter().map(|name| named.join(name)).find(|file| file.exists())
    } else {
        Some(named.to_path_buf()).filter(|file| file.exists())
    };
    Ok(std::path::absolute(file.ok_or_else(nothing)?).unwrap_or_else(|_error| named.to_path_buf()))
}

/// The library of a Python package, for each Python of an environment, by name. Without any Python it is a
/// pattern that names no file, which says where the search was.
fn wheels(prefix: &Path) -> Vec<PathBuf> {
    let folder = prefix.join("lib");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut pythons: Vec<_> = entries
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("python3."))
        .collect();
    pythons.sort();
    if pythons.is_empty() {
        pythons.push("python3.*".into());
    }
    let inside = Path::new("site-packages/nvidia/nccl/lib").join(NAMES[0]);
    pythons.iter().map(|python| folder.join(python).join(&inside)).collect()
}

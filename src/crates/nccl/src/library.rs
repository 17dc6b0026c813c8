//! The NCCL library of this machine: version, search and errors.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use crate::symbols::{GetVersion, IN_PROGRESS, SUCCESS, Symbols, UniqueId};

/// Version of NCCL, displayed as `2.28.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl Version {
    /// Oldest supported version.
    pub const OLDEST: Self = Self { major: 2, minor: 18, patch: 0 };

    /// Decodes the library's number: 22803 is 2.28.3. Up to version 2.8 the first number counted thousands.
    pub(crate) fn from_code(code: c_int) -> Self {
        let code = code.unsigned_abs();
        let major_unit = if code < 10_000 { 1000 } else { 10_000 };
        Self { major: code / major_unit, minor: code % major_unit / 100, patch: code % 100 }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Error of NCCL or of the search for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NcclError {
    #[error(
        "not found, needed for --gpus. Install NCCL {} or later, and name its folder in SPLAT_NCCL: \
         pip install nvidia-nccl-cu13",
        Version::OLDEST
    )]
    NotFound {
        /// Candidates in the order of the search, for `Debug`.
        looked_in: Vec<String>,
    },
    /// `SPLAT_NCCL` names a path without the library. No other path is searched.
    #[error(
        "SPLAT_NCCL names {}, which is neither a file nor a folder that holds libnccl.so.2 or \
         libnccl.so; name one of them, or unset SPLAT_NCCL",
        path.display()
    )]
    NamesNothing { path: PathBuf },
    #[error(
        "cannot use {} as NCCL: {why}; install NCCL {} or later, and name its folder in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    Unusable { path: PathBuf, why: String },
    #[error(
        "{} is NCCL {version}, but {} or later is needed: install it, for instance by \
         `pip install nvidia-nccl-cu13`, and name its folder in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    TooOld { path: PathBuf, version: Version },
    #[error(
        "{} has no function {symbol}: it is not NCCL {} or later; name the right one in SPLAT_NCCL",
        path.display(),
        Version::OLDEST
    )]
    MissingSymbol { path: PathBuf, symbol: &'static str },
    /// NCCL's communicators do not block, which only an environment variable can cause.
    #[error("NCCL's calls do not block as they should: unset NCCL_COMM_BLOCKING on all ranks")]
    NotBlocking,
    /// A call of NCCL fails. The communicator is unusable.
    #[error(
        "{call} failed: {message} (result {code}). Read the other ranks' messages; NCCL_DEBUG=WARN shows more"
    )]
    Failed {
        call: &'static str,
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// Enqueued work has failed. The communicator is unusable.
    #[error(
        "an exchange between ranks failed: {message} (result {code}). Read the other ranks' messages; \
         NCCL_DEBUG=WARN shows more"
    )]
    Broken {
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// The rank to join is not below the world.
    #[error("rank {rank} cannot be one of {world} ranks: ranks count from 0")]
    NoSuchRank { rank: u32, world: u32 },
    /// The peer of a part is not below the world. Nothing was enqueued.
    #[error("there is no rank {peer} among {world} ranks: ranks count from 0")]
    NoSuchPeer { peer: u32, world: u32 },
}

/// NCCL library of this machine. It is never unloaded, because its threads run until the process ends.
#[derive(Debug)]
pub struct Library {
    pub(crate) symbols: Symbols,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
}

impl Library {
    /// Returns the library of this machine. The first call searches for it.
    ///
    /// | order | path |
    /// |---|---|
    /// | 1 | `SPLAT_NCCL`: a file, or a folder that holds `libnccl.so.2` or `libnccl.so`; no other path is tried unless it is empty |
    /// | 2 | `libnccl.so.2`, then `libnccl.so`, by the system's loader |
    /// | 3 | the same names in `lib/` beside the program's file |
    /// | 4 | `lib/python3.*/site-packages/nvidia/nccl/lib/libnccl.so.2` below `VIRTUAL_ENV`, then below `CONDA_PREFIX` |
    ///
    /// An unusable file, such as an old version, does not end the search. Returns the error of the first unusable file
    /// if no file is usable.
    pub fn find() -> Result<&'static Self, NcclError> {
        static FOUND: OnceLock<Result<Library, NcclError>> = OnceLock::new();
        let search = || Self::first_of(&candidates(&Environment::of_process())?);
        FOUND.get_or_init(search).as_ref().map_err(Clone::clone)
    }

    /// Returns the version, [`Version::OLDEST`] or later.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the file of the library, or the name by which it was opened if the system does not tell the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the id of a new group. This process must run until all ranks have joined. Needs no GPU. Fails if NCCL
    /// finds no network address of this machine.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId::from_bytes([0; 128]);
        // SAFETY: `id` has NCCL's layout and outlives the call.
        let code = unsafe { (self.symbols.get_unique_id)(&raw mut id) };
        self.checked("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// Returns the first candidate that is a usable library.
    pub(crate) fn first_of(candidates: &[Candidate]) -> Result<Self, NcclError> {
        let mut looked_in = Vec::new();
        let mut trouble = None;
        for candidate in candidates {
            let loaded = match candidate {
                Candidate::Loader(name) => match open(OsStr::new(name)) {
                    Ok(library) => Self::of(library, Path::new(name)),
                    // The loader does not tell a file that is not there from a bad one.
                    Err(why) => {
                        looked_in.push(format!("{name} by the system's loader ({why})"));
                        continue;
                    }
                },
                Candidate::File(file) if !file.exists() => {
                    looked_in.push(file.display().to_string());
                    continue;
                }
                Candidate::File(file) => match open(file.as_os_str()) {
                    Ok(library) => Self::of(library, file),
                    Err(why) => Err(NcclError::Unusable { path: file.clone(), why }),
                },
            };
            match loaded {
                Ok(library) => return Ok(library),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        Err(trouble.unwrap_or(NcclError::NotFound { looked_in }))
    }

    /// Reads version and symbols of a library that was opened by this name.
    fn of(library: &'static libloading::Library, name: &Path) -> Result<Self, NcclError> {
        let named = || name.to_path_buf();
        let missing = |path, symbol| NcclError::MissingSymbol { path, symbol };
        // SAFETY: every version of NCCL gives the function of this name this type.
        let found = unsafe { library.get::<GetVersion>("ncclGetVersion") };
        let get_version: GetVersion = *found.or(Err(missing(named(), "ncclGetVersion")))?;
        let path = file_of(get_version).unwrap_or_else(named);
        let mut code = 0;
        // SAFETY: the function writes one number, and `code` outlives the call.
        let result = unsafe { get_version(&raw mut code) };
        if result != SUCCESS {
            let why = format!("ncclGetVersion failed with result {result}");
            return Err(NcclError::Unusable { path, why });
        }
        let version = Version::from_code(code);
        if version < Version::OLDEST {
            return Err(NcclError::TooOld { path, version });
        }
        match Symbols::of(library) {
            Ok(symbols) => Ok(Self { symbols, version, path }),
            Err(symbol) => Err(missing(path, symbol)),
        }
    }

    /// Returns an error unless a call's result is success.
    pub(crate) fn checked(&self, call: &'static str, code: c_int) -> Result<(), NcclError> {
        match code {
            SUCCESS => Ok(()),
            IN_PROGRESS => Err(NcclError::NotBlocking),
            _ => Err(NcclError::Failed { call, code, message: self.message(code) }),
        }
    }

    /// Returns the text of a result and NCCL's message about its last error, which may be that of another thread.
    pub(crate) fn message(&self, code: c_int) -> String {
        // SAFETY: the function takes any number.
        let meaning = unsafe { (self.symbols.get_error_string)(code) };
        // SAFETY: NCCL allows a null communicator here.
        let last = unsafe { (self.symbols.get_last_error)(ptr::null_mut()) };
        let words = [text(meaning), text(last)];
        let lines: Vec<_> =
            words.iter().map(|words| words.trim()).filter(|w| !w.is_empty()).collect();
        if lines.is_empty() { "NCCL does not say why".into() } else { lines.join(": ") }
    }
}

/// Returns the text of a message of NCCL, or an empty text for a null pointer.
fn text(message: *const c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's messages are constants or a buffer of its own, which are never freed and end in 0.
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// Opens a library and never closes it, because NCCL's threads run until the process ends.
fn open(name: &OsStr) -> Result<&'static libloading::Library, String> {
    match load(name) {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Err(cause.unwrap_or_else(|| error.to_string()))
        }
    }
}

/// Opens a library. Resolves its symbols at once and keeps them local.
#[cfg(unix)]
fn load(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

    // SAFETY: the file is named as NCCL is or was given by the user; NCCL's initialisers need nothing.
    let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
    library.map(Into::into)
}

/// Opens a library.
#[cfg(not(unix))]
fn load(name: &OsStr) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: the file is named as NCCL is or was given by the user; NCCL's initialisers need nothing.
    unsafe { libloading::Library::new(name) }
}

/// Returns the file that contains a function.
#[cfg(unix)]
fn file_of(function: GetVersion) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the call takes any address and writes `info`.
    let found = unsafe { libc::dladdr(function as *const libc::c_void, info.as_mut_ptr()) };
    // SAFETY: all bytes are initialised, and zero is valid for each field.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name ends in 0 and is valid as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Returns the file that contains a function.
#[cfg(not(unix))]
fn file_of(_function: GetVersion) -> Option<PathBuf> {
    None
}

// The search.

/// File names of the library. The second belongs to developers' packages.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Inputs of the search.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `SPLAT_NCCL`. An empty value counts as unset.
    pub(crate) named: Option<OsString>,
    /// Folder of the program's file.
    pub(crate) program: Option<PathBuf>,
    /// Python environments of `VIRTUAL_ENV` and `CONDA_PREFIX`.
    pub(crate) prefixes: Vec<PathBuf>,
}

/// Candidate for the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Candidate {
    /// Name for the system's loader.
    Loader(&'static str),
    /// File, which need not exist.
    File(PathBuf),
}

impl Environment {
    /// Returns the environment of this process.
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

/// Returns the candidates in order. Fails if `SPLAT_NCCL` is set and does not name the library.
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

/// Returns the file that `SPLAT_NCCL` names, as an absolute path, because the system's loader searches for bare names.
fn named_file(named: &Path) -> Result<PathBuf, NcclError> {
    let nothing = || NcclError::NamesNothing { path: named.to_path_buf() };
    let file = if named.is_dir() {
        NAMES.iter().map(|name| named.join(name)).find(|file| file.exists())
    } else {
        Some(named.to_path_buf()).filter(|file| file.exists())
    };
    Ok(std::path::absolute(file.ok_or_else(nothing)?).unwrap_or_else(|_error| named.to_path_buf()))
}

/// Returns the library of NCCL's Python package for each Python of an environment, or a pattern for the list of
/// candidates if there is no Python.
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

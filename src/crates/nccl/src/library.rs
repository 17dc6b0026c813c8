//! The library of this machine: its versions, the search for it, and its errors.

use std::ffi::{CStr, OsStr, OsString, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use crate::symbols::{GetVersion, IN_PROGRESS, SUCCESS, Symbols, UniqueId};

/// A version of NCCL; it is written as `2.28.3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl Version {
    /// The oldest version that this crate works with.
    pub const OLDEST: Self = Self { major: 2, minor: 18, patch: 0 };

    /// By the library's number: 22803 is 2.28.3. Up to 2.8 the first number counted thousands.
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

/// An error of NCCL or of the search for it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum NcclError {
    #[error(
        "not found, needed for --gpus. Install NCCL {} or later, and name its folder in SPLAT_NCCL: \
         pip install nvidia-nccl-cu13",
        Version::OLDEST
    )]
    NotFound {
        /// The places, in the order of the search, for `Debug`.
        looked_in: Vec<String>,
    },
    /// `SPLAT_NCCL` names a place without the library. No other place is looked at.
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
    /// NCCL's communicators do not block, which only the environment can have asked for.
    #[error("NCCL's calls do not block as they should: unset NCCL_COMM_BLOCKING on all ranks")]
    NotBlocking,
    /// A call of NCCL fails. The communicator is of no more use.
    #[error(
        "{call} failed: {message} (result {code}). Read the other ranks' messages; NCCL_DEBUG=WARN shows more"
    )]
    Failed {
        call: &'static str,
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// Something that was enqueued before has failed. The communicator is of no more use.
    #[error(
        "an exchange between ranks failed: {message} (result {code}). Read the other ranks' messages; \
         NCCL_DEBUG=WARN shows more"
    )]
    Broken {
        code: i32,
        /// The result in words, and what NCCL says of its last error.
        message: String,
    },
    /// A rank that the group does not have was to join.
    #[error("rank {rank} cannot be one of {world} ranks: ranks count from 0")]
    NoSuchRank { rank: u32, world: u32 },
    /// A part is for a rank, or from one, that the group does not have. Nothing was enqueued.
    #[error("there is no rank {peer} among {world} ranks: ranks count from 0")]
    NoSuchPeer { peer: u32, world: u32 },
}

/// NCCL, as it is on this machine. It is never unloaded: its threads go on to the end of the process.
#[derive(Debug)]
pub struct Library {
    pub(crate) symbols: Symbols,
    pub(crate) version: Version,
    pub(crate) path: PathBuf,
}

impl Library {
    /// The library of this machine. The first call looks for it, later ones return what that one found.
    ///
    /// | order | place |
    /// |---|---|
    /// | 1 | `SPLAT_NCCL`: a file, or a folder that holds `libnccl.so.2` or `libnccl.so`; where it is set and not empty, no other place counts |
    /// | 2 | `libnccl.so.2`, then `libnccl.so`, where the system's loader finds them |
    /// | 3 | the same names in `lib/` beside the program's file |
    /// | 4 | `lib/python3.*/site-packages/nvidia/nccl/lib/libnccl.so.2` below `VIRTUAL_ENV`, then below `CONDA_PREFIX` |
    ///
    /// A file that is of no use, such as an old version, does not end the search.
    /// Fails if the library is nowhere; else what is wrong with the first one that was found.
    pub fn find() -> Result<&'static Self, NcclError> {
        static FOUND: OnceLock<Result<Library, NcclError>> = OnceLock::new();
        let search = || Self::first_of(&candidates(&Environment::of_process())?);
        FOUND.get_or_init(search).as_ref().map_err(Clone::clone)
    }

    /// The library's version, [`Version::OLDEST`] or later.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The library's file, or the name by which it was opened where the system does not tell the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of a new group. One rank makes it; this process has to live until all ranks have joined. Needs no GPU.
    /// Fails if NCCL finds no network address of this machine.
    pub fn unique_id(&self) -> Result<UniqueId, NcclError> {
        let mut id = UniqueId::from_bytes([0; 128]);
        // SAFETY: `id` is a record of NCCL's layout, and outlives the call.
        let code = unsafe { (self.symbols.get_unique_id)(&raw mut id) };
        self.checked("ncclGetUniqueId", code)?;
        Ok(id)
    }

    /// The first candidate that is a usable library.
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

    /// A library that was opened by this name.
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

    /// An error where a call's result is not success.
    pub(crate) fn checked(&self, call: &'static str, code: c_int) -> Result<(), NcclError> {
        match code {
            SUCCESS => Ok(()),
            IN_PROGRESS => Err(NcclError::NotBlocking),
            _ => Err(NcclError::Failed { call, code, message: self.message(code) }),
        }
    }

    /// A result in words, and what NCCL says of the last error, which may be another thread's.
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

/// The text of a message of NCCL; empty where there is none.
fn text(message: *const c_char) -> String {
    if message.is_null() {
        return String::new();
    }
    // SAFETY: NCCL's messages are constants or a buffer of its own, which are never freed and end in 0.
    let message = unsafe { CStr::from_ptr(message) };
    message.to_string_lossy().into_owned()
}

/// Opens a library for good: NCCL's threads run on, so its code has to stay.
fn open(name: &OsStr) -> Result<&'static libloading::Library, String> {
    match load(name) {
        Ok(library) => Ok(Box::leak(Box::new(library))),
        Err(error) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Err(cause.unwrap_or_else(|| error.to_string()))
        }
    }
}

/// Opens a library. All that it needs is resolved now, and its names stay its own.
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

/// The file that a function was loaded from.
#[cfg(unix)]
fn file_of(function: GetVersion) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;

    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `info` is a record of the system's, which the call writes; it takes any address.
    let found = unsafe { libc::dladdr(function as *const libc::c_void, info.as_mut_ptr()) };
    // SAFETY: all bytes are set, and zero is a value of each field.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name ends in 0 and lives as long as the library, which is never closed.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The file that a function was loaded from.
#[cfg(not(unix))]
fn file_of(_function: GetVersion) -> Option<PathBuf> {
    None
}

// The search.

/// The library's names. The second is there where developers' packages are installed.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// Facts that the search depends on.
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

/// The places, in the order in which they are tried. Fails if `SPLAT_NCCL` is set, and the library is not there.
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

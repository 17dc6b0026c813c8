//! The library of this machine.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::OnceLock;

use crate::search::{Candidate, Environment, candidates};
use crate::symbols::{GetVersion, IN_PROGRESS, SUCCESS, Symbols, UniqueId};
use crate::{NcclError, Version};

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
    ///
    /// # Errors
    /// If the library is nowhere; else what is wrong with the first one that was found.
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

    /// The name of a new group. One rank makes it; this process has to live until all ranks have joined.
    /// Needs no GPU.
    ///
    /// # Errors
    /// If NCCL finds no network address of this machine.
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
        let said: Vec<_> =
            words.iter().map(|words| words.trim()).filter(|w| !w.is_empty()).collect();
        if said.is_empty() { "NCCL does not say why".into() } else { said.join(": ") }
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

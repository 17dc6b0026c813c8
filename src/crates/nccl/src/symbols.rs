//! Functions and records of NCCL's header.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fmt;
use std::ptr;

/// Opaque communicator of NCCL.
pub(crate) type RawCommunicator = *mut c_void;

/// Result of a successful call.
pub(crate) const SUCCESS: c_int = 0;
/// Result of a call that continues after its return.
pub(crate) const IN_PROGRESS: c_int = 7;
/// Data type of bytes.
pub(crate) const U8: c_int = 1;

/// Id of a new group, valid for one group.
///
/// The id contains an address of its creator, to which the others connect. Send it only to ranks.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UniqueId([u8; 128]);

impl UniqueId {
    /// Creates the id from the bytes of another rank.
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to send to another rank.
    pub fn to_bytes(self) -> [u8; 128] {
        self.0
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UniqueId").finish_non_exhaustive()
    }
}

/// Configuration of a communicator, as in NCCL 2.18. Later versions accept it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) size: usize,
    pub(crate) magic: c_uint,
    pub(crate) version: c_uint,
    pub(crate) blocking: c_int,
    pub(crate) cga_cluster_size: c_int,
    pub(crate) min_ctas: c_int,
    pub(crate) max_ctas: c_int,
    pub(crate) net_name: *const c_char,
    pub(crate) split_share: c_int,
}

impl Config {
    /// Value of unset fields.
    const UNSET: c_int = c_int::MIN;

    /// Returns the configuration of a blocking communicator. `max_ctas`: largest number of thread blocks of a kernel.
    pub(crate) fn blocking(max_ctas: Option<u32>) -> Self {
        let limit = |ctas| c_int::try_from(ctas).unwrap_or(c_int::MAX);
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21805,
            blocking: 1,
            cga_cluster_size: Self::UNSET,
            min_ctas: Self::UNSET,
            max_ctas: max_ctas.map_or(Self::UNSET, limit),
            net_name: ptr::null(),
            split_share: Self::UNSET,
        }
    }
}

/// Type of `ncclGetVersion`, which every version has.
pub(crate) type GetVersion = unsafe extern "C" fn(*mut c_int) -> c_int;

/// Declares NCCL's functions and their lookup in the library.
macro_rules! functions {
    ($($field:ident = $name:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// NCCL's functions. Streams are those of the driver, and addresses those of the device.
        #[derive(Debug)]
        pub(crate) struct Symbols {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Symbols {
            /// Finds the functions in a library. Returns the name of a missing function as an error.
            pub(crate) fn of(library: &'static libloading::Library) -> Result<Self, &'static str> {
                Ok(Self { $($field: {
                    // SAFETY: the function has this type in NCCL's header since 2.18.
                    let found = unsafe {
                        library.get::<unsafe extern "C" fn($($argument),*) -> $result>($name)
                    };
                    *found.or(Err($name))?
                },)* })
            }
        }
    };
}

functions! {
    get_unique_id = "ncclGetUniqueId": fn(*mut UniqueId) -> c_int;
    get_error_string = "ncclGetErrorString": fn(c_int) -> *const c_char;
    get_last_error = "ncclGetLastError": fn(RawCommunicator) -> *const c_char;
    comm_init_rank_config = "ncclCommInitRankConfig":
        fn(*mut RawCommunicator, c_int, UniqueId, c_int, *mut Config) -> c_int;
    comm_abort = "ncclCommAbort": fn(RawCommunicator) -> c_int;
    comm_get_async_error = "ncclCommGetAsyncError": fn(RawCommunicator, *mut c_int) -> c_int;
    group_start = "ncclGroupStart": fn() -> c_int;
    group_end = "ncclGroupEnd": fn() -> c_int;
    send = "ncclSend":
        fn(*const c_void, usize, c_int, c_int, RawCommunicator, *mut c_void) -> c_int;
    recv = "ncclRecv": fn(*mut c_void, usize, c_int, c_int, RawCommunicator, *mut c_void) -> c_int;
}

//! The functions of the CUB library, and the scratch that they take.

#[cfg(kernels)]
use std::ffi::{CStr, c_char};
use std::ffi::{c_int, c_void};

use cudarc::driver::sys::CUstream;

use crate::abi::Plain;
use crate::backend::DeviceError;
use crate::backend::cuda::device::stream::Stream;
use crate::backend::cuda::memory::heap::{Buffer as _, Heap};
use crate::layout::library::{CubCall, Curve, Sort};
use crate::layout::{LIBRARY_SCRATCH, Library};

/// Scratch and its size; keys and values, two addresses each; their number; the first bit of the
/// keys that counts and the one after the last; which half holds the result; the stream.
type SortFunction = unsafe extern "C" fn(
    *mut c_void,
    *mut usize,
    *const u64,
    *const u64,
    u32,
    c_int,
    c_int,
    *mut c_int,
    CUstream,
) -> c_int;

/// Declares the functions of the library. In a program without kernels they only fail: nothing calls
/// them on streams that do no work.
macro_rules! library {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        #[cfg(kernels)]
        unsafe extern "C" {
            $(pub(super) fn $name($($argument: $type),*) -> c_int;)*
        }

        $(
            #[cfg(not(kernels))]
            pub(super) unsafe extern "C" fn $name($(_: $type),*) -> c_int {
                NO_LIBRARY
            }
        )*
    };
}

/// The error of a program without kernels.
#[cfg(not(kernels))]
const NO_LIBRARY: c_int = 1;

library! {
    fn splat_sort_u32_u32(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        keys: *const u64,
        values: *const u64,
        n: u32,
        begin_bit: c_int,
        end_bit: c_int,
        half: *mut c_int,
        stream: CUstream,
    );
    fn splat_sort_u16_u32(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        keys: *const u64,
        values: *const u64,
        n: u32,
        begin_bit: c_int,
        end_bit: c_int,
        half: *mut c_int,
        stream: CUstream,
    );
    fn splat_inclusive_sum_u32(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        values: u64,
        n: u32,
        stream: CUstream,
    );
    fn splat_inclusive_sum_u64(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        values: u64,
        n: u32,
        stream: CUstream,
    );
    fn splat_exclusive_sum_u32(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        input: u64,
        output: u64,
        n: u32,
        stream: CUstream,
    );
    fn splat_exclusive_sum_ordered_u32(
        temp: *mut c_void,
        temp_bytes: *mut usize,
        input: u64,
        order: u64,
        output: u64,
        n: u32,
        stream: CUstream,
    );
}

#[cfg(kernels)]
unsafe extern "C" {
    fn splat_error_text(error: c_int) -> *const c_char;
}

/// A key that the library sorts by.
pub trait SortKey: Plain {
    /// Bits of the key.
    const BITS: u32;

    /// The library's function.
    #[doc(hidden)]
    const SORT: SortFunction;

    /// Scratch of its sorts.
    #[doc(hidden)]
    fn sort_of(library: &Library) -> &Sort;
}

impl SortKey for u16 {
    const BITS: u32 = Self::BITS;
    const SORT: SortFunction = splat_sort_u16_u32;

    fn sort_of(library: &Library) -> &Sort {
        &library.sort16
    }
}

impl SortKey for u32 {
    const BITS: u32 = Self::BITS;
    const SORT: SortFunction = splat_sort_u32_u32;

    fn sort_of(library: &Library) -> &Sort {
        &library.sort32
    }
}

/// Scratch and its size; the values' address; their number; the stream.
type SumFunction = unsafe extern "C" fn(*mut c_void, *mut usize, u64, u32, CUstream) -> c_int;

/// A number that the library adds up in place.
pub trait Summed: Plain {
    /// The library's function.
    #[doc(hidden)]
    const SUM: SumFunction;

    /// Scratch of its sums.
    #[doc(hidden)]
    fn sum_of(library: &Library) -> &Curve;
}

impl Summed for u32 {
    const SUM: SumFunction = splat_inclusive_sum_u32;

    fn sum_of(library: &Library) -> &Curve {
        &library.sum32
    }
}

impl Summed for u64 {
    const SUM: SumFunction = splat_inclusive_sum_u64;

    fn sum_of(library: &Library) -> &Curve {
        &library.sum64
    }
}

/// Scratch of the calls on this GPU: as the table has it for the architecture, corrected by what the
/// library says itself.
pub(crate) fn library(arch: u32) -> Result<Library, DeviceError> {
    let mut library = Library::of(arch);
    if let Some(found) = library.correct(scratch_of)? {
        tracing::warn!(
            "CUB asks for {} bytes of scratch for {:?} of {} values, but {} bytes are planned for \
             compute capability {arch}. Its answers are used from here on; `splat plan` does not know \
             them",
            found.found,
            found.call,
            found.n,
            found.expected
        );
    }
    Ok(library)
}

/// Bytes of scratch that a call for `n` values takes.
fn scratch_of(call: CubCall, n: u64) -> Result<u64, DeviceError> {
    const NAME: &str = "cub";
    let n = u32::try_from(n).ok().ok_or_else(|| too_many(NAME, n))?;
    let (nowhere, mut bytes) = (std::ptr::null_mut(), 0);
    let error = match call {
        CubCall::Sort16 => ask_to_sort::<u16>(&mut bytes, n),
        CubCall::Sort32 => ask_to_sort::<u32>(&mut bytes, n),
        CubCall::Sum32 => {
            let stream = std::ptr::null_mut();
            // SAFETY: without scratch the library only says how much it wants.
            unsafe { splat_exclusive_sum_ordered_u32(nowhere, &raw mut bytes, 0, 0, 0, n, stream) }
        }
        // SAFETY: as above.
        CubCall::Sum64 => unsafe {
            splat_inclusive_sum_u64(nowhere, &raw mut bytes, 0, n, std::ptr::null_mut())
        },
    };
    check(NAME, error)?;
    Ok(bytes as u64)
}

/// Writes down the bytes that a sort by all bits takes.
fn ask_to_sort<K: SortKey>(bytes: &mut usize, n: u32) -> c_int {
    let (buffers, mut half) = ([0; 2], 0);
    let last = c_int::try_from(K::BITS).unwrap_or(c_int::MAX);
    // SAFETY: without scratch the library only says how much it wants.
    unsafe {
        K::SORT(
            std::ptr::null_mut(),
            bytes,
            buffers.as_ptr(),
            buffers.as_ptr(),
            n,
            0,
            last,
            &raw mut half,
            std::ptr::null_mut(),
        )
    }
}

pub(super) fn too_many(call: &'static str, n: u64) -> DeviceError {
    DeviceError::Driver { call, reason: format!("{n} values are too many") }
}

/// Asks how much scratch a call wants, and makes it with as much. On a stream that does no work it is
/// what is planned, and there is no call.
pub(super) fn with_scratch(
    name: &'static str,
    heap: &Heap,
    stream: &Stream,
    planned: u64,
    mut call: impl FnMut(*mut c_void, &mut usize, CUstream) -> c_int,
) -> Result<(), DeviceError> {
    let Some(stream) = stream.raw() else {
        return heap.take(&LIBRARY_SCRATCH, &planned.max(1)).map(drop);
    };
    let mut bytes = 0;
    check(name, call(std::ptr::null_mut(), &mut bytes, stream))?;
    // Without any bytes the address would be taken for another question.
    let temp = heap.take(&LIBRARY_SCRATCH, &(bytes.max(1) as u64))?;
    let address = usize::try_from(temp.address()).unwrap_or(0);
    check(name, call(std::ptr::without_provenance_mut(address), &mut bytes, stream))
}

fn check(call: &'static str, error: c_int) -> Result<(), DeviceError> {
    if error == 0 {
        return Ok(());
    }
    Err(DeviceError::Driver { call, reason: describe(error) })
}

#[cfg(kernels)]
fn describe(error: c_int) -> String {
    // SAFETY: the runtime has a text of static lifetime for any number.
    let text = unsafe { splat_error_text(error) };
    // SAFETY: the text ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(not(kernels))]
fn describe(_error: c_int) -> String {
    "this program has no kernels".to_owned()
}

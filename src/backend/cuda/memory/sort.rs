//! Sorts and sums with the CUB library.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use cudarc::driver::sys::CUstream;

use super::heap::{Block, Buffer, Heap};
use crate::abi::Plain;
use crate::backend::cuda::device::stream::Stream;
use crate::backend::{DeviceError, Result};
use crate::layout::library::{CubCall, Curve, Sort};
use crate::layout::{LIBRARY_SCRATCH, Library, Slot};
#[cfg(kernels)]
use std::ffi::{CStr, c_char};

/// Number of values from which CUB takes the path of large inputs, so that its code is loaded.
const WARM_UP: usize = 1 << 16;

const SCAN: &str = "cub::DeviceScan";

/// Keys and values in two buffers each, which the passes of a sort use in turn.
pub struct SortPairs<'a, K, V> {
    /// The keys, and a buffer of their size.
    pub keys: [&'a mut K; 2],
    /// The values, and a buffer of their size.
    pub values: [&'a mut V; 2],
    /// Number of pairs.
    pub n: usize,
    /// Bits of the keys that are compared.
    pub bits: Range<u32>,
}

/// Sorts ascending and stably. Returns the index of the buffers that hold the sorted keys and values.
pub fn sort_pairs<K, V>(
    heap: &Heap,
    stream: &Stream,
    pairs: &mut SortPairs<'_, K, V>,
) -> Result<usize>
where
    K: Buffer<Item: SortKey>,
    V: Buffer<Item = u32>,
{
    const CALL: &str = "cub::DeviceRadixSort";
    if pairs.n == 0 {
        return Ok(0);
    }
    let key_bits = bit_range::<K::Item>(&pairs.bits);
    let keys = [first(CALL, pairs.keys[0], pairs.n)?, first(CALL, pairs.keys[1], pairs.n)?];
    let values = [first(CALL, pairs.values[0], pairs.n)?, first(CALL, pairs.values[1], pairs.n)?];
    let n = count(CALL, pairs.n)?;
    let planned = K::Item::sort_of(heap.cub_scratch());
    let (bits, pairs_to_sort) = (key_bits.start.abs_diff(key_bits.end), u64::from(n));
    // The library overwrites it.
    let mut half = c_int::from(planned.ends_in_second(pairs_to_sort, bits));
    let planned = planned.bytes(pairs_to_sort, bits);
    with_scratch(CALL, heap, stream, planned, |temp, bytes, stream| {
        // SAFETY: `first` found `n` keys and values in each buffer, all four are borrowed mutably, and the scratch has
        // the size that the library asked for.
        unsafe {
            K::Item::SORT(
                temp,
                bytes,
                keys.as_ptr(),
                values.as_ptr(),
                n,
                key_bits.start,
                key_bits.end,
                &raw mut half,
                stream,
            )
        }
    })?;
    Ok(usize::from(half != 0))
}

/// Replaces each value by the sum of all values up to and including it.
pub fn inclusive_sum<V>(heap: &Heap, stream: &Stream, values: &mut V) -> Result
where
    V: Buffer<Item: Summed>,
{
    let address = first(SCAN, values, values.len())?;
    let planned = V::Item::sum_of(heap.cub_scratch());
    scan(heap, stream, values.len(), planned, |temp, bytes, n, stream| {
        // SAFETY: `first` found `n` values, which are borrowed mutably; the library sums in place; and the
        // scratch has the size that it asked for.
        unsafe { V::Item::SUM(temp, bytes, address, n, stream) }
    })
}

/// Writes the sums of the values before each of the first `n` values.
pub fn exclusive_sum<I, O>(
    heap: &Heap,
    stream: &Stream,
    n: usize,
    input: &I,
    output: &mut O,
) -> Result
where
    I: Buffer<Item = u32>,
    O: Buffer<Item = u32>,
{
    let (from, to) = (first(SCAN, input, n)?, first(SCAN, output, n)?);
    scan(heap, stream, n, &heap.cub_scratch().sum32, |temp, bytes, n, stream| {
        // SAFETY: `first` found `n` values in both buffers, and the scratch has the size that the library asked for.
        unsafe { splat_exclusive_sum_u32(temp, bytes, from, to, n, stream) }
    })
}

/// Writes exclusive sums in the sequence that `order` gives: `n` distinct indices below `n`.
pub fn exclusive_sum_ordered<I, R, O>(
    heap: &Heap,
    stream: &Stream,
    n: usize,
    input: &I,
    order: &R,
    output: &mut O,
) -> Result
where
    I: Buffer<Item = u32>,
    R: Buffer<Item = u32>,
    O: Buffer<Item = u32>,
{
    let (from, order) = (first(SCAN, input, n)?, first(SCAN, order, n)?);
    let to = first(SCAN, output, n)?;
    scan(heap, stream, n, &heap.cub_scratch().sum32, |temp, bytes, n, stream| {
        // SAFETY: `first` found `n` values in all three buffers, the caller's order stays below `n`, and the
        // scratch has the size that the library asked for.
        unsafe { splat_exclusive_sum_ordered_u32(temp, bytes, from, order, to, n, stream) }
    })
}

/// Sums `n` values by a call that takes scratch, its size, `n` and the stream.
fn scan(
    heap: &Heap,
    stream: &Stream,
    n: usize,
    planned: &Curve,
    mut call: impl FnMut(*mut c_void, &mut usize, u32, CUstream) -> c_int,
) -> Result {
    if n == 0 {
        return Ok(());
    }
    let n = count(SCAN, n)?;
    with_scratch(SCAN, heap, stream, planned.bytes(u64::from(n)), |temp, bytes, stream| {
        call(temp, bytes, n, stream)
    })
}

fn bit_range<K: SortKey>(bits: &Range<u32>) -> Range<c_int> {
    let bit = |bit: u32| c_int::try_from(bit.min(K::BITS)).unwrap_or(c_int::MAX);
    bit(bits.start)..bit(bits.end)
}

/// Returns the address of the first of `n` values. The buffer must hold all of them.
fn first<B: Buffer>(call: &'static str, buffer: &B, n: usize) -> Result<u64> {
    buffer.place(call, &(0..n)).map(|range| range.address)
}

/// Converts a number of values: the library is faster with 32 bits, and no caller has more.
fn count(call: &'static str, n: usize) -> Result<u32> {
    u32::try_from(n).ok().ok_or_else(|| too_many(call, n as u64))
}

/// Calls every function once, so that the library's code is on the GPU before memory is counted.
pub(crate) fn warm_up(heap: &Heap, stream: &Stream) -> Result {
    warm_up_key::<u16>(heap, stream)?;
    warm_up_key::<u32>(heap, stream)?;
    let mut input = warm_up_block::<u32>(heap)?;
    input.zero(stream)?;
    let mut output = warm_up_block::<u32>(heap)?;
    exclusive_sum(heap, stream, WARM_UP, &input, &mut output)?;
    exclusive_sum_ordered(heap, stream, WARM_UP, &input, &input, &mut output)?;
    inclusive_sum(heap, stream, &mut input)?;
    let mut wide = warm_up_block::<u64>(heap)?;
    wide.zero(stream)?;
    inclusive_sum(heap, stream, &mut wide)?;
    stream.synchronize()
}

fn warm_up_block<T: Plain>(heap: &Heap) -> Result<Block<T>> {
    heap.take(&Slot::unlisted(LIBRARY_SCRATCH.label), &(WARM_UP as u64))
}

fn warm_up_key<K: SortKey>(heap: &Heap, stream: &Stream) -> Result {
    let mut keys = [warm_up_block::<K>(heap)?, warm_up_block::<K>(heap)?];
    let mut values = [warm_up_block::<u32>(heap)?, warm_up_block::<u32>(heap)?];
    keys[0].zero(stream)?;
    values[0].zero(stream)?;
    let mut pairs = SortPairs {
        keys: keys.each_mut(),
        values: values.each_mut(),
        n: WARM_UP,
        bits: 0..K::BITS,
    };
    sort_pairs(heap, stream, &mut pairs).map(drop)
}

/// Takes scratch and its size; keys and values, two addresses each; their number; the first bit of the keys that
/// counts and the one after the last; the index of the buffer with the result; the stream.
#[rustfmt::skip]
type SortFunction = unsafe extern "C" fn(
    *mut c_void, *mut usize, *const u64, *const u64, u32, c_int, c_int, *mut c_int, CUstream,
) -> c_int;

/// Declares the functions of the library. In a program without kernels they fail.
macro_rules! library {
    ($(fn $name:ident($($type:ty),*);)*) => {
        #[cfg(kernels)]
        unsafe extern "C" {
            $(fn $name($(_: $type),*) -> c_int;)*
        }

        $(
            #[cfg(not(kernels))]
            unsafe extern "C" fn $name($(_: $type),*) -> c_int {
                NO_LIBRARY
            }
        )*
    };
}

#[cfg(not(kernels))]
const NO_LIBRARY: c_int = 1;

// The arguments of `SortFunction` and `SumFunction`. Exclusive sums take the addresses of inputs and outputs.
library! {
    fn splat_sort_u32_u32(*mut c_void, *mut usize, *const u64, *const u64, u32, c_int, c_int, *mut c_int, CUstream);
    fn splat_sort_u16_u32(*mut c_void, *mut usize, *const u64, *const u64, u32, c_int, c_int, *mut c_int, CUstream);
    fn splat_inclusive_sum_u32(*mut c_void, *mut usize, u64, u32, CUstream);
    fn splat_inclusive_sum_u64(*mut c_void, *mut usize, u64, u32, CUstream);
    fn splat_exclusive_sum_u32(*mut c_void, *mut usize, u64, u64, u32, CUstream);
    fn splat_exclusive_sum_ordered_u32(*mut c_void, *mut usize, u64, u64, u64, u32, CUstream);
}

#[cfg(kernels)]
unsafe extern "C" {
    fn splat_error_text(error: c_int) -> *const c_char;
}

/// A key type of sorts.
pub trait SortKey: Plain {
    /// Number of bits of the key.
    const BITS: u32;

    /// Function of the library.
    #[doc(hidden)]
    const SORT: SortFunction;

    /// Returns the scratch sizes of its sorts.
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

/// Takes scratch and its size, the values' address, their number, and the stream.
type SumFunction = unsafe extern "C" fn(*mut c_void, *mut usize, u64, u32, CUstream) -> c_int;

/// A number type of in-place sums.
pub trait Summed: Plain {
    /// Function of the library.
    #[doc(hidden)]
    const SUM: SumFunction;

    /// Returns the scratch sizes of its sums.
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

/// Returns the scratch sizes on this GPU: the architecture's table, corrected by the library's answers.
pub(crate) fn library(arch: u32) -> Result<Library> {
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

/// Asks the library for the scratch of a call with `n` values, in bytes.
fn scratch_of(call: CubCall, n: u64) -> Result<u64> {
    const NAME: &str = "cub";
    let n = u32::try_from(n).ok().ok_or_else(|| too_many(NAME, n))?;
    let (nowhere, mut bytes) = (std::ptr::null_mut(), 0);
    let error = match call {
        CubCall::Sort16 => sort_scratch::<u16>(&mut bytes, n),
        CubCall::Sort32 => sort_scratch::<u32>(&mut bytes, n),
        CubCall::Sum32 => {
            let stream = std::ptr::null_mut();
            // SAFETY: without scratch the library only writes the size.
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

fn sort_scratch<K: SortKey>(bytes: &mut usize, n: u32) -> c_int {
    let (buffers, mut half) = ([0; 2], 0);
    let last = c_int::try_from(K::BITS).unwrap_or(c_int::MAX);
    // SAFETY: without scratch the library only writes the size.
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

fn too_many(call: &'static str, n: u64) -> DeviceError {
    DeviceError::Driver { call, reason: format!("{n} values are too many") }
}

/// Asks a call for its scratch and makes the call. A stream that does no work only takes the planned scratch.
fn with_scratch(
    name: &'static str,
    heap: &Heap,
    stream: &Stream,
    planned: u64,
    mut call: impl FnMut(*mut c_void, &mut usize, CUstream) -> c_int,
) -> Result {
    let Some(stream) = stream.raw() else {
        return heap.take(&LIBRARY_SCRATCH, &planned.max(1)).map(drop);
    };
    let mut bytes = 0;
    check(name, call(std::ptr::null_mut(), &mut bytes, stream))?;
    // A null address would be another question, so take at least one byte.
    let temp = heap.take(&LIBRARY_SCRATCH, &(bytes.max(1) as u64))?;
    let address = usize::try_from(temp.address()).unwrap_or(0);
    check(name, call(std::ptr::without_provenance_mut(address), &mut bytes, stream))
}

fn check(call: &'static str, error: c_int) -> Result {
    if error == 0 {
        return Ok(());
    }
    Err(DeviceError::Driver { call, reason: describe(error) })
}

#[cfg(kernels)]
fn describe(error: c_int) -> String {
    // SAFETY: the runtime has a static text for every number.
    let text = unsafe { splat_error_text(error) };
    // SAFETY: the text ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(not(kernels))]
fn describe(_error: c_int) -> String {
    "this program has no kernels".to_owned()
}

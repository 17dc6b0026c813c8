//! An NCCL without a GPU: it notes the calls of its thread, and fails where it is told to.

use std::cell::{Cell, RefCell};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::symbols::{Config, RawCommunicator, Symbols, UniqueId};
use crate::{Library, Version};

/// The communicator that the fake hands out.
const RAW: usize = 0x77;

thread_local! {
    static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static FAILING: Cell<(&'static str, c_int)> = const { Cell::new(("", 0)) };
    static STATE: Cell<c_int> = const { Cell::new(0) };
}

/// The fake, with symbols that note their calls.
pub(super) static LIBRARY: std::sync::LazyLock<Library> = std::sync::LazyLock::new(|| Library {
    symbols: Symbols {
        get_unique_id,
        get_error_string,
        get_last_error,
        comm_init_rank_config,
        comm_abort,
        comm_get_async_error,
        group_start,
        group_end,
        send,
        recv,
    },
    version: Version::OLDEST,
    path: "fake".into(),
});

/// The calls of this thread since the last time.
pub(super) fn calls() -> Vec<String> {
    CALLS.take()
}

/// Lets calls of this thread whose note starts like this return a result.
pub(super) fn fail(call: &'static str, code: c_int) {
    FAILING.set((call, code));
}

/// Sets the state of the communicators of this thread.
pub(super) fn be_in_state(code: c_int) {
    STATE.set(code);
}

fn note(call: String) -> c_int {
    let (failing, code) = FAILING.get();
    let result = if !failing.is_empty() && call.starts_with(failing) { code } else { 0 };
    CALLS.with_borrow_mut(|calls| calls.push(call));
    result
}

unsafe extern "C" fn get_unique_id(_: *mut UniqueId) -> c_int {
    note("id".into())
}

unsafe extern "C" fn get_error_string(code: c_int) -> *const c_char {
    if code == 2 { c"system error".as_ptr() } else { ptr::null() }
}

unsafe extern "C" fn get_last_error(_: RawCommunicator) -> *const c_char {
    c"bad luck\n".as_ptr()
}

unsafe extern "C" fn comm_init_rank_config(
    raw: *mut RawCommunicator,
    world: c_int,
    id: UniqueId,
    rank: c_int,
    config: *mut Config,
) -> c_int {
    // SAFETY: the caller's place for a communicator.
    unsafe { *raw = ptr::without_provenance_mut(RAW) };
    // SAFETY: the caller's configuration.
    let ctas = unsafe { (*config).max_ctas };
    note(format!("join {rank} of {world}, id {}, at most {ctas}", id.to_bytes()[127]))
}

fn of_the_communicator(call: &str, raw: RawCommunicator) -> c_int {
    assert_eq!(raw.addr(), RAW);
    note(call.into())
}

unsafe extern "C" fn comm_abort(raw: RawCommunicator) -> c_int {
    of_the_communicator("abort", raw)
}

unsafe extern "C" fn comm_get_async_error(raw: RawCommunicator, state: *mut c_int) -> c_int {
    // SAFETY: the caller's place for a result.
    unsafe { *state = STATE.get() };
    of_the_communicator("state", raw)
}

unsafe extern "C" fn group_start() -> c_int {
    note("start".into())
}

unsafe extern "C" fn group_end() -> c_int {
    note("end".into())
}

unsafe extern "C" fn send(
    from: *const c_void,
    count: usize,
    kind: c_int,
    peer: c_int,
    _: RawCommunicator,
    stream: *mut c_void,
) -> c_int {
    note(format!("send {count} of {kind} at {} to {peer} on {}", from.addr(), stream.addr()))
}

unsafe extern "C" fn recv(
    into: *mut c_void,
    count: usize,
    kind: c_int,
    peer: c_int,
    _: RawCommunicator,
    stream: *mut c_void,
) -> c_int {
    note(format!("recv {count} of {kind} at {} from {peer} on {}", into.addr(), stream.addr()))
}

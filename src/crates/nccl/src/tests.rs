//! Tests without a GPU, mostly without NCCL.

use std::ffi::{c_int, c_void};
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::ptr;

use self::fake::{LIBRARY, be_in_state, calls, fail};
use crate::library::{Candidate, Environment, candidates};
use crate::symbols::Config;
use crate::{Communicator, Library, NcclError, Part, UniqueId, Version};

// Calls of a communicator of the fake library.

fn joined() -> Communicator {
    let id = UniqueId::from_bytes([9; 128]);
    let joined = Communicator::join(&LIBRARY, id, 1, 3, Some(16)).expect("the fake joins");
    assert_eq!(calls(), ["join 1 of 3, id 9, at most 16"]);
    joined
}

#[test]
fn a_dropped_communicator_is_aborted() {
    drop(joined());
    assert_eq!(calls(), ["abort"]);
}

fn part(peer: u32, address: u64, bytes: usize) -> Part {
    Part { peer, address, bytes }
}

fn stream() -> *mut c_void {
    ptr::without_provenance_mut(5)
}

fn exchange(of: &Communicator, sends: &[Part], receives: &[Part]) -> Result<(), NcclError> {
    // SAFETY: the fake touches no memory.
    unsafe { of.exchange(sends, receives, stream()) }
}

#[test]
fn an_exchange_is_one_group_of_bytes_without_empty_parts() {
    let rank = joined();
    let sends = [part(0, 64, 10), part(1, 0, 0), part(2, 128, 20)];
    let receives = [part(0, 0, 0), part(2, 256, 30)];
    exchange(&rank, &sends, &receives).expect("the fake exchanges");
    let expected = [
        "start",
        "send 10 of 1 at 64 to 0 on 5",
        "send 20 of 1 at 128 to 2 on 5",
        "recv 30 of 1 at 256 from 2 on 5",
        "end",
    ];
    assert_eq!(calls(), expected);
}

#[test]
fn nothing_is_enqueued_without_bytes_or_with_a_peer_beyond_the_group() {
    let rank = joined();
    exchange(&rank, &[part(0, 0, 0), part(2, 64, 0)], &[]).expect("nothing to do");
    let refused = Err(NcclError::NoSuchPeer { peer: 3, world: 3 });
    assert_eq!(exchange(&rank, &[part(0, 64, 0), part(3, 64, 0)], &[]), refused, "empty parts");
    assert_eq!(exchange(&rank, &[part(0, 64, 1), part(3, 64, 1)], &[]), refused);
    assert_eq!(exchange(&rank, &[part(0, 64, 1)], &[part(3, 64, 1)]), refused);
    assert!(calls().is_empty());
}

#[test]
fn a_group_is_ended_after_a_failure_inside_of_it() {
    let rank = joined();
    let parts = [part(0, 64, 1), part(2, 64, 1)];
    for (call, name, made) in [("send", "ncclSend", 3), ("recv", "ncclRecv", 5)] {
        fail(call, 2);
        let message = "system error: bad luck".into();
        let expected = NcclError::Failed { call: name, code: 2, message };
        assert_eq!(exchange(&rank, &parts, &parts), Err(expected));
        let calls = calls();
        assert_eq!((calls.len(), calls.last().map(String::as_str)), (made, Some("end")));
    }
}

#[test]
fn a_failure_names_call_result_message_and_remedy() {
    let rank = joined();
    for (code, words) in [(2, "system error: bad luck"), (3, "bad luck")] {
        fail("send", code);
        let error = exchange(&rank, &[part(0, 64, 1)], &[]).expect_err("the fake fails");
        let result = format!("(result {code})");
        let message = error.to_string();
        for part in ["ncclSend failed: ", words, &result, "other ranks", "NCCL_DEBUG=WARN"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}

#[test]
fn failures_of_group_start_and_end_are_reported() {
    let rank = joined();
    for (call, name, made) in [("start", "ncclGroupStart", 1), ("end", "ncclGroupEnd", 3)] {
        fail(call, 2);
        let result = exchange(&rank, &[part(0, 64, 1)], &[]);
        assert!(
            matches!(result, Err(NcclError::Failed { call, .. }) if call == name),
            "{result:?}"
        );
        assert_eq!(calls().len(), made);
    }
}

#[test]
fn a_fault_of_the_network_is_reported() {
    let rank = joined();
    for (state, good) in [(0, true), (7, true), (2, false)] {
        be_in_state(state);
        let message = "system error: bad luck".into();
        let expected = if good { Ok(()) } else { Err(NcclError::Broken { code: 2, message }) };
        assert_eq!(rank.check(), expected);
    }
}

#[test]
fn a_rank_beyond_the_group_cannot_join() {
    let id = UniqueId::from_bytes([9; 128]);
    for (rank, world) in [(3, 3), (0, 0), (0, u32::MAX)] {
        let refused = Communicator::join(&LIBRARY, id, rank, world, None).map(|_| ());
        assert_eq!(refused, Err(NcclError::NoSuchRank { rank, world }));
    }
    assert!(calls().is_empty());
}

#[test]
fn a_failed_join_leaves_nothing_to_abort() {
    fail("join", 2);
    let id = UniqueId::from_bytes([9; 128]);
    let joined = Communicator::join(&LIBRARY, id, 0, 2, None).map(|_| ());
    assert!(matches!(joined, Err(NcclError::Failed { code: 2, .. })), "{joined:?}");
    assert_eq!(calls().len(), 1);
}

#[test]
fn a_communicator_that_does_not_block_is_aborted() {
    fail("join", 7);
    let id = UniqueId::from_bytes([9; 128]);
    let joined = Communicator::join(&LIBRARY, id, 0, 2, None).map(|_| ());
    assert_eq!(joined, Err(NcclError::NotBlocking));
    assert_eq!(calls().last().map(String::as_str), Some("abort"));
}

#[test]
fn a_call_that_continues_after_its_return_is_an_error() {
    let rank = joined();
    fail("end", 7);
    assert_eq!(exchange(&rank, &[part(0, 64, 1)], &[]), Err(NcclError::NotBlocking));
}

// Order of the search, in temporary folders.

const IN_A_WHEEL: &str = "site-packages/nvidia/nccl/lib/libnccl.so.2";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn write(file: &Path) {
    fs::write(file, "no library").expect("a file");
}

fn naming(path: &Path) -> Environment {
    Environment { named: Some(path.into()), ..Environment::default() }
}

fn python(prefix: &Path, name: &str) -> Candidate {
    Candidate::File(prefix.join("lib").join(name).join(IN_A_WHEEL))
}

#[test]
fn the_loader_comes_first_then_the_program_then_pythons_environments() {
    let (venv, conda) = (folder(), folder());
    for name in ["python3.9", "python3.12", "pkgconfig"] {
        fs::create_dir_all(venv.path().join("lib").join(name)).expect("a folder");
    }
    let environment = Environment {
        named: None,
        program: Some(PathBuf::from("/opt/program")),
        prefixes: vec![venv.path().into(), conda.path().into()],
    };
    let expected = [
        Candidate::Loader("libnccl.so.2"),
        Candidate::Loader("libnccl.so"),
        Candidate::File("/opt/program/lib/libnccl.so.2".into()),
        Candidate::File("/opt/program/lib/libnccl.so".into()),
        python(venv.path(), "python3.12"),
        python(venv.path(), "python3.9"),
        python(conda.path(), "python3.*"),
    ];
    assert_eq!(candidates(&environment).expect("candidates"), expected);
}

#[test]
fn a_named_file_is_the_only_candidate_and_made_absolute() {
    let folder = folder();
    let file = folder.path().join("another.so");
    write(&file);
    let mut environment = naming(&file);
    environment.program = Some(folder.path().into());
    assert_eq!(candidates(&environment), Ok(vec![Candidate::File(file)]));
    // Tests run in the package's folder.
    let absolute = std::env::current_dir().expect("a folder").join("Cargo.toml");
    assert_eq!(candidates(&naming(Path::new("Cargo.toml"))), Ok(vec![Candidate::File(absolute)]));
}

#[test]
fn a_named_folder_prefers_the_numbered_library() {
    let folder = folder();
    let [numbered, plain] = ["libnccl.so.2", "libnccl.so"].map(|name| folder.path().join(name));
    write(&plain);
    assert_eq!(candidates(&naming(folder.path())), Ok(vec![Candidate::File(plain)]));
    write(&numbered);
    assert_eq!(candidates(&naming(folder.path())), Ok(vec![Candidate::File(numbered)]));
}

#[test]
fn a_name_without_a_library_is_an_error_that_names_it() {
    let folder = folder();
    for path in [folder.path().into(), folder.path().join("nowhere")] {
        let error = candidates(&naming(&path)).expect_err("nothing is there");
        assert_eq!(error, NcclError::NamesNothing { path: path.clone() });
        let message = error.to_string();
        assert!(
            message.contains("SPLAT_NCCL names ")
                && message.contains(path.to_str().expect("a name"))
        );
    }
}

#[test]
fn empty_variables_count_as_unset() {
    let environment =
        Environment { named: Some("".into()), program: None, prefixes: vec![PathBuf::new()] };
    let loaders = ["libnccl.so.2", "libnccl.so"].map(Candidate::Loader);
    assert_eq!(candidates(&environment), Ok(loaders.to_vec()));
}

// Numbers and records of NCCL.

#[test]
fn the_config_is_laid_out_as_in_the_header() {
    let offsets = [
        offset_of!(Config, size),
        offset_of!(Config, magic),
        offset_of!(Config, version),
        offset_of!(Config, blocking),
        offset_of!(Config, cga_cluster_size),
        offset_of!(Config, min_ctas),
        offset_of!(Config, max_ctas),
        offset_of!(Config, net_name),
        offset_of!(Config, split_share),
    ];
    assert_eq!(offsets, [0, 8, 12, 16, 20, 24, 28, 32, 40]);
    assert_eq!(size_of::<Config>(), 48);
}

#[test]
fn the_config_blocks_and_leaves_the_rest_unset_but_for_a_bound_of_thread_blocks() {
    let config = Config::blocking(None);
    assert_eq!((config.size, config.magic), (size_of::<Config>(), 0xcafe_beef));
    assert_eq!((config.version, config.blocking), (21805, 1));
    let unset = [config.cga_cluster_size, config.min_ctas, config.max_ctas, config.split_share];
    assert_eq!(unset, [c_int::MIN; 4]);
    assert!(config.net_name.is_null());
    assert_eq!(Config::blocking(Some(16)).max_ctas, 16);
    // As bits, this one is "unset".
    assert_eq!(Config::blocking(Some(1 << 31)).max_ctas, c_int::MAX);
}

#[test]
fn an_id_keeps_its_bytes_and_does_not_show_them() {
    let bytes = std::array::from_fn(|i| u8::try_from(i).expect("128 bytes"));
    let id = UniqueId::from_bytes(bytes);
    assert_eq!(size_of::<UniqueId>(), 128);
    assert_eq!(id.to_bytes(), bytes);
    assert_eq!(format!("{id:?}"), "UniqueId { .. }");
}

#[test]
fn versions_are_read_from_both_forms_of_the_number_and_those_below_2_18_are_too_old() {
    let written =
        [22803, 23203, 21805, 20900, 2804].map(|code| Version::from_code(code).to_string());
    assert_eq!(written, ["2.28.3", "2.32.3", "2.18.5", "2.9.0", "2.8.4"]);
    let old = [2804, 20900, 21704, 21799].map(Version::from_code);
    assert!(old.iter().all(|version| *version < Version::OLDEST), "{old:?}");
    let good = [21800, 21805, 22000, 30000].map(Version::from_code);
    assert!(good.iter().all(|version| *version >= Version::OLDEST), "{good:?}");
}

// Files that are not NCCL, and the real library.

#[test]
fn a_file_that_is_no_library_is_unusable_and_named() {
    let folder = folder();
    let file = folder.path().join("libnccl.so.2");
    write(&file);
    let error = Library::first_of(&[Candidate::File(file.clone())]).expect_err("no library");
    assert!(
        matches!(&error, NcclError::Unusable { path, why } if *path == file && !why.is_empty()),
        "{error:?}"
    );
    assert!(error.to_string().contains(file.to_str().expect("a name")));
}

#[test]
fn the_error_of_a_missing_library_has_a_remedy_and_all_candidates() {
    let folder = folder();
    let file = folder.path().join("libnccl.so.2");
    let places = [Candidate::Loader("libsplat-is-nowhere.so"), Candidate::File(file)];
    let error = Library::first_of(&places).expect_err("nothing is there");
    assert!(
        matches!(&error, NcclError::NotFound { looked_in } if looked_in.len() == 2),
        "{error:?}"
    );
    let message = error.to_string();
    for part in ["2.18", "SPLAT_NCCL"] {
        assert!(message.contains(part), "{part} is not in: {message}");
    }
}

#[test]
fn the_first_error_is_returned() {
    let folder = folder();
    let [bad, worse, missing] = ["bad", "worse", "missing"].map(|name| folder.path().join(name));
    for file in [&bad, &worse] {
        write(file);
    }
    let places = [bad.clone(), worse, missing].map(Candidate::File);
    let error = Library::first_of(&places).expect_err("no library");
    assert!(matches!(&error, NcclError::Unusable { path, .. } if *path == bad), "{error:?}");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn another_library_lacks_the_functions() {
    let error = Library::first_of(&[Candidate::Loader("libc.so.6")]).expect_err("not NCCL");
    let expected = NcclError::MissingSymbol { path: "libc.so.6".into(), symbol: "ncclGetVersion" };
    assert_eq!(error, expected);
}

#[test]
#[ignore = "needs NCCL; set SPLAT_NCCL"]
fn the_real_library_has_a_version_and_creates_ids_without_a_driver() {
    let library = Library::find().expect("NCCL");
    assert!(library.version() >= Version::OLDEST);
    assert!(library.path().is_file(), "{}", library.path().display());
    let ids = [(); 2].map(|()| library.unique_id().expect("an id").to_bytes());
    assert_ne!(ids[0], ids[1]);
    assert!(ptr::eq(library, Library::find().expect("NCCL")));
    println!("NCCL {} of {}", library.version(), library.path().display());
}

/// Fake NCCL without a GPU: records the calls of its thread, and fails on request.
mod fake {
    use std::cell::{Cell, RefCell};
    use std::ffi::{c_char, c_int, c_void};
    use std::ptr;

    use crate::symbols::{Config, RawCommunicator, Symbols, UniqueId};
    use crate::{Library, Version};

    /// Communicator of the fake.
    const RAW: usize = 0x77;

    thread_local! {
        static CALLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
        static FAILING: Cell<(&'static str, c_int)> = const { Cell::new(("", 0)) };
        static STATE: Cell<c_int> = const { Cell::new(0) };
    }

    /// Fake library.
    pub(super) static LIBRARY: std::sync::LazyLock<Library> =
        std::sync::LazyLock::new(|| Library {
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

    /// Returns the calls of this thread since the last time.
    pub(super) fn calls() -> Vec<String> {
        CALLS.take()
    }

    /// Makes calls of this thread whose record starts with `call` return a result.
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
        // SAFETY: the caller passes a valid pointer.
        unsafe { *raw = ptr::without_provenance_mut(RAW) };
        // SAFETY: the caller passes a valid pointer.
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
        // SAFETY: the caller passes a valid pointer.
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
}

//! Which calls of NCCL a communicator makes, on the fake.

use std::ffi::c_void;
use std::ptr;

use super::fake::{LIBRARY, be_in_state, calls, fail};
use crate::{Communicator, NcclError, Part, UniqueId};

fn joined() -> Communicator {
    let id = UniqueId::from_bytes([9; 128]);
    let joined = Communicator::join(&LIBRARY, id, 1, 3, Some(16)).expect("the fake joins");
    assert_eq!(calls(), ["join 1 of 3, id 9, at most 16"]);
    joined
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
    exchange(&rank, &[part(0, 0, 0)], &[]).expect("nothing to do");
    let refused = Err(NcclError::NoSuchPeer { peer: 3, world: 3 });
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
fn a_failure_tells_the_call_the_result_nccls_words_and_a_hint() {
    let rank = joined();
    for (code, words) in [(2, "system error: bad luck"), (3, "bad luck")] {
        fail("send", code);
        let error = exchange(&rank, &[part(0, 64, 1)], &[]).expect_err("the fake fails");
        let result = format!("(result {code})");
        let said = error.to_string();
        for part in ["ncclSend failed: ", words, &result, "other ranks", "NCCL_DEBUG=WARN"] {
            assert!(said.contains(part), "{part} is not in: {said}");
        }
    }
}

#[test]
fn the_failure_of_a_groups_border_is_told() {
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
fn a_dropped_communicator_is_aborted() {
    drop(joined());
    assert_eq!(calls(), ["abort"]);
}

#[test]
fn a_fault_of_the_network_is_told() {
    let rank = joined();
    for (state, good) in [(0, true), (7, true), (2, false)] {
        be_in_state(state);
        let message = "system error: bad luck".into();
        let told = if good { Ok(()) } else { Err(NcclError::Broken { code: 2, message }) };
        assert_eq!(rank.check(), told);
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
fn a_call_that_goes_on_after_its_return_is_an_error() {
    let rank = joined();
    fail("end", 7);
    assert_eq!(exchange(&rank, &[part(0, 64, 1)], &[]), Err(NcclError::NotBlocking));
}

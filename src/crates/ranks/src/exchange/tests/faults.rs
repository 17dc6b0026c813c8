//! Where a rank is lost, aborts, or does something else.

use std::thread;
use std::time::Duration;

use super::{CALLS, on_all, on_each_exchange};
use crate::exchange::{Call, Exchange, ExchangeError, Turn};

on_each_exchange!(
    an_abort_ends_each_kind_of_call,
    an_abort_ends_a_broadcast_that_nobody_reads,
    an_aborter_outlives_its_exchange,
    a_rank_that_leaves_is_named_in_each_kind_of_call,
    a_rank_that_leaves_is_seen_while_another_is_late,
    a_broadcast_to_a_rank_that_left_fails,
    a_rank_may_leave_before_the_others_have_read,
    calls_of_different_kinds_are_named,
    calls_of_different_numbers_are_named,
    an_error_stays,
);

/// Long enough for a thread to be waiting in its call; where it is not yet, the test checks less.
const A_WHILE: Duration = Duration::from_millis(60);

fn rank_of_lost(error: &ExchangeError) -> Option<u32> {
    match error {
        ExchangeError::Lost { rank, .. } => Some(*rank),
        _ => None,
    }
}

fn an_abort_ends_each_kind_of_call<E: Exchange>(group: fn(u32) -> Vec<E>) {
    // In a broadcast rank 1 sends nothing, so the others may go on with any call.
    for (call, others_call) in [(0, 0), (1, 1), (2, 1)].map(|(a, b)| (CALLS[a], CALLS[b])) {
        let mut members = group(3);
        let aborter = members[1].aborter();
        let error = thread::scope(|scope| {
            let waiting = scope.spawn(|| call(&mut members[1]).unwrap_err());
            thread::sleep(A_WHILE);
            aborter.clone().abort();
            waiting.join().unwrap()
        });
        assert_eq!(error, ExchangeError::Aborted);
        for later in CALLS {
            assert_eq!(later(&mut members[1]), Err(ExchangeError::Aborted));
        }
        // To the others it is lost, though its own bytes of this call may have come.
        let _aborted = members.remove(1);
        let errors = on_all(&mut members, |member| (0..2).find_map(|_| others_call(member).err()));
        for error in errors {
            assert_eq!(error.as_ref().and_then(rank_of_lost), Some(1), "{error:?}");
        }
    }
}

fn an_abort_ends_a_broadcast_that_nobody_reads<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(2);
    let aborter = members[0].aborter();
    let giver = &mut members[0];
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(5 * A_WHILE);
            aborter.abort();
        });
        // The system holds some MiB for a connection; a giver that ran ahead without end would get through.
        let error = (0..100).find_map(|_| giver.broadcast(Some(vec![1; 1 << 20])).err());
        assert_eq!(error, Some(ExchangeError::Aborted));
    });
}

fn an_aborter_outlives_its_exchange<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(2);
    let aborter = members[0].aborter();
    drop(members.remove(0));
    let error = members[0].all_gather(vec![1]).unwrap_err();
    assert_eq!(rank_of_lost(&error), Some(0), "{error}");
    aborter.abort();
}

fn a_rank_that_leaves_is_named_in_each_kind_of_call<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for (call, leaving) in CALLS.into_iter().zip([2, 1, 0]) {
        let mut members = group(4);
        let left = members.remove(leaving as usize);
        let errors = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(A_WHILE);
                drop(left);
            });
            on_all(&mut members, |member| call(member).unwrap_err())
        });
        for error in errors {
            assert_eq!(rank_of_lost(&error), Some(leaving), "{error}");
            assert!(
                error.to_string().starts_with(&format!("rank {leaving} is lost: it ")),
                "{error}"
            );
        }
    }
}

fn a_rank_that_leaves_is_seen_while_another_is_late<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(3);
    drop(members.pop());
    // Rank 1 is there, but does not call.
    let error = members[0].all_gather(vec![1]).unwrap_err();
    assert_eq!(rank_of_lost(&error), Some(2), "{error}");
}

fn a_broadcast_to_a_rank_that_left_fails<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(2);
    drop(members.pop());
    // The first ones may be on their way before the end is seen.
    let error = (0..1000).find_map(|_| {
        thread::sleep(Duration::from_millis(10));
        members[0].broadcast(Some(vec![1; 100])).err()
    });
    assert_eq!(error.as_ref().and_then(rank_of_lost), Some(1), "{error:?}");
}

fn a_rank_may_leave_before_the_others_have_read<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(2);
    let mut receiver = members.pop().unwrap();
    let mut giver = members.pop().unwrap();
    let sent: Vec<u8> = (0..=250).cycle().take(24 << 20).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            giver.broadcast(Some(sent.clone())).unwrap();
            drop(giver);
        });
        thread::sleep(A_WHILE);
        assert!(receiver.broadcast(None).unwrap() == sent);
        let error = receiver.broadcast(None).unwrap_err();
        assert_eq!(rank_of_lost(&error), Some(0), "{error}");
    });
}

fn calls_of_different_kinds_are_named<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let errors = on_all(&mut group(2), |member| {
        let is_first = member.rank() == 0;
        CALLS[1](member).unwrap();
        CALLS[usize::from(is_first)](member).unwrap_err()
    });
    let [gather, to_all] = [Call::AllGather, Call::AllToAll].map(|call| Turn { number: 1, call });
    let first = ExchangeError::Diverged { rank: 1, expected: gather, found: to_all };
    let second = ExchangeError::Diverged { rank: 0, expected: to_all, found: gather };
    assert_eq!(errors, [first, second]);
    let text = errors[0].to_string();
    let named = "rank 1 makes call 1 (all_to_all) where this rank makes call 1 (all_gather)";
    assert!(text.starts_with(named), "{text}");
}

fn calls_of_different_numbers_are_named<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let errors = on_all(&mut group(2), |member| {
        if member.rank() == 0 {
            member.broadcast(Some(vec![1])).unwrap();
        }
        member.all_gather(vec![2]).unwrap_err()
    });
    let gathers = |number| Turn { number, call: Call::AllGather };
    let broadcast = Turn { number: 0, call: Call::Broadcast };
    let first = ExchangeError::Diverged { rank: 1, expected: gathers(1), found: gathers(0) };
    let second = ExchangeError::Diverged { rank: 0, expected: gathers(0), found: broadcast };
    assert_eq!(errors, [first, second]);
}

fn an_error_stays<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(3);
    drop(members.pop());
    let errors = on_all(&mut members, |member| {
        let error = member.all_gather(vec![1]).unwrap_err();
        (error.clone(), CALLS.map(|call| call(member).unwrap_err() == error))
    });
    for (error, stays) in errors {
        assert_eq!(rank_of_lost(&error), Some(2));
        assert_eq!(stays, [true; 3], "{error}");
    }
}

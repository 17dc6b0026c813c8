//! Where ranks are alive and get nowhere.

use std::thread;
use std::time::{Duration, Instant};

use super::{CALLS, on_all, on_each_exchange};
use crate::exchange::{Exchange, ExchangeError, Watched};

on_each_exchange!(
    a_rank_that_waits_too_long_is_told_and_stays_in_error,
    a_giver_whose_bytes_nobody_takes_is_told,
    waiting_for_what_rank_0_gives_has_no_limit,
    other_errors_come_through,
    an_abort_from_outside_is_an_abort,
    a_watch_ends_with_its_exchange,
);

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(200);

/// What a call that took longer than `SHORT` returns: seconds are rounded up.
const STUCK: ExchangeError = ExchangeError::Stuck { seconds: 1 };

fn watched<E: Exchange>(members: Vec<E>, timeout: Duration) -> Vec<Watched<E>> {
    members.into_iter().map(|member| Watched::new(member, timeout).unwrap()).collect()
}

fn a_rank_that_waits_too_long_is_told_and_stays_in_error<E: Exchange>(group: fn(u32) -> Vec<E>) {
    for call in &CALLS[..2] {
        // Rank 1 is there, but does not call.
        let mut members = group(3);
        let stuck = members.remove(1);
        let mut members = watched(members, SHORT);
        let errors = on_all(&mut members, |member| {
            let error = call(member).unwrap_err();
            let later = CALLS.map(|later| later(member).unwrap_err());
            assert!(later.iter().all(|later| *later == error), "{error}: {later:?}");
            error
        });
        // The first one to give up is lost to the other one.
        assert!(errors.contains(&STUCK), "{errors:?}");
        for error in errors {
            assert!(error == STUCK || matches!(error, ExchangeError::Lost { .. }), "{error}");
        }
        drop(stuck);
    }
    let text = ExchangeError::Stuck { seconds: 300 }.to_string();
    assert!(text.contains("waited for 300 s"), "{text}");
}

fn a_giver_whose_bytes_nobody_takes_is_told<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = group(2);
    let _stuck = members.pop();
    let mut giver = Watched::new(members.remove(0), SHORT).unwrap();
    // The system holds some MiB for a connection.
    let error = (0..100).find_map(|_| giver.broadcast(Some(vec![1; 1 << 20])).err());
    assert_eq!(error, Some(STUCK));
    assert_eq!(giver.broadcast(Some(vec![1])), Err(STUCK));
}

fn waiting_for_what_rank_0_gives_has_no_limit<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let timeout = Duration::from_secs(2);
    let mut members = watched(group(2), timeout);
    let found = on_all(&mut members, |member| {
        let is_lead = member.rank() == 0;
        member.all_gather(vec![3]).unwrap();
        if is_lead {
            // Nor does time between calls count.
            thread::sleep(timeout + SHORT);
        }
        member.broadcast(is_lead.then(|| vec![4, 5])).unwrap()
    });
    assert_eq!(found, [[4, 5], [4, 5]]);
    let found = on_all(&mut members, |member| member.all_gather(vec![6]).unwrap());
    assert_eq!(found, [[[6], [6]], [[6], [6]]]);
}

fn other_errors_come_through<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = watched(group(3), LONG);
    let wrong = members[0].all_to_all(vec![Vec::new(); 2]);
    assert_eq!(wrong, Err(ExchangeError::WrongParts { found: 2, world: 3 }));
    on_all(&mut members, |member| CALLS.map(|call| call(member).unwrap()));
    drop(members.pop());
    let error = members[0].all_gather(vec![1]).unwrap_err();
    assert!(matches!(error, ExchangeError::Lost { rank: 2, .. }), "{error}");
    assert_eq!(members[0].all_gather(vec![1]), Err(error));
}

fn an_abort_from_outside_is_an_abort<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let mut members = watched(group(2), LONG);
    let aborter = members[0].aborter();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            aborter.abort();
        });
        assert_eq!(members[0].all_gather(vec![1]), Err(ExchangeError::Aborted));
    });
}

fn a_watch_ends_with_its_exchange<E: Exchange>(group: fn(u32) -> Vec<E>) {
    let start = Instant::now();
    // Beyond what a clock can tell, and after a call.
    let mut members = watched(group(2), Duration::MAX);
    on_all(&mut members, |member| member.all_gather(vec![1]).unwrap());
    drop(members);
    drop(watched(group(1), LONG));
    assert!(start.elapsed() < LONG / 2, "it waited for its thread");
}

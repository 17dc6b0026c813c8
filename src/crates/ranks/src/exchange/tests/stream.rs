//! What goes over a connection, down to its bytes.

use std::io::{Cursor, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use super::{meshes, on_all, sockets};
use crate::exchange::frame::{HEAD_LEN, MOST_BYTES, Unread, head, read_letter, write_letter};
use crate::exchange::inbox::Letter;
use crate::exchange::meeting::meet;
use crate::exchange::{Call, Exchange, ExchangeError, Sockets, Turn};

const GATHER: Turn = Turn { number: 0, call: Call::AllGather };

#[test]
fn a_letter_reads_as_it_was_written() {
    let lengths = [0, 1, 65_535, 65_536, 65_537, 3_333_333];
    let calls = [Call::AllToAll, Call::AllGather, Call::Broadcast];
    for (number, length) in (1 << 33..).zip(lengths) {
        for call in calls {
            let bytes: Vec<u8> = (0..=250).cycle().take(length).collect();
            let letter = Letter { turn: Turn { number, call }, bytes: Arc::new(bytes) };
            let (mut stream, written) = (Vec::new(), AtomicU64::new(0));
            write_letter(&mut stream, &letter, &mut vec![1, 2, 3], &written).unwrap();
            assert_eq!(stream.len(), HEAD_LEN + length);
            assert_eq!(written.into_inner(), stream.len() as u64);
            let found = read_letter(Cursor::new(stream)).unwrap();
            assert_eq!(found.turn, letter.turn);
            assert!(found.bytes == letter.bytes, "{length} bytes");
        }
    }
}

#[test]
fn a_head_alone_takes_no_memory() {
    let stream = head(GATHER, MOST_BYTES).into_iter().chain([1; 10]).collect::<Vec<_>>();
    let unread = read_letter(Cursor::new(stream)).unwrap_err();
    let Unread::Ended(why) = unread else { panic!("{unread:?}") };
    let got =
        format!("it closed its connection after 10 of {MOST_BYTES} bytes of call 0 (all_gather)");
    assert_eq!(why, got);
}

/// A rank 1 of two that is a bare connection, and the rank 0 that it is connected with.
fn with_bare_peer() -> (Sockets, TcpStream) {
    let mut meshes = meshes(2, Duration::from_secs(60));
    let (bare, whole) = (meshes.remove(1), meshes.remove(0));
    let whole = thread::spawn(|| Sockets::connect(whole));
    let stream = meet(&bare).unwrap().remove(0).unwrap();
    (whole.join().unwrap().unwrap(), stream)
}

/// What rank 0 says as rank 1 sends these bytes and is gone.
fn error_after(bytes: &[u8]) -> ExchangeError {
    let (mut member, mut stream) = with_bare_peer();
    stream.write_all(bytes).unwrap();
    drop(stream);
    member.all_gather(vec![1]).unwrap_err()
}

#[test]
fn a_rank_that_dies_inside_a_message_is_lost() {
    for cut in [3, HEAD_LEN, HEAD_LEN + 50] {
        let bytes = [&head(GATHER, 100)[..], &[1; 60]].concat();
        let error = error_after(&bytes[..cut]);
        assert!(matches!(error, ExchangeError::Lost { rank: 1, .. }), "{cut}: {error}");
    }
}

#[test]
fn what_is_no_message_is_named() {
    let mut other_magic = head(GATHER, 1);
    other_magic[3] ^= 1;
    let mut other_kind = head(GATHER, 1);
    other_kind[4] = 4;
    for bytes in [other_magic, other_kind, head(GATHER, MOST_BYTES + 1)] {
        let error = error_after(&bytes);
        assert!(matches!(error, ExchangeError::Garbled { rank: 1, .. }), "{bytes:?}: {error}");
    }
    let error = error_after(&head(GATHER, u64::MAX)).to_string();
    assert!(error.starts_with("rank 1 sends a length of 18446744073709551615 bytes"), "{error}");
}

#[test]
fn a_connection_waits_without_delay_and_without_end() {
    let (_, stream) = with_bare_peer();
    assert!(stream.nodelay().unwrap());
    assert_eq!(stream.read_timeout().unwrap(), None);
    assert_eq!(stream.write_timeout().unwrap(), None);
}

#[test]
fn a_rank_that_leaves_waits_for_one_that_reads_slowly() {
    let (mut member, mut stream) = with_bare_peer();
    // More than the system holds for a connection.
    let broadcast = vec![3; 24 << 20];
    let leaving = thread::spawn(move || member.broadcast(Some(broadcast)).map(drop));
    thread::sleep(Duration::from_millis(60));
    let mut found = Vec::new();
    stream.read_to_end(&mut found).unwrap();
    assert_eq!(found.len(), HEAD_LEN + (24 << 20));
    leaving.join().unwrap().unwrap();
}

#[test]
fn a_rank_that_leaves_does_not_wait_for_one_that_never_reads() {
    let mut meshes = meshes(2, Duration::from_secs(60));
    let (bare, whole) = (meshes.remove(1), meshes.remove(0));
    let whole = thread::spawn(|| Sockets::leaving_within(Duration::from_millis(500), whole));
    let _silent = meet(&bare).unwrap();
    let mut member = whole.join().unwrap().unwrap();
    member.broadcast(Some(vec![3; 24 << 20])).unwrap();
    let start = Instant::now();
    drop(member);
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn two_ranks_that_leave_with_letters_unread_do_not_wait() {
    let leave = Duration::from_secs(60);
    let connecting: Vec<_> = meshes(2, leave)
        .into_iter()
        .map(|mesh| thread::spawn(move || Sockets::leaving_within(leave, mesh).unwrap()))
        .collect();
    let mut members: Vec<_> = connecting.into_iter().map(|rank| rank.join().unwrap()).collect();
    // Both fail on the other's first letter, and leave with the rest unread.
    let errors = on_all(&mut members, |member| {
        if member.rank() == 0 {
            member.all_gather(vec![1; 12 << 20]).unwrap_err()
        } else {
            member.all_to_all(vec![vec![2; 12 << 20]; 2]).unwrap_err()
        }
    });
    let diverged = |error: &ExchangeError| matches!(error, ExchangeError::Diverged { .. });
    assert!(errors.iter().all(diverged), "{errors:?}");
    // Half of the time that they would wait for each other.
    let start = Instant::now();
    let leaving: Vec<_> =
        members.into_iter().map(|member| thread::spawn(|| drop(member))).collect();
    leaving.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(start.elapsed() < Duration::from_secs(30));
}

#[test]
fn much_both_ways_at_once_does_not_deadlock() {
    const LENGTH: usize = 64 << 20;
    on_all(&mut sockets(2), |member| {
        let (own, other) = (member.rank() as usize, 1 - member.rank() as usize);
        let mut outgoing = vec![Vec::new(); 2];
        outgoing[other] = vec![u8::try_from(own + 1).unwrap(); LENGTH];
        let incoming = member.all_to_all(outgoing).unwrap();
        assert_eq!(incoming[other].len(), LENGTH);
        assert!(incoming[other].iter().all(|&byte| usize::from(byte) == other + 1));
        assert!(incoming[own].is_empty());
    });
}

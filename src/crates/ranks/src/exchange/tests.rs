use std::sync::Barrier;

use splat_mesh::random::mix;

use super::*;

/// Longer than any step of a test.
const LONG: Duration = Duration::from_secs(60);

/// Both kinds of groups.
const GROUPS: [fn(u32) -> Vec<Exchange>; 2] = [Exchange::threads, sockets];

/// Returns the routes of all ranks, by rank.
fn routes(world: u32) -> Vec<DataRoute> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut ends = vec![DataEnd::Listener(listener)];
    ends.extend((1..world).map(|_| DataEnd::Address(address)));
    let route = |(rank, end)| DataRoute { rank, world, token: Token::for_tests(), end };
    (0..).zip(ends).map(route).collect()
}

/// Connects all routes at once. Returns the results by rank.
fn connected(routes: Vec<DataRoute>, timeout: Duration) -> Vec<Result<Exchange, JoinError>> {
    let connecting =
        routes.into_iter().map(|route| thread::spawn(move || Exchange::connect(route, timeout)));
    let connecting: Vec<_> = connecting.collect();
    connecting.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn sockets(world: u32) -> Vec<Exchange> {
    connected(routes(world), LONG).into_iter().map(Result::unwrap).collect()
}

/// Calls on all members at once, each in its own thread, and keeps the members until all calls return, because a
/// dropped member is lost to the others. Returns the results by rank.
fn on_all<T: Send>(members: &mut [Exchange], call: impl Fn(&mut Exchange) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let calling: Vec<_> =
            members.iter_mut().map(|member| scope.spawn(|| call(member))).collect();
        calling.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

type AnyCall = fn(&mut Exchange) -> Result<(), ExchangeError>;

/// One call of each kind.
const CALLS: [AnyCall; 3] = [
    |member| {
        let parts = vec![vec![7]; member.world() as usize];
        member.all_to_all(parts).map(drop)
    },
    |member| member.all_gather(vec![8, 9]).map(drop),
    |member| {
        let bytes = (member.rank() == 0).then(|| vec![10, 11, 12]);
        member.broadcast(bytes).map(drop)
    },
];

/// Returns 0 to 2^20 bytes that depend on round, sender and receiver. All magnitudes of the length are equally likely.
fn part(round: u64, from: u32, to: u32) -> Vec<u8> {
    let numbers = [round, u64::from(from), u64::from(to)];
    let seed = numbers.iter().fold(1_234, |state, number| mix(state ^ number));
    let magnitude = seed % 31;
    let most = if magnitude > 20 { 0 } else { 1 << magnitude };
    let length = usize::try_from((seed >> 32) % (most + 1)).unwrap();
    (0..).flat_map(|at| mix(seed ^ at).to_le_bytes()).take(length).collect()
}

#[test]
fn every_call_delivers_all_bytes() {
    let lengths: Vec<_> = (0..48).map(|round| part(round, 1, 0).len()).collect();
    assert!(lengths.contains(&0) && lengths.iter().any(|&length| length > 1 << 18), "{lengths:?}");
    for group in GROUPS {
        for world in 1..=4 {
            on_all(&mut group(world), |member| {
                let own = member.rank();
                assert_eq!(member.world(), world);
                let of = |of: &dyn Fn(u32) -> Vec<u8>| (0..world).map(of).collect::<Vec<_>>();
                for round in 0..12 {
                    let outgoing = of(&|to| part(round, own, to));
                    let incoming = member.all_to_all(outgoing).unwrap();
                    assert!(incoming == of(&|from| part(round, from, own)), "{own} of {world}");
                    let gathered = member.all_gather(part(round, own, 9)).unwrap();
                    assert!(gathered == of(&|from| part(round, from, 9)), "{own} of {world}");
                    let given = member.broadcast((own == 0).then(|| part(round, 0, 8))).unwrap();
                    assert!(given == part(round, 0, 8), "{own} of {world}");
                }
            });
        }
    }
}

#[test]
fn rank_0_broadcasts_ahead_of_a_rank_that_is_behind() {
    for group in GROUPS {
        let first_is_done = Barrier::new(2);
        on_all(&mut group(2), |member| {
            let is_first = member.rank() == 0;
            if !is_first {
                first_is_done.wait();
            }
            for number in 0..20 {
                let bytes = vec![number; 1000];
                let given = member.broadcast(is_first.then(|| bytes.clone()));
                assert_eq!(given, Ok(bytes));
            }
            if is_first {
                first_is_done.wait();
            }
        });
    }
}

#[test]
fn wrong_arguments_are_refused_and_nothing_is_sent() {
    for group in GROUPS {
        on_all(&mut group(2), |member| {
            for found in [0, 1, 3] {
                let error = member.all_to_all(vec![vec![1]; found]);
                assert_eq!(error, Err(ExchangeError::WrongParts { found, world: 2 }));
            }
            let is_first = member.rank() == 0;
            let wrong = member.broadcast((!is_first).then(|| vec![1]));
            let not_the_giver = ExchangeError::BroadcastFromOther { rank: 1 };
            assert_eq!(
                wrong,
                Err(if is_first { ExchangeError::NothingToBroadcast } else { not_the_giver })
            );
            CALLS.iter().for_each(|call| call(member).unwrap());
        });
    }
}

#[test]
fn a_rank_that_leaves_is_lost_to_the_others() {
    for group in GROUPS {
        for call in CALLS {
            // Rank 0 notices the loss of rank 2, and rank 1 then the loss of rank 0.
            let mut members = group(3);
            drop(members.pop());
            let second = members.pop().unwrap();
            let mut first = members.pop().unwrap();
            let second = thread::spawn(move || {
                let mut second = second;
                loop {
                    // The first broadcast arrives before rank 0 notices.
                    if let Err(error) = call(&mut second) {
                        return (error, second);
                    }
                }
            });
            let error = loop {
                if let Err(error) = call(&mut first) {
                    break error;
                }
            };
            assert!(matches!(error, ExchangeError::Lost { rank: 2, .. }), "{error}");
            assert_eq!(CALLS.map(|call| call(&mut first)), [(); 3].map(|()| Err(error.clone())));
            drop(first);
            let (error, _) = second.join().unwrap();
            assert!(matches!(error, ExchangeError::Lost { rank: 0, .. }), "{error}");
        }
    }
}

#[test]
fn different_calls_are_an_error() {
    for group in GROUPS {
        for (of_first, of_second) in [(0, 1), (1, 0), (2, 1), (2, 0)] {
            let members = group(2).into_iter().map(|mut member| {
                // It ends after an error, as ranks do.
                thread::spawn(move || {
                    CALLS[1](&mut member).unwrap();
                    let call = if member.rank() == 0 { of_first } else { of_second };
                    let result = CALLS[call](&mut member);
                    (result.is_ok().then_some(member), result)
                })
            });
            let members: Vec<_> = members.collect();
            let ended: Vec<_> = members.into_iter().map(|rank| rank.join().unwrap()).collect();
            let results: Vec<_> = ended.iter().map(|(_, result)| result).collect();
            let found = if of_first == 2 { &results[1] } else { &results[0] };
            let Err(error @ ExchangeError::Diverged { rank, expected, found }) = found else {
                panic!("{results:?}");
            };
            assert_eq!((expected.number, found.number), (1, 1), "{rank}");
            assert!(error.to_string().contains("same options"), "{error}");
        }
    }
}

#[test]
fn a_call_times_out_but_a_broadcast_may_be_late() {
    for group in GROUPS {
        let mut members = group(2);
        members.iter_mut().for_each(|member| member.timeout_beats = 2);
        let [mut first, mut second] = <[_; 2]>::try_from(members).unwrap();
        let late = thread::spawn(move || (second.broadcast(None), second));
        thread::sleep(HEARTBEAT * 4);
        assert_eq!(first.broadcast(Some(vec![1])), Ok(vec![1]));
        let (given, _second) = late.join().unwrap();
        assert_eq!(given, Ok(vec![1]));
        assert_eq!(first.all_gather(vec![]), Err(ExchangeError::TimedOut { seconds: 1 }));
    }
    // A rank that reads nothing also causes a timeout.
    let mut members = sockets(2);
    members[0].timeout_beats = 2;
    let error = loop {
        if let Err(error) = members[0].broadcast(Some(vec![0; 1 << 20])) {
            break error;
        }
    };
    assert_eq!(error, ExchangeError::TimedOut { seconds: 1 });
}

#[test]
fn broken_messages_and_ended_connections_are_different_errors() {
    let id = CallId { number: 7, call: Call::AllGather };
    let mut whole = Vec::new();
    let parts = vec![vec![1, 2, 3], Vec::new(), vec![4; 100_000], vec![5]];
    write_message(&mut whole, id, &parts).unwrap();
    let read = |mut bytes: &[u8], most| read_message(&mut bytes, most);
    let message = read(&whole, 4).unwrap();
    assert_eq!((message.id, message.parts), (id, parts));
    for cut in [0, 1, 23, 24, 40, 60, 70_000, whole.len() - 1] {
        let error = read(&whole[..cut], 4).unwrap_err();
        assert!(matches!(error, ChannelError::Ended(_)), "{cut}: {error:?}");
    }
    let changed = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, most) in [
        (changed(0, b'x'), 4),
        (changed(4, 0), 4),
        (changed(4, 4), 4),
        (changed(5, 1), 4),
        (whole.clone(), 3),
        (changed(23, 1), 4),
        (changed(31, 1), 4),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), 4),
    ] {
        let error = read(&bytes, most).unwrap_err();
        assert!(matches!(error, ChannelError::Garbled(_)), "{error:?}");
    }
}

#[test]
fn unknown_peers_do_not_block_ranks() {
    let mut all = routes(3);
    let DataEnd::Address(address) = all[1].end else { panic!() };
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut loud = TcpStream::connect(address).unwrap();
    loud.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    // A rank with another token is rejected.
    let wrong_token = DataRoute {
        rank: 1,
        world: 3,
        token: Token::fresh().unwrap(),
        end: DataEnd::Address(address),
    };
    all.push(wrong_token);
    drop(silent);
    let mut found = connected(all, LONG);
    let error = found.pop().unwrap().unwrap_err();
    assert!(matches!(error, JoinError::Rejected { rank: 1, .. }), "{error}");
    let mut members: Vec<_> = found.into_iter().map(Result::unwrap).collect();
    assert!(on_all(&mut members, CALLS[1]).iter().all(Result::is_ok));
}

#[test]
fn missing_ranks_and_a_false_rank_0_are_named() {
    let mut all = routes(4);
    all.truncate(2);
    let found = connected(all, Duration::from_millis(500));
    let JoinError::Missing { ranks, world: 4, .. } = found[0].as_ref().unwrap_err() else {
        panic!()
    };
    assert_eq!(ranks, &[2, 3]);
    let without_rank_0 = routes(2).remove(1);
    let error = Exchange::connect(without_rank_0, Duration::from_millis(300)).unwrap_err();
    assert!(matches!(error, JoinError::NoCoordinator { rank: 1, .. }), "{error}");
}

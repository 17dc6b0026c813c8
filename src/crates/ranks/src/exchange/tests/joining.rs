//! How sockets join, and what strangers can do meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::{KEY, connected, meshes, on_all};
use crate::exchange::proof::{GREETING_LEN, Greeting, Greetings, PROOF_LEN, Side};
use crate::exchange::{Exchange, ExchangeError, Sockets};

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(2);

fn greeting(from: u32, to: u32, nonce: u8) -> Greeting {
    Greeting { from, to, world: 3, nonce: [nonce; 32] }
}

#[test]
fn a_greeting_reads_as_it_was_written() {
    let greeting = Greeting { from: 258, to: 772, world: 1286, nonce: [9; 32] };
    let mut bytes = greeting.to_bytes();
    assert_eq!(Greeting::from_bytes(&bytes), Some(greeting));
    bytes[15] += 1;
    assert_eq!(Greeting::from_bytes(&bytes), None, "of another version");
}

#[test]
fn a_proof_holds_for_its_key_side_and_greetings_only() {
    let greetings = Greetings { guest: greeting(2, 1, 3), host: greeting(1, 2, 4) };
    let proof = greetings.proof(&KEY, Side::Guest);
    assert!(greetings.is_proven(&KEY, Side::Guest, &proof));
    assert!(!greetings.is_proven(&KEY, Side::Host, &proof));
    assert!(!greetings.is_proven(&[0; 16], Side::Guest, &proof));
    let mut wrong = proof;
    wrong[31] ^= 1;
    assert!(!greetings.is_proven(&KEY, Side::Guest, &wrong));
    for changed in [
        Greetings { guest: greeting(2, 1, 5), ..greetings },
        Greetings { host: greeting(1, 2, 5), ..greetings },
        Greetings { guest: greeting(0, 1, 3), ..greetings },
        Greetings { host: Greeting { world: 4, ..greetings.host }, ..greetings },
    ] {
        assert!(!changed.is_proven(&KEY, Side::Guest, &proof), "{changed:?}");
    }
}

#[test]
fn a_rank_with_the_wrong_key_is_refused() {
    let mut meshes = meshes(2, SHORT);
    meshes[1].key[15] ^= 1;
    let address = meshes[0].peers[0];
    let errors: Vec<_> = connected(meshes).into_iter().map(Result::unwrap_err).collect();
    assert_eq!(errors[1], ExchangeError::Unproven { rank: 0, address });
    let text = errors[0].to_string();
    assert!(text.starts_with("rank 1 did not join within 2 s (last trouble: "), "{text}");
    assert!(text.contains("to prove that it knows the key"), "{text}");
}

#[test]
fn ranks_that_do_not_come_are_listed() {
    let mesh = meshes(4, Duration::from_secs(1)).remove(1);
    let error = Sockets::connect(mesh).unwrap_err();
    let ExchangeError::Missing { ranks, seconds: 1, .. } = &error else { panic!("{error}") };
    assert_eq!(*ranks, [0, 2, 3]);
    assert!(error.to_string().starts_with("ranks 0, 2, 3 did not join"), "{error}");
}

#[test]
fn a_rank_beyond_the_world_is_refused() {
    let mut mesh = meshes(2, LONG).remove(1);
    mesh.rank = 2;
    let error = Sockets::connect(mesh).unwrap_err();
    assert_eq!(error, ExchangeError::NoSuchRank { rank: 2, world: 2 });
}

#[test]
fn ranks_that_count_differently_do_not_join() {
    let mut meshes = meshes(3, SHORT);
    drop(meshes.pop());
    let own = meshes[1].peers[..2].to_vec();
    meshes[1].peers = own;
    let errors: Vec<_> = connected(meshes).into_iter().map(Result::unwrap_err).collect();
    let text = errors[0].to_string();
    assert!(text.contains("it is one of 2 ranks, not of 3"), "{text}");
    assert!(
        matches!(&errors[1], ExchangeError::Missing { ranks, .. } if *ranks == [0]),
        "{errors:?}"
    );
}

#[test]
fn a_rank_that_starts_late_is_waited_for() {
    let mut meshes = meshes(3, LONG);
    let late = meshes.remove(0);
    let (others, late) = thread::scope(|scope| {
        let others = scope.spawn(|| connected(meshes));
        thread::sleep(Duration::from_millis(300));
        let late = Sockets::connect(late);
        (others.join().unwrap(), late)
    });
    let members = std::iter::once(late).chain(others).map(Result::unwrap);
    works(members.collect());
}

/// Strangers of each kind, who stay connected.
fn strangers(address: SocketAddr) -> Vec<TcpStream> {
    let speeches = [
        Vec::new(),
        vec![0xff; 5000],
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(3),
        greeting(2, 0, 1).to_bytes()[..30].to_vec(),
        greeting(7, 0, 1).to_bytes().to_vec(),
        // What a rank would say, and a proof by guessing.
        [&greeting(2, 0, 1).to_bytes()[..], &[5; PROOF_LEN]].concat(),
        [&greeting(2, 1, 1).to_bytes()[..], &[5; PROOF_LEN]].concat(),
    ];
    let call = |speech: Vec<u8>| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&speech).unwrap();
        stream
    };
    speeches.into_iter().map(call).collect()
}

#[test]
fn silent_and_garbling_strangers_do_not_stop_the_group() {
    let meshes = meshes(3, LONG);
    let strangers: Vec<_> =
        meshes[0].peers.iter().flat_map(|&address| strangers(address)).collect();
    works(connected(meshes).into_iter().map(Result::unwrap).collect());
    for stranger in strangers {
        stranger.set_read_timeout(Some(LONG)).unwrap();
        let mut told = Vec::new();
        // A reset ends the stream too.
        let _ = (&stranger).read_to_end(&mut told);
        assert!(told.len() <= GREETING_LEN + PROOF_LEN, "a stranger was let in");
    }
}

#[test]
fn a_silent_stranger_is_dropped_while_ranks_are_missing() {
    let mut meshes = meshes(2, LONG);
    let (guest, host) = (meshes.remove(1), meshes.remove(0));
    let mut stranger = TcpStream::connect(host.peers[0]).unwrap();
    let host = thread::spawn(|| Sockets::connect(host));
    // Less than the group's patience.
    stranger.set_read_timeout(Some(LONG / 2)).unwrap();
    assert_eq!(stranger.read(&mut [0; 1]).unwrap(), 0, "it should be closed");
    let guest = Sockets::connect(guest);
    works(vec![host.join().unwrap().unwrap(), guest.unwrap()]);
}

#[test]
fn an_echo_is_no_rank() {
    let mut meshes = meshes(2, SHORT);
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut mesh = meshes.remove(1);
    mesh.peers[0] = echo.local_addr().unwrap();
    let guest = thread::spawn(|| Sockets::connect(mesh));
    let (mut stream, _) = echo.accept().unwrap();
    let mut heard = [0; GREETING_LEN];
    stream.read_exact(&mut heard).unwrap();
    stream.write_all(&heard).unwrap();
    drop((stream, echo));
    let error = guest.join().unwrap().unwrap_err();
    assert!(matches!(&error, ExchangeError::Missing { ranks, .. } if *ranks == [0]), "{error}");
}

fn works(mut members: Vec<Sockets>) {
    let world = members.len();
    let all = on_all(&mut members, |member| {
        member.all_gather(vec![u8::try_from(member.rank()).unwrap()]).unwrap()
    });
    let by_rank: Vec<_> = (0..).take(world).map(|rank| vec![rank]).collect();
    assert!(all.iter().all(|gathered| *gathered == by_rank), "{all:?}");
}

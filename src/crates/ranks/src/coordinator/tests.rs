use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::launch::{Launch, Rendezvous, Token};
use crate::message;
use crate::message::MAGIC;
use crate::token::{Prover, bytes_from_hex};

/// Longer than any step of a test.
const LONG: Duration = Duration::from_secs(30);

fn start(world: u32) -> (Coordinator, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions::of_supervisor(world, Token::for_tests(), LONG);
    let options = CoordinatorOptions { run: "a run".to_owned(), ..options };
    (Coordinator::start(listener, options).unwrap(), address)
}

/// A connection that has received the challenge.
struct TestPeer {
    stream: TcpStream,
    nonce: [u8; 16],
}

fn connect(address: SocketAddr) -> TestPeer {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let message = message::read::<FromCoordinator>(&mut &stream, "the coordinator").unwrap();
    let FromCoordinator::Challenge { magic, run, nonce, .. } = message else {
        panic!("{message:?}")
    };
    assert_eq!((magic.as_str(), run.as_str()), (MAGIC, "a run"));
    TestPeer { stream, nonce: bytes_from_hex(&nonce).unwrap() }
}

/// Returns a connection that has introduced itself with rank, world and protocol.
fn introduced(address: SocketAddr, numbers: [u32; 3]) -> TestPeer {
    let peer = connect(address);
    peer.introduce(numbers);
    peer
}

impl TestPeer {
    fn send(&self, bytes: &[u8]) {
        (&self.stream).write_all(bytes).unwrap();
    }

    fn introduce(&self, numbers: [u32; 3]) {
        self.send(&hello(&Token::for_tests(), &self.nonce, numbers));
    }

    /// Returns the next message after the coordinator's proof.
    fn received(&self) -> FromCoordinator {
        loop {
            match message::read(&mut &self.stream, "the coordinator").unwrap() {
                FromCoordinator::Proven { .. } => {}
                message => return message,
            }
        }
    }
}

fn framed(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

/// Bytes of a rank's introduction.
fn hello(token: &Token, challenge: &[u8; 16], [rank, world, protocol]: [u32; 3]) -> Vec<u8> {
    let nonce = "5a".repeat(16);
    let introduction = format!(
        r#"{{"protocol":{protocol},"rank":{rank},"world":{world},"host":"a","pid":7,"data":"127.0.0.1:9","claims":[],"nonce":"{nonce}"}}"#
    );
    let proof = token.proof(Prover::Rank, challenge, introduction.as_bytes());
    let message = serde_json::json!({ "Hello": { "introduction": introduction, "proof": proof } });
    framed(&message.to_string())
}

fn wait_for(coordinator: &Coordinator, is_it: impl Fn(&Status) -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_it(&coordinator.status()) {
        assert!(Instant::now() < deadline, "{:?}", coordinator.status());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn garbage_is_rejected_and_registration_continues() {
    let (coordinator, address) = start(1);
    let long = [&u32::MAX.to_le_bytes()[..], b"xxxx"].concat();
    let no_rank = framed(r#"{"Hello":{"introduction":"{}","proof":""}}"#);
    for garbage in
        [b"GET / HTTP/1.1\r\n\r\n".to_vec(), long, framed("{}"), framed("\"Stop\""), no_rank]
    {
        let stream = connect(address);
        stream.send(&garbage);
        // At most one message with the reason comes before the connection ends, by a reset if bytes are unread.
        let mut message = Vec::new();
        let _ = (&stream.stream).read_to_end(&mut message);
        assert!(
            message.is_empty() || String::from_utf8_lossy(&message).contains("Rejected"),
            "{garbage:?}"
        );
    }
    // A silent connection does not delay the others.
    let _silent = connect(address);
    assert!(!coordinator.status().is_complete);
    let stream = introduced(address, [0, 1, PROTOCOL]);
    assert!(matches!(stream.received(), FromCoordinator::Accepted(_)));
    wait_for(&coordinator, |status| status.is_complete);
}

#[test]
fn a_rank_may_write_byte_by_byte_beside_a_fast_one() {
    let (coordinator, address) = start(2);
    let slow = connect(address);
    slow.stream.set_nodelay(true).unwrap();
    let bytes = hello(&Token::for_tests(), &slow.nonce, [0, 2, PROTOCOL]);
    for (at, byte) in bytes.into_iter().enumerate() {
        slow.send(&[byte]);
        if at == 20 {
            connect(address).send(&framed("1"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    wait_for(&coordinator, |status| status.has_joined == [true, false]);
    let fast = introduced(address, [1, 2, PROTOCOL]);
    let FromCoordinator::Accepted(accepted) = slow.received() else { panic!() };
    assert_eq!((accepted.data.port(), accepted.salt.len()), (9, 32));
    assert!(matches!(fast.received(), FromCoordinator::Accepted(_)));
}

#[test]
fn a_second_claim_of_a_rank_is_refused_and_the_first_stays() {
    let (coordinator, address) = start(2);
    let first = introduced(address, [1, 2, PROTOCOL]);
    let second = connect(address);
    // The order of arrival decides.
    wait_for(&coordinator, |status| status.has_joined == [false, true]);
    second.introduce([1, 2, PROTOCOL]);
    let FromCoordinator::Rejected { why } = second.received() else { panic!() };
    assert!(why.contains("rank 1 has already joined (host a, pid 7)"), "{why}");
    drop(second);
    let leader = introduced(address, [0, 2, PROTOCOL]);
    for stream in [&first, &leader] {
        assert!(matches!(stream.received(), FromCoordinator::Accepted(_)));
    }
}

#[test]
fn another_protocol_or_number_of_ranks_is_refused_to_all() {
    for (wrong, parts) in [
        ([1, 2, 7], "protocol of the ranks|7 on rank 1|4 on rank 0|same program"),
        ([1, 3, PROTOCOL], "number of ranks|3 on rank 1|2 on rank 0|same options"),
        ([9, 12, PROTOCOL], "number of ranks|12 on rank 9"),
    ] {
        let (coordinator, address) = start(2);
        let right = introduced(address, [0, 2, PROTOCOL]);
        wait_for(&coordinator, |status| status.has_joined == [true, false]);
        let other = introduced(address, wrong);
        // A later rank receives the refusal too.
        let late = introduced(address, [1, 2, PROTOCOL]);
        for stream in [&right, &other, &late] {
            let FromCoordinator::Refused(refusal) = stream.received() else { panic!() };
            for part in parts.split('|') {
                assert!(refusal.to_string().contains(part), "{part}: {refusal}");
            }
        }
    }
}

#[test]
fn a_rank_that_ends_before_it_joins_fails_the_registration() {
    let (coordinator, address) = start(3);
    let stream = introduced(address, [0, 3, PROTOCOL]);
    wait_for(&coordinator, |status| status.has_joined == [true, false, false]);
    coordinator.reaped(2, 4711, Cause::Exited { code: 2 });
    let FromCoordinator::Lost(lost) = stream.received() else { panic!() };
    assert_eq!(lost.to_string(), "rank 2 (pid 4711) ended with code 2");
    assert!(coordinator.settled().rank_0_was_notified);
    let late = introduced(address, [1, 3, PROTOCOL]);
    assert!(matches!(late.received(), FromCoordinator::Lost(_)));
}

#[test]
fn no_rank_is_accepted_after_all_have_joined() {
    let (mut coordinator, address) = start(1);
    let before = connect(address);
    let only = introduced(address, [0, 1, PROTOCOL]);
    assert!(matches!(only.received(), FromCoordinator::Accepted(_)));
    before.introduce([0, 1, PROTOCOL]);
    assert!(matches!(before.received(), FromCoordinator::Rejected { .. }));
    let deadline = Instant::now() + LONG;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        thread::sleep(Duration::from_millis(20));
    }
    coordinator.finish(Duration::ZERO);
}

#[test]
fn a_peer_without_the_token_cannot_join_as_a_rank() {
    let (coordinator, address) = start(1);
    for (token, nonce) in [(Token::fresh().unwrap(), None), (Token::for_tests(), Some([1; 16]))] {
        let stream = connect(address);
        stream.send(&hello(&token, &nonce.unwrap_or(stream.nonce), [0, 1, PROTOCOL]));
        let FromCoordinator::Rejected { why } = stream.received() else { panic!() };
        assert!(why.contains("SPLAT_TOKEN"), "{why}");
    }
    assert_eq!(coordinator.settled().has_joined, [false]);
    let rendezvous = Rendezvous::Supervisor { address };
    let launch = Launch::for_tests(0, 1, rendezvous, Some(Token::for_tests()));
    // The right token, but the coordinator belongs to another run.
    assert!(crate::join::join(&launch, &[], LONG).is_err());
}

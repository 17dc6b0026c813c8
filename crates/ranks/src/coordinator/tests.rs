use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::*;
use crate::launch::{Launch, Meeting, Token};
use crate::message;
use crate::wire::{MAGIC, PROTOCOL, Told};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(30);

fn start(world: u32, token: Option<Token>) -> (Coordinator, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let run = "a run".to_owned();
    let (patience, silence) = (LONG, SILENCE);
    let options = CoordinatorOptions { world, run, token, holder: None, patience, silence };
    (Coordinator::start(listener, options).unwrap(), address)
}

/// A connection that has heard the challenge.
fn stranger(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    let told = message::read::<Told>(&mut &stream, "the coordinator").unwrap();
    let Told::Challenge { magic, run, .. } = told else { panic!("{told:?}") };
    assert_eq!((magic.as_str(), run.as_str()), (MAGIC, "a run"));
    stream
}

fn framed(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes(), text.as_bytes()].concat()
}

/// What a rank says to be let in.
fn hello(rank: u32, world: u32, protocol: u32) -> Vec<u8> {
    let nonce = "5a".repeat(16);
    let introduction = format!(
        r#"{{"protocol":{protocol},"rank":{rank},"world":{world},"host":"a","pid":7,"data":"127.0.0.1:9","claims":[],"nonce":"{nonce}"}}"#
    );
    let said = serde_json::json!({ "Hello": { "introduction": introduction, "proof": null } });
    framed(&said.to_string())
}

fn told(stream: &TcpStream) -> Told {
    message::read(&mut &*stream, "the coordinator").unwrap()
}

fn wait_for(coordinator: &Coordinator, is_it: impl Fn(&Status) -> bool) {
    let deadline = Instant::now() + LONG;
    while !is_it(&coordinator.status()) {
        assert!(Instant::now() < deadline, "{:?}", coordinator.status());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn garbage_is_sent_away_and_the_meeting_goes_on() {
    let (coordinator, address) = start(1, None);
    let long = [&u32::MAX.to_le_bytes()[..], b"xxxx"].concat();
    let no_rank = framed(r#"{"Hello":{"introduction":"{}","proof":null}}"#);
    for garbage in
        [b"GET / HTTP/1.1\r\n\r\n".to_vec(), long, framed("{}"), framed("\"Stop\""), no_rank]
    {
        let mut stream = stranger(address);
        stream.write_all(&garbage).unwrap();
        // It is closed, by a reset where not all was read.
        assert!(!matches!(stream.read(&mut [0; 9]), Ok(1..)), "{garbage:?}");
    }
    // One who says nothing holds up nobody.
    let _silent = stranger(address);
    assert!(!coordinator.status().has_met);
    let mut stream = stranger(address);
    stream.write_all(&hello(0, 1, PROTOCOL)).unwrap();
    assert!(matches!(told(&stream), Told::Welcome(_)));
    wait_for(&coordinator, |status| status.has_met);
}

#[test]
fn a_rank_may_write_byte_by_byte_beside_a_fast_one() {
    let (coordinator, address) = start(2, None);
    let mut slow = stranger(address);
    slow.set_nodelay(true).unwrap();
    for (at, byte) in hello(0, 2, PROTOCOL).into_iter().enumerate() {
        slow.write_all(&[byte]).unwrap();
        if at == 20 {
            stranger(address).write_all(&framed("1")).unwrap();
        }
        thread::sleep(Duration::from_millis(1));
    }
    wait_for(&coordinator, |status| status.has_joined == [true, false]);
    let mut fast = stranger(address);
    fast.write_all(&hello(1, 2, PROTOCOL)).unwrap();
    let Told::Welcome(welcome) = told(&slow) else { panic!() };
    assert_eq!((welcome.data.len(), welcome.salt.len()), (2, 32));
    assert!(matches!(told(&fast), Told::Welcome(_)));
}

#[test]
fn a_second_claim_of_a_rank_is_refused_and_the_first_stays() {
    let (coordinator, address) = start(2, None);
    let mut first = stranger(address);
    first.write_all(&hello(1, 2, PROTOCOL)).unwrap();
    let mut second = stranger(address);
    // Only what has arrived is first.
    wait_for(&coordinator, |status| status.has_joined == [false, true]);
    second.write_all(&hello(1, 2, PROTOCOL)).unwrap();
    let Told::Turned { why } = told(&second) else { panic!() };
    assert!(why.contains("rank 1 has already joined (host a, pid 7)"), "{why}");
    drop(second);
    let mut lead = stranger(address);
    lead.write_all(&hello(0, 2, PROTOCOL)).unwrap();
    for stream in [&first, &lead] {
        assert!(matches!(told(stream), Told::Welcome(_)));
    }
}

#[test]
fn another_protocol_or_number_of_ranks_is_refused_to_all() {
    for (wrong, parts) in [
        (hello(1, 2, 7), "protocol of the ranks|7 on rank 1|2 on rank 0|same program"),
        (hello(1, 3, PROTOCOL), "number of ranks|3 on rank 1|2 on rank 0|same options"),
        (hello(9, 12, PROTOCOL), "number of ranks|12 on rank 9"),
    ] {
        let (coordinator, address) = start(2, None);
        let mut right = stranger(address);
        right.write_all(&hello(0, 2, PROTOCOL)).unwrap();
        wait_for(&coordinator, |status| status.has_joined == [true, false]);
        let mut other = stranger(address);
        other.write_all(&wrong).unwrap();
        // Also to whoever comes later.
        let mut late = stranger(address);
        for (stream, hello) in
            [(&right, None), (&other, None), (&late.try_clone().unwrap(), Some(1))]
        {
            if let Some(rank) = hello {
                late.write_all(&self::hello(rank, 2, PROTOCOL)).unwrap();
            }
            let Told::Refused(refusal) = told(stream) else { panic!() };
            for part in parts.split('|') {
                assert!(refusal.to_string().contains(part), "{part}: {refusal}");
            }
        }
    }
}

#[test]
fn a_rank_that_died_before_it_came_ends_the_meeting() {
    let (coordinator, address) = start(3, None);
    let mut stream = stranger(address);
    stream.write_all(&hello(0, 3, PROTOCOL)).unwrap();
    wait_for(&coordinator, |status| status.has_joined == [true, false, false]);
    coordinator.reaped(2, 4711, Cause::Exited { code: 2 });
    let Told::Ended(departure) = told(&stream) else { panic!() };
    assert_eq!(departure.to_string(), "rank 2 (pid 4711) ended with code 2");
    assert!(coordinator.settled().lead_was_told);
    let mut late = stranger(address);
    late.write_all(&hello(1, 3, PROTOCOL)).unwrap();
    assert!(matches!(told(&late), Told::Ended(_)));
}

#[test]
fn nobody_is_let_in_when_all_are_there() {
    let (coordinator, address) = start(1, None);
    let mut before = stranger(address);
    let mut only = stranger(address);
    only.write_all(&hello(0, 1, PROTOCOL)).unwrap();
    assert!(matches!(told(&only), Told::Welcome(_)));
    before.write_all(&hello(0, 1, PROTOCOL)).unwrap();
    assert!(matches!(told(&before), Told::Turned { .. }));
    let deadline = Instant::now() + LONG;
    while TcpStream::connect(address).is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        thread::sleep(Duration::from_millis(20));
    }
    coordinator.finish(Duration::ZERO);
}

#[test]
fn without_the_token_nobody_speaks_for_a_rank() {
    let token = Token::fresh().unwrap();
    let (coordinator, address) = start(1, Some(token.clone()));
    let mut stream = stranger(address);
    stream.write_all(&hello(0, 1, PROTOCOL)).unwrap();
    let Told::Turned { why } = told(&stream) else { panic!() };
    assert!(why.contains("SPLAT_TOKEN"), "{why}");
    assert_eq!(coordinator.settled().has_joined, [false]);
    let meeting = Meeting::Supervisor { address };
    let launch = Launch {
        rank: 0,
        world: 1,
        local_world: None,
        local_rank: None,
        meeting,
        token: Some(token),
    };
    // The right one, but of a coordinator of another run.
    assert!(crate::join::join(&launch, &[], LONG).is_err());
}

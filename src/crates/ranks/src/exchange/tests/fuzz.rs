//! Fuzzes the readers of messages between ranks: none panics. `.ci/release` runs this.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::coordinator::{Coordinator, CoordinatorOptions};
use crate::exchange::error::{Call, Turn};
use crate::exchange::frame::{read_letter, write_letter};
use crate::exchange::inbox::Letter;
use crate::exchange::proof::Greeting;
use crate::launch::Token;
use crate::message;
use crate::node_list::first_host;
use crate::token::{Prover, bytes_from_hex};
use crate::wire::{Introduction, Said, Told};

#[allow(unreachable_pub, reason = "other programs use it, too")]
#[path = "../../../../../../tests/common/fuzz.rs"]
mod inputs;

use inputs::Fuzz;

const INTRODUCTION: &str = r#"{"protocol":3,"rank":1,"world":2,"host":"a","pid":7,"data":"127.0.0.1:9","claims":[{"what":"seed","value":"7","kind":"Options"}],"nonce":"5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"}"#;

/// Messages of each kind, as they travel.
fn messages() -> Vec<Vec<u8>> {
    let said = [
        Said::Hello { introduction: INTRODUCTION.to_owned(), proof: "00".repeat(32) },
        Said::Beat { progress: 7 },
        Said::Failed { code: 3, message: "no".to_owned() },
    ];
    let ended = r#"{"Ended":{"rank":1,"host":"a","pid":7,"cause":"Closed","progress":5}}"#;
    let missing = Told::Missing { ranks: vec![1], world: 2, seconds: 3 };
    let mut messages: Vec<_> =
        said.iter().map(|said| written(&serde_json::to_value(said).unwrap())).collect();
    messages.push(written(&serde_json::from_str(ended).unwrap()));
    messages.push(written(&serde_json::to_value(missing).unwrap()));
    messages
}

fn written(value: &serde_json::Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    message::write(&mut bytes, value, "a rank").unwrap();
    bytes
}

/// Sends this introduction to a coordinator, as a rank that knows the secret.
fn introduce(introduction: &str) {
    // On a busy machine the coordinator's patience may end before it is read.
    const TRIES: usize = 100;
    assert!((0..TRIES).any(|_| is_introduced(introduction)), "no coordinator answers in time");
}

/// Returns false if the coordinator's patience ends first.
fn is_introduced(introduction: &str) -> bool {
    let token = Token::fresh().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let patience = Duration::from_millis(30);
    let options = CoordinatorOptions {
        world: 2,
        run: String::new(),
        token: token.clone(),
        holder: None,
        patience,
        silence: patience,
    };
    let coordinator = Coordinator::start(listener, options).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
    let Ok(told) = message::read(&mut stream, "it") else {
        coordinator.finish(Duration::ZERO);
        return false;
    };
    let Told::Challenge { nonce, .. } = told else {
        panic!("the coordinator begins with something else")
    };
    let nonce = bytes_from_hex(&nonce).unwrap();
    let proof = token.proof(Prover::Rank, &nonce, introduction.as_bytes());
    let hello = Said::Hello { introduction: introduction.to_owned(), proof };
    message::write(&mut stream, &hello, "it").unwrap();
    let _ = stream.write_all(b"\x02\0\0\0{}");
    let _ = stream.read_to_end(&mut Vec::new());
    coordinator.finish(Duration::ZERO);
    true
}

#[test]
#[ignore = "takes SPLAT_FUZZ_SECONDS"]
fn messages_of_ranks_never_panic() {
    let mut letter = Vec::new();
    let turn = Turn { number: 1, call: Call::Broadcast };
    let content = Letter { turn, bytes: Arc::new(vec![7; 300]) };
    write_letter(&mut letter, &content, &mut Vec::new(), &AtomicU64::new(0)).unwrap();
    let greeting = Greeting { from: 1, to: 0, world: 2, nonce: [9; 32] }.to_bytes();
    let messages = messages();
    let mut fuzz = Fuzz::of_environment();
    let mut rounds = 0_u32;
    while fuzz.goes_on() {
        rounds += 1;
        let kind = fuzz.below(messages.len());
        let input = fuzz.changed(&messages[kind]);
        fuzz.survives("a message", &input, || {
            let _ = message::read::<Told>(&mut &input[..], "a rank");
            let _ = message::read::<Said>(&mut &input[..], "a rank");
        });
        let input = fuzz.changed(&letter);
        fuzz.survives("a letter", &input, || {
            let _ = read_letter(&input[..]);
        });
        let input = fuzz.changed(&greeting);
        fuzz.survives("a greeting", &input, || {
            let _ = input.first_chunk().and_then(Greeting::from_bytes);
        });
        let input = fuzz.changed(b"node[03-04,7],other[1-3]x");
        let text = String::from_utf8_lossy(&input).into_owned();
        fuzz.survives("a list of hosts", &input, || {
            let _ = first_host(&text);
        });
        let input = fuzz.changed(INTRODUCTION.as_bytes());
        let text = String::from_utf8_lossy(&input).into_owned();
        fuzz.survives("an introduction", &input, || {
            let _ = serde_json::from_str::<Introduction>(&text);
        });
        if rounds.is_multiple_of(2000) {
            fuzz.survives("an introduction to a coordinator", &input, || introduce(&text));
        }
    }
}

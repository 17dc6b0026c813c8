//! Coordinators that are none.

use std::io::Read;
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::coordinator::Coordinator;
use crate::departure::{Cause, Departure};
use crate::token::Token;
use crate::wire::MAGIC;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(30);

/// What a rank says to an impostor.
struct Introduced {
    introduction: String,
    proof: String,
}

/// Says as the coordinator that this is the right run.
fn challenge(mut stream: &TcpStream, nonce: &str) {
    let (magic, run, nonce) = (MAGIC.to_owned(), String::new(), nonce.to_owned());
    let told = Told::Challenge { magic, protocol: PROTOCOL, run, nonce };
    message::write(&mut stream, &told, "the rank").unwrap();
}

fn heard(mut stream: &TcpStream) -> Introduced {
    let said = message::read(&mut stream, "the rank").unwrap();
    let Said::Hello { introduction, proof } = said else { panic!("{said:?}") };
    Introduced { introduction, proof }
}

fn nonce_of(introduction: &str) -> [u8; 16] {
    let introduction: Introduction = serde_json::from_str(introduction).unwrap();
    bytes_from_hex(&introduction.nonce).unwrap()
}

fn launch(address: SocketAddr, token: &Token) -> Launch {
    let (meeting, token) = (Meeting::Supervisor { address }, Some(token.clone()));
    Launch { rank: 1, world: 2, local_world: None, local_rank: None, meeting, token }
}

fn welcome() -> Told {
    let data = vec!["127.0.0.1:9".parse().unwrap(); 2];
    let (rank, host, pid, cause, progress) = (None, None, 7, Cause::Closed, None);
    let coordinator = Departure { rank, host, pid, cause, progress };
    Told::Welcome(Welcome { data, salt: "00".repeat(16), coordinator })
}

/// What a rank says of somebody who listens at its coordinator's place and answers this.
fn refusal_of(
    token: &Token,
    answer: impl FnOnce(&Introduced) -> Vec<Told> + Send + 'static,
) -> (JoinError, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        challenge(&stream, &"17".repeat(16));
        for told in answer(&heard(&stream)) {
            // The rank may have left before the last one.
            drop(message::write(&mut &stream, &told, "the rank"));
        }
        // Until the rank has read all and leaves.
        let _ = (&stream).read(&mut [0]);
    });
    let error = join(&launch(address, token), &[], LONG).unwrap_err();
    impostor.join().unwrap();
    (error, address)
}

fn is_refused(token: &Token, answer: impl FnOnce(&Introduced) -> Vec<Told> + Send + 'static) {
    let (error, at) = refusal_of(token, answer);
    let text = error.to_string();
    let JoinError::Unproven { rank: 1, address } = error else { panic!("{text}") };
    assert_eq!(address, at);
    assert!(text.contains(&at.to_string()) && text.contains("SPLAT_TOKEN"), "{text}");
}

#[test]
fn an_impostor_without_the_token_is_refused() {
    let token = Token::fresh().unwrap();
    is_refused(&token, |_| vec![welcome()]);
    is_refused(&token, |_| vec![Told::Proven { proof: String::new() }, welcome()]);
    // The rank's own proof is none of the coordinator.
    is_refused(&token, |heard| vec![Told::Proven { proof: heard.proof.clone() }, welcome()]);
    let kind = ClaimKind::Scene;
    let [what, value, from_value] = ["a", "b", "c"].map(str::to_owned);
    let lie = Refusal { what, rank: 1, value, from_rank: 0, from_value, kind };
    is_refused(&token, |_| vec![Told::Refused(lie)]);
    is_refused(&token, |_| vec![Told::Missing { ranks: vec![0], world: 2, seconds: 1 }]);
}

#[test]
fn an_impostor_with_another_token_is_refused() {
    let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
    is_refused(&token, move |heard| {
        let nonce = nonce_of(&heard.introduction);
        let text = heard.introduction.as_bytes();
        vec![Told::Proven { proof: other.proof(Prover::Coordinator, &nonce, text) }, welcome()]
    });
}

#[test]
fn a_proof_for_another_nonce_is_refused() {
    let token = Token::fresh().unwrap();
    // What the right one said to another rank, or to the same one before.
    let knower = token.clone();
    is_refused(&token, move |heard| {
        let proof = knower.proof(Prover::Coordinator, &[1; 16], heard.introduction.as_bytes());
        vec![Told::Proven { proof }, welcome()]
    });
    let (sender, proofs) = channel();
    let knower = token.clone();
    is_refused(&token, move |heard| {
        let nonce = nonce_of(&heard.introduction);
        let proof = knower.proof(Prover::Coordinator, &nonce, heard.introduction.as_bytes());
        // Taken now, told to the next one.
        sender.send(proof).unwrap();
        vec![welcome()]
    });
    let proof = proofs.recv().unwrap();
    is_refused(&token, |_| vec![Told::Proven { proof }, welcome()]);
}

#[test]
fn the_right_one_is_trusted_and_its_key_does_not_travel() {
    let token = Token::fresh().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions {
        world: 2,
        run: String::new(),
        token: token.clone(),
        holder: None,
        patience: LONG,
        silence: SILENCE,
    };
    let _coordinator = Coordinator::start(listener, options).unwrap();
    let first = launch(address, &token);
    let first = thread::spawn(move || join(&first, &[], LONG).unwrap());
    // The other one shows what goes over its connection.
    let bare = Launch { rank: 0, ..launch(address, &token) };
    let found = ask(address, "", Instant::now() + LONG).unwrap();
    let (_, welcome) = meet(&bare, &token, &[], &found, Instant::now() + LONG).unwrap();
    let salt = bytes_from_hex(&welcome.salt).unwrap();
    let first = first.join().unwrap();
    assert_eq!(first.key, token.mesh_key(&salt));
    assert_ne!(first.key, salt);
    first.link.leave();
}

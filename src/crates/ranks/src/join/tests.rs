use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::exchange::Exchange;
use crate::message::{Cause, FromRank, LostRank, MAGIC, PROTOCOL};
use crate::token::{Prover, Token};

/// Longer than any step of a test.
const LONG: Duration = Duration::from_secs(30);

/// Returns unused ports. There are several, because another test may take one before it is used.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 4].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn claim(what: &str, value: &str, kind: ClaimKind) -> Claim {
    Claim { what: what.to_owned(), value: value.to_owned(), kind }
}

/// Settings of ranks that join. Rank 0 runs the coordinator.
struct JoinTest {
    world: u32,
    ports: Vec<u16>,
    token: Token,
    claims: Vec<Vec<Claim>>,
    timeout: Duration,
}

impl JoinTest {
    fn new(world: u32) -> Self {
        let (token, claims) = (Token::fresh().unwrap(), vec![Vec::new(); world as usize]);
        Self { world, ports: free_ports(), token, claims, timeout: LONG }
    }

    fn launch(&self, rank: u32) -> Launch {
        let (host, run) = ("127.0.0.1".to_owned(), format!("test {:?}", self.ports));
        let rendezvous = Rendezvous::Hosts { host, ports: self.ports.clone(), run };
        Launch::for_tests(rank, self.world, rendezvous, Some(self.token.clone()))
    }

    /// Joins these ranks at the same time.
    fn join(&self, ranks: &[u32]) -> Vec<Result<Joined, JoinError>> {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&rank| {
                let launch = self.launch(rank);
                let (claims, timeout) = (self.claims[rank as usize].clone(), self.timeout);
                thread::spawn(move || join(&launch, &claims, timeout))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    fn errors(&self, ranks: &[u32]) -> Vec<JoinError> {
        self.join(ranks).into_iter().map(|joined| joined.unwrap_err()).collect()
    }
}

/// Lets all leave at the same time, because rank 0 waits for the others.
fn leave(links: Vec<Link>) {
    let leaving: Vec<_> =
        links.into_iter().map(|link| thread::spawn(move || link.leave())).collect();
    leaving.into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn one_to_four_ranks_join_and_exchange_data() {
    for world in 1..=4 {
        let mut test = JoinTest::new(world);
        test.claims.fill(vec![claim("seed", "7", ClaimKind::Options)]);
        let ranks: Vec<_> = (0..world).rev().collect();
        let all: Vec<_> = test.join(&ranks).into_iter().map(Result::unwrap).collect();
        for (rank, joined) in ranks.iter().zip(&all) {
            assert_eq!((joined.rank, joined.world), (*rank, world));
            assert_eq!((joined.data.rank, joined.data.world), (*rank, world));
            assert!(joined.data.token == all[0].data.token);
        }
        let (links, routes): (Vec<_>, Vec<_>) =
            all.into_iter().map(|joined| (joined.link, joined.data)).unzip();
        let connecting = routes.into_iter().map(|route| {
            thread::spawn(move || Exchange::connect(route, LONG).unwrap().all_gather(vec![]))
        });
        let connecting: Vec<_> = connecting.collect();
        for rank in connecting {
            assert_eq!(rank.join().unwrap().unwrap().len(), world as usize);
        }
        leave(links);
    }
}

#[test]
fn each_kind_of_difference_is_refused_to_all_ranks() {
    for kind in [ClaimKind::Version, ClaimKind::Options, ClaimKind::Scene] {
        let mut test = JoinTest::new(3);
        test.claims.fill(vec![claim("same", "1", ClaimKind::Options), claim("thing", "a", kind)]);
        test.claims[2][1].value = "b".to_owned();
        for error in test.errors(&[0, 1, 2]) {
            let text = error.to_string();
            let JoinError::Refused(refusal) = error else { panic!("{text}") };
            assert_eq!((refusal.rank, refusal.from_rank, refusal.kind), (2, 0, kind));
            assert!(text.contains("thing: b on rank 2, but a on rank 0"), "{text}");
        }
    }
}

#[test]
fn a_wrong_token_is_rejected_and_the_right_one_still_joins() {
    let test = JoinTest::new(2);
    let leader = test.launch(0);
    let leader = thread::spawn(move || join(&leader, &[], LONG));
    let launch = Launch { token: Some(Token::fresh().unwrap()), ..test.launch(1) };
    let error = join(&launch, &[], LONG).unwrap_err().to_string();
    assert!(error.contains("rank 1 was rejected") && error.contains("SPLAT_TOKEN"), "{error}");
    let other = join(&test.launch(1), &[], LONG).unwrap();
    leave(vec![leader.join().unwrap().unwrap().link, other.link]);
}

#[test]
fn a_name_of_this_machine_alone_opens_no_other_interface() {
    for host in ["localhost", "127.0.0.1", "127.0.1.1"] {
        let listener = listen_at(host, &[0], false).unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback(), "{host}");
        let error = listen_at(host, &[0], true).unwrap_err().to_string();
        assert!(error.contains(host) && error.contains("SPLAT_RENDEZVOUS"), "{error}");
    }
}

#[test]
fn a_port_in_use_is_skipped() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let test = JoinTest { ports: [vec![port], free_ports()].concat(), ..JoinTest::new(2) };
    // The listener at the first port belongs to another run.
    let other_run = taken.try_clone().unwrap();
    thread::spawn(move || {
        while let Ok((stream, _)) = other_run.accept() {
            challenge(&stream, "another run");
        }
    });
    leave(test.join(&[0, 1]).into_iter().map(|joined| joined.unwrap().link).collect());
    // If all ports are in use, rank 0 reports an error.
    let error = JoinTest { ports: vec![port], ..test }.errors(&[0])[0].to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{port}")) && error.contains("RENDEZVOUS"),
        "{error}"
    );
}

#[test]
fn an_address_has_the_range_of_its_ports() {
    assert_eq!(address_text("a", &[1, 2, 3]), "a:1-3");
}

#[test]
fn missing_ranks_are_named_on_all_others() {
    let test = JoinTest { timeout: Duration::from_secs(1), ..JoinTest::new(4) };
    for error in test.errors(&[0, 2]) {
        let text = error.to_string();
        assert!(text.starts_with("ranks 1 and 3 of 4 did not join within 1 s"), "{text}");
    }
}

#[test]
fn a_rank_without_a_coordinator_names_the_address() {
    let test = JoinTest { timeout: Duration::from_millis(300), ..JoinTest::new(2) };
    let text = test.errors(&[1])[0].to_string();
    assert!(text.contains(&format!("127.0.0.1:{}-", test.ports[0])), "{text}");
    assert!(text.contains("start rank 0"), "{text}");
}

#[test]
fn a_rank_that_disconnects_fails_the_registration_for_all() {
    let test = JoinTest::new(3);
    let (first, leader) = (test.launch(1), test.launch(0));
    let leader = thread::spawn(move || join(&leader, &[], LONG));
    let Rendezvous::Hosts { host, ports, run } = &first.rendezvous else { panic!() };
    let found = find_coordinator(host, ports, run, Instant::now() + LONG).unwrap();
    let soon = Instant::now() + Duration::from_millis(500);
    let token = first.token.clone().unwrap();
    assert!(
        register(&first, &token, &[], (&found, false), soon).is_err(),
        "the others are not there"
    );
    drop(found);
    let error = leader.join().unwrap().unwrap_err();
    let JoinError::Lost(lost) = error else { panic!("{error}") };
    assert_eq!((lost.rank, lost.cause), (Some(1), Cause::Closed));
}

#[test]
fn rank_0_waits_for_the_others_and_its_loss_is_reported() {
    let joined = || -> [Joined; 2] {
        let joined = JoinTest::new(2).join(&[0, 1]).into_iter().map(Result::unwrap);
        joined.collect::<Vec<_>>().try_into().unwrap()
    };
    let [leader, other] = joined();
    let leaving = thread::spawn(move || leader.link.leave());
    thread::sleep(Duration::from_millis(300));
    assert!(!leaving.is_finished(), "the other one has not left");
    other.link.leave();
    leaving.join().unwrap();

    let [leader, other] = joined();
    let (sender, ends) = channel();
    other.link.watch(|| {}, move |lost| sender.send(lost).unwrap()).unwrap();
    drop(leader);
    let lost = ends.recv_timeout(LONG).unwrap();
    assert_eq!((lost.rank, lost.cause), (Some(0), Cause::Closed));
}

// Impostors of the coordinator.

/// Introduction that an impostor has received.
struct Introduced {
    introduction: String,
    proof: String,
}

/// Sends a coordinator's challenge. The peer may have disconnected.
fn challenge(mut stream: &TcpStream, run: &str) {
    let (magic, run, nonce) = (MAGIC.to_owned(), run.to_owned(), "17".repeat(16));
    let message = FromCoordinator::Challenge { magic, protocol: PROTOCOL, run, nonce };
    drop(message::write(&mut stream, &message, "the rank"));
}

/// Returns the proof of a coordinator that has this token.
fn proof_of(token: &Token, Introduced { introduction: text, .. }: &Introduced) -> String {
    let introduction: Introduction = serde_json::from_str(text).unwrap();
    let nonce = bytes_from_hex(&introduction.nonce).unwrap();
    token.proof(Prover::Coordinator, &nonce, text.as_bytes())
}

fn launch(address: SocketAddr, token: &Token) -> Launch {
    let (rendezvous, token) = (Rendezvous::Supervisor { address }, Some(token.clone()));
    Launch::for_tests(1, 2, rendezvous, token)
}

fn accepted() -> FromCoordinator {
    let data = "127.0.0.1:9".parse().unwrap();
    let (rank, host, pid, cause, progress) = (None, None, 7, Cause::Closed, None);
    let coordinator = LostRank { rank, host, pid, cause, progress };
    FromCoordinator::Accepted(Accepted { data, salt: "00".repeat(16), coordinator })
}

/// Expects a rank to refuse a listener at its coordinator's address that gives this answer.
fn is_refused(
    token: &Token,
    answer: impl FnOnce(&Introduced) -> Vec<FromCoordinator> + Send + 'static,
) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let impostor = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        challenge(&stream, "");
        let message = message::read(&mut &stream, "the rank").unwrap();
        let FromRank::Hello { introduction, proof } = message else { panic!("{message:?}") };
        for message in answer(&Introduced { introduction, proof }) {
            // The rank may have left before the last one.
            drop(message::write(&mut &stream, &message, "the rank"));
        }
        // Until the rank has read all and leaves.
        let _ = (&stream).read(&mut [0]);
    });
    let error = join(&launch(at, token), &[], LONG).unwrap_err();
    impostor.join().unwrap();
    let text = error.to_string();
    let JoinError::Unproven { rank: 1, address } = error else { panic!("{text}") };
    assert_eq!(address, at);
    assert!(text.contains(&at.to_string()) && text.contains("SPLAT_TOKEN"), "{text}");
}

#[test]
fn an_impostor_without_the_token_is_refused() {
    let token = Token::fresh().unwrap();
    is_refused(&token, |_| vec![accepted()]);
    is_refused(&token, |_| vec![FromCoordinator::Proven { proof: String::new() }, accepted()]);
    // The impostor returns the rank's own proof.
    is_refused(&token, |introduced| {
        vec![FromCoordinator::Proven { proof: introduced.proof.clone() }, accepted()]
    });
    let kind = ClaimKind::Scene;
    let [what, value, from_value] = ["a", "b", "c"].map(str::to_owned);
    let forged = Refusal { what, rank: 1, value, from_rank: 0, from_value, kind };
    is_refused(&token, |_| vec![FromCoordinator::Refused(forged)]);
    is_refused(&token, |_| vec![FromCoordinator::Missing { ranks: vec![0], world: 2, seconds: 1 }]);
}

#[test]
fn an_impostor_with_another_token_is_refused() {
    let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
    is_refused(&token, move |introduced| {
        vec![FromCoordinator::Proven { proof: proof_of(&other, introduced) }, accepted()]
    });
}

#[test]
fn a_proof_for_another_nonce_is_refused() {
    let token = Token::fresh().unwrap();
    // A replayed proof of the true coordinator.
    let coordinator = token.clone();
    is_refused(&token, move |introduced| {
        let proof =
            coordinator.proof(Prover::Coordinator, &[1; 16], introduced.introduction.as_bytes());
        vec![FromCoordinator::Proven { proof }, accepted()]
    });
    let (sender, proofs) = channel();
    let coordinator = token.clone();
    is_refused(&token, move |introduced| {
        // A later rank receives this proof.
        sender.send(proof_of(&coordinator, introduced)).unwrap();
        vec![accepted()]
    });
    let proof = proofs.recv().unwrap();
    is_refused(&token, |_| vec![FromCoordinator::Proven { proof }, accepted()]);
}

#[test]
fn the_true_coordinator_is_accepted_and_the_data_token_is_not_sent() {
    let token = Token::fresh().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions::of_supervisor(2, token.clone(), LONG);
    let _coordinator = Coordinator::start(listener, options).unwrap();
    let first = launch(address, &token);
    let first = thread::spawn(move || join(&first, &[], LONG).unwrap());
    // The other rank shows the contents of its connection.
    let bare = Launch { rank: 0, ..launch(address, &token) };
    let found = probe(address, "", Instant::now() + LONG).unwrap();
    let (_, accepted) =
        register(&bare, &token, &[], (&found, false), Instant::now() + LONG).unwrap();
    let salt = bytes_from_hex(&accepted.salt).unwrap();
    let first = first.join().unwrap();
    assert!(first.data.token == token.of_data(&salt));
    first.link.leave();
}

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;

use super::*;
use crate::exchange::Exchange;
use crate::message::{Cause, FromRank, LostRank, MAGIC, PROTOCOL};
use crate::token::{Prover, Token};

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(30);

/// Ports at which nobody listens. They are several, for another test may take one before it is used.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 4].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn claim(what: &str, value: &str, kind: ClaimKind) -> Claim {
    Claim { what: what.to_owned(), value: value.to_owned(), kind }
}

/// Settings of ranks that join; rank 0 holds the coordinator.
struct Meeters {
    world: u32,
    ports: Vec<u16>,
    tokens: Vec<Option<Token>>,
    claims: Vec<Vec<Claim>>,
    patience: Duration,
}

impl Meeters {
    fn new(world: u32) -> Self {
        let all = world as usize;
        let token = Some(Token::fresh().unwrap());
        let (tokens, claims) = (vec![token; all], vec![Vec::new(); all]);
        Self { world, ports: free_ports(), tokens, claims, patience: LONG }
    }

    fn launch(&self, rank: u32) -> Launch {
        let (host, run) = ("127.0.0.1".to_owned(), format!("test {:?}", self.ports));
        let meeting = Meeting::Hosts { host, ports: self.ports.clone(), run };
        let token = self.tokens[rank as usize].clone();
        Launch::of_tests(rank, self.world, meeting, token)
    }

    /// Joins these ranks at one time.
    fn join(&self, ranks: &[u32]) -> Vec<Result<Joined, JoinError>> {
        let threads: Vec<_> = ranks
            .iter()
            .map(|&rank| {
                let launch = self.launch(rank);
                let (claims, patience) = (self.claims[rank as usize].clone(), self.patience);
                thread::spawn(move || join(&launch, &claims, patience))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    fn errors(&self, ranks: &[u32]) -> Vec<JoinError> {
        self.join(ranks).into_iter().map(|joined| joined.unwrap_err()).collect()
    }
}

/// All leave at one time, as rank 0 waits for the others.
fn leave(links: Vec<Link>) {
    let leaving: Vec<_> =
        links.into_iter().map(|link| thread::spawn(move || link.leave())).collect();
    leaving.into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn one_to_four_ranks_meet_and_reach_each_other() {
    for world in 1..=4 {
        let mut meeters = Meeters::new(world);
        meeters.claims.fill(vec![claim("seed", "7", ClaimKind::Options)]);
        let ranks: Vec<_> = (0..world).rev().collect();
        let all: Vec<_> = meeters.join(&ranks).into_iter().map(Result::unwrap).collect();
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
        let mut meeters = Meeters::new(3);
        meeters
            .claims
            .fill(vec![claim("same", "1", ClaimKind::Options), claim("thing", "a", kind)]);
        meeters.claims[2][1].value = "b".to_owned();
        for error in meeters.errors(&[0, 1, 2]) {
            let text = error.to_string();
            let JoinError::Refused(refusal) = error else { panic!("{text}") };
            assert_eq!((refusal.rank, refusal.from_rank, refusal.kind), (2, 0, kind));
            assert!(text.contains("thing: b on rank 2, but a on rank 0"), "{text}");
        }
    }
}

#[test]
fn a_wrong_token_is_turned_away_and_the_right_one_still_joins() {
    let meeters = Meeters::new(2);
    let leader = meeters.launch(0);
    let leader = thread::spawn(move || join(&leader, &[], LONG));
    let launch = Launch { token: Some(Token::fresh().unwrap()), ..meeters.launch(1) };
    let error = join(&launch, &[], LONG).unwrap_err().to_string();
    assert!(error.contains("rank 1 was rejected") && error.contains("SPLAT_TOKEN"), "{error}");
    let other = join(&meeters.launch(1), &[], LONG).unwrap();
    leave(vec![leader.join().unwrap().unwrap().link, other.link]);
}

#[test]
fn a_name_of_this_machine_alone_opens_no_other_interface() {
    for host in ["localhost", "127.0.0.1", "127.0.1.1"] {
        let listener = open_place(host, &[0], false).unwrap();
        assert!(listener.local_addr().unwrap().ip().is_loopback(), "{host}");
        let error = open_place(host, &[0], true).unwrap_err().to_string();
        assert!(error.contains(host) && error.contains("SPLAT_RENDEZVOUS"), "{error}");
    }
}

#[test]
fn a_taken_port_is_passed_over() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let free = free_ports();
    let token = Some(Token::fresh().unwrap());
    let launch = |rank| {
        let token = token.clone();
        let (host, run) = ("127.0.0.1".to_owned(), "a".to_owned());
        let ports = [vec![taken.local_addr().unwrap().port()], free.clone()].concat();
        let meeting = Meeting::Hosts { host, ports, run };
        Launch::of_tests(rank, 2, meeting, token)
    };
    // The stranger at the first port answers, but is of another run.
    let stranger = taken.try_clone().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = stranger.accept() {
            let run = "b".to_owned();
            let (magic, nonce) = (MAGIC.to_owned(), "00".repeat(16));
            let message = FromCoordinator::Challenge { magic, protocol: PROTOCOL, run, nonce };
            drop(message::write(&mut stream, &message, "x"));
        }
    });
    let (leader, other) = (launch(0), launch(1));
    let leader = thread::spawn(move || join(&leader, &[], LONG).unwrap());
    let other = join(&other, &[], LONG).unwrap();
    leave(vec![leader.join().unwrap().link, other.link]);
    // If all places are taken, rank 0 reports it.
    let port = taken.local_addr().unwrap().port();
    let host = "127.0.0.1".to_owned();
    let meeting = Meeting::Hosts { host, ports: vec![port], run: String::new() };
    let launch = Launch::of_tests(0, 2, meeting, token);
    let error = join(&launch, &[], LONG).unwrap_err().to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{port}")) && error.contains("RENDEZVOUS"),
        "{error}"
    );
}

#[test]
fn places_are_named_by_their_ports() {
    assert_eq!(place_in_words("a", &[1, 2, 3]), "a:1-3");
}

#[test]
fn ranks_that_do_not_come_are_named_on_all_others() {
    let meeters = Meeters { patience: Duration::from_secs(1), ..Meeters::new(4) };
    for error in meeters.errors(&[0, 2]) {
        let text = error.to_string();
        assert!(text.starts_with("ranks 1 and 3 of 4 did not join within 1 s"), "{text}");
    }
}

#[test]
fn a_rank_without_a_coordinator_says_where_it_looked() {
    let meeters = Meeters { patience: Duration::from_millis(300), ..Meeters::new(2) };
    let text = meeters.errors(&[1])[0].to_string();
    assert!(text.contains(&format!("127.0.0.1:{}-", meeters.ports[0])), "{text}");
    assert!(text.contains("start rank 0"), "{text}");
}

#[test]
fn a_rank_that_closes_before_the_meeting_ends_it_for_all() {
    let meeters = Meeters::new(3);
    let (first, leader) = (meeters.launch(1), meeters.launch(0));
    let leader = thread::spawn(move || join(&leader, &[], LONG));
    let Meeting::Hosts { host, ports, run } = &first.meeting else { panic!() };
    let found = search(host, ports, run, Instant::now() + LONG).unwrap();
    let soon = Instant::now() + Duration::from_millis(500);
    let token = first.token.clone().unwrap();
    assert!(meet(&first, &token, &[], (&found, false), soon).is_err(), "the others are not there");
    drop(found);
    let error = leader.join().unwrap().unwrap_err();
    let JoinError::Gone(lost) = error else { panic!("{error}") };
    assert_eq!((lost.rank, lost.cause), (Some(1), Cause::Closed));
}

#[test]
fn rank_0_waits_for_the_others_and_its_death_is_told() {
    let joined: Vec<_> = Meeters::new(2).join(&[0, 1]).into_iter().map(Result::unwrap).collect();
    let [leader, other] = joined.try_into().unwrap();
    let leaving = thread::spawn(move || leader.link.leave());
    thread::sleep(Duration::from_millis(300));
    assert!(!leaving.is_finished(), "the other one has not left");
    other.link.leave();
    leaving.join().unwrap();

    let joined: Vec<_> = Meeters::new(2).join(&[0, 1]).into_iter().map(Result::unwrap).collect();
    let [leader, other] = joined.try_into().unwrap();
    let (sender, ends) = channel();
    other.link.watch(|| {}, move |lost| sender.send(lost).unwrap()).unwrap();
    drop(leader);
    let lost = ends.recv_timeout(LONG).unwrap();
    assert_eq!((lost.rank, lost.cause), (Some(0), Cause::Closed));
}

// Coordinators that are none.

/// Introduction of a rank to an impostor.
struct Introduced {
    introduction: String,
    proof: String,
}

/// Says as the coordinator that this is the right run.
fn challenge(mut stream: &TcpStream, nonce: &str) {
    let (magic, run, nonce) = (MAGIC.to_owned(), String::new(), nonce.to_owned());
    let message = FromCoordinator::Challenge { magic, protocol: PROTOCOL, run, nonce };
    message::write(&mut stream, &message, "the rank").unwrap();
}

fn introduced(mut stream: &TcpStream) -> Introduced {
    let message = message::read(&mut stream, "the rank").unwrap();
    let FromRank::Hello { introduction, proof } = message else { panic!("{message:?}") };
    Introduced { introduction, proof }
}

fn nonce_of(introduction: &str) -> [u8; 16] {
    let introduction: Introduction = serde_json::from_str(introduction).unwrap();
    bytes_from_hex(&introduction.nonce).unwrap()
}

fn launch(address: SocketAddr, token: &Token) -> Launch {
    let (meeting, token) = (Meeting::Supervisor { address }, Some(token.clone()));
    Launch::of_tests(1, 2, meeting, token)
}

fn welcome() -> FromCoordinator {
    let data = "127.0.0.1:9".parse().unwrap();
    let (rank, host, pid, cause, progress) = (None, None, 7, Cause::Closed, None);
    let coordinator = LostRank { rank, host, pid, cause, progress };
    FromCoordinator::Welcome(Welcome { data, salt: "00".repeat(16), coordinator })
}

/// Returns the error of a rank about a listener at its coordinator's place that answers this.
fn refusal_of(
    token: &Token,
    answer: impl FnOnce(&Introduced) -> Vec<FromCoordinator> + Send + 'static,
) -> (JoinError, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let impostor = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        challenge(&stream, &"17".repeat(16));
        for message in answer(&introduced(&stream)) {
            // The rank may have left before the last one.
            drop(message::write(&mut &stream, &message, "the rank"));
        }
        // Until the rank has read all and leaves.
        let _ = (&stream).read(&mut [0]);
    });
    let error = join(&launch(address, token), &[], LONG).unwrap_err();
    impostor.join().unwrap();
    (error, address)
}

fn is_refused(
    token: &Token,
    answer: impl FnOnce(&Introduced) -> Vec<FromCoordinator> + Send + 'static,
) {
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
    is_refused(&token, |_| vec![FromCoordinator::Proven { proof: String::new() }, welcome()]);
    // The rank's own proof is none of the coordinator.
    is_refused(&token, |introduced| {
        vec![FromCoordinator::Proven { proof: introduced.proof.clone() }, welcome()]
    });
    let kind = ClaimKind::Scene;
    let [what, value, from_value] = ["a", "b", "c"].map(str::to_owned);
    let lie = Refusal { what, rank: 1, value, from_rank: 0, from_value, kind };
    is_refused(&token, |_| vec![FromCoordinator::Refused(lie)]);
    is_refused(&token, |_| vec![FromCoordinator::Missing { ranks: vec![0], world: 2, seconds: 1 }]);
}

#[test]
fn an_impostor_with_another_token_is_refused() {
    let (token, other) = (Token::fresh().unwrap(), Token::fresh().unwrap());
    is_refused(&token, move |introduced| {
        let nonce = nonce_of(&introduced.introduction);
        let text = introduced.introduction.as_bytes();
        vec![
            FromCoordinator::Proven { proof: other.proof(Prover::Coordinator, &nonce, text) },
            welcome(),
        ]
    });
}

#[test]
fn a_proof_for_another_nonce_is_refused() {
    let token = Token::fresh().unwrap();
    // A proof of the true coordinator for another rank, or for this rank earlier.
    let knower = token.clone();
    is_refused(&token, move |introduced| {
        let proof = knower.proof(Prover::Coordinator, &[1; 16], introduced.introduction.as_bytes());
        vec![FromCoordinator::Proven { proof }, welcome()]
    });
    let (sender, proofs) = channel();
    let knower = token.clone();
    is_refused(&token, move |introduced| {
        let nonce = nonce_of(&introduced.introduction);
        let proof = knower.proof(Prover::Coordinator, &nonce, introduced.introduction.as_bytes());
        // The place is taken now, and the next rank receives the reason.
        sender.send(proof).unwrap();
        vec![welcome()]
    });
    let proof = proofs.recv().unwrap();
    is_refused(&token, |_| vec![FromCoordinator::Proven { proof }, welcome()]);
}

#[test]
fn the_right_one_is_trusted_and_its_key_does_not_travel() {
    let token = Token::fresh().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let options = CoordinatorOptions::of_supervisor(2, token.clone(), LONG);
    let _coordinator = Coordinator::start(listener, options).unwrap();
    let first = launch(address, &token);
    let first = thread::spawn(move || join(&first, &[], LONG).unwrap());
    // The other one shows what goes over its connection.
    let bare = Launch { rank: 0, ..launch(address, &token) };
    let found = ask(address, "", Instant::now() + LONG).unwrap();
    let (_, welcome) = meet(&bare, &token, &[], (&found, false), Instant::now() + LONG).unwrap();
    let salt = bytes_from_hex(&welcome.salt).unwrap();
    let first = first.join().unwrap();
    assert!(first.data.token == token.of_data(&salt));
    first.link.leave();
}

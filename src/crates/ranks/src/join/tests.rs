use std::net::TcpStream;
use std::thread;

use super::*;
use crate::link::Cause;
use crate::token::Token;

/// Longer than anything takes here.
const LONG: Duration = Duration::from_secs(30);

/// Ports at which nobody listens. They are several, for another test may take one before it is
/// used.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 4].map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap());
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

fn claim(what: &str, value: &str, kind: ClaimKind) -> Claim {
    Claim { what: what.to_owned(), value: value.to_owned(), kind }
}

/// What each of these ranks gets, with its claims; rank 0 holds the coordinator.
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
        Launch { rank, world: self.world, local_world: None, local_rank: None, meeting, token }
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
fn leave(ranks: Vec<Joined>) {
    let leaving: Vec<_> =
        ranks.into_iter().map(|rank| thread::spawn(move || rank.link.leave())).collect();
    leaving.into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn one_to_four_ranks_meet_and_reach_each_other() {
    for world in 1..=4 {
        let mut meeters = Meeters::new(world);
        meeters.claims.fill(vec![claim("seed", "7", ClaimKind::Options)]);
        let ranks: Vec<_> = (0..world).rev().collect();
        let joined: Vec<_> = meeters.join(&ranks).into_iter().map(Result::unwrap).collect();
        for (rank, joined) in ranks.iter().zip(&joined) {
            assert_eq!((joined.rank, joined.world), (*rank, world));
            assert_eq!(joined.peers[*rank as usize], joined.data.local_addr().unwrap());
            let to_lead = TcpStream::connect(joined.peers[0]).unwrap();
            assert!(to_lead.local_addr().unwrap().ip().is_loopback());
        }
        assert!(
            joined.iter().all(|rank| rank.key == joined[0].key && rank.peers == joined[0].peers)
        );
        assert_ne!(joined[0].key, [0; 16]);
        leave(joined);
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
    let lead = meeters.launch(0);
    let lead = thread::spawn(move || join(&lead, &[], LONG));
    let launch = Launch { token: Some(Token::fresh().unwrap()), ..meeters.launch(1) };
    let error = join(&launch, &[], LONG).unwrap_err().to_string();
    assert!(error.contains("rank 1 was rejected") && error.contains("SPLAT_TOKEN"), "{error}");
    let other = join(&meeters.launch(1), &[], LONG).unwrap();
    leave(vec![lead.join().unwrap().unwrap(), other]);
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
        Launch { rank, world: 2, local_world: None, local_rank: None, meeting, token }
    };
    // The stranger at the first port answers, but is of another run.
    let stranger = taken.try_clone().unwrap();
    thread::spawn(move || {
        while let Ok((mut stream, _)) = stranger.accept() {
            let run = "b".to_owned();
            let (magic, nonce) = (crate::wire::MAGIC.to_owned(), "00".repeat(16));
            let told = Told::Challenge { magic, protocol: PROTOCOL, run, nonce };
            drop(message::write(&mut stream, &told, "x"));
        }
    });
    let (lead, other) = (launch(0), launch(1));
    let lead = thread::spawn(move || join(&lead, &[], LONG).unwrap());
    let other = join(&other, &[], LONG).unwrap();
    assert_eq!(other.peers.len(), 2);
    leave(vec![lead.join().unwrap(), other]);
    // And where all are taken, rank 0 says so.
    let port = taken.local_addr().unwrap().port();
    let host = "127.0.0.1".to_owned();
    let meeting = Meeting::Hosts { host, ports: vec![port], run: String::new() };
    let launch = Launch { rank: 0, world: 2, local_world: None, local_rank: None, meeting, token };
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
    let (first, lead) = (meeters.launch(1), meeters.launch(0));
    let lead = thread::spawn(move || join(&lead, &[], LONG));
    let Meeting::Hosts { host, ports, run } = &first.meeting else { panic!() };
    let found = search(host, ports, run, Instant::now() + LONG).unwrap();
    let soon = Instant::now() + Duration::from_millis(500);
    let token = first.token.clone().unwrap();
    assert!(meet(&first, &token, &[], &found, soon).is_err(), "the others are not there");
    drop(found);
    let error = lead.join().unwrap().unwrap_err();
    let JoinError::Gone(departure) = error else { panic!("{error}") };
    assert_eq!((departure.rank, departure.cause), (Some(1), Cause::Closed));
}

#[test]
fn rank_0_waits_for_the_others_and_its_death_is_told() {
    let joined: Vec<_> = Meeters::new(2).join(&[0, 1]).into_iter().map(Result::unwrap).collect();
    let [lead, other] = joined.try_into().unwrap();
    let leaving = thread::spawn(move || lead.link.leave());
    thread::sleep(Duration::from_millis(300));
    assert!(!leaving.is_finished(), "the other one has not left");
    other.link.leave();
    leaving.join().unwrap();

    let joined: Vec<_> = Meeters::new(2).join(&[0, 1]).into_iter().map(Result::unwrap).collect();
    let [lead, other] = joined.try_into().unwrap();
    let (sender, ends) = std::sync::mpsc::channel();
    other.link.watch(|| {}, move |departure| sender.send(departure).unwrap()).unwrap();
    drop(lead);
    let departure = ends.recv_timeout(LONG).unwrap();
    assert_eq!((departure.rank, departure.cause), (Some(0), Cause::Closed));
}

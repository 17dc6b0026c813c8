//! How ranks meet: each tells the coordinator who it is and what must be equal on all of them, and
//! hears where the others are.

mod error;
#[cfg(test)]
mod impostor_tests;
mod reach;
#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use crate::claim::{Claim, ClaimKind, Refusal};
pub use error::JoinError;

use crate::coordinator::{Coordinator, CoordinatorOptions, SILENCE};
use crate::launch::{Launch, Meeting};
use crate::link::Link;
use crate::message;
use crate::patient::Until;
use crate::token::{Prover, Token, bytes_from_hex, hex, random, state_folder};
use crate::wire::{Introduction, PROTOCOL, Said, Told, Welcome};

use reach::{Found, ask, open_place, place_in_words, search};

/// Time beyond a rank's own patience in which the coordinator, whose time began later, may say
/// which ranks are missing.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time for the other ranks to hear why the meeting failed, before the one with the coordinator
/// ends.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// A rank that has met all others.
#[derive(Debug)]
pub struct Joined {
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Where the other ranks reach this one, on the interface that it uses for the coordinator.
    pub data: TcpListener,
    /// Where each rank is reached, by rank; its own address is among them.
    pub peers: Vec<SocketAddr>,
    /// By this key ranks know each other's connections. It is new for every meeting, is made of the token and
    /// never travels.
    pub key: [u8; 16],
    /// The line to the coordinator.
    pub link: Link,
}

/// Meets the other ranks. Blocks until all are there, at most for `patience` (and 5 s to hear who
/// is missing).
///
/// Rank 0 holds the coordinator where no supervisor does. `claims` must be equal on all ranks: else
/// all get the same [`JoinError::Refused`]. If a rank is gone or does not come, all others get an
/// error that names it. A coordinator that does not know the token is refused, too.
pub fn join(launch: &Launch, claims: &[Claim], patience: Duration) -> Result<Joined, JoinError> {
    let start = Instant::now();
    let rank = launch.rank;
    // Before any port opens: without a secret nothing is listened to.
    let token = token_of(launch)?;
    let (coordinator, found) = reach_coordinator(launch, &token, patience, start + patience)?;
    let met = meet(launch, &token, claims, &found, start + patience + ANSWER_TIME);
    let (data, welcome) = match met {
        Ok(met) => met,
        Err(error) => {
            if let Some(coordinator) = coordinator {
                // It waits for this rank, too.
                drop(found);
                coordinator.finish(LAST_WORDS_TIME);
            }
            return Err(error);
        }
    };
    let system = |what| move |source| JoinError::System { rank, what, source };
    let peer = found.stream.peer_addr().map_err(system("reading an address"))?.ip();
    // A rank at all interfaces of the coordinator's host is where this one found the coordinator.
    let resolve = |mut at: SocketAddr| {
        if at.ip().is_unspecified() {
            at.set_ip(peer);
        }
        at
    };
    let turned = || JoinError::Turned { rank, why: "the coordinator's salt is broken".to_owned() };
    let salt = bytes_from_hex(&welcome.salt).ok_or_else(turned)?;
    let key = token.mesh_key(&salt);
    let peers = welcome.data.into_iter().map(resolve).collect();
    let link = Link::start(found.stream, welcome.coordinator, coordinator)
        .map_err(system("starting a thread"))?;
    Ok(Joined { rank, world: launch.world, data, peers, key, link })
}

/// The secret of the run: that of the environment, or one that all processes of the user can derive.
fn token_of(launch: &Launch) -> Result<Token, JoinError> {
    if let Some(token) = &launch.token {
        return Ok(token.clone());
    }
    let run = match &launch.meeting {
        Meeting::Supervisor { .. } => "",
        Meeting::Hosts { run, .. } => run,
    };
    let folder = state_folder(|name| std::env::var_os(name).map(PathBuf::from));
    let folder = folder.ok_or(JoinError::NoHome { rank: launch.rank })?;
    let token = Token::of_user(&folder, run);
    token.map_err(|source| JoinError::NoSecret { rank: launch.rank, folder, source })
}

/// Starts the coordinator where this rank is to hold it, and connects to it.
fn reach_coordinator(
    launch: &Launch,
    token: &Token,
    patience: Duration,
    deadline: Instant,
) -> Result<(Option<Coordinator>, Found), JoinError> {
    let rank = launch.rank;
    let not_found = |place| {
        move |last| JoinError::NoCoordinator { rank, place, seconds: patience.as_secs(), last }
    };
    let system = |what| move |source| JoinError::System { rank, what, source };
    match &launch.meeting {
        Meeting::Supervisor { address } => {
            // It listened before it started this process.
            let found = ask(*address, "", deadline).map_err(not_found(address.to_string()))?;
            Ok((None, found))
        }
        Meeting::Hosts { host, ports, run } if rank == 0 => {
            let has_other_hosts = launch.local_world.is_some_and(|here| here < launch.world);
            let listener = open_place(host, ports, has_other_hosts)?;
            let mut address = listener.local_addr().map_err(system("reading an address"))?;
            let is_everywhere = address.ip().is_unspecified();
            if is_everywhere {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            let options = CoordinatorOptions {
                world: launch.world,
                run: run.clone(),
                token: token.clone(),
                holder: Some(rank),
                patience,
                silence: SILENCE,
            };
            let coordinator = Coordinator::start(listener, options);
            let coordinator = coordinator.map_err(system("starting the coordinator"))?;
            let found = ask(address, run, deadline).map_err(not_found(address.to_string()))?;
            Ok((Some(coordinator), Found { is_everywhere, ..found }))
        }
        Meeting::Hosts { host, ports, run } => {
            let place = place_in_words(host, ports);
            let found = search(host, ports, run, deadline).map_err(not_found(place))?;
            Ok((None, found))
        }
    }
}

/// Introduces this rank and waits for the others. Its listener, and what the coordinator says of
/// all.
fn meet(
    launch: &Launch,
    token: &Token,
    claims: &[Claim],
    found: &Found,
    deadline: Instant,
) -> Result<(TcpListener, Welcome), JoinError> {
    let Launch { rank, world, .. } = launch;
    let system = |what| move |source| JoinError::System { rank: *rank, what, source };
    let conversation = |source| JoinError::Conversation { rank: *rank, source };
    // The interface of the link, unless that is rank 0's way to itself.
    let own = found.stream.local_addr().map_err(system("reading an address"))?;
    let ip = if found.is_everywhere { Ipv4Addr::UNSPECIFIED.into() } else { own.ip() };
    let nonce = random().map_err(system("taking random numbers"))?;
    let listener = TcpListener::bind((ip, 0)).map_err(system("listening"))?;
    let introduction = Introduction {
        protocol: PROTOCOL,
        rank: *rank,
        world: *world,
        host: gethostname::gethostname().to_string_lossy().into_owned(),
        pid: std::process::id(),
        data: listener.local_addr().map_err(system("reading an address"))?,
        claims: claims.to_vec(),
        nonce: hex(&nonce),
    };
    let introduction = serde_json::to_string(&introduction)
        .map_err(|error| system("writing an introduction")(error.into()))?;
    let proof = token.proof(Prover::Rank, &found.nonce, introduction.as_bytes());
    let said = Said::Hello { introduction: introduction.clone(), proof };
    let peer = "the coordinator";
    let mut writer = &found.stream;
    message::write(&mut writer, &said, peer).map_err(conversation)?;
    let mut reader = Until { stream: &found.stream, deadline };
    let mut hear = || message::read(&mut reader, peer).map_err(conversation);
    let is_proven = match hear()? {
        Told::Proven { proof } => {
            token.is_proven(Prover::Coordinator, &nonce, introduction.as_bytes(), &proof)
        }
        // Whoever turns a rank away gets nothing from it; and one of another version or with
        // another secret cannot prove anything.
        Told::Turned { why } => return Err(JoinError::Turned { rank: *rank, why }),
        Told::Refused(refusal) if refusal.kind == ClaimKind::Version => {
            return Err(JoinError::Refused(refusal));
        }
        _ => false,
    };
    if !is_proven {
        let address = found.stream.peer_addr().map_err(system("reading an address"))?;
        return Err(JoinError::Unproven { rank: *rank, address });
    }
    loop {
        match hear()? {
            Told::Welcome(welcome) => return Ok((listener, welcome)),
            Told::Turned { why } => return Err(JoinError::Turned { rank: *rank, why }),
            Told::Refused(refusal) => return Err(JoinError::Refused(refusal)),
            Told::Missing { ranks, world, seconds } => {
                return Err(JoinError::Missing { ranks, world, seconds });
            }
            Told::Ended(departure) => return Err(JoinError::Gone(departure)),
            Told::Challenge { .. }
            | Told::Proven { .. }
            | Told::Stop
            | Told::Beat
            | Told::Farewell => {}
        }
    }
}

//! The meeting of the ranks: each tells the coordinator who it is and the facts that must be equal on all of them,
//! and hears how to reach rank 0.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use crate::handshake::JoinError;
pub use crate::message::{Claim, ClaimKind, Refusal};

use crate::coordinator::{Coordinator, CoordinatorOptions, SILENCE};
use crate::exchange::{DataEnd, DataRoute};
use crate::handshake::{Found, ask, open_place, place_in_words, search};
use crate::launch::{Launch, Meeting};
use crate::link::Link;
use crate::message::{self, FromCoordinator, Introduction, Until, Welcome};
use crate::token::{Token, bytes_from_hex, state_folder};

/// Time beyond a rank's own patience in which the coordinator, whose time began later, may say which ranks are missing.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time for the other ranks to hear why the meeting failed, before the one with the coordinator ends.
const LAST_WORDS_TIME: Duration = Duration::from_secs(1);

/// A rank that has met all others.
#[derive(Debug)]
pub struct Joined {
    /// This rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// The way to the other ranks' bytes.
    pub data: DataRoute,
    /// The line to the coordinator.
    pub link: Link,
}

/// Meets the other ranks. Blocks until all are there, at most for `patience` (and 5 s to hear who is missing).
///
/// Rank 0 holds the coordinator unless a supervisor does. `claims` must be equal on all ranks: else
/// all get the same [`JoinError::Refused`]. If a rank is gone or does not come, all others get an
/// error that names it. A coordinator that does not know the token is refused, too.
pub fn join(launch: &Launch, claims: &[Claim], patience: Duration) -> Result<Joined, JoinError> {
    let deadline = Instant::now() + patience;
    let &Launch { rank, world, .. } = launch;
    // Before any port opens: without a secret nothing is listened to.
    let token = token_of(launch)?;
    let (coordinator, found) = reach_coordinator(launch, &token, patience, deadline)?;
    // The interface of the link, unless that is rank 0's way to itself at all interfaces.
    let is_everywhere = coordinator.as_ref().is_some_and(|(_, is_everywhere)| *is_everywhere);
    let coordinator = coordinator.map(|(coordinator, _)| coordinator);
    let met = meet(launch, &token, claims, (&found, is_everywhere), deadline + ANSWER_TIME);
    let (listener, welcome) = match met {
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
    let rejected =
        || JoinError::Rejected { rank, why: "the coordinator's salt is broken".to_owned() };
    let salt = bytes_from_hex(&welcome.salt).ok_or_else(rejected)?;
    let end = match listener {
        Some(listener) => DataEnd::Listener(listener),
        None => {
            let mut address = welcome.data;
            // Rank 0 at all interfaces of the coordinator's host is where this rank found the coordinator.
            if address.ip().is_unspecified() {
                let peer = found.stream.peer_addr().map_err(system("reading an address"))?;
                address.set_ip(peer.ip());
            }
            DataEnd::Address(address)
        }
    };
    let data = DataRoute { rank, world, token: token.of_data(&salt), end };
    let link = Link::start(found.stream, welcome.coordinator, coordinator)
        .map_err(system("starting a thread"))?;
    Ok(Joined { rank, world, data, link })
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

/// Starts the coordinator if this rank is to hold it (with true if it listens at all interfaces), and connects to it.
fn reach_coordinator(
    launch: &Launch,
    token: &Token,
    patience: Duration,
    deadline: Instant,
) -> Result<(Option<(Coordinator, bool)>, Found), JoinError> {
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
            Ok((Some((coordinator, is_everywhere)), found))
        }
        Meeting::Hosts { host, ports, run } => {
            let place = place_in_words(host, ports);
            let found = search(host, ports, run, deadline).map_err(not_found(place))?;
            Ok((None, found))
        }
    }
}

/// Introduces this rank and waits for the others. Rank 0's data listener, and the coordinator's welcome.
fn meet(
    launch: &Launch,
    token: &Token,
    claims: &[Claim],
    (found, is_everywhere): (&Found, bool),
    deadline: Instant,
) -> Result<(Option<TcpListener>, Welcome), JoinError> {
    let &Launch { rank, world, .. } = launch;
    let system = |what| move |source| JoinError::System { rank, what, source };
    let mut introduction =
        Introduction { claims: claims.to_vec(), ..Introduction::of(rank, world) };
    let mut listener = None;
    if rank == 0 {
        let own = found.stream.local_addr().map_err(system("reading an address"))?;
        let ip = if is_everywhere { Ipv4Addr::UNSPECIFIED.into() } else { own.ip() };
        let data = TcpListener::bind((ip, 0)).map_err(system("listening"))?;
        introduction.data = Some(data.local_addr().map_err(system("reading an address"))?);
        listener = Some(data);
    }
    found.introduce(token, introduction, deadline)?;
    let mut reader = Until { stream: &found.stream, deadline };
    loop {
        let message = message::read(&mut reader, "the coordinator");
        match message.map_err(|source| JoinError::Conversation { rank, source })? {
            FromCoordinator::Welcome(welcome) => return Ok((listener, welcome)),
            FromCoordinator::Rejected { why } => return Err(JoinError::Rejected { rank, why }),
            FromCoordinator::Refused(refusal) => return Err(JoinError::Refused(refusal)),
            FromCoordinator::Missing { ranks, world, seconds } => {
                return Err(JoinError::Missing { ranks, world, seconds });
            }
            FromCoordinator::Lost(lost) => return Err(JoinError::Gone(lost)),
            FromCoordinator::Challenge { .. }
            | FromCoordinator::Proven { .. }
            | FromCoordinator::Stop
            | FromCoordinator::Beat
            | FromCoordinator::Farewell => {}
        }
    }
}

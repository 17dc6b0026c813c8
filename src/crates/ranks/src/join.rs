//! Registration of the ranks: each rank sends the coordinator an introduction and the facts that must be equal on all
//! ranks, and receives the address of rank 0.

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use crate::handshake::JoinError;
pub use crate::message::{Claim, ClaimKind, Refusal};

use crate::coordinator::{Coordinator, CoordinatorOptions, SILENCE};
use crate::exchange::{DataEnd, DataRoute};
use crate::handshake::{Connection, address_text, find_coordinator, listen_at, probe};
use crate::launch::{Launch, Rendezvous};
use crate::link::Link;
use crate::message::{self, Accepted, DeadlineReader, FromCoordinator, Introduction};
use crate::token::{Token, bytes_from_hex, state_folder};

/// Additional time for the coordinator, whose timeout starts later, to report the missing ranks.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Time for the coordinator to send the reason of a failed registration before its process ends.
const NOTIFY_TIME: Duration = Duration::from_secs(1);

/// A registered rank.
#[derive(Debug)]
pub struct Joined {
    /// Number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Address and secret of the data connections.
    pub data: DataRoute,
    /// Connection to the coordinator.
    pub link: Link,
}

/// Registers this rank. Blocks until all ranks have joined, at most for `timeout` and 5 s for the list of missing
/// ranks.
///
/// Rank 0 runs the coordinator unless a supervisor does. `claims` must be equal on all ranks, or all get the same
/// [`JoinError::Refused`]. If a rank is lost or missing, all others get an error that names it. A coordinator that does
/// not know the token is an error too.
pub fn join(launch: &Launch, claims: &[Claim], timeout: Duration) -> Result<Joined, JoinError> {
    let deadline = Instant::now() + timeout;
    let &Launch { rank, world, .. } = launch;
    // Do not open a port without a secret.
    let token = run_token(launch)?;
    let (coordinator, found) = reach_coordinator(launch, &token, timeout, deadline)?;
    // A rank 0 that listens at all interfaces connects to itself by the loopback interface.
    let is_everywhere = coordinator.as_ref().is_some_and(|(_, is_everywhere)| *is_everywhere);
    let coordinator = coordinator.map(|(coordinator, _)| coordinator);
    let registered =
        register(launch, &token, claims, (&found, is_everywhere), deadline + ANSWER_TIME);
    let (listener, accepted) = match registered {
        Ok(registered) => registered,
        Err(error) => {
            if let Some(mut coordinator) = coordinator {
                // The coordinator also waits for this rank to leave.
                drop(found);
                coordinator.finish(NOTIFY_TIME);
            }
            return Err(error);
        }
    };
    let system = |what| move |source| JoinError::System { rank, what, source };
    let rejected =
        || JoinError::Rejected { rank, why: "the coordinator's salt is broken".to_owned() };
    let salt = bytes_from_hex(&accepted.salt).ok_or_else(rejected)?;
    let end = match listener {
        Some(listener) => DataEnd::Listener(listener),
        None => {
            let mut address = accepted.data;
            // If rank 0 listens at all interfaces, use the coordinator's address.
            if address.ip().is_unspecified() {
                let peer = found.stream.peer_addr().map_err(system("reading an address"))?;
                address.set_ip(peer.ip());
            }
            DataEnd::Address(address)
        }
    };
    let data = DataRoute { rank, world, token: token.of_data(&salt), end };
    let link = Link::start(found.stream, accepted.coordinator, coordinator)
        .map_err(system("starting a thread"))?;
    Ok(Joined { rank, world, data, link })
}

/// Returns the secret of the run: from the environment, or derived from the user's secret.
fn run_token(launch: &Launch) -> Result<Token, JoinError> {
    if let Some(token) = &launch.token {
        return Ok(token.clone());
    }
    let run = match &launch.rendezvous {
        Rendezvous::Supervisor { .. } => "",
        Rendezvous::Hosts { run, .. } => run,
    };
    let folder = state_folder(|name| std::env::var_os(name).map(PathBuf::from));
    let folder = folder.ok_or(JoinError::NoHome { rank: launch.rank })?;
    let token = Token::of_user(&folder, run);
    token.map_err(|source| JoinError::NoSecret { rank: launch.rank, folder, source })
}

/// Starts the coordinator if this rank runs it (with true if it listens at all interfaces), and connects to it.
fn reach_coordinator(
    launch: &Launch,
    token: &Token,
    timeout: Duration,
    deadline: Instant,
) -> Result<(Option<(Coordinator, bool)>, Connection), JoinError> {
    let rank = launch.rank;
    let not_found = |place| {
        move |last| JoinError::NoCoordinator { rank, place, seconds: timeout.as_secs(), last }
    };
    let system = |what| move |source| JoinError::System { rank, what, source };
    match &launch.rendezvous {
        Rendezvous::Supervisor { address } => {
            // The supervisor has listened since before it started this process.
            let found = probe(*address, "", deadline).map_err(not_found(address.to_string()))?;
            Ok((None, found))
        }
        Rendezvous::Hosts { host, ports, run } if rank == 0 => {
            let has_other_hosts = launch.local_world.is_some_and(|here| here < launch.world);
            let listener = listen_at(host, ports, has_other_hosts)?;
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
                timeout,
                silence: SILENCE,
            };
            let coordinator = Coordinator::start(listener, options);
            let coordinator = coordinator.map_err(system("starting the coordinator"))?;
            let found = probe(address, run, deadline).map_err(not_found(address.to_string()))?;
            Ok((Some((coordinator, is_everywhere)), found))
        }
        Rendezvous::Hosts { host, ports, run } => {
            let place = address_text(host, ports);
            let found = find_coordinator(host, ports, run, deadline).map_err(not_found(place))?;
            Ok((None, found))
        }
    }
}

/// Introduces this rank and waits for the others. Returns rank 0's data listener, and the coordinator's answer.
fn register(
    launch: &Launch,
    token: &Token,
    claims: &[Claim],
    (found, is_everywhere): (&Connection, bool),
    deadline: Instant,
) -> Result<(Option<TcpListener>, Accepted), JoinError> {
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
    let mut reader = DeadlineReader { stream: &found.stream, deadline };
    loop {
        let message = message::read(&mut reader, "the coordinator");
        match message.map_err(|source| JoinError::Protocol { rank, source })? {
            FromCoordinator::Accepted(accepted) => return Ok((listener, accepted)),
            FromCoordinator::Rejected { why } => return Err(JoinError::Rejected { rank, why }),
            FromCoordinator::Refused(refusal) => return Err(JoinError::Refused(refusal)),
            FromCoordinator::Missing { ranks, world, seconds } => {
                return Err(JoinError::Missing { ranks, world, seconds });
            }
            FromCoordinator::Lost(lost) => return Err(JoinError::Lost(lost)),
            FromCoordinator::Challenge { .. }
            | FromCoordinator::Proven { .. }
            | FromCoordinator::Stop
            | FromCoordinator::Heartbeat
            | FromCoordinator::Closing => {}
        }
    }
}

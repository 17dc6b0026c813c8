//! How rank 0 opens the place of the meeting, and how a rank finds it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use crate::message::{self, MessageError};
use crate::patient::Until;
use crate::token::bytes_from_hex;
use crate::wire::{MAGIC, Told};

use super::error::JoinError;

/// Time for one trial: what answers later is asked again in the next round.
const TRIAL_TIME: Duration = Duration::from_secs(2);

/// Time between two rounds.
const ROUND_TIME: Duration = Duration::from_millis(100);

/// A coordinator that is the right one.
pub(super) struct Found {
    pub(super) stream: TcpStream,
    /// Its number used once.
    pub(super) nonce: [u8; 16],
    /// True if this rank's own coordinator listens at all interfaces.
    pub(super) is_everywhere: bool,
}

/// Listens at the first free port of rank 0's host.
///
/// Only the interface that the host's name stands for is opened: a name of this machine alone opens no
/// other, and is an error if there are ranks on other hosts. All interfaces are opened if the name stands
/// for another machine's address: the other hosts know rank 0 by that.
pub(super) fn open_place(
    host: &str,
    ports: &[u16],
    has_other_hosts: bool,
) -> Result<TcpListener, JoinError> {
    let place = || place_in_words(host, ports);
    let no_port = |source| JoinError::NoPort { place: place(), source };
    let ips: Vec<_> = (host, 0).to_socket_addrs().map_err(no_port)?.map(|at| at.ip()).collect();
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok();
    let is_local = ips.iter().all(IpAddr::is_loopback);
    if let Some(&ip) = ips.first().filter(|_| is_local && has_other_hosts) {
        return Err(JoinError::OnlyLocal { host: host.to_owned(), ip });
    }
    let usable = |ip: &&IpAddr| is_local || is_here || !ip.is_loopback();
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for ip in ips.iter().filter(usable) {
        for port in ports {
            match TcpListener::bind((*ip, *port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
    }
    if !is_here && !is_local && last.kind() == io::ErrorKind::AddrNotAvailable {
        for port in ports {
            match TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
    }
    Err(no_port(last))
}

/// Tries all ports in turn until the right coordinator answers or the deadline is over.
///
/// The error is what happened at the last trial.
pub(super) fn search(
    host: &str,
    ports: &[u16],
    run: &str,
    deadline: Instant,
) -> Result<Found, String> {
    let mut last = "no port to try".to_owned();
    loop {
        for port in ports {
            let addresses = match (host, *port).to_socket_addrs() {
                Ok(addresses) => addresses,
                Err(error) => {
                    last = format!("{host}: {error}");
                    continue;
                }
            };
            for address in addresses {
                let trial_end = deadline.min(Instant::now() + TRIAL_TIME);
                match ask(address, run, trial_end) {
                    Ok(found) => return Ok(found),
                    Err(error) => last = error,
                }
            }
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        thread::sleep(ROUND_TIME);
    }
}

/// Connects, and asks whether this is the coordinator of the run.
pub(super) fn ask(address: SocketAddr, run: &str, deadline: Instant) -> Result<Found, String> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let failed = |error: io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address, left).map_err(failed)?;
    // Where nobody listens at a port of the own machine, the system may connect a caller with
    // itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(format!("{address}: nobody listens"));
    }
    stream.set_nodelay(true).map_err(failed)?;
    let mut reader = Until { stream: &stream, deadline };
    let told: Result<Told, MessageError> = message::read(&mut reader, &address.to_string());
    let Told::Challenge { magic, run: found, nonce, .. } =
        told.map_err(|error| error.to_string())?
    else {
        return Err(format!("{address} is no coordinator"));
    };
    if magic != MAGIC || found != run {
        return Err(format!("{address} is the coordinator of another run"));
    }
    let nonce = bytes_from_hex(&nonce).ok_or(format!("{address} sent a broken challenge"))?;
    Ok(Found { stream, nonce, is_everywhere: false })
}

/// `host:4000` or `host:4000-4015`.
pub(super) fn place_in_words(host: &str, ports: &[u16]) -> String {
    match ports {
        [] => format!("{host} (no port)"),
        [port] => format!("{host}:{port}"),
        [first, .., last] => format!("{host}:{first}-{last}"),
    }
}

//! The handshake in which both ends of a connection prove that they know the token, and the search for the listener.
//!
//! The links of all ranks to the coordinator and the data connections to rank 0 start with this handshake.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::message::{
    self, ClaimKind, DeadlineReader, FromCoordinator, FromRank, Introduction, LostRank, MAGIC,
    MessageError, PROTOCOL, Refusal,
};
use crate::spawn;
use crate::token::{Prover, Token, bytes_from_hex, hex, random};

/// An error of a rank that joins.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum JoinError {
    #[error("the ranks do not fit together: {0}")]
    Refused(Refusal),
    /// A rank was lost before all ranks had joined.
    #[error("before all ranks had joined, {0}")]
    Lost(LostRank),
    #[error(
        "{} of {world} did not join within {seconds} s: see why on their hosts, and that they \
         reach rank 0",
        ranks_in_words(ranks)
    )]
    Missing {
        /// The missing ranks, in ascending order.
        ranks: Vec<u32>,
        world: u32,
        seconds: u64,
    },
    /// The coordinator rejected this rank.
    #[error("rank {rank} was rejected: {why}")]
    Rejected {
        rank: u32,
        /// The coordinator's reason, with the remedy.
        why: String,
    },
    #[error(
        "rank {rank}: the coordinator at {address} does not know the secret of this run. Give all ranks the same \
         SPLAT_TOKEN, and check which program listens there"
    )]
    Unproven { rank: u32, address: SocketAddr },
    #[error(
        "rank {rank} found no coordinator of its run at {place} within {seconds} s ({last}): \
         start rank 0 there, and let its port through the firewall"
    )]
    NoCoordinator {
        rank: u32,
        place: String,
        seconds: u64,
        /// The error of the last attempt.
        last: String,
    },
    #[error(
        "rank 0 cannot listen at {place}: {source}; name a free port of its host by \
         SPLAT_RENDEZVOUS=HOST:PORT"
    )]
    NoPort {
        place: String,
        /// The system's error for the last port.
        source: io::Error,
    },
    #[error(
        "{host}: stands for {ip} on rank 0's host, which other hosts cannot reach. Set \
         SPLAT_RENDEZVOUS=ADDRESS:PORT to an address of rank 0's host, on all hosts"
    )]
    OnlyLocal { host: String, ip: IpAddr },
    #[error(
        "rank {rank} has no secret, and HOME is not set. Set SPLAT_TOKEN to the same 32 hexadecimal digits on \
         all ranks (openssl rand -hex 16)"
    )]
    NoHome { rank: u32 },
    #[error(
        "{}: rank {rank} cannot keep a secret there: {source}. Set SPLAT_TOKEN to the same 32 hexadecimal digits \
         on all ranks", folder.display()
    )]
    NoSecret { rank: u32, folder: PathBuf, source: io::Error },
    /// A message of the coordinator could not be read, or one to it could not be written.
    #[error(
        "rank {rank} cannot join: {source}. Read the messages of rank 0, then start all ranks again"
    )]
    Protocol { rank: u32, source: MessageError },
    /// The system refused something else.
    #[error(
        "rank {rank} cannot join, since {what} failed: {source}. End other programs, or raise the limits (ulimit -a)"
    )]
    System { rank: u32, what: &'static str, source: io::Error },
}

fn ranks_in_words(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let mut words: Vec<_> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    if ranks.len() > SHOWN {
        words.push(format!("{} more", ranks.len() - SHOWN));
    }
    let name = if ranks.len() == 1 { "rank" } else { "ranks" };
    match words.split_last() {
        Some((last, [])) => format!("{name} {last}"),
        Some((last, first)) => format!("{name} {} and {last}", first.join(", ")),
        None => "no rank".to_owned(),
    }
}

// The end that listens.

/// Timeout of the introduction of a new connection. A rank sends its introduction at once; only networks are slow.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Largest number of simultaneous handshakes, beside those of the ranks. Further connections are closed, which
/// bounds the number of threads.
const MOST_PENDING: u64 = 64;

/// Pause between two calls of `accept`.
const PAUSE: Duration = Duration::from_millis(10);

/// Timeout of a write. A longer write means that the peer does not read.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// A peer that has proved that it knows the token.
pub(crate) enum Peer {
    /// A rank of this protocol.
    Rank(Introduction),
    /// A rank of a program with another protocol.
    Foreign { rank: u32, protocol: u64 },
}

/// Listening end of the handshake.
pub(crate) struct Acceptor {
    run: String,
    world: u32,
    token: Token,
    is_open: AtomicBool,
    /// Number of unfinished handshakes.
    pending: AtomicU64,
}

impl Acceptor {
    /// Accepts connections until [`close`](Self::close). Calls `accept` with the number, the stream and the peer of
    /// each connection whose peer knows the token. Each connection has its own thread, so that a slow peer does not
    /// delay the others.
    pub(crate) fn start(
        listener: TcpListener,
        run: &str,
        world: u32,
        token: &Token,
        accept: impl Fn(u64, &TcpStream, Peer) + Clone + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        listener.set_nonblocking(true)?;
        let (is_open, pending) = (AtomicBool::new(true), AtomicU64::new(0));
        let acceptor = Self { run: run.to_owned(), world, token: token.clone(), is_open, pending };
        let acceptor = Arc::new(acceptor);
        let shared = acceptor.clone();
        spawn("splat-ranks-accept", move || shared.listen(&listener, &accept))?;
        Ok(acceptor)
    }

    /// Stops listening.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    fn listen(
        self: Arc<Self>,
        listener: &TcpListener,
        accept: &(impl Fn(u64, &TcpStream, Peer) + Clone + Send + 'static),
    ) {
        let mut connection = 0;
        while self.is_open.load(Ordering::Acquire) {
            let Ok((stream, _)) = listener.accept() else {
                // No peer is waiting, or a peer has disconnected again.
                thread::sleep(PAUSE);
                continue;
            };
            let pending = self.pending.fetch_add(1, Ordering::AcqRel);
            connection += 1;
            let (acceptor, accept) = (self.clone(), accept.clone());
            let serve = move || {
                let peer = acceptor.peer(&stream);
                acceptor.pending.fetch_sub(1, Ordering::AcqRel);
                if let Some(peer) = peer {
                    accept(connection, &stream, peer);
                }
            };
            let is_full = pending >= MOST_PENDING + u64::from(self.world);
            if is_full || spawn("splat-ranks-peer", serve).is_err() {
                self.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Runs the handshake with a new connection. Returns `None` for a peer without the token, after telling it why.
    fn peer(&self, mut stream: &TcpStream) -> Option<Peer> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(WRITE_TIME)).ok()?;
        let (name, challenge) = ("a new connection", random().ok()?);
        let (magic, run, nonce) = (MAGIC.to_owned(), self.run.clone(), hex(&challenge));
        let first = FromCoordinator::Challenge { magic, protocol: PROTOCOL, run, nonce };
        message::write(&mut stream, &first, name).ok()?;
        let deadline = Instant::now() + HELLO_TIME;
        let message = message::read(&mut DeadlineReader { stream, deadline }, name).ok()?;
        stream.set_read_timeout(None).ok()?;
        let FromRank::Hello { introduction: text, proof } = message else { return None };
        if !self.token.is_proven(Prover::Rank, &challenge, text.as_bytes(), &proof) {
            let why =
                "it does not know the secret of this run: give all ranks the same SPLAT_TOKEN";
            let rejected = FromCoordinator::Rejected { why: why.to_owned() };
            drop(message::write(&mut stream, &rejected, name));
            return None;
        }
        // Only these fields have the same meaning in all versions of the protocol.
        let fields: serde_json::Value = serde_json::from_str(&text).ok()?;
        let protocol = fields.get("protocol")?.as_u64()?;
        if protocol != u64::from(PROTOCOL) {
            let rank = u32::try_from(fields.get("rank")?.as_u64()?).ok()?;
            return Some(Peer::Foreign { rank, protocol });
        }
        let introduction: Introduction = serde_json::from_value(fields).ok()?;
        let nonce = bytes_from_hex(&introduction.nonce)?;
        let proof = self.token.proof(Prover::Coordinator, &nonce, text.as_bytes());
        message::write(&mut stream, &FromCoordinator::Proven { proof }, name).ok()?;
        Some(Peer::Rank(introduction))
    }
}

// The end that connects.

/// Timeout of one attempt to connect.
const ATTEMPT_TIME: Duration = Duration::from_secs(2);

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection to the listener of the run.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Nonce of the listener.
    pub(crate) nonce: [u8; 16],
}

impl Connection {
    /// Proves that this rank knows the token, and checks that the listener does.
    pub(crate) fn introduce(
        &self,
        token: &Token,
        introduction: Introduction,
        deadline: Instant,
    ) -> Result<(), JoinError> {
        let rank = introduction.rank;
        let system = |what| move |source| JoinError::System { rank, what, source };
        let protocol = |source| JoinError::Protocol { rank, source };
        let nonce = random().map_err(system("taking random numbers"))?;
        let introduction = Introduction { nonce: hex(&nonce), ..introduction };
        let text = serde_json::to_string(&introduction)
            .map_err(|error| system("writing an introduction")(error.into()))?;
        let proof = token.proof(Prover::Rank, &self.nonce, text.as_bytes());
        let hello = FromRank::Hello { introduction: text.clone(), proof };
        let peer = "the coordinator";
        message::write(&mut &self.stream, &hello, peer).map_err(protocol)?;
        let mut reader = DeadlineReader { stream: &self.stream, deadline };
        let is_proven = match message::read(&mut reader, peer).map_err(protocol)? {
            FromCoordinator::Proven { proof } => {
                token.is_proven(Prover::Coordinator, &nonce, text.as_bytes(), &proof)
            }
            // An unproven peer may only reject the rank. A peer with another version or another secret cannot prove
            // that it knows the token.
            FromCoordinator::Rejected { why } => return Err(JoinError::Rejected { rank, why }),
            FromCoordinator::Refused(refusal) if refusal.kind == ClaimKind::Version => {
                return Err(JoinError::Refused(refusal));
            }
            _ => false,
        };
        if is_proven {
            return Ok(());
        }
        let address = self.stream.peer_addr().map_err(system("reading an address"))?;
        Err(JoinError::Unproven { rank, address })
    }
}

/// Connects, and checks that the peer claims to be the listener of the run.
pub(crate) fn probe(
    address: SocketAddr,
    run: &str,
    deadline: Instant,
) -> Result<Connection, String> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let failed = |error: io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address, left).map_err(failed)?;
    // The system may connect a socket to itself if no process listens at a local port.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(format!("{address}: nobody listens"));
    }
    stream.set_nodelay(true).map_err(failed)?;
    let mut reader = DeadlineReader { stream: &stream, deadline };
    let first = message::read(&mut reader, &address.to_string());
    let FromCoordinator::Challenge { magic, run: found, nonce, .. } =
        first.map_err(|error| error.to_string())?
    else {
        return Err(format!("{address} is no coordinator"));
    };
    if magic != MAGIC || found != run {
        return Err(format!("{address} is the coordinator of another run"));
    }
    let nonce = bytes_from_hex(&nonce).ok_or(format!("{address} sent a broken challenge"))?;
    Ok(Connection { stream, nonce })
}

/// Tries all ports in turn until the listener of the run answers or the deadline passes. Returns the error of the last
/// attempt.
pub(crate) fn find_coordinator(
    host: &str,
    ports: &[u16],
    run: &str,
    deadline: Instant,
) -> Result<Connection, String> {
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
                match probe(address, run, deadline.min(Instant::now() + ATTEMPT_TIME)) {
                    Ok(found) => return Ok(found),
                    Err(error) => last = error,
                }
            }
        }
        if Instant::now() >= deadline {
            return Err(last);
        }
        thread::sleep(RETRY_PAUSE);
    }
}

/// Listens at the first free port of rank 0's host.
///
/// The listener is bound to the interface that the host name resolves to. A loopback name is an error if there are
/// ranks on other hosts. The listener is bound to all interfaces if the name resolves to an address that this machine
/// does not have: the other hosts reach rank 0 by that address.
pub(crate) fn listen_at(
    host: &str,
    ports: &[u16],
    has_other_hosts: bool,
) -> Result<TcpListener, JoinError> {
    let no_port = |source| JoinError::NoPort { place: address_text(host, ports), source };
    let ips: Vec<_> = (host, 0).to_socket_addrs().map_err(no_port)?.map(|at| at.ip()).collect();
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok();
    let is_local = ips.iter().all(IpAddr::is_loopback);
    if let Some(&ip) = ips.first().filter(|_| is_local && has_other_hosts) {
        return Err(JoinError::OnlyLocal { host: host.to_owned(), ip });
    }
    let nothing = Err(io::ErrorKind::AddrNotAvailable.into());
    let usable = ips.into_iter().filter(|ip| is_local || is_here || !ip.is_loopback());
    let found = usable.fold(nothing, |found, ip| found.or_else(|_| first_free(ip, ports)));
    let is_elsewhere = |error: &io::Error| {
        !is_here && !is_local && error.kind() == io::ErrorKind::AddrNotAvailable
    };
    let found = match found {
        Err(error) if is_elsewhere(&error) => first_free(Ipv4Addr::UNSPECIFIED.into(), ports),
        found => found,
    };
    found.map_err(no_port)
}

/// Listens at the first free port of an interface. Returns the error of the last port.
fn first_free(ip: IpAddr, ports: &[u16]) -> io::Result<TcpListener> {
    let nothing = Err(io::ErrorKind::AddrNotAvailable.into());
    ports.iter().fold(nothing, |found, &port| found.or_else(|_| TcpListener::bind((ip, port))))
}

/// Formats an address as `host:4000` or `host:4000-4015`.
pub(crate) fn address_text(host: &str, ports: &[u16]) -> String {
    match ports {
        [] => format!("{host} (no port)"),
        [port] => format!("{host}:{port}"),
        [first, .., last] => format!("{host}:{first}-{last}"),
    }
}

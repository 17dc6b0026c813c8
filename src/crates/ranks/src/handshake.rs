//! The handshake by which two ends of a connection prove that they know a token, and the search for the listener.
//!
//! The links of all ranks to the coordinator, and the data connections to rank 0, begin in this way.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::message::{
    self, ClaimKind, FromCoordinator, FromRank, Introduction, LostRank, MAGIC, MessageError,
    PROTOCOL, Refusal, Until,
};
use crate::spawn;
use crate::token::{Prover, Token, bytes_from_hex, hex, random};

/// An error of a rank that joins.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum JoinError {
    #[error("the ranks do not fit together: {0}")]
    Refused(Refusal),
    /// A rank was gone before all had joined.
    #[error("before all ranks had joined, {0}")]
    Gone(LostRank),
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
    /// The coordinator did not let this rank in.
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
    /// The conversation with the coordinator failed.
    #[error(
        "rank {rank} cannot join: {source}. Read the messages of rank 0, then start all ranks again"
    )]
    Conversation { rank: u32, source: MessageError },
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

/// Time for a new connection to introduce itself. A rank does so at once; only networks are slow.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Connections that may be within the handshake at one time, beside the ranks. More are closed, which
/// bounds the threads.
const MOST_PENDING: u64 = 64;

/// Pause between two calls of `accept`.
const PAUSE: Duration = Duration::from_millis(10);

/// A write that takes longer is to somebody who does not read.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// A peer that knows the token.
pub(crate) enum Peer {
    /// A rank of this protocol.
    Rank(Introduction),
    /// A rank of a program with another protocol.
    Foreign { rank: u32, protocol: u64 },
}

/// A listener's side of the handshake.
pub(crate) struct Gate {
    run: String,
    world: u32,
    token: Token,
    is_open: AtomicBool,
    /// Connections within the handshake.
    pending: AtomicU64,
}

impl Gate {
    /// Accepts connections until it is closed, and calls `accept` with the number, the stream and the peer
    /// of each that knows the token. Each has a thread of its own, so that a slow one holds up nobody.
    pub(crate) fn open(
        listener: TcpListener,
        run: &str,
        world: u32,
        token: &Token,
        accept: impl Fn(u64, &TcpStream, Peer) + Clone + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        listener.set_nonblocking(true)?;
        let (is_open, pending) = (AtomicBool::new(true), AtomicU64::new(0));
        let gate = Self { run: run.to_owned(), world, token: token.clone(), is_open, pending };
        let gate = Arc::new(gate);
        let shared = gate.clone();
        spawn("splat-ranks-accept", move || shared.listen(&listener, &accept))?;
        Ok(gate)
    }

    /// Ends the listening.
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
                // Nobody is there, or a caller went away again.
                thread::sleep(PAUSE);
                continue;
            };
            let pending = self.pending.fetch_add(1, Ordering::AcqRel);
            connection += 1;
            let (gate, accept) = (self.clone(), accept.clone());
            let serve = move || {
                let peer = gate.peer(&stream);
                gate.pending.fetch_sub(1, Ordering::AcqRel);
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

    /// The handshake with a new connection; none for a stranger, who is told why.
    fn peer(&self, mut stream: &TcpStream) -> Option<Peer> {
        stream.set_nonblocking(false).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_write_timeout(Some(WRITE_TIME)).ok()?;
        let (name, challenge) = ("a new connection", random().ok()?);
        let (magic, run, nonce) = (MAGIC.to_owned(), self.run.clone(), hex(&challenge));
        let first = FromCoordinator::Challenge { magic, protocol: PROTOCOL, run, nonce };
        message::write(&mut stream, &first, name).ok()?;
        let deadline = Instant::now() + HELLO_TIME;
        let message = message::read(&mut Until { stream, deadline }, name).ok()?;
        stream.set_read_timeout(None).ok()?;
        let FromRank::Hello { introduction: text, proof } = message else { return None };
        if !self.token.is_proven(Prover::Rank, &challenge, text.as_bytes(), &proof) {
            let why =
                "it does not know the secret of this run: give all ranks the same SPLAT_TOKEN";
            let rejected = FromCoordinator::Rejected { why: why.to_owned() };
            drop(message::write(&mut stream, &rejected, name));
            return None;
        }
        // Only these fields of another protocol can be read.
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

/// Time for one attempt to connect: a listener that answers later is asked again.
const ATTEMPT_TIME: Duration = Duration::from_secs(2);

/// Pause between two attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// A connection to the listener of the run.
pub(crate) struct Found {
    pub(crate) stream: TcpStream,
    /// The listener's number used once.
    pub(crate) nonce: [u8; 16],
}

impl Found {
    /// Proves that this rank knows the token, and checks that the listener does.
    pub(crate) fn introduce(
        &self,
        token: &Token,
        introduction: Introduction,
        deadline: Instant,
    ) -> Result<(), JoinError> {
        let rank = introduction.rank;
        let system = |what| move |source| JoinError::System { rank, what, source };
        let conversation = |source| JoinError::Conversation { rank, source };
        let nonce = random().map_err(system("taking random numbers"))?;
        let introduction = Introduction { nonce: hex(&nonce), ..introduction };
        let text = serde_json::to_string(&introduction)
            .map_err(|error| system("writing an introduction")(error.into()))?;
        let proof = token.proof(Prover::Rank, &self.nonce, text.as_bytes());
        let hello = FromRank::Hello { introduction: text.clone(), proof };
        let peer = "the coordinator";
        message::write(&mut &self.stream, &hello, peer).map_err(conversation)?;
        let mut reader = Until { stream: &self.stream, deadline };
        let is_proven = match message::read(&mut reader, peer).map_err(conversation)? {
            FromCoordinator::Proven { proof } => {
                token.is_proven(Prover::Coordinator, &nonce, text.as_bytes(), &proof)
            }
            // A peer that rejects a rank gets nothing from it; one of another version or with another
            // secret cannot prove anything.
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

/// Connects, and asks whether this is the listener of the run.
pub(crate) fn ask(address: SocketAddr, run: &str, deadline: Instant) -> Result<Found, String> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let failed = |error: io::Error| format!("{address}: {error}");
    let stream = TcpStream::connect_timeout(&address, left).map_err(failed)?;
    // If nobody listens at a port of the own machine, the system may connect a caller with itself.
    if stream.local_addr().ok() == stream.peer_addr().ok() {
        return Err(format!("{address}: nobody listens"));
    }
    stream.set_nodelay(true).map_err(failed)?;
    let mut reader = Until { stream: &stream, deadline };
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
    Ok(Found { stream, nonce })
}

/// Tries all ports in turn until the listener of the run answers or the deadline is over.
///
/// The error is that of the last attempt.
pub(crate) fn search(
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
                match ask(address, run, deadline.min(Instant::now() + ATTEMPT_TIME)) {
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
/// Only the interface that the host's name stands for is opened: a name of this machine alone opens no
/// other, and is an error if there are ranks on other hosts. All interfaces are opened if the name stands
/// for another machine's address: the other hosts know rank 0 by that.
pub(crate) fn open_place(
    host: &str,
    ports: &[u16],
    has_other_hosts: bool,
) -> Result<TcpListener, JoinError> {
    let no_port = |source| JoinError::NoPort { place: place_in_words(host, ports), source };
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

/// Listens at the first free port of an interface; the error is that of the last port.
fn first_free(ip: IpAddr, ports: &[u16]) -> io::Result<TcpListener> {
    let nothing = Err(io::ErrorKind::AddrNotAvailable.into());
    ports.iter().fold(nothing, |found, &port| found.or_else(|_| TcpListener::bind((ip, port))))
}

/// `host:4000` or `host:4000-4015`.
pub(crate) fn place_in_words(host: &str, ports: &[u16]) -> String {
    match ports {
        [] => format!("{host} (no port)"),
        [port] => format!("{host}:{port}"),
        [first, .., last] => format!("{host}:{first}-{last}"),
    }
}

//! How ranks that are processes find one another: a connection for each pair, between ends that know the key.
//!
//! A rank is the guest of all ranks below it and the host of those above it. Guest and host greet, the host
//! proves first, then the guest, then the host confirms with one byte. A guest that is sent away comes again
//! until its patience ends: a host may have lost patience with it while the machine was busy.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::error::ExchangeError;
use super::proof::{GREETING_LEN, Greeting, Greetings, PROOF_LEN, Side};

/// How long a host hears a guest: it may be a stranger who says nothing.
const HEARING: Duration = Duration::from_millis(1500);

/// Guests that a host hears at once.
const MOST_GUESTS: usize = 256;

/// The most patience that counts: a year, since a clock cannot tell any time from now.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// How often a thread that waits looks whether the meeting is over.
const GLANCE: Duration = Duration::from_millis(50);

/// Pause of a guest before it comes again, and of a host between looks for guests.
const PAUSE: Duration = Duration::from_millis(5);

/// The host's last byte.
const CONFIRMED: u8 = b'+';

/// What a rank needs to join the others over sockets.
pub struct Mesh {
    /// This rank, from 0.
    pub rank: u32,
    /// Where the ranks above this one connect. It is closed once all have joined.
    pub listener: TcpListener,
    /// Where each rank listens, by rank, this one included: as many as there are ranks.
    pub peers: Vec<SocketAddr>,
    /// The secret of the group, the same on all ranks. Both ends of each connection prove that they know
    /// it; the connections never carry it.
    pub key: [u8; 16],
    /// How long to wait for the others to join.
    pub patience: Duration,
}

impl Mesh {
    /// How many ranks there are, if this rank is one of them.
    pub(super) fn world(&self) -> Result<u32, ExchangeError> {
        let world = u32::try_from(self.peers.len()).ok().filter(|&world| self.rank < world);
        world.ok_or(ExchangeError::NoSuchRank { rank: self.rank, world: self.peers.len() })
    }
}

/// Why a guest was not let in.
enum NotAdmitted {
    /// It may be another time.
    NotNow(String),
    /// The host does not know the key.
    Unproven,
}

impl From<io::Error> for NotAdmitted {
    fn from(error: io::Error) -> Self {
        Self::NotNow(error.to_string())
    }
}

/// What the threads of a rank that joins share.
struct Gathering<'a> {
    mesh: &'a Mesh,
    world: u32,
    until: Instant,
    is_over: AtomicBool,
    guests: AtomicUsize,
    so_far: Mutex<JoinedSoFar>,
}

#[derive(Default)]
struct JoinedSoFar {
    /// Connections by rank.
    streams: Vec<Option<TcpStream>>,
    last_trouble: Option<String>,
    fatal: Option<ExchangeError>,
}

/// Connects this rank with all others; returns the connections by rank, none for itself.
pub(super) fn meet(mesh: &Mesh) -> Result<Vec<Option<TcpStream>>, ExchangeError> {
    let world = mesh.world()?;
    let streams = mesh.peers.iter().map(|_| None).collect();
    let meeting = Gathering {
        mesh,
        world,
        until: Instant::now() + mesh.patience.min(LONGEST),
        is_over: AtomicBool::new(false),
        guests: AtomicUsize::new(0),
        so_far: Mutex::new(JoinedSoFar { streams, ..JoinedSoFar::default() }),
    };
    mesh.listener.set_nonblocking(true).map_err(system("listen for other ranks"))?;
    thread::scope(|scope| {
        for host in 0..mesh.rank {
            let meeting = &meeting;
            let visit = move || meeting.visit(host);
            let visitor = thread::Builder::new().name(format!("to rank {host}"));
            if let Err(error) = visitor.spawn_scoped(scope, visit) {
                meeting.give_up(system("start a thread")(error));
            }
        }
        meeting.receive(scope);
    });
    let found = meeting.so_far.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = found.fatal {
        return Err(error);
    }
    let of_others = (0..).zip(&found.streams).filter(|(rank, _)| *rank != mesh.rank);
    let missing: Vec<_> =
        of_others.filter_map(|(rank, stream)| stream.is_none().then_some(rank)).collect();
    if missing.is_empty() {
        return Ok(found.streams);
    }
    Err(ExchangeError::Missing {
        ranks: missing,
        seconds: mesh.patience.as_secs(),
        trouble: found.last_trouble.unwrap_or_else(|| "none".to_owned()),
    })
}

/// The error for what the system refuses.
pub(super) fn system(doing: &'static str) -> impl Fn(io::Error) -> ExchangeError {
    move |error| ExchangeError::System { doing, why: error.to_string() }
}

impl Gathering<'_> {
    /// A thread that panics holding the lock leaves the state whole: each change is one statement.
    fn so_far(&self) -> MutexGuard<'_, JoinedSoFar> {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) || Instant::now() >= self.until
    }

    fn give_up(&self, error: ExchangeError) {
        self.so_far().fatal.get_or_insert(error);
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Connects to a rank below this one, again and again.
    fn visit(&self, host: u32) {
        while !self.is_over() {
            match self.call_on(host) {
                Ok(stream) => {
                    self.so_far().streams[host as usize] = Some(stream);
                    return;
                }
                Err(NotAdmitted::Unproven) => {
                    let address = self.mesh.peers[host as usize];
                    return self.give_up(ExchangeError::Unproven { rank: host, address });
                }
                // Whoever is called away because the meeting is over has no trouble to tell.
                Err(NotAdmitted::NotNow(why)) if !self.is_over() => {
                    self.so_far().last_trouble = Some(format!("rank {host}: {why}"));
                    thread::sleep(PAUSE);
                }
                Err(NotAdmitted::NotNow(_)) => {}
            }
        }
    }

    fn call_on(&self, host: u32) -> Result<TcpStream, NotAdmitted> {
        let left = self.until.saturating_duration_since(Instant::now());
        // Not more than a second at once: the meeting may end while the address does not answer.
        let at_once = left.clamp(Duration::from_millis(1), Duration::from_secs(1));
        let stream = TcpStream::connect_timeout(&self.mesh.peers[host as usize], at_once)?;
        set_up(&stream)?;
        let guest = self.greeting(host)?;
        (&stream).write_all(&guest.to_bytes())?;
        let host_greeting = self.hear(&stream, self.until)?;
        if (host_greeting.from, host_greeting.to) != (host, self.mesh.rank) {
            return Err(NotAdmitted::NotNow("another rank listens at its address".to_owned()));
        }
        let greetings = Greetings { guest, host: host_greeting };
        let proof = self.read::<PROOF_LEN>(&stream, self.until)?;
        if !greetings.is_proven(&self.mesh.key, Side::Host, &proof) {
            return Err(NotAdmitted::Unproven);
        }
        (&stream).write_all(&greetings.proof(&self.mesh.key, Side::Guest))?;
        if self.read(&stream, self.until)? != [CONFIRMED] {
            return Err(NotAdmitted::NotNow("it did not confirm".to_owned()));
        }
        settle(&stream)?;
        Ok(stream)
    }

    /// Hears whoever connects until all are there, each in a thread of its own.
    fn receive<'scope>(&'scope self, scope: &'scope thread::Scope<'scope, '_>) {
        while !self.is_over() {
            let present = self.so_far().streams.iter().flatten().count();
            if present + 1 == self.mesh.peers.len() {
                break;
            }
            if self.guests.load(Ordering::Relaxed) >= MOST_GUESTS {
                thread::sleep(PAUSE);
                continue;
            }
            match self.mesh.listener.accept() {
                Ok((stream, _)) => {
                    self.guests.fetch_add(1, Ordering::Relaxed);
                    let hearing = thread::Builder::new().name("guest".to_owned());
                    // Many strangers may take all threads; a rank that is sent away comes again.
                    if let Err(error) = hearing.spawn_scoped(scope, move || self.admit(stream)) {
                        self.guests.fetch_sub(1, Ordering::Relaxed);
                        self.so_far().last_trouble =
                            Some(format!("no thread for a guest: {error}"));
                    }
                }
                Err(error) => {
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.so_far().last_trouble = Some(format!("listening: {error}"));
                    }
                    thread::sleep(PAUSE);
                }
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn admit(&self, stream: TcpStream) {
        match self.hear_guest(&stream) {
            // The newest connection of a rank counts: it has given up the one before.
            Ok(guest) => self.so_far().streams[guest as usize] = Some(stream),
            Err(NotAdmitted::NotNow(_)) if self.is_over() => {}
            Err(NotAdmitted::NotNow(why)) => {
                self.so_far().last_trouble = Some(format!("a connection was refused: {why}"));
            }
            Err(NotAdmitted::Unproven) => {
                let why = "a connection was refused: it does not know the key";
                self.so_far().last_trouble = Some(why.to_owned());
            }
        }
        self.guests.fetch_sub(1, Ordering::Relaxed);
    }

    /// The rank of a guest that proves itself.
    fn hear_guest(&self, stream: &TcpStream) -> Result<u32, NotAdmitted> {
        let until = self.until.min(Instant::now() + HEARING);
        // On some systems a connection inherits this from its listener.
        stream.set_nonblocking(false)?;
        set_up(stream)?;
        let guest = self.hear(stream, until)?;
        if guest.to != self.mesh.rank || guest.from <= self.mesh.rank || guest.from >= self.world {
            let why = format!("rank {} has no business with this rank", guest.from);
            return Err(NotAdmitted::NotNow(why));
        }
        let greetings = Greetings { guest, host: self.greeting(guest.from)? };
        let mut answer = greetings.host.to_bytes().to_vec();
        answer.extend(greetings.proof(&self.mesh.key, Side::Host));
        let mut stream = stream;
        stream.write_all(&answer)?;
        let no_proof = |error| {
            NotAdmitted::NotNow(format!("{error} where it was to prove that it knows the key"))
        };
        let proof = self.read(stream, until).map_err(no_proof)?;
        if !greetings.is_proven(&self.mesh.key, Side::Guest, &proof) {
            return Err(NotAdmitted::Unproven);
        }
        settle(stream)?;
        stream.write_all(&[CONFIRMED])?;
        Ok(guest.from)
    }

    fn greeting(&self, to: u32) -> Result<Greeting, NotAdmitted> {
        let mut nonce = [0; 32];
        let no_random = |error| NotAdmitted::NotNow(format!("no random numbers: {error}"));
        getrandom::fill(&mut nonce).map_err(no_random)?;
        Ok(Greeting { from: self.mesh.rank, to, world: self.world, nonce })
    }

    /// The other end's greeting, if it is of the same protocol and world.
    fn hear(&self, stream: &TcpStream, until: Instant) -> Result<Greeting, NotAdmitted> {
        let greeting = Greeting::from_bytes(&self.read::<GREETING_LEN>(stream, until)?);
        let stranger = || NotAdmitted::NotNow("it is no rank of this version".to_owned());
        let greeting = greeting.ok_or_else(stranger)?;
        if greeting.world != self.world {
            let (found, world) = (greeting.world, self.world);
            return Err(NotAdmitted::NotNow(format!("it is one of {found} ranks, not of {world}")));
        }
        Ok(greeting)
    }

    /// So many bytes, by this time and before the meeting is over.
    fn read<const N: usize>(&self, mut stream: &TcpStream, until: Instant) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        let mut got = 0;
        while got < N {
            if self.is_over() || Instant::now() >= until {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time"));
            }
            match stream.read(&mut bytes[got..]) {
                Ok(0) => return Err(io::Error::other("it closed the connection")),
                Ok(count) => got += count,
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(bytes)
    }
}

/// Whether nothing came for a while, which is no failure.
fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn set_up(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(GLANCE))?;
    stream.set_write_timeout(Some(HEARING))
}

/// From now on a rank may wait for hours.
fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)
}

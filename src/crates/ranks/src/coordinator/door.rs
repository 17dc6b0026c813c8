//! Lets ranks in, and listens to those who are.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread;
use std::time::{Duration, Instant};

use crate::message::{self, MessageError};
use crate::patient::Until;
use crate::token::{Prover, Token, bytes_from_hex, hex, random};
use crate::wire::{Introduction, MAGIC, PROTOCOL, Said, Told};

use super::event::Event;

/// Time for a stranger to introduce himself. A rank does so at once; only lines are slow.
const HELLO_TIME: Duration = Duration::from_secs(10);

/// Strangers who may be at the door at one time, beside the ranks. More are sent away, so that
/// nobody can fill the memory with threads.
const STRANGERS: u64 = 64;

/// Time between two looks at the listener.
const LOOK: Duration = Duration::from_millis(10);

/// A write that takes longer is to somebody who does not read.
const WRITE_TIME: Duration = Duration::from_secs(1);

/// What is said and asked at the door.
pub(super) struct Door {
    pub(super) run: String,
    pub(super) world: u32,
    pub(super) token: Token,
    /// Taken back to end the listening.
    pub(super) is_open: AtomicBool,
    /// Who has not introduced himself yet.
    pub(super) strangers: AtomicU64,
}

impl Door {
    /// Whether this introduction comes from one who knows the same secret. The error is the reason,
    /// with the remedy.
    fn check(&self, nonce: &[u8; 16], introduction: &str, proof: &str) -> Result<(), &'static str> {
        let is_proven = self.token.is_proven(Prover::Rank, nonce, introduction.as_bytes(), proof);
        is_proven
            .then_some(())
            .ok_or("it does not know the secret of this run: give all ranks the same SPLAT_TOKEN")
    }
}

/// Accepts connections until the door is closed; each has a thread of its own, so that a slow one
/// holds up nobody.
pub(super) fn open(
    listener: TcpListener,
    door: Arc<Door>,
    events: Sender<Event>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let accept = move || {
        let mut connection = 0;
        while door.is_open.load(Ordering::Acquire) {
            let Ok((stream, _)) = listener.accept() else {
                // Nobody is there, or he went away again.
                thread::sleep(LOOK);
                continue;
            };
            let strangers = door.strangers.fetch_add(1, Ordering::AcqRel);
            connection += 1;
            let (inner, events) = (door.clone(), events.clone());
            let serve = move || serve(&stream, connection, &inner, &events);
            let is_full = strangers >= STRANGERS + u64::from(door.world);
            if is_full || spawn("splat-ranks-door", serve).is_err() {
                door.strangers.fetch_sub(1, Ordering::AcqRel);
            }
        }
    };
    spawn("splat-ranks-accept", accept)
}

/// Starts a thread that nobody waits for.
pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Serves one connection to its end.
fn serve(stream: &TcpStream, connection: u64, door: &Door, events: &Sender<Event>) {
    let event = introduction(stream, connection, door);
    door.strangers.fetch_sub(1, Ordering::AcqRel);
    let is_rank = matches!(event, Some(Event::Hello { .. }));
    // A failed send: the coordinator is gone, and so are its connections.
    if event.is_some_and(|event| events.send(event).is_err()) || !is_rank {
        return;
    }
    let mut reader = stream;
    let peer = format!("connection {connection}");
    while let Ok(said) = message::read::<Said>(&mut reader, &peer) {
        if events.send(Event::Said { connection, said }).is_err() {
            break;
        }
    }
    // One of the two may have failed before the program noticed: then the other end shall see it.
    drop(stream.shutdown(Shutdown::Both));
    drop(events.send(Event::Closed { connection }));
}

/// The handshake with somebody; none for a stranger, who is sent away.
fn introduction(stream: &TcpStream, connection: u64, door: &Door) -> Option<Event> {
    stream.set_nonblocking(false).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(WRITE_TIME)).ok()?;
    let peer = "a stranger";
    let nonce = random().ok()?;
    let challenge = Told::Challenge {
        magic: MAGIC.to_owned(),
        protocol: PROTOCOL,
        run: door.run.clone(),
        nonce: hex(&nonce),
    };
    let mut writer = stream;
    message::write(&mut writer, &challenge, peer).ok()?;
    let said = hello(stream, peer).ok()?;
    let Said::Hello { introduction, proof } = said else { return None };
    if let Err(why) = door.check(&nonce, &introduction, &proof) {
        drop(message::write(&mut writer, &Told::Turned { why: why.to_owned() }, peer));
        return None;
    }
    // Of another protocol these fields alone can be read.
    let fields: serde_json::Value = serde_json::from_str(&introduction).ok()?;
    let protocol = fields.get("protocol")?.as_u64()?;
    let event_stream = stream.try_clone().ok()?;
    if protocol != u64::from(PROTOCOL) {
        let rank = u32::try_from(fields.get("rank")?.as_u64()?).ok()?;
        return Some(Event::Foreign { stream: event_stream, rank, protocol });
    }
    let text = introduction;
    let introduction: Introduction = serde_json::from_value(fields).ok()?;
    let nonce = bytes_from_hex(&introduction.nonce)?;
    let proof = door.token.proof(Prover::Coordinator, &nonce, text.as_bytes());
    message::write(&mut writer, &Told::Proven { proof }, peer).ok()?;
    Some(Event::Hello { connection, stream: event_stream, introduction })
}

fn hello(stream: &TcpStream, peer: &str) -> Result<Said, MessageError> {
    let deadline = Instant::now() + HELLO_TIME;
    let said = message::read(&mut Until { stream, deadline }, peer)?;
    let forever = stream.set_read_timeout(None);
    forever.map_err(|source| MessageError::Failed { peer: peer.to_owned(), source })?;
    Ok(said)
}

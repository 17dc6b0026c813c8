//! The ranks that have come, and how to reach them.

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::claim::Claim;
use crate::departure::{Cause, Departure};
use crate::message;
use crate::wire::{Introduction, Told};

/// A rank that has come.
struct Seat {
    connection: u64,
    stream: TcpStream,
    introduction: Introduction,
    /// It has neither left nor gone.
    is_open: bool,
    /// Time since something was heard of it.
    quiet: Duration,
    progress: Option<u64>,
}

/// A place for each rank.
pub(super) struct Seats(Vec<Option<Seat>>);

impl Seats {
    pub(super) fn new(world: u32) -> Self {
        Self((0..world).map(|_| None).collect())
    }

    fn seat(&self, rank: u32) -> Option<&Seat> {
        self.0.get(rank as usize)?.as_ref()
    }

    fn seat_mut(&mut self, rank: u32) -> Option<&mut Seat> {
        self.0.get_mut(rank as usize)?.as_mut()
    }

    fn ranks(&self) -> impl Iterator<Item = (u32, &Seat)> {
        (0..).zip(&self.0).filter_map(|(rank, seat)| Some((rank, seat.as_ref()?)))
    }

    /// Gives a rank its place. The error is why it gets none: another one has it.
    pub(super) fn take(
        &mut self,
        connection: u64,
        stream: TcpStream,
        introduction: Introduction,
    ) -> Result<(), (TcpStream, String)> {
        let rank = introduction.rank;
        if let Some(Seat { introduction: first, .. }) = self.seat(rank) {
            let why = format!(
                "rank {rank} has already joined (host {}, pid {}): give each process its own rank",
                first.host, first.pid
            );
            return Err((stream, why));
        }
        if let Some(place) = self.0.get_mut(rank as usize) {
            let quiet = Duration::ZERO;
            let is_open = true;
            *place =
                Some(Seat { connection, stream, introduction, is_open, quiet, progress: None });
        }
        Ok(())
    }

    /// The rank that speaks by a connection.
    pub(super) fn rank_of(&self, connection: u64) -> Option<u32> {
        self.ranks().find(|(_, seat)| seat.connection == connection).map(|(rank, _)| rank)
    }

    pub(super) fn has_joined(&self) -> Vec<bool> {
        self.0.iter().map(Option::is_some).collect()
    }

    pub(super) fn missing(&self) -> Vec<u32> {
        (0..).zip(&self.0).filter(|(_, seat)| seat.is_none()).map(|(rank, _)| rank).collect()
    }

    /// Ranks that have come and neither left nor gone.
    pub(super) fn open_ranks(&self) -> Vec<u32> {
        self.ranks().filter(|(_, seat)| seat.is_open).map(|(rank, _)| rank).collect()
    }

    /// Claims and addresses by rank, of those that have come.
    pub(super) fn claims(&self) -> Vec<&[Claim]> {
        self.ranks().map(|(_, seat)| seat.introduction.claims.as_slice()).collect()
    }

    pub(super) fn data(&self) -> Vec<SocketAddr> {
        self.ranks().map(|(_, seat)| seat.introduction.data).collect()
    }

    pub(super) fn heard(&mut self, rank: u32, progress: Option<u64>) {
        if let Some(seat) = self.seat_mut(rank) {
            seat.quiet = Duration::ZERO;
            seat.progress = progress.or(seat.progress);
        }
    }

    /// Lets time pass. The first open rank that was silent for so long.
    pub(super) fn pass(&mut self, time: Duration, silence: Duration) -> Option<u32> {
        for seat in self.0.iter_mut().flatten() {
            seat.quiet += time;
        }
        self.ranks().find(|(_, seat)| seat.is_open && seat.quiet >= silence).map(|(rank, _)| rank)
    }

    /// Ends the connection of a rank that has left or is gone; its end is what a leaving rank waits
    /// for.
    pub(super) fn close(&mut self, rank: u32) {
        if let Some(seat) = self.seat_mut(rank) {
            seat.is_open = false;
            // It fails where the other end was faster.
            drop(seat.stream.shutdown(Shutdown::Both));
        }
    }

    /// Tells an open rank something. Whoever does not take it is cut off: his end is seen by his
    /// connection.
    pub(super) fn tell(&mut self, rank: u32, told: &Told) {
        let Some(seat) = self.seat(rank).filter(|seat| seat.is_open) else { return };
        if message::write(&mut &seat.stream, told, "a rank").is_err() {
            drop(seat.stream.shutdown(Shutdown::Both));
        }
    }

    pub(super) fn tell_all(&mut self, told: &Told) {
        for rank in self.open_ranks() {
            self.tell(rank, told);
        }
    }

    /// A rank's departure; `pid` counts for one that never came.
    pub(super) fn departure(&self, rank: u32, cause: Cause, pid: u32) -> Departure {
        let seat = self.seat(rank);
        Departure {
            rank: Some(rank),
            host: self.host_of(rank),
            pid: seat.map_or(pid, |seat| seat.introduction.pid),
            cause,
            progress: seat.and_then(|seat| seat.progress),
        }
    }

    /// A rank's host, if the ranks are on several.
    fn host_of(&self, rank: u32) -> Option<String> {
        let host = &self.seat(rank)?.introduction.host;
        let are_several = self.ranks().any(|(_, other)| other.introduction.host != *host);
        are_several.then(|| host.clone())
    }
}

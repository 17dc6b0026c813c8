//! Ranks that are threads of one process.

use std::sync::Arc;

use super::desk::{Desk, Post};
use super::error::ExchangeError;
use super::inbox::{Inbox, Letter};
use super::{Aborter, Exchange};

/// A rank that is a thread of a group in one process. To drop it is to leave the group: the others get
/// [`ExchangeError::Lost`] where they need it.
#[derive(Debug)]
pub struct Threads {
    desk: Desk<GroupMember>,
}

impl Threads {
    /// A group of so many ranks, by rank. Each is for a thread of its own; a group of one passes
    /// everything through.
    pub fn group(world: u32) -> Vec<Self> {
        let inboxes: Arc<[Inbox]> = (0..world).map(|_| Inbox::of_world(world)).collect();
        let member = |rank| GroupMember { rank, inboxes: Arc::clone(&inboxes) };
        (0..world).map(|rank| Self { desk: Desk::new(rank, world, member(rank)) }).collect()
    }
}

impl Exchange for Threads {
    fn rank(&self) -> u32 {
        self.desk.rank()
    }

    fn world(&self) -> u32 {
        self.desk.world()
    }

    fn all_to_all(&mut self, outgoing: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.desk.all_to_all(outgoing)
    }

    fn all_gather(&mut self, mine: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.desk.all_gather(mine)
    }

    fn broadcast(&mut self, bytes: Option<Vec<u8>>) -> Result<Vec<u8>, ExchangeError> {
        self.desk.broadcast(bytes)
    }

    fn check(&self, with: u32) -> Result<(), ExchangeError> {
        self.desk.check(with)
    }

    fn aborter(&self) -> Aborter {
        let member = self.desk.post();
        let (rank, inboxes) = (member.rank, Arc::clone(&member.inboxes));
        Aborter::new(move || leave(&inboxes, rank))
    }
}

/// A member's way to the inboxes of all, by rank.
#[derive(Debug)]
struct GroupMember {
    rank: u32,
    inboxes: Arc<[Inbox]>,
}

impl Post for GroupMember {
    fn inbox(&self) -> &Inbox {
        &self.inboxes[self.rank as usize]
    }

    fn send(&self, to: u32, letter: Letter) -> bool {
        let inbox = &self.inboxes[to as usize];
        let has_room = inbox.has_room(self.rank);
        if has_room {
            inbox.put(self.rank, letter);
        }
        has_room
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        leave(&self.inboxes, self.rank);
    }
}

/// Ends a member's own calls first: one that waits for room with another must find that it is its own end
/// that woke it.
fn leave(inboxes: &[Inbox], rank: u32) {
    inboxes[rank as usize].shut();
    for (_, inbox) in (0..).zip(inboxes).filter(|(other, _)| *other != rank) {
        let why = "it has ended its exchange".to_owned();
        inbox.end(rank, ExchangeError::Lost { rank, why });
    }
}

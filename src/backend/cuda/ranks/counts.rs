//! How much of a rank's rows the views of all ranks see.

use crate::abi::{Counts, Out};
use crate::backend::DeviceError;
use crate::backend::cuda::memory::heap::{Buffer, Pinned, Region};
use crate::backend::cuda::session::Session;
use crate::layout::{RANK_COUNTS, RANK_COUNTS_READ};

/// Words of [`Counts`]: instances, visible.
const WORDS: usize = 2;
const _: () = assert!(size_of::<Counts>() == WORDS * size_of::<u64>(), "words of the counts");

/// What projections count, of one view for each rank.
pub(super) struct ViewCounts {
    words: Region<u64>,
    host: Pinned<u64>,
    own: Pinned<u64>,
}

impl ViewCounts {
    pub(super) fn new(session: &Session, world: u32) -> Result<Self, DeviceError> {
        let mut words = session.heap.region(&RANK_COUNTS)?;
        words.grow(world as usize * WORDS)?;
        let host = session.heap.pinned(&RANK_COUNTS_READ, &world.into())?;
        Ok(Self { words, host, own: session.heap.pinned(&RANK_COUNTS_READ, &1)? })
    }

    /// Has all begin with nothing.
    pub(super) fn clear(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.words.zero(&session.stream)
    }

    /// Where the projection into the view of a rank counts.
    pub(super) fn of(&mut self, rank: u32) -> Out<'_, Counts> {
        Out::at(self.words.address() + u64::from(rank) * size_of::<Counts>() as u64)
    }

    /// Has the counts of the other ranks' views come to the host, before the own view is projected.
    pub(super) fn fetch_others(&mut self, session: &Session) -> Result<(), DeviceError> {
        let all = 0..self.words.len();
        self.words.download_pinned(&session.stream, all, &mut self.host)
    }

    /// The same of the own view, once it is projected.
    pub(super) fn fetch_own(&mut self, session: &Session, rank: u32) -> Result<(), DeviceError> {
        let first = rank as usize * WORDS;
        self.words.download_pinned(&session.stream, first..first + WORDS, &mut self.own)
    }

    /// Splats, and pairs of a splat and a tile, by rank; 0 of the own view. Waits for the device.
    pub(super) fn others(&self) -> Result<Vec<[u64; 2]>, DeviceError> {
        Ok(counted(self.host.as_slice()?).collect())
    }

    /// The same of the own view.
    pub(super) fn own(&self) -> Result<[u64; 2], DeviceError> {
        Ok(counted(self.own.as_slice()?).next().unwrap_or_default())
    }
}

fn counted(words: &[u64]) -> impl Iterator<Item = [u64; 2]> {
    // The upper half of the second word has no meaning.
    let counts = words.as_chunks::<WORDS>().0.iter();
    counts.map(|&[instances, visible]| [visible & u64::from(u32::MAX), instances])
}

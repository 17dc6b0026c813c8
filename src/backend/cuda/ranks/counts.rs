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
}

impl ViewCounts {
    pub(super) fn new(session: &Session, world: u32) -> Result<Self, DeviceError> {
        let mut words = session.heap.region(&RANK_COUNTS)?;
        words.grow(world as usize * WORDS)?;
        Ok(Self { words, host: session.heap.pinned(&RANK_COUNTS_READ, &world.into())? })
    }

    /// Has all begin with nothing.
    pub(super) fn clear(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.words.zero(&session.stream)
    }

    /// Where the projection into the view of a rank counts.
    pub(super) fn of(&mut self, rank: u32) -> Out<'_, Counts> {
        Out::at(self.words.address() + u64::from(rank) * size_of::<Counts>() as u64)
    }

    /// Splats, and pairs of a splat and a tile, by rank. Waits for the device.
    pub(super) fn read(&mut self, session: &Session) -> Result<Vec<[u64; 2]>, DeviceError> {
        let all = 0..self.words.len();
        self.words.download_pinned(&session.stream, all, &mut self.host)?;
        let words = self.host.as_slice()?;
        // The upper half of the second word has no meaning.
        let counts = words.as_chunks::<WORDS>().0.iter();
        Ok(counts.map(|&[instances, visible]| [visible & u64::from(u32::MAX), instances]).collect())
    }
}

//! CUDA backend and rows of a rank: distribution, reading and sorting of rows.

use std::ops::Range;

use super::link::GpuLink;
use crate::abi::Counts;
use crate::backend::cuda::Cuda;
use crate::backend::cuda::memory::heap::{Pinned, Region};
use crate::backend::cuda::prelude::*;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{DealtRows, RankLine, Shard, rows};
use crate::backend::{Candidates, ModelShape, Rows, Snapshot, Store as _};
use crate::layout::{RANK_COUNTS, RANK_COUNTS_READ};
use crate::math::morton::Cube;
use crate::memory::plan::OptionalColumns;
use crate::model::Gaussians;

/// Rows of a model on one rank.
pub struct CudaShare {
    pub(super) local: Model,
    /// Ranks of all rows, in the order of ranks.
    pub(super) numbering: Numbering,
}

impl CudaShare {
    /// Returns the ratio of all rows to those of this rank, or 1 if it has none.
    pub(super) fn scale(&self) -> f64 {
        if self.local.is_empty() {
            1.0
        } else {
            self.numbering.len() as f64 / self.local.len() as f64
        }
    }
}

/// CUDA backend of a rank.
pub struct CudaShard {
    /// `None` before [`Shard::connect`]. Dropped before the device.
    pub(super) link: Option<GpuLink>,
    pub(super) counts: Option<ViewCounts>,
    pub(super) cuda: Cuda,
    pub(super) line: RankLine,
    /// Largest number of splats of this rank's rows in a view of another rank.
    pub(super) most_in_part: u64,
    /// Result of the last scoring.
    pub(super) scored: Option<ScoredShares>,
}

/// Candidates of all ranks.
pub(super) struct ScoredShares {
    /// Candidates of this rank.
    pub(super) own: Candidates,
    /// Number of candidates, by rank.
    pub(super) counts: Vec<usize>,
}

impl CudaShard {
    /// Wraps the backend of a rank and its connection to the others.
    pub fn new(mut cuda: Cuda, line: RankLine) -> Self {
        // Ranks must round by different random numbers.
        cuda.session.seed ^= u64::from(line.rank()) << 32;
        Self { cuda, line, link: None, counts: None, most_in_part: 0, scored: None }
    }

    pub(super) fn rank(&self) -> u32 {
        self.line.rank()
    }

    pub(super) fn world(&self) -> u32 {
        self.line.world()
    }

    /// Derives a key of random numbers for this rank from a key of all ranks.
    pub(super) fn own_key(&self, key: u64) -> u64 {
        // Rank 0 has the same key as a single process.
        key ^ u64::from(self.rank()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

impl Shard for CudaShard {
    type Device = Cuda;
    type Share = CudaShare;

    const MUST_DRAW: bool = true;

    fn device(&mut self) -> &mut Cuda {
        &mut self.cuda
    }

    fn as_device(&self) -> &Cuda {
        &self.cuda
    }

    fn line(&self) -> &RankLine {
        &self.line
    }

    fn local(share: &CudaShare) -> &Model {
        &share.local
    }

    fn local_mut(share: &mut CudaShare) -> &mut Model {
        &mut share.local
    }

    fn connect(&mut self) -> Result {
        let (line, session) = (&self.line, &self.cuda.session);
        self.link = Some(session.charge_library(|| GpuLink::join(line, session))?);
        self.counts = Some(ViewCounts::new(session, self.line.world())?);
        Ok(())
    }
}

impl DealtRows for CudaShard {
    fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<CudaShare, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let numbering = Numbering::dealt(self.world(), source.len());
        let mut rows = rows::deal(&self.line, &numbering, source, sh_degree);
        let local = self.cuda.load(&mut rows)?;
        rows.end()?;
        Ok(CudaShare { local, numbering: numbering.in_turn() })
    }

    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<CudaShare> {
        let numbering = Numbering::dealt(self.world(), rows);
        let mut rows = rows::take(&self.line, &numbering, sh_degree);
        let local = self.cuda.load(&mut rows)?;
        rows.end()?;
        Ok(CudaShare { local, numbering: numbering.in_turn() })
    }

    fn read(
        &mut self,
        share: &mut CudaShare,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        rows::read(&self.line, &share.numbering, numbers, |rows| cuda.read(local, rows))
    }

    fn sample(&mut self, share: &mut CudaShare, numbers: &[usize]) -> Result<Option<Gaussians>> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        rows::sample(&self.line, &share.numbering, numbers, |rows| cuda.sample(local, rows))
    }

    fn shape(&self, share: &CudaShare) -> ModelShape {
        // The bytes of all ranks are estimated from this rank.
        let own = self.cuda.shape(&share.local);
        let rows = share.numbering.len();
        let scaled = |bytes: Bytes| Bytes(bytes.0 * rows as u64 / own.rows.max(1) as u64);
        let optional = if rows == 0 { OptionalColumns::NONE } else { own.optional };
        let [parameters, optimizer] = [own.parameters, own.optimizer].map(scaled);
        ModelShape { rows, optional, parameters, optimizer }
    }

    fn reorder(&mut self, share: &mut CudaShare, cube: &Cube) -> Result {
        match self.cuda.reorder(&mut share.local, cube) {
            // Unsorted rows only make this rank slower.
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians of this rank are not put in order: {error}");
                Ok(())
            }
            done => done,
        }
    }

    fn grant(&mut self, share: &mut CudaShare, wish: usize) -> Result<usize> {
        // New Gaussians are distributed in proportion to these counts.
        let rows = share.numbering.counts();
        let counts = self.scored.as_ref().map_or(rows, |scored| scored.counts.clone());
        let rank = self.rank() as usize;
        let own = parts(wish, &counts)[rank];
        let granted = self.cuda.grant_new_gaussians(&mut share.local, own)?;
        if granted == own {
            return Ok(wish);
        }
        // This rank's part of the result, rounded up or down, must not exceed the granted number.
        let all = counts.iter().sum::<usize>() as u128;
        let allowed = granted.saturating_sub(1) as u128 * all / counts[rank].max(1) as u128;
        Ok(usize::try_from(allowed).unwrap_or(wish).min(wish))
    }
}

/// Divides `wanted` among the ranks in proportion to `counts`.
pub(super) fn parts(wanted: usize, counts: &[usize]) -> Vec<usize> {
    let total = counts.iter().sum::<usize>().max(1) as u128;
    // The sums are rounded, so that the parts add up to `wanted`.
    let upto = |sum: usize| usize::try_from(wanted as u128 * sum as u128 / total).unwrap_or(wanted);
    let mut before = 0;
    let part = |&count: &usize| {
        let first = upto(before);
        before += count;
        upto(before) - first
    };
    counts.iter().map(part).collect()
}

/// Words of [`Counts`]: instances, visible.
const WORDS: usize = 2;
const _: () = assert!(size_of::<Counts>() == WORDS * size_of::<u64>(), "words of the counts");

/// Counts of projections, of one view for each rank.
pub(super) struct ViewCounts {
    words: Region<u64>,
    host: Pinned<u64>,
    own: Pinned<u64>,
}

impl ViewCounts {
    pub(super) fn new(session: &Session, world: u32) -> Result<Self> {
        let mut words = session.heap.region(&RANK_COUNTS)?;
        words.grow(world as usize * WORDS)?;
        let host = session.heap.pinned(&RANK_COUNTS_READ, &world.into())?;
        Ok(Self { words, host, own: session.heap.pinned(&RANK_COUNTS_READ, &1)? })
    }

    /// Sets all counts to 0.
    pub(super) fn clear(&mut self, session: &Session) -> Result {
        self.words.zero(&session.stream)
    }

    /// Returns the counts of the projection into the view of a rank.
    pub(super) fn of(&mut self, rank: u32) -> Out<'_, Counts> {
        Out::at(self.words.address() + u64::from(rank) * size_of::<Counts>() as u64)
    }

    /// Copies the counts of the other ranks' views to the host, before the own view is projected.
    pub(super) fn fetch_others(&mut self, session: &Session) -> Result {
        let all = 0..self.words.len();
        self.words.download_pinned(&session.stream, all, &mut self.host)
    }

    /// Copies the counts of the own view to the host, once it is projected.
    pub(super) fn fetch_own(&mut self, session: &Session, rank: u32) -> Result {
        let first = rank as usize * WORDS;
        self.words.download_pinned(&session.stream, first..first + WORDS, &mut self.own)
    }

    /// Returns the numbers of splats and of splat-tile pairs by rank, 0 for the own view. Waits for the device.
    pub(super) fn others(&self) -> Result<Vec<[u64; 2]>> {
        Ok(counted(self.host.as_slice()?).collect())
    }

    /// Returns the counts of the own view. Waits for the device.
    pub(super) fn own(&self) -> Result<[u64; 2]> {
        Ok(counted(self.own.as_slice()?).next().unwrap_or_default())
    }
}

fn counted(words: &[u64]) -> impl Iterator<Item = [u64; 2]> {
    // The upper half of the second word has no meaning.
    let counts = words.as_chunks::<WORDS>().0.iter();
    counts.map(|&[instances, visible]| [visible & u64::from(u32::MAX), instances])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_none_is_more_than_there_is() {
        for (wanted, counts) in [
            (10, vec![5, 5, 5]),
            (15, vec![5, 5, 5]),
            (7, vec![1, 0, 9]),
            (0, vec![3, 4]),
            (1, vec![0, 0, 2]),
            (1_000_003, vec![900_000, 30, 800_000, 1]),
        ] {
            let found = parts(wanted, &counts);
            assert_eq!(found.iter().sum::<usize>(), wanted, "{counts:?}");
            assert!(found.iter().zip(&counts).all(|(part, count)| part <= count), "{found:?}");
        }
        assert_eq!(parts(5, &[0, 0]), [0, 0]);
        assert_eq!(parts(100, &[300, 100]), [75, 25]);
    }
}

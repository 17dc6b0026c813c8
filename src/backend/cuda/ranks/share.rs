//! The GPU of a rank, and the rows that it has: given to ranks, read from them and put in order.

use std::ops::Range;

use super::density::parts;
use super::link::GpuLink;
use super::projection::ViewCounts;
use crate::backend::cuda::Cuda;
use crate::backend::cuda::model::tables::Model;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{DealtRows, RankLine, Shard, rows};
use crate::backend::{Candidates, DeviceError, ModelShape, Rows, Snapshot, Store as _};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Gaussians;

/// The rows of a model that a rank has.
pub struct CudaShare {
    pub(super) local: Model,
    /// Which rank has which rows: one after the other.
    pub(super) numbering: Numbering,
}

impl CudaShare {
    /// Rows of all ranks for each of this one; 1 where it has none.
    pub(super) fn scale(&self) -> f64 {
        if self.local.is_empty() {
            1.0
        } else {
            self.numbering.len() as f64 / self.local.len() as f64
        }
    }
}

/// The GPU of one of the ranks.
pub struct CudaShard {
    /// Nothing until the ranks have met. Ends before the device does.
    pub(super) link: Option<GpuLink>,
    pub(super) counts: Option<ViewCounts>,
    pub(super) cuda: Cuda,
    pub(super) line: RankLine,
    /// The most splats that rows of this rank were in a view of another.
    pub(super) most_in_part: u64,
    /// Result of the last scoring.
    pub(super) scored: Option<ScoredShares>,
}

/// Candidates, by rank.
pub(super) struct ScoredShares {
    /// Candidates of this rank.
    pub(super) own: Candidates,
    /// Number of candidates, by rank.
    pub(super) counts: Vec<usize>,
}

impl CudaShard {
    /// The GPU of a rank, and its way to the others.
    pub fn new(mut cuda: Cuda, line: RankLine) -> Self {
        // Rows of two ranks are rounded by different numbers.
        cuda.session.seed ^= u64::from(line.rank()) << 32;
        Self { cuda, line, link: None, counts: None, most_in_part: 0, scored: None }
    }

    pub(super) fn rank(&self) -> u32 {
        self.line.rank()
    }

    pub(super) fn world(&self) -> u32 {
        self.line.world()
    }

    /// A key of random numbers of this rank alone, of one that all ranks have.
    pub(super) fn own_key(&self, key: u64) -> u64 {
        // Rank 0 has the key that one process would have.
        key ^ u64::from(self.rank()).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Returns the columns and bytes of the rows of all ranks, by those of this one.
    pub(super) fn shape_of_all(&self, share: &CudaShare) -> ModelShape {
        let own = self.cuda.shape(&share.local);
        let rows = share.numbering.len();
        let scaled = |bytes: Bytes| Bytes(bytes.0 * rows as u64 / own.rows.max(1) as u64);
        let optional = if rows == 0 { OptionalColumns::NONE } else { own.optional };
        let [parameters, optimizer] = [own.parameters, own.optimizer].map(scaled);
        ModelShape { rows, optional, parameters, optimizer }
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

    fn meet(&mut self) -> Result<(), DeviceError> {
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

    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<CudaShare, DeviceError> {
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
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        rows::read(&self.line, &share.numbering, numbers, |rows| cuda.read(local, rows))
    }

    fn sample(
        &mut self,
        share: &mut CudaShare,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError> {
        let (cuda, local) = (&mut self.cuda, &mut share.local);
        rows::sample(&self.line, &share.numbering, numbers, |rows| cuda.sample(local, rows))
    }

    fn shape(&self, share: &CudaShare) -> ModelShape {
        self.shape_of_all(share)
    }

    fn reorder(&mut self, share: &mut CudaShare, cube: &Cube) -> Result<(), DeviceError> {
        match self.cuda.reorder(&mut share.local, cube) {
            // It costs this rank some speed, and the others go on as they are told.
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("the Gaussians of this rank are not put in order: {error}");
                Ok(())
            }
            done => done,
        }
    }

    fn grant(&mut self, share: &mut CudaShare, wish: usize) -> Result<usize, DeviceError> {
        // As births are dealt out.
        let rows = share.numbering.counts();
        let counts = self.scored.as_ref().map_or(rows, |scored| scored.counts.clone());
        let rank = self.rank() as usize;
        let own = parts(wish, &counts)[rank];
        let granted = self.cuda.grant_births(&mut share.local, own)?;
        if granted == own {
            return Ok(wish);
        }
        // Of which this rank's part, rounded either way, is at most what is granted.
        let all = counts.iter().sum::<usize>() as u128;
        let allowed = granted.saturating_sub(1) as u128 * all / counts[rank].max(1) as u128;
        Ok(usize::try_from(allowed).unwrap_or(wish).min(wish))
    }
}

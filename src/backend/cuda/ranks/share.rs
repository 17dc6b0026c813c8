//! The GPU of a rank, and the rows that it has.

use super::counts::ViewCounts;
use super::link::GpuLink;
use crate::backend::cuda::Cuda;
use crate::backend::cuda::model::tables::Model;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{RankLine, Shard};
use crate::backend::{Candidates, DeviceError, ModelShape, Store as _};
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;

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
    /// What was found when the candidates were scored last.
    pub(super) scored: Option<ScoredShares>,
}

/// Candidates, by rank.
pub(super) struct ScoredShares {
    /// Of this rank.
    pub(super) own: Candidates,
    /// How many each rank has.
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

    /// What the rows of all ranks are made of, as those of this one are.
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

//! The processor of a rank, and the rows that it has.

use crate::backend::cpu::Cpu;
use crate::backend::cpu::model::{AmongRanks, Model};
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{RankLine, Shard};
use crate::memory::plan::OptionalColumns;

/// The rows of a model that a rank has.
#[derive(Clone, Debug)]
pub struct ModelShare {
    pub(super) local: Model<f32>,
    /// Which rank has which rows.
    pub(super) numbering: Numbering,
    /// The columns that the rows of all ranks have and not every model: a rank without rows does not show it.
    pub(super) optional: OptionalColumns,
}

impl ModelShare {
    /// These rows of a rank by this numbering.
    pub(super) fn new(local: Model<f32>, numbering: Numbering, rank: u32) -> Self {
        let (optional, none) = (local.optional(), Numbering::of_owners(0, []));
        let mut share = Self { local, numbering: none, optional };
        share.renumber(numbering, rank);
        share
    }

    /// Numbers the rows, which are as many, anew.
    pub(super) fn renumber(&mut self, numbering: Numbering, rank: u32) {
        let numbers = numbering.numbers_of(rank);
        debug_assert_eq!(numbers.len(), self.local.len());
        self.local.among = Some(AmongRanks { numbers, total: numbering.len() });
        self.numbering = numbering;
    }
}

/// The processor of one of the ranks.
pub struct CpuShard {
    pub(super) cpu: Cpu<f32>,
    pub(super) line: RankLine,
}

impl CpuShard {
    /// The processor of a rank, and its way to the others.
    pub fn new(cpu: Cpu<f32>, line: RankLine) -> Self {
        Self { cpu, line }
    }

    pub(super) fn rank(&self) -> u32 {
        self.line.rank()
    }

    pub(super) fn world(&self) -> u32 {
        self.line.world()
    }
}

impl Shard for CpuShard {
    type Device = Cpu<f32>;
    type Share = ModelShare;

    const MUST_DRAW: bool = false;

    fn device(&mut self) -> &mut Cpu<f32> {
        &mut self.cpu
    }

    fn as_device(&self) -> &Cpu<f32> {
        &self.cpu
    }

    fn line(&self) -> &RankLine {
        &self.line
    }

    fn local(share: &ModelShare) -> &Model<f32> {
        &share.local
    }

    fn local_mut(share: &mut ModelShare) -> &mut Model<f32> {
        &mut share.local
    }
}

//! CPU backend and rows of a rank: distribution, reading and sorting of rows.

use std::ops::Range;

use crate::backend::cpu::Cpu;
use crate::backend::cpu::model::{AmongRanks, Model};
use crate::backend::cpu::rows::RowBlock;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{DealtRows, RankLine, Shard, rows};
use crate::backend::{DeviceError, ModelShape, Rows, Snapshot, Store as _};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Primitive as _};

/// Rows of a model on one rank.
#[derive(Clone, Debug)]
pub struct ModelShare {
    pub(super) local: Model<f32>,
    /// Ranks of all rows.
    pub(super) numbering: Numbering,
    /// Optional columns of the whole model, because a rank without rows has none.
    pub(super) optional: OptionalColumns,
}

impl ModelShare {
    /// Wraps the rows of a rank in this numbering.
    pub(super) fn new(local: Model<f32>, numbering: Numbering, rank: u32) -> Self {
        let (optional, none) = (local.optional(), Numbering::of_owners(0, []));
        let mut share = Self { local, numbering: none, optional };
        share.renumber(numbering, rank);
        share
    }

    /// Replaces the numbering of an unchanged count of rows.
    pub(super) fn renumber(&mut self, numbering: Numbering, rank: u32) {
        let numbers = numbering.numbers_of(rank);
        debug_assert_eq!(numbers.len(), self.local.len());
        self.local.among = Some(AmongRanks { numbers, total: numbering.len() });
        self.numbering = numbering;
    }
}

/// CPU backend of a rank.
pub struct CpuShard {
    pub(super) cpu: Cpu<f32>,
    pub(super) line: RankLine,
}

impl CpuShard {
    /// Wraps the backend of a rank and its connection to the others.
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

impl DealtRows for CpuShard {
    fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<ModelShare, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let numbering = Numbering::dealt(self.world(), source.len());
        let optional = source.optional();
        let mut rows = rows::deal(&self.line, &numbering, source, sh_degree);
        let local = self.cpu.load(&mut rows)?;
        rows.end()?;
        Ok(ModelShare { optional, ..ModelShare::new(local, numbering, self.rank()) })
    }

    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<ModelShare, DeviceError> {
        let numbering = Numbering::dealt(self.world(), rows);
        let mut rows = rows::take(&self.line, &numbering, sh_degree);
        let local = self.cpu.load(&mut rows)?;
        rows.end()?;
        Ok(ModelShare::new(local, numbering, self.rank()))
    }

    fn read(
        &mut self,
        share: &mut ModelShare,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
        let own = |rows| Ok(share.local.read(rows));
        rows::read(&self.line, &share.numbering, numbers, own)
    }

    fn sample(
        &mut self,
        share: &mut ModelShare,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError> {
        let own = |rows: &[usize]| Ok(share.local.sample(rows));
        rows::sample(&self.line, &share.numbering, numbers, own)
    }

    /// Sorts all rows along the Z-curve and distributes them again.
    fn reorder(&mut self, share: &mut ModelShare, cube: &Cube) -> Result<(), DeviceError> {
        let places = &share.local.columns[0].values;
        let keys = places.as_chunks::<3>().0.iter().map(|&place| cube.key(place));
        let of_ranks = self.line.all_gather(&keys.collect::<Vec<_>>())?;
        share.numbering.check(&of_ranks, 1)?;
        let keys = share.numbering.in_order(&of_ranks, 1);
        let mut before_from_after: Vec<usize> = (0..keys.len()).collect();
        // The sort is stable.
        before_from_after.sort_by_key(|&number| keys[number]);
        self.follow(share, &before_from_after)
    }

    fn shape(&self, share: &ModelShare) -> ModelShape {
        // The bytes of all ranks are estimated from this rank.
        let (rows, own) = (share.numbering.len(), share.local.len().max(1) as u64);
        let [parameters, optimizer] =
            share.local.bytes().map(|bytes| Bytes(bytes.0 * rows as u64 / own));
        let optional = if rows == 0 { OptionalColumns::NONE } else { share.optional };
        ModelShape { rows, optional, parameters, optimizer }
    }

    fn grant(&mut self, _: &mut ModelShare, wish: usize) -> Result<usize, DeviceError> {
        Ok(wish)
    }
}

impl CpuShard {
    /// Renumbers the row of number `before_from_after[n]` to n, and distributes the rows again.
    fn follow(
        &mut self,
        share: &mut ModelShare,
        before_from_after: &[usize],
    ) -> Result<(), DeviceError> {
        let (rank, world) = (self.rank(), self.world() as usize);
        let dealt = Numbering::dealt(self.world(), before_from_after.len());
        let (mut leaving, mut arriving) = (vec![Vec::new(); world], vec![0; world]);
        // Earlier rank of each new row of this rank.
        let mut from = Vec::new();
        for (&before, after) in before_from_after.iter().zip(dealt.owners()) {
            let (owner, place) = share.numbering.find(before);
            if owner == rank {
                leaving[after as usize].push(place);
            }
            if after == rank {
                from.push(owner as usize);
                arriving[owner as usize] += 1;
            }
        }
        let outgoing: Vec<_> = leaving.iter().map(|rows| share.local.block(rows)).collect();
        let incoming: Vec<RowBlock<f32>> = self.line.all_to_all(&outgoing)?;
        let mut local =
            Model::with_room(&Gaussians::empty(share.local.sh_degree), 0, self.cpu.storage);
        let mut next = Vec::with_capacity(world);
        for ((rank, block), rows) in (0..).zip(&incoming).zip(&arriving) {
            check_block(&local, rank, block, *rows)?;
            next.push(local.len());
            local.append_block(block);
        }
        let mut row_from_place = Vec::with_capacity(from.len());
        for owner in from {
            row_from_place.push(next[owner]);
            next[owner] += 1;
        }
        local.reorder_rows(&row_from_place);
        let optional = share.optional;
        *share = ModelShare { optional, ..ModelShare::new(local, dealt, rank) };
        Ok(())
    }
}

/// Fails unless a rank sends the expected number of rows.
pub(super) fn check_block(
    model: &Model<f32>,
    rank: u32,
    block: &RowBlock<f32>,
    rows: usize,
) -> Result<(), DeviceError> {
    if model.takes(block, rows) {
        return Ok(());
    }
    Err(DeviceError::of_rank(rank, format!("it does not send {rows} whole rows")))
}

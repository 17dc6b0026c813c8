//! Rows given to ranks, read from them and put in order.

use std::ops::Range;

use super::share::{CpuShard, ModelShare};
use crate::backend::cpu::model::Model;
use crate::backend::cpu::rows::RowBlock;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::ranks::{DealtRows, dealt};
use crate::backend::{DeviceError, ModelShape, Rows, Snapshot, Store as _};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::{Gaussians, Primitive as _};

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
        let mut rows = dealt::deal(&self.line, &numbering, source, sh_degree);
        let local = self.cpu.load(&mut rows)?;
        rows.end()?;
        Ok(ModelShare { optional, ..ModelShare::new(local, numbering, self.rank()) })
    }

    fn take_rows(&mut self, sh_degree: u32, rows: usize) -> Result<ModelShare, DeviceError> {
        let numbering = Numbering::dealt(self.world(), rows);
        let mut rows = dealt::take(&self.line, &numbering, sh_degree);
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
        dealt::read(&self.line, &share.numbering, numbers, own)
    }

    fn sample(
        &mut self,
        share: &mut ModelShare,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError> {
        let own = |rows: &[usize]| Ok(share.local.sample(rows));
        dealt::sample(&self.line, &share.numbering, numbers, own)
    }

    /// Puts the rows in the order of their places' keys, as one rank does, and deals them anew.
    fn reorder(&mut self, share: &mut ModelShare, cube: &Cube) -> Result<(), DeviceError> {
        let places = &share.local.columns[0].values;
        let keys = places.as_chunks::<3>().0.iter().map(|&place| cube.key(place));
        let of_ranks = self.line.all_gather(&keys.collect::<Vec<_>>())?;
        share.numbering.check(&of_ranks, 1)?;
        let keys = share.numbering.in_order(&of_ranks, 1);
        let mut before_from_after: Vec<usize> = (0..keys.len()).collect();
        // A stable sort: rows of one key keep their order.
        before_from_after.sort_by_key(|&number| keys[number]);
        self.follow(share, &before_from_after)
    }

    fn shape(&self, share: &ModelShare) -> ModelShape {
        // Of all ranks, as those of this one are.
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
    fn no_rows(&self, sh_degree: u32) -> Model<f32> {
        Model::with_room(&Gaussians::empty(sh_degree), 0, self.cpu.storage)
    }

    /// Moves the rows to where they are dealt when the row of number `before_from_after[n]` gets number n.
    fn follow(
        &mut self,
        share: &mut ModelShare,
        before_from_after: &[usize],
    ) -> Result<(), DeviceError> {
        let (rank, world) = (self.rank(), self.world() as usize);
        let dealt = Numbering::dealt(self.world(), before_from_after.len());
        let (mut leaving, mut arriving) = (vec![Vec::new(); world], vec![0; world]);
        // The rank that each of the rows comes from that this one has then.
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
        let mut local = self.no_rows(share.local.sh_degree);
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

/// True if a rank sends as many rows as it has to.
pub(super) fn check_block(
    model: &Model<f32>,
    rank: u32,
    block: &RowBlock<f32>,
    rows: usize,
) -> Result<(), DeviceError> {
    if model.takes(block, rows) {
        return Ok(());
    }
    let message = format!("it does not send {rows} whole rows");
    Err(DeviceError::OfRank { rank, message })
}

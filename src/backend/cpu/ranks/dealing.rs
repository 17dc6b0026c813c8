//! Rows given to ranks, read from them and put in order.

use std::collections::VecDeque;
use std::ops::Range;

use super::numbering::{Numbering, RankRows};
use super::shard::{ModelShare, Shard};
use crate::backend::cpu::model::Model;
use crate::backend::cpu::row_block::RowBlock;
use crate::backend::{DeviceError, Rows, Snapshot, chunks};
use crate::math::morton::Cube;
use crate::model::{Gaussians, Primitive as _};

impl Shard {
    /// Rank 0's part of [`Self::take_rows`]: deals the rows out, of which it holds a chunk at a time.
    pub(super) fn deal<S: Rows<Gaussians>>(
        &mut self,
        source: &mut S,
        sh_degree: u32,
    ) -> Result<ModelShare, S::Error>
    where
        S::Error: From<DeviceError>,
    {
        let numbering = Numbering::dealt(self.world(), source.len());
        let mut local = self.no_rows(sh_degree);
        for numbers in chunks(source.len()) {
            let mut chunk = source.read(numbers.clone())?;
            let none = chunk.read(0..0)?;
            let mut parts: Vec<_> = (0..self.world()).map(|_| none.clone()).collect();
            let mut next = 0;
            for RankRows { rank, places } in numbering.pieces(&numbers) {
                parts[rank as usize].append(chunk.read(next..next + places.len())?);
                next += places.len();
            }
            local.append(&self.swap_rows(&parts)?);
        }
        let share = ModelShare::new(local, numbering, self.rank());
        Ok(ModelShare { optional: source.optional(), ..share })
    }

    /// The rows of this rank of so many that rank 0 deals out.
    pub(super) fn take_rows(
        &mut self,
        sh_degree: u32,
        rows: usize,
    ) -> Result<ModelShare, DeviceError> {
        let mut local = self.no_rows(sh_degree);
        for _ in chunks(rows) {
            local.append(&self.swap_rows(&[])?);
        }
        let numbering = Numbering::dealt(self.world(), rows);
        if numbering.counts()[self.rank() as usize] != local.len() {
            let message =
                format!("it deals {} rows out that are not those of this rank", local.len());
            return Err(DeviceError::OfRank { rank: 0, message });
        }
        Ok(ModelShare::new(local, numbering, self.rank()))
    }

    /// Gives each rank its part, where this one has any, and takes the own one from rank 0.
    fn swap_rows(
        &mut self,
        parts: &[Snapshot<Gaussians>],
    ) -> Result<Snapshot<Gaussians>, DeviceError> {
        let outgoing: Vec<_> = (0..self.world() as usize).map(|rank| parts.get(rank)).collect();
        let incoming: Vec<Option<Snapshot<Gaussians>>> = self.all_to_all(&outgoing)?;
        let message = || "it has dealt out no rows".to_owned();
        let part = incoming.into_iter().next().flatten();
        part.ok_or_else(|| DeviceError::OfRank { rank: 0, message: message() })
    }

    fn no_rows(&self, sh_degree: u32) -> Model<f32> {
        Model::with_room(&Gaussians::empty(sh_degree), 0, self.cpu.storage)
    }

    /// The rows of these numbers with their moments and statistics, on rank 0.
    pub(super) fn read(
        &mut self,
        share: &ModelShare,
        numbers: &Range<usize>,
    ) -> Result<Option<Snapshot<Gaussians>>, DeviceError> {
        let pieces = share.numbering.pieces(numbers);
        let (own, rank) = (pieces.iter(), self.rank());
        let own = own.filter(|piece| piece.rank == rank);
        let own: VecDeque<_> = own.map(|piece| share.local.read(piece.places.clone())).collect();
        let Some(mut of_ranks) = self.gather_first(&own)? else { return Ok(None) };
        let mut all = share.local.read(0..0);
        for RankRows { rank, places } in pieces {
            let part = of_ranks[rank as usize].pop_front();
            let part = part.filter(|part| part.views_seen.len() == places.len());
            let message = || format!("it does not send its rows {places:?}");
            all.append(part.ok_or_else(|| DeviceError::OfRank { rank, message: message() })?);
        }
        Ok(Some(all))
    }

    /// The parameters of the rows of these numbers, in their order, on rank 0.
    pub(super) fn sample(
        &mut self,
        share: &ModelShare,
        numbers: &[usize],
    ) -> Result<Option<Gaussians>, DeviceError> {
        let rank = self.rank();
        let found: Vec<_> = numbers.iter().map(|&number| share.numbering.find(number)).collect();
        let own = found.iter().filter(|&&(owner, _)| owner == rank).map(|&(_, place)| place);
        let own = share.local.sample(&own.collect::<Vec<_>>());
        let Some(of_ranks) = self.gather_first(&own)? else { return Ok(None) };
        let asked = (0..self.world()).map(|rank| found.iter().filter(|of| of.0 == rank).count());
        for ((rank, rows), asked) in (0..).zip(&of_ranks).zip(asked) {
            if rows.len() != asked {
                let message = format!("it sends {} of {asked} rows", rows.len());
                return Err(DeviceError::OfRank { rank, message });
            }
        }
        let mut next = vec![0; of_ranks.len()];
        let mut all = Gaussians::empty(share.local.sh_degree);
        for (owner, _) in found {
            let row = &mut next[owner as usize];
            all.append(of_ranks[owner as usize].rows(*row..*row + 1));
            *row += 1;
        }
        Ok(Some(all))
    }

    /// Puts the rows in the order of their places' keys, as one rank does, and deals them anew.
    pub(super) fn reorder(
        &mut self,
        share: &mut ModelShare,
        cube: &Cube,
    ) -> Result<(), DeviceError> {
        let places = &share.local.columns[0].values;
        let keys = places.as_chunks::<3>().0.iter().map(|&place| cube.key(place));
        let of_ranks = self.all_gather(&keys.collect::<Vec<_>>())?;
        share.numbering.check(&of_ranks, 1)?;
        let keys = share.numbering.in_order(&of_ranks, 1);
        let mut before_from_after: Vec<usize> = (0..keys.len()).collect();
        // A stable sort: rows of one key keep their order.
        before_from_after.sort_by_key(|&number| keys[number]);
        self.follow(share, &before_from_after)
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
        let incoming: Vec<RowBlock<f32>> = self.all_to_all(&outgoing)?;
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

/// Whether a rank sends as many rows as it has to.
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

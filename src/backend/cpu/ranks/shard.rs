//! A rank's part of what all ranks do together: its share of a model, and how values go from rank to rank.

use serde::Serialize;
use serde::de::DeserializeOwned;
use splat_ranks::exchange::Exchange;

use super::command::RankCommand;
use super::numbering::Numbering;
use crate::backend::DeviceError;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::model::{AmongRanks, Model};
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

/// One of the ranks.
pub(super) struct Shard {
    pub(super) cpu: Cpu<f32>,
    exchange: Box<dyn Exchange>,
}

impl Shard {
    pub(super) fn new(cpu: Cpu<f32>, exchange: Box<dyn Exchange>) -> Self {
        Self { cpu, exchange }
    }

    pub(super) fn rank(&self) -> u32 {
        self.exchange.rank()
    }

    pub(super) fn world(&self) -> u32 {
        self.exchange.world()
    }

    /// Rank 0 has all ranks do something.
    pub(super) fn tell(&mut self, command: &RankCommand) -> Result<(), DeviceError> {
        let bytes = encoded(command, 0)?;
        self.exchange.broadcast(Some(bytes)).map(drop).map_err(DeviceError::from)
    }

    /// What rank 0 has this one do next.
    pub(super) fn hear(&mut self) -> Result<RankCommand, DeviceError> {
        decoded(0, &self.exchange.broadcast(None)?)
    }

    /// Sends each rank its value, by rank, and takes one from each.
    pub(super) fn all_to_all<T: Serialize, U: DeserializeOwned>(
        &mut self,
        outgoing: &[T],
    ) -> Result<Vec<U>, DeviceError> {
        let rank = self.rank();
        let outgoing = outgoing.iter().map(|value| encoded(value, rank));
        let incoming = self.exchange.all_to_all(outgoing.collect::<Result<_, _>>()?)?;
        by_rank(&incoming)
    }

    /// Every rank's value, by rank.
    pub(super) fn all_gather<T: Serialize + DeserializeOwned>(
        &mut self,
        mine: &T,
    ) -> Result<Vec<T>, DeviceError> {
        let mine = encoded(mine, self.rank())?;
        by_rank(&self.exchange.all_gather(mine)?)
    }

    /// Every rank's value, by rank, on rank 0 alone.
    pub(super) fn gather_first<T: Serialize + DeserializeOwned>(
        &mut self,
        mine: &T,
    ) -> Result<Option<Vec<T>>, DeviceError> {
        let outgoing = (0..self.world()).map(|rank| (rank == 0).then_some(mine));
        let incoming: Vec<Option<T>> = self.all_to_all(&outgoing.collect::<Vec<_>>())?;
        Ok(incoming.into_iter().collect())
    }
}

fn by_rank<T: DeserializeOwned>(incoming: &[Vec<u8>]) -> Result<Vec<T>, DeviceError> {
    (0..).zip(incoming).map(|(rank, bytes)| decoded(rank, bytes)).collect()
}

fn encoded<T: Serialize>(value: &T, rank: u32) -> Result<Vec<u8>, DeviceError> {
    postcard::to_stdvec(value).map_err(|error| unreadable(rank, &error))
}

fn decoded<T: DeserializeOwned>(rank: u32, bytes: &[u8]) -> Result<T, DeviceError> {
    postcard::from_bytes(bytes).map_err(|error| unreadable(rank, &error))
}

fn unreadable(rank: u32, error: &postcard::Error) -> DeviceError {
    DeviceError::OfRank { rank, message: format!("what it sends cannot be read: {error}") }
}

//! Values between ranks, as bytes of an exchange.

use std::sync::{Arc, Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use splat_ranks::exchange::{Exchange, ExchangeError};

use super::command::RankCommand;
use crate::backend::DeviceError;

/// Why a rank takes no part in a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub enum Problem {
    /// It has not the scene.
    Scene(String),
    /// It cannot use its device.
    Device(String),
}

/// A rank's way to the others. Its clones are the same way: all ranks make the same calls in the same order.
#[derive(Clone)]
pub struct RankLine {
    rank: u32,
    world: u32,
    exchange: Arc<Mutex<Exchange>>,
}

impl RankLine {
    /// The way over an exchange.
    pub fn new(exchange: Exchange) -> Self {
        let (rank, world) = (exchange.rank(), exchange.world());
        Self { rank, world, exchange: Arc::new(Mutex::new(exchange)) }
    }

    /// This rank.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    pub fn world(&self) -> u32 {
        self.world
    }

    /// A call of the exchange, whose error is kept there for the calls that follow.
    fn call<T>(
        &self,
        make: impl FnOnce(&mut Exchange) -> Result<T, ExchangeError>,
    ) -> Result<T, DeviceError> {
        let mut exchange = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(make(&mut exchange)?)
    }

    /// Rank 0 has all ranks do something.
    pub(super) fn tell(&self, command: &RankCommand) -> Result<(), DeviceError> {
        self.give(command)
    }

    /// What rank 0 has this one do next.
    pub(super) fn hear(&self) -> Result<RankCommand, DeviceError> {
        self.take()
    }

    /// Rank 0 gives all ranks a value.
    pub(in crate::backend) fn give<T: Serialize>(&self, value: &T) -> Result<(), DeviceError> {
        let bytes = encoded(value, 0)?;
        self.call(|exchange| exchange.broadcast(Some(bytes)).map(drop))
    }

    /// What rank 0 gives.
    pub(in crate::backend) fn take<T: DeserializeOwned>(&self) -> Result<T, DeviceError> {
        decoded(0, &self.call(|exchange| exchange.broadcast(None))?)
    }

    /// Sends each rank its value, by rank, and takes one from each.
    pub(in crate::backend) fn all_to_all<T: Serialize, U: DeserializeOwned>(
        &self,
        outgoing: &[T],
    ) -> Result<Vec<U>, DeviceError> {
        let outgoing = outgoing.iter().map(|value| encoded(value, self.rank));
        let outgoing = outgoing.collect::<Result<_, _>>()?;
        by_rank(&self.call(|exchange| exchange.all_to_all(outgoing))?)
    }

    /// Every rank's value, by rank.
    pub(in crate::backend) fn all_gather<T: Serialize + DeserializeOwned>(
        &self,
        mine: &T,
    ) -> Result<Vec<T>, DeviceError> {
        let mine = encoded(mine, self.rank)?;
        by_rank(&self.call(|exchange| exchange.all_gather(mine))?)
    }

    /// Says that nothing is wrong here with the run that begins; an error where a rank says what is.
    pub(super) fn refuse_problems(&self) -> Result<(), DeviceError> {
        let problems = (0..).zip(self.all_gather(&None::<Problem>)?);
        let mut found = problems.filter_map(|(rank, problem)| Some((rank, problem?)));
        match found.next() {
            None => Ok(()),
            Some((rank, Problem::Scene(problem))) => Err(DeviceError::OtherScene { rank, problem }),
            Some((rank, Problem::Device(problem))) => {
                Err(DeviceError::RankDevice { rank, problem })
            }
        }
    }

    /// Every rank's value, by rank, on rank 0 alone.
    pub(in crate::backend) fn gather_first<T: Serialize + DeserializeOwned>(
        &self,
        mine: &T,
    ) -> Result<Option<Vec<T>>, DeviceError> {
        let outgoing = (0..self.world).map(|rank| (rank == 0).then_some(mine));
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

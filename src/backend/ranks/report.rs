//! What a rank says of the view that it draws.

use serde::{Deserialize, Serialize};

use crate::abi::terms::Terms;
use crate::backend::{DeviceError, LossValues};

/// What a rank tells the others when it has projected its rows into the views that they draw in a round.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RankNews {
    /// Why its own view cannot be compared, if that is so: the round goes on without it.
    pub(in crate::backend) problem: Option<String>,
    /// What it has to say of the view of the round before.
    pub(in crate::backend) report: ViewReport,
    /// How many splats its rows are in the view of each rank, and how many pairs of a splat and a tile, where
    /// a device counts them; `[world]`. 0 for its own view, which it counts later and alone needs.
    pub(in crate::backend) counts: Vec<[u64; 2]>,
}

impl RankNews {
    /// None at all.
    pub(in crate::backend) const NONE: Self =
        Self { problem: None, report: ViewReport::NoView, counts: Vec::new() };
}

/// What became of the view of a rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::backend) enum ViewReport {
    /// It had none.
    NoView,
    /// Its gradients are added.
    Added(Reported),
    /// It cannot be drawn or compared: why.
    Failed(String),
}

/// The values of a view's terms at pixels.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::backend) struct Reported {
    total: f64,
    pairs: Vec<(String, f64)>,
}

impl ViewReport {
    /// A view of these values.
    pub(super) fn added(values: LossValues) -> Self {
        let LossValues { total, pairs } = values;
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self::Added(Reported { total, pairs })
    }

    /// The values of the view of a rank that is compared by these terms.
    pub(super) fn values(&self, rank: u32, terms: &Terms) -> Result<LossValues, DeviceError> {
        match self {
            Self::Added(Reported { total, pairs }) => {
                let names = || terms.active().flat_map(|weighted| weighted.term.values());
                let known = pairs.iter().filter_map(|(name, value)| {
                    names().find(|known| known.name == name).map(|known| (known.name, *value))
                });
                Ok(LossValues { total: *total, pairs: known.collect() })
            }
            Self::Failed(message) => Err(DeviceError::OfRank { rank, message: message.clone() }),
            Self::NoView => {
                let message = "it has left out its view of the step".to_owned();
                Err(DeviceError::OfRank { rank, message })
            }
        }
    }

    /// The error that it tells, if it does.
    pub(super) fn check(&self, rank: u32) -> Result<(), DeviceError> {
        match self {
            Self::Failed(message) => Err(DeviceError::OfRank { rank, message: message.clone() }),
            Self::NoView | Self::Added(_) => Ok(()),
        }
    }
}

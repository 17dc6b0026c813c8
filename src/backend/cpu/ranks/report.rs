//! What a rank says of the view that it drew.

use serde::{Deserialize, Serialize};

use crate::abi::terms::Terms;
use crate::backend::cpu::Ready;
use crate::backend::{DeviceError, LossValues, RankOutcome};

/// What became of the view of a rank.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum ViewReport {
    /// It had none.
    NoView,
    /// Its gradients are added.
    Added(Reported),
    /// Its photograph cannot be decoded: why.
    Undecodable(String),
    /// It cannot be drawn or compared: why.
    Failed(String),
}

/// The values of a view's terms at pixels.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Reported {
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

    /// The outcome of a view of a rank that is compared by these terms.
    pub(super) fn outcome(
        self,
        rank: u32,
        terms: &Terms,
    ) -> Result<RankOutcome<Ready>, DeviceError> {
        match self {
            Self::Added(Reported { total, pairs }) => {
                let names = || terms.active().flat_map(|weighted| weighted.term.values());
                let known = pairs.iter().filter_map(|(name, value)| {
                    names().find(|known| known.name == name).map(|known| (known.name, *value))
                });
                let pixels = LossValues { total, pairs: known.collect() };
                Ok(RankOutcome::Added([pixels, LossValues::default()].map(Ready::new)))
            }
            Self::Undecodable(why) => Ok(RankOutcome::Undecodable(why)),
            Self::Failed(message) => Err(DeviceError::OfRank { rank, message }),
            Self::NoView => {
                let message = "it has left out its view of the step".to_owned();
                Err(DeviceError::OfRank { rank, message })
            }
        }
    }
}

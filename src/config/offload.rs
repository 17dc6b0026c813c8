//! What of the model `--offload` keeps in the host's memory.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::compactness::Compactness;
use crate::memory::plan::Storage;

/// What of the model lies in RAM instead of the GPU's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Offload {
    /// Nothing
    #[default]
    None,
    /// Colours and their moments, compact as with --optimize-memory
    Sh,
}

impl Offload {
    /// How a GPU keeps the state of a model that is so compact.
    pub fn storage(self, compactness: Compactness) -> Storage {
        match self {
            Self::None => compactness.storage_on_gpu(),
            Self::Sh => Storage::Offloaded,
        }
    }
}

//! What of a model on a GPU `--offload` keeps in the host's memory.

use crate::config::Config;
use crate::layout::GAUSSIANS;
use crate::memory::Bytes;
use crate::memory::plan::{ModelSize, OptionalColumns};

/// What of a model on a GPU lies in the host's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offloaded {
    /// As the model is.
    pub(super) now: Bytes,
    /// As it may grow to be.
    pub(super) most: Bytes,
}

impl Offloaded {
    /// Of a model of so many Gaussians that stays as it is.
    pub(super) fn of(config: &Config, gaussians: u64) -> Self {
        Self::growing(config, gaussians, gaussians)
    }

    /// Of one that may grow.
    pub(super) fn growing(config: &Config, now: u64, most: u64) -> Self {
        let (storage, optional) = (config.memory.storage_on_gpu(), OptionalColumns::NONE);
        let (schema, sh_degree) = (&GAUSSIANS, config.optimize.sh_degree);
        let bytes = |gaussians| {
            let size = ModelSize { gaussians, schema, sh_degree, storage, optional };
            Bytes(size.host_tables().map(|(_, bytes)| bytes).sum())
        };
        Self { now: bytes(now), most: bytes(most) }
    }
}

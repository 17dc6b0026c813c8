//! What not all primitives can do.

use super::DeviceError;
use crate::model::Primitive;

/// What not all primitives can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Be drawn through a 3D filter.
    Filter3d,
    /// Move at random after a step.
    Noise,
    /// Be drawn to opacity and scale by weights on their means.
    Regularisers,
    /// Move centres at rates that follow sizes.
    SizedRates,
    /// Show depths and normals, and be compared at samples.
    Surfaces,
}

impl Capability {
    /// As messages call it.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Filter3d => "3D filter",
            Self::Noise => "random motion",
            Self::Regularisers => "weights on opacity and scale",
            Self::SizedRates => "learning rates that follow sizes",
            Self::Surfaces => "surface maps or terms at samples",
        }
    }
}

/// The error of a primitive that has it not, whatever it is.
pub(crate) fn unsupported<P: Primitive>(what: &'static str) -> DeviceError {
    DeviceError::Unsupported { primitives: P::SCHEMA.many(), what }
}

//! Operations that only some primitives support.

use super::DeviceError;
use crate::model::Primitive;

/// An operation that only some primitives support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Drawing through a 3D filter.
    Filter3d,
    /// Random motion after a step.
    Noise,
    /// Weights on the mean opacity and the mean scale.
    Regularisers,
    /// Learning rates of the centres that follow the sizes.
    SizedRates,
    /// Maps of depths and normals, and terms at samples.
    Surfaces,
}

impl Capability {
    /// Returns the name in messages.
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

pub(crate) fn unsupported<P: Primitive>(what: &'static str) -> DeviceError {
    DeviceError::Unsupported { primitives: P::SCHEMA.many(), what }
}

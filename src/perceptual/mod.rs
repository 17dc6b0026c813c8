//! LPIPS, version 0.1 (Zhang et al. 2018): how unlike two images look, by the features of a network
//! that was trained to classify photographs.
//!
//! This is what both devices share: the networks' layers, their weights in a file, and how an image
//! is cut so that little of it is worked on at once.
//! Features after five layers are brought to length 1 in each pixel; their squared differences are
//! weighted by channel, averaged over the pixels, and added up over the layers.

mod network;
mod torch_file;
mod weights;

use crate::abi::{
    LPIPS_SCALE_B, LPIPS_SCALE_G, LPIPS_SCALE_R, LPIPS_SHIFT_B, LPIPS_SHIFT_G, LPIPS_SHIFT_R,
};
use crate::memory::Bytes;

pub use crate::abi::LPIPS_EPSILON as EPSILON;
pub use network::{COMPARED, Layer, LayerKind, LayerSizes, LayerWindow, LpipsNet, StripPlace};
pub use weights::LpipsError;
pub use weights::{
    Convolution, LpipsWeights, WEIGHTS_VARIABLE, WeightsSearch, named_by_environment,
};

/// How the networks are fed with an image of values v in 0..1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LpipsInput {
    /// 2 v - 1, as they learned to see images.
    Stretched,
    /// v as a PNG of 8 bits stores it: so the reference trainers' `metrics.py` feeds them.
    EightBits,
}

/// Subtracted from each channel of 2 v - 1, before it is divided by [`SCALE`]: the mean and deviation of
/// the photographs that the networks learned from, rounded as in the `lpips` package.
pub const SHIFT: [f32; 3] = [LPIPS_SHIFT_R, LPIPS_SHIFT_G, LPIPS_SHIFT_B];

/// What the shifted channels are divided by.
pub const SCALE: [f32; 3] = [LPIPS_SCALE_R, LPIPS_SCALE_G, LPIPS_SCALE_B];

/// Memory that the features of both images may take if it is plentiful: less makes thinner strips,
/// whose surroundings are worked on more often.
pub const PLENTY: Bytes = Bytes(768 << 20);

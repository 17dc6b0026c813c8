//! LPIPS, version 0.1 (Zhang et al. 2018): distance of two images in the features of a network that was trained to
//! classify photographs.
//!
//! The module has the parts that both devices share: the layers of the networks, their weights in files, and the
//! division of an image into strips that limits memory. Features after five layers are normalised in each pixel.
//! Their squared differences are weighted by channel, averaged over the pixels, and summed over the layers.

mod network;
mod torch_file;
mod weights;

use crate::abi::{
    LPIPS_SCALE_B, LPIPS_SCALE_G, LPIPS_SCALE_R, LPIPS_SHIFT_B, LPIPS_SHIFT_G, LPIPS_SHIFT_R,
};
use crate::memory::Bytes;

pub use crate::abi::LPIPS_EPSILON as EPSILON;
pub use network::{COMPARED, Layer, LayerKind, LayerSizes, LayerWindow, LpipsNet, StripPlace};
pub use weights::{
    Convolution, LpipsError, LpipsWeights, WEIGHTS_VARIABLE, WeightsSearch, named_by_environment,
};

/// Conversion of an image with values v in 0..1 to the input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LpipsInput {
    /// 2 v - 1, the range of the training.
    Stretched,
    /// v rounded to 8 bits, as in `metrics.py` of the reference trainers.
    EightBits,
}

/// Mean of each channel of 2 v - 1 in the training photographs, rounded as in the `lpips` package. Subtracted before
/// the division by [`SCALE`].
pub const SHIFT: [f32; 3] = [LPIPS_SHIFT_R, LPIPS_SHIFT_G, LPIPS_SHIFT_B];

/// Standard deviation of each channel in the training photographs.
pub const SCALE: [f32; 3] = [LPIPS_SCALE_R, LPIPS_SCALE_G, LPIPS_SCALE_B];

/// Bytes of both images' features if memory is plentiful. Less memory makes thinner strips, whose margins are
/// computed more often.
pub const PLENTY: Bytes = Bytes(768 << 20);

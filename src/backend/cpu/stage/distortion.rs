//! Stage `distortion`: how far apart along its ray lies what each pixel is blended of, and the gradients
//! of the maps that say so.

use rayon::prelude::*;

use super::blend::Canvas;
use super::pixel_sums;
use crate::math::Real;
use crate::math::distortion::{RaySums, distortion, distortion_bwd};
use crate::memory::Bytes;

/// What comes of a frame's rays.
#[derive(Debug)]
pub(crate) struct RayDistortion<R> {
    /// Mean over all pixels, not weighted.
    pub(crate) mean: f64,
    /// Gradient of the inverse depths with the weight, [height, width].
    pub(crate) d_inverse_depths: Vec<R>,
    /// Gradient of their squares, [height, width].
    pub(crate) d_inverse_squares: Vec<R>,
    /// Gradient of the final transmittance, [height, width].
    pub(crate) d_through: Vec<R>,
}

impl<R> RayDistortion<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        let all = [&self.d_inverse_depths, &self.d_inverse_squares, &self.d_through];
        Bytes::of::<R>(all.into_iter().map(Vec::capacity).sum())
    }
}

/// Looks at the rays of a frame with maps of its surface, inverse depths and their squares.
///
/// Pixels that the mask excludes add nothing; the mean is over all pixels.
pub(crate) fn find<R: Real>(
    canvas: &Canvas<R>,
    mask: Option<&[u8]>,
    weight: f64,
) -> RayDistortion<R> {
    let pixels = canvas.inverse_squares.len();
    let d_mean = R::of(weight / pixels as f64);
    let counts = |pixel: usize| mask.is_none_or(|mask| mask[pixel] != 0);
    let sums = |pixel: usize| RaySums {
        opacity: canvas.surface[pixel * 4 + 3],
        inverse_depth: canvas.inverse_depths[pixel],
        inverse_square: canvas.inverse_squares[pixel],
    };
    let found = |pixel| if counts(pixel) { distortion(sums(pixel)).to_f64() } else { 0.0 };
    let mean = pixel_sums::mean(pixels, found);
    let gradient = |pixel: usize| {
        let d = distortion_bwd(sums(pixel), if counts(pixel) { d_mean } else { R::ZERO });
        // There is the more opacity the less passes.
        (d.inverse_depth, (d.inverse_square, -d.opacity))
    };
    let (d_inverse_depths, (d_inverse_squares, d_through)) =
        (0..pixels).into_par_iter().map(gradient).unzip();
    RayDistortion { mean, d_inverse_depths, d_inverse_squares, d_through }
}

#[cfg(test)]
mod tests;

//! The loss of inverse depths: L1 against the map of the photograph, and its gradient (Kerbl et al.
//! 2024, of hierarchical 3D Gaussians).

use rayon::prelude::*;

use super::blend::Canvas;
use super::pixel_sums;
use crate::dataset::Image;
use crate::math::Real;
use crate::memory::Bytes;

/// What comes of comparing a frame's inverse depths with a map beside the photograph.
#[derive(Debug)]
pub(crate) struct ComparedDepths<R> {
    /// Mean over all pixels, not weighted: here of the absolute error, per world unit.
    pub(crate) mean: f64,
    /// Gradient of the inverse depths with the weight, [height, width].
    pub(crate) d_inverse_depths: Vec<R>,
}

impl<R> ComparedDepths<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_inverse_depths.capacity())
    }
}

/// Compares the inverse depths with the photograph's map, which is of their size; nothing without one.
///
/// Pixels that the photograph's mask excludes count as right; the mean is over all pixels.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    target: &Image,
    weight: f64,
) -> Option<ComparedDepths<R>> {
    let map = target.depth.as_ref()?;
    let pixels = canvas.inverse_depths.len();
    let slope = R::of(weight / pixels as f64);
    let [scale, offset] = [map.scale_of_step(), map.offset].map(|value| R::of(f64::from(value)));
    let error = |pixel: usize| {
        let counts = target.mask.as_ref().is_none_or(|mask| mask[pixel] != 0);
        let expected = R::of(f64::from(map.values[pixel])) * scale + offset;
        if counts { canvas.inverse_depths[pixel] - expected } else { R::ZERO }
    };
    let mean = pixel_sums::mean(pixels, |pixel| error(pixel).abs().to_f64());
    let sign = |error: R| match error.partial_cmp(&R::ZERO) {
        Some(std::cmp::Ordering::Greater) => slope,
        Some(std::cmp::Ordering::Less) => -slope,
        _ => R::ZERO,
    };
    let d_inverse_depths = (0..pixels).into_par_iter().map(|pixel| sign(error(pixel))).collect();
    Some(ComparedDepths { mean, d_inverse_depths })
}

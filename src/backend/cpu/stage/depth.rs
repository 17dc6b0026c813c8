//! The loss of inverse depths: L1 against the map of the photograph, and its gradient (Kerbl et al.
//! 2024, of hierarchical 3D Gaussians).

use rayon::prelude::*;

use super::blend::Canvas;
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
    let mean = mean(pixels, |pixel| error(pixel).abs().to_f64());
    let sign = |error: R| match error.partial_cmp(&R::ZERO) {
        Some(std::cmp::Ordering::Greater) => slope,
        Some(std::cmp::Ordering::Less) => -slope,
        _ => R::ZERO,
    };
    let d_inverse_depths = (0..pixels).into_par_iter().map(|pixel| sign(error(pixel))).collect();
    Some(ComparedDepths { mean, d_inverse_depths })
}

// Means over pixels, the same on any number of threads.

/// Pixels whose values are added up in order; so are their sums.
const BLOCK: usize = 1 << 14;

/// The mean over so many pixels of the values that they have.
pub(crate) fn mean(pixels: usize, value: impl Fn(usize) -> f64 + Sync) -> f64 {
    let starts: Vec<usize> = (0..pixels).step_by(BLOCK).collect();
    let sum_from = |&start: &usize| -> f64 { (start..pixels.min(start + BLOCK)).map(&value).sum() };
    let sums: Vec<f64> = starts.par_iter().map(sum_from).collect();
    sums.iter().sum::<f64>() / pixels as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_several_blocks_counts_every_pixel_once() {
        for pixels in [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            // Of 0, 1, 2 and so on.
            assert_eq!(mean(pixels, |pixel| pixel as f64), (pixels - 1) as f64 / 2.0);
        }
    }
}

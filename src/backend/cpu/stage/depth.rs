//! Inverse-depth loss: L1 to the photograph's depth map, and its gradient (Kerbl et al. 2024, hierarchical 3D
//! Gaussians).

use rayon::prelude::*;

use super::blend::Canvas;
use crate::dataset::Image;
use crate::math::Real;
use crate::memory::Bytes;

/// Loss and gradient of a frame's inverse depths.
#[derive(Debug)]
pub(crate) struct ComparedDepths<R> {
    /// Unweighted mean over all pixels, per world unit for the absolute error.
    pub(crate) mean: f64,
    /// Weighted gradient of the inverse depths, `[height, width]`.
    pub(crate) d_inverse_depths: Vec<R>,
}

impl<R> ComparedDepths<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_inverse_depths.capacity())
    }
}

/// Compares the inverse depths with the photograph's map of equal size; `None` without a map.
///
/// Masked pixels have no error but count in the mean.
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

/// Number of pixels that are summed in order, for results that do not depend on the thread count.
const BLOCK: usize = 1 << 14;

/// Returns the mean of `value` over `pixels` pixels.
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
            // The values are 0, 1, 2, ...
            assert_eq!(mean(pixels, |pixel| pixel as f64), (pixels - 1) as f64 / 2.0);
        }
    }
}

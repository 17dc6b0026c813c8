//! Stage `depth`: losses of the drawn inverse depths, and their gradients: L1 to the photograph's depth map (Kerbl et
//! al. 2024, hierarchical 3D Gaussians), and the spread of each pixel's splats along its ray.

use rayon::prelude::*;

use super::blend::Canvas;
use crate::abi::terms::{Means, Term, Terms, VALUE_DISTORTION, Weighted};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::distortion::{RaySums, distortion, distortion_bwd};
use crate::math::field::sign;
use crate::math::linalg::add_to;
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
    let d_error = |pixel| slope * sign(error(pixel));
    let d_inverse_depths = (0..pixels).into_par_iter().map(d_error).collect();
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

/// Weighted gradients by the terms of rays; empty if no term gives any.
#[derive(Debug, Default)]
pub(crate) struct RayGradients<R> {
    /// Gradient of the inverse depths, `[height, width]`.
    pub(crate) d_inverse_depths: Vec<R>,
    /// Gradient of the squared inverse depths, `[height, width]`.
    pub(crate) d_inverse_squares: Vec<R>,
    /// Gradient of the final transmittance, [height, width].
    pub(crate) d_through: Vec<R>,
}

impl<R> RayGradients<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        let all = [&self.d_inverse_depths, &self.d_inverse_squares, &self.d_through];
        Bytes::of::<R>(all.into_iter().map(Vec::capacity).sum())
    }
}

/// Evaluates the terms of inverse depths that need no map of the photograph. Masked pixels add nothing but count in
/// the means.
pub(crate) fn score_rays<R: Real>(
    canvas: &Canvas<R>,
    mask: Option<&[u8]>,
    terms: &Terms,
    means: &mut Means,
) -> RayGradients<R> {
    let mut sum = RayGradients::default();
    for &Weighted { term, weight } in terms.active() {
        let (place, (mean, gradients)) = match term {
            Term::Distortion => (VALUE_DISTORTION, find_distortion(canvas, mask, weight)),
            _ => continue,
        };
        means[place as usize] = mean;
        add(&mut sum.d_inverse_depths, gradients.d_inverse_depths);
        add(&mut sum.d_inverse_squares, gradients.d_inverse_squares);
        add(&mut sum.d_through, gradients.d_through);
    }
    sum
}

/// Adds to a gradient; either may be empty.
pub(crate) fn add<R: Real>(sum: &mut Vec<R>, more: Vec<R>) {
    if sum.is_empty() {
        *sum = more;
    } else {
        add_to(sum, &more);
    }
}

/// Returns the mean distortion of a frame with maps of surface, inverse depths and their squares, and its gradients.
fn find_distortion<R: Real>(
    canvas: &Canvas<R>,
    mask: Option<&[u8]>,
    weight: f64,
) -> (f64, RayGradients<R>) {
    let pixels = canvas.inverse_squares.len();
    let d_mean = R::of(weight / pixels as f64);
    let counts = |pixel: usize| mask.is_none_or(|mask| mask[pixel] != 0);
    let sums = |pixel: usize| RaySums {
        opacity: canvas.surface[pixel * 4 + 3],
        inverse_depth: canvas.inverse_depths[pixel],
        inverse_square: canvas.inverse_squares[pixel],
    };
    let found = |pixel| if counts(pixel) { distortion(sums(pixel)).to_f64() } else { 0.0 };
    let mean = mean(pixels, found);
    let gradient = |pixel: usize| {
        let d = distortion_bwd(sums(pixel), if counts(pixel) { d_mean } else { R::ZERO });
        // The opacity is 1 less the transmittance.
        (d.inverse_depth, (d.inverse_square, -d.opacity))
    };
    let (d_inverse_depths, (d_inverse_squares, d_through)) =
        (0..pixels).into_par_iter().map(gradient).unzip();
    (mean, RayGradients { d_inverse_depths, d_inverse_squares, d_through })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::DrawSettings;
    use crate::math::differences::{assert_near, central};
    use crate::math::distortion::{FAR, NEAR};
    use crate::math::random::{RandomStream, RandomUse};

    #[test]
    fn the_mean_of_several_blocks_counts_every_pixel_once() {
        for pixels in [1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            // The values are 0, 1, 2, ...
            assert_eq!(mean(pixels, |pixel| pixel as f64), (pixels - 1) as f64 / 2.0);
        }
    }

    const SIZE: [u32; 2] = [7, 5];

    const PIXELS: usize = 35;

    const WEIGHT: f64 = 1.7;

    /// Returns the weights and depths of each pixel's ray of 0 to 8 splats.
    fn rays() -> Vec<Vec<[f64; 2]>> {
        let ray = |pixel: usize| {
            let stream = RandomStream::new(4, pixel as u64, RandomUse::Sample);
            let mut left = 1.0;
            let stopped = |i: u64| {
                let weight = left * 0.7 * stream.uniform(2 * i);
                left -= weight;
                [weight, 0.3 + 5.0 * stream.uniform(2 * i + 1)]
            };
            (0..pixel as u64 % 9).map(stopped).collect()
        };
        (0..PIXELS).map(ray).collect()
    }

    /// Creates a canvas with the maps of these rays.
    fn canvas(rays: &[Vec<[f64; 2]>]) -> Canvas<f64> {
        let settings = DrawSettings {
            inverse_depths: true,
            inverse_squares: true,
            surface: true,
            ..DrawSettings::DEFAULT
        };
        let mut canvas = Canvas::blank(SIZE, &settings);
        for (pixel, ray) in rays.iter().enumerate() {
            for [weight, depth] in ray {
                canvas.surface[pixel * 4] += weight * depth;
                canvas.surface[pixel * 4 + 3] += weight;
                canvas.inverse_depths[pixel] += weight / depth;
                canvas.inverse_squares[pixel] += weight / (depth * depth);
            }
        }
        canvas
    }

    /// Excludes every third pixel.
    fn mask() -> Vec<u8> {
        (0..PIXELS).map(|pixel| u8::from(pixel % 3 != 1) * 255).collect()
    }

    /// Sums over all pairs of splats on a ray.
    fn of_pairs(ray: &[[f64; 2]]) -> f64 {
        let mapped = |depth: f64| FAR / (FAR - NEAR) * (1.0 - NEAR / depth);
        let pairs = (0..ray.len()).flat_map(|i| (0..i).map(move |j| (ray[i], ray[j])));
        pairs.map(|([w, a], [v, b])| w * v * (mapped(a) - mapped(b)).powi(2)).sum()
    }

    #[test]
    fn mean_sums_all_pairs_and_masked_pixels_add_0() {
        let (rays, mask) = (rays(), mask());
        for mask in [None, Some(&mask[..])] {
            let counts = |pixel: usize| mask.is_none_or(|mask| mask[pixel] != 0);
            let counted = rays.iter().enumerate().filter(|&(pixel, _)| counts(pixel));
            let expected = counted.map(|(_, ray)| of_pairs(ray)).sum::<f64>() / PIXELS as f64;
            let (found, _) = find_distortion(&canvas(&rays), mask, WEIGHT);
            assert_near(found, expected, 1e-14, mask);
            assert!(expected > 1e-3, "{expected} says nothing");
        }
    }

    #[test]
    fn gradients_agree_with_differences_of_the_mean() {
        let (rays, mask) = (rays(), mask());
        let (_, found) = find_distortion(&canvas(&rays), Some(&mask), WEIGHT);
        for pixel in 0..PIXELS {
            let assert_agrees = |name: &str, found: f64, moved: &dyn Fn(&mut Canvas<f64>, f64)| {
                // Central differences of a quadratic are exact except for rounding.
                let expected = central(1e-3, |step| {
                    let mut canvas = canvas(&rays);
                    moved(&mut canvas, step);
                    WEIGHT * find_distortion(&canvas, Some(&mask), WEIGHT).0
                });
                assert_near(found, expected, 1e-12, (pixel, name));
            };
            assert_agrees("inverse depth", found.d_inverse_depths[pixel], &|canvas, step| {
                canvas.inverse_depths[pixel] += step;
            });
            assert_agrees("inverse square", found.d_inverse_squares[pixel], &|canvas, step| {
                canvas.inverse_squares[pixel] += step;
            });
            // The opacity is 1 less the transmittance.
            assert_agrees("transmittance", found.d_through[pixel], &|canvas, step| {
                canvas.surface[pixel * 4 + 3] -= step;
            });
        }
        assert!(found.d_through.iter().filter(|&&d| d < 0.0).count() > PIXELS / 2);
    }
}

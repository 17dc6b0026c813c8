//! Stage `loss`: (1 - λ) L1 + λ (1 - SSIM) against the photograph, its gradient, and the metrics of a render; and the
//! photograph scaled down for a smaller view.

use rayon::prelude::*;

use crate::abi::terms::{Means, Term, Terms, VALUE_L1, VALUE_SSIM};
use crate::backend::{DeviceError, Measured};
use crate::dataset::{Image, InverseDepthMap, NormalMap};
use crate::math::field::sign;
use crate::math::ssim::{Pair, ssim, ssim_with_gradient};
use crate::math::{Divisor, Real};

/// Evaluates the colour terms and returns the gradient of the image, `[height, width, 3]`.
///
/// Treats masked pixels as [`Term::Photometric`] describes. Means are over all pixels.
pub(crate) fn loss<R: Real>(
    (image, background): (&[R], [f32; 3]),
    view_px: [u32; 2],
    target: &Image,
    terms: &Terms,
    means: &mut Means,
) -> Result<Vec<R>, DeviceError> {
    let size = common_size(view_px, target)?;
    let weight = R::of(terms.empty_weight());
    let is_empty = weight > R::ZERO;
    let empty = background.map(|value| if is_empty { R::of_f32(value) } else { R::ZERO });
    let truth = target.rgb.iter().map(|&v| R::of(f64::from(v) / 255.0));
    let truth = at_masked(truth, target, |_, channel| empty[channel]);
    // Without a weight, NaN is masked too.
    let faded = |value, channel: usize| match is_empty {
        true => empty[channel] + weight * (value - empty[channel]),
        false => R::ZERO,
    };
    let image = at_masked(image.iter().copied(), target, faded);
    let mut d_image = vec![R::ZERO; image.len()];
    for weighted in terms.active() {
        if let Term::Photometric { .. } = weighted.term {
            let d_value = |place| weighted.weight * weighted.term.d_loss(place);
            let l1 = l1(&image, &truth, d_value(VALUE_L1), &mut d_image);
            let pair = Pair { x: &image, y: &truth, size };
            let ssim = ssim_with_gradient(pair, R::of(d_value(VALUE_SSIM)), &mut d_image);
            (means[VALUE_L1 as usize], means[VALUE_SSIM as usize]) = (l1, ssim);
        }
    }
    // The rendered image was masked, so its gradient is.
    let d_faded = |d_value, _| if is_empty { weight * d_value } else { R::ZERO };
    Ok(at_masked(d_image.into_iter(), target, d_faded))
}

/// Measures an image in double precision, regardless of the image's precision.
pub(crate) fn measure<R: Real>(
    image: &[R],
    view_px: [u32; 2],
    target: &Image,
) -> Result<Measured, DeviceError> {
    let size = common_size(view_px, target)?;
    let x = masked(image.iter().map(|value| value.to_f64().clamp(0.0, 1.0)), target);
    let y = masked(target.rgb.iter().map(|&v| f64::from(v) / 255.0), target);
    let count = x.len().max(1) as f64;
    let mean = |of: fn(f64) -> f64| x.iter().zip(&y).map(|(x, y)| of(x - y)).sum::<f64>() / count;
    let (mse, l1) = (mean(|error| error * error), mean(f64::abs));
    Ok(Measured { mse, l1, ssim: ssim(Pair { x: &x, y: &y, size }) })
}

/// Returns the size of both images; fails if they differ.
pub(crate) fn common_size(view_px: [u32; 2], target: &Image) -> Result<[usize; 2], DeviceError> {
    let target_px = [target.width, target.height];
    if target_px != view_px {
        return Err(DeviceError::TargetSize { target_px, view_px });
    }
    Ok(target_px.map(|side| side as usize))
}

/// Returns the mean absolute error; adds its gradient times `weight`, which is 0 where the images agree.
fn l1<R: Real>(image: &[R], truth: &[R], weight: f64, d_image: &mut [R]) -> f64 {
    // Blocks of fixed length are summed in order, so that the thread count has no effect.
    const BLOCK: usize = 1 << 14;
    let slope = R::of(weight / image.len() as f64);
    let sums: Vec<f64> = image
        .par_chunks(BLOCK)
        .zip(truth.par_chunks(BLOCK))
        .map(|(x, y)| x.iter().zip(y).map(|(&x, &y)| (x - y).abs().to_f64()).sum())
        .collect();
    let pixels = d_image.par_iter_mut().zip(image).zip(truth);
    pixels.for_each(|((d, &x), &y)| *d += slope * sign(x - y));
    sums.iter().sum::<f64>() / image.len() as f64
}

/// Returns the values of an image, 0 at masked pixels.
pub(crate) fn masked<R: Real>(values: impl Iterator<Item = R>, target: &Image) -> Vec<R> {
    at_masked(values, target, |_, _| R::ZERO)
}

/// Returns the values of an image. Those of masked pixels become the result of `change` for a value and its channel.
fn at_masked<R: Real>(
    values: impl Iterator<Item = R>,
    target: &Image,
    change: impl Fn(R, usize) -> R,
) -> Vec<R> {
    match &target.mask {
        None => values.collect(),
        Some(mask) => values
            .zip(mask.iter().flat_map(|&m| [(m, 0), (m, 1), (m, 2)]))
            .map(|(value, (m, channel))| if m == 0 { change(value, channel) } else { value })
            .collect(),
    }
}

/// Downscales a photograph with its inverse depths and normals. Means are rounded, halves up. Incomplete squares at
/// the right and bottom are dropped. A pixel is masked and black if any of its source pixels is masked.
pub(crate) fn shrunk(image: &Image, divisor: Divisor) -> Image {
    let squares = Squares::of(image, divisor);
    let [width, height] = squares.px;
    let mask: Option<Vec<u8>> = image.mask.as_ref().map(|mask| {
        let counts = |at: [usize; 2]| squares.pixels(at).all(|pixel| mask[pixel] != 0);
        squares.each().map(|at| if counts(at) { 255 } else { 0 }).collect()
    });
    let mut rgb = Vec::with_capacity(width * height * 3);
    for (pixel, at) in squares.each().enumerate() {
        let counts = mask.as_ref().is_none_or(|mask| mask[pixel] != 0);
        rgb.extend([0, 1, 2].map(|channel| match counts {
            true => squares.mean(at, |pixel| image.rgb[pixel * 3 + channel]),
            false => 0,
        }));
    }
    let depth = image.depth.as_ref().map(|map| InverseDepthMap {
        values: squares.each().map(|at| squares.mean(at, |pixel| map.values[pixel])).collect(),
        scale: map.scale,
        offset: map.offset,
    });
    let normals = image.normals.as_ref().map(|map| {
        let value = |pixel: usize, axis| NormalMap::biased(map.values[pixel * 3 + axis]);
        let mean = |at| [0, 1, 2].map(|axis| squares.mean(at, |pixel| value(pixel, axis)));
        let values = squares.each().flat_map(mean).map(NormalMap::unbiased).collect();
        NormalMap { values }
    });
    let [width, height] = divisor.px([image.width, image.height]);
    Image { width, height, rgb, mask, depth, normals }
}

/// Squares of source pixels.
struct Squares {
    /// Number of squares per row and per column.
    px: [usize; 2],
    /// Number of pixels per row of the image.
    full_width: usize,
    side: usize,
}

impl Squares {
    fn of(image: &Image, divisor: Divisor) -> Self {
        let px = divisor.px([image.width, image.height]).map(|side| side as usize);
        Self { px, full_width: image.width as usize, side: divisor.get() as usize }
    }

    /// Yields the column and row of each square, row by row.
    fn each(&self) -> impl Iterator<Item = [usize; 2]> {
        let [width, height] = self.px;
        (0..height).flat_map(move |y| (0..width).map(move |x| [x, y]))
    }

    /// Yields the source pixels of a square.
    fn pixels(&self, [x, y]: [usize; 2]) -> impl Iterator<Item = usize> {
        let &Self { full_width, side, .. } = self;
        (y * side..(y + 1) * side)
            .flat_map(move |row| (x * side..(x + 1) * side).map(move |at| row * full_width + at))
    }

    fn mean<T>(&self, at: [usize; 2], value: impl Fn(usize) -> T) -> T
    where
        T: Into<u32> + TryFrom<u32> + Default,
    {
        let sum: u32 = self.pixels(at).map(|pixel| value(pixel).into()).sum();
        let count = u32::try_from(self.side * self.side).unwrap_or(1);
        // The mean is at most the largest value, so the conversion succeeds.
        T::try_from((sum + count / 2) / count).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates an image of 5 x 3 px with different values.
    fn image(mask: Option<Vec<u8>>) -> Image {
        let rgb = (0..45).map(|i| 5 * i).collect();
        let values = (0..15).map(|i| 4000 * i).collect();
        let depth = Some(InverseDepthMap { values, scale: 2.0, offset: 0.5 });
        let values = (0..45).map(|i| i8::try_from(5 * i - 110).unwrap()).collect();
        let normals = Some(NormalMap { values });
        Image { width: 5, height: 3, rgb, mask, depth, normals }
    }

    #[test]
    fn pixels_are_rounded_means_and_incomplete_squares_are_dropped() {
        let small = shrunk(&image(None), Divisor::Two);
        assert_eq!((small.width, small.height, &small.mask), (2, 1, &None));
        // Pixels 0, 1, 5 and 6 have the first values 0, 15, 75 and 90.
        assert_eq!(small.rgb, [45, 50, 55, 75, 80, 85]);
        let map = small.depth.unwrap();
        assert_eq!((map.values, map.scale, map.offset), (vec![12_000, 20_000], 2.0, 0.5));
        // Pixels 0, 1, 5 and 6 have the first values -110, -95, -35 and -20.
        assert_eq!(small.normals.unwrap().values, [-65, -60, -55, -35, -30, -25]);
        // 2 / 4 becomes 1, and 1 / 4 becomes 0.
        let rgb = vec![0, 1, 255, 1, 0, 255, 1, 0, 255, 0, 0, 255];
        let image = Image { width: 2, height: 2, rgb, mask: None, depth: None, normals: None };
        assert_eq!(shrunk(&image, Divisor::Two).rgb, [1, 0, 255]);
        assert_eq!(shrunk(&image, Divisor::One), image);
    }

    #[test]
    fn masked_pixels_have_no_effect_without_a_weight_and_are_scaled_with_one() {
        // The first of six pixels is masked; the photograph is black.
        let mask = Some(vec![0, 255, 255, 255, 255, 255]);
        let photo =
            Image { width: 3, height: 2, rgb: vec![0; 18], mask, depth: None, normals: None };
        let graded = |value: f64, empty_weight: f64| {
            let rendered = [[value; 3], [0.5; 3], [0.5; 3], [0.5; 3], [0.5; 3], [0.5; 3]].concat();
            let term = Term::Photometric { lambda_dssim: 0.0, empty_weight };
            let (terms, mut means) = (Terms::default().with(term, 1.0), Means::default());
            let shown = (&rendered[..], [0.25; 3]);
            let d_image = loss::<f64>(shown, [3, 2], &photo, &terms, &mut means).unwrap();
            (means[VALUE_L1 as usize], d_image[0])
        };
        assert_eq!(graded(f64::NAN, 0.0), (0.5 * 5.0 / 6.0, 0.0));
        // The difference from the background is 0.5.
        let (l1, d_first) = graded(0.75, 0.1);
        assert!((l1 - (0.5 * 5.0 + 0.05) / 6.0).abs() < 1e-12, "{l1}");
        assert!((d_first - 0.1 / 18.0).abs() < 1e-12, "{d_first}");
        assert!(graded(f64::NAN, 0.1).0.is_nan());
    }

    #[test]
    fn pixels_count_if_no_source_pixel_is_masked() {
        let mut mask = vec![255; 15];
        // The first is in the second square; the other two are in dropped squares.
        (mask[7], mask[4], mask[11]) = (0, 0, 0);
        let small = shrunk(&image(Some(mask)), Divisor::Two);
        assert_eq!(small.mask, Some(vec![255, 0]));
        assert_eq!(small.rgb, [45, 50, 55, 0, 0, 0]);
    }
}

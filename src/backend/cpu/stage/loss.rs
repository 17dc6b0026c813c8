//! Stage `loss`: (1 - λ) L1 + λ (1 - SSIM) against the photograph, its gradient, and the metrics of a render.

use rayon::prelude::*;

use crate::abi::terms::{Means, Term, Terms, VALUE_L1, VALUE_SSIM};
use crate::backend::{DeviceError, Measured};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::ssim::{Pair, ssim, ssim_with_gradient};

/// Evaluates the colour terms and returns the gradient of the image, `[height, width, 3]`.
///
/// Both images are multiplied by the photograph's mask, if any. Means are over all pixels.
pub(crate) fn loss<R: Real>(
    image: &[R],
    view_px: [u32; 2],
    target: &Image,
    terms: &Terms,
    means: &mut Means,
) -> Result<Vec<R>, DeviceError> {
    let size = common_size(view_px, target)?;
    let truth = masked(target.rgb.iter().map(|&v| R::of(f64::from(v) / 255.0)), target);
    let image = masked(image.iter().copied(), target);
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
    Ok(masked(d_image.into_iter(), target))
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
    let sign = |x: R, y: R| match x.partial_cmp(&y) {
        Some(std::cmp::Ordering::Greater) => slope,
        Some(std::cmp::Ordering::Less) => -slope,
        _ => R::ZERO,
    };
    let pixels = d_image.par_iter_mut().zip(image).zip(truth);
    pixels.for_each(|((d, &x), &y)| *d += sign(x, y));
    sums.iter().sum::<f64>() / image.len() as f64
}

/// Returns the values of an image, 0 at masked pixels.
pub(crate) fn masked<R: Real>(values: impl Iterator<Item = R>, target: &Image) -> Vec<R> {
    match &target.mask {
        None => values.collect(),
        Some(mask) => values
            .zip(mask.iter().flat_map(|&m| [m; 3]))
            .map(|(value, m)| if m == 0 { R::ZERO } else { value })
            .collect(),
    }
}

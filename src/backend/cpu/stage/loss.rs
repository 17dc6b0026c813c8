//! Stage `loss`: (1 - λ) L1 + λ (1 - SSIM) against the photograph, and its gradient; and the metrics
//! of a render.

use rayon::prelude::*;

use crate::backend::{DeviceError, LossTerms, LossValue, Measured};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::ssim::{Pair, ssim, ssim_with_gradient};

/// The loss of an image and its gradient, [height, width, 3].
///
/// Where the photograph has a mask, both images are multiplied by it before they are compared;
/// means are over all pixels.
pub(crate) fn loss<R: Real>(
    image: &[R],
    view_px: [u32; 2],
    target: &Image,
    terms: &LossTerms,
) -> Result<(LossValue, Vec<R>), DeviceError> {
    let size = common_size(view_px, target)?;
    let truth = masked(target.rgb.iter().map(|&v| R::of(f64::from(v) / 255.0)), target);
    let image = masked(image.iter().copied(), target);
    let (l1, mut d_image) = l1(&image, &truth, 1.0 - terms.lambda_dssim);
    let pair = Pair { x: &image, y: &truth, size };
    let ssim = ssim_with_gradient(pair, R::of(-terms.lambda_dssim), &mut d_image);
    // The rendered image passed through the mask, and so does its gradient.
    let d_image = masked(d_image.into_iter(), target);
    let total = (1.0 - terms.lambda_dssim) * l1 + terms.lambda_dssim * (1.0 - ssim);
    if !total.is_finite() {
        return Err(DeviceError::LossNotFinite { value: total });
    }
    Ok((LossValue { l1, ssim, depth_l1: None, total }, d_image))
}

/// The metrics of an image in double precision, whatever the image's.
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

/// The size of both images, if it is one.
pub(crate) fn common_size(view_px: [u32; 2], target: &Image) -> Result<[usize; 2], DeviceError> {
    let target_px = [target.width, target.height];
    if target_px != view_px {
        return Err(DeviceError::TargetSize { target_px, view_px });
    }
    Ok(target_px.map(|side| side as usize))
}

/// Mean absolute error and its gradient times `weight`; 0 where the images agree.
fn l1<R: Real>(image: &[R], truth: &[R], weight: f64) -> (f64, Vec<R>) {
    // Sums of blocks of fixed length, added in order: the same on any number of threads.
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
    let d_image = image.par_iter().zip(truth).map(|(&x, &y)| sign(x, y)).collect();
    (sums.iter().sum::<f64>() / image.len() as f64, d_image)
}

/// Values of an image, 0 where the mask excludes the pixel.
pub(crate) fn masked<R: Real>(values: impl Iterator<Item = R>, target: &Image) -> Vec<R> {
    match &target.mask {
        None => values.collect(),
        Some(mask) => values
            .zip(mask.iter().flat_map(|&m| [m; 3]))
            .map(|(value, m)| if m == 0 { R::ZERO } else { value })
            .collect(),
    }
}

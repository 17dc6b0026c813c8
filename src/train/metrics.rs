//! How much a render looks like its photograph.

use super::event::Metrics;
use crate::backend::Rendered;
use crate::dataset::Image;
use crate::math::ssim::{Pair, ssim};

/// PSNR of a perfect render, dB: a mean squared error of 1e-10.
const PSNR_MAX_DB: f64 = 100.0;

/// Metrics of a render, clamped to 0..1, against its photograph. Both have the same size.
///
/// PSNR is 10 log₁₀(1 / mean squared error) over all pixels and channels; SSIM as in
/// [`crate::math::ssim`]. Where the photograph has a mask, both images are multiplied by it.
pub fn metrics(rendered: &Rendered, image: &Image) -> Metrics {
    let counts = |pixel: usize| image.mask.as_ref().is_none_or(|mask| mask[pixel] != 0);
    let gate = |index: usize, value: f64| if counts(index / 3) { value } else { 0.0 };
    let x: Vec<f64> = rendered
        .rgb
        .iter()
        .enumerate()
        .map(|(i, &value)| gate(i, f64::from(value.clamp(0.0, 1.0))))
        .collect();
    let y: Vec<f64> =
        image.rgb.iter().enumerate().map(|(i, &v)| gate(i, f64::from(v) / 255.0)).collect();
    let count = x.len().max(1) as f64;
    let mse = x.iter().zip(&y).map(|(x, y)| (x - y) * (x - y)).sum::<f64>() / count;
    let l1 = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).sum::<f64>() / count;
    let size = [image.width as usize, image.height as usize];
    Metrics {
        psnr: if mse > 0.0 { (-10.0 * mse.log10()).min(PSNR_MAX_DB) } else { PSNR_MAX_DB },
        ssim: ssim(Pair { x: &x, y: &y, size }),
        l1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(render: f32, photo: u8, mask: Option<Vec<u8>>) -> (Rendered, Image) {
        let rendered =
            Rendered { width: 16, height: 12, rgb: vec![render; 576], blended: vec![0; 192] };
        (rendered, Image { width: 16, height: 12, rgb: vec![photo; 576], mask })
    }

    #[test]
    fn a_constant_error_of_a_tenth_is_20_db() {
        let (rendered, image) = pair(0.5, 102, None);
        let found = metrics(&rendered, &image);
        // 102/255 is 0.4 exactly in decimal; the rest is rounding in single precision.
        assert!((found.psnr - 20.0).abs() < 1e-5, "{found:?}");
        assert!((found.l1 - 0.1).abs() < 1e-7, "{found:?}");
    }

    #[test]
    fn renders_are_clamped_and_a_perfect_one_is_100_db() {
        let (rendered, image) = pair(1.7, 255, None);
        assert_eq!(metrics(&rendered, &image), Metrics { psnr: 100.0, ssim: 1.0, l1: 0.0 });
    }

    #[test]
    fn what_the_mask_excludes_does_not_count_as_an_error() {
        let mut mask = vec![255; 192];
        mask[..96].fill(0);
        let (rendered, image) = pair(0.5, 102, Some(mask));
        let found = metrics(&rendered, &image);
        // Half the pixels keep their error of 0.1.
        assert!((found.l1 - 0.05).abs() < 1e-7, "{found:?}");
    }
}

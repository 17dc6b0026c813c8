//! How much a render looks like its photograph, in the customary units.

use super::event::{Corrected, Metrics};
use crate::backend::Measured;

/// PSNR of a perfect render, dB: a mean squared error of 1e-10.
const PSNR_MAX_DB: f64 = 100.0;

impl From<Measured> for Metrics {
    /// PSNR is 10 log₁₀(1 / mean squared error). LPIPS is another matter.
    fn from(Measured { mse, l1, ssim }: Measured) -> Self {
        Self { psnr: psnr(mse), ssim, l1, lpips: None, corrected: None, reference: None }
    }
}

impl From<Measured> for Corrected {
    fn from(Measured { mse, ssim, .. }: Measured) -> Self {
        Self { psnr: psnr(mse), ssim }
    }
}

fn psnr(mse: f64) -> f64 {
    if mse > 0.0 { (-10.0 * mse.log10()).min(PSNR_MAX_DB) } else { PSNR_MAX_DB }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_tenth_is_20_db_and_none_is_100_db() {
        let psnr = |mse| Metrics::from(Measured { mse, l1: 0.0, ssim: 1.0 }).psnr;
        // Rounding of 0.1² and of the logarithm.
        assert!((psnr(0.1 * 0.1) - 20.0).abs() < 1e-12);
        assert_eq!([psnr(0.0), psnr(1e-12)], [100.0; 2]);
    }
}

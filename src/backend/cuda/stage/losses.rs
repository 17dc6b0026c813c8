//! The terms of the loss: those at pixels in their order, and the values of all on their way to the
//! host.

use super::loss::LossCounts;
use crate::abi::terms::{
    Means, TERM_VALUES, VALUE_DENSITY, VALUE_DEPTH_L1, VALUE_DN, VALUE_ENTROPY, VALUE_L1,
    VALUE_NORMAL, VALUE_SDF, VALUE_SSIM, Weighted,
};
use crate::backend::cuda::memory::status::Report;
use crate::backend::{DeviceError, LossValues, Pending};

/// Values of terms on their way to the host.
pub struct PendingLosses {
    /// Nothing where there are no terms.
    report: Option<Report>,
    terms: Vec<Weighted>,
    /// What their sums are divided by.
    counts: Means,
}

impl PendingLosses {
    /// Of no terms.
    pub(crate) fn none() -> Self {
        Self { report: None, terms: Vec::new(), counts: [1.0; TERM_VALUES as usize] }
    }

    /// Those of terms at the pixels of an image of this size.
    pub(crate) fn of_pixels(report: Report, terms: Vec<Weighted>, size: [u32; 2]) -> Self {
        let image = LossCounts::of(size);
        let mut counts = [1.0; TERM_VALUES as usize];
        counts[VALUE_L1 as usize] = image.values;
        counts[VALUE_SSIM as usize] = image.windows;
        counts[VALUE_DEPTH_L1 as usize] = image.pixels;
        counts[VALUE_DN as usize] = image.pixels;
        Self { report: Some(report), terms, counts }
    }

    /// Those of terms at samples of a view that sees so many Gaussians.
    pub(crate) fn of_samples(
        report: Report,
        terms: Vec<Weighted>,
        (seen, samples): (usize, u32),
    ) -> Self {
        let mut counts = [1.0; TERM_VALUES as usize];
        counts[VALUE_ENTROPY as usize] = seen.max(1) as f64;
        for place in [VALUE_DENSITY, VALUE_NORMAL, VALUE_SDF] {
            counts[place as usize] = f64::from(samples.max(1));
        }
        Self { report: Some(report), terms, counts }
    }
}

impl Pending<LossValues> for PendingLosses {
    fn is_ready(&self) -> bool {
        self.report.as_ref().is_none_or(Report::is_ready)
    }

    fn read(self) -> Result<LossValues, DeviceError> {
        let Some(report) = &self.report else { return Ok(LossValues::default()) };
        let mut means = Means::default();
        for ((mean, sum), count) in means.iter_mut().zip(report.read()?).zip(self.counts) {
            *mean = sum / count;
        }
        LossValues::of(self.terms.iter(), &means).checked()
    }
}

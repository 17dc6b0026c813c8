//! The terms of the loss: those at pixels in their order, and the values of all on their way to the
//! host.

use super::loss::LossCounts;
use crate::abi::terms::{Means, Over, TERM_VALUES, Weighted};
use crate::backend::cuda::memory::status::StatusReport;
use crate::backend::{DeviceError, LossValues, Pending};

/// Values of terms on their way to the host.
pub struct PendingLosses {
    /// Nothing where there are no terms.
    report: Option<StatusReport>,
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
    pub(crate) fn of_pixels(report: StatusReport, terms: Vec<Weighted>, size: [u32; 2]) -> Self {
        let image = LossCounts::of(size);
        Self::new(report, terms, |over| image.over(over))
    }

    /// Those of terms at samples of a view that sees so many Gaussians.
    pub(crate) fn of_samples(
        report: StatusReport,
        terms: Vec<Weighted>,
        seen: usize,
        samples: u32,
    ) -> Self {
        Self::new(report, terms, |over| match over {
            Over::Seen => seen.max(1) as f64,
            _ => f64::from(samples.max(1)),
        })
    }

    fn new(report: StatusReport, terms: Vec<Weighted>, count: impl Fn(Over) -> f64) -> Self {
        let mut counts = [1.0; TERM_VALUES as usize];
        for value in terms.iter().flat_map(|weighted| weighted.term.values()) {
            counts[value.place as usize] = count(value.over);
        }
        Self { report: Some(report), terms, counts }
    }
}

impl Pending<LossValues> for PendingLosses {
    fn is_ready(&self) -> bool {
        self.report.as_ref().is_none_or(StatusReport::is_ready)
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

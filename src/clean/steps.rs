//! The rules that look at each Gaussian once.

use super::cleaner::Cleaner;
use super::isolation::isolation;
use super::places::Places;
use super::rule::CleanRule;
use crate::backend::TrainDevice;
use crate::model::Gaussians;
use crate::train::TrainError;

/// What a Gaussian's largest blend weight exceeds, where it is of use to a view: at most this is the
/// threshold of those that are faint.
const FAINT_MAX: f64 = 0.1;

/// The least threshold of the faint that is tried.
const FAINT_MIN: f64 = 0.001;

/// Halvings of the interval between these, by logarithms: the last is of 7 %.
const FAINT_STEPS: u32 = 6;

/// Isolation from which on a Gaussian goes that hardly changes the error: 3.5 standard deviations
/// (Iglewicz and Hoaglin 1993).
const ISOLATED: f64 = 3.5;

/// By how much of a Gaussian's weight the error may grow, where it is isolated.
const HARDLY_CHANGES: f64 = 1e-3;

/// Isolation from which on a Gaussian goes without which the error is less.
const RATHER_ISOLATED: f64 = 2.5;

impl<B: TrainDevice> Cleaner<'_, '_, B> {
    /// Nothing changes in any view without those that none shows.
    pub(super) fn drop_unseen(&mut self) {
        for row in self.left(|row| self.now.worths[row].weight_max <= 0.0) {
            self.gone[row] = Some(CleanRule::Unseen);
        }
    }

    pub(super) fn drop_near(&mut self, places: &Places, near: f64) -> Result<(), TrainError> {
        let mut rows = self.left(|row| places.camera_distance[row] < near);
        rows.sort_by(|&a, &b| places.camera_distance[a].total_cmp(&places.camera_distance[b]));
        self.drop_within(rows, CleanRule::Near, 0.5)
    }

    pub(super) fn drop_huge(&mut self, places: &Places) -> Result<(), TrainError> {
        let mut rows = self.left(|row| places.is_huge(row) && self.weight_max(row) < 0.05);
        rows.sort_by(|&a, &b| places.scale[b].total_cmp(&places.scale[a]));
        self.drop_within(rows, CleanRule::Huge, 0.5)
    }

    pub(super) fn drop_isolated(&mut self, gaussians: &Gaussians) -> Result<(), TrainError> {
        for (least, most_harm) in [(ISOLATED, HARDLY_CHANGES), (RATHER_ISOLATED, 0.0)] {
            let left = self.left(|_| true);
            let isolation = isolation(gaussians, &left);
            let rows = left.into_iter().zip(isolation).filter(|&(_, found)| found > least);
            let mut rows: Vec<usize> =
                rows.map(|(row, _)| row).filter(|&row| self.harm(row) < most_harm).collect();
            rows.sort_by(|&a, &b| self.harm(a).total_cmp(&self.harm(b)));
            self.drop_within(rows, CleanRule::Isolated, 0.5)?;
        }
        Ok(())
    }

    /// Removes those with the smallest blend weights, as many as the loss allows.
    pub(super) fn drop_faint(&mut self) -> Result<(), TrainError> {
        let weights: Vec<f64> = (0..self.gone.len()).map(|row| self.weight_max(row)).collect();
        let (mut low, mut high) = (FAINT_MIN.ln(), FAINT_MAX.ln());
        let mut found = None;
        for step in 0..=FAINT_STEPS {
            // The least comes first: it may cost too much already.
            let tried = if step == 0 { low } else { f64::midpoint(low, high) };
            let rows = self.left(|row| weights[row] < tried.exp());
            let proposal = self.without(&rows, CleanRule::Faint)?;
            let psnr = proposal.judged.psnr;
            tracing::info!("faint, below {:.4}: {}, PSNR {psnr:.3} dB", tried.exp(), rows.len());
            if psnr >= self.least() {
                (low, found) = (tried, Some(proposal));
            } else if step == 0 {
                break;
            } else {
                high = tried;
            }
        }
        found.into_iter().for_each(|proposal| self.accept(proposal));
        Ok(())
    }
}

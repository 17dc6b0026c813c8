//! The rules that look at each Gaussian once.

use super::cleaner::Cleaner;
use super::isolation::isolation;
use super::places::Places;
use super::rule::CleanRule;
use crate::backend::TrainDevice;
use crate::model::Gaussians;
use crate::train::TrainError;

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
}

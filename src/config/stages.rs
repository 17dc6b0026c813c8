//! Where the stages of a run begin and end.

use super::Config;
use super::sugar::{Regularize, SugarSchedule};

/// The last iteration of the coarse stage, if its schedule is the reference's.
const ABSOLUTE_LAST: u32 = 15_000;

impl Config {
    /// Whether SuGaR's coarse stage follows the photometric stage.
    pub fn has_coarse_stage(&self) -> bool {
        self.sugar.regularize != Regularize::None
    }

    /// The last iteration of the run: that of the coarse stage, if it has one.
    pub fn last_iteration(&self) -> u32 {
        let photometric = self.optimize.iterations;
        if !self.has_coarse_stage() {
            return photometric;
        }
        match self.sugar.sugar_schedule {
            SugarSchedule::Relative => photometric.saturating_add(self.sugar.sugar_iterations),
            SugarSchedule::Absolute => ABSOLUTE_LAST,
        }
    }
}

//! The views that those of a run are compared with, as part of the run.

use super::Trainer;
use crate::backend::TrainDevice;
use crate::train::TrainError;
use crate::train::other_views::OtherViews;

impl<B: TrainDevice> Trainer<'_, B> {
    /// Warns where views should be compared and no view has another.
    pub(super) fn warn_of_lone_views(&mut self) -> Result<(), TrainError> {
        if self.feed.compared_views().is_some_and(OtherViews::is_empty) {
            self.warn(
                "--multi-view compares nothing: no training view has a neighbour 2 to 30 degrees apart that \
                 sees the same points. Train with more photographs or with COLMAP's points"
                    .to_owned(),
            )?;
        }
        Ok(())
    }
}

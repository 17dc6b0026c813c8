//! The views that those of a run are compared with, as part of the run.

use super::Trainer;
use crate::backend::{OtherView, TrainDevice, seen_from};
use crate::math::patches::OtherCamera;
use crate::train::TrainError;
use crate::train::feed::TakenView;
use crate::train::other_views::OtherViews;

/// A view that another is compared with, with its photograph on the device.
pub(super) struct TakenOther<T> {
    target: T,
    camera: OtherCamera<f64>,
    first_px: [u32; 2],
}

impl<T> TakenOther<T> {
    pub(super) fn as_view(&self) -> OtherView<'_, T> {
        OtherView { target: &self.target, camera: self.camera, first_px: self.first_px }
    }
}

impl<B: TrainDevice> Trainer<'_, B> {
    /// The view that the one of an image is compared with, where there is any.
    pub(super) fn take_other(
        &mut self,
        image: u32,
        view: usize,
    ) -> Result<Option<TakenOther<B::Target>>, TrainError> {
        let Some(taken) = self.feed.take_other(self.device, image, view)? else { return Ok(None) };
        let TakenView { view: other, target } = taken;
        let views = &self.feed.views;
        let camera = seen_from(views.training_view(view), views.training_view(other));
        let first_px = self.feed.compared_views().map_or([0; 2], |views| views.first_px(image));
        Ok(Some(TakenOther { target, camera, first_px }))
    }

    /// Warns where views should be compared and no view has another.
    pub(super) fn warn_of_lone_views(&mut self) -> Result<(), TrainError> {
        if self.feed.compared_views().is_some_and(OtherViews::is_empty) {
            self.warn(
                "--multi-view compares nothing: no training view has another one beside it that looks \
                 at the same from 2 to 30 degrees aside, by the points of the scene. Train with more \
                 photographs, or with the points that the cameras were found by"
                    .to_owned(),
            )?;
        }
        Ok(())
    }
}

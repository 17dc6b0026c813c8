//! Pictures of one view while a model is trained.

use super::Trainer;
use crate::backend::{Look, RenderSettings, TrainDevice};
use crate::train::event::Event;
use crate::train::pictures::render_picture;
use crate::train::span::ImageSpan;
use crate::train::{TrainError, schedule};

impl<B: TrainDevice> Trainer<'_, B> {
    /// Keeps a picture where one is due after a step.
    pub(super) fn keep_timelapse(&mut self, span: ImageSpan) -> Result<(), TrainError> {
        let is_due = self.timelapse.as_ref().is_some_and(|timelapse| timelapse.is_due(span));
        if is_due { self.keep_picture() } else { Ok(()) }
    }

    /// Keeps a picture of the model as it is, where pictures are kept.
    pub(super) fn keep_picture(&mut self) -> Result<(), TrainError> {
        let Some(timelapse) = &self.timelapse else { return Ok(()) };
        let config = self.setup.config;
        let settings = RenderSettings {
            sh_degree: schedule::sh_degree(&config.optimize, self.iteration.max(1)),
            background: config.scene.background_color().0,
            near: self.feed.views.near(),
            footprint: self.shown_footprint(),
            ..RenderSettings::DEFAULT
        };
        let drawn = self.device.render(&self.model, &timelapse.view, &settings, Look::IMAGE);
        let picture = match drawn.and_then(|frame| self.device.image(&frame)) {
            Ok(rendered) => render_picture(&rendered),
            // A run does not end for a picture.
            Err(error) if error.is_out_of_memory() => {
                tracing::debug!("a picture of --timelapse is left out: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        Ok(self.sink.on(&Event::TimelapsePicture { iteration: self.iteration, picture })?)
    }
}

//! Colours other than those drawn: as a camera changed them, or as they fit a photograph best.

use super::view::Frame;
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::appearance::{self, ColorTables, ViewColors};
use crate::backend::cuda::stage::lpips::{self, LpipsModel};
use crate::backend::frame_state::{Compensated, Drawn, Scored, Shown};
use crate::backend::{DeviceError, TableStep};
use crate::perceptual::LpipsInput;

impl<P> Frame<Drawn, P> {
    /// Fills the colours that are compared: those drawn, as the camera of a training view changed them.
    pub(in crate::backend::cuda) fn compensate(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Compensated, P>, DeviceError> {
        let colors = self.colors.as_mut().ok_or(DeviceError::NoRoomForColors)?;
        let colors =
            ViewColors { drawn: &self.canvas.image, camera: &self.camera, compared: colors };
        appearance::compensate(session, tables, colors, step)?;
        Ok(self.into_state(|()| ()))
    }
}

impl<P> Frame<Shown, P> {
    /// Has it measured by its colours as they fit the photograph best.
    pub(in crate::backend::cuda) fn correct(
        mut self,
        session: &Session,
        target: &Target,
    ) -> Result<Self, DeviceError> {
        let colors = self.colors.as_mut().ok_or(DeviceError::NoRoomForColors)?;
        let colors =
            ViewColors { drawn: &self.canvas.image, camera: &self.camera, compared: colors };
        appearance::correct(session, colors, target)?;
        Ok(self)
    }

    /// How much a network finds it to differ from its photograph.
    pub(in crate::backend::cuda) fn perceive(
        &self,
        session: &Session,
        net: &LpipsModel,
        target: &Target,
        input: LpipsInput,
    ) -> Result<f64, DeviceError> {
        lpips::perceive(session, net, &self.canvas.image, &self.camera, target, input)
    }
}

impl<P> Frame<Scored<Compensated>, P> {
    /// Moves the view's table, and turns the gradient of the colours that were compared into that of
    /// those drawn.
    pub(in crate::backend::cuda) fn learn(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>, P>, DeviceError> {
        let (Some(d_image), Some(colors)) = (&mut self.d_image, &mut self.colors) else {
            return Err(DeviceError::NoRoomForColors);
        };
        let colors =
            ViewColors { drawn: &self.canvas.image, camera: &self.camera, compared: colors };
        appearance::learn(session, tables, colors, d_image, step)?;
        Ok(self.into_state(|scores| scores))
    }
}

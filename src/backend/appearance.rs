//! Learning the colour changes of the cameras.

use super::appearance_tables::{AppearanceTables, TableStep};
use super::frame_state::{Compensated, Drawn, Scored, Shown};
use super::{DeviceError, Render};
use crate::model::Primitive;

/// Devices that learn the colour change of each training view's camera.
pub trait Appearance<P: Primitive>: Render<P> {
    /// Colour tables of the training views with Adam's moments.
    type Tables;

    /// Puts the tables of the training views on the device.
    fn upload_tables(&mut self, _tables: &AppearanceTables) -> Result<Self::Tables, DeviceError> {
        super::error::refused("tables of colours")
    }

    /// Reads the tables back.
    fn read_tables(&mut self, _tables: &Self::Tables) -> Result<AppearanceTables, DeviceError> {
        super::error::refused("tables of colours")
    }

    /// Applies the view's table to the colours of a frame and keeps the drawn colours beside the changed ones. The
    /// table first catches up on the steps since its last one by its momentum, as in dense Adam.
    ///
    /// Returns [`DeviceError::NoRoomForColors`] if the frame was drawn without [`super::Wants::compensation`].
    fn compensate(
        &mut self,
        _tables: &mut Self::Tables,
        _frame: Self::Frame<Drawn>,
        _step: &TableStep,
    ) -> Result<Self::Frame<Compensated>, DeviceError> {
        super::error::refused("tables of colours")
    }

    /// Moves the table of the frame's view down the gradient, and turns the frame's gradient into the gradient of the
    /// drawn colours. A table moves once in an iteration.
    fn learn(
        &mut self,
        _tables: &mut Self::Tables,
        _frame: Self::Frame<Scored<Compensated>>,
        _step: &TableStep,
    ) -> Result<Self::Frame<Scored<Drawn>>, DeviceError> {
        super::error::refused("tables of colours")
    }

    /// Changes the colours by which a frame is measured: clamps them to 0..1 and applies the affine map with the
    /// least squared error to the photograph. Masked pixels do not count.
    ///
    /// Returns [`DeviceError::NoRoomForColors`] if the frame was drawn without [`super::Look::corrects_colors`].
    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError>;
}

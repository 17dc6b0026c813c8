//! Devices that learn what cameras did to the colours of their photographs.

use super::appearance_tables::{AppearanceTables, TableStep};
use super::frame_state::{Compensated, Drawn, Scored, Shown};
use super::{DeviceError, Render};
use crate::model::Primitive;

/// Devices that learn what cameras did to the colours of their photographs.
pub trait Appearance<P: Primitive>: Render<P> {
    /// What changes the colours of the training views, with its moments.
    type Tables;

    /// Puts the tables of the training views on the device.
    fn upload_tables(&mut self, tables: &AppearanceTables) -> Result<Self::Tables, DeviceError>;

    /// The tables as they are now.
    fn read_tables(&mut self, tables: &Self::Tables) -> Result<AppearanceTables, DeviceError>;

    /// Changes a frame's colours as the view's camera changed them, beside those drawn. The view's
    /// table first catches up on the steps since it moved last: by its momentum, as in dense Adam.
    ///
    /// The frame was drawn with [`super::Wants::compensation`], or it is
    /// [`DeviceError::NoRoomForColors`].
    fn compensate(
        &mut self,
        tables: &mut Self::Tables,
        frame: Self::Frame<Drawn>,
        step: &TableStep,
    ) -> Result<Self::Frame<Compensated>, DeviceError>;

    /// Moves the table of the frame's view, and no other, down the gradient, and turns the gradient
    /// that the frame holds into that of what was drawn. A table moves once in an iteration.
    fn learn(
        &mut self,
        tables: &mut Self::Tables,
        frame: Self::Frame<Scored<Compensated>>,
        step: &TableStep,
    ) -> Result<Self::Frame<Scored<Drawn>>, DeviceError>;

    /// Changes the colours by which a frame is measured: clamped to 0..1 and mapped by the affine map
    /// that brings them nearest to the photograph's by least squares. Masked pixels do not count.
    ///
    /// The frame was drawn with [`super::Look::corrects_colors`], or it is
    /// [`DeviceError::NoRoomForColors`].
    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError>;
}

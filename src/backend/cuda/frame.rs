//! The frame: what is known of one drawn view, and the gradients that come of it.

use super::bin::{self, Bins};
use super::blend::{self, Canvas};
use super::heap::{Block, Buffer};
use super::images::Target;
use super::loss::{self, PendingLoss};
use super::model::Model;
use super::project::{self, Splats};
use super::session::Session;
use super::{adam, densify, work};
use crate::abi::Camera;
use crate::backend::{
    AdamStep, DeviceError, LossTerms, Measured, Pass, RenderSettings, Rendered, Work,
};
use crate::dataset::View;
use crate::memory::Bytes;

/// A drawn view and what the backward pass needs of it.
pub struct Frame {
    d_image: Option<Block<f32>>,
    /// Whether the gradient of the image is there.
    compared: bool,
    canvas: Canvas,
    bins: Bins,
    splats: Splats,
    camera: Camera,
    settings: RenderSettings,
}

/// The screen-space gradients of one view, or of none yet.
#[derive(Default)]
pub struct Gradients {
    view: Option<(Splats, Camera, u32)>,
}

/// Draws a view.
pub(super) fn render(
    session: &mut Session,
    model: &Model,
    view: &View,
    settings: &RenderSettings,
) -> Result<Frame, DeviceError> {
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    let bins = bin::bin(session, &mut splats, &camera)?;
    let canvas = blend::forward(session, (&splats, &bins), &camera, settings)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let d_image = match settings.pass {
        Pass::Eval | Pass::Picture => None,
        Pass::Train | Pass::Observe => {
            Some(session.heap.scratch("gradient of the image", canvas.image.len())?)
        }
    };
    Ok(Frame { d_image, compared: false, canvas, bins, splats, camera, settings: *settings })
}

impl Frame {
    pub(super) fn loss(
        &mut self,
        session: &mut Session,
        target: &Target,
        terms: &LossTerms,
    ) -> Result<PendingLoss, DeviceError> {
        let Some(d_image) = &mut self.d_image else { return Err(DeviceError::NoLoss) };
        let image = (&self.canvas.image, &self.camera);
        let pending = loss::loss(session, image, target, terms, d_image)?;
        self.compared = true;
        Ok(pending)
    }

    pub(super) fn measure(
        &self,
        session: &mut Session,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        loss::measure(session, (&self.canvas.image, &self.camera), target)
    }

    /// Leaves the gradients of the splats.
    pub(super) fn backward(
        mut self,
        session: &mut Session,
        model: &mut Model,
        gradients: &mut Gradients,
    ) -> Result<(), DeviceError> {
        if gradients.view.is_some() {
            return Err(DeviceError::OneViewPerStep);
        }
        let Some(d_image) = self.d_image.as_ref().filter(|_| self.compared) else {
            return Err(DeviceError::NoLoss);
        };
        let pixels = (&mut self.canvas, d_image);
        blend::backward(session, (&mut self.splats, &self.bins), &self.camera, pixels)?;
        if self.settings.pass == Pass::Observe {
            densify::observe(session, model, &self.splats, self.camera.size)?;
        }
        gradients.view = Some((self.splats, self.camera, self.settings.sh_degree));
        Ok(())
    }

    /// Waits for the device.
    pub(super) fn image(&self, session: &Session) -> Result<Rendered, DeviceError> {
        let mut rgb = vec![0.0; self.canvas.image.len()];
        self.canvas.image.download(&session.stream, 0, &mut rgb)?;
        let blended = match &self.canvas.blended {
            None => None,
            Some(counts) => {
                let mut host = vec![0; counts.len()];
                counts.download(&session.stream, 0, &mut host)?;
                Some(host)
            }
        };
        let [width, height] = self.camera.size;
        Ok(Rendered { width, height, rgb, blended })
    }

    /// What it gives the stages to do. Waits for the device.
    pub(super) fn work(
        &self,
        session: &Session,
        model: &Model,
    ) -> Result<Option<Work>, DeviceError> {
        work::count(session, model, &self.splats, (&self.bins, &self.canvas), &self.camera)
    }

    pub(super) fn bytes(&self) -> Bytes {
        let d_image = self.d_image.as_ref().map_or(0, Block::len);
        self.canvas.bytes() + self.bins.bytes() + self.splats.bytes() + Bytes::of::<f32>(d_image)
    }
}

impl Gradients {
    /// Moves every parameter. An error where no backward pass came before.
    pub(super) fn step(
        self,
        session: &mut Session,
        model: &mut Model,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        let Some((splats, camera, sh_degree)) = self.view else { return Err(DeviceError::NoLoss) };
        adam::step(session, model, &splats, (&camera, sh_degree), step)
    }

    pub(super) fn bytes(&self) -> Bytes {
        self.view.as_ref().map_or(Bytes::default(), |(splats, ..)| splats.gradient_bytes())
    }
}

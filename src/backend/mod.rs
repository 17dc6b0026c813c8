//! The devices that render and train. The trainer knows them only by these traits.
//!
//! Operations are whole stages; what a device fuses or keeps in between is its own affair.

pub mod cpu;
pub mod nvidia;
mod types;

use std::sync::Arc;

pub use types::{
    AdamStep, Densified, DensifyRule, Grant, LossTerms, LossValue, Pass, Pending, Rates,
    RenderSettings, Rendered, Snapshot, Survey,
};

use crate::dataset::{Image, View};
use crate::memory::Bytes;
use crate::model::Primitive;

/// What a device cannot do.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The photograph and the render differ in size.
    #[error("the target is {target_px:?} px but the view renders {view_px:?} px")]
    TargetSize {
        /// Size of the photograph.
        target_px: [u32; 2],
        /// Size of the render.
        view_px: [u32; 2],
    },
    /// A parameter became NaN or infinite.
    #[error(
        "Gaussian {index} has a {group}, or a moment of it, of {value}: the optimisation diverged. \
         Lower the learning rates, or resume from an earlier checkpoint"
    )]
    NotFinite {
        /// Which Gaussian.
        index: usize,
        /// Which parameter.
        group: &'static str,
        /// Its value.
        value: f64,
    },
    /// The loss became NaN or infinite although the parameters are finite.
    #[error(
        "the loss is {value}: the optimisation diverged. Lower the learning rates, or resume from \
         an earlier checkpoint"
    )]
    LossNotFinite {
        /// The loss.
        value: f64,
    },
    /// More Gaussians than kernels can number.
    #[error(
        "{wanted} Gaussians are wanted, but a device numbers at most {most}; cap them with \
         --max-points", most = u32::MAX
    )]
    TooManyGaussians {
        /// How many.
        wanted: usize,
    },
    /// A row behind the last was asked for.
    #[error("row {row} was asked for, but the model has {len} Gaussians")]
    NoSuchRow {
        /// The row.
        row: usize,
        /// Number of Gaussians.
        len: usize,
    },
    /// The user asked for a device that this program or machine does not have.
    #[error("{0}")]
    Unavailable(String),
}

/// A device: its name and its ground truth.
pub trait Backend: Sized {
    /// One training image, resident.
    type Target;
    /// A loss not yet read back.
    type Loss: Pending<LossValue>;

    /// The device in words.
    fn name(&self) -> String;
    /// Makes a photograph available to [`Raster::loss`].
    fn target(&mut self, image: &Arc<Image>) -> Result<Self::Target, DeviceError>;
}

/// Training one kind of primitive on a device. Calls follow the order below.
pub trait Raster<P: Primitive>: Backend {
    /// Parameters, moments and statistics.
    type Model;
    /// What the forward pass keeps for the backward pass.
    type Frame;
    /// Gradients that wait for [`Self::step`].
    type Gradients;

    /// Puts primitives on the device, moments and statistics zero.
    fn upload(&mut self, host: &P) -> Result<Self::Model, DeviceError>;
    /// The primitives as they are now.
    fn download(&mut self, model: &Self::Model) -> Result<P, DeviceError>;
    /// The primitives of these rows, in their order; a row may come up more than once.
    fn sample(&mut self, model: &Self::Model, rows: &[usize]) -> Result<P, DeviceError>;
    /// Primitives, moments and statistics as they are now.
    fn snapshot(&mut self, model: &Self::Model) -> Result<Snapshot<P>, DeviceError>;
    /// The model that a snapshot was taken of.
    fn restore(&mut self, snapshot: Snapshot<P>) -> Result<Self::Model, DeviceError>;
    /// Number of primitives.
    fn len(&self, model: &Self::Model) -> usize;
    /// Bytes that parameters, and moments with statistics, take.
    fn model_bytes(&self, model: &Self::Model) -> [Bytes; 2];

    /// Draws a view.
    fn render(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Self::Frame, DeviceError>;
    /// Compares a frame with its photograph and leaves the gradient of the image in the frame.
    fn loss(
        &mut self,
        frame: &mut Self::Frame,
        target: &Self::Target,
        terms: &LossTerms,
    ) -> Result<Self::Loss, DeviceError>;
    /// Bytes of a frame.
    fn frame_bytes(&self, frame: &Self::Frame) -> Bytes;
    /// No gradients yet.
    fn gradients(&mut self, model: &Self::Model) -> Result<Self::Gradients, DeviceError>;
    /// Adds the frame's gradients and, of a frame drawn to [`Pass::Observe`], what it tells about
    /// density to the model's statistics.
    fn backward(
        &mut self,
        model: &mut Self::Model,
        frame: Self::Frame,
        gradients: &mut Self::Gradients,
    ) -> Result<(), DeviceError>;
    /// Bytes of gradients.
    fn gradient_bytes(&self, gradients: &Self::Gradients) -> Bytes;
    /// Moves every parameter by Adam.
    fn step(
        &mut self,
        model: &mut Self::Model,
        gradients: Self::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError>;

    /// Counts what a round of density control would do.
    fn survey(&mut self, model: &Self::Model, rule: &DensifyRule) -> Result<Survey, DeviceError>;
    /// Clones and splits as far as granted, prunes, and starts the statistics afresh.
    fn densify(
        &mut self,
        model: &mut Self::Model,
        rule: &DensifyRule,
        grant: Grant,
    ) -> Result<Densified, DeviceError>;
    /// Lowers every opacity to at most `ceiling` and forgets the opacities' moments.
    fn reset_opacity(&mut self, model: &mut Self::Model, ceiling: f64) -> Result<(), DeviceError>;

    /// The frame's colours and blend counts on the host.
    fn image(&mut self, frame: &Self::Frame) -> Result<Rendered, DeviceError>;
}

//! The devices that render and train. The trainer knows them only by these traits.
//!
//! Operations are whole stages; what a device fuses or keeps in between is its own affair.

mod appearance;
pub mod cpu;
#[cfg(kernels)]
pub mod cuda;
mod edit;
mod error;
pub mod gpu;
pub mod nvidia;
#[cfg(feature = "bench")]
mod profiler;
mod rows;
mod rows_version;
mod stage;
mod surface;
mod types;
mod viewpoint;

use std::ops::Range;
use std::sync::Arc;

pub use appearance::{AppearanceRule, AppearanceStep, AppearanceTables, Compensation};
pub(crate) use edit::GradientRule;
pub use edit::{Adjust, Candidates, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule};
pub use error::DeviceError;
#[cfg(feature = "bench")]
pub(crate) use profiler::LANES;
#[cfg(feature = "bench")]
pub use profiler::{CopySpeed, Profiler, StageTime, Work};
pub(crate) use rows::check_rows;
pub use rows::{CHUNK_ROWS, Rows, chunks};
pub use stage::Stage;
pub use surface::{Neighbourhood, Surface, SurfaceMaps};
pub use types::{
    AdamStep, Governed, LossTerms, LossValue, Measured, MemoryEntry, MemoryKind, Noise, NormalRule,
    Pass, Pending, Rates, Regularisers, RenderSettings, Rendered, ScreenFilter, Snapshot,
    Statistics, SurfaceRule, SurfaceTerms,
};

pub use crate::abi::MOST_NEIGHBOURS;
use crate::dataset::{Image, View};
use crate::math::morton::Cube;
use crate::memory::Bytes;
use crate::memory::plan::OptionalColumns;
use crate::model::Primitive;
use crate::perceptual::LpipsWeights;

/// A device: its name, its ground truth, its clock and its memory.
///
/// Work may be launched and not waited for; a fault of it then comes to light in a later call.
pub trait Backend: Sized {
    /// One training image, resident.
    type Target;
    /// A loss not yet read back.
    type Loss: Pending<LossValue>;

    /// The device in words.
    fn name(&self) -> String;
    /// The identifier of the GPU that it is, as NVIDIA's tools write it.
    fn uuid(&self) -> Option<String> {
        None
    }

    /// Makes the photograph of a view available to [`Raster::loss`] and [`Raster::measure`].
    ///
    /// A device may keep it for later, in place of what it held of that view; [`Self::holds`] then
    /// says so. Views are told apart by their index in the dataset.
    fn target(&mut self, view: usize, image: &Arc<Image>) -> Result<Self::Target, DeviceError>;
    /// The same for one look, as of a view that is measured and not trained on: the device keeps
    /// nothing, and lets nothing go that it keeps.
    fn glance(&mut self, image: &Arc<Image>) -> Result<Self::Target, DeviceError>;
    /// Begins to bring a photograph to the device, so that [`Self::resident`] has it without a
    /// wait. A device that cannot do that ahead does nothing.
    fn prefetch(&mut self, _view: usize, _image: &Arc<Image>) -> Result<(), DeviceError> {
        Ok(())
    }
    /// The photograph of a view, where the device holds it.
    fn resident(&mut self, _view: usize) -> Option<Self::Target> {
        None
    }
    /// Whether the device holds the photograph of a view, so that the host need not.
    fn holds(&self, _view: usize) -> bool {
        false
    }

    /// Waits until all that was launched is done.
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }
    /// The device's memory by what it holds; empty of a device that shares the host's.
    fn memory(&self) -> Vec<MemoryEntry> {
        Vec::new()
    }
    /// The most that a recent iteration used of the memory that lives for one.
    fn scratch_needed(&self) -> Bytes {
        Bytes(0)
    }
    /// What may be taken of a device's own memory.
    fn memory_budget(&self) -> Option<Bytes> {
        None
    }
    /// How the device's memory stands, and what was given up or taken back since the last call.
    /// Nothing of a device that shares the host's.
    fn governed(&mut self) -> Option<Governed> {
        None
    }
    /// Has the peaks of [`Self::memory`] begin with what is held now.
    fn reset_memory_peaks(&mut self) {}
}

/// Training one kind of primitive on a device. Calls follow the order below.
pub trait Raster<P: Primitive>: Backend {
    /// Parameters, moments and statistics.
    type Model;
    /// What the forward pass keeps for the backward pass.
    type Frame;
    /// Gradients that wait for [`Self::step`].
    type Gradients;
    /// A network of LPIPS, ready to look at images.
    type LpipsModel;
    /// What changes the colours of the training views, with its moments.
    type Appearance;

    /// Puts primitives on the device, moments and statistics zero.
    fn upload(&mut self, host: &P) -> Result<Self::Model, DeviceError>;
    /// The primitives of these rows, in their order; a row may come up more than once.
    fn sample(&mut self, model: &mut Self::Model, rows: &[usize]) -> Result<P, DeviceError>;
    /// These rows' primitives as they are now. A device may first do to the model what it has put
    /// off.
    fn read_parameters(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<P, DeviceError>;
    /// The same with their moments and statistics.
    fn read(
        &mut self,
        model: &mut Self::Model,
        rows: Range<usize>,
    ) -> Result<Snapshot<P>, DeviceError>;
    /// The model that is made of these rows, of which the host holds one chunk at a time.
    fn load<S: Rows<P>>(&mut self, source: &mut S) -> Result<Self::Model, S::Error>
    where
        S::Error: From<DeviceError>;
    /// All primitives at once. What is large is better read in [`chunks`].
    fn download(&mut self, model: &mut Self::Model) -> Result<P, DeviceError> {
        let all = 0..self.len(model);
        self.read_parameters(model, all)
    }
    /// All primitives, moments and statistics at once. What is large is better read in [`chunks`].
    fn snapshot(&mut self, model: &mut Self::Model) -> Result<Snapshot<P>, DeviceError> {
        let all = 0..self.len(model);
        self.read(model, all)
    }
    /// The model that a snapshot was taken of.
    fn restore(&mut self, mut snapshot: Snapshot<P>) -> Result<Self::Model, DeviceError> {
        self.load(&mut snapshot)
    }
    /// Number of primitives.
    fn len(&self, model: &Self::Model) -> usize;
    /// Which of the columns there are that not every model has; of none where it has no rows.
    fn optional(&self, model: &Self::Model) -> OptionalColumns;
    /// Bytes that parameters, and moments with statistics, take.
    fn model_bytes(&self, model: &Self::Model) -> [Bytes; 2];

    /// Draws a view.
    fn render(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
    ) -> Result<Self::Frame, DeviceError>;
    /// The device's own measurements, where it takes any.
    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Self::Model, Self::Frame>> {
        None
    }
    /// Has [`Self::loss`] compare the frame's inverse depths with the photograph's map, too, and add
    /// their mean absolute error times `weight` to what is minimised. Comes before the loss; does nothing
    /// where the frame was drawn without inverse depths or the photograph has no map.
    fn compare_depths(
        &mut self,
        frame: &mut Self::Frame,
        target: &Self::Target,
        weight: f64,
    ) -> Result<(), DeviceError>;
    /// Compares a frame with its photograph and leaves the gradient of the colours that it compared in
    /// the frame.
    fn loss(
        &mut self,
        frame: &mut Self::Frame,
        target: &Self::Target,
        terms: &LossTerms,
    ) -> Result<Self::Loss, DeviceError>;
    /// How much a frame looks like its photograph.
    fn measure(
        &mut self,
        frame: &Self::Frame,
        target: &Self::Target,
    ) -> Result<Measured, DeviceError>;
    /// Makes a network of LPIPS ready. Takes memory only where there is some left, and gives nothing up
    /// for it.
    fn perceptual(&mut self, weights: &LpipsWeights) -> Result<Self::LpipsModel, DeviceError>;
    /// How unlike its photograph a frame looks to the network: LPIPS. As in [`Self::measure`] the frame
    /// is held to 0..1, and both images are multiplied by the mask. Takes memory as
    /// [`Self::perceptual`] does.
    fn perceive(
        &mut self,
        net: &Self::LpipsModel,
        frame: &Self::Frame,
        target: &Self::Target,
    ) -> Result<f64, DeviceError>;
    /// Bytes of a frame.
    fn frame_bytes(&self, frame: &Self::Frame) -> Bytes;
    /// No gradients yet.
    fn gradients(&mut self, model: &Self::Model) -> Result<Self::Gradients, DeviceError>;
    /// Adds the frame's gradients and, of a frame drawn to [`Pass::Observe`], what it tells about
    /// density to the model's statistics.
    ///
    /// A device may take only one view a step: it answers the second with
    /// [`DeviceError::OneViewPerStep`].
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

    /// Between two iterations, of which so many are done: returns what is not needed of the device's
    /// memory, makes do with less where other programs need it, and takes back what was given up
    /// where there is room. Most calls do nothing.
    fn govern(&mut self, _model: &mut Self::Model, _iteration: u32) -> Result<(), DeviceError> {
        Ok(())
    }
    /// After an error that says that there is too little memory: gives up what only can be between
    /// two iterations. Says whether another try is worth it.
    fn relieve(
        &mut self,
        _model: &mut Self::Model,
        _error: &DeviceError,
    ) -> Result<bool, DeviceError> {
        Ok(false)
    }
    /// Of so many births, as many as there is memory for, now and in the iterations that follow.
    fn births(&mut self, _model: &mut Self::Model, wish: usize) -> Result<usize, DeviceError> {
        Ok(wish)
    }
    /// Puts the rows in the order of their centres along the Z-curve around a cube, so that
    /// neighbours in space are neighbours in memory; rows of one key keep their order.
    ///
    /// Parameters, moments and statistics move alike: which primitives there are does not change,
    /// but rows get other numbers. Where it is refused nothing has moved.
    fn reorder(&mut self, model: &mut Self::Model, cube: &Cube) -> Result<(), DeviceError>;
    /// Smooths every Gaussian as far as these views could tell nothing finer of it, from now on and
    /// until the next call: the 3D filter of Mip-Splatting. It is drawn with it, and its gradients go
    /// through it. After [`Edit::edit`] the filter is zero.
    ///
    /// Views tell of what is deeper than `sampled_from`, world units along their axes.
    fn smooth(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError>;

    /// Puts the tables of the training views on the device.
    fn appearance(&mut self, tables: &AppearanceTables) -> Result<Self::Appearance, DeviceError>;
    /// The tables as they are now.
    fn read_appearance(
        &mut self,
        appearance: &Self::Appearance,
    ) -> Result<AppearanceTables, DeviceError>;
    /// Has a frame compared by its colours as the camera of this training view, by its place among
    /// them, changed them. What was drawn stays beside them. The view's table first makes good the
    /// steps since it moved last: by its momentum, as in dense Adam.
    ///
    /// The frame was drawn for training, with [`RenderSettings::compensation`].
    fn compensate(
        &mut self,
        appearance: &mut Self::Appearance,
        view: usize,
        frame: &mut Self::Frame,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError>;
    /// Between the loss of a compensated frame and its backward pass: moves the table of its view, and
    /// no other, down the gradient, and turns the gradient that the frame holds into that of what was
    /// drawn.
    fn learn_appearance(
        &mut self,
        appearance: &mut Self::Appearance,
        view: usize,
        frame: &mut Self::Frame,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError>;
    /// Has a frame measured by its colours, held to 0..1, as the affine map that brings them nearest to
    /// the photograph's by least squares makes them. Pixels that are masked have no say in it.
    ///
    /// The frame was drawn to be looked at, with [`RenderSettings::compensation`].
    fn correct_colors(
        &mut self,
        frame: &mut Self::Frame,
        target: &Self::Target,
    ) -> Result<(), DeviceError>;

    /// The frame's colours on the host and, of a frame drawn to [`Pass::Picture`], its blend counts.
    fn image(&mut self, frame: &Self::Frame) -> Result<Rendered, DeviceError>;
}

//! Drawing views, comparing them with photographs, and moving the model down the gradients.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};

use super::appearance::{AppearanceTables, TableStep};
use super::device::Held;
use super::{DeviceError, Neighbours, OtherView, RenderRequest, RenderSettings, TrainRequest};
use crate::abi::terms::{Inputs, Means, Terms, Topic, Weighted};
use crate::dataset::View;
use crate::layout::Rate;
use crate::math::adam::{Moments, RateBySize};
use crate::model::Primitive;

#[cfg(feature = "bench")]
use super::Profiler;

// The states of a frame as types, so that each operation accepts only frames that are ready for it.

mod sealed {
    pub trait Sealed {}
}

/// The state of a frame.
pub trait FrameState: sealed::Sealed + Debug + 'static {
    /// Result of the comparison with the photograph that a frame of this state stores.
    type Kept<T>;

    /// Returns the result if the frame was compared.
    fn kept<T>(_kept: &Self::Kept<T>) -> Option<&T> {
        None
    }
}

/// A state in which a frame can be compared with its photograph.
pub trait Trainable: Fresh {}

/// A state of frames that were not compared yet.
pub trait Fresh: FrameState {
    /// Returns the empty result.
    fn nothing<T>() -> Self::Kept<T>;
}

/// Drawn to be shown or measured.
#[derive(Clone, Copy, Debug)]
pub enum Shown {}

/// Drawn to be trained on.
#[derive(Clone, Copy, Debug)]
pub enum Drawn {}

/// Drawn to be trained on, with the colour changes of the view's camera applied.
#[derive(Clone, Copy, Debug)]
pub enum Compensated {}

/// Compared with its photograph. Holds the gradients of its pixels.
#[derive(Clone, Copy, Debug)]
pub struct Scored<S>(std::marker::PhantomData<S>);

impl sealed::Sealed for Shown {}
impl sealed::Sealed for Drawn {}
impl sealed::Sealed for Compensated {}
impl<S: Trainable> sealed::Sealed for Scored<S> {}

impl FrameState for Shown {
    type Kept<T> = ();
}

impl FrameState for Drawn {
    type Kept<T> = ();
}

impl FrameState for Compensated {
    type Kept<T> = ();
}

impl<S: Trainable> FrameState for Scored<S> {
    type Kept<T> = T;

    fn kept<T>(kept: &T) -> Option<&T> {
        Some(kept)
    }
}

impl Fresh for Shown {
    fn nothing<T>() {}
}

impl Fresh for Drawn {
    fn nothing<T>() {}
}

impl Fresh for Compensated {
    fn nothing<T>() {}
}

impl Trainable for Drawn {}
impl Trainable for Compensated {}

// The values of the loss's terms, and values that a device may still be computing.

/// A value that the device may still be computing.
pub trait Pending<T> {
    /// Returns true if [`Self::read`] would not wait.
    fn is_ready(&self) -> bool;

    /// Waits for the value. Faults that the device found in the meantime, such as a loss that is not finite, may
    /// first be reported here.
    fn read(self) -> Result<T, DeviceError>;
}

/// Values of the loss's terms.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossValues {
    /// Weighted sum of the terms that compare with the photograph.
    pub total: f64,
    /// Values of each term without its weight, by their keys in logs.
    pub pairs: Vec<(&'static str, f64)>,
}

impl LossValues {
    /// Returns the value with this key if its term is on.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.pairs.iter().find(|(name, _)| *name == key).map(|&(_, value)| value)
    }

    pub(crate) fn of<'a>(terms: impl Iterator<Item = &'a Weighted>, means: &Means) -> Self {
        let mut all = Self::default();
        for Weighted { term, weight } in terms {
            if term.topic() == Topic::Photograph {
                all.total += weight * term.loss(means);
            }
            let pairs = term.values().iter().map(|value| (value.name, means[value.place as usize]));
            all.pairs.extend(pairs);
        }
        all
    }

    /// Fails if a value is not finite, because then the gradients are not finite either.
    pub(crate) fn checked(self) -> Result<Self, DeviceError> {
        let values = self.pairs.iter().map(|&(_, value)| value);
        let mut all = std::iter::once(self.total).chain(values);
        match all.find(|value| !value.is_finite()) {
            Some(value) => Err(DeviceError::LossNotFinite { value }),
            None => Ok(self),
        }
    }
}

/// Fails if a term lacks an input: maps of the frame, another view, or neighbours.
pub(crate) fn check_inputs(
    terms: &Terms,
    given: Inputs,
    has_neighbours: bool,
) -> Result<(), DeviceError> {
    for weighted in terms.active() {
        let needs = weighted.term.needs();
        let inputs = [
            (needs.inverse_depths, given.inverse_depths, "inverse depths"),
            (needs.inverse_squares, given.inverse_squares, "squares of inverse depths"),
            (needs.maps, given.maps, "maps of depths and normals"),
            (needs.median, given.median, "median depths"),
            (needs.other_view, given.other_view, "another view"),
            (needs.neighbours, has_neighbours, "lists of neighbours"),
        ];
        if let Some((.., input)) = inputs.into_iter().find(|(needs, has, _)| *needs && !has) {
            return Err(DeviceError::MissingInput { term: weighted.term.name(), input });
        }
    }
    Ok(())
}

/// A drawn view on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Width in px.
    pub width: u32,
    /// Height in px.
    pub height: u32,
    /// Colours, `[height, width, 3]`; may leave 0..1.
    pub rgb: Vec<f32>,
    /// Number of Gaussians blended in each pixel, `[height, width]`, if [`super::Extra::Counts`] was requested.
    pub blended: Option<Vec<u32>>,
    /// Sums of the weights divided by the depths, per world unit, `[height, width]`, if drawn.
    pub inverse_depths: Option<Vec<f32>>,
    /// Sums of the weights divided by the squares of the depths, per squared world unit, `[height, width]`, if drawn.
    pub inverse_squares: Option<Vec<f32>>,
    /// Sums of the weights times the depth (world units), times x and y of the normal (camera axes), and of the
    /// weights, `[height, width, 4]`, if drawn. A Gaussian's normal is its shortest axis towards the camera.
    pub surface: Option<Vec<f32>>,
    /// Depths at which half of the light is stopped, world units along the view axis, `[height, width]`, if drawn; 0
    /// if more than half passes. Gaussians are taken in space, without the screen's filter.
    pub median_depths: Option<Vec<f32>>,
}

/// Distances between a render, clamped to 0..1, and its photograph.
///
/// If the photograph has a mask, both images are multiplied by it. Means are over all pixels and channels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Mean squared error.
    pub mse: f64,
    /// Mean absolute error.
    pub l1: f64,
    /// Mean structural similarity.
    pub ssim: f64,
}

/// Learning rates of one step.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Rates {
    /// Centres, world units.
    pub means: f64,
    /// Logarithms of the scales.
    pub log_scales: f64,
    /// Quaternions.
    pub quats: f64,
    /// Opacity logits.
    pub opacity_logits: f64,
    /// SH coefficients of degree 0.
    pub sh_dc: f64,
    /// SH coefficients of higher degrees.
    pub sh_rest: f64,
}

impl Rates {
    /// Rates that keep every parameter.
    pub const NONE: Self = Self {
        means: 0.0,
        log_scales: 0.0,
        quats: 0.0,
        opacity_logits: 0.0,
        sh_dc: 0.0,
        sh_rest: 0.0,
    };

    /// Returns the rate of a column.
    pub fn of(&self, rate: Rate) -> f64 {
        match rate {
            Rate::Means => self.means,
            Rate::LogScales => self.log_scales,
            Rate::Quats => self.quats,
            Rate::OpacityLogits => self.opacity_logits,
            Rate::ShDc => self.sh_dc,
            Rate::ShRest => self.sh_rest,
        }
    }
}

/// One step of Adam (Kingma and Ba 2015).
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct AdamStep {
    /// Number of this step, from 1.
    pub number: u32,
    /// Decay of the moments, and the correction of their bias. Gaussians added later share the correction although
    /// their moments start at zero.
    pub moments: Moments,
    /// Learning rates.
    pub rates: Rates,
    /// Dependence of the centres' rates on the sizes of their Gaussians, if any.
    pub by_size: Option<RateBySize>,
    /// Regularisers, added to the gradients.
    pub regularisers: Regularisers,
    /// Random motion of the centres after the step.
    pub noise: Option<Noise>,
    /// Share by which the SH coefficients above degree 0 decay after the step, for Gaussians that a view of the step
    /// shows (decoupled weight decay, Loshchilov and Hutter 2019).
    pub sh_decay: f64,
    /// Upper limit of the standard deviations of a Gaussian after the step, relative to its distance from the nearest
    /// camera of the step that sees it; 0 for none.
    pub scale_limit: f64,
}

impl AdamStep {
    /// Creates a step down the gradients and nothing else.
    pub fn new(number: u32, rates: Rates) -> Self {
        Self {
            number,
            moments: Moments::of_step(number),
            rates,
            by_size: None,
            regularisers: Regularisers::default(),
            noise: None,
            sh_decay: 0.0,
            scale_limit: 0.0,
        }
    }
}

/// Weights that keep Gaussians few and small (Kheradmand et al. 2024, section 4.4).
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Regularisers {
    /// Weight of the mean opacity.
    pub opacity: f64,
    /// Weight of the mean scale over all axes, world units.
    pub scale: f64,
    /// Gaussians that the weights act on.
    pub reach: Reach,
}

impl Regularisers {
    /// Returns true if both weights are 0.
    pub fn are_off(&self) -> bool {
        self.opacity == 0.0 && self.scale == 0.0
    }
}

/// Gaussians that regularisers act on.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub enum Reach {
    /// All Gaussians, in each step.
    #[default]
    All,
    /// Gaussians whose opacities get a gradient from the views of the step. Adam moves a parameter by about its
    /// learning rate however small the gradient is, so that Gaussians that few views show would otherwise vanish
    /// between these views.
    Seen,
}

/// Random motion of Gaussians that are nearly transparent (Kheradmand et al. 2024, section 4.1): a centre moves by
/// `rate` · sigmoid(-100 (opacity - 0.005)) · Σ n, where Σ is the Gaussian's covariance and n is standard normal.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Noise {
    /// Factor of the motion: the centres' learning rate times a constant.
    pub rate: f64,
    /// Key of the stream of random numbers.
    pub key: u64,
    /// Gaussians that move.
    pub moved: MotionReach,
}

/// Gaussians that random motion acts on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum MotionReach {
    /// All Gaussians.
    All,
    /// Gaussians that no view of the step shows, each at most `longest` world units far. Offsets are proportional to
    /// variances: without the bound, one step throws a huge Gaussian far out of the scene.
    Unseen {
        /// Largest offset of a step, world units.
        longest: f64,
    },
}

/// Inputs of the loss.
#[derive(Debug)]
pub struct Objective<'a, T, L> {
    /// The photograph.
    pub target: &'a T,
    /// The terms.
    pub terms: &'a Terms,
    /// Nearest neighbours of all Gaussians, if a term needs them.
    pub near: Option<&'a L>,
    /// Another view of the scene, if a term needs one.
    pub other: Option<OtherView<'a, T>>,
}

/// Devices that train one kind of primitive.
pub trait Render<P: Primitive>: Neighbours<P> {
    /// A drawn view, in one of the states of [`FrameState`].
    type Frame<S: FrameState>: Held;
    /// Gradients of the views since the last step.
    type Gradients: Default + Held;
    /// Values of terms, not yet read back.
    type Losses: Pending<LossValues>;

    /// Draws a view to be shown or measured.
    fn render(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        request: RenderRequest,
    ) -> Result<Self::Frame<Shown>, DeviceError>;

    /// Draws a view to be trained on, with the requested maps.
    fn render_train(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        request: &TrainRequest,
    ) -> Result<Self::Frame<Drawn>, DeviceError>;

    /// Compares a frame by the terms at its pixels, and computes the pixels' gradients. The terms at samples follow
    /// in [`Self::backward`], which needs the same model and neighbours.
    ///
    /// Returns [`DeviceError::MissingInput`] if a term needs a map that the frame was drawn without, and
    /// [`DeviceError::StaleNeighbours`] if the neighbours are of other rows.
    #[expect(clippy::type_complexity, reason = "a frame and its values, of associated types")]
    fn objective<S: Trainable>(
        &mut self,
        model: &Self::Model,
        frame: Self::Frame<S>,
        objective: &Objective<'_, Self::Target, Self::Lists>,
    ) -> Result<(Self::Frame<Scored<S>>, Self::Losses), DeviceError>;

    /// Adds the gradients of the frame and of the terms at samples. Updates the statistics of density control if the
    /// frame was drawn to be observed: by this view's own gradients, regardless of the step's other views. Returns the
    /// values of the terms at samples.
    ///
    /// After an error the gradients hold their earlier views. Returns [`DeviceError::TooManyViews`] beyond the
    /// largest number of views of a step.
    ///
    /// Samples are drawn from the Gaussians that the view shows, and compared with the neighbours of their Gaussian,
    /// by raw scales and opacities. Gaussians below the opacity 1/255 are not drawn and get no samples (SuGaR samples
    /// them, too). A view that shows no Gaussian has no terms.
    ///
    /// With [`crate::abi::terms::Term::Sdf`] samples are drawn only from Gaussians whose centre is in the image and
    /// less than two standard deviations (along the line to the camera) from the surface that the depths show;
    /// without any, these terms are 0. The depth of a pixel is the blended depth divided by the depth of the farthest
    /// splat, which has no gradient. Between the centres of pixels it is interpolated linearly. A sample outside the
    /// image, or not beyond the nearest depth, has no distance and adds 0 to the mean.
    fn backward(
        &mut self,
        model: &mut Self::Model,
        frame: Self::Frame<Scored<Drawn>>,
        near: Option<&Self::Lists>,
        gradients: &mut Self::Gradients,
    ) -> Result<Self::Losses, DeviceError>;

    /// Announces the view that follows the coming step, so that the device can fetch its inputs early. Called between
    /// the views of a step and [`Self::step`]. Results do not depend on it.
    fn expect(
        &mut self,
        _model: &mut Self::Model,
        _view: &View,
        _settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Moves every parameter by Adam, down the mean gradient of the step's views. Returns [`DeviceError::NoView`]
    /// without a view.
    fn step(
        &mut self,
        model: &mut Self::Model,
        gradients: Self::Gradients,
        step: &AdamStep,
    ) -> Result<(), DeviceError>;

    /// Measures the distance between a frame and its photograph.
    fn measure<S: FrameState>(
        &mut self,
        frame: &Self::Frame<S>,
        target: &Self::Target,
    ) -> Result<Measured, DeviceError>;

    /// Copies the frame's colours and maps to the host.
    fn image<S: FrameState>(&mut self, frame: &Self::Frame<S>) -> Result<Rendered, DeviceError>;

    /// Returns the device's own measurements if it has any.
    #[cfg(feature = "bench")]
    fn profiler(&mut self) -> Option<&mut dyn Profiler<Self::Model, Self::Frame<Drawn>>> {
        None
    }
}

// Learning the colour changes of the cameras.

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
    /// Returns [`DeviceError::NoRoomForColors`] if the frame was drawn without [`super::TrainRequest::compensation`].
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
    /// Returns [`DeviceError::NoRoomForColors`] if the frame was drawn without
    /// [`super::RenderRequest::corrects_colors`].
    fn correct(
        &mut self,
        frame: Self::Frame<Shown>,
        target: &Self::Target,
    ) -> Result<Self::Frame<Shown>, DeviceError>;
}

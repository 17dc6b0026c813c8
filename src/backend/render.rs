//! Drawing views, comparing them with photographs, and moving the model down the gradients.

use serde::{Deserialize, Serialize};

use super::device::Held;
use super::frame_state::{Drawn, FrameState, Scored, Shown, Trainable};
use super::{DeviceError, Look, LossValues, Neighbours, OtherView, Pending, RenderSettings, Wants};
use crate::abi::terms::Terms;
use crate::dataset::View;
use crate::layout::Rate;
use crate::math::adam::{Moments, RateBySize};
use crate::model::Primitive;

#[cfg(feature = "bench")]
use super::Profiler;

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
        let moments = Moments::of_step(number);
        let regularisers = Regularisers::default();
        Self {
            number,
            moments,
            rates,
            by_size: None,
            regularisers,
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

/// Random motion of Gaussians that are nearly transparent (Kheradmand et al. 2024, section 4.1): a
/// centre moves by `rate` · sigmoid(-100 (opacity - 0.005)) · Σ n, where Σ is the Gaussian's covariance
/// and n is standard normal.
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub enum MotionReach {
    /// All Gaussians.
    All,
    /// Gaussians that no view of the step shows.
    Unseen,
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
        look: Look,
    ) -> Result<Self::Frame<Shown>, DeviceError>;

    /// Draws a view to be trained on, with the requested maps.
    fn render_train(
        &mut self,
        model: &Self::Model,
        view: &View,
        settings: &RenderSettings,
        wants: &Wants,
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

//! Views of a step that several ranks draw.

use serde::{Deserialize, Serialize};

use crate::abi::terms::{Inputs, Terms};
use crate::backend::{DeviceError, DrawSettings, Render, RenderSettings, Statistics, TrainRequest};
use crate::dataset::View;
use crate::math::Divisor;
use crate::model::Gaussians;

/// A view and its settings for all ranks. Each rank projects its part of the model into the view.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ViewSetup {
    /// The view.
    pub view: View,
    /// Settings of its rendering.
    pub settings: RenderSettings,
    /// True if the depths and normals of the surface are drawn.
    pub surface: bool,
    /// Statistics of density control that the backward pass adds to.
    pub observe: Option<Statistics>,
    /// Ratio of the photograph's size to the view's.
    pub divisor: Divisor,
}

impl ViewSetup {
    /// Creates the setup of a view that is shown.
    pub(in crate::backend) fn shown(view: &View, settings: &RenderSettings, surface: bool) -> Self {
        let (view, settings) = (view.clone(), *settings);
        Self { view, settings, surface, observe: None, divisor: Divisor::One }
    }

    /// Returns the settings with which every rank projects its rows.
    pub(in crate::backend) fn drawing(&self) -> DrawSettings {
        let inputs = Inputs { maps: self.surface, ..Inputs::NONE };
        let &Self { observe, divisor, .. } = self;
        DrawSettings::trained(
            &self.settings,
            &TrainRequest { observe, inputs, divisor, ..TrainRequest::default() },
        )
    }
}

/// A view of a step that one rank draws and compares.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct RankView {
    /// Index of the image in the run.
    pub image: u32,
    /// Iteration of the schedule, from 1.
    pub iteration: u32,
    /// The view's index in the dataset.
    pub index: usize,
    /// The view and its settings.
    pub setup: ViewSetup,
    /// Terms of the comparison. They are not sent, because each rank has the same configuration.
    #[serde(skip)]
    pub terms: Terms,
}

/// Result of a view that another rank drew.
#[derive(Clone, Debug)]
pub enum RankOutcome<L> {
    /// The step includes its gradients. Values of the terms at pixels, and of the terms at samples.
    Added([L; 2]),
    /// Reason why its photograph cannot be decoded. The step has one view less.
    Undecodable(String),
}

/// A device that may be several ranks.
pub trait Ranks: Render<Gaussians> {
    /// Returns the number of ranks.
    fn world(&self) -> u32 {
        1
    }

    /// Makes other ranks open the scene of a run with this configuration (TOML) and fingerprint.
    fn begin(&mut self, _config: String, _scene: u64) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Assigns views to other ranks, at most one each from rank 1 on. This rank draws the next training
    /// view meanwhile, image `_image` of the run.
    fn share_views(&mut self, _image: u32, _others: Vec<RankView>) {}

    /// Returns the results of these views, in order. Call it after the backward pass of this rank's view.
    fn take_shared(&mut self) -> Vec<RankOutcome<Self::Losses>> {
        Vec::new()
    }
}

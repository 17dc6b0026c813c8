//! What steps report: the values of their terms, and the Gaussians after them.

use serde::{Serialize, Serializer};

use crate::backend::{Terms, Topic};
use crate::train::span::ImageSpan;

/// Values of terms by their keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TermValues(pub Vec<(&'static str, f64)>);

impl TermValues {
    /// Of these pairs those of the terms of a topic.
    pub fn of(terms: &Terms, topic: Topic, pairs: &[(&'static str, f64)]) -> Self {
        let of_topic = terms.active().filter(|weighted| weighted.term.topic() == topic);
        let keys: Vec<&str> =
            of_topic.flat_map(|weighted| weighted.term.values()).map(|value| value.name).collect();
        Self(pairs.iter().filter(|(name, _)| keys.contains(name)).copied().collect())
    }
}

impl Serialize for TermValues {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

/// One finished step.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// Finished iterations of the schedule before it.
    #[serde(skip)]
    pub before: u32,
    /// Finished iterations of the schedule: one for each image, unless
    /// the run has a time budget or a limit of passes over few views.
    pub iteration: u32,
    /// Images of the step; values are means over them.
    #[serde(skip)]
    pub images: u32,
    /// Iterations that the run ends at.
    pub iterations: u32,
    /// Values of the terms, without their weights: `l1` and `ssim`, `depth_l1` and `normals` where the
    /// view has a map of its inverse depths or normals, and of surfels `dn` and `distortion`. In SuGaR's
    /// coarse stage those of surface terms are in a [`SurfaceReport`].
    #[serde(flatten)]
    pub values: TermValues,
    /// The part of the loss that compares with the photograph.
    pub total: f64,
    /// Gaussians.
    pub gaussians: usize,
    /// Milliseconds from the end of the step before to the end of this one, for each image, waits for
    /// images included; density control, evaluation and saving excluded.
    pub ms: f64,
}

impl Step {
    /// The iterations that passed with it.
    pub fn span(&self) -> ImageSpan {
        ImageSpan { before: self.before, after: self.iteration }
    }
}

/// The surface terms of an iteration, each without its weight and absent where it is off, and how near
/// the Gaussians lie to the surface that they draw.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SurfaceReport {
    /// Finished iterations.
    pub iteration: u32,
    /// Values of the surface terms without their weights.
    #[serde(flatten)]
    pub values: TermValues,
    /// Share of the Gaussians near the drawn surface, 0..1; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share_near_surface: Option<f64>,
    /// Mean of the Gaussians' smallest scales, world units; every 1,000 iterations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_thickness: Option<f64>,
}

/// Samples of at most 10,000 Gaussians.
#[derive(Clone, Debug, Serialize)]
pub struct Distributions {
    /// Finished iterations.
    pub iteration: u32,
    /// Gaussians in all.
    pub gaussians: usize,
    /// Mean opacity of the sample.
    pub opacity_mean: f64,
    /// Opacities in 0..1.
    #[serde(skip)]
    pub opacity: Vec<f64>,
    /// Scales of all three axes, world units.
    #[serde(skip)]
    pub scale: Vec<f64>,
    /// Distances of the centres from the origin, world units.
    #[serde(skip)]
    pub xyz_magnitude: Vec<f64>,
    /// Lengths of the quaternions before normalisation.
    #[serde(skip)]
    pub rotation_magnitude: Vec<f64>,
}

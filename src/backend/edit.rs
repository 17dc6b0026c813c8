//! Density control: strategies add, move and remove Gaussians.
//!
//! A densification step scores the Gaussians, selects some of the candidates, and edits the model by the selection.

use serde::{Deserialize, Serialize};

use super::error::refused;
use super::{DeviceError, RenderSettings, Store};
use crate::dataset::View;
use crate::model::Primitive;

/// Rule that finds and ranks candidates.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum ScoreRule {
    /// Mean norm of the screen-space gradient, where half the image is 1 (Kerbl et al. 2023).
    Gradient {
        /// Smallest score of a candidate.
        min: f64,
        /// Largest scale of a small candidate, world units. Candidates above are large ones.
        small_max: f64,
    },
    /// As [`Self::Gradient`], and the same share of all Gaussians by their absolute gradients: those above 0 that
    /// reach the quantile (GOF, Yu et al. 2024). Needs [`super::Statistics::Both`].
    GradientOrQuantile {
        /// Smallest mean norm of the gradient of a candidate.
        min: f64,
        /// Largest scale of a small candidate, world units.
        small_max: f64,
    },
    /// Disagreement of the pixels about the opacity, summed over the views. Candidates are the Gaussians above 0,
    /// drawn without replacement in proportion to the sum. Needs [`super::Statistics::Disagreement`].
    Disagreement {
        /// Largest scale of a small candidate, world units.
        small_max: f64,
        /// Key of the stream of random numbers.
        key: u64,
    },
    /// Opacity. All Gaussians are candidates, and [`Pick::WithReplacement`] says which may be sources.
    Opacity {
        /// Opacity above which a Gaussian is alive, and the smallest opacity of a copy.
        min: f64,
    },
    /// Sum of the blend weights ([`Edit::weigh`]). All Gaussians are candidates.
    Weight,
}

/// Candidates by gradients, or by the weights in their place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GradientRule {
    pub(crate) min: f64,
    pub(crate) small_max: f64,
    /// True if absolute gradients count, too.
    pub(crate) with_quantile: bool,
    /// Key of the stream of random numbers if candidates are drawn in proportion to their sums; `None` if they are
    /// ranked by their means.
    pub(crate) drawn_by: Option<u64>,
}

impl GradientRule {
    const fn ranked(min: f64, small_max: f64) -> Self {
        Self { min, small_max, with_quantile: false, drawn_by: None }
    }
}

impl ScoreRule {
    /// Returns the rule of gradients; for weights a rule that every Gaussian meets. `None` for opacities.
    pub(crate) fn by_gradient(self) -> Option<GradientRule> {
        match self {
            Self::Gradient { min, small_max } => Some(GradientRule::ranked(min, small_max)),
            Self::GradientOrQuantile { min, small_max } => {
                Some(GradientRule { with_quantile: true, ..GradientRule::ranked(min, small_max) })
            }
            // The smallest number above 0.
            Self::Disagreement { small_max, key } => {
                let any = GradientRule::ranked(f64::from(f32::MIN_POSITIVE), small_max);
                Some(GradientRule { drawn_by: Some(key), ..any })
            }
            Self::Weight => Some(GradientRule::ranked(0.0, 0.0)),
            Self::Opacity { .. } => None,
        }
    }
}

/// Candidates of a model. Plain data that holds no memory of a device.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Candidates {
    /// Rule that found the candidates.
    pub rule: ScoreRule,
    /// Smallest mean absolute gradient of a candidate, if the rule uses it.
    pub absolute_min: Option<f64>,
    /// Number of small candidates. Rules by opacity do not count.
    pub small: usize,
    /// Number of large candidates.
    pub large: usize,
}

impl Candidates {
    /// No candidates, for an edit that only removes.
    pub const NONE: Self = Self {
        rule: ScoreRule::Gradient { min: f64::INFINITY, small_max: 0.0 },
        absolute_min: None,
        small: 0,
        large: 0,
    };

    /// Returns the number of candidates.
    pub fn count(&self) -> usize {
        self.small + self.large
    }
}

/// Selection among the candidates.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Pick {
    /// At most N candidates by gradient or weight, highest scores first and lower rows first among equals.
    Best(usize),
    /// Sources of copies, drawn by their opacities. A source may be drawn several times.
    WithReplacement {
        /// Destination of the copies.
        into: Into,
        /// Key of the stream of random numbers.
        key: u64,
    },
}

/// Destination of copies.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Into {
    /// The rows of all dead Gaussians. Sources are the living; nothing is copied if none is alive.
    Dead,
    /// N new rows. Sources are all Gaussians; nothing is copied if all are invisible.
    NewRows(usize),
}

/// Growth of a large selected Gaussian.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Grow {
    /// Add a copy.
    Copy,
    /// Replace it by two that are drawn from its density.
    SplitRandom {
        /// Divisor of the scales.
        shrink: f64,
        /// Key of the stream of random numbers.
        key: u64,
    },
    /// Keep it, and add a child that is drawn from its density.
    AddChild {
        /// Divisor of the child's scales.
        shrink: f64,
        /// Key of the stream of random numbers.
        key: u64,
    },
}

/// Limits on the Gaussians that stay, new ones included.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Keep {
    /// Opacity below which a Gaussian is removed.
    pub opacity_min: f64,
    /// Scale above which a Gaussian is removed, world units; `None` keeps large ones.
    pub scale_max: Option<f64>,
    /// True if Gaussians that no observed view shows stay.
    pub unseen: bool,
}

/// Edit of a selection.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum EditRule {
    /// For [`Pick::Best`]: small Gaussians get a copy, new rows start with zero moments, Gaussians beyond the limits
    /// are removed, and the statistics restart.
    Grow {
        /// Growth of large Gaussians.
        large: Grow,
        /// Limits on the Gaussians that stay.
        keep: Keep,
    },
    /// For [`Pick::WithReplacement`]: each source shares its opacity and scale with its copies. Copies in new rows
    /// have zero moments and statistics. Copies in the rows of dead Gaussians keep those rows' moments, and the
    /// sources' moments are reset.
    Share,
    /// For [`Pick::Best`] by [`ScoreRule::Weight`]: the selected Gaussians stay as they are, all others are removed,
    /// and the statistics restart.
    Retain,
}

/// Counts of an edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// Copies added.
    pub copied: usize,
    /// Gaussians split in two, or given a smaller child.
    pub split: usize,
    /// Dead Gaussians that became copies.
    pub moved: usize,
    /// Gaussians removed.
    pub removed: usize,
}

/// A change of all Gaussians.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Adjust {
    /// Lowers every opacity to at most this value and resets the opacities' moments. Opacities count as drawn through
    /// the 3D filter.
    ResetOpacity(f64),
    /// Multiplies every opacity, down to a floor, and resets the moments of all parameters.
    DecayOpacity {
        /// Factor of the opacities.
        factor: f64,
        /// Opacity below which this change lowers none.
        floor: f64,
    },
    /// Raises the floor of the opacity of triangles' vertices ([`super::Window`]). Opacities below the new floor rise
    /// to it; other opacities and all moments stay.
    RaiseOpacityFloor {
        /// Floor before the change.
        before: f64,
        /// Floor after the change.
        after: f64,
    },
}

/// Density control of one kind of primitive.
pub trait Edit<P: Primitive>: Store<P> {
    /// The selected Gaussians, with the memory that the edit needs.
    type Selection;

    /// Replaces the statistics by the blend weight of each Gaussian, summed over the pixels of these views: the
    /// opacity in a pixel times the transmittance before the Gaussian. After an error the statistics are invalid, and
    /// the call may be repeated.
    ///
    /// For triangles it finds the largest weight of each ([`super::FaceStatistics`]) and nothing of the vertices.
    fn weigh(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError>;

    /// Reads the result of [`Self::weigh`] for each Gaussian, pixels. Waits for the device.
    fn read_weights(&mut self, _model: &Self::Model) -> Result<Vec<f32>, DeviceError> {
        refused("weights of single Gaussians")
    }

    /// Finds the thresholds of candidates, and counts the candidates by gradient.
    fn score(&mut self, model: &Self::Model, rule: &ScoreRule) -> Result<Candidates, DeviceError>;

    /// Selects among the candidates. The model must not change between [`Self::score`] and [`Self::edit`].
    fn select(
        &mut self,
        model: &mut Self::Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Self::Selection, DeviceError>;

    /// Edits the model by a selection. The model is unchanged if memory is refused.
    fn edit(
        &mut self,
        model: &mut Self::Model,
        selection: Self::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError>;

    /// Changes all Gaussians.
    fn adjust(&mut self, model: &mut Self::Model, adjust: &Adjust) -> Result<(), DeviceError>;
}

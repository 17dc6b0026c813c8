//! Density control: what strategies add, move and remove Gaussians with.
//!
//! A round scores the Gaussians, selects some of the candidates, and edits the model by the selection.

use serde::{Deserialize, Serialize};

use super::{DeviceError, RenderSettings, Store};
use crate::dataset::View;
use crate::model::Primitive;

/// What makes a Gaussian a candidate, and what candidates are ranked by.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum ScoreRule {
    /// The mean norm of its screen-space gradient, half the image being 1 (Kerbl et al. 2023).
    Gradient {
        /// From which on it is a candidate.
        min: f64,
        /// Largest scale of a small candidate, world units; above, it is a large one.
        small_max: f64,
    },
    /// The same, and as large a share of all by their absolute gradients: those not 0 that reach the
    /// quantile (GOF, Yu et al. 2024). Needs [`super::Statistics::Both`].
    GradientOrQuantile {
        /// Mean norm of the gradient from which on it is a candidate.
        min: f64,
        /// Largest scale of a small candidate, world units.
        small_max: f64,
    },
    /// How much the pixels disagree about its opacity, summed over the views: candidates are those of which some
    /// do, and they are drawn without replacement in proportion to that. Needs
    /// [`super::Statistics::Disagreement`].
    Disagreement {
        /// Largest scale of a small candidate, world units.
        small_max: f64,
        /// Of the stream of random numbers.
        key: u64,
    },
    /// Its opacity. All are candidates, and [`Pick::WithReplacement`] says whose opacities count.
    Opacity {
        /// What the living exceed, and the least that a share of one gets.
        min: f64,
    },
    /// The sum of its blend weights ([`Edit::weigh`]). All are candidates.
    Weight,
}

/// How gradients, or the weights in their place, make candidates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GradientRule {
    pub(crate) min: f64,
    pub(crate) small_max: f64,
    /// Whether absolute gradients count, too.
    pub(crate) with_quantile: bool,
    /// The stream of random numbers that candidates are drawn by, in proportion to their sums, where they are
    /// not ranked by their means.
    pub(crate) drawn_by: Option<u64>,
}

impl GradientRule {
    const fn ranked(min: f64, small_max: f64) -> Self {
        Self { min, small_max, with_quantile: false, drawn_by: None }
    }
}

impl ScoreRule {
    /// The rule of gradients, where it is one; of weights it is that of gradients of any size.
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

/// The candidates of a model as it is: plain data, which holds no memory of a device.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Candidates {
    /// What makes one.
    pub rule: ScoreRule,
    /// Mean absolute gradient from which on a Gaussian is one, too, where that counts.
    pub absolute_min: Option<f64>,
    /// Small ones. Opacities are not counted.
    pub small: usize,
    /// Large ones.
    pub large: usize,
}

impl Candidates {
    /// None at all: for an edit that only removes.
    pub const NONE: Self = Self {
        rule: ScoreRule::Gradient { min: f64::INFINITY, small_max: 0.0 },
        absolute_min: None,
        small: 0,
        large: 0,
    };

    /// How many were counted.
    pub fn count(&self) -> usize {
        self.small + self.large
    }
}

/// Which of the candidates are selected.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Pick {
    /// At most so many of those by gradient or weight, the highest scores first; of equal ones the lower
    /// row.
    Best(usize),
    /// Sources of copies by their opacities, each as often as it is drawn.
    WithReplacement {
        /// Where the copies go.
        into: Into,
        /// Of the stream of random numbers.
        key: u64,
    },
}

/// Where copies go.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Into {
    /// Over each of the dead, from the living alone. Nowhere where nothing is alive.
    Dead,
    /// To so many new rows, from all. To none of a model of which nothing can be seen.
    NewRows(usize),
}

/// What becomes of a large Gaussian that is selected.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Grow {
    /// It gets a copy.
    Copy,
    /// Two take its place, at random where its density is.
    SplitRandom {
        /// They are smaller by this factor.
        shrink: f64,
        /// Of the stream of random numbers.
        key: u64,
    },
    /// It stays as it is, and a child is added, at random where its density is.
    AddChild {
        /// The child is smaller by this factor.
        shrink: f64,
        /// Of the stream of random numbers.
        key: u64,
    },
}

/// Which Gaussians stay, newborn ones included.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Keep {
    /// Opacity below which one is removed.
    pub opacity_min: f64,
    /// Scale above which one is removed, where large ones are; world units.
    pub scale_max: Option<f64>,
    /// Whether those stay that no observed view has seen.
    pub unseen: bool,
}

/// What is done with a selection.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum EditRule {
    /// Of [`Pick::Best`]: small ones get a copy, new rows start with moments of zero, all that is not to
    /// be kept is removed, and the statistics start afresh.
    Grow {
        /// What becomes of large ones.
        large: Grow,
        /// Which Gaussians stay.
        keep: Keep,
    },
    /// Of [`Pick::WithReplacement`]: each source shares its opacity and scale with its copies. Copies in
    /// new rows have moments and statistics of zero; where the dead become copies, they keep their
    /// moments, and the sources forget theirs.
    Share,
    /// Of [`Pick::Best`] by [`ScoreRule::Weight`]: the selected stay as they are, all others are removed,
    /// and the statistics start afresh.
    Retain,
}

/// What an edit did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// Copies added.
    pub copied: usize,
    /// Gaussians split in two, or given a smaller child.
    pub split: usize,
    /// Dead ones that became copies.
    pub moved: usize,
    /// Gaussians removed.
    pub removed: usize,
}

/// A change of what all Gaussians have.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub enum Adjust {
    /// Lowers every opacity, as it is through the 3D filter where there is one, to at most this, and
    /// forgets the opacities' moments.
    ResetOpacity(f64),
    /// Multiplies every opacity, but not to below a floor, and forgets the moments of all parameters.
    FadeOpacity {
        /// What an opacity is multiplied by.
        factor: f64,
        /// Opacity below which none falls.
        floor: f64,
    },
    /// Raises the opacity that every vertex of triangles has at least ([`super::Window`]). Opacities stay what they
    /// are, those below the new floor rise to it; moments stay.
    RaiseOpacityFloor {
        /// The floor so far.
        before: f64,
        /// The floor from now on.
        after: f64,
    },
}

/// Density control of one kind of primitive.
pub trait Edit<P: Primitive>: Store<P> {
    /// What was selected, with the memory that the edit needs.
    type Selection;

    /// Puts the blend weight of each Gaussian, summed over the pixels of these views, where the
    /// statistics were: the sum of its opacity in a pixel times what lies before it lets through. Where it
    /// fails the statistics are of no use, and it may be tried again.
    ///
    /// Of triangles it finds the largest weight of each ([`super::FaceStatistics`]) and nothing of the vertices.
    fn weigh(
        &mut self,
        model: &mut Self::Model,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError>;

    /// What [`Self::weigh`] found of each Gaussian, pixels. Waits for the device.
    fn read_weights(&mut self, model: &Self::Model) -> Result<Vec<f32>, DeviceError>;

    /// Finds what makes a candidate, and counts the candidates by gradient.
    fn score(&mut self, model: &Self::Model, rule: &ScoreRule) -> Result<Candidates, DeviceError>;

    /// Selects among the candidates of the model, which has not changed since they were scored. The
    /// edit follows at once.
    fn select(
        &mut self,
        model: &mut Self::Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Self::Selection, DeviceError>;

    /// Edits the model by what was selected of it. Where memory is refused nothing has changed.
    fn edit(
        &mut self,
        model: &mut Self::Model,
        selection: Self::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError>;

    /// Changes all Gaussians alike.
    fn adjust(&mut self, model: &mut Self::Model, adjust: &Adjust) -> Result<(), DeviceError>;
}

//! Density control: where Gaussians are added, moved and removed.

use super::{DeviceError, Store};
use crate::model::Primitive;

/// Children of a split are smaller than their parent by this factor.
pub(crate) const SPLIT_SHRINK: f64 = 1.6;

/// When Gaussians are cloned, split and pruned (Kerbl et al. 2023, section 5).
#[derive(Clone, Copy, Debug)]
pub struct DensifyRule {
    /// Mean norm of the screen-space gradient, half the image being 1, from which one is wanted.
    pub gradient_min: f64,
    /// Largest scale that is cloned; above, it is split. World units.
    pub clone_scale_max: f64,
    /// Opacity below which a Gaussian is removed.
    pub opacity_min: f64,
    /// Largest scale that is kept, where large ones are removed. World units.
    pub scale_max: Option<f64>,
    /// Seed of the children's places.
    pub seed: u64,
    /// Finished iterations.
    pub iteration: u32,
    /// Which Gaussians are candidates.
    pub criterion: Criterion,
}

/// Which Gaussians are candidates of density control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion {
    /// Those whose mean gradient reaches [`DensifyRule::gradient_min`].
    Gradient,
    /// These, and as large a share of all by their absolute gradients: those not 0 that reach the
    /// quantile (GOF, Yu et al. 2024). Wants [`Statistics::Both`].
    Quantile,
}

/// How Gaussians are drawn and copied where density control is a Markov chain (Kheradmand et al.
/// 2024, section 4.3).
#[derive(Clone, Copy, Debug)]
pub struct RelocateRule {
    /// Opacity that the living exceed, and the least that a share of one gets.
    pub opacity_min: f64,
    /// Seed of the draws.
    pub seed: u64,
    /// Finished iterations.
    pub iteration: u32,
}

/// What density control would like to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Gaussians to clone.
    pub clones: usize,
    /// Gaussians to split in two.
    pub splits: usize,
}

impl Survey {
    /// Gaussians that would be added.
    pub fn births(&self) -> usize {
        self.clones + self.splits
    }
}

/// How many Gaussians may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// At most so many; those with the highest gradient come first.
    pub births: usize,
}

/// What density control did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Densified {
    /// Gaussians cloned.
    pub cloned: usize,
    /// Gaussians split in two.
    pub split: usize,
    /// Candidates beyond the grant.
    pub refused: usize,
    /// Gaussians removed.
    pub pruned: usize,
}

/// Density control of one kind of primitive.
pub trait Edit<P: Primitive>: Store<P> {
    /// Counts what a round of density control would do.
    fn survey(&mut self, model: &Self::Model, rule: &DensifyRule) -> Result<Survey, DeviceError>;
    /// Clones and splits as far as granted, prunes, and starts the statistics afresh.
    fn densify(
        &mut self,
        model: &mut Self::Model,
        rule: &DensifyRule,
        grant: Grant,
    ) -> Result<Densified, DeviceError>;
    /// Moves the dead to where living Gaussians are, drawn by their opacities; each shares its
    /// opacity and scale with those that come to it and forgets its moments, and the dead keep
    /// theirs. Returns how many moved: none where nothing is alive. Where it is refused nothing has
    /// changed.
    fn relocate(
        &mut self,
        model: &mut Self::Model,
        rule: &RelocateRule,
    ) -> Result<usize, DeviceError>;
    /// Adds so many copies, with moments and statistics of zero, of Gaussians drawn by their
    /// opacities; each shares its opacity and scale with its copies and keeps its moments. Adds
    /// none to a model of which nothing can be seen. Where it is refused nothing has changed.
    fn multiply(
        &mut self,
        model: &mut Self::Model,
        rule: &RelocateRule,
        births: usize,
    ) -> Result<(), DeviceError>;

    /// Lowers every opacity, as it is through the 3D filter where there is one, to at most `ceiling`
    /// and forgets the opacities' moments.
    fn reset_opacity(&mut self, model: &mut Self::Model, ceiling: f64) -> Result<(), DeviceError>;
}

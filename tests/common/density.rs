//! Rounds of density control as tests state them.

use splat::backend::{
    Candidates, DeviceError, Edit, EditRule, Edited, Grow, Into, Keep, Pick, ScoreRule,
};
use splat::math::random::{RandomStream, RandomUse};
use splat::model::Gaussians;

/// A round of growth by gradients.
#[derive(Clone, Copy, Debug)]
pub struct DensifyRule {
    pub gradient_min: f64,
    pub small_max: f64,
    pub opacity_min: f64,
    pub scale_max: Option<f64>,
    pub seed: u64,
    pub iteration: u32,
    pub with_quantile: bool,
}

impl DensifyRule {
    /// By which all Gaussians grow and none is removed.
    pub const ALL: Self = Self {
        gradient_min: 0.0,
        small_max: 1e9,
        opacity_min: 0.0,
        scale_max: None,
        seed: 3,
        iteration: 600,
        with_quantile: false,
    };

    fn score(&self) -> ScoreRule {
        let Self { gradient_min: min, small_max, .. } = *self;
        match self.with_quantile {
            true => ScoreRule::GradientOrQuantile { min, small_max },
            false => ScoreRule::Gradient { min, small_max },
        }
    }

    fn edit(&self) -> EditRule {
        let key = RandomStream::new(self.seed, u64::from(self.iteration), RandomUse::Split).key();
        EditRule::Grow {
            large: Grow::SplitRandom { shrink: 1.6, key },
            keep: Keep { opacity_min: self.opacity_min, scale_max: self.scale_max, unseen: true },
        }
    }
}

/// A round of moves and copies by opacities.
#[derive(Clone, Copy, Debug)]
pub struct RelocateRule {
    pub opacity_min: f64,
    pub seed: u64,
    pub iteration: u32,
}

impl RelocateRule {
    fn apply<D: Edit<Gaussians>>(
        &self,
        device: &mut D,
        model: &mut D::Model,
        (into, purpose): (Into, RandomUse),
    ) -> Result<Edited, DeviceError> {
        let key = RandomStream::new(self.seed, u64::from(self.iteration), purpose).key();
        let candidates = device.score(model, &ScoreRule::Opacity { min: self.opacity_min })?;
        let pick = Pick::WithReplacement { into, key };
        let selection = device.select(model, &candidates, pick)?;
        device.edit(model, selection, &EditRule::Share)
    }
}

/// What would grow.
pub fn score<D: Edit<Gaussians>>(
    device: &mut D,
    model: &D::Model,
    rule: &DensifyRule,
) -> Candidates {
    device.score(model, &rule.score()).unwrap()
}

/// One round with at most so many births.
pub fn densify<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &DensifyRule,
    births: usize,
) -> Result<Edited, DeviceError> {
    let candidates = device.score(model, &rule.score())?;
    let selection = device.select(model, &candidates, Pick::Best(births))?;
    device.edit(model, selection, &rule.edit())
}

/// Moves the dead; says how many.
pub fn relocate<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &RelocateRule,
) -> Result<usize, DeviceError> {
    Ok(rule.apply(device, model, (Into::Dead, RandomUse::Relocate))?.moved)
}

/// Adds so many copies.
pub fn multiply<D: Edit<Gaussians>>(
    device: &mut D,
    model: &mut D::Model,
    rule: &RelocateRule,
    births: usize,
) -> Result<(), DeviceError> {
    rule.apply(device, model, (Into::NewRows(births), RandomUse::Multiply)).map(drop)
}

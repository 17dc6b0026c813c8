//! The strategy of GOF (Yu et al. 2024): as adaptive density control, with absolute gradients as a
//! second criterion.

use super::growth::GradientGrowth;
use super::interface::{Site, StepExtras, Strategy};
use crate::backend::{Adjust, Edit, ScoreRule, Statistics};
use crate::config::Config;
use crate::memory::plan::RoundShape;
use crate::model::Gaussians;
use crate::train::event::RoundReport;
use crate::train::span::Span;
use crate::train::{SceneScale, TrainError};

/// Candidates are those of high gradients, and as large a share of all by their absolute gradients.
pub(super) struct Gof {
    growth: GradientGrowth,
    extras: StepExtras,
}

impl Gof {
    pub(super) fn new(config: &Config, scene: SceneScale) -> Self {
        Self { growth: GradientGrowth::new(config, scene), extras: StepExtras::of(config, scene) }
    }
}

impl<D: Edit<Gaussians>> Strategy<D> for Gof {
    fn observes(&self, iteration: u32) -> Option<Statistics> {
        self.growth.rounds.may_follow(iteration).then_some(Statistics::Both)
    }

    fn step_extras(&self, _span: Span) -> StepExtras {
        self.extras
    }

    fn due(&self, span: Span) -> bool {
        self.growth.rounds.is_due(span)
    }

    fn round(&self, site: &mut Site<'_, D>) -> Result<RoundReport, TrainError> {
        let GradientGrowth { gradient_min: min, small_max, .. } = self.growth;
        self.growth.round(site, &ScoreRule::GradientOrQuantile { min, small_max })
    }

    fn adjust(&self, span: Span) -> Option<Adjust> {
        self.growth.adjust(span)
    }

    fn shape(&self) -> RoundShape {
        RoundShape::Grow
    }
}

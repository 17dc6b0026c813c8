//! Density control and the 3D filter of all ranks, as rank 0 asks for them.

use super::command::RankCommand;
use super::lead::Ranked;
use super::refused::refused;
use super::shard::RankShard;
use crate::backend::{
    Adjust, Candidates, DeviceError, Edit, EditRule, Edited, Filter3d, Pick, RenderSettings,
    ScoreRule,
};
use crate::dataset::View;
use crate::model::Gaussians;

impl<S: RankShard> Edit<Gaussians> for Ranked<S> {
    type Selection = S::Selection;

    fn weigh(
        &mut self,
        model: &mut S::Share,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        let (views, settings): (Vec<View>, _) =
            (views.iter().copied().cloned().collect(), *settings);
        self.tell(&RankCommand::Weigh { views: views.clone(), settings })?;
        self.shard.weigh(model, &views, &settings)
    }

    fn read_weights(&mut self, _: &S::Share) -> Result<Vec<f32>, DeviceError> {
        refused("weights of single Gaussians")
    }

    fn score(&mut self, model: &S::Share, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        if rule.by_gradient().is_none() {
            return Ok(Candidates { rule: *rule, ..Candidates::NONE });
        }
        self.tell(&RankCommand::Score(*rule))?;
        self.shard.score(model, rule)
    }

    fn select(
        &mut self,
        model: &mut S::Share,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<S::Selection, DeviceError> {
        self.tell(&RankCommand::Select { candidates: *candidates, pick })?;
        self.shard.select(model, candidates, pick)
    }

    fn edit(
        &mut self,
        model: &mut S::Share,
        selection: S::Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.tell(&RankCommand::Edit(*rule))?;
        self.shard.edit(model, selection, rule)
    }

    fn adjust(&mut self, model: &mut S::Share, adjust: &Adjust) -> Result<(), DeviceError> {
        self.tell(&RankCommand::Adjust(*adjust))?;
        self.shard.adjust(model, adjust)
    }
}

impl<S: RankShard> Filter3d for Ranked<S> {
    fn update_filter_3d(
        &mut self,
        model: &mut S::Share,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        let views: Vec<View> = views.iter().copied().cloned().collect();
        self.tell(&RankCommand::Smooth { views: views.clone(), sampled_from })?;
        self.shard.smooth(model, &views, sampled_from)
    }
}

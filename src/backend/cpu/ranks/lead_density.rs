//! Density control and the 3D filter of all ranks, as rank 0 asks for them.

use super::command::RankCommand;
use super::density::RankedSelection;
use super::lead::RankedCpu;
use super::shard::ModelShare;
use crate::backend::{
    Adjust, Candidates, DeviceError, Edit, EditRule, Edited, Filter3d, Pick, RenderSettings,
    ScoreRule,
};
use crate::dataset::View;
use crate::model::Gaussians;

impl Edit<Gaussians> for RankedCpu {
    type Selection = RankedSelection;

    fn weigh(
        &mut self,
        model: &mut ModelShare,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        let (views, settings): (Vec<View>, _) =
            (views.iter().copied().cloned().collect(), *settings);
        self.shard.tell(&RankCommand::Weigh { views: views.clone(), settings })?;
        self.shard.weigh(model, &views, &settings)
    }

    fn score(&mut self, model: &ModelShare, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        if rule.by_gradient().is_none() {
            return Ok(Candidates { rule: *rule, ..Candidates::NONE });
        }
        self.shard.tell(&RankCommand::Score)?;
        self.shard.score(model, Some(rule))
    }

    fn select(
        &mut self,
        model: &mut ModelShare,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<RankedSelection, DeviceError> {
        self.shard.tell(&RankCommand::Select { candidates: *candidates, pick })?;
        self.shard.select(model, candidates, pick)
    }

    fn edit(
        &mut self,
        model: &mut ModelShare,
        selection: RankedSelection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        self.shard.tell(&RankCommand::Edit(*rule))?;
        self.shard.edit(model, selection, rule)
    }

    fn adjust(&mut self, model: &mut ModelShare, adjust: &Adjust) -> Result<(), DeviceError> {
        self.shard.tell(&RankCommand::Adjust(*adjust))?;
        self.shard.cpu.adjust(&mut model.local, adjust)
    }
}

impl Filter3d for RankedCpu {
    fn update_filter_3d(
        &mut self,
        model: &mut ModelShare,
        views: &[&View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        let views: Vec<View> = views.iter().copied().cloned().collect();
        self.shard.tell(&RankCommand::Smooth { views: views.clone(), sampled_from })?;
        self.shard.smooth(model, &views, sampled_from)
    }
}

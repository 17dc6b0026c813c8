//! Density control of all ranks. The rows of a rank are a sample of the whole scene, so each rank selects its
//! proportional part.

use super::share::{CudaShard, CudaShare, ScoredShares, parts};
use crate::backend::cuda::Selection;
use crate::backend::cuda::memory::heap::Buffer as _;
use crate::backend::cuda::stage::smooth;
use crate::backend::ranks::SharedEdits;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::{
    Adjust, Candidates, Edit as _, EditRule, Edited, Grow, Into, Pick, Result, ScoreRule,
};
use crate::dataset::View;

impl SharedEdits for CudaShard {
    type Selection = Selection;

    fn score(&mut self, share: &CudaShare, rule: &ScoreRule) -> Result<Candidates> {
        let rule = self.own_rule(*rule);
        let own = self.cuda.score(&share.local, &rule)?;
        let all = self.line.all_gather(&[own.small, own.large])?;
        let counts = all.iter().map(|found| found.iter().sum()).collect();
        let [small, large] = [0, 1].map(|kind| all.iter().map(|found| found[kind]).sum());
        self.scored = Some(ScoredShares { own, counts });
        Ok(Candidates { small, large, ..own })
    }

    fn select(
        &mut self,
        share: &mut CudaShare,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Selection> {
        let rank = self.rank() as usize;
        let rows = share.numbering.counts();
        // Use the last scores unless the edit has no candidates.
        let is_scored = candidates.count() > 0;
        let scored = self.scored.take().filter(|_| is_scored);
        let own = scored.as_ref().map_or(*candidates, |scored| scored.own);
        let own_pick = match pick {
            Pick::Best(wanted) => {
                let counts = scored.map_or(rows, |scored| scored.counts);
                let most = counts[rank];
                Pick::Best(parts(wanted, &counts)[rank].min(most))
            }
            Pick::WithReplacement { into, key } => {
                let into = match into {
                    Into::Dead => Into::Dead,
                    Into::NewRows(wanted) => Into::NewRows(parts(wanted, &rows)[rank]),
                };
                Pick::WithReplacement { into, key: self.own_key(key) }
            }
        };
        self.cuda.select(&mut share.local, &own, own_pick)
    }

    fn edit(
        &mut self,
        share: &mut CudaShare,
        selection: Selection,
        rule: &EditRule,
    ) -> Result<Edited> {
        let rule = self.own_edit(*rule);
        let Edited { copied, split, moved, removed } =
            self.cuda.edit(&mut share.local, selection, &rule)?;
        let of_ranks = self.line.all_gather(&[copied, split, moved, removed, share.local.len()])?;
        let sum = |of: usize| of_ranks.iter().map(|done| done[of]).sum();
        share.numbering = Numbering::of_counts(of_ranks.iter().map(|done| done[4]));
        Ok(Edited { copied: sum(0), split: sum(1), moved: sum(2), removed: sum(3) })
    }

    fn adjust(&mut self, share: &mut CudaShare, adjust: &Adjust) -> Result {
        self.cuda.adjust(&mut share.local, adjust)
    }

    fn smooth(&mut self, share: &mut CudaShare, views: &[View], sampled_from: f64) -> Result {
        let views: Vec<&View> = views.iter().collect();
        let line = &self.line;
        self.cuda.with_room(|session| {
            smooth::smooth_among(session, &mut share.local, &views, sampled_from, |farthest| {
                let mut own = [0];
                farthest.download(&session.stream, 0, &mut own)?;
                // The bits of non-negative depths have the order of the depths.
                let all = line.all_gather(&own)?.into_iter().flatten().fold(0, u32::max);
                farthest.upload(&session.stream, 0, &[all])
            })
        })
    }
}

impl CudaShard {
    /// Replaces the key of a rule by that of this rank.
    fn own_rule(&self, rule: ScoreRule) -> ScoreRule {
        match rule {
            ScoreRule::Disagreement { small_max, key } => {
                ScoreRule::Disagreement { small_max, key: self.own_key(key) }
            }
            other => other,
        }
    }

    fn own_edit(&self, rule: EditRule) -> EditRule {
        match rule {
            EditRule::Grow { large, keep } => {
                let large = match large {
                    Grow::Copy => Grow::Copy,
                    Grow::SplitRandom { shrink, key } => {
                        Grow::SplitRandom { shrink, key: self.own_key(key) }
                    }
                    Grow::AddChild { shrink, key } => {
                        Grow::AddChild { shrink, key: self.own_key(key) }
                    }
                };
                EditRule::Grow { large, keep }
            }
            other => other,
        }
    }
}

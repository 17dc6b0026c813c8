//! Density control of all ranks: every rank computes the same candidates and the same selection from columns of all
//! rows, and edits its own rows. Rows change their rank only in [`DealtRows::reorder`].
//!
//! [`DealtRows::reorder`]: crate::backend::ranks::DealtRows::reorder

use serde::{Deserialize, Serialize};

use super::share::{CpuShard, ModelShare, check_block};
use crate::backend::cpu::edit::{self, Picked, Selection};
use crate::backend::cpu::model::{Model, Parameter};
use crate::backend::cpu::rows::RowBlock;
use crate::backend::cpu::stage::densify::{self, Growing};
use crate::backend::cpu::stage::relocate::{self, DrawnSources};
use crate::backend::cpu::stage::smooth;
use crate::backend::ranks::SharedEdits;
use crate::backend::ranks::numbering::Numbering;
use crate::backend::settings::viewpoint;
use crate::backend::{
    Adjust, Candidates, DeviceError, Edit as _, EditRule, Edited, Footprint, Grow, Keep, Pick,
    ScoreRule,
};
use crate::dataset::View;
use crate::math::Real;
use crate::model::Gaussians;

/// Columns that determine the scores of rows.
#[derive(Debug, Deserialize, Serialize)]
struct ScoredRows {
    log_scales: Vec<f32>,
    opacity_logits: Vec<f32>,
    gradient_norm_sums: Vec<f32>,
    views_seen: Vec<u32>,
    absolute_norm_sums: Vec<f32>,
}

impl ScoredRows {
    fn of(model: &Model<f32>) -> Self {
        Self {
            log_scales: model.column(Parameter::LogScales).values.clone(),
            opacity_logits: model.column(Parameter::OpacityLogits).values.clone(),
            gradient_norm_sums: model.gradient_norm_sums.clone(),
            views_seen: model.views_seen.clone(),
            absolute_norm_sums: model.absolute_norm_sums.clone(),
        }
    }
}

/// Result of an edit on a rank.
#[derive(Debug, Deserialize, Serialize)]
struct RankEdit {
    copied: usize,
    split: usize,
    removed: usize,
    /// True for each kept row, among the earlier rows and then one new row per selected row.
    kept: Vec<bool>,
}

impl SharedEdits for CpuShard {
    /// Rows of all ranks by their numbers.
    type Selection = Selection;

    fn score(&mut self, share: &ModelShare, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        let all = self.all_scored(share)?;
        Ok(edit::score(&all, rule))
    }

    fn select(
        &mut self,
        share: &mut ModelShare,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Selection, DeviceError> {
        let all = self.all_scored(share)?;
        Selection::of(&all, candidates, pick, share.local.rows_version())
    }

    fn edit(
        &mut self,
        share: &mut ModelShare,
        selection: Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        if selection.rows_version != *share.local.rows_version() {
            return Err(DeviceError::StaleSelection);
        }
        match (selection.picked, rule) {
            (Picked::Best(rows), EditRule::Grow { large, keep }) => {
                self.grow(share, &rows, large, keep)
            }
            (Picked::Retained(rows), EditRule::Retain) => Ok(self.retain(share, &rows)),
            (Picked::Drawn(sources), EditRule::Share) => self.share(share, &sources),
            _ => Err(DeviceError::UnsuitedEdit),
        }
    }

    fn adjust(&mut self, share: &mut ModelShare, adjust: &Adjust) -> Result<(), DeviceError> {
        self.cpu.adjust(&mut share.local, adjust)
    }

    fn smooth(
        &mut self,
        share: &mut ModelShare,
        views: &[View],
        sampled_from: f64,
    ) -> Result<(), DeviceError> {
        // The 3D filter does not depend on the screen's filter.
        let points = views.iter().map(|view| viewpoint(view, sampled_from, Footprint::DILATED));
        let points: Vec<_> = points.collect();
        let nearest = smooth::nearest(&share.local, &points);
        // Rows that no view samples get the filter of the farthest row of all ranks.
        let farthest = self.line.all_gather(&smooth::farthest(&nearest))?;
        let farthest = farthest.into_iter().fold(0.0, Real::max);
        smooth::set(&mut share.local, &points, &nearest, farthest);
        share.optional.filter_3d = true;
        Ok(())
    }
}

impl CpuShard {
    /// Collects the scored columns of all ranks in the order of the rows' numbers. Absolute gradients are zero on ranks
    /// without that column, because no view has seen their rows.
    fn all_scored(&mut self, share: &ModelShare) -> Result<Model<f32>, DeviceError> {
        let mut of_ranks = self.line.all_gather(&ScoredRows::of(&share.local))?;
        let has_absolute = of_ranks.iter().any(|scored| !scored.absolute_norm_sums.is_empty());
        for scored in of_ranks.iter_mut().filter(|_| has_absolute) {
            scored.absolute_norm_sums.resize(scored.views_seen.len(), 0.0);
        }
        let numbering = &share.numbering;
        let mut floats = |of: fn(&mut ScoredRows) -> &mut Vec<f32>, width| {
            let columns: Vec<_> = of_ranks.iter_mut().map(|s| std::mem::take(of(s))).collect();
            numbering.check(&columns, width)?;
            Ok::<_, DeviceError>(numbering.in_order(&columns, width))
        };
        let mut all = Model::new(&Gaussians::zeros(0, 0));
        // The length counts the rows. The positions are not used.
        all.columns[Parameter::Means as usize].values = vec![0.0; share.numbering.len() * 3];
        all.column_mut(Parameter::LogScales).values = floats(|scored| &mut scored.log_scales, 3)?;
        all.column_mut(Parameter::OpacityLogits).values =
            floats(|scored| &mut scored.opacity_logits, 1)?;
        all.gradient_norm_sums = floats(|scored| &mut scored.gradient_norm_sums, 1)?;
        if has_absolute {
            all.absolute_norm_sums = floats(|scored| &mut scored.absolute_norm_sums, 1)?;
        }
        let seen: Vec<_> = of_ranks.into_iter().map(|scored| scored.views_seen).collect();
        numbering.check(&seen, 1)?;
        all.views_seen = numbering.in_order(&seen, 1);
        Ok(all)
    }

    /// Returns the selected rows of this rank.
    fn own(&self, numbering: &Numbering, selected: &[Growing]) -> Vec<Growing> {
        let rank = self.rank();
        let found = selected.iter().map(|growing| (numbering.find(growing.row), growing.size));
        let own = found.filter(|((owner, _), _)| *owner == rank);
        own.map(|((_, row), size)| Growing { row, size }).collect()
    }

    fn grow(
        &mut self,
        share: &mut ModelShare,
        selected: &[Growing],
        large: &Grow,
        keep: &Keep,
    ) -> Result<Edited, DeviceError> {
        let own = self.own(&share.numbering, selected);
        let (Edited { copied, split, removed, .. }, kept) =
            densify::edit(&mut share.local, &own, large, keep);
        let edits = self.line.all_gather(&RankEdit { copied, split, removed, kept })?;
        let mut expected = share.numbering.counts();
        for growing in selected {
            expected[share.numbering.find(growing.row).0 as usize] += 1;
        }
        for ((rank, edit), rows) in (0..).zip(&edits).zip(expected) {
            if edit.kept.len() != rows {
                let message = format!("it has edited {} of {rows} rows", edit.kept.len());
                return Err(DeviceError::of_rank(rank, message));
            }
        }
        let sum = |of: fn(&RankEdit) -> usize| edits.iter().map(of).sum();
        let done = Edited {
            copied: sum(|edit| edit.copied),
            split: sum(|edit| edit.split),
            removed: sum(|edit| edit.removed),
            moved: 0,
        };
        // The earlier rows of a rank come first, then one new row per selected row.
        let mut next = vec![0; edits.len()];
        let born = selected.iter().map(|growing| share.numbering.find(growing.row).0);
        let mut owners = Vec::with_capacity(share.numbering.len() + selected.len());
        for rank in share.numbering.owners().chain(born) {
            let row = &mut next[rank as usize];
            if edits[rank as usize].kept[*row] {
                owners.push(rank);
            }
            *row += 1;
        }
        share.renumber(Numbering::of_owners(self.world(), owners), self.rank());
        Ok(done)
    }

    fn retain(&self, share: &mut ModelShare, selected: &[Growing]) -> Edited {
        let before = share.numbering.len();
        densify::retain(&mut share.local, &self.own(&share.numbering, selected));
        let owners = selected.iter().map(|growing| share.numbering.find(growing.row).0);
        let numbering = Numbering::of_owners(self.world(), owners);
        share.renumber(numbering, self.rank());
        Edited { removed: before - selected.len(), ..Edited::default() }
    }

    /// Writes copies that share the opacity of their sources. New rows stay on the ranks of their sources. Parameters
    /// of copies in place of dead rows are sent to the ranks of those rows.
    fn share(
        &mut self,
        share: &mut ModelShare,
        drawn: &DrawnSources,
    ) -> Result<Edited, DeviceError> {
        let DrawnSources { sources, dead, opacity_min } = drawn;
        let (rank, world) = (self.rank(), self.world());
        let found: Vec<_> = sources.iter().map(|&number| share.numbering.find(number)).collect();
        let own: Vec<usize> =
            found.iter().filter(|&&(owner, _)| owner == rank).map(|&(_, row)| row).collect();
        let shared = relocate::split_opacity(&mut share.local, *opacity_min, &own);
        let Some(dead) = dead else {
            share.local.append_copies(&own);
            let born = found.iter().map(|&(owner, _)| owner);
            let numbering = Numbering::of_owners(world, share.numbering.owners().chain(born));
            share.renumber(numbering, rank);
            return Ok(Edited { copied: sources.len(), ..Edited::default() });
        };
        for source in shared {
            share.local.forget_row(source);
        }
        if !dead.is_empty() {
            share.local.invalidate_rows();
        }
        let mut leaving = vec![Vec::new(); world as usize];
        let mut arriving = vec![Vec::new(); world as usize];
        for (&number, &(from, source)) in dead.iter().zip(&found) {
            let (to, row) = share.numbering.find(number);
            if from == rank {
                leaving[to as usize].push(source);
            }
            if to == rank {
                arriving[from as usize].push(row);
            }
        }
        let outgoing: Vec<_> = leaving.iter().map(|rows| share.local.block(rows)).collect();
        let incoming: Vec<RowBlock<f32>> = self.line.all_to_all(&outgoing)?;
        for ((rank, block), rows) in (0..).zip(&incoming).zip(&arriving) {
            check_block(&share.local, rank, block, rows.len())?;
            share.local.take_parameters(rows, block);
        }
        Ok(Edited { moved: dead.len(), ..Edited::default() })
    }
}

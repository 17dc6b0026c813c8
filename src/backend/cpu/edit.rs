//! Density control on the processor.

use super::model::Model;
use super::stage::densify::{self, Growing};
use super::stage::relocate::{self, DrawnSources};
use super::stage::smooth;
use super::{Cpu, frame, traits};
use crate::backend::rows::RowsVersion;
use crate::backend::{
    Adjust, Candidates, DeviceError, DrawSettings, Edit, EditRule, Edited, Pick, RenderSettings,
    ScoreRule, Statistics, TrainRequest,
};
use crate::dataset::View;
use crate::math::Real;
use crate::math::random::RandomStream;
use crate::model::Gaussians;

/// Selected rows of one version of a model.
#[derive(Debug)]
pub struct Selection {
    pub(super) rows_version: RowsVersion,
    pub(super) picked: Picked,
}

#[derive(Debug)]
pub(super) enum Picked {
    Best(Vec<Growing>),
    /// Rows to keep.
    Retained(Vec<Growing>),
    Drawn(DrawnSources),
}

impl Selection {
    /// Selects among the candidates of a model, whose rows have this version.
    pub(super) fn of<R: Real>(
        model: &Model<R>,
        candidates: &Candidates,
        pick: Pick,
        rows_version: &RowsVersion,
    ) -> Result<Self, DeviceError> {
        let picked = match (pick, candidates.rule) {
            (Pick::Best(kept), ScoreRule::Weight) => {
                Picked::Retained(densify::select(model, candidates, kept)?)
            }
            (Pick::Best(new_gaussians), _) => {
                Picked::Best(densify::select(model, candidates, new_gaussians)?)
            }
            (Pick::WithReplacement { into, key }, ScoreRule::Opacity { min }) => {
                Picked::Drawn(relocate::select(model, min, into, RandomStream::of_key(key)))
            }
            (Pick::WithReplacement { .. }, _) => return Err(DeviceError::UnsuitedEdit),
        };
        Ok(Self { rows_version: rows_version.clone(), picked })
    }
}

/// Finds the thresholds of candidates, and counts the candidates by gradient.
pub(super) fn score<R: Real>(model: &Model<R>, rule: &ScoreRule) -> Candidates {
    match rule.by_gradient() {
        Some(gradient) => densify::score(model, rule, &gradient),
        None => Candidates { rule: *rule, ..Candidates::NONE },
    }
}

impl<R: Real> Edit<Gaussians> for Cpu<R> {
    type Selection = Selection;

    fn weigh(
        &mut self,
        model: &mut Model<R>,
        views: &[&View],
        settings: &RenderSettings,
    ) -> Result<(), DeviceError> {
        model.forget_statistics();
        model.faces.forget();
        let request = TrainRequest { observe: Some(Statistics::Norms), ..TrainRequest::default() };
        let drawing = DrawSettings::trained(settings, &request);
        for view in views {
            frame::draw(model, view, drawing)?.weigh(model)?;
        }
        Ok(())
    }

    fn read_weights(&mut self, model: &Model<R>) -> Result<Vec<f32>, DeviceError> {
        Ok(model.gradient_norm_sums.iter().map(|weight| weight.to_f32()).collect())
    }

    fn score(&mut self, model: &Model<R>, rule: &ScoreRule) -> Result<Candidates, DeviceError> {
        Ok(score(model, rule))
    }

    fn select(
        &mut self,
        model: &mut Model<R>,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Selection, DeviceError> {
        Selection::of(model, candidates, pick, model.rows_version())
    }

    fn edit(
        &mut self,
        model: &mut Model<R>,
        selection: Selection,
        rule: &EditRule,
    ) -> Result<Edited, DeviceError> {
        if selection.rows_version != *model.rows_version() {
            return Err(DeviceError::StaleSelection);
        }
        model.faces.require_none("density control by rows")?;
        match (selection.picked, rule) {
            (Picked::Best(rows), EditRule::Grow { large, keep }) => {
                Ok(densify::edit(model, &rows, large, keep).0)
            }
            (Picked::Retained(rows), EditRule::Retain) => Ok(densify::retain(model, &rows)),
            (Picked::Drawn(sources), EditRule::Share) => Ok(relocate::edit(model, &sources)),
            _ => Err(DeviceError::UnsuitedEdit),
        }
    }

    fn adjust(&mut self, model: &mut Model<R>, adjust: &Adjust) -> Result<(), DeviceError> {
        match *adjust {
            Adjust::ResetOpacity(ceiling) if model.optional().filter_3d => {
                smooth::reset_opacity(model, ceiling);
            }
            Adjust::ResetOpacity(ceiling) => densify::reset_opacity(model, ceiling),
            Adjust::DecayOpacity { factor, floor } => densify::decay_opacity(model, factor, floor),
            Adjust::RaiseOpacityFloor { before, after } => {
                traits::raise_opacity_floor(model, before, after);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Grow, Into, Keep};

    const BY_GRADIENT: ScoreRule = ScoreRule::Gradient { min: 0.0, small_max: 1.0 };
    const BY_OPACITY: ScoreRule = ScoreRule::Opacity { min: 0.005 };
    const DRAW: Pick = Pick::WithReplacement { into: Into::NewRows(2), key: 1 };
    const PRUNE: EditRule = EditRule::Grow {
        large: Grow::Copy,
        keep: Keep { opacity_min: 0.0, scale_max: None, unseen: true },
    };

    #[test]
    fn unsuited_picks_and_edits_are_refused() {
        let mut cpu = Cpu::<f32>::new();
        let mut model = Model::new(&Gaussians::zeros(0, 3));
        for (rule, pick) in [(BY_GRADIENT, DRAW), (BY_OPACITY, Pick::Best(1))] {
            let candidates = cpu.score(&model, &rule).unwrap();
            let refused = cpu.select(&mut model, &candidates, pick);
            assert!(matches!(refused, Err(DeviceError::UnsuitedEdit)), "{pick:?}");
        }
        for (rule, pick, edit) in
            [(BY_GRADIENT, Pick::Best(1), EditRule::Share), (BY_OPACITY, DRAW, PRUNE)]
        {
            let candidates = cpu.score(&model, &rule).unwrap();
            let selection = cpu.select(&mut model, &candidates, pick).unwrap();
            let refused = cpu.edit(&mut model, selection, &edit);
            assert!(matches!(refused, Err(DeviceError::UnsuitedEdit)), "{edit:?}");
        }
        assert_eq!(model.len(), 3);
    }

    #[test]
    fn stale_selection_is_refused() {
        let mut cpu = Cpu::<f32>::new();
        let mut model = Model::new(&Gaussians::zeros(0, 3));
        let candidates = cpu.score(&model, &BY_OPACITY).unwrap();
        let stale = cpu.select(&mut model, &candidates, DRAW).unwrap();
        let selection = cpu.select(&mut model, &candidates, DRAW).unwrap();
        let done = cpu.edit(&mut model, selection, &EditRule::Share).unwrap();
        assert_eq!((done.copied, model.len()), (2, 5));
        let refused = cpu.edit(&mut model, stale, &EditRule::Share);
        assert!(matches!(refused, Err(DeviceError::StaleSelection)));
    }
}

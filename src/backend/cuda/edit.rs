//! Density control on a GPU.

use super::Cuda;
use super::memory::heap::Buffer as _;
use super::model::tables::{Model, catch_up};
use super::stage::densify::{self, DensifyWork};
use super::stage::relocate::{DrawRule, MultinomialSampler};
use super::stage::smooth;
use crate::backend::rows::RowsVersion;
use crate::backend::{
    Adjust, Candidates, DeviceError, DrawSettings, Drawn, Edit, EditRule, Edited, Pick,
    RenderSettings, Result, ScoreRule, Statistics, TrainRequest,
};
use crate::dataset::View;
use crate::model::Gaussians;

/// The selected rows of a model, and the scratch of the edit.
pub struct Selection {
    rows_version: RowsVersion,
    picked: Picked,
}

enum Picked {
    Best(DensifyWork),
    /// The rows that stay.
    Retained(DensifyWork),
    /// `None` if no copies are wanted or possible.
    Drawn(Option<MultinomialSampler>),
}

impl Edit<Gaussians> for Cuda {
    type Selection = Selection;

    fn weigh(&mut self, model: &mut Model, views: &[&View], settings: &RenderSettings) -> Result {
        model.forget_statistics(&self.session)?;
        if let Some(faces) = &mut model.faces {
            faces.forget(&self.session)?;
        }
        let request = TrainRequest { observe: Some(Statistics::Norms), ..TrainRequest::default() };
        let drawing = DrawSettings::trained(settings, &request);
        for view in views {
            self.draw::<Drawn, _>(model, view, &drawing)?.weigh(&mut self.session, model)?;
        }
        Ok(())
    }

    fn read_weights(&mut self, model: &Model) -> Result<Vec<f32>> {
        model.gradient_norm_sums.download_vec(&self.session.stream, 0..model.len())
    }

    fn score(&mut self, model: &Model, rule: &ScoreRule) -> Result<Candidates> {
        match rule.by_gradient() {
            Some(gradient) => {
                self.with_room(|session| densify::score(session, model, rule, &gradient))
            }
            None => Ok(Candidates { rule: *rule, ..Candidates::NONE }),
        }
    }

    fn select(
        &mut self,
        model: &mut Model,
        candidates: &Candidates,
        pick: Pick,
    ) -> Result<Selection> {
        // Rows get other numbers, so a fault that names a row must be read before.
        self.bring_up_to_date(model)?;
        let picked = match (pick, candidates.rule) {
            (Pick::Best(kept), ScoreRule::Weight) => Picked::Retained(
                self.with_room(|session| DensifyWork::select(session, model, candidates, kept))?,
            ),
            (Pick::Best(new_gaussians), _) => Picked::Best(self.with_room(|session| {
                DensifyWork::select(session, model, candidates, new_gaussians)
            })?),
            (Pick::WithReplacement { into, key }, ScoreRule::Opacity { min }) => {
                let rule = DrawRule { into, key, opacity_min: min };
                Picked::Drawn(
                    self.with_room(|session| MultinomialSampler::select(session, model, rule))?,
                )
            }
            (Pick::WithReplacement { .. }, _) => return Err(DeviceError::UnsuitedEdit),
        };
        Ok(Selection { rows_version: model.rows_version().clone(), picked })
    }

    fn edit(&mut self, model: &mut Model, selection: Selection, rule: &EditRule) -> Result<Edited> {
        if selection.rows_version != *model.rows_version() {
            return Err(DeviceError::StaleSelection);
        }
        match (selection.picked, rule) {
            (Picked::Best(mut work), EditRule::Grow { large, keep }) => {
                self.with_room(|session| work.edit(session, model, large, keep))
            }
            (Picked::Retained(mut work), EditRule::Retain) => {
                self.with_room(|session| work.retain(session, model))
            }
            (Picked::Drawn(Some(mut sampler)), EditRule::Share) => {
                self.with_room(|session| sampler.edit(session, model))
            }
            (Picked::Drawn(None), EditRule::Share) => Ok(Edited::default()),
            _ => Err(DeviceError::UnsuitedEdit),
        }
    }

    fn adjust(&mut self, model: &mut Model, adjust: &Adjust) -> Result {
        let ceiling = match *adjust {
            Adjust::ResetOpacity(ceiling) => ceiling,
            Adjust::DecayOpacity { factor, floor } => {
                catch_up(&self.session, model)?;
                return densify::decay_opacity(&self.session, model, factor, floor);
            }
            Adjust::RaiseOpacityFloor { before, after } => {
                return densify::raise_opacity_floor(&self.session, model, before, after);
            }
        };
        if model.optional().filter_3d {
            smooth::reset_opacity(&self.session, model, ceiling)
        } else {
            densify::reset_opacity(&self.session, model, ceiling)
        }
    }
}

//! Comparison of a drawn view with its photograph.

use super::{Frame, Scores};
use crate::abi::terms::{
    At, Inputs, Term, Terms, VALUE_DEPTH_L1, VALUE_MULTI_VIEW, VALUE_NORMAL_MAP, Weighted,
};
use crate::backend::cuda::photos::{Photograph, Target};
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::primitive::require;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::depth::{self, Written};
use crate::backend::cuda::stage::loss::{self, PendingLosses};
use crate::backend::cuda::stage::neighbours::NearestLists;
use crate::backend::cuda::stage::surface::{self, DepthMap};
use crate::backend::cuda::stage::{normals, patches};
use crate::backend::{Capability, Objective, Scored, Trainable, check_inputs};

impl<S: Trainable, P: CudaPrimitive> Frame<S, P> {
    /// Evaluates the terms at pixels, in a fixed order. Sampled depths are compared later.
    pub(crate) fn scored(
        mut self,
        session: &mut Session,
        model: &Model<P>,
        objective: &Objective<'_, Target, NearestLists<P>>,
    ) -> Result<(Frame<Scored<S>, P>, PendingLosses)> {
        let &Objective { target, terms, near, other } = objective;
        let given = Inputs { other_view: other.is_some(), ..self.settings.inputs() };
        check_inputs(terms, given, near.is_some())?;
        if let Some(near) = near.filter(|_| terms.needs().neighbours) {
            near.check(model)?;
        }
        let has_samples = terms.active_at(At::Samples).next().is_some();
        require::<P>(Capability::Surfaces, has_samples)?;
        if has_samples {
            self.settings.footprint.require_volumes(Capability::Surfaces.words())?;
        }
        session.status.clear_sums(&session.stream)?;
        let mut room = self.shrunk.take();
        let (view_px, divisor) = (self.camera.size, self.settings.divisor);
        let photograph = &match &mut room {
            Some(room) => room.shrink(session, target, view_px, divisor)?,
            None => target.whole(),
        };
        let d_image = &mut self.gradients.as_mut().ok_or(DeviceError::NoView)?.image;
        let image =
            self.colors.as_ref().and_then(ColorScratch::image).unwrap_or(&self.canvas.image);
        let shown = (image, self.settings.background);
        loss::loss(session, shown, &self.camera, photograph, terms, d_image)?;
        let [has_depths, has_normal_map] = self.compare_depths(session, photograph, terms)?;
        let (canvas, camera) = (&self.canvas, &self.camera);
        let gradients = self.gradients.as_mut().ok_or(DeviceError::NoView)?;
        let mut written = Written {
            inverse_depths: has_depths || has_normal_map,
            surface: normals::compare(session, canvas, camera, photograph, terms, gradients)?,
        };
        depth::score_rays(session, canvas, photograph, terms, (gradients, &mut written))?;
        if let Some(other) = other.filter(|_| terms.weight(VALUE_MULTI_VIEW) != 0.0) {
            let seen = (canvas, camera, target);
            patches::compare(session, seen, other, terms, (gradients, written.surface))?;
            written.surface = true;
        }
        self.shrunk = room;
        let report = session.status.report(&session.heap, &session.stream)?;
        let has_value = |weighted: &&Weighted| match weighted.term {
            Term::InverseDepth => has_depths,
            Term::NormalMap => has_normal_map,
            _ => true,
        };
        let active = terms.active_at(At::Pixels).filter(has_value).copied().collect();
        let pending = PendingLosses::of_pixels(report, active, self.camera.size);
        let scores = Scores {
            terms: terms.clone(),
            has_inverse_depths: written.inverse_depths,
            has_surface: written.surface,
            depth_map: None,
        };
        Ok((self.into_state(|_| scores), pending))
    }

    /// Compares the inverse depths with the photograph's maps. Returns whether it has one of inverse depths, and one of
    /// normals.
    fn compare_depths(
        &mut self,
        session: &mut Session,
        target: &Photograph<'_>,
        terms: &Terms,
    ) -> Result<[bool; 2]> {
        let d_depths = self.gradients.as_mut().and_then(|drawn| drawn.inverse_depths.as_mut());
        let (Some(depths), Some(d_depths)) = (&self.canvas.inverse_depths, d_depths) else {
            return Ok([false; 2]);
        };
        let weight = terms.weight(VALUE_DEPTH_L1);
        let has_depths = weight != 0.0
            && depth::compare(session, depths, &self.camera, target, weight, d_depths)?;
        let weight = terms.weight(VALUE_NORMAL_MAP);
        if weight == 0.0 {
            return Ok([has_depths, false]);
        }
        if !has_depths {
            d_depths.zero(&session.stream)?;
        }
        let has_normals =
            normals::compare_with_map(session, depths, &self.camera, target, weight, d_depths)?;
        Ok([has_depths, has_normals])
    }
}

impl<S: Trainable, P: CudaPrimitive> Frame<Scored<S>, P> {
    /// Adds the gradient of the sampled depths. Adds nothing if memory is refused.
    pub(crate) fn compare_sampled_depths(
        &mut self,
        session: &Session,
        model: &Model<P>,
        near: &NearestLists<P>,
    ) -> Result {
        let scores = &mut self.kept;
        let d_surface = self.gradients.as_mut().and_then(|drawn| drawn.maps.as_mut());
        let (Some(surface), Some(d_surface)) = (&self.canvas.surface, d_surface) else {
            return Ok(());
        };
        let begun = session.timers.begin(Stage::Loss, &session.stream)?;
        if !scores.has_surface {
            d_surface.zero(&session.stream)?;
        }
        let map = match &scores.depth_map {
            Some(map) => map,
            None => {
                let sizes = self.splats.sizes(model.len(), &self.camera);
                scores.depth_map.insert(DepthMap::new(session, &self.splats, &sizes, surface)?)
            }
        };
        let shown = (&self.splats, &self.camera, map);
        surface::compare_depths(session, model, shown, near, &scores.terms, d_surface)?;
        scores.has_surface = true;
        session.timers.end(&begun, &session.stream)
    }
}

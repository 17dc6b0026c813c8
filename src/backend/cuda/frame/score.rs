//! Comparison of a drawn view with its photograph.

use super::{Frame, Scores};
use crate::abi::terms::{
    At, Inputs, NormalDepths, Term, Terms, VALUE_DEPTH_L1, VALUE_DISTORTION, VALUE_MULTI_VIEW,
    VALUE_NORMAL_MAP, Weighted,
};
use crate::backend::cuda::photos::{Photograph, Target};
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::primitive::require;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::blend::Canvas;
use crate::backend::cuda::stage::depth::{self, RayMapGradients, RayMaps};
use crate::backend::cuda::stage::loss::{self, PendingLosses};
use crate::backend::cuda::stage::neighbours::NearestLists;
use crate::backend::cuda::stage::normals::{self, Medians, NormalsRule};
use crate::backend::cuda::stage::patches::{self, PatchMaps, SurfaceGradients};
use crate::backend::cuda::stage::surface::{self, DepthMap, ShownDepths};
use crate::backend::{Capability, Objective, OtherView, Scored, Trainable, check_inputs};
use crate::layout::PixelGradients;

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
        let has_depths = self.compare_depths(session, photograph, terms)?;
        let d_image = &mut self.gradients.as_mut().ok_or(DeviceError::NoView)?.image;
        let image =
            self.colors.as_ref().and_then(ColorScratch::image).unwrap_or(&self.canvas.image);
        loss::loss(session, image, &self.camera, photograph, terms, d_image)?;
        let has_normal_map = self.compare_normal_map(session, photograph, terms, has_depths)?;
        let has_maps = has_depths || has_normal_map;
        let mut has_surface = self.compare_normals(session, photograph, terms)?;
        let has_rays =
            self.measure_distortion(session, photograph, terms, [has_maps, has_surface])?;
        has_surface |= has_rays;
        self.shrunk = room;
        if let Some(other) = other.filter(|_| terms.weight(VALUE_MULTI_VIEW) != 0.0) {
            self.compare_patches(session, target, other, terms, has_surface)?;
            has_surface = true;
        }
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
            has_inverse_depths: has_maps || has_rays,
            has_surface,
            depth_map: None,
        };
        Ok((self.into_state(|_| scores), pending))
    }

    /// Returns true if the photograph has a map of inverse depths.
    fn compare_depths(
        &mut self,
        session: &mut Session,
        target: &Photograph<'_>,
        terms: &Terms,
    ) -> Result<bool> {
        let weight = terms.weight(VALUE_DEPTH_L1);
        let d_depths = self.gradients.as_mut().and_then(|drawn| drawn.inverse_depths.as_mut());
        match (&self.canvas.inverse_depths, d_depths) {
            (Some(depths), Some(d_depths)) if weight != 0.0 => {
                depth::compare(session, depths, &self.camera, target, weight, d_depths)
            }
            _ => Ok(false),
        }
    }

    /// Returns true if the photograph has a map of normals. Adds to the gradient of the inverse depths if there is one.
    fn compare_normal_map(
        &mut self,
        session: &mut Session,
        target: &Photograph<'_>,
        terms: &Terms,
        has_depths: bool,
    ) -> Result<bool> {
        let weight = terms.weight(VALUE_NORMAL_MAP);
        let d_depths = self.gradients.as_mut().and_then(|drawn| drawn.inverse_depths.as_mut());
        match (&self.canvas.inverse_depths, d_depths) {
            (Some(depths), Some(d_depths)) if weight != 0.0 => {
                if !has_depths {
                    d_depths.zero(&session.stream)?;
                }
                normals::compare_with_map(session, depths, &self.camera, target, weight, d_depths)
            }
            _ => Ok(false),
        }
    }

    /// Returns true if a term compares the drawn normals.
    fn compare_normals(
        &mut self,
        session: &mut Session,
        target: &Photograph<'_>,
        terms: &Terms,
    ) -> Result<bool> {
        let rule = terms.active().find_map(|&Weighted { term, weight }| match term {
            Term::DepthNormal { depths } => Some(NormalsRule { depths, weight, target }),
            _ => None,
        });
        // Without a comparison there is no gradient of the medians.
        let is_used = terms.needs().median;
        let Some(PixelGradients { maps, median_depths, .. }) = &mut self.gradients else {
            return Ok(false);
        };
        median_depths.take_if(|_| !is_used);
        match (rule, &self.canvas.surface, maps) {
            (Some(rule), Some(surface), Some(d_surface)) => {
                let medians = self.canvas.median_depths.as_ref().zip(median_depths.as_mut());
                let medians = medians.filter(|_| rule.depths == NormalDepths::Median);
                let medians = medians.map(|(depths, d_depths)| Medians { depths, d_depths });
                normals::compare(session, surface, medians, &self.camera, rule, d_surface)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
    /// Returns true if a term penalises distortion. Adds to the gradients of inverse depths and surface maps.
    fn measure_distortion(
        &mut self,
        session: &mut Session,
        target: &Photograph<'_>,
        terms: &Terms,
        [has_inverse_depths, has_surface]: [bool; 2],
    ) -> Result<bool> {
        let weight = terms.weight(VALUE_DISTORTION);
        // Without the term there is no gradient of the squares.
        let Some(gradients) = &mut self.gradients else { return Ok(false) };
        gradients.inverse_squares.take_if(|_| weight == 0.0);
        let Canvas { inverse_depths, inverse_squares, surface, .. } = &self.canvas;
        let drawn = (inverse_depths, inverse_squares, surface);
        let (Some(inverse_depths), Some(inverse_squares), Some(surface)) = drawn else {
            return Ok(false);
        };
        let PixelGradients {
            inverse_depths: Some(d_depths),
            inverse_squares: Some(d_squares),
            maps: Some(d_surface),
            ..
        } = gradients
        else {
            return Ok(false);
        };
        if !has_inverse_depths {
            d_depths.zero(&session.stream)?;
        }
        if !has_surface {
            d_surface.zero(&session.stream)?;
        }
        let drawn = RayMaps { inverse_depths, inverse_squares, surface };
        let gradients = RayMapGradients {
            inverse_depths: d_depths,
            inverse_squares: d_squares,
            surface: d_surface,
        };
        depth::measure_distortion(session, drawn, gradients, target, weight)?;
        Ok(true)
    }

    /// Adds the gradients of patches to those of the normals, if there are any.
    fn compare_patches(
        &mut self,
        session: &mut Session,
        target: &Target,
        other: OtherView<'_, Target>,
        terms: &Terms,
        has_surface: bool,
    ) -> Result {
        let canvas = &self.canvas;
        let gradients = self.gradients.as_mut();
        let gradients =
            gradients.and_then(|drawn| drawn.maps.as_mut().zip(drawn.median_depths.as_mut()));
        let drawn = canvas.surface.as_ref().zip(canvas.median_depths.as_ref());
        let (Some((maps, medians)), Some((d_maps, d_medians))) = (drawn, gradients) else {
            return Ok(());
        };
        if !has_surface {
            d_maps.zero(&session.stream)?;
        }
        let has_medians = terms.active().any(|weighted| {
            matches!(weighted.term, Term::DepthNormal { depths: NormalDepths::Median })
        });
        if !has_medians {
            d_medians.zero(&session.stream)?;
        }
        let shown = PatchMaps { maps, medians, camera: &self.camera, target };
        let gradients = SurfaceGradients { maps: d_maps, medians: d_medians };
        patches::compare(session, shown, other, terms.weight(VALUE_MULTI_VIEW), gradients)
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
        let shown = ShownDepths { splats: &self.splats, camera: &self.camera, map };
        surface::compare_depths(session, model, shown, near, &scores.terms, d_surface)?;
        scores.has_surface = true;
        session.timers.end(&begun, &session.stream)
    }
}

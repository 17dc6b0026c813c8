//! The gradients of drawn views and the step.

use std::marker::PhantomData;

use super::{Frame, Scores};
use crate::abi::MAX_VIEWS;
use crate::abi::terms::{At, Terms};
use crate::backend::cuda::prelude::*;
use crate::backend::cuda::primitive::no_batches;
use crate::backend::cuda::stage::adam::{self, StepView};
use crate::backend::cuda::stage::bands::{self, Lists};
use crate::backend::cuda::stage::blend::Pixels;
use crate::backend::cuda::stage::loss::PendingLosses;
use crate::backend::cuda::stage::neighbours::NearestLists;
use crate::backend::cuda::stage::project::{self, DrawnView, Splats};
use crate::backend::cuda::stage::surface::{self, DepthMap, SampledView};
use crate::backend::cuda::stage::{contribution, densify, rays};
use crate::backend::{AdamStep, DrawSettings, Drawn, Held, Scored};
use crate::layout::Records;
use crate::math::splat::PlaceGradients;
use crate::model::Gaussians;

/// The screen-space gradients of views and the geometry gradients of sampled terms.
pub struct Gradients<P = Gaussians> {
    views: Vec<ViewGradients>,
    /// Gradients of the geometry of all Gaussians, [n, 12]; `None` without sampled terms.
    geometry: Option<Block<f32>>,
    primitive: PhantomData<P>,
}

impl<P> Default for Gradients<P> {
    fn default() -> Self {
        Self { views: Vec::new(), geometry: None, primitive: PhantomData }
    }
}

pub(crate) struct ViewGradients {
    pub(crate) splats: Splats,
    pub(crate) camera: ViewCamera,
    pub(crate) settings: DrawSettings,
    /// Depths that samples were compared with.
    depth_map: Option<DepthMap>,
}

impl<P: CudaPrimitive> Frame<Drawn, P> {
    /// Adds the blend weights of the view's splats to the sums. The other gradients are not computed.
    pub(crate) fn weigh(self, session: &mut Session, model: &mut Model<P>) -> Result {
        let splats = self.into_weights(session, model)?;
        if splats.kind == Records::Triangles {
            return Ok(());
        }
        contribution::add_weights(session, model, &splats)
    }

    /// Writes the blend weights of the splats in the place of their gradients.
    pub(crate) fn into_weights(
        mut self,
        session: &mut Session,
        model: &mut Model<P>,
    ) -> Result<Splats> {
        let d_image = &mut self.gradients.as_mut().ok_or(DeviceError::NoView)?.image;
        let mut face_weights = Out::NULL;
        if self.splats.kind == Records::Triangles {
            // Their weights come from the backward pass, with zero gradients.
            d_image.zero(&session.stream)?;
            face_weights = model.faces.as_mut().map_or(Out::NULL, |faces| faces.weights.write());
        } else {
            contribution::prepare_weights(session, &mut self.splats, d_image)?;
        }
        let pixels = Pixels {
            canvas: &mut self.canvas,
            d_image,
            d_inverse_depths: None,
            d_inverse_squares: None,
            d_surface: None,
            d_median_depths: None,
            face_weights,
        };
        let view = DrawnView { camera: &self.camera, settings: &self.settings };
        splats_backward(session, &mut self.splats, &self.lists, view, pixels)?;
        Ok(self.splats)
    }
}

/// Computes the gradients of the splats, with the lists of the forward pass or with new ones by band.
fn splats_backward(
    session: &mut Session,
    splats: &mut Splats,
    lists: &Lists,
    view: DrawnView<'_>,
    mut pixels: Pixels<'_>,
) -> Result {
    match lists {
        Lists::Whole(bins) => {
            bands::backward(session, splats, bins, view, &mut pixels)?;
            rays::add_median_gradients(session, splats, bins, view.camera, &pixels)
        }
        Lists::Bands(bands) => bands.backward(session, splats, view, &mut pixels),
    }
}

impl<P: CudaPrimitive> Frame<Scored<Drawn>, P> {
    /// Computes the gradients of the splats, frees the memory of pixels, and adds the gradients of sampled terms.
    pub(crate) fn backward(
        self,
        session: &mut Session,
        model: &mut Model<P>,
        near: Option<&NearestLists<P>>,
        gradients: &mut Gradients<P>,
    ) -> Result<PendingLosses> {
        gradients.check_room(model)?;
        let (mut view, terms) = self.pixels_backward(session, model)?;
        view.observe(session, model)?;
        rays::backward(session, model, &view.camera, &mut view.splats, &mut gradients.geometry)?;
        let losses = view.regularise(session, model, near, &mut gradients.geometry, &terms)?;
        view.release_splats();
        gradients.views.push(view);
        Ok(losses)
    }

    /// Computes the gradients of the splats without observing them.
    pub(crate) fn into_view_gradients(
        self,
        session: &mut Session,
        model: &mut Model<P>,
    ) -> Result<ViewGradients> {
        Ok(self.pixels_backward(session, model)?.0)
    }

    fn pixels_backward(
        mut self,
        session: &mut Session,
        model: &mut Model<P>,
    ) -> Result<(ViewGradients, Terms)> {
        let Scores { has_inverse_depths, has_surface, .. } = self.kept;
        let drawn = self.gradients.as_ref().ok_or(DeviceError::NoView)?;
        let d_inverse_depths = drawn.inverse_depths.as_ref().filter(|_| has_inverse_depths);
        let d_surface = drawn.maps.as_ref().filter(|_| has_surface);
        if let (None, None, Some(features)) =
            (d_inverse_depths, d_surface, &mut self.splats.features)
        {
            // Without these gradients the features' are not even zeros that must be added.
            features.gradients = None;
        }
        let face_weights = match &mut model.faces {
            Some(faces) if self.settings.observe.is_some() => faces.weights.write(),
            _ => Out::NULL,
        };
        let pixels = Pixels {
            canvas: &mut self.canvas,
            d_image: &drawn.image,
            d_inverse_depths,
            d_inverse_squares: drawn.inverse_squares.as_ref(),
            d_surface,
            d_median_depths: drawn.median_depths.as_ref(),
            face_weights,
        };
        let view = DrawnView { camera: &self.camera, settings: &self.settings };
        splats_backward(session, &mut self.splats, &self.lists, view, pixels)?;
        project::backward(session, model, &mut self.splats, &self.settings)?;
        let Self { splats, camera, settings, kept: Scores { terms, depth_map, .. }, .. } = self;
        Ok((ViewGradients { splats, camera, settings, depth_map }, terms))
    }
}

impl ViewGradients {
    /// Returns the gradients of this rank's rows in a view that another rank draws.
    pub(crate) fn of_rank(splats: Splats, camera: ViewCamera, settings: DrawSettings) -> Self {
        Self { splats, camera, settings, depth_map: None }
    }

    /// Adds the gradients to the statistics of density control, if the view is observed.
    fn observe<P: CudaPrimitive>(&self, session: &Session, model: &mut Model<P>) -> Result {
        let view = DrawnView { camera: &self.camera, settings: &self.settings };
        densify::observe(session, model, &self.splats, view)
    }

    /// Adds the gradients of sampled terms to the geometry of the visible Gaussians and their neighbours.
    fn regularise<P: CudaPrimitive>(
        &mut self,
        session: &mut Session,
        model: &Model<P>,
        near: Option<&NearestLists<P>>,
        geometry: &mut Option<Block<f32>>,
        terms: &Terms,
    ) -> Result<PendingLosses> {
        if terms.active_at(At::Samples).next().is_none() {
            return Ok(PendingLosses::none());
        }
        let Self { splats, camera, depth_map, .. } = self;
        splats.make_room();
        let sampled_view = SampledView { splats, camera, depth_map: depth_map.as_ref() };
        surface::regularise(session, model, sampled_view, near, geometry, terms)
    }

    fn of_step(&self) -> StepView<'_> {
        StepView {
            splats: &self.splats,
            camera: &self.camera,
            sh_degree: self.settings.sh_degree,
            inverse_depths: self.settings.inverse_depths,
            gradients: project::window(self.settings.footprint)
                .map_or(PlaceGradients::All, |window| window.gradients),
        }
    }

    /// Frees the memory that the step does not need.
    fn release_splats(&mut self) {
        self.depth_map = None;
        self.splats.release();
    }
}

impl<P: CudaPrimitive> Gradients<P> {
    fn check_room(&self, model: &Model<P>) -> Result {
        let most = MAX_VIEWS as usize;
        if self.views.len() >= most {
            return Err(DeviceError::TooManyViews { most });
        }
        if !self.views.is_empty() && model.stored_kernels().step_views.is_none() {
            return Err(no_batches::<P>());
        }
        Ok(())
    }

    /// Observes and adds a view that has only the gradients of its splats.
    pub(crate) fn add(
        &mut self,
        session: &Session,
        model: &mut Model<P>,
        mut view: ViewGradients,
    ) -> Result {
        self.check_room(model)?;
        view.observe(session, model)?;
        view.release_splats();
        self.views.push(view);
        Ok(())
    }

    /// Moves every parameter, and writes the gradients of the geometry to `kept`. Fails without a backward pass.
    pub(crate) fn step(
        self,
        session: &mut Session,
        model: &mut Model<P>,
        kept: Option<&mut Block<f32>>,
        step: &AdamStep,
    ) -> Result {
        let views: Vec<_> = self.views.iter().map(ViewGradients::of_step).collect();
        adam::step(session, model, &views, self.geometry.as_ref(), kept, step)
    }
}

impl<P> Held for Gradients<P> {
    fn bytes(&self) -> Bytes {
        let views = self.views.iter().map(|view| {
            let depth_map = view.depth_map.as_ref().map_or(0, DepthMap::bytes);
            view.splats.gradient_bytes() + Bytes(depth_map)
        });
        views.sum::<Bytes>() + self.geometry.as_ref().map_or(Bytes::default(), Block::bytes)
    }
}

//! A drawn view: how it is compared with its photograph, and what its backward pass leaves.

use std::fmt;
use std::sync::Arc;

use super::model::Model;
use super::stage::bin::{self, Bins};
use super::stage::blend::{self, Canvas, CanvasGradient};
use super::stage::depth_map::DepthMap;
use super::stage::gradients::{Gradients, ViewGradients};
use super::stage::neighbours::NearestLists;
use super::stage::project::{self, Splat};
use super::stage::sampled_depths::{self, Sampled};
use super::stage::{densify, depth, loss, normals, surface};
use crate::abi::terms::{At, Means, Term, Terms, VALUE_DEPTH_L1, VALUE_DN, Weighted};
use crate::backend::frame_state::{Compensated, Drawn, FrameState, Fresh, Scored, Trainable};
use crate::backend::viewpoint::viewpoint;
use crate::backend::{
    DeviceError, Drawing, Held, LossValues, Objective, Pending, Rendered, check_inputs,
};
use crate::dataset::{Image, View};
use crate::math::Real;
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// A drawn view and what the backward pass needs of it.
pub struct Frame<R, S: FrameState = Drawn> {
    view: Viewpoint<R>,
    drawing: Drawing,
    splats: Vec<Splat<R>>,
    bins: Bins,
    pub(super) canvas: Canvas<R>,
    /// The colours that are compared with the photograph, where they are not the image's.
    pub(super) compensated: Option<Vec<R>>,
    /// The first Gaussian that was left out because it is broken.
    fault: Option<DeviceError>,
    kept: S::Kept<Scores<R>>,
}

/// What a comparison leaves for the backward pass.
#[derive(Debug)]
struct Scores<R> {
    terms: Terms,
    /// Gradient of the image, [height, width, 3].
    d_image: Vec<R>,
    depths: Option<depth::Compared<R>>,
    normals: Option<normals::Compared<R>>,
    /// The depths that samples are compared with.
    sampled: Option<Sampled<R>>,
}

/// Values that are there already.
#[derive(Clone, Debug)]
pub struct Ready(LossValues);

impl Pending<LossValues> for Ready {
    fn is_ready(&self) -> bool {
        true
    }

    fn read(self) -> Result<LossValues, DeviceError> {
        Ok(self.0)
    }
}

impl<R, S: FrameState> fmt::Debug for Frame<R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let splats = self.splats.len();
        f.debug_struct("Frame").field("splats", &splats).finish_non_exhaustive()
    }
}

/// Draws a view.
pub(super) fn draw<R: Real, S: Fresh>(
    model: &Model<R>,
    view: &View,
    drawing: Drawing,
) -> Frame<R, S> {
    let view = viewpoint(view, drawing.near, drawing.screen_filter);
    let (splats, fault) = project::project(model, &view, &drawing);
    let bins = bin::bin(&splats, view.size);
    let canvas = blend::forward(&splats, &bins, view.size, &drawing);
    Frame { view, drawing, splats, bins, canvas, compensated: None, fault, kept: S::nothing() }
}

impl<R: Real, S: FrameState> Frame<R, S> {
    /// The colours that are compared with the photograph, [height, width, 3].
    pub(super) fn compared(&self) -> &[R] {
        self.compensated.as_deref().unwrap_or(&self.canvas.image)
    }

    /// What was drawn.
    pub(super) fn rendered(&self) -> Rendered {
        self.canvas.rendered(self.drawing.counts)
    }

    fn with<T: FrameState>(self, kept: T::Kept<Scores<R>>) -> Frame<R, T> {
        let Self { view, drawing, splats, bins, canvas, compensated, fault, .. } = self;
        Frame { view, drawing, splats, bins, canvas, compensated, fault, kept }
    }
}

impl<R: Real> Frame<R, Drawn> {
    /// With other colours to be compared.
    pub(super) fn compensated(mut self, colors: Vec<R>) -> Frame<R, Compensated> {
        self.compensated = Some(colors);
        self.with(())
    }
}

impl<R: Real> Frame<R, Scored<Compensated>> {
    /// Has `learn` turn the gradient of the compared colours into that of those drawn.
    pub(super) fn learned(
        mut self,
        learn: impl FnOnce(&Canvas<R>, &mut Vec<R>) -> Result<(), DeviceError>,
    ) -> Result<Frame<R, Scored<Drawn>>, DeviceError> {
        learn(&self.canvas, &mut self.kept.d_image)?;
        let Self { view, drawing, splats, bins, canvas, compensated, fault, kept } = self;
        Ok(Frame { view, drawing, splats, bins, canvas, compensated, fault, kept })
    }
}

impl<R: Real, S: Trainable> Frame<R, S> {
    /// Compares it by the terms at its pixels.
    pub(super) fn scored(
        self,
        model: &Model<R>,
        objective: &Objective<'_, Arc<Image>, NearestLists>,
    ) -> Result<(Frame<R, Scored<S>>, Ready), DeviceError> {
        let &Objective { target, terms, near } = objective;
        check_inputs(terms, self.drawing.inputs(), near.is_some())?;
        if let Some(near) = near.filter(|_| terms.needs().neighbours) {
            near.check(model)?;
        }
        let (mut depths, mut normals, mut means) = (None, None, Means::default());
        let d_image = loss::loss(self.compared(), self.canvas.size, target, (terms, &mut means))?;
        for Weighted { term, weight } in terms.active() {
            match *term {
                Term::InverseDepth => depths = depth::compare(&self.canvas, target, *weight),
                Term::DepthNormal { by_opacity } => {
                    let rule = (*weight, by_opacity);
                    normals = Some(normals::compare(&self.canvas, &self.view, rule));
                }
                Term::Photometric { .. }
                | Term::Entropy
                | Term::Density
                | Term::Normal
                | Term::Sdf { .. } => {}
            }
        }
        means[VALUE_DEPTH_L1 as usize] = depths.as_ref().map_or(0.0, |depths| depths.l1);
        means[VALUE_DN as usize] = normals.as_ref().map_or(0.0, |normals| normals.mean);
        // Without a map of inverse depths their term has no value.
        let has_value =
            |weighted: &&Weighted| weighted.term != Term::InverseDepth || depths.is_some();
        let values = LossValues::of(terms.active_at(At::Pixels).filter(has_value), &means);
        let values = values.checked()?;
        let sampled = match near.filter(|_| terms.sdf_unit().is_some()) {
            Some(near) => Some(self.sampled(model, near, terms)),
            None => None,
        };
        let terms = terms.clone();
        let scores = Scores { terms, d_image, depths, normals, sampled };
        Ok((self.with(scores), Ready(values)))
    }

    /// The depths that it shows, with the gradient of comparing samples with them.
    fn sampled(&self, model: &Model<R>, near: &NearestLists, terms: &Terms) -> Sampled<R> {
        let depths = self.splats.iter().map(|splat| splat.ellipse.depth);
        let mut sampled = Sampled::new(DepthMap::new(&self.view, depths, &self.canvas.surface));
        let visible = self.splats.iter().map(|splat| splat.gaussian).collect();
        sampled.compare(model, near, visible, terms);
        sampled
    }
}

impl<R: Real> Frame<R, Scored<Drawn>> {
    /// Leaves the gradients of its splats, and those of the terms at samples.
    pub(super) fn backward(
        self,
        model: &mut Model<R>,
        near: Option<&NearestLists>,
        gradients: &mut Gradients<R>,
    ) -> Result<Ready, DeviceError> {
        let Scores { terms, d_image, depths, normals, sampled } = self.kept;
        let (d_surface, d_through) = sampled_depths::gradients(normals, sampled.as_ref());
        let d_canvas = CanvasGradient {
            image: &d_image,
            inverse_depths: depths.as_ref().map_or(&[], |depths| &depths.d_inverse_depths),
            surface: &d_surface,
            through: &d_through,
        };
        let screen = blend::backward(&self.splats, &self.bins, &self.canvas, d_canvas);
        densify::observe(model, &self.splats, &screen, (self.view.size, &self.drawing));
        gradients.views.push(ViewGradients {
            view: self.view,
            sh_degree: self.drawing.sh_degree,
            gaussian_from_splat: self.splats.iter().map(|splat| splat.gaussian).collect(),
            screen,
            depth_map: sampled.map(|sampled| sampled.map),
            fault: self.fault,
        });
        if terms.active_at(At::Samples).next().is_none() {
            return Ok(Ready(LossValues::default()));
        }
        surface::regularise(model, near, gradients, &terms).map(Ready)
    }
}

impl<R: Real, S: FrameState> Held for Frame<R, S> {
    fn bytes(&self) -> Bytes {
        let kept = S::kept(&self.kept).map_or(Bytes(0), Scores::bytes);
        Bytes::of::<Splat<R>>(self.splats.capacity())
            + kept
            + Bytes::of::<R>(self.compensated.as_ref().map_or(0, Vec::capacity))
            + self.bins.bytes()
            + self.canvas.bytes()
    }
}

impl<R: Real> Scores<R> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_image.capacity())
            + self.depths.as_ref().map_or(Bytes(0), depth::Compared::bytes)
            + self.normals.as_ref().map_or(Bytes(0), normals::Compared::bytes)
            + self.sampled.as_ref().map_or(Bytes(0), Sampled::bytes)
    }
}

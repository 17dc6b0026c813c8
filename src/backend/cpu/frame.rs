//! A drawn view, its comparison with a photograph, and its backward pass.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::model::Model;
use super::primitive::{Drawable, DrawnView, Splat, density_field};
use super::seen::Seen;
use super::stage::blend::{self, Canvas, CanvasGradient};
use super::stage::depth::{self, ComparedDepths, RayGradients, add};
use super::stage::gradients::{DepthMap, Gradients, ViewGradients};
use super::stage::loss;
use super::stage::neighbours::NearestLists;
use super::stage::normals::{self, ComparedNormals};
use super::stage::patches::{self, PatchPair};
use super::stage::rays::{self, MedianGradient};
use super::stage::surface::{self, Sampled};
use crate::abi::terms::{
    At, Means, Term, Terms, VALUE_DEPTH_L1, VALUE_DN, VALUE_MULTI_VIEW, VALUE_NORMAL_MAP, Weighted,
};
use crate::backend::settings::MEDIAN_GRADIENTS;
use crate::backend::{
    Capability, Compensated, DeviceError, DrawSettings, Drawn, DrawnDepths, Footprint, FrameState,
    Fresh, Held, Inputs, LossValues, MaskedView, Objective, Pending, Rendered, Scored, Trainable,
    check_inputs,
};
use crate::dataset::{Image, View};
use crate::math::blend::ScreenGradient;
use crate::math::field::GEOMETRY;
use crate::math::{Divisor, Real};
use crate::memory::Bytes;
use crate::model::Gaussians;

/// A drawn view and the inputs of its backward pass.
pub struct Frame<R, S: FrameState = Drawn, P = Gaussians> {
    view: DrawnView<R>,
    drawing: DrawSettings,
    seen: Seen<R>,
    pub(super) canvas: Canvas<R>,
    /// Colours that are compared with the photograph, if not those of the image.
    pub(super) compensated: Option<Vec<R>>,
    kept: S::Kept<Scores<R>>,
    primitive: PhantomData<P>,
}

/// A compared frame and the values of its terms.
type ScoredFrame<R, S, P> = (Frame<R, Scored<S>, P>, Ready);

/// Inputs of the backward pass that the comparison produces.
#[derive(Debug)]
struct Scores<R> {
    terms: Terms,
    /// Gradient of the image, `[height, width, 3]`.
    d_image: Vec<R>,
    /// Comparisons of the maps beside the image.
    maps: ComparedMaps<R>,
}

/// Loss values that are already available.
#[derive(Clone, Debug, Default)]
pub struct Ready(LossValues);

impl Pending<LossValues> for Ready {
    fn is_ready(&self) -> bool {
        true
    }

    fn read(self) -> Result<LossValues, DeviceError> {
        Ok(self.0)
    }
}

impl<R, S: FrameState, P> fmt::Debug for Frame<R, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let splats = self.seen.splats.len();
        f.debug_struct("Frame").field("splats", &splats).finish_non_exhaustive()
    }
}

fn mean_of<R>(compared: Option<&ComparedDepths<R>>) -> f64 {
    compared.map_or(0.0, |compared| compared.mean)
}

pub(super) fn draw<R: Real, S: Fresh, P: Drawable>(
    model: &Model<R, P>,
    view: &View,
    drawing: DrawSettings,
) -> Result<Frame<R, S, P>, DeviceError> {
    drawing.check_footprint()?;
    if drawing.surface || drawing.median {
        density_field(model, Capability::Surfaces)?;
    }
    if drawing.median && drawing.trains {
        drawing.footprint.require_volumes(MEDIAN_GRADIENTS)?;
    }
    let viewpoint = drawing.viewpoint(view);
    let view = DrawnView::new(viewpoint, &drawing);
    let mut frame = Frame::blended(view, drawing, Seen::of(model, &view)?);
    if drawing.median && drawing.footprint != Footprint::Surfel {
        let field = density_field(model, Capability::Surfaces)?;
        let rays = rays::rays(field, &viewpoint, &frame.seen.splats);
        frame.canvas.median_depths = rays::median_depths(&rays, &frame.seen.bins, &viewpoint);
    }
    Ok(frame)
}

/// Draws a view from splats that were projected before. Supports ellipses and surfels. The rows may belong to another
/// rank's model, so maps that need their shapes are not available.
pub(super) fn draw_splats<R: Real, S: Fresh, P: Drawable>(
    view: &View,
    drawing: DrawSettings,
    splats: Vec<Splat<R>>,
) -> Result<Frame<R, S, P>, DeviceError> {
    drawing.check_footprint()?;
    drawing.footprint.require_gaussians("views drawn by several ranks")?;
    if drawing.median && drawing.footprint != Footprint::Surfel {
        let what = "median depths where several ranks draw them";
        return Err(DeviceError::Unsupported { primitives: P::SCHEMA.many(), what });
    }
    let viewpoint = drawing.viewpoint(view);
    let seen = Seen::of_splats(splats, viewpoint.size);
    Ok(Frame::blended(DrawnView::new(viewpoint, &drawing), drawing, seen))
}

impl<R: Real, S: Fresh, P> Frame<R, S, P> {
    fn blended(view: DrawnView<R>, drawing: DrawSettings, seen: Seen<R>) -> Self {
        let canvas = seen.blended(view.viewpoint.size, &drawing);
        let (compensated, kept, primitive) = (None, S::nothing(), PhantomData);
        Self { view, drawing, seen, canvas, compensated, kept, primitive }
    }
}

impl<R: Real, S: FrameState, P> Frame<R, S, P> {
    /// Returns the colours that are compared with the photograph, `[height, width, 3]`.
    pub(super) fn compared(&self) -> &[R] {
        self.compensated.as_deref().unwrap_or(&self.canvas.image)
    }

    pub(super) fn rendered(&self) -> Rendered {
        self.canvas.rendered(self.drawing.counts)
    }

    /// Returns the drawn depths. `seen` must be the view that this frame shows.
    pub(super) fn depths(&self, seen: MaskedView<'_>) -> Result<DrawnDepths, DeviceError> {
        let rendered = self.rendered();
        if rendered.median_depths.is_none() || rendered.surface.is_none() {
            return Err(DeviceError::NoMedianDepths);
        }
        Ok(DrawnDepths::new(seen, &rendered))
    }

    /// Converts the frame to another state.
    fn with<T: FrameState>(
        self,
        convert: impl FnOnce(S::Kept<Scores<R>>) -> T::Kept<Scores<R>>,
    ) -> Frame<R, T, P> {
        let Self { view, drawing, seen, canvas, compensated, kept, primitive } = self;
        Frame { view, drawing, seen, canvas, compensated, kept: convert(kept), primitive }
    }
}

impl<R: Real, P: Drawable> Frame<R, Drawn, P> {
    /// Adds the blend weights of the splats to those of earlier views.
    pub(super) fn weigh(mut self, model: &mut Model<R, P>) -> Result<(), DeviceError> {
        self.seen.fault.take().map_or(Ok(()), Err)?;
        if matches!(self.drawing.footprint, Footprint::Triangle(_)) {
            // The backward pass finds the weights of triangles even if all gradients are zero.
            let d_image = vec![R::ZERO; self.canvas.image.len()];
            let d_canvas = CanvasGradient::of_image(&d_image);
            let Self { view, drawing, seen, canvas, .. } = &self;
            return seen.blended_bwd(model, view, drawing, canvas, d_canvas).map(drop);
        }
        let (splats, weights) = self.into_weights();
        for (splat, weight) in splats.iter().zip(weights) {
            model.gradient_norm_sums[splat.row] += weight;
        }
        Ok(())
    }
}

impl<R: Real, P> Frame<R, Drawn, P> {
    /// Returns the splats and the blend weight of each, summed over the pixels.
    ///
    /// A pixel's colour is the sum of the splats' colours times their weights. A splat's summed weight is therefore
    /// the gradient of its colour if the gradient of every pixel is 1.
    pub(super) fn into_weights(self) -> (Vec<Splat<R>>, Vec<R>) {
        let d_image = vec![R::ONE; self.canvas.image.len()];
        let d_canvas = CanvasGradient::of_image(&d_image);
        let Seen { splats, bins, .. } = self.seen;
        let screen = blend::backward(&splats, &bins, &self.canvas, d_canvas);
        (splats, screen.into_iter().map(|gradient| gradient.d_color[0]).collect())
    }

    /// Sets the colours to compare.
    pub(super) fn compensated(mut self, colors: Vec<R>) -> Frame<R, Compensated, P> {
        self.compensated = Some(colors);
        self.with(|()| ())
    }
}

impl<R: Real, P> Frame<R, Scored<Compensated>, P> {
    /// Replaces the gradient of the compared colours by that of the drawn colours, computed by `learn`.
    pub(super) fn learned(
        mut self,
        learn: impl FnOnce(&Canvas<R>, &mut Vec<R>) -> Result<(), DeviceError>,
    ) -> Result<Frame<R, Scored<Drawn>, P>, DeviceError> {
        learn(&self.canvas, &mut self.kept.d_image)?;
        Ok(self.with(|scores| scores))
    }
}

impl<R: Real, S: Trainable, P: Drawable> Frame<R, S, P> {
    /// Evaluates the terms at pixels.
    pub(super) fn scored(
        self,
        model: &Model<R, P>,
        objective: &Objective<'_, Arc<Image>, NearestLists<P>>,
    ) -> Result<ScoredFrame<R, S, P>, DeviceError> {
        let &Objective { target, terms, near, other } = objective;
        let shrunk = match self.drawing.divisor {
            Divisor::One => None,
            divisor => Some(loss::shrunk(target, divisor)),
        };
        let target = shrunk.as_ref().unwrap_or(target);
        let given = Inputs { other_view: other.is_some(), ..self.drawing.inputs() };
        check_inputs(terms, given, near.is_some())?;
        if terms.active_at(At::Samples).next().is_some() {
            self.drawing.footprint.require_volumes(Capability::Surfaces.words())?;
            density_field(model, Capability::Surfaces)?;
        }
        if let Some(near) = near.filter(|_| terms.needs().neighbours) {
            near.check(model)?;
        }
        let (mut maps, mut means) = (ComparedMaps::default(), Means::default());
        let shown = (self.compared(), self.drawing.background);
        let d_image = loss::loss(shown, self.canvas.size, target, terms, &mut means)?;
        for Weighted { term, weight } in terms.active() {
            match *term {
                Term::InverseDepth => {
                    maps.depths = depth::compare(&self.canvas, target, *weight);
                    means[VALUE_DEPTH_L1 as usize] = mean_of(maps.depths.as_ref());
                }
                Term::NormalMap => {
                    let (canvas, viewpoint) = (&self.canvas, &self.view.viewpoint);
                    maps.normal_map = normals::compare_with_map(canvas, viewpoint, target, *weight);
                    means[VALUE_NORMAL_MAP as usize] = mean_of(maps.normal_map.as_ref());
                }
                Term::DepthNormal { depths } => {
                    let (canvas, viewpoint) = (&self.canvas, &self.view.viewpoint);
                    let normals = normals::compare(canvas, viewpoint, target, depths, *weight);
                    means[VALUE_DN as usize] = normals.mean;
                    maps.normals = Some(normals);
                }
                // Terms of colours, rays and several views, and terms at samples.
                _ => {}
            }
        }
        maps.rays = depth::score_rays(&self.canvas, target.mask.as_deref(), terms, &mut means);
        let weight = terms.weight(VALUE_MULTI_VIEW);
        if let Some(other) = other.filter(|_| weight != 0.0) {
            let pair =
                PatchPair { canvas: &self.canvas, view: &self.view.viewpoint, target, other };
            let gradients = maps.normals.get_or_insert_with(ComparedNormals::none);
            means[VALUE_MULTI_VIEW as usize] = patches::add(pair, weight, gradients);
        }
        // A term without a map of its photograph has no value.
        let has_value = |weighted: &&Weighted| match weighted.term {
            Term::InverseDepth => maps.depths.is_some(),
            Term::NormalMap => maps.normal_map.is_some(),
            _ => true,
        };
        let values = LossValues::of(terms.active_at(At::Pixels).filter(has_value), &means);
        let values = values.checked()?;
        if let Some(near) = near.filter(|_| terms.sdf_unit().is_some()) {
            maps.sampled = Some(self.sampled(model, near, terms)?);
        }
        let scores = Scores { terms: terms.clone(), d_image, maps };
        Ok((self.with(|_| scores), Ready(values)))
    }

    /// Returns the drawn depth map and the gradients of comparing samples with it.
    fn sampled(
        &self,
        model: &Model<R, P>,
        near: &NearestLists<P>,
        terms: &Terms,
    ) -> Result<Sampled<R>, DeviceError> {
        let depths = self.seen.splats.iter().map(|splat| splat.ellipse.depth);
        let map = DepthMap::new(&self.view.viewpoint, depths, &self.canvas.surface);
        let mut sampled = Sampled::new(map);
        let visible = self.seen.splats.iter().map(|splat| splat.row).collect();
        sampled.compare(model, near, visible, terms)?;
        Ok(sampled)
    }
}

impl<R: Real, P: Drawable> Frame<R, Scored<Drawn>, P> {
    /// Adds the gradients of the median depths to those of the geometry.
    fn add_medians(
        &self,
        model: &Model<R, P>,
        gradients: &mut Gradients<R, P>,
    ) -> Result<(), DeviceError> {
        let normals = self.kept.maps.normals.as_ref();
        let d_depths = normals.map_or(&[][..], |normals| &normals.d_medians);
        if d_depths.is_empty() {
            return Ok(());
        }
        let (field, viewpoint) =
            (density_field(model, Capability::Surfaces)?, &self.view.viewpoint);
        let Seen { splats, bins, .. } = &self.seen;
        let rays = rays::rays(field, viewpoint, splats);
        let medians = MedianGradient { depths: &self.canvas.median_depths, d_depths };
        let d_rays = rays::median_bwd(&rays, bins, viewpoint, medians);
        gradients.geometry.resize(model.len() * GEOMETRY, R::ZERO);
        let d_geometry = gradients.geometry.as_chunks_mut().0;
        rays::backward(field, viewpoint, splats, &d_rays, d_geometry);
        Ok(())
    }

    /// Computes the gradients of the splats and of the terms at samples.
    pub(super) fn backward(
        self,
        model: &mut Model<R, P>,
        near: Option<&NearestLists<P>>,
        gradients: &mut Gradients<R, P>,
    ) -> Result<Ready, DeviceError> {
        self.add_medians(model, gradients)?;
        let Scores { terms, d_image, maps } = self.kept;
        let (of_maps, depth_map) = maps.into_gradients();
        let d_canvas = of_maps.with_image(&d_image);
        let Self { view, drawing, seen, canvas, .. } = self;
        let (row_from_splat, screen) =
            seen.blended_bwd(model, &view, &drawing, &canvas, d_canvas)?;
        let fault = seen.fault;
        gradients.views.push(ViewGradients { view, row_from_splat, screen, depth_map, fault });
        if terms.active_at(At::Samples).next().is_none() {
            return Ok(Ready(LossValues::default()));
        }
        surface::regularise(model, near, gradients, &terms).map(Ready)
    }
}

impl<R: Real, P> Frame<R, Scored<Drawn>, P> {
    /// Returns the splats and their screen-space gradients by the terms at pixels.
    pub(super) fn into_screen_gradients(self) -> (Vec<Splat<R>>, Vec<ScreenGradient<R>>) {
        let Scores { d_image, maps, .. } = self.kept;
        let (of_maps, _) = maps.into_gradients();
        let d_canvas = of_maps.with_image(&d_image);
        let Seen { splats, bins, .. } = self.seen;
        let screen = blend::backward(&splats, &bins, &self.canvas, d_canvas);
        (splats, screen)
    }
}

impl<R: Real, S: FrameState, P> Held for Frame<R, S, P> {
    fn bytes(&self) -> Bytes {
        let kept = S::kept(&self.kept).map_or(Bytes(0), Scores::bytes);
        kept + self.seen.bytes()
            + Bytes::of::<R>(self.compensated.as_ref().map_or(0, Vec::capacity))
            + self.canvas.bytes()
    }
}

impl<R: Real> Scores<R> {
    fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_image.capacity()) + self.maps.bytes()
    }
}

// Gradients of the maps beside a frame's colours, summed over the comparisons.

/// Comparisons of a frame's maps; `None` for terms that are off.
#[derive(Debug, Default)]
pub(crate) struct ComparedMaps<R> {
    pub(crate) depths: Option<ComparedDepths<R>>,
    /// Comparison of the normals of the inverse depths.
    pub(crate) normal_map: Option<ComparedDepths<R>>,
    pub(crate) normals: Option<ComparedNormals<R>>,
    /// Gradients of the terms that need no map of the photograph.
    pub(crate) rays: RayGradients<R>,
    /// Depths that samples are compared with.
    pub(crate) sampled: Option<Sampled<R>>,
}

/// Gradients of a frame's maps; empty if no term gives any.
#[derive(Debug, Default)]
pub(crate) struct MapGradients<R> {
    /// [height, width]
    pub(crate) inverse_depths: Vec<R>,
    /// [height, width]
    pub(crate) inverse_squares: Vec<R>,
    /// Gradient of depth and of x and y of the normal, `[height, width, 3]`.
    pub(crate) surface: Vec<R>,
    /// Gradient of the final transmittance, `[height, width]`.
    pub(crate) through: Vec<R>,
}

impl<R> MapGradients<R> {
    /// Combines these with the gradient of the image.
    pub(crate) fn with_image<'a>(&'a self, image: &'a [R]) -> CanvasGradient<'a, R> {
        let Self { inverse_depths, inverse_squares, surface, through } = self;
        CanvasGradient { image, inverse_depths, inverse_squares, surface, through }
    }
}

impl<R: Real> ComparedMaps<R> {
    /// Returns the summed gradients, and the depths that samples are compared with.
    pub(crate) fn into_gradients(self) -> (MapGradients<R>, Option<DepthMap<R>>) {
        let Self { depths, normal_map, normals, rays, sampled } = self;
        let mut sum = MapGradients::default();
        for compared in [depths, normal_map].into_iter().flatten() {
            add(&mut sum.inverse_depths, compared.d_inverse_depths);
        }
        if let Some(normals) = normals {
            (sum.surface, sum.through) = (normals.d_surface, normals.d_through);
        }
        add(&mut sum.inverse_depths, rays.d_inverse_depths);
        sum.inverse_squares = rays.d_inverse_squares;
        if !rays.d_through.is_empty() {
            add(&mut sum.through, rays.d_through);
            // The gradient of the transmittance requires that of the surface.
            sum.surface.resize(sum.through.len() * 3, R::ZERO);
        }
        if let Some(sampled) = &sampled {
            sampled.add_to(&mut sum.surface, &mut sum.through);
        }
        (sum, sampled.map(|sampled| sampled.map))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let compared = [&self.depths, &self.normal_map].into_iter().flatten();
        compared.map(ComparedDepths::bytes).sum::<Bytes>()
            + self.normals.as_ref().map_or(Bytes(0), ComparedNormals::bytes)
            + self.rays.bytes()
            + self.sampled.as_ref().map_or(Bytes(0), Sampled::bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_several_terms_add_up() {
        let depths = || ComparedDepths { mean: 0.0, d_inverse_depths: vec![1.0, 2.0] };
        let mapped = ComparedDepths { mean: 0.0, d_inverse_depths: vec![0.25, 4.0] };
        let normals = || ComparedNormals {
            d_surface: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            d_through: vec![7.0, 8.0],
            ..ComparedNormals::none()
        };
        let rays = || RayGradients {
            d_inverse_depths: vec![0.5, 0.25],
            d_inverse_squares: vec![9.0, 10.0],
            d_through: vec![0.125, 0.75],
        };
        let all = ComparedMaps {
            depths: Some(depths()),
            normal_map: Some(mapped),
            normals: Some(normals()),
            rays: rays(),
            ..ComparedMaps::<f64>::default()
        };
        let (sum, _) = all.into_gradients();
        assert_eq!(sum.inverse_depths, [1.75, 6.25]);
        assert_eq!(sum.inverse_squares, [9.0, 10.0]);
        assert_eq!(sum.surface, normals().d_surface);
        assert_eq!(sum.through, [7.125, 8.75]);
        let alone = ComparedMaps { rays: rays(), ..ComparedMaps::default() };
        let (sum, _) = alone.into_gradients();
        assert_eq!((sum.inverse_depths, sum.through), (vec![0.5, 0.25], vec![0.125, 0.75]));
        assert_eq!(sum.surface, [0.0; 6]);
        let without = ComparedMaps { depths: Some(depths()), ..ComparedMaps::<f64>::default() };
        let (sum, _) = without.into_gradients();
        assert_eq!(sum.inverse_depths, depths().d_inverse_depths);
        assert!(sum.inverse_squares.is_empty() && sum.surface.is_empty() && sum.through.is_empty());
    }
}

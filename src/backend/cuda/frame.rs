//! The frame: what is known of one drawn view, and the gradients that come of it.

use super::device::timers::Stage;
use super::memory::heap::{Block, Buffer};
use super::model::tables::Model;
use super::photos::Target;
use super::session::Session;
use super::stage::adam::{self, StepView};
use super::stage::appearance::{self, ColorScratch, ColorTables};
use super::stage::bands::{self, Lists};
use super::stage::bin;
use super::stage::blend::{self, Canvas, KeptState, Pixels};
use super::stage::loss;
use super::stage::losses::PendingLosses;
use super::stage::lpips::{self, LpipsModel};
use super::stage::neighbours::NearestLists;
use super::stage::normals;
use super::stage::project::{self, Splats};
use super::stage::sampled_depths::DepthMap;
use super::stage::surface::{self, SampledView};
use super::stage::{densify, depth};
use crate::abi::terms::{At, Term, Terms, VALUE_DEPTH_L1, Weighted};
use crate::abi::{Camera, MAX_VIEWS};
use crate::backend::frame_state::{
    Compensated, Drawn, FrameState, Fresh, Scored, Shown, Trainable,
};
use crate::backend::{
    AdamStep, DeviceError, Drawing, Held, Measured, Objective, Rendered, TableStep, check_inputs,
};
use crate::dataset::View;
use crate::memory::Bytes;
use crate::memory::plan::{Coarse, ViewSize};

/// A drawn view and what the backward pass needs of it.
pub struct Frame<S: FrameState = Drawn> {
    /// Of a frame that is trained on.
    d_image: Option<Block<f32>>,
    d_inverse_depths: Option<Block<f32>>,
    /// Of the surface's maps, [height, width, 4], where they are drawn.
    d_surface: Option<Block<f32>>,
    kept: S::Kept<Scores>,
    /// Room for other colours than those drawn.
    colors: Option<ColorScratch>,
    pub(super) canvas: Canvas,
    pub(super) lists: Lists,
    pub(super) splats: Splats,
    pub(super) camera: Camera,
    settings: Drawing,
}

/// What a comparison leaves for the backward pass.
pub(super) struct Scores {
    terms: Terms,
    /// Whether the gradient of the inverse depths was found: the photograph has a map of them.
    has_inverse_depths: bool,
    /// Whether that of the surface's maps was.
    has_surface: bool,
    /// The depths that samples are compared with.
    depth_map: Option<DepthMap>,
}

/// The screen-space gradients of views, and what terms at samples add to them.
#[derive(Default)]
pub struct Gradients {
    views: Vec<ViewGradients>,
    /// What is added to the gradients of all Gaussians' geometry, [n, 12], where a term at samples is
    /// on.
    geometry: Option<Block<f32>>,
}

/// The screen-space gradients of one view.
struct ViewGradients {
    splats: Splats,
    camera: Camera,
    settings: Drawing,
    /// Its depths, where samples were compared with them.
    depth_map: Option<DepthMap>,
}

/// Draws a view, in bands where the session says so.
pub(super) fn draw<S: Fresh>(
    session: &mut Session,
    model: &Model,
    view: &View,
    settings: &Drawing,
) -> Result<Frame<S>, DeviceError> {
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    if settings.surface {
        normals::add_features(session, model, (&camera, settings.trains), &mut splats)?;
    }
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let mut canvas = Canvas::reserve(&session.heap, &camera, settings)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let d_image = settings
        .trains
        .then(|| session.heap.scratch("gradient of the image", canvas.image.len()))
        .transpose()?;
    let d_inverse_depths = match (&d_image, &canvas.inverse_depths) {
        (Some(_), Some(depths)) => {
            Some(session.heap.scratch("gradient of inverse depths", depths.len())?)
        }
        _ => None,
    };
    let d_surface = match (&d_image, &canvas.surface) {
        (Some(_), Some(surface)) => {
            Some(session.heap.scratch("gradient of surface maps", surface.len())?)
        }
        _ => None,
    };
    let reserve = |room| ColorScratch::reserve(&session.heap, &camera, room);
    let colors = settings.colors.map(reserve).transpose()?;
    let sorted = (&mut splats, front_to_back);
    let lists = bands::draw(session, sorted, (&camera, settings), &mut canvas)?;
    Ok(Frame {
        d_image,
        d_inverse_depths,
        d_surface,
        kept: S::nothing(),
        colors,
        canvas,
        lists,
        splats,
        camera,
        settings: *settings,
    })
}

impl Frame<Drawn> {
    /// Fills the colours that are compared: those drawn, as the camera of a training view changed them.
    pub(super) fn compensate(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Compensated>, DeviceError> {
        let colors = self.colors.as_mut().ok_or(DeviceError::NoRoomForColors)?;
        let drawn = (&self.canvas.image, &self.camera, colors);
        appearance::compensate(session, tables, drawn, step)?;
        Ok(self.with(()))
    }
}

impl Frame<Shown> {
    /// Has it measured by its colours as they fit the photograph best.
    pub(super) fn correct(
        mut self,
        session: &Session,
        target: &Target,
    ) -> Result<Self, DeviceError> {
        let colors = self.colors.as_mut().ok_or(DeviceError::NoRoomForColors)?;
        appearance::correct(session, (&self.canvas.image, &self.camera, colors), target)?;
        Ok(self)
    }

    pub(super) fn perceive(
        &self,
        session: &Session,
        net: &LpipsModel,
        target: &Target,
    ) -> Result<f64, DeviceError> {
        lpips::perceive(session, net, (&self.canvas.image, &self.camera), target)
    }
}

impl<S: Trainable> Frame<S> {
    /// Compares it by the terms at its pixels, in a fixed order, but for the depths that samples are
    /// compared with.
    pub(super) fn scored(
        mut self,
        session: &mut Session,
        model: &Model,
        objective: &Objective<'_, Target, NearestLists>,
    ) -> Result<(Frame<Scored<S>>, PendingLosses), DeviceError> {
        let &Objective { target, terms, near } = objective;
        check_inputs(terms, self.settings.inputs(), near.is_some())?;
        if let Some(near) = near.filter(|_| terms.needs().neighbours) {
            near.check(model)?;
        }
        session.status.clear_sums(&session.stream)?;
        let has_inverse_depths = self.compare_depths(session, target, terms)?;
        let d_image = self.d_image.as_mut().ok_or(DeviceError::NoView)?;
        let compared = self.colors.as_ref().and_then(ColorScratch::image);
        let image = (compared.unwrap_or(&self.canvas.image), &self.camera);
        loss::loss(session, image, target, terms, d_image)?;
        let has_surface = self.compare_normals(session, terms)?;
        let report = session.status.report(&session.heap, &session.stream)?;
        let has_value =
            |weighted: &&Weighted| weighted.term != Term::InverseDepth || has_inverse_depths;
        let active = terms.active_at(At::Pixels).filter(has_value).copied().collect();
        let pending = PendingLosses::of_pixels(report, active, self.camera.size);
        let scores =
            Scores { terms: terms.clone(), has_inverse_depths, has_surface, depth_map: None };
        Ok((self.with(scores), pending))
    }

    /// Whether the photograph has a map to compare the inverse depths with.
    fn compare_depths(
        &mut self,
        session: &mut Session,
        target: &Target,
        terms: &Terms,
    ) -> Result<bool, DeviceError> {
        let weight = terms.weight(VALUE_DEPTH_L1);
        match (&self.canvas.inverse_depths, &mut self.d_inverse_depths) {
            (Some(depths), Some(d_depths)) if weight != 0.0 => {
                depth::compare(session, (depths, &self.camera), target, (weight, d_depths))
            }
            _ => Ok(false),
        }
    }

    /// Whether a term compares the drawn normals.
    fn compare_normals(
        &mut self,
        session: &mut Session,
        terms: &Terms,
    ) -> Result<bool, DeviceError> {
        let rule = terms.active().find_map(|weighted| match weighted.term {
            Term::DepthNormal { by_opacity } => Some((weighted.weight, by_opacity)),
            _ => None,
        });
        match (rule, &self.canvas.surface, &mut self.d_surface) {
            (Some(rule), Some(surface), Some(d_surface)) => {
                normals::compare(session, (surface, &self.camera), rule, d_surface)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

impl<S: Trainable> Frame<Scored<S>> {
    /// Adds the gradient of the depths that samples are compared with, where a term does that. Where
    /// memory is refused nothing was added.
    pub(super) fn compare_sampled_depths(
        &mut self,
        session: &Session,
        model: &Model,
        near: &NearestLists,
    ) -> Result<(), DeviceError> {
        let scores = &mut self.kept;
        let (Some(surface), Some(d_surface)) = (&self.canvas.surface, &mut self.d_surface) else {
            return Ok(());
        };
        let begun = session.timers.begin(Stage::Loss, &session.stream)?;
        if !scores.has_surface {
            d_surface.zero(&session.stream)?;
        }
        let map = match &scores.depth_map {
            Some(map) => map,
            None => scores.depth_map.insert(DepthMap::new(session, &self.splats, surface)?),
        };
        let shown = (&self.splats, &self.camera, map);
        surface::compare_depths(session, model, shown, (near, &scores.terms), d_surface)?;
        scores.has_surface = true;
        session.timers.end(&begun, &session.stream)
    }
}

impl Frame<Scored<Compensated>> {
    /// Moves the view's table, and turns the gradient of the colours that were compared into that of
    /// those drawn.
    pub(super) fn learn(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>>, DeviceError> {
        let (Some(d_image), Some(colors)) = (&mut self.d_image, &mut self.colors) else {
            return Err(DeviceError::NoRoomForColors);
        };
        let drawn = (&self.canvas.image, &self.camera, colors, d_image);
        appearance::learn(session, tables, drawn, step)?;
        let Self { d_image, d_inverse_depths, d_surface, kept, colors, .. } = self;
        let Self { canvas, lists, splats, camera, settings, .. } = self;
        Ok(Frame {
            d_image,
            d_inverse_depths,
            d_surface,
            kept,
            colors,
            canvas,
            lists,
            splats,
            camera,
            settings,
        })
    }
}

impl Frame<Scored<Drawn>> {
    /// Leaves the gradients of the splats, gives back what belongs to pixels, and adds those of the
    /// terms at samples.
    pub(super) fn backward(
        self,
        session: &mut Session,
        model: &mut Model,
        near: Option<&NearestLists>,
        gradients: &mut Gradients,
    ) -> Result<PendingLosses, DeviceError> {
        let most = MAX_VIEWS as usize;
        if gradients.views.len() >= most {
            return Err(DeviceError::TooManyViews { most });
        }
        gradients.settle_views(session)?;
        let in_batch = self.settings.in_batch;
        let (mut view, terms) = self.pixels_backward(session, model)?;
        let losses = view.regularise(session, model, near, (&mut gradients.geometry, &terms))?;
        if in_batch || !gradients.views.is_empty() {
            view.settle(session)?;
        }
        gradients.views.push(view);
        Ok(losses)
    }

    /// Leaves the gradients of the splats.
    fn pixels_backward(
        mut self,
        session: &mut Session,
        model: &mut Model,
    ) -> Result<(ViewGradients, Terms), DeviceError> {
        let Scores { has_inverse_depths, has_surface, .. } = self.kept;
        let d_image = self.d_image.as_ref().ok_or(DeviceError::NoView)?;
        let d_inverse_depths = self.d_inverse_depths.as_ref().filter(|_| has_inverse_depths);
        let d_surface = self.d_surface.as_ref().filter(|_| has_surface);
        if let (None, None, Some(features)) =
            (d_inverse_depths, d_surface, &mut self.splats.features)
        {
            // Nothing will come of them: not even zeros need be added up.
            features.gradients = None;
        }
        let mut pixels = Pixels { canvas: &mut self.canvas, d_image, d_inverse_depths, d_surface };
        let view = (&self.camera, &self.settings);
        match &self.lists {
            Lists::Whole(bins) => {
                blend::backward(session, (&mut self.splats, bins), view, &mut pixels)?;
            }
            Lists::Bands(bands) => bands.backward(session, &mut self.splats, view, &mut pixels)?,
        }
        densify::observe(session, model, &self.splats, (&self.camera, &self.settings))?;
        let Self { splats, camera, settings, kept: Scores { terms, depth_map, .. }, .. } = self;
        Ok((ViewGradients { splats, camera, settings, depth_map }, terms))
    }
}

impl<S: FrameState> Frame<S> {
    /// The colours that are compared with the photograph.
    fn compared(&self) -> &Block<f32> {
        let changed = self.colors.as_ref().and_then(ColorScratch::image);
        changed.unwrap_or(&self.canvas.image)
    }

    pub(super) fn measure(
        &self,
        session: &mut Session,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        loss::measure(session, (self.compared(), &self.camera), target)
    }

    fn with<T: FrameState>(self, kept: T::Kept<Scores>) -> Frame<T> {
        let Self { d_image, d_inverse_depths, d_surface, colors, .. } = self;
        let Self { canvas, lists, splats, camera, settings, .. } = self;
        Frame {
            d_image,
            d_inverse_depths,
            d_surface,
            kept,
            colors,
            canvas,
            lists,
            splats,
            camera,
            settings,
        }
    }

    /// Waits for the device.
    pub(super) fn image(&self, session: &Session) -> Result<Rendered, DeviceError> {
        let mut rgb = vec![0.0; self.canvas.image.len()];
        self.canvas.image.download(&session.stream, 0, &mut rgb)?;
        let blended = match &self.canvas.blended {
            None => None,
            Some(counts) => {
                let mut host = vec![0; counts.len()];
                counts.download(&session.stream, 0, &mut host)?;
                Some(host)
            }
        };
        let inverse_depths = match &self.canvas.inverse_depths {
            None => None,
            Some(depths) => {
                let mut host = vec![0.0; depths.len()];
                depths.download(&session.stream, 0, &mut host)?;
                Some(host)
            }
        };
        let surface = match &self.canvas.surface {
            None => None,
            Some(surface) => {
                let mut host = vec![0.0; surface.len()];
                surface.download(&session.stream, 0, &mut host)?;
                Some(host)
            }
        };
        let [width, height] = self.camera.size;
        Ok(Rendered { width, height, rgb, blended, inverse_depths, surface })
    }

    /// Whether its lists did not fit the memory left, so that it is drawn in bands.
    pub fn is_in_bands(&self) -> bool {
        matches!(self.lists, Lists::Bands(_))
    }

    /// In how many bands the image was drawn. The backward pass, which needs more memory, may take
    /// more of them.
    pub fn bands(&self) -> u32 {
        self.lists.bands()
    }

    /// Bytes of scratch that it takes to train on the view if its lists come in so many parts.
    pub(super) fn scratch_in_parts(&self, parts: u64) -> Bytes {
        let keeps = match (&self.d_surface, &self.d_inverse_depths) {
            (Some(_), _) => KeptState::ColoursAndSurface,
            (None, Some(_)) => KeptState::ColoursAndDepths,
            (None, None) => KeptState::Colours,
        };
        let compensated = self.colors.as_ref().map_or(Bytes::default(), ColorScratch::bytes);
        let lists = bands::lists_bytes(&self.camera, self.splats.instances, keeps);
        self.splats.bytes()
            + self.splats.gradient_bytes()
            + self.canvas.image.bytes()
            + self.canvas.bytes_beside()
            + self.gradients_of_pixels()
            + compensated
            + bands::sorted_bytes(self.splats.visible)
            + Bytes(lists.0 / parts.max(1))
    }

    /// Bytes of scratch that it would take to train on the view in the coarse stage, at once or in bands
    /// where these may take less.
    pub(super) fn scratch_in_coarse(
        &self,
        coarse: &Coarse,
        gaussians: usize,
        in_bands: bool,
    ) -> Bytes {
        let (visible, instances) = (self.splats.visible as u64, self.splats.instances);
        let view = ViewSize { px: self.camera.size, visible, instances };
        let of = |in_bands| {
            coarse.scratch(gaussians as u64, &view, (in_bands, self.d_inverse_depths.is_some()))
        };
        let compensated = self.colors.as_ref().map_or(Bytes::default(), ColorScratch::bytes);
        let at_once = of(false);
        compensated + if in_bands { at_once.min(of(true)) } else { at_once }
    }

    /// Bytes of the gradients of the image and of what is drawn beside it.
    fn gradients_of_pixels(&self) -> Bytes {
        let all = [&self.d_image, &self.d_inverse_depths, &self.d_surface].into_iter().flatten();
        all.map(Block::bytes).sum()
    }
}

impl<S: FrameState> Held for Frame<S> {
    fn bytes(&self) -> Bytes {
        let compensated = self.colors.as_ref().map_or(Bytes::default(), ColorScratch::bytes);
        let lists = self.lists.bytes();
        let beside = self.gradients_of_pixels() + compensated;
        let depth_map = S::kept(&self.kept).and_then(|scores| scores.depth_map.as_ref());
        let depth_map = depth_map.map_or(Bytes::default(), DepthMap::bytes);
        self.canvas.bytes() + lists + self.splats.bytes() + beside + depth_map
    }
}

impl ViewGradients {
    /// Adds the gradients of the terms at samples to those of the geometry of the Gaussians that the
    /// view sees and of their neighbours.
    fn regularise(
        &mut self,
        session: &mut Session,
        model: &Model,
        near: Option<&NearestLists>,
        (geometry, terms): (&mut Option<Block<f32>>, &Terms),
    ) -> Result<PendingLosses, DeviceError> {
        if terms.active_at(At::Samples).next().is_none() {
            return Ok(PendingLosses::none());
        }
        let Self { splats, camera, depth_map, .. } = self;
        splats.make_room(session)?;
        let sampled_view = SampledView { splats, camera, depth_map: depth_map.as_ref() };
        surface::regularise(session, model, (sampled_view, near), geometry, terms)
    }

    fn of_step(&self) -> StepView<'_> {
        StepView {
            splats: &self.splats,
            camera: &self.camera,
            sh_degree: self.settings.sh_degree,
            inverse_depths: self.settings.inverse_depths,
        }
    }

    /// Gives back what the step needs nothing of where it takes several views.
    fn settle(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.depth_map = None;
        self.splats.fold_into_gradients(session)
    }
}

impl Gradients {
    /// Settles the views that were added as the only one of their step.
    fn settle_views(&mut self, session: &Session) -> Result<(), DeviceError> {
        self.views.iter_mut().try_for_each(|view| view.settle(session))
    }

    /// Moves every parameter. An error where no backward pass came before.
    pub(super) fn step(
        self,
        session: &mut Session,
        model: &mut Model,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        let views: Vec<_> = self.views.iter().map(ViewGradients::of_step).collect();
        adam::step(session, model, &views, self.geometry.as_ref(), step)
    }
}

impl Held for Gradients {
    fn bytes(&self) -> Bytes {
        let views = self.views.iter().map(|view| {
            let depth_map = view.depth_map.as_ref().map_or(Bytes::default(), DepthMap::bytes);
            view.splats.gradient_bytes() + depth_map
        });
        views.sum::<Bytes>() + self.geometry.as_ref().map_or(Bytes::default(), Block::bytes)
    }
}

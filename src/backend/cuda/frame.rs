//! The frame: what is known of one drawn view, and the gradients that come of it.

use super::device::timers::Stage;
use super::memory::heap::{Block, Buffer};
use super::model::tables::Model;
use super::photos::Target;
use super::session::Session;
use super::stage::appearance::{self, Appearance, Compensated};
use super::stage::bands::{self, Lists};
use super::stage::bin;
use super::stage::blend::{self, Canvas, KeptState, Pixels};
use super::stage::loss::{self, PendingLoss};
use super::stage::lpips::{self, LpipsModel};
use super::stage::neighbours::Neighbours;
use super::stage::normals::{self, PendingNormals};
use super::stage::project::{self, Splats};
use super::stage::sampled_depths::DepthMap;
use super::stage::surface::{self, PendingSurface, SampledView};
use super::stage::{adam, densify, depth};
use crate::abi::Camera;
use crate::backend::{
    AdamStep, AppearanceStep, DeviceError, LossTerms, Measured, NormalRule, Pass, RenderSettings,
    Rendered, SurfaceRule,
};
use crate::dataset::View;
use crate::memory::Bytes;
use crate::memory::plan::{Coarse, ViewSize};

/// A drawn view and what the backward pass needs of it.
pub struct Frame {
    d_image: Option<Block<f32>>,
    /// Whether the gradient of the image is there.
    compared: bool,
    d_inverse_depths: Option<Block<f32>>,
    /// Whether the gradient of the inverse depths is there, and how they are weighted.
    depth_weight: Option<f64>,
    /// Of the surface's maps, [height, width, 4], where they are drawn.
    d_surface: Option<Block<f32>>,
    /// Whether the gradient of the surface's maps is there.
    surface_compared: bool,
    /// The depths that samples were compared with.
    depth_map: Option<DepthMap>,
    /// Where other colours are compared than those drawn.
    compensated: Option<Compensated>,
    pub(super) canvas: Canvas,
    pub(super) lists: Lists,
    pub(super) splats: Splats,
    pub(super) camera: Camera,
    settings: RenderSettings,
}

/// The screen-space gradients of one view, or of none yet.
#[derive(Default)]
pub struct Gradients {
    view: Option<(Splats, Camera, RenderSettings)>,
    /// Its depths, where samples were compared with them.
    depth_map: Option<DepthMap>,
    /// What is added to the gradients of all Gaussians' geometry, [n, 12], where a term says
    /// something of it.
    geometry: Option<Block<f32>>,
}

/// Draws a view, in bands where the session says so.
pub(super) fn render(
    session: &mut Session,
    model: &Model,
    view: &View,
    settings: &RenderSettings,
) -> Result<Frame, DeviceError> {
    let camera = project::camera(view, settings)?;
    let mut splats = project::forward(session, model, &camera, settings.sh_degree)?;
    if blend::draws_surface(settings) {
        normals::add_features(session, model, (&camera, settings.pass), &mut splats)?;
    }
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let mut canvas = Canvas::reserve(&session.heap, &camera, settings)?;
    // Here, where a refusal finds room: the loss is computed when the photograph is in use.
    let d_image = match settings.pass {
        Pass::Eval | Pass::Picture => None,
        Pass::Train | Pass::Observe => {
            Some(session.heap.scratch("gradient of the image", canvas.image.len())?)
        }
    };
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
    let reserve = |kind| Compensated::reserve(&session.heap, (&camera, settings.pass), kind);
    let compensated = settings.compensation.map(reserve).transpose()?;
    let sorted = (&mut splats, front_to_back);
    let lists = bands::draw(session, sorted, (&camera, settings), &mut canvas)?;
    Ok(Frame {
        d_image,
        compared: false,
        d_inverse_depths,
        depth_weight: None,
        d_surface,
        surface_compared: false,
        depth_map: None,
        compensated,
        canvas,
        lists,
        splats,
        camera,
        settings: *settings,
    })
}

impl Frame {
    pub(super) fn compare_depths(
        &mut self,
        session: &mut Session,
        target: &Target,
        weight: f64,
    ) -> Result<(), DeviceError> {
        let (Some(depths), Some(d_depths)) =
            (&self.canvas.inverse_depths, &mut self.d_inverse_depths)
        else {
            return Ok(());
        };
        let compared = depth::compare(session, (depths, &self.camera), target, (weight, d_depths))?;
        self.depth_weight = compared.then_some(weight);
        Ok(())
    }

    pub(super) fn compare_normals(
        &mut self,
        session: &mut Session,
        weight: f64,
        rule: NormalRule,
    ) -> Result<PendingNormals, DeviceError> {
        let (Some(surface), Some(d_surface)) = (&self.canvas.surface, &mut self.d_surface) else {
            return Err(DeviceError::NoSurfaceMaps);
        };
        let pending =
            normals::compare(session, (surface, &self.camera), (weight, rule), d_surface)?;
        // What came of the depths is written over.
        (self.surface_compared, self.depth_map) = (true, None);
        Ok(pending)
    }

    pub(super) fn compare_sampled_depths(
        &mut self,
        session: &Session,
        model: &Model,
        near: &Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError> {
        let (Some(surface), Some(d_surface)) = (&self.canvas.surface, &mut self.d_surface) else {
            return Err(DeviceError::NoSurfaceMaps);
        };
        near.check(model)?;
        if !rule.compares_distances() {
            return Ok(());
        }
        let begun = session.timers.begin(Stage::Loss, &session.stream)?;
        if !self.surface_compared {
            d_surface.zero(&session.stream)?;
        }
        let map = match &self.depth_map {
            Some(map) => map,
            None => self.depth_map.insert(DepthMap::new(session, &self.splats, surface)?),
        };
        let shown = (&self.splats, &self.camera, map);
        surface::compare_depths(session, model, shown, (near, rule), d_surface)?;
        self.surface_compared = true;
        session.timers.end(&begun, &session.stream)
    }

    pub(super) fn loss(
        &mut self,
        session: &mut Session,
        target: &Target,
        terms: &LossTerms,
    ) -> Result<PendingLoss, DeviceError> {
        let Some(d_image) = &mut self.d_image else { return Err(DeviceError::NoLoss) };
        let compensated = self.compensated.as_ref().and_then(Compensated::image);
        let image = (compensated.unwrap_or(&self.canvas.image), &self.camera);
        let terms = (terms, self.depth_weight);
        let pending = loss::loss(session, image, target, terms, d_image)?;
        self.compared = true;
        Ok(pending)
    }

    pub(super) fn measure(
        &self,
        session: &mut Session,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        let compensated = self.compensated.as_ref().and_then(Compensated::image);
        let image = compensated.unwrap_or(&self.canvas.image);
        loss::measure(session, (image, &self.camera), target)
    }

    /// Has it compared by its colours as the camera of a training view changed them.
    pub(super) fn compensate(
        &mut self,
        session: &Session,
        appearance: &mut Appearance,
        view: usize,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        let Some(compensated) = self.compensated.as_mut().filter(|_| self.d_image.is_some()) else {
            return Err(DeviceError::NoLoss);
        };
        let colors = (&self.canvas.image, &self.camera, compensated);
        appearance::compensate(session, appearance, view, colors, step)
    }

    /// Moves the view's table, and turns the gradient of the colours that were compared into that of
    /// those drawn.
    pub(super) fn learn_appearance(
        &mut self,
        session: &Session,
        appearance: &mut Appearance,
        view: usize,
        step: &AppearanceStep,
    ) -> Result<(), DeviceError> {
        let (Some(d_image), Some(compensated), true) =
            (&mut self.d_image, &mut self.compensated, self.compared)
        else {
            return Err(DeviceError::NoLoss);
        };
        let colors = (&self.canvas.image, &self.camera, compensated, d_image);
        appearance::learn(session, appearance, view, colors, step)
    }

    /// Has it measured by its colours as they fit the photograph best.
    pub(super) fn correct_colors(
        &mut self,
        session: &Session,
        target: &Target,
    ) -> Result<(), DeviceError> {
        let Some(compensated) = self.compensated.as_mut().filter(|_| self.d_image.is_none()) else {
            return Err(DeviceError::NoLoss);
        };
        appearance::correct(session, (&self.canvas.image, &self.camera, compensated), target)
    }

    pub(super) fn perceive(
        &self,
        session: &Session,
        net: &LpipsModel,
        target: &Target,
    ) -> Result<f64, DeviceError> {
        lpips::perceive(session, net, (&self.canvas.image, &self.camera), target)
    }

    /// Leaves the gradients of the splats.
    pub(super) fn backward(
        mut self,
        session: &mut Session,
        model: &mut Model,
        gradients: &mut Gradients,
    ) -> Result<(), DeviceError> {
        if gradients.view.is_some() {
            return Err(DeviceError::OneViewPerStep);
        }
        let Some(d_image) = self.d_image.as_ref().filter(|_| self.compared) else {
            return Err(DeviceError::NoLoss);
        };
        let d_inverse_depths =
            self.d_inverse_depths.as_ref().filter(|_| self.depth_weight.is_some());
        let d_surface = self.d_surface.as_ref().filter(|_| self.surface_compared);
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
        if self.settings.pass == Pass::Observe {
            densify::observe(session, model, &self.splats, (&self.camera, &self.settings))?;
        }
        gradients.view = Some((self.splats, self.camera, self.settings));
        gradients.depth_map = self.depth_map;
        Ok(())
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
        let compensated = self.compensated.as_ref().map_or(Bytes::default(), Compensated::bytes);
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
        let compensated = self.compensated.as_ref().map_or(Bytes::default(), Compensated::bytes);
        let at_once = of(false);
        compensated + if in_bands { at_once.min(of(true)) } else { at_once }
    }

    pub(super) fn bytes(&self) -> Bytes {
        let compensated = self.compensated.as_ref().map_or(Bytes::default(), Compensated::bytes);
        let lists = self.lists.bytes();
        let beside = self.gradients_of_pixels() + compensated;
        let depth_map = self.depth_map.as_ref().map_or(Bytes::default(), DepthMap::bytes);
        self.canvas.bytes() + lists + self.splats.bytes() + beside + depth_map
    }

    /// Bytes of the gradients of the image and of what is drawn beside it.
    fn gradients_of_pixels(&self) -> Bytes {
        let all = [&self.d_image, &self.d_inverse_depths, &self.d_surface].into_iter().flatten();
        all.map(Block::bytes).sum()
    }
}

impl Gradients {
    /// Adds what surfaces ask of the geometry of the Gaussians that the view sees and of their
    /// neighbours. An error where no backward pass came before.
    pub(super) fn regularise(
        &mut self,
        session: &mut Session,
        model: &Model,
        near: Option<&Neighbours>,
        rule: &SurfaceRule,
    ) -> Result<PendingSurface, DeviceError> {
        let Some((splats, camera, _)) = &mut self.view else { return Err(DeviceError::NoLoss) };
        if rule.asks() {
            splats.fold_into_gradients(session)?;
        }
        let sampled_view = SampledView { splats, camera, depth_map: self.depth_map.as_ref() };
        surface::regularise(session, model, (sampled_view, near), &mut self.geometry, rule)
    }

    /// Moves every parameter. An error where no backward pass came before.
    pub(super) fn step(
        self,
        session: &mut Session,
        model: &mut Model,
        step: &AdamStep,
    ) -> Result<(), DeviceError> {
        let Some((splats, camera, settings)) = self.view else { return Err(DeviceError::NoLoss) };
        let geometry = self.geometry.as_ref();
        adam::step(session, model, &splats, (&camera, &settings), geometry, step)
    }

    pub(super) fn bytes(&self) -> Bytes {
        let of_view =
            self.view.as_ref().map_or(Bytes::default(), |(splats, ..)| splats.gradient_bytes());
        let depth_map = self.depth_map.as_ref().map_or(Bytes::default(), DepthMap::bytes);
        of_view + depth_map + self.geometry.as_ref().map_or(Bytes::default(), Block::bytes)
    }
}

//! Frames: drawn views, their scores and their gradients.

mod gradients;
mod score;

use std::marker::PhantomData;

use super::photos::{Target, check_size};
use super::primitive::require;
use super::stage::appearance::{self, ColorScratch, ColorTables, ViewColors};
use super::stage::bands::{self, Lists};
use super::stage::bin::{self, Bins};
use super::stage::blend::{self, Canvas};
use super::stage::contribution::{ContributionSums, ListedSplats, ViewContributions};
use super::stage::loss::{self, Shrunk};
use super::stage::project::{self, DrawnView, Splats};
use super::stage::surface::DepthMap;
use super::stage::{normals, rays};
use crate::abi::terms::{Inputs, Terms};
use crate::backend::cuda::prelude::*;
use crate::backend::settings::{MEDIAN_GRADIENTS, TRANSMITTANCES};
use crate::backend::{
    Capability, Compensated, DrawSettings, Drawn, FrameState, Fresh, Held, Measured, Rendered,
    Scored, Shown, TableStep,
};
use crate::dataset::View;
use crate::layout::{PixelGradients, Records, Use, ViewRequest};
use crate::math::Divisor;
use crate::memory::plan::{PlannedViews, ViewGrowth, ViewSize};
use crate::model::Gaussians;

pub use gradients::Gradients;

pub(super) use gradients::ViewGradients;

impl<P> Frame<Drawn, P> {
    /// Computes the compared colours: the drawn colours, changed as the camera of the training view changes them.
    pub(super) fn compensate(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Compensated, P>> {
        appearance::compensate(session, tables, self.view_colors()?, step)?;
        Ok(self.into_state(|()| ()))
    }
}

impl<P> Frame<Shown, P> {
    /// Fits the colours to the photograph, for measuring.
    pub(super) fn correct(mut self, session: &Session, target: &Target) -> Result<Self> {
        appearance::correct(session, self.view_colors()?, target)?;
        Ok(self)
    }
}

impl<P> Frame<Scored<Compensated>, P> {
    /// Updates the view's table, and turns the gradient of the compared colours into that of the drawn colours.
    pub(super) fn learn(
        mut self,
        session: &Session,
        tables: &mut ColorTables,
        step: &TableStep,
    ) -> Result<Frame<Scored<Drawn>, P>> {
        let (Some(gradients), Some(colors)) = (&mut self.gradients, &mut self.colors) else {
            return Err(DeviceError::NoRoomForColors);
        };
        let colors =
            ViewColors { drawn: &self.canvas.image, camera: &self.camera, compared: colors };
        appearance::learn(session, tables, colors, &mut gradients.image, step)?;
        Ok(self.into_state(|scores| scores))
    }
}

/// Draws a view, in bands if the session says so.
pub(super) fn draw<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &DrawSettings,
) -> Result<Frame<S, P>> {
    settings.check_footprint()?;
    let request = &blend::request(settings);
    require::<P>(Capability::Surfaces, request.maps || request.median)?;
    if request.median && request.backward() {
        settings.footprint.require_volumes(MEDIAN_GRADIENTS)?;
    }
    let camera = project::camera(view, settings)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = match project::window(settings.footprint) {
        Some(window) => project::project_triangles(session, model, drawn, &window)?,
        None => project::forward(session, model, drawn)?,
    };
    if request.maps {
        normals::add_features(session, model, &camera, request, &mut splats)?;
    }
    // Blending surfels gives the medians directly.
    if request.median && request.records == Records::Ellipses {
        rays::add(session, model, &camera, request, &mut splats)?;
    }
    draw_splats(session, model.len(), drawn, &mut Some(splats))
}

/// Draws the splats of a view, and takes them on success. On failure the call can be repeated.
pub(super) fn draw_splats<S: Fresh, P: CudaPrimitive>(
    session: &mut Session,
    gaussians: usize,
    drawn: DrawnView<'_>,
    projected: &mut Option<Splats>,
) -> Result<Frame<S, P>> {
    let DrawnView { camera, settings } = drawn;
    let request = &blend::request(settings);
    let splats = projected.as_mut().ok_or(DeviceError::NoView)?;
    let front_to_back = bin::sort_by_depth(session, splats)?;
    let sizes = splats.sizes(gaussians, camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, request)?;
    // Allocated here, because a refusal can still free memory: later the photograph is in use.
    let reserve = || PixelGradients::reserve(&session.heap, &sizes, request);
    let gradients = request.backward().then(reserve).transpose()?;
    let reserve = |kind| ColorScratch::reserve(&session.heap, &sizes, kind);
    let colors = request.colors.map(reserve).transpose()?;
    let shrunk = Shrunk::reserve_if_smaller(&session.heap, &sizes, request)?;
    let lists = {
        let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
            bands::forward(session, splats, bins, view, &mut canvas)?;
            rays::median_depths(session, splats, bins, view.camera, canvas.median_depths.as_mut())
        };
        bands::draw(session, splats, front_to_back, drawn, &mut paint)?
    };
    let splats = projected.take().ok_or(DeviceError::NoView)?;
    Ok(Frame {
        gradients,
        kept: S::nothing(),
        colors,
        shrunk,
        canvas,
        lists,
        splats,
        camera: *camera,
        settings: *settings,
        primitive: PhantomData,
    })
}

/// Returns the transmittance between the view's camera and each position.
pub(super) fn transmittances<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &DrawSettings,
    places: &[[f32; 3]],
) -> Result<Vec<f32>> {
    require::<P>(Capability::Surfaces, true)?;
    settings.footprint.require_volumes(TRANSMITTANCES)?;
    let camera = project::camera(view, settings)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = project::forward(session, model, drawn)?;
    rays::add(session, model, &camera, &ViewRequest::default(), &mut splats)?;
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let mut query = rays::Query::new(session, places)?;
    let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
        query.answer(session, splats, bins, view.camera)
    };
    bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?;
    query.read(session)
}

/// Draws a view without the removed Gaussians, adds the contribution of each Gaussian, and measures the view.
pub(super) fn add_contributions<P: CudaPrimitive>(
    session: &mut Session,
    model: &Model<P>,
    view: &View,
    settings: &DrawSettings,
    target: &Target,
    sums: &mut ContributionSums,
) -> Result<Measured> {
    let camera = project::camera(view, settings)?;
    check_size(target.size(), camera.size)?;
    let drawn = DrawnView { camera: &camera, settings };
    let mut splats = project::forward(session, model, drawn)?;
    let front_to_back = bin::sort_by_depth(session, &mut splats)?;
    let sizes = splats.sizes(model.len(), &camera);
    let mut canvas = Canvas::reserve(&session.heap, &sizes, &blend::request(settings))?;
    let mut seen = ViewContributions::new(session, &splats)?;
    target.wait(&session.stream)?;
    let mut paint = |session: &Session, splats: &Splats, bins: &Bins, view: DrawnView<'_>| {
        let listed = ListedSplats { splats, bins, view };
        seen.judge(session, listed, sums, target, &mut canvas.image)
    };
    bands::draw(session, &mut splats, front_to_back, drawn, &mut paint)?;
    let measured = loss::measure(session, &canvas.image, &camera, target)?;
    // Last, because a refusal repeats the whole call.
    seen.add_to(session, &splats, sums)?;
    Ok(measured)
}

/// A drawn view with the inputs of the backward pass.
pub struct Frame<S: FrameState = Drawn, P = Gaussians> {
    /// Gradients of the image and of its maps; `Some` in a frame for training.
    gradients: Option<PixelGradients<Heap>>,
    kept: S::Kept<Scores>,
    /// Scratch for colours other than those drawn.
    colors: Option<ColorScratch>,
    /// Scratch for the shrunken photograph, if that is larger than the view.
    shrunk: Option<Shrunk>,
    pub(super) canvas: Canvas,
    pub(super) lists: Lists,
    pub(super) splats: Splats,
    pub(super) camera: ViewCamera,
    settings: DrawSettings,
    primitive: PhantomData<P>,
}

pub(super) struct Scores {
    terms: Terms,
    /// True if there are gradients of the inverse depths, from a map of the photograph or from the distortion.
    has_inverse_depths: bool,
    /// True if there are gradients of the surface's maps.
    has_surface: bool,
    /// Depths that samples are compared with.
    depth_map: Option<DepthMap>,
}

impl<S: FrameState, P> Frame<S, P> {
    fn compared(&self) -> &Block<f32> {
        let changed = self.colors.as_ref().and_then(ColorScratch::image);
        changed.unwrap_or(&self.canvas.image)
    }

    /// Returns the drawn colours, with scratch for the compared ones.
    fn view_colors(&mut self) -> Result<ViewColors<'_>> {
        let compared = self.colors.as_mut().ok_or(DeviceError::NoRoomForColors)?;
        Ok(ViewColors { drawn: &self.canvas.image, camera: &self.camera, compared })
    }

    pub(super) fn measure(&self, session: &mut Session, target: &Target) -> Result<Measured> {
        loss::measure(session, self.compared(), &self.camera, target)
    }

    fn into_state<T: FrameState>(
        self,
        kept: impl FnOnce(S::Kept<Scores>) -> T::Kept<Scores>,
    ) -> Frame<T, P> {
        let Self { gradients, colors, shrunk, canvas, lists, .. } = self;
        let Self { splats, camera, settings, primitive, .. } = self;
        Frame {
            gradients,
            kept: kept(self.kept),
            colors,
            shrunk,
            canvas,
            lists,
            splats,
            camera,
            settings,
            primitive,
        }
    }

    pub(super) fn image(&self, session: &Session) -> Result<Rendered> {
        let (stream, canvas) = (&session.stream, &self.canvas);
        let rgb = canvas.image.download_vec(stream, 0..canvas.image.len())?;
        let blended = canvas.blended.as_ref();
        let blended = blended.map(|counts| counts.download_vec(stream, 0..counts.len()));
        let blended = blended.transpose()?;
        let map = |map: &Option<Block<f32>>| {
            map.as_ref().map(|map| map.download_vec(stream, 0..map.len())).transpose()
        };
        let [width, height] = self.camera.size;
        Ok(Rendered {
            width,
            height,
            rgb,
            blended,
            inverse_depths: map(&canvas.inverse_depths)?,
            inverse_squares: map(&canvas.inverse_squares)?,
            surface: map(&canvas.surface)?,
            median_depths: map(&canvas.median_depths)?,
        })
    }

    /// True if the lists exceeded the memory left, so that the view is drawn in bands.
    pub fn is_in_bands(&self) -> bool {
        matches!(self.lists, Lists::Bands(_))
    }

    /// Returns the number of bands of the forward pass. The backward pass may need more.
    pub fn bands(&self) -> u32 {
        self.lists.bands()
    }

    /// Returns the planned view: trained on with `gaussians` Gaussians and all inputs of terms, at once or in bands.
    pub(super) fn planned(&self, gaussians: usize, inputs: Inputs, in_bands: bool) -> PlannedViews {
        let view = self.view_size(gaussians as u64);
        PlannedViews::one(&view, self.training_request(inputs), in_bands)
    }

    /// Returns the view's counts at the size of its photograph, which smaller views reach later.
    fn view_size(&self, gaussians: u64) -> ViewSize {
        let (px, divisor) = (self.camera.size, self.settings.divisor);
        let (visible, instances) = (self.splats.visible as u64, self.splats.instances);
        let drawn = ViewSize { px, visible, instances };
        if divisor == Divisor::One {
            return drawn;
        }
        // The largest photograph that this division drops pixels of.
        let full = px.map(|side| (side + 1).saturating_mul(divisor.get()) - 1);
        ViewGrowth::counted(gaussians, &drawn).resized(full).of(gaussians)
    }

    /// Returns the request with a backward pass, at full size, with all inputs of terms.
    fn training_request(&self, inputs: Inputs) -> ViewRequest {
        let divisor = Divisor::One;
        let request =
            ViewRequest { drawn_for: Use::Backward, divisor, ..blend::request(&self.settings) };
        request.beside(self.settings.inputs().and(inputs))
    }

    /// True if some inputs of the terms are not drawn.
    pub(super) fn lacks(&self, inputs: Inputs) -> bool {
        let drawn = self.settings.inputs();
        drawn.and(inputs) != drawn
    }

    pub(super) fn is_divided(&self) -> bool {
        self.settings.divisor != Divisor::One
    }
}

impl<S: FrameState, P> Held for Frame<S, P> {
    fn bytes(&self) -> Bytes {
        let compensated = self.colors.as_ref().map_or(Bytes::default(), ColorScratch::bytes);
        let lists = self.lists.bytes();
        let shrunk = self.shrunk.as_ref().map_or(0, Shrunk::bytes);
        let gradients = self.gradients.as_ref().map_or(0, PixelGradients::bytes);
        let depth_map = S::kept(&self.kept).and_then(|scores| scores.depth_map.as_ref());
        let depth_map = depth_map.map_or(0, DepthMap::bytes);
        let beside = Bytes(gradients + shrunk + depth_map) + compensated;
        self.canvas.bytes() + lists + self.splats.bytes() + beside
    }
}

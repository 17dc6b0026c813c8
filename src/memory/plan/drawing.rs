//! An iteration, replayed: what drawing a view and its backward pass take and give back, in the order
//! in which the GPU's backend does.

#[cfg(test)]
mod tests;

use std::convert::Infallible;

use super::seen::ViewSize;
use crate::abi::TILE;
use crate::layout::{
    BANDS, COUNTED_PIXELS, CanvasSlots, ColorSlots, FeatureSlots, Half, Library, ListSizes,
    NearRows, OrderSlots, PLACES, PixelGradients, Projected, ROW_INSTANCES, RaySlots, Records,
    Replay, ReplayBlock, SEEN_WORTHS, SURFACE_GRADIENTS, Samples, ShrunkSlots, Source as _,
    SplatSlots, SurfaceRows, TRANSMITTANCES, VERTEX_GRADIENTS, ViewRequest, ViewSizes,
    WEIGHED_DEPTHS, replay_list, splat_capacity,
};
use crate::memory::Bytes;

/// What the coarse stage has drawn of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maps {
    /// Nothing.
    Undrawn,
    /// Depths and normals, which are compared before the backward pass.
    Compared,
    /// The same, with median depths, whose normals are compared.
    Medians,
    /// Depths and normals, of which samples are compared with the depths before the backward pass and
    /// after it.
    Sampled,
}

impl Maps {
    /// A request with them, in place of those of the iterations before the stage.
    pub(super) fn added_to(self, wants: ViewRequest) -> ViewRequest {
        let (maps, median) = (self.are_drawn(), self == Self::Medians);
        ViewRequest { inverse_squares: false, maps, median, ..wants }
    }

    /// Whether there are any.
    pub fn are_drawn(self) -> bool {
        self != Self::Undrawn
    }
}

/// Which Gaussians terms at samples look at after the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampledGaussians {
    /// All that the view sees.
    pub(crate) seen: bool,
    /// Those near the depths that it shows, which samples are compared with before, too.
    pub(crate) shown: bool,
}

impl From<Maps> for SampledGaussians {
    fn from(maps: Maps) -> Self {
        let shown = maps == Maps::Sampled;
        Self { seen: !shown, shown }
    }
}

/// Which look at a view's depths follows, to fuse them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DepthLook {
    /// That which finds bricks.
    First,
    /// That which fills them.
    Second,
}

/// A view that is drawn, with what follows.
#[derive(Clone, Debug)]
pub(crate) struct PlannedDrawing<'a> {
    /// Gaussians of the model.
    pub(crate) gaussians: u64,
    pub(crate) view: &'a ViewSize,
    /// Splats of the view that room for splats was last raised for, where it may be raised for this one.
    pub(crate) most_visible: Option<u64>,
    pub(crate) wants: ViewRequest,
    /// Where its lists do not fit at once: the bands of its rows of tiles that they come in.
    pub(crate) bands: Option<Vec<ListSizes>>,
    /// Terms at samples, which follow the backward pass.
    pub(crate) terms: Option<SampledGaussians>,
    /// Places that light passes to, which are asked about in place of pixels.
    pub(crate) places: Option<u64>,
    /// Whether what each Gaussian is worth is found.
    pub(crate) worths: bool,
    /// A look at its depths, of which a mask leaves some.
    pub(crate) look: Option<DepthLook>,
}

impl<'a> PlannedDrawing<'a> {
    /// A view of so many Gaussians, without terms at samples: at once, or in [`BANDS`] that are alike.
    pub(super) fn new(
        gaussians: u64,
        view: &'a ViewSize,
        wants: ViewRequest,
        in_bands: bool,
    ) -> Self {
        let bands = in_bands.then(|| alike_bands(view));
        let (most_visible, terms, places, look) = (None, None, None, None);
        Self { gaussians, view, most_visible, wants, bands, terms, places, worths: false, look }
    }
}

fn alike_bands(view: &ViewSize) -> Vec<ListSizes> {
    (0..BANDS).map(|_| ListSizes::band(tiles(view), view.instances, view.visible)).collect()
}

fn tiles(view: &ViewSize) -> [u32; 2] {
    view.px.map(|side| side.div_ceil(TILE))
}

/// What a view keeps until the step: its gradients.
#[expect(dead_code, reason = "blocks are held, and given back when it goes")]
struct KeptView {
    splat_from_gaussian: ReplayBlock,
    gradients: ReplayBlock,
    /// What splats gave to the maps of a surface.
    features: Option<FeatureSlots<Replay>>,
}

/// What the views of a step keep until then.
#[derive(Default)]
pub(crate) struct PlannedBatch {
    views: Vec<KeptView>,
    /// What terms at samples add to the gradients, of all views together.
    surface: Option<ReplayBlock>,
}

impl PlannedDrawing<'_> {
    /// Bytes of scratch.
    pub(crate) fn scratch(&self, library: &Library) -> Bytes {
        let source = Replay::with(*library);
        self.replay(&source);
        Bytes(source.reach())
    }

    /// Takes and gives back all of it.
    pub(crate) fn replay(&self, source: &Replay) {
        self.add_to(source, &mut PlannedBatch::default());
    }

    /// The same, but for what the step needs, which is kept with that of the views before.
    pub(crate) fn add_to(&self, source: &Replay, kept: &mut PlannedBatch) {
        let Ok(()) = self.play(source, kept);
    }

    /// With room as for a view of so many splats.
    fn sizes(&self, most_visible: u64) -> ViewSizes {
        ViewSizes {
            gaussians: self.gaussians,
            visible: self.view.visible,
            capacity: splat_capacity(most_visible, self.wants.records.most(self.gaussians)),
            records: self.wants.records,
            pixels: self.view.pixels(),
        }
    }

    fn play(&self, source: &Replay, kept: &mut PlannedBatch) -> Result<(), Infallible> {
        let (wants, visible) = (&self.wants, self.view.visible);
        let mut sizes = self.sizes(self.most_visible.unwrap_or(visible));
        let mut projected = Projected::reserve(source, &sizes)?;
        if visible > sizes.capacity {
            sizes = self.sizes(visible);
            projected = projected.renew(source, &sizes)?;
        }
        let sizes = &sizes;
        let Projected { splat_from_gaussian, vertices, splats } = projected;
        let SplatSlots { mut gradients, records } = splats;
        let has_vertex_gradients = vertices.is_some() && wants.backward();
        let d_vertices = source.take_if(has_vertex_gradients, &VERTEX_GRADIENTS, sizes)?;
        let mut features = None;
        if wants.maps {
            features = Some(FeatureSlots::reserve(source, sizes, wants)?);
        }
        // The median depths of surfels come of drawing them.
        let meets_rays =
            (wants.median && wants.records == Records::Ellipses) || self.places.is_some();
        let rays = meets_rays.then(|| RaySlots::reserve(source, sizes, wants)).transpose()?;
        source.sort32(visible, u32::BITS);
        source.sum32(visible);
        let (mut canvas, mut asked) = (None, None);
        match &self.places {
            Some(places) => {
                let on_device = source.take(&PLACES, places)?;
                asked = Some((on_device, source.take(&TRANSMITTANCES, places)?));
            }
            None => canvas = Some(CanvasSlots::reserve(source, sizes, wants)?),
        }
        let worths = self.worths.then(|| source.take(&SEEN_WORTHS, &visible.max(1))).transpose()?;
        let mut gradients_of_pixels = None;
        if wants.backward() {
            gradients_of_pixels = Some(PixelGradients::reserve(source, sizes, wants)?);
        }
        let reserve = |kind| ColorSlots::reserve(source, sizes.pixels, kind);
        let colors = wants.colors.map(reserve).transpose()?;
        let shrunk = ShrunkSlots::reserve(source, sizes, wants)?;
        let samples = match &self.bands {
            None => self.play_whole(source, sizes)?,
            Some(bands) => self.play_bands(source, sizes, bands)?,
        };
        drop((canvas, asked, worths, gradients_of_pixels, colors, shrunk));
        if wants.median && wants.backward() {
            play_geometry(source, sizes, &mut kept.surface)?;
        }
        drop(rays);
        if let Some(terms) = self.terms {
            // Without features, which lie further on, the splats go, and what surface terms take lies in
            // their place.
            let records = (visible == 0 || features.is_some()).then_some(records);
            play_sample_terms(source, sizes, terms, &mut kept.surface)?;
            drop(records);
        }
        drop((samples, vertices));
        // The gradients of vertices take the place of those of triangles.
        gradients = d_vertices.unwrap_or(gradients);
        kept.views.push(KeptView { splat_from_gaussian, gradients, features });
        Ok(())
    }

    /// Lists at once, which stay until the backward pass.
    fn play_whole(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        let lists = ListSizes::whole(tiles(self.view), self.view.instances);
        let listed = replay_list(source, &lists, &self.wants, Half::First)?;
        self.play_look(source, sizes)?;
        let samples = self.play_samples(source, sizes)?;
        drop(listed);
        Ok(samples)
    }

    /// Lists band by band, in the forward pass and anew in the backward pass, which needs the states.
    fn play_bands(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
        bands: &[ListSizes],
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        let all =
            ListSizes { counted: Some(sizes.visible), ..ListSizes::whole(tiles(self.view), 0) };
        let order = OrderSlots::reserve(source, &all)?;
        drop(source.take(&ROW_INSTANCES, &all)?);
        let each = |wants: &ViewRequest| {
            bands
                .iter()
                .try_for_each(|band| replay_list(source, band, wants, Half::First).map(drop))
        };
        each(&self.wants.forward_only())?;
        self.play_look(source, sizes)?;
        let samples = self.play_samples(source, sizes)?;
        if self.wants.backward() {
            each(&self.wants)?;
        }
        drop(order);
        Ok(samples)
    }

    /// The depths are looked at.
    fn play_look(&self, source: &Replay, sizes: &ViewSizes) -> Result<(), Infallible> {
        let Some(look) = self.look else { return Ok(()) };
        let pixels = sizes.pixels.max(1);
        let counted = source.take(&COUNTED_PIXELS, &pixels)?;
        let weighed = source.take_if(look == DepthLook::Second, &WEIGHED_DEPTHS, &pixels)?;
        drop((weighed, counted));
        Ok(())
    }

    /// The depths that the view shows are made, and samples compared with them; the depths stay.
    fn play_samples(
        &self,
        source: &Replay,
        sizes: &ViewSizes,
    ) -> Result<Option<Samples<Replay>>, Infallible> {
        if !self.terms.is_some_and(|terms| terms.shown) {
            return Ok(None);
        }
        let samples = Samples::reserve(source, sizes)?;
        if sizes.visible > 0 {
            play_near_rows(source, sizes)?;
        }
        Ok(Some(samples))
    }
}

/// What surface terms say of the Gaussians that a view sees is added up, to what those of the views
/// before said.
fn play_sample_terms(
    source: &Replay,
    sizes: &ViewSizes,
    terms: SampledGaussians,
    sums: &mut Option<ReplayBlock>,
) -> Result<(), Infallible> {
    if sizes.visible == 0 {
        return Ok(());
    }
    play_geometry(source, sizes, sums)?;
    let mut seen = None;
    if terms.seen {
        let SurfaceRows { rows, counts } = SurfaceRows::reserve(source, sizes)?;
        source.sum32(lane_blocks(sizes));
        drop(counts);
        seen = Some(rows);
    }
    if terms.shown {
        play_near_rows(source, sizes)?;
    }
    drop(seen);
    Ok(())
}

/// Room for gradients of geometry, where there is none from a view before.
fn play_geometry(
    source: &Replay,
    sizes: &ViewSizes,
    sums: &mut Option<ReplayBlock>,
) -> Result<(), Infallible> {
    if sums.is_none() && sizes.visible > 0 {
        *sums = Some(source.take(&SURFACE_GRADIENTS, sizes)?);
    }
    Ok(())
}

/// The Gaussians that are near the depths which a view shows are numbered.
fn play_near_rows(source: &Replay, sizes: &ViewSizes) -> Result<(), Infallible> {
    let rows = NearRows::reserve(source, sizes)?;
    source.sum32(lane_blocks(sizes));
    drop(rows);
    Ok(())
}

fn lane_blocks(sizes: &ViewSizes) -> u64 {
    sizes.gaussians.div_ceil(crate::layout::LANES.into())
}

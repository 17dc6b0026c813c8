//! Stage `blend`: splats to pixels front to back, and pixel gradients back to splats.

use super::bin::Bins;
use super::extent::{Extent, bytes_for};
use super::project::{Features, Splats};
use crate::abi::{
    BLEND_BLOCK, BLEND_CHUNK, BLEND_PARTS, BlendArgs, Camera, FEATURES_WIDTH, In, Out,
};
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer, Heap};
use crate::backend::cuda::session::Session;
use crate::backend::{DeviceError, Drawing, Statistics};
use crate::memory::Bytes;

/// A drawn image with what the backward pass starts from.
pub(crate) struct Canvas {
    /// Colours with the background, [height, width, 3].
    pub(crate) image: Block<f32>,
    /// Splats that changed each pixel; [height, width].
    pub(crate) blended: Option<Block<u32>>,
    /// Sums of the weights over the depths, per world unit; [height, width].
    pub(crate) inverse_depths: Option<Block<f32>>,
    /// Depth, x and y of the normal, opacity; [height, width, 4].
    pub(crate) surface: Option<Block<f32>>,
    /// For the backward pass.
    pub(crate) kept: Option<BackwardState>,
}

impl Canvas {
    /// Room for an image that no tile is drawn in yet.
    pub(crate) fn reserve(
        heap: &Heap,
        camera: &Camera,
        settings: &Drawing,
    ) -> Result<Self, DeviceError> {
        let pixels = camera.size[0] as usize * camera.size[1] as usize;
        Ok(Self {
            image: heap.scratch("image", pixels * 3)?,
            blended: settings.counts.then(|| heap.scratch("pixels", pixels)).transpose()?,
            inverse_depths: settings
                .inverse_depths
                .then(|| heap.scratch("inverse depths", pixels))
                .transpose()?,
            surface: settings
                .surface
                .then(|| heap.scratch("surface maps", pixels * FEATURES_WIDTH as usize))
                .transpose()?,
            kept: None,
        })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let blended = self.blended.as_ref().map_or(Bytes::default(), Block::bytes);
        let kept = self.kept.as_ref().map_or(Bytes::default(), |k| k.bytes());
        self.image.bytes() + blended + self.bytes_beside() + kept
    }

    /// Of the maps of inverse depths and of a surface.
    pub(crate) fn bytes_beside(&self) -> Bytes {
        [&self.inverse_depths, &self.surface].into_iter().flatten().map(Block::bytes).sum()
    }
}

/// What the forward pass keeps for the backward pass.
pub(crate) struct BackwardState {
    /// Instances that each part of a tile looked at; [tiles, parts].
    pub(crate) reached: Block<u32>,
    /// State of a tile's pixels before each chunk of its list but the first.
    states: Block<f32>,
    /// The same of their inverse depths.
    depth_states: Option<Block<f32>>,
    /// The same of their surface, inverse depths included.
    surface_states: Option<Block<f32>>,
    /// Which instances reach which part of their tile, a bit each; [words, parts].
    pub(crate) hits: Block<u32>,
    /// Tile and number of each chunk that pixels got to; [chunks, 2].
    chunks: Block<u32>,
    /// The number of chunks; `[1]`.
    chunk_count: Block<u32>,
}

impl BackwardState {
    /// Bytes of the arena that it takes.
    pub(crate) fn bytes_for(extent: &Extent, keeps: KeptState) -> u64 {
        let beside = match keeps {
            KeptState::Nothing => return 0,
            KeptState::Colours => 0,
            KeptState::ColoursAndDepths => bytes_for::<f32>(depth_states_len(extent)),
            KeptState::ColoursAndSurface => bytes_for::<f32>(states_len(extent)),
        };
        beside
            + bytes_for::<u32>(reached_len(extent))
            + bytes_for::<f32>(states_len(extent))
            + bytes_for::<u32>(hits_len(extent))
            + bytes_for::<u32>(extent.chunks_max() * 2)
            + bytes_for::<u32>(1)
    }

    pub(crate) fn reserve(
        heap: &Heap,
        extent: &Extent,
        keeps: KeptState,
    ) -> Result<Option<Self>, DeviceError> {
        if keeps == KeptState::Nothing {
            return Ok(None);
        }
        Ok(Some(Self {
            reached: heap.scratch("parts of tiles", reached_len(extent))?,
            states: heap.scratch("states of pixels", states_len(extent))?,
            depth_states: (keeps == KeptState::ColoursAndDepths)
                .then(|| heap.scratch("states of pixels", depth_states_len(extent)))
                .transpose()?,
            surface_states: (keeps == KeptState::ColoursAndSurface)
                .then(|| heap.scratch("states of pixels", states_len(extent)))
                .transpose()?,
            hits: heap.scratch("hits", hits_len(extent))?,
            chunks: heap.scratch("chunks", extent.chunks_max() * 2)?,
            chunk_count: heap.scratch("chunks", 1)?,
        }))
    }

    fn bytes(&self) -> Bytes {
        let beside = [&self.depth_states, &self.surface_states].into_iter().flatten();
        self.reached.bytes()
            + self.states.bytes()
            + beside.map(Block::bytes).sum::<Bytes>()
            + self.hits.bytes()
            + self.chunks.bytes()
            + self.chunk_count.bytes()
    }

    /// Hands it to a kernel that fills or reads it.
    fn lend<'a>(&'a mut self, args: &mut BlendArgs<'a>) {
        args.reached = self.reached.write();
        args.states = self.states.write();
        args.depth_states = self.depth_states.as_mut().map_or(Out::NULL, Block::write);
        args.surface_states = self.surface_states.as_mut().map_or(Out::NULL, Block::write);
        args.hits = self.hits.write();
        args.chunks = self.chunks.write();
        args.chunk_count = self.chunk_count.write();
    }
}

/// Which state of the pixels the forward pass keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptState {
    /// None: no backward pass follows.
    Nothing,
    /// That of the colours.
    Colours,
    /// That of the colours and of the inverse depths.
    ColoursAndDepths,
    /// That of the colours and of the surface, inverse depths included.
    ColoursAndSurface,
}

impl KeptState {
    pub(crate) fn of(settings: &Drawing) -> Self {
        match settings {
            Drawing { trains: false, .. } => Self::Nothing,
            Drawing { surface: true, .. } => Self::ColoursAndSurface,
            Drawing { inverse_depths: true, .. } => Self::ColoursAndDepths,
            Drawing { .. } => Self::Colours,
        }
    }
}

/// What the backward pass starts from.
pub(crate) struct Pixels<'a> {
    /// The drawn image.
    pub(crate) canvas: &'a mut Canvas,
    /// Gradient of the image; [height, width, 3].
    pub(crate) d_image: &'a Block<f32>,
    /// Gradient of the inverse depths, where they were compared; [height, width].
    pub(crate) d_inverse_depths: Option<&'a Block<f32>>,
    /// Gradient of the surface's maps, where the normals were compared; [height, width, 4].
    pub(crate) d_surface: Option<&'a Block<f32>>,
}

/// Draws the tiles that are listed.
pub(crate) fn forward(
    session: &Session,
    (splats, bins): (&Splats, &Bins),
    (camera, settings): (&Camera, &Drawing),
    canvas: &mut Canvas,
) -> Result<(), DeviceError> {
    if let Some(mut kept) =
        BackwardState::reserve(&session.heap, &bins.extent, KeptState::of(settings))?
    {
        kept.chunk_count.zero(&session.stream)?;
        canvas.kept = Some(kept);
    }
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let kernel = match settings {
        Drawing { counts: true, .. } => &session.kernels.blend_counted,
        Drawing { surface: true, .. } => &session.kernels.blend_fwd_surface,
        Drawing { inverse_depths: true, .. } => &session.kernels.blend_fwd_depth,
        Drawing { .. } => &session.kernels.blend_fwd,
    };
    let mut args = BlendArgs {
        image: canvas.image.write(),
        blended: canvas.blended.as_mut().map_or(Out::NULL, Block::write),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        surface: canvas.surface.as_mut().map_or(Out::NULL, Block::write),
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        ..lists((splats.records.read(), splats.features.as_ref().map(|f| &f.values)), bins, camera)
    };
    if let Some(kept) = &mut canvas.kept {
        kept.lend(&mut args);
    }
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)?;
    session.timers.end(&begun, &session.stream)
}

/// What both passes read: the splats and the tiles' lists of them. All else is null.
fn lists<'a>(
    (records, features): (In<'a, f32>, Option<&'a Block<f32>>),
    bins: &'a Bins,
    camera: &Camera,
) -> BlendArgs<'a> {
    BlendArgs {
        splats: records,
        features: features.map_or(In::NULL, Block::read),
        splat_from_instance: bins.splat_from_instance.read(),
        ranges: bins.ranges.read(),
        chunks: Out::NULL,
        chunk_count: Out::NULL,
        states: Out::NULL,
        depth_states: Out::NULL,
        surface_states: Out::NULL,
        hits: Out::NULL,
        image: Out::NULL,
        reached: Out::NULL,
        blended: Out::NULL,
        inverse_depths: Out::NULL,
        surface: Out::NULL,
        d_image: In::NULL,
        d_inverse_depths: In::NULL,
        d_surface: In::NULL,
        gradients: Out::NULL,
        d_features: Out::NULL,
        size: camera.size,
        background: [0.0; 3],
        tiles_wide: camera.tiles[0],
        first_tile: 0,
        reserved: 0,
    }
}

/// Parts of all tiles of the view.
fn reached_len(extent: &Extent) -> usize {
    extent.tiles() * BLEND_PARTS as usize
}

/// Two starts of chunks lie a chunk's length apart or more.
fn states_len(extent: &Extent) -> usize {
    let starts = extent.instances / BLEND_CHUNK as usize + 1;
    starts * BLEND_BLOCK as usize * 4
}

/// A word for each pixel in place of four.
fn depth_states_len(extent: &Extent) -> usize {
    states_len(extent) / 4
}

/// A word per part for 32 instances; each tile's last may not be full.
fn hits_len(extent: &Extent) -> usize {
    let words = extent.instances / u32::BITS as usize + extent.tiles() + 1;
    words * BLEND_PARTS as usize
}

/// Gradients of every splat from those of the pixels, in the splats' own room for them.
pub(crate) fn backward(
    session: &Session,
    (splats, bins): (&mut Splats, &Bins),
    view: (&Camera, &Drawing),
    pixels: &mut Pixels<'_>,
) -> Result<(), DeviceError> {
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    splats.clear_gradients(&session.stream)?;
    add_gradients(session, (splats, bins), view, pixels)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds what comes from the pixels of the tiles that are listed.
pub(crate) fn add_gradients(
    session: &Session,
    (splats, bins): (&mut Splats, &Bins),
    (camera, settings): (&Camera, &Drawing),
    Pixels { canvas, d_image, d_inverse_depths, d_surface }: &mut Pixels<'_>,
) -> Result<(), DeviceError> {
    let Some(kept) = &mut canvas.kept else { return Err(DeviceError::NoView) };
    let Splats { records, gradients, features, .. } = splats;
    let (features, d_features) = match features {
        Some(Features { values, gradients }) => (Some(&*values), gradients.as_mut()),
        None => (None, None),
    };
    let absolute = settings.observe.is_some_and(|statistics| statistics != Statistics::Norms);
    let kernels = &session.kernels;
    // Where a surface is drawn its states hold those of the inverse depths.
    let kernel = match (d_features.is_some(), d_inverse_depths.is_some(), absolute) {
        (true, _, false) => &kernels.blend_bwd_surface,
        (true, _, true) => &kernels.blend_bwd_surface_absolute,
        (false, true, false) => &kernels.blend_bwd_depth,
        (false, true, true) => &kernels.blend_bwd_depth_absolute,
        (false, false, false) => &kernels.blend_bwd,
        (false, false, true) => &kernels.blend_bwd_absolute,
    };
    let mut args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        d_image: d_image.read(),
        surface: canvas.surface.as_mut().map_or(Out::NULL, Block::write),
        d_inverse_depths: d_inverse_depths.map_or(In::NULL, Block::read),
        d_surface: d_surface.map_or(In::NULL, Block::read),
        gradients: gradients.write(),
        d_features: d_features.map_or(Out::NULL, Block::write),
        ..lists((records.read(), features), bins, camera)
    };
    kept.lend(&mut args);
    kernel.blocks(&session.stream, bins.extent.chunks_max(), &args)
}

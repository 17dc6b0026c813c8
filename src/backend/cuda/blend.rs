//! Stage `blend`: splats to pixels front to back, and pixel gradients back to splats.

use super::bin::Bins;
use super::heap::{Block, Buffer};
use super::project::Splats;
use super::session::Session;
use super::timers::Stage;
use crate::abi::{BLEND_BLOCK, BLEND_CHUNK, BLEND_PARTS, BlendArgs, Camera, In, Out};
use crate::backend::{DeviceError, Pass, RenderSettings};
use crate::memory::Bytes;

/// A drawn image with what the backward pass starts from.
pub(super) struct Canvas {
    /// Colours with the background, [height, width, 3].
    pub(super) image: Block<f32>,
    /// Splats that changed each pixel; [height, width].
    pub(super) blended: Option<Block<u32>>,
    /// For the backward pass.
    pub(super) kept: Option<Kept>,
}

impl Canvas {
    pub(super) fn bytes(&self) -> Bytes {
        let blended = self.blended.as_ref().map_or(Bytes::default(), Block::bytes);
        let kept = self.kept.as_ref().map_or(Bytes::default(), |k| k.bytes());
        self.image.bytes() + blended + kept
    }
}

/// What the forward pass keeps for the backward pass.
pub(super) struct Kept {
    /// Instances that each part of a tile looked at; [tiles, parts].
    pub(super) reached: Block<u32>,
    /// State of a tile's pixels before each chunk of its list but the first.
    states: Block<f32>,
    /// Which instances reach which part of their tile, a bit each; [words, parts].
    pub(super) hits: Block<u32>,
    /// Tile and number of each chunk that pixels got to; [chunks, 2].
    chunks: Block<u32>,
    /// The number of chunks; `[1]`.
    chunk_count: Block<u32>,
}

impl Kept {
    fn reserve(session: &Session, bins: &Bins) -> Result<Self, DeviceError> {
        let heap = &session.heap;
        let mut kept = Self {
            reached: heap.scratch("parts of tiles", bins.tiles * BLEND_PARTS as usize)?,
            states: heap.scratch("states of pixels", states_len(bins))?,
            hits: heap.scratch("hits", hits_len(bins))?,
            chunks: heap.scratch("chunks", bins.chunks_max * 2)?,
            chunk_count: heap.scratch("chunks", 1)?,
        };
        kept.chunk_count.zero(&session.stream)?;
        Ok(kept)
    }

    fn bytes(&self) -> Bytes {
        self.reached.bytes()
            + self.states.bytes()
            + self.hits.bytes()
            + self.chunks.bytes()
            + self.chunk_count.bytes()
    }

    /// Hands it to a kernel that fills or reads it.
    fn lend<'a>(&'a mut self, args: &mut BlendArgs<'a>) {
        args.reached = self.reached.write();
        args.states = self.states.write();
        args.hits = self.hits.write();
        args.chunks = self.chunks.write();
        args.chunk_count = self.chunk_count.write();
    }
}

/// Draws the image.
pub(super) fn forward(
    session: &mut Session,
    (splats, bins): (&Splats, &Bins),
    camera: &Camera,
    settings: &RenderSettings,
) -> Result<Canvas, DeviceError> {
    let pixels = camera.size[0] as usize * camera.size[1] as usize;
    let kept = match settings.pass {
        Pass::Eval | Pass::Picture => None,
        Pass::Train | Pass::Observe => Some(Kept::reserve(session, bins)?),
    };
    let mut canvas = Canvas {
        image: session.heap.scratch("image", pixels * 3)?,
        blended: match settings.pass {
            Pass::Picture => Some(session.heap.scratch("pixels", pixels)?),
            Pass::Eval | Pass::Train | Pass::Observe => None,
        },
        kept,
    };
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let kernel = match settings.pass {
        Pass::Picture => &session.kernels.blend_counted,
        Pass::Eval | Pass::Train | Pass::Observe => &session.kernels.blend_fwd,
    };
    let mut args = BlendArgs {
        image: canvas.image.write(),
        blended: canvas.blended.as_mut().map_or(Out::NULL, Block::write),
        background: settings.background,
        ..lists(&splats.records, bins, camera)
    };
    if let Some(kept) = &mut canvas.kept {
        kept.lend(&mut args);
    }
    kernel.blocks(&session.stream, bins.tiles, &args)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(canvas)
}

/// What both passes read: the splats and the tiles' lists of them. All else is null.
fn lists<'a>(records: &'a Block<f32>, bins: &'a Bins, camera: &Camera) -> BlendArgs<'a> {
    BlendArgs {
        splats: records.read(),
        splat_from_instance: bins.splat_from_instance.read(),
        ranges: bins.ranges.read(),
        chunks: Out::NULL,
        chunk_count: Out::NULL,
        states: Out::NULL,
        hits: Out::NULL,
        image: Out::NULL,
        reached: Out::NULL,
        blended: Out::NULL,
        d_image: In::NULL,
        gradients: Out::NULL,
        size: camera.size,
        background: [0.0; 3],
        tiles_wide: camera.tiles[0],
    }
}

/// Two starts of chunks lie a chunk's length apart or more.
fn states_len(bins: &Bins) -> usize {
    let starts = bins.splat_from_instance.len() / BLEND_CHUNK as usize + 1;
    starts * BLEND_BLOCK as usize * 4
}

/// A word per part for 32 instances; each tile's last may not be full.
fn hits_len(bins: &Bins) -> usize {
    let words = bins.splat_from_instance.len() / u32::BITS as usize + bins.tiles + 1;
    words * BLEND_PARTS as usize
}

/// Gradients of every splat from the gradient of the image, in the splats' own room for them.
pub(super) fn backward(
    session: &mut Session,
    (splats, bins): (&mut Splats, &Bins),
    camera: &Camera,
    (canvas, d_image): (&mut Canvas, &Block<f32>),
) -> Result<(), DeviceError> {
    let Some(kept) = &mut canvas.kept else { return Err(DeviceError::NoLoss) };
    let begun = session.timers.begin(Stage::BlendBackward, &session.stream)?;
    splats.gradients.zero(&session.stream)?;
    let mut args = BlendArgs {
        image: canvas.image.write(),
        d_image: d_image.read(),
        gradients: splats.gradients.write(),
        ..lists(&splats.records, bins, camera)
    };
    kept.lend(&mut args);
    session.kernels.blend_bwd.blocks(&session.stream, bins.chunks_max, &args)?;
    session.timers.end(&begun, &session.stream)
}

//! Stage `blend`: splats to pixels front to back, and pixel gradients back to splats.

use super::bin::Bins;
use super::project::{DrawnView, Features, Splats, window};
use crate::abi::BlendArgs;
use crate::backend::cuda::device::launch::{BlendKernels, Kernel};
use crate::backend::cuda::memory::heap::host_len;
use crate::backend::cuda::prelude::*;
use crate::backend::{ColorRoom, Compensation, DrawSettings, Statistics};
use crate::layout::{self, ColorUse, Records, Taken, Use, ViewRequest, ViewSizes};

/// A drawn image and the inputs of its backward pass.
pub(crate) struct Canvas {
    /// Colours with the background, [height, width, 3].
    pub(crate) image: Block<f32>,
    /// Number of splats that changed each pixel; [height, width].
    pub(crate) blended: Option<Block<u32>>,
    /// Sums of the weights over the depths, per world unit; [height, width].
    pub(crate) inverse_depths: Option<Block<f32>>,
    /// Sums of the weights over the squares of the depths; [height, width].
    pub(crate) inverse_squares: Option<Block<f32>>,
    /// Depth, x and y of the normal, opacity; [height, width, 4].
    pub(crate) surface: Option<Block<f32>>,
    /// Depths at which half of the light is stopped; [height, width].
    pub(crate) median_depths: Option<Block<f32>>,
    pub(crate) kept: Option<BackwardState>,
}

impl Canvas {
    /// Allocates an image before any tile is drawn.
    pub(crate) fn reserve(heap: &Heap, sizes: &ViewSizes, request: &ViewRequest) -> Result<Self> {
        let layout::CanvasSlots {
            image,
            blended,
            inverse_depths,
            inverse_squares,
            maps: surface,
            median_depths,
        } = layout::CanvasSlots::reserve(heap, sizes, request)?;
        let kept = None;
        Ok(Self { image, blended, inverse_depths, inverse_squares, surface, median_depths, kept })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let Self { inverse_depths, inverse_squares, surface, median_depths, .. } = self;
        let maps = [inverse_depths, inverse_squares, surface, median_depths].map(Taken::bytes);
        let kept = self.kept.as_ref().map_or(0, BackwardState::bytes);
        let beside = self.blended.bytes() + maps.iter().sum::<u64>() + kept;
        self.image.bytes() + Bytes(beside)
    }
}

/// The state that the forward pass leaves for the backward pass.
pub(crate) type BackwardState = layout::BackwardSlots<Heap>;

/// Passes the state to a kernel that fills or reads it.
fn pass_state<'a>(kept: &'a mut BackwardState, args: &mut BlendArgs<'a>) {
    args.reached = kept.reached.write();
    args.states = kept.states.write();
    args.depth_states = kept.depth_states.as_mut().map_or(Out::NULL, Block::write);
    args.surface_states = kept.map_states.as_mut().map_or(Out::NULL, Block::write);
    args.hits = kept.hits.write();
    args.chunks = kept.chunks.write();
    args.chunk_count = kept.chunk_count.write();
}

/// Returns the request of a drawing.
pub(crate) fn request(settings: &DrawSettings) -> ViewRequest {
    let of_colors = |room| match room {
        ColorRoom::Corrected => ColorUse::Fit,
        ColorRoom::Learned(Compensation::Exposure) => ColorUse::Exposure,
        ColorRoom::Learned(Compensation::BilateralGrid) => ColorUse::Grid,
    };
    ViewRequest {
        drawn_for: match settings {
            DrawSettings { trains: true, .. } => Use::Backward,
            DrawSettings { counts: true, .. } => Use::Counts,
            DrawSettings { .. } => Use::Image,
        },
        records: settings.footprint.records(),
        inverse_depths: settings.inverse_depths,
        inverse_squares: settings.inverse_squares,
        maps: settings.surface,
        median: settings.median,
        colors: settings.colors.map(of_colors),
        divisor: settings.divisor,
    }
}

/// Inputs of the backward pass.
pub(crate) struct Pixels<'a> {
    pub(crate) canvas: &'a mut Canvas,
    /// Gradient of the image; [height, width, 3].
    pub(crate) d_image: &'a Block<f32>,
    /// Gradient of the inverse depths; [height, width].
    pub(crate) d_inverse_depths: Option<&'a Block<f32>>,
    /// Gradient of the squared inverse depths; [height, width].
    pub(crate) d_inverse_squares: Option<&'a Block<f32>>,
    /// Gradient of the surface's maps; [height, width, 4].
    pub(crate) d_surface: Option<&'a Block<f32>>,
    /// Gradient of the median depths; [height, width].
    pub(crate) d_median_depths: Option<&'a Block<f32>>,
    /// Largest weights of triangles, `[faces]`; null if they are not observed.
    pub(crate) face_weights: Out<'a, f32>,
}

/// Draws the listed tiles.
pub(crate) fn forward(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    DrawnView { camera, settings }: DrawnView<'_>,
    canvas: &mut Canvas,
) -> Result {
    if let Some(mut kept) =
        BackwardState::reserve_if_kept(&session.heap, &bins.extent.sizes(None), &request(settings))?
    {
        kept.chunk_count.zero(&session.stream)?;
        canvas.kept = Some(kept);
    }
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let kernels = session.kernels.blend(splats.kind)?;
    let kernel = match settings {
        DrawSettings { counts: true, .. } => kernels.blend_counted,
        DrawSettings { surface: true, .. } => kernels.blend_fwd_surface,
        DrawSettings { inverse_depths: true, .. } => kernels.blend_fwd_depth,
        DrawSettings { .. } => kernels.blend_fwd,
    };
    // Stage `rays` finds those of ellipses.
    let median_depths = canvas.median_depths.as_mut().filter(|_| splats.kind == Records::Surfels);
    let mut args = BlendArgs {
        image: canvas.image.write(),
        blended: canvas.blended.as_mut().map_or(Out::NULL, Block::write),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        inverse_squares: canvas.inverse_squares.as_mut().map_or(Out::NULL, Block::write),
        surface: canvas.surface.as_mut().map_or(Out::NULL, Block::write),
        median_depths: median_depths.map_or(Out::NULL, Block::write),
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        ..lists(splats.records.read(), splats.features.as_ref().map(|f| &f.values), bins, camera)
    };
    if let Some(kept) = &mut canvas.kept {
        pass_state(kept, &mut args);
    }
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Returns arguments with the splats and the tiles' lists; all else is null.
pub(super) fn lists<'a>(
    records: In<'a, f32>,
    features: Option<&'a Block<f32>>,
    bins: &'a Bins,
    camera: &ViewCamera,
) -> BlendArgs<'a> {
    BlendArgs {
        splats: records,
        features: features.map_or(In::NULL, Block::read),
        splat_from_instance: bins.splat_from_instance.read(),
        ranges: bins.ranges.read(),
        size: camera.size,
        tiles_wide: camera.tiles[0],
        ..BlendArgs::default()
    }
}

/// Returns the kernel for the drawn maps and the observed statistics. Surface states include inverse depths.
fn backward_kernel<'a>(
    kernels: &BlendKernels<'a>,
    [surface, inverse_depths]: [bool; 2],
    observed: Option<Statistics>,
) -> &'a Kernel<BlendArgs<'static>> {
    let [plain, absolute, squares] = match (surface, inverse_depths) {
        (true, _) => kernels.blend_bwd_surface,
        (false, true) => kernels.blend_bwd_depth,
        (false, false) => kernels.blend_bwd,
    };
    match observed {
        None | Some(Statistics::Norms) => plain,
        Some(Statistics::AbsoluteNorms | Statistics::Both) => absolute,
        Some(Statistics::Disagreement) => squares,
    }
}

/// Adds the gradients from the pixels of the listed tiles.
pub(crate) fn add_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    view: DrawnView<'_>,
    pixels: &mut Pixels<'_>,
) -> Result {
    let DrawnView { camera, settings } = view;
    let Pixels { canvas, d_image, d_inverse_depths, d_inverse_squares, d_surface, .. } = pixels;
    let Some(kept) = &mut canvas.kept else { return Err(DeviceError::NoView) };
    let kernels = session.kernels.blend(splats.kind)?;
    let Splats { records, gradients, features, .. } = splats;
    let (features, d_features) = match features {
        Some(Features { values, gradients }) => (Some(&*values), gradients.as_mut()),
        None => (None, None),
    };
    let drawn = [d_features.is_some(), d_inverse_depths.is_some()];
    let kernel = backward_kernel(&kernels, drawn, settings.observe);
    let mut args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        inverse_squares: canvas.inverse_squares.as_mut().map_or(Out::NULL, Block::write),
        d_image: d_image.read(),
        surface: canvas.surface.as_mut().map_or(Out::NULL, Block::write),
        d_inverse_depths: d_inverse_depths.map_or(In::NULL, Block::read),
        d_inverse_squares: d_inverse_squares.map_or(In::NULL, Block::read),
        d_surface: d_surface.map_or(In::NULL, Block::read),
        gradients: gradients.write(),
        d_features: d_features.map_or(Out::NULL, Block::write),
        ..lists(records.read(), features, bins, camera)
    };
    pass_state(kept, &mut args);
    kernel.blocks(&session.stream, host_len(bins.extent.sizes(None).chunks_max()), &args)
}

/// Draws the listed tiles of triangles.
pub(crate) fn forward_triangles(
    session: &Session,
    splats: &Splats,
    bins: &Bins,
    DrawnView { camera, settings }: DrawnView<'_>,
    canvas: &mut Canvas,
) -> Result {
    let window = window(settings.footprint).ok_or(DeviceError::NoView)?;
    let begun = session.timers.begin(Stage::BlendForward, &session.stream)?;
    let args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        window_exponent: f32::of(window.exponent),
        ..lists(splats.records.read(), None, bins, camera)
    };
    let [kernel, _] = session.kernels.of_triangles(window.samples);
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)?;
    session.timers.end(&begun, &session.stream)
}

/// Adds the gradients of triangles from the pixels of the listed tiles. Needs the lists and, with one sample per pixel,
/// the image. Raises the faces' weights if these are observed.
pub(crate) fn add_triangle_gradients(
    session: &Session,
    splats: &mut Splats,
    bins: &Bins,
    DrawnView { camera, settings }: DrawnView<'_>,
    Pixels { canvas, d_image, d_inverse_depths, face_weights, .. }: &mut Pixels<'_>,
) -> Result {
    let window = window(settings.footprint).ok_or(DeviceError::NoView)?;
    let Splats { records, gradients, .. } = splats;
    let args = BlendArgs {
        image: canvas.image.write(),
        inverse_depths: canvas.inverse_depths.as_mut().map_or(Out::NULL, Block::write),
        d_image: d_image.read(),
        d_inverse_depths: d_inverse_depths.map_or(In::NULL, Block::read),
        gradients: gradients.write(),
        face_weights: *face_weights,
        background: settings.background,
        first_tile: bins.extent.rows.start * camera.tiles[0],
        window_exponent: f32::of(window.exponent),
        strip_px: f32::of(window.strip_px),
        ..lists(records.read(), None, bins, camera)
    };
    let [_, kernel] = session.kernels.of_triangles(window.samples);
    kernel.blocks(&session.stream, bins.extent.tiles_listed(), &args)
}

//! A drawn view: what it holds, and what is known of it in every state.

use std::marker::PhantomData;

use crate::abi::ViewCamera;
use crate::abi::terms::{Inputs, Terms};
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::photos::Target;
use crate::backend::cuda::session::Session;
use crate::backend::cuda::stage::appearance::ColorScratch;
use crate::backend::cuda::stage::bands::Lists;
use crate::backend::cuda::stage::blend::{self, Canvas};
use crate::backend::cuda::stage::loss;
use crate::backend::cuda::stage::project::Splats;
use crate::backend::cuda::stage::sampled_depths::DepthMap;
use crate::backend::cuda::stage::shrink::Shrunk;
use crate::backend::frame_state::{Drawn, FrameState};
use crate::backend::{DeviceError, Drawing, Held, Measured, Rendered};
use crate::layout::{Use, ViewRequest};
use crate::math::Divisor;
use crate::memory::Bytes;
use crate::memory::plan::{PlannedViews, ViewGrowth, ViewSize};
use crate::model::Gaussians;

/// A drawn view and what the backward pass needs of it.
pub struct Frame<S: FrameState = Drawn, P = Gaussians> {
    /// Of a frame that is trained on.
    pub(super) d_image: Option<Block<f32>>,
    pub(super) d_inverse_depths: Option<Block<f32>>,
    /// Of the squares of the inverse depths, where the spread along rays is found.
    pub(super) d_inverse_squares: Option<Block<f32>>,
    /// Of the surface's maps, [height, width, 4], where they are drawn.
    pub(super) d_surface: Option<Block<f32>>,
    /// Of the median depths, where they are compared.
    pub(super) d_median_depths: Option<Block<f32>>,
    pub(super) kept: S::Kept<Scores>,
    /// Room for other colours than those drawn.
    pub(super) colors: Option<ColorScratch>,
    /// Room for its photograph, where that is larger.
    pub(super) shrunk: Option<Shrunk>,
    pub(in crate::backend::cuda) canvas: Canvas,
    pub(in crate::backend::cuda) lists: Lists,
    pub(in crate::backend::cuda) splats: Splats,
    pub(in crate::backend::cuda) camera: ViewCamera,
    pub(super) settings: Drawing,
    pub(super) primitive: PhantomData<P>,
}

/// What a comparison leaves for the backward pass.
pub(in crate::backend::cuda) struct Scores {
    pub(super) terms: Terms,
    /// Whether a gradient of the inverse depths was found: the photograph has a map of them, or the
    /// spread along rays is looked at.
    pub(super) has_inverse_depths: bool,
    /// Whether that of the surface's maps was.
    pub(super) has_surface: bool,
    /// The depths that samples are compared with.
    pub(super) depth_map: Option<DepthMap>,
}

impl<S: FrameState, P> Frame<S, P> {
    /// The colours that are compared with the photograph.
    fn compared(&self) -> &Block<f32> {
        let changed = self.colors.as_ref().and_then(ColorScratch::image);
        changed.unwrap_or(&self.canvas.image)
    }

    pub(in crate::backend::cuda) fn measure(
        &self,
        session: &mut Session,
        target: &Target,
    ) -> Result<Measured, DeviceError> {
        loss::measure(session, self.compared(), &self.camera, target)
    }

    /// The same in another state, with what that keeps, and what this one kept.
    pub(super) fn into_state<T: FrameState>(
        self,
        kept: impl FnOnce(S::Kept<Scores>) -> T::Kept<Scores>,
    ) -> Frame<T, P> {
        let Self { d_image, d_inverse_depths, d_inverse_squares, .. } = self;
        let Self { d_surface, d_median_depths, .. } = self;
        let Self { colors, shrunk, .. } = self;
        let Self { canvas, lists, splats, camera, settings, primitive, .. } = self;
        Frame {
            d_image,
            d_inverse_depths,
            d_inverse_squares,
            d_surface,
            d_median_depths,
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

    /// Waits for the device.
    pub(in crate::backend::cuda) fn image(
        &self,
        session: &Session,
    ) -> Result<Rendered, DeviceError> {
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
        let map = |map: &Option<Block<f32>>| {
            let Some(map) = map else { return Ok(None) };
            let mut host = vec![0.0; map.len()];
            map.download(&session.stream, 0, &mut host)?;
            Ok::<_, DeviceError>(Some(host))
        };
        let inverse_depths = map(&self.canvas.inverse_depths)?;
        let inverse_squares = map(&self.canvas.inverse_squares)?;
        let surface = map(&self.canvas.surface)?;
        let median_depths = map(&self.canvas.median_depths)?;
        let [width, height] = self.camera.size;
        Ok(Rendered {
            width,
            height,
            rgb,
            blended,
            inverse_depths,
            inverse_squares,
            surface,
            median_depths,
        })
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

    /// The view as a plan has it when it is trained on: of this number of Gaussians, with all that terms
    /// need, at once or in bands.
    pub(in crate::backend::cuda) fn planned(
        &self,
        gaussians: usize,
        inputs: Inputs,
        in_bands: bool,
    ) -> PlannedViews {
        let view = self.view_size(gaussians as u64);
        PlannedViews::one(&view, self.training_wants(inputs), in_bands)
    }

    /// What it shows of so many Gaussians: at the size of its photograph, which views of a run that
    /// are drawn smaller will have later.
    fn view_size(&self, gaussians: u64) -> ViewSize {
        let (px, divisor) = (self.camera.size, self.settings.divisor);
        let (visible, instances) = (self.splats.visible as u64, self.splats.instances);
        let drawn = ViewSize { px, visible, instances };
        if divisor == Divisor::One {
            return drawn;
        }
        // With the most that fills no square.
        let full = px.map(|side| (side + 1).saturating_mul(divisor.get()) - 1);
        ViewGrowth::counted(gaussians, &drawn).resized(full).of(gaussians)
    }

    /// What it is drawn for, and with all that terms need, with a backward pass where there is none, at
    /// the size of its photograph.
    fn training_wants(&self, inputs: Inputs) -> ViewRequest {
        let divisor = Divisor::One;
        let wants =
            ViewRequest { drawn_for: Use::Backward, divisor, ..blend::wants(&self.settings) };
        wants.beside(self.settings.inputs().and(inputs))
    }

    /// Whether it is drawn without some of what terms need.
    pub(in crate::backend::cuda) fn lacks(&self, inputs: Inputs) -> bool {
        let drawn = self.settings.inputs();
        drawn.and(inputs) != drawn
    }

    /// Whether it is smaller than its photograph.
    pub(in crate::backend::cuda) fn is_divided(&self) -> bool {
        self.settings.divisor != Divisor::One
    }

    /// Bytes of the gradients of the image and of what is drawn beside it.
    fn gradients_of_pixels(&self) -> Bytes {
        let Self { d_image, d_inverse_depths, d_inverse_squares, .. } = self;
        let of_rays = [d_image, d_inverse_depths, d_inverse_squares];
        let of_surface = [&self.d_surface, &self.d_median_depths];
        of_rays.into_iter().chain(of_surface).flatten().map(Block::bytes).sum()
    }
}

impl<S: FrameState, P> Held for Frame<S, P> {
    fn bytes(&self) -> Bytes {
        let compensated = self.colors.as_ref().map_or(Bytes::default(), ColorScratch::bytes);
        let lists = self.lists.bytes();
        let shrunk = self.shrunk.as_ref().map_or(Bytes::default(), Shrunk::bytes);
        let beside = self.gradients_of_pixels() + compensated + shrunk;
        let depth_map = S::kept(&self.kept).and_then(|scores| scores.depth_map.as_ref());
        let depth_map = depth_map.map_or(Bytes::default(), DepthMap::bytes);
        self.canvas.bytes() + lists + self.splats.bytes() + beside + depth_map
    }
}

//! Stage `surface`, what a view's depths say: the surface that they show and which Gaussians are near
//! it. The twin of `backend/cpu/stage/sampled_depths.rs`.

use super::project::Splats;
use crate::abi::{In, NearArgs, Out, ShowArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::error::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::memory::sort::exclusive_sum;
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::primitive::CudaPrimitive;
use crate::backend::cuda::session::Session;
use crate::layout::{NearRows, Samples, ViewSizes};
use crate::memory::Bytes;

/// The depths that a view shows.
pub(crate) struct DepthMap {
    /// Depths over that of the farthest splat, world units along the view axis; [height, width].
    pub(crate) depths: Block<f32>,
    /// The bits of that; `[1]`.
    pub(crate) farthest: Block<u32>,
}

/// The Gaussians that samples are taken of.
pub(crate) struct Sampled {
    /// Ascending; `[visible]`, of which so many are filled as `total` says.
    pub(crate) rows: Block<u32>,
    /// `[1]`
    pub(crate) total: Block<u32>,
}

impl DepthMap {
    /// Of a view's surface maps.
    pub(crate) fn new(
        session: &Session,
        splats: &Splats,
        sizes: &ViewSizes,
        surface: &Block<f32>,
    ) -> Result<Self, DeviceError> {
        let (heap, stream) = (&session.heap, &session.stream);
        let pixels = surface.len() / 4;
        let Samples { mut depths, mut farthest } = Samples::reserve(heap, sizes)?;
        farthest.zero(stream)?;
        let args = ShowArgs {
            splats: splats.records.read(),
            surface: surface.read(),
            farthest: farthest.write(),
            depths: depths.write(),
            visible: count_u32(splats.visible)?,
            pixels: count_u32(pixels)?,
        };
        session.kernels.find_farthest.over(stream, splats.visible, &args)?;
        session.kernels.show_depths.over(stream, pixels, &args)?;
        Ok(Self { depths, farthest })
    }

    /// Those of the Gaussians that the view sees which are near the surface that it shows.
    pub(crate) fn near<P: CudaPrimitive>(
        &self,
        session: &Session,
        model: &Model<P>,
        splats: &Splats,
        camera: &ViewCamera,
    ) -> Result<Sampled, DeviceError> {
        let (heap, stream, gaussians) = (&session.heap, &session.stream, model.len());
        let NearRows { mut rows, mut total, mut masks, counts: [mut counts, mut firsts] } =
            NearRows::reserve(heap, &splats.sizes(gaussians, camera))?;
        let lane_blocks = counts.len();
        total.zero(stream)?;
        let args = NearArgs {
            geometry: model.geometry(),
            splat_from_gaussian: splats.splat_from_gaussian.read(),
            depths: self.depths.read(),
            masks: masks.write(),
            counts: counts.write(),
            firsts: In::NULL,
            rows: Out::NULL,
            total: Out::NULL,
            camera: *camera,
            n: count_u32(gaussians)?,
            seen: count_u32(splats.visible)?,
        };
        session.kernels.count_near.over(stream, gaussians, &args)?;
        exclusive_sum(heap, stream, lane_blocks, &counts, &mut firsts)?;
        let args = NearArgs {
            geometry: model.geometry(),
            splat_from_gaussian: splats.splat_from_gaussian.read(),
            depths: self.depths.read(),
            masks: masks.write(),
            counts: Out::NULL,
            firsts: firsts.read(),
            rows: rows.write(),
            total: total.write(),
            camera: *camera,
            n: count_u32(gaussians)?,
            seen: count_u32(splats.visible)?,
        };
        session.kernels.list_near.over(stream, gaussians, &args)?;
        Ok(Sampled { rows, total })
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.depths.bytes() + self.farthest.bytes()
    }
}

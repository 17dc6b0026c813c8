//! Stage `weights`: the blend weight of each Gaussian in the views. The twin of `backend/cpu/stage/weights.rs`.

use super::project::Splats;
use crate::abi::{AddWeightsArgs, WhitenArgs};
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::model::tables::Model;
use crate::backend::cuda::session::Session;
use crate::model::Primitive;

/// Prepares a backward pass that yields blend weights: sets all colours and the gradients of all pixels to 1.
pub(crate) fn prepare(
    session: &Session,
    splats: &mut Splats,
    d_image: &mut Block<f32>,
) -> Result<(), DeviceError> {
    let Splats { visible, records, kind, .. } = splats;
    let record_width = kind.width();
    let args = WhitenArgs { splats: records.write(), visible: count_u32(*visible)?, record_width };
    session.kernels.whiten.over(&session.stream, *visible, &args)?;
    d_image.fill_words(&session.stream, 1.0_f32.to_bits())
}

/// Adds the view's weights to the sums, which lie in the place of the gradient norms.
pub(crate) fn add<P: Primitive>(
    session: &Session,
    model: &mut Model<P>,
    splats: &Splats,
) -> Result<(), DeviceError> {
    let gaussians = splats.splat_from_gaussian.len();
    let args = AddWeightsArgs {
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        gradients: splats.gradients.read(),
        weights: model.gradient_norm_sums.write(),
        gaussians: count_u32(gaussians)?,
        record_width: splats.kind.width(),
    };
    session.kernels.add_weights.over(&session.stream, gaussians, &args)
}

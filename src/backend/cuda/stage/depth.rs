//! The loss of inverse depths: L1 against the photograph's map, and its gradient.

use crate::abi::terms::VALUE_DEPTH_L1;
use crate::abi::{DepthLossArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::driver::count_u32;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::photos::{Photograph, check_size};
use crate::backend::cuda::session::Session;

/// Writes the gradient of inverse depths and the sum of absolute errors. Returns false without a map.
pub(crate) fn compare(
    session: &mut Session,
    inverse_depths: &Block<f32>,
    camera: &ViewCamera,
    target: &Photograph<'_>,
    weight: f64,
    d_inverse_depths: &mut Block<f32>,
) -> Result<bool, DeviceError> {
    check_size(target.size, camera.size)?;
    let Some((map, [scale, offset])) = target.depth else { return Ok(false) };
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    target.wait(&session.stream)?;
    let pixels = inverse_depths.len();
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    let args = DepthLossArgs {
        inverse_depths: inverse_depths.read(),
        target: map,
        mask: target.mask,
        d_inverse_depths: d_inverse_depths.write(),
        sum: session.status.sum(VALUE_DEPTH_L1),
        pixels: count_u32(pixels)?,
        scale,
        offset,
        d_error: (weight / pixels as f64) as f32,
    };
    session.kernels.depth_loss.over(&session.stream, pixels, &args)?;
    target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(true)
}

//! Stage `normal_map`: the photograph's normals. The twin of `backend/cpu/stage/normal_map.rs`.

use splat_mesh::narrow::to_f32;

use crate::abi::terms::VALUE_NORMAL_MAP;
use crate::abi::{self, NORMALS_SIDE, NormalMapArgs, ViewCamera};
use crate::backend::DeviceError;
use crate::backend::cuda::device::timers::Stage;
use crate::backend::cuda::memory::heap::{Block, Buffer};
use crate::backend::cuda::photos::Photograph;
use crate::backend::cuda::session::Session;
use crate::math::Real;
use crate::math::normals::STORED_SQUARE_MIN;

// The kernel's constant equals the host's.
const _: () = assert!(
    abi::STORED_SQUARE_MIN.to_bits() == to_f32(STORED_SQUARE_MIN).to_bits(),
    "the least that is a normal"
);

/// Adds the weighted gradient of the normals of inverse depths. Returns false without a map of the photograph.
pub(crate) fn compare(
    session: &mut Session,
    inverse_depths: &Block<f32>,
    camera: &ViewCamera,
    target: &Photograph<'_>,
    weight: f64,
    d_inverse_depths: &mut Block<f32>,
) -> Result<bool, DeviceError> {
    let Some(map) = target.normals else { return Ok(false) };
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    target.wait(&session.stream)?;
    let pixels = f64::from(camera.size[0]) * f64::from(camera.size[1]);
    let args = NormalMapArgs {
        inverse_depths: inverse_depths.read(),
        target: map,
        mask: target.mask,
        d_inverse_depths: d_inverse_depths.write(),
        sum: session.status.sum(VALUE_NORMAL_MAP),
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: camera.size,
        d_mean: f32::of(weight / pixels),
        reserved: 0,
    };
    let squares = camera.size.map(|side| side.div_ceil(NORMALS_SIDE) as usize);
    let blocks = squares[0] * squares[1];
    session.kernels.compare_normal_map.blocks(&session.stream, blocks, &args)?;
    target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(true)
}

//! Stage `depth`: losses of the drawn inverse depths: L1 against the photograph's map, and the spread along rays.

use splat_mesh::narrow::to_f32;

use crate::abi::terms::{VALUE_DEPTH_L1, VALUE_DISTORTION};
use crate::abi::{self, DepthLossArgs, DistortionArgs};
use crate::backend::cuda::photos::{Photograph, check_size};
use crate::backend::cuda::prelude::*;
use crate::math::distortion::{FAR, NEAR};

/// Writes the gradient of inverse depths and the sum of absolute errors. Returns false without a map.
pub(crate) fn compare(
    session: &mut Session,
    inverse_depths: &Block<f32>,
    camera: &ViewCamera,
    target: &Photograph<'_>,
    weight: f64,
    d_inverse_depths: &mut Block<f32>,
) -> Result<bool> {
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

// The kernel's constants equal the host's.
const _: () = {
    assert!(
        abi::DISTORTION_NEAR.to_bits() == to_f32(NEAR).to_bits(),
        "the depth that is mapped to 0"
    );
    assert!(
        abi::DISTORTION_FAR.to_bits() == to_f32(FAR).to_bits(),
        "the depth that is mapped to 1"
    );
};

/// The drawn maps.
#[derive(Clone, Copy)]
pub(crate) struct RayMaps<'a> {
    /// [height, width]
    pub(crate) inverse_depths: &'a Block<f32>,
    /// [height, width]
    pub(crate) inverse_squares: &'a Block<f32>,
    /// Depth, x and y of the normal, opacity; [height, width, 4].
    pub(crate) surface: &'a Block<f32>,
}

/// Gradients of the maps. The first and the last are added to.
pub(crate) struct RayMapGradients<'a> {
    /// [height, width]
    pub(crate) inverse_depths: &'a mut Block<f32>,
    /// [height, width]
    pub(crate) inverse_squares: &'a mut Block<f32>,
    /// [height, width, 4]; the last channel is the gradient of the final transmittance.
    pub(crate) surface: &'a mut Block<f32>,
}

/// Measures all rays except those that the photograph's mask excludes, and adds their weighted gradients.
pub(crate) fn measure_distortion(
    session: &mut Session,
    drawn: RayMaps<'_>,
    RayMapGradients { inverse_depths, inverse_squares, surface }: RayMapGradients<'_>,
    target: &Photograph<'_>,
    weight: f64,
) -> Result {
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    target.wait(&session.stream)?;
    let pixels = drawn.inverse_squares.len();
    let args = DistortionArgs {
        inverse_depths: drawn.inverse_depths.read(),
        inverse_squares: drawn.inverse_squares.read(),
        surface: drawn.surface.read(),
        mask: target.mask,
        d_inverse_depths: inverse_depths.write(),
        d_inverse_squares: inverse_squares.write(),
        d_surface: surface.write(),
        sum: session.status.sum(VALUE_DISTORTION),
        pixels: count_u32(pixels)?,
        d_mean: f32::of(weight / pixels as f64),
    };
    session.kernels.measure_distortion.over(&session.stream, pixels, &args)?;
    target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)
}

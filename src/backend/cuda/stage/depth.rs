//! Stage `depth`: losses of the drawn inverse depths: L1 against the photograph's map, and the spread along rays.

use splat_mesh::narrow::to_f32;

use super::blend::Canvas;
use crate::abi::terms::{Terms, VALUE_DEPTH_L1, VALUE_DISTORTION};
use crate::abi::{self, DepthLossArgs, DistortionArgs};
use crate::backend::cuda::photos::{Photograph, check_size};
use crate::backend::cuda::prelude::*;
use crate::layout::PixelGradients;
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

/// Gradients of maps that a frame's terms have written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) inverse_depths: bool,
    /// Gradients of the surface's maps.
    pub(crate) surface: bool,
}

/// Clears a gradient that no term has written, and marks it as written.
fn make_ready(session: &Session, gradient: &mut Block<f32>, is_written: &mut bool) -> Result {
    if !std::mem::replace(is_written, true) {
        gradient.zero(&session.stream)?;
    }
    Ok(())
}

/// Evaluates the terms of inverse depths that need no map of the photograph, except at pixels that its mask excludes.
/// Adds the weighted gradients to those that have been written.
pub(crate) fn score_rays(
    session: &mut Session,
    canvas: &Canvas,
    target: &Photograph<'_>,
    terms: &Terms,
    (gradients, written): (&mut PixelGradients<Heap>, &mut Written),
) -> Result {
    let distortion = terms.weight(VALUE_DISTORTION);
    // Without the term there is no gradient of the squares.
    gradients.inverse_squares.take_if(|_| distortion == 0.0);
    measure_distortion(session, canvas, target, distortion, (gradients, written))
}

/// Adds the distortion of rays and its gradients. The last channel of the maps' gradient is that of the final
/// transmittance.
fn measure_distortion(
    session: &mut Session,
    canvas: &Canvas,
    target: &Photograph<'_>,
    weight: f64,
    (gradients, written): (&mut PixelGradients<Heap>, &mut Written),
) -> Result {
    let Canvas {
        inverse_depths: Some(inverse_depths),
        inverse_squares: Some(inverse_squares),
        surface: Some(surface),
        ..
    } = canvas
    else {
        return Ok(());
    };
    let PixelGradients {
        inverse_depths: Some(d_inverse_depths),
        inverse_squares: Some(d_inverse_squares),
        maps: Some(d_surface),
        ..
    } = gradients
    else {
        return Ok(());
    };
    make_ready(session, d_inverse_depths, &mut written.inverse_depths)?;
    make_ready(session, d_surface, &mut written.surface)?;
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    target.wait(&session.stream)?;
    let pixels = inverse_squares.len();
    let args = DistortionArgs {
        inverse_depths: inverse_depths.read(),
        inverse_squares: inverse_squares.read(),
        surface: surface.read(),
        mask: target.mask,
        d_inverse_depths: d_inverse_depths.write(),
        d_inverse_squares: d_inverse_squares.write(),
        d_surface: d_surface.write(),
        sum: session.status.sum(VALUE_DISTORTION),
        pixels: count_u32(pixels)?,
        d_mean: f32::of(weight / pixels as f64),
    };
    session.kernels.measure_distortion.over(&session.stream, pixels, &args)?;
    target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)
}

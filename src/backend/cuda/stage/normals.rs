//! Stage `normals`: the splats' surface features, and the comparison of the normals of depths with drawn normals or
//! with those of the photograph.

use splat_mesh::narrow::to_f32;

use super::blend::Canvas;
use super::project::{Features, Splats};
use crate::abi::terms::{NormalDepths, Term, Terms, VALUE_DN, VALUE_NORMAL_MAP, Weighted};
use crate::abi::{self, FeaturesArgs, NORMALS_SIDE, NormalMapArgs, NormalsArgs};
use crate::backend::cuda::photos::Photograph;
use crate::backend::cuda::prelude::*;
use crate::layout::{PixelGradients, ViewRequest};
use crate::math::normals::STORED_SQUARE_MIN;

/// Computes the features of a view's splats, and allocates their gradients if a backward pass follows.
pub(crate) fn add_features<P: CudaPrimitive>(
    session: &Session,
    model: &Model<P>,
    camera: &ViewCamera,
    request: &ViewRequest,
    splats: &mut Splats,
) -> Result {
    let gaussians = model.len();
    let mut features = Features::reserve(&session.heap, &splats.sizes(gaussians, camera), request)?;
    let begun = session.timers.begin(Stage::Project, &session.stream)?;
    let args = FeaturesArgs {
        geometry: model.geometry(),
        splat_from_gaussian: splats.splat_from_gaussian.read(),
        splats: splats.records.read(),
        features: features.values.write(),
        camera: *camera,
        gaussians: count_u32(gaussians)?,
        record_width: splats.kind.width(),
    };
    session.kernels.splat_features.over(&session.stream, gaussians, &args)?;
    session.timers.end(&begun, &session.stream)?;
    splats.features = Some(features);
    Ok(())
}

/// Compares the maps' normals with those of depths, where the mask of the photograph, which has arrived, excludes
/// nothing. Writes the gradients of both. Returns false if no term compares the drawn normals.
pub(crate) fn compare(
    session: &mut Session,
    canvas: &Canvas,
    camera: &ViewCamera,
    target: &Photograph<'_>,
    terms: &Terms,
    gradients: &mut PixelGradients<Heap>,
) -> Result<bool> {
    let rule = terms.active().find_map(|&Weighted { term, weight }| match term {
        Term::DepthNormal { depths } => Some((depths, weight)),
        _ => None,
    });
    let PixelGradients { maps, median_depths, .. } = gradients;
    // Without a comparison there is no gradient of the medians.
    median_depths.take_if(|_| !terms.needs().median);
    let (Some((depths, weight)), Some(surface), Some(d_surface)) = (rule, &canvas.surface, maps)
    else {
        return Ok(false);
    };
    let medians = canvas.median_depths.as_ref().zip(median_depths.as_mut());
    let (medians, d_medians) = match medians.filter(|_| depths == NormalDepths::Median) {
        Some((medians, d_medians)) => (medians.read(), d_medians.write()),
        None => (In::NULL, Out::NULL),
    };
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    let pixels = f64::from(camera.size[0]) * f64::from(camera.size[1]);
    #[expect(clippy::cast_possible_truncation, reason = "rounded to the device's precision")]
    let args = NormalsArgs {
        surface: surface.read(),
        medians,
        d_medians,
        d_surface: d_surface.write(),
        mask: target.mask,
        sum: session.status.sum(VALUE_DN),
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: camera.size,
        d_mean: (weight / pixels) as f32,
        opaque: u32::from(depths != NormalDepths::All),
    };
    let squares = camera.size.map(|side| side.div_ceil(NORMALS_SIDE) as usize);
    let blocks = squares[0] * squares[1];
    session.kernels.compare_normals.blocks(&session.stream, blocks, &args)?;
    target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)?;
    Ok(true)
}

// The kernel's constant equals the host's.
const _: () = assert!(
    abi::STORED_SQUARE_MIN.to_bits() == to_f32(STORED_SQUARE_MIN).to_bits(),
    "the least that is a normal"
);

/// Adds the weighted gradient of the normals of inverse depths. Returns false without a map of the photograph.
pub(crate) fn compare_with_map(
    session: &mut Session,
    inverse_depths: &Block<f32>,
    camera: &ViewCamera,
    target: &Photograph<'_>,
    weight: f64,
    d_inverse_depths: &mut Block<f32>,
) -> Result<bool> {
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

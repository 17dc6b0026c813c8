//! Stage `patches`: patches of the photograph against their projections into another view's photograph.

use super::blend::Canvas;
use crate::abi::terms::{NormalDepths, Term, Terms, VALUE_MULTI_VIEW};
use crate::abi::{PATCH_STRIDE, PATCHES_BLOCK, PatchesArgs};
use crate::backend::cuda::photos::{Target, check_size};
use crate::backend::cuda::prelude::*;
use crate::backend::{OtherView, patches};
use crate::layout::PixelGradients;

/// Threads per patch.
const WARP: u32 = 32;

/// Compares the patches, and adds their weighted gradients to those of the maps, where they have been written, and of
/// the medians. Does nothing without gradients. The photograph has arrived.
pub(crate) fn compare(
    session: &mut Session,
    (canvas, camera, target): (&Canvas, &ViewCamera, &Target),
    other: OtherView<'_, Target>,
    terms: &Terms,
    (gradients, has_surface): (&mut PixelGradients<Heap>, bool),
) -> Result {
    let weight = terms.weight(VALUE_MULTI_VIEW);
    let Canvas { surface: Some(maps), median_depths: Some(medians), .. } = canvas else {
        return Ok(());
    };
    let PixelGradients { maps: Some(d_maps), median_depths: Some(d_medians), .. } = gradients
    else {
        return Ok(());
    };
    if !has_surface {
        d_maps.zero(&session.stream)?;
    }
    let has_medians = terms.active().any(|weighted| {
        matches!(weighted.term, Term::DepthNormal { depths: NormalDepths::Median })
    });
    if !has_medians {
        d_medians.zero(&session.stream)?;
    }
    let seen = other.camera.cast::<f32>();
    check_size(other.target.size(), seen.size)?;
    let [columns, rows] = patches(camera.size, other.first_px);
    let count = columns as usize * rows as usize;
    if count == 0 {
        return Ok(());
    }
    let begun = session.timers.begin(Stage::Loss, &session.stream)?;
    other.target.wait(&session.stream)?;
    let pixels = f64::from(camera.size[0]) * f64::from(camera.size[1]);
    let stands_for = f64::from(PATCH_STRIDE * PATCH_STRIDE);
    let mut rotation = [0.0; 9];
    rotation.copy_from_slice(seen.rotation.as_flattened());
    let args = PatchesArgs {
        surface: maps.read(),
        medians: medians.read(),
        target: target.rgb(),
        mask: target.mask(),
        other: other.target.rgb(),
        other_mask: other.target.mask(),
        d_surface: d_maps.write(),
        d_medians: d_medians.write(),
        sum: session.status.sum(VALUE_MULTI_VIEW),
        rotation,
        translation: seen.translation,
        focal_px: camera.focal_px,
        centre_px: camera.centre_px,
        size: camera.size,
        other_focal_px: seen.focal_px,
        other_centre_px: seen.centre_px,
        other_size: seen.size,
        first_px: other.first_px,
        patches: [columns, rows],
        shown: f32::of(stands_for),
        d_cost: f32::of(weight * stands_for / pixels),
    };
    let blocks = count.div_ceil((PATCHES_BLOCK / WARP) as usize);
    session.kernels.compare_patches.blocks(&session.stream, blocks, &args)?;
    // Marked again, because this stage reads both photographs later than the stages before.
    target.used(&session.stream)?;
    other.target.used(&session.stream)?;
    session.timers.end(&begun, &session.stream)
}

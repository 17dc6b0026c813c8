//! Stage `patches`: photometric difference between a patch and its projection into another view's photograph, by
//! median depths and drawn normals, and its gradient.

use std::sync::Arc;

use rayon::prelude::*;

use super::blend::Canvas;
use super::normals::ComparedNormals;
use crate::abi::PATCH_STRIDE;
use crate::backend::{OtherView, patches};
use crate::dataset::Image;
use crate::math::Real;
use crate::math::normals::{OPAQUE_MIN, blended_normal, blended_normal_bwd};
use crate::math::patches::{ComparedPatch, PatchPlane, compare, grey, patch_at};
use crate::math::splat::Viewpoint;

/// A drawn view with its photograph, and the other view.
#[derive(Clone, Copy)]
pub(crate) struct PatchPair<'a, R> {
    pub(crate) canvas: &'a Canvas<R>,
    pub(crate) view: &'a Viewpoint<R>,
    pub(crate) target: &'a Image,
    pub(crate) other: OtherView<'a, Arc<Image>>,
}

/// Comparison of the patch around one pixel.
struct PatchPixel<R> {
    at: usize,
    /// x and y of the normal, divided by the opacity.
    normal: [R; 2],
    opacity: R,
    compared: ComparedPatch<R>,
    d_normal: [R; 2],
}

/// Adds the weighted gradients to those of the normals; returns the mean over all pixels.
pub(crate) fn add<R: Real>(
    pair: PatchPair<'_, R>,
    weight: f64,
    gradients: &mut ComparedNormals<R>,
) -> f64 {
    let pixels = pair.canvas.median_depths.len();
    // Each sampled pixel stands for `PATCH_STRIDE`² pixels.
    let shown = f64::from(PATCH_STRIDE * PATCH_STRIDE);
    let d_cost = R::of(weight * shown / pixels as f64);
    let first = pair.other.first_px;
    let [columns, rows] = patches(pair.canvas.size, first);
    // The order does not depend on the threads.
    let found: Vec<PatchPixel<R>> = (0..rows)
        .into_par_iter()
        .flat_map_iter(|row| {
            let y = first[1] + row * PATCH_STRIDE;
            let xs = (0..columns).map(move |column| first[0] + column * PATCH_STRIDE);
            xs.filter_map(move |x| pair.pixel([x, y]))
        })
        .collect();
    gradients.make_room(pixels);
    let d_surface = gradients.d_surface.as_chunks_mut::<3>().0;
    for pixel in &found {
        let Some(plane) = &pixel.compared.gradient else { continue };
        let d_normal = pixel.d_normal.map(|d| d * d_cost / pixel.opacity);
        gradients.d_medians[pixel.at] += plane.d_depth * d_cost;
        d_surface[pixel.at][1] += d_normal[0];
        d_surface[pixel.at][2] += d_normal[1];
        // The opacity is 1 less the transmittance.
        let [x, y] = pixel.normal;
        gradients.d_through[pixel.at] += d_normal[0] * x + d_normal[1] * y;
    }
    found.iter().map(|pixel| pixel.compared.cost.to_f64()).sum::<f64>() * shown / pixels as f64
}

impl<R: Real> PatchPair<'_, R> {
    /// Compares the patch around a pixel; `None` if the pixel has no surface or its patch no information.
    fn pixel(&self, at: [u32; 2]) -> Option<PatchPixel<R>> {
        let index = self.view.index(at);
        let (&[_, x, y, opacity], &depth) =
            (&self.canvas.surface.as_chunks::<4>().0[index], &self.canvas.median_depths[index]);
        if opacity < R::of(OPAQUE_MIN) || depth <= R::ZERO {
            return None;
        }
        let normal = [x / opacity, y / opacity];
        let slopes = self.view.slopes(at);
        let plane = PatchPlane { normal: blended_normal(normal), depth, slopes };
        let patch = patch_at(at, self.canvas.size, |at| grey_at(self.target, at))?;
        let step = self.view.focal_px.map(|focal| R::ONE / focal);
        let camera = self.other.camera.cast();
        let compared = compare(&plane, step, &patch, &camera, |at| grey_at(self.other.target, at))?;
        let d_normal = compared
            .gradient
            .map_or([R::ZERO; 2], |plane| blended_normal_bwd(normal, plane.d_normal));
        Some(PatchPixel { at: index, normal, opacity, compared, d_normal })
    }
}

/// Returns the grey value of a pixel; `None` if masked.
fn grey_at<R: Real>(image: &Image, [x, y]: [u32; 2]) -> Option<R> {
    let at = y as usize * image.width as usize + x as usize;
    let counts = image.mask.as_ref().is_none_or(|mask| mask[at] != 0);
    counts.then(|| grey(image.rgb.as_chunks().0[at]))
}

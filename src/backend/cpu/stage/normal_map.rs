//! Stage `normal_map`: how far the normals of the drawn depths are from those of the photograph's map, and
//! the gradient of the inverse depths, which these normals are made of.

use rayon::prelude::*;

use super::blend::Canvas;
use super::depth::ComparedDepths;
use super::pixel_sums;
use super::slopes::SlopedMap;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{mapped_normal, surface_normal, surface_normal_bwd};
use crate::math::splat::Viewpoint;

/// Compares the normals of a frame's inverse depths with the photograph's map, which is of their size;
/// nothing without one.
///
/// A pixel counts where the map has a normal, where it and the four beside it show something and no mask of
/// the photograph excludes them, and where no step of depth is between them. Any other counts as right; the
/// mean of 1 - cos is over all pixels. Which pixels count has no gradient.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    target: &Image,
    weight: f64,
) -> Option<ComparedDepths<R>> {
    let mapped = target.normals.as_ref()?.values.as_chunks::<3>().0;
    let mask = target.mask.as_deref();
    let shown = |(at, &drawn): (usize, &R)| {
        let is_excluded = mask.is_some_and(|mask| mask[at] == 0);
        if is_excluded { R::ZERO } else { drawn }
    };
    let shown: Vec<R> = canvas.inverse_depths.iter().enumerate().map(shown).collect();
    let map = SlopedMap { view, depths: &shown, smooth: true };
    let pixels = shown.len();
    let d_mean = R::of(weight / pixels as f64);
    let of_pixel = |pixel: usize| {
        let at = map.at(pixel);
        let compared = mapped_normal(mapped[pixel]).zip(map.slopes(at));
        compared.map_or((R::ZERO, [R::ZERO; 2]), |(expected, inverse)| {
            // Those of inverse depths are turned round.
            let (slopes, ray) = (inverse.map(|slope| -slope), map.ray(at));
            let disagreement = R::ONE - dot(surface_normal(slopes, ray), expected);
            let d_normal = expected.map(|n| -(n * d_mean));
            (disagreement, surface_normal_bwd(slopes, ray, d_normal).map(|d| -d))
        })
    };
    let of_pixels: Vec<(R, [R; 2])> = (0..pixels).into_par_iter().map(of_pixel).collect();
    let mean = pixel_sums::mean(pixels, |pixel| of_pixels[pixel].0.to_f64());
    let d_inverse_depths = (0..pixels)
        .into_par_iter()
        .map(|pixel| map.d_depth(map.at(pixel), |beside| of_pixels[beside].1))
        .collect();
    Some(ComparedDepths { mean, d_inverse_depths })
}

#[cfg(test)]
mod tests;

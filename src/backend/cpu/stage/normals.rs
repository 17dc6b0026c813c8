//! Stage `normals`: how far the normals that are drawn are from those of the depths that are drawn, and
//! its gradient.

use std::mem;

use rayon::prelude::*;

use super::blend::Canvas;
use super::pixel_sums;
use super::slopes::SlopedMap;
use crate::abi::terms::NormalDepths;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{
    OPAQUE_MIN, blended_normal, blended_normal_bwd, surface_normal, surface_normal_bwd,
};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// What comes of comparing a frame's normals with its depths.
#[derive(Debug)]
pub(crate) struct ComparedNormals<R> {
    /// Mean over all pixels, not weighted.
    pub(crate) mean: f64,
    /// Gradient of depth and of x and y of the normals with the weight, [height, width, 3].
    pub(crate) d_surface: Vec<R>,
    /// Gradient of the final transmittance, [height, width]; empty where it has none.
    pub(crate) d_through: Vec<R>,
    /// Gradient of the median depths, [height, width]; empty where they are not compared.
    pub(crate) d_medians: Vec<R>,
}

impl<R: Real> ComparedNormals<R> {
    /// Of normals that are not compared.
    pub(crate) fn none() -> Self {
        let nothing = Vec::new;
        Self { mean: 0.0, d_surface: nothing(), d_through: nothing(), d_medians: nothing() }
    }

    /// Zeros where a gradient is missing.
    pub(crate) fn make_room(&mut self, pixels: usize) {
        self.d_surface.resize(3 * pixels, R::ZERO);
        self.d_through.resize(pixels, R::ZERO);
        self.d_medians.resize(pixels, R::ZERO);
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let all = [&self.d_surface, &self.d_through, &self.d_medians];
        Bytes::of::<R>(all.into_iter().map(Vec::capacity).sum())
    }
}

/// The depths and normals of a view that are compared.
struct ComparedSurface<R> {
    /// 0 where a pixel has none, [height, width].
    depths: Vec<R>,
    /// x and y, [height, width].
    normals: Vec<[R; 2]>,
}

impl<R: Real> ComparedSurface<R> {
    fn new(canvas: &Canvas<R>, mask: Option<&[u8]>, of: NormalDepths) -> Self {
        let sums = canvas.surface.as_chunks::<4>().0;
        match of {
            NormalDepths::All => Self {
                depths: sums.iter().map(|pixel| pixel[0]).collect(),
                normals: sums.iter().map(|pixel| [pixel[1], pixel[2]]).collect(),
            },
            NormalDepths::Opaque | NormalDepths::Median => {
                let shown = |(at, &[depth, x, y, opacity]): (usize, &[R; 4])| {
                    let is_excluded = mask.is_some_and(|mask| mask[at] == 0);
                    if is_excluded || opacity < R::of(OPAQUE_MIN) {
                        return (R::ZERO, [R::ZERO; 2]);
                    }
                    let medians =
                        canvas.median_depths.get(at).filter(|_| of == NormalDepths::Median);
                    let depth = medians.copied().unwrap_or(depth / opacity);
                    (depth, [x / opacity, y / opacity])
                };
                let (depths, normals) = sums.iter().enumerate().map(shown).unzip();
                Self { depths, normals }
            }
        }
    }
}

/// What a pixel adds to the sum, and the gradients of it.
#[derive(Clone, Copy, Debug)]
struct NormalPixel<R> {
    disagreement: R,
    /// Of the slopes of the depths along x and y.
    d_slopes: [R; 2],
    /// Of x and y of the normal.
    d_normal: [R; 2],
}

/// The maps of a view.
#[derive(Clone, Copy)]
struct SurfaceMapsOf<'a, R> {
    map: SlopedMap<'a, R>,
    of: NormalDepths,
    /// x and y, [height, width].
    normals: &'a [[R; 2]],
}

/// Compares the normals of a frame with those of its depths.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    target: &Image,
    of: NormalDepths,
    weight: f64,
) -> ComparedNormals<R> {
    let shown = ComparedSurface::new(canvas, target.mask.as_deref(), of);
    let map = SlopedMap { view, depths: &shown.depths, smooth: of != NormalDepths::All };
    let maps = SurfaceMapsOf { map, of, normals: &shown.normals };
    let pixels = canvas.surface.len() / 4;
    let d_mean = R::of(weight / pixels as f64);
    let of_pixels: Vec<NormalPixel<R>> =
        (0..pixels).into_par_iter().map(|pixel| maps.pixel(map.at(pixel), d_mean)).collect();
    let mean = pixel_sums::mean(pixels, |pixel| of_pixels[pixel].disagreement.to_f64());
    let d_shown = (0..pixels).into_par_iter().map(|pixel| {
        let [x, y] = of_pixels[pixel].d_normal;
        [map.d_depth(map.at(pixel), |beside| of_pixels[beside].d_slopes), x, y]
    });
    let mut d_shown: Vec<[R; 3]> = d_shown.collect();
    let d_medians = match of {
        NormalDepths::All | NormalDepths::Opaque => Vec::new(),
        // The drawn depths have no part in it.
        NormalDepths::Median => d_shown.iter_mut().map(|d| mem::take(&mut d[0])).collect(),
    };
    let [d_surface, d_through] = match of {
        NormalDepths::All => [d_shown.into_flattened(), Vec::new()],
        NormalDepths::Opaque | NormalDepths::Median => over_opacity_bwd(canvas, &shown, d_shown),
    };
    ComparedNormals { mean, d_surface, d_through, d_medians }
}

/// Gradients of what is blended and of the final transmittance, from those of depths and normals that
/// are divided by the opacity.
fn over_opacity_bwd<R: Real>(
    canvas: &Canvas<R>,
    shown: &ComparedSurface<R>,
    mut d_shown: Vec<[R; 3]>,
) -> [Vec<R>; 2] {
    let opacities = canvas.surface.as_chunks::<4>().0.iter().map(|pixel| pixel[3]);
    let values = shown.depths.iter().zip(&shown.normals).zip(opacities);
    let d_through = d_shown
        .iter_mut()
        .zip(values)
        .map(|(d_shown, ((&depth, &[x, y]), opacity))| {
            if depth <= R::ZERO {
                return R::ZERO;
            }
            *d_shown = d_shown.map(|d| d / opacity);
            dot(*d_shown, [depth, x, y])
        })
        .collect();
    [d_shown.into_flattened(), d_through]
}

impl<R: Real> SurfaceMapsOf<'_, R> {
    /// What a pixel adds. Of all pixels those count, too, that have no normal of depths: like a right
    /// angle.
    fn pixel(&self, at: [u32; 2], d_mean: R) -> NormalPixel<R> {
        let Some(slopes) = self.map.slopes(at) else {
            let disagreement = match self.of {
                NormalDepths::All => R::ONE,
                NormalDepths::Opaque | NormalDepths::Median => R::ZERO,
            };
            let nothing = [R::ZERO; 2];
            return NormalPixel { disagreement, d_slopes: nothing, d_normal: nothing };
        };
        let (xy, ray) = (self.normals[self.map.index(at)], self.map.ray(at));
        let (drawn, expected) = (blended_normal(xy), surface_normal(slopes, ray));
        NormalPixel {
            disagreement: R::ONE - dot(drawn, expected),
            d_slopes: surface_normal_bwd(slopes, ray, drawn.map(|n| -(n * d_mean))),
            d_normal: blended_normal_bwd(xy, expected.map(|n| -(n * d_mean))),
        }
    }
}

#[cfg(test)]
mod tests;

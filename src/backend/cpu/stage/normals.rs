//! Stage `normals`: how far the normals that are drawn are from those of the depths that are drawn, and
//! its gradient.

use std::mem;

use rayon::prelude::*;

use super::blend::Canvas;
use crate::abi::terms::NormalDepths;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{
    OPAQUE_MIN, blended_normal, blended_normal_bwd, is_smooth, slope, slope_bwd, surface_normal,
    surface_normal_bwd,
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
    view: &'a Viewpoint<R>,
    of: NormalDepths,
    shown: &'a ComparedSurface<R>,
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
    let maps = SurfaceMapsOf { view, of, shown: &shown };
    let width = canvas.size[0];
    let pixels = canvas.surface.len() / 4;
    let d_mean = R::of(weight / pixels as f64);
    let of_pixels: Vec<NormalPixel<R>> = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| maps.pixel([x, y], d_mean)))
        .collect();
    // Sums of blocks of fixed length, added in order: the same on any number of threads.
    const BLOCK: usize = 1 << 14;
    let sums: Vec<f64> = of_pixels
        .par_chunks(BLOCK)
        .map(|block| block.iter().map(|pixel| pixel.disagreement.to_f64()).sum())
        .collect();
    let mean = sums.iter().sum::<f64>() / pixels as f64;
    let mut d_shown: Vec<[R; 3]> = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| [x, y]))
        .map(|at| {
            let [x, y] = of_pixels[maps.index(at)].d_normal;
            [maps.d_depth(at, &of_pixels), x, y]
        })
        .collect();
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
    fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    fn depth(&self, at: [u32; 2]) -> R {
        self.shown.depths[self.index(at)]
    }

    /// The pixels before and behind along an axis, where there are both.
    fn beside(&self, at: [u32; 2], axis: usize) -> Option<[[u32; 2]; 2]> {
        let (mut before, mut behind) = (at, at);
        before[axis] = at[axis].checked_sub(1)?;
        behind[axis] = at[axis] + 1;
        (behind[axis] < self.view.size[axis]).then_some([before, behind])
    }

    fn slope(&self, at: [u32; 2], axis: usize) -> Option<R> {
        let [before, behind] = self.beside(at, axis)?.map(|at| self.depth(at));
        let focal_px = self.view.focal_px[axis];
        let is_smooth = |beside| is_smooth(focal_px, self.depth(at), beside);
        let counts = self.of == NormalDepths::All || (is_smooth(before) && is_smooth(behind));
        counts.then(|| slope(focal_px, before, behind)).flatten()
    }

    /// x/z and y/z of what the centre of a pixel shows.
    fn ray(&self, at: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let centre = R::of(f64::from(at[axis])) + R::HALF;
            (centre - self.view.centre_px[axis]) / self.view.focal_px[axis]
        })
    }

    /// What a pixel adds. Of all pixels those count, too, that have no normal of depths: like a right
    /// angle.
    fn pixel(&self, at: [u32; 2], d_mean: R) -> NormalPixel<R> {
        let (Some(along_x), Some(along_y)) = (self.slope(at, 0), self.slope(at, 1)) else {
            let disagreement = match self.of {
                NormalDepths::All => R::ONE,
                NormalDepths::Opaque | NormalDepths::Median => R::ZERO,
            };
            let nothing = [R::ZERO; 2];
            return NormalPixel { disagreement, d_slopes: nothing, d_normal: nothing };
        };
        let xy = self.shown.normals[self.index(at)];
        let (slopes, ray) = ([along_x, along_y], self.ray(at));
        let (drawn, expected) = (blended_normal(xy), surface_normal(slopes, ray));
        NormalPixel {
            disagreement: R::ONE - dot(drawn, expected),
            d_slopes: surface_normal_bwd(slopes, ray, drawn.map(|n| -(n * d_mean))),
            d_normal: blended_normal_bwd(xy, expected.map(|n| -(n * d_mean))),
        }
    }

    /// Gradient of a depth, which the slopes of the four pixels beside it are made of.
    fn d_depth(&self, at: [u32; 2], of_pixels: &[NormalPixel<R>]) -> R {
        let mut sum = R::ZERO;
        for axis in 0..2 {
            let mut beside = [at; 2];
            beside[0][axis] = at[axis].wrapping_sub(1);
            beside[1][axis] = at[axis] + 1;
            for (side, place) in beside.into_iter().enumerate() {
                if place[axis] >= self.view.size[axis] || self.slope(place, axis).is_none() {
                    continue;
                }
                let Some(ends) = self.beside(place, axis) else { continue };
                let [before, behind] = ends.map(|at| self.depth(at));
                let d_slope = of_pixels[self.index(place)].d_slopes[axis];
                let d = slope_bwd(self.view.focal_px[axis], before, behind, d_slope);
                // Seen from the pixel before it, this one lies behind.
                sum += d[1 - side];
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests;

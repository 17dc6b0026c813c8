//! Stage `normals`: how far the normals that are drawn are from those of the depths that are drawn, and
//! its gradient.

use rayon::prelude::*;

use super::blend::Canvas;
use crate::backend::{DeviceError, NormalRule};
use crate::math::Real;
use crate::math::linalg::dot;
use crate::math::normals::{
    blended_normal, blended_normal_bwd, slope, slope_bwd, surface_normal, surface_normal_bwd,
};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// What comes of comparing a frame's normals with its depths.
#[derive(Debug)]
pub(super) struct Compared<R> {
    /// Mean over all pixels, not weighted.
    pub(super) mean: f64,
    /// Gradient of depth and of x and y of the normals with the weight, [height, width, 3].
    pub(super) d_surface: Vec<R>,
}

impl<R> Compared<R> {
    pub(super) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_surface.capacity())
    }
}

/// What a pixel adds to the sum, and the gradients of it.
#[derive(Clone, Copy, Debug)]
struct Pixel<R> {
    disagreement: R,
    /// Of the slopes of the depths along x and y.
    d_slopes: [R; 2],
    /// Of x and y of the normal.
    d_normal: [R; 2],
}

/// The maps of a view.
#[derive(Clone, Copy)]
struct Maps<'a, R> {
    view: &'a Viewpoint<R>,
    /// [height, width, 4]
    surface: &'a [R],
}

/// Compares the normals of a frame with those of its depths.
pub(super) fn compare<R: Real>(
    canvas: &Canvas<R>,
    view: &Viewpoint<R>,
    (weight, rule): (f64, NormalRule),
) -> Result<Compared<R>, DeviceError> {
    if canvas.surface.is_empty() {
        return Err(DeviceError::NoSurfaceMaps);
    }
    let maps = Maps { view, surface: &canvas.surface };
    let width = canvas.size[0];
    let pixels = canvas.surface.len() / 4;
    let d_mean = R::of(weight / pixels as f64);
    let of_pixels: Vec<Pixel<R>> = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| maps.pixel([x, y], rule, d_mean)))
        .collect();
    // Sums of blocks of fixed length, added in order: the same on any number of threads.
    const BLOCK: usize = 1 << 14;
    let sums: Vec<f64> = of_pixels
        .par_chunks(BLOCK)
        .map(|block| block.iter().map(|pixel| pixel.disagreement.to_f64()).sum())
        .collect();
    let mean = sums.iter().sum::<f64>() / pixels as f64;
    if !mean.is_finite() {
        return Err(DeviceError::LossNotFinite { value: mean });
    }
    let d_surface = (0..canvas.size[1])
        .into_par_iter()
        .flat_map_iter(|y| (0..width).map(move |x| [x, y]))
        .flat_map_iter(|at| {
            let [x, y] = of_pixels[maps.index(at)].d_normal;
            [maps.d_depth(at, &of_pixels), x, y]
        })
        .collect();
    Ok(Compared { mean, d_surface })
}

impl<R: Real> Maps<'_, R> {
    fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    fn depth(&self, at: [u32; 2]) -> R {
        self.surface[self.index(at) * 4]
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
        slope(self.view.focal_px[axis], before, behind)
    }

    /// x/z and y/z of what the centre of a pixel shows.
    fn ray(&self, at: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let centre = R::of(f64::from(at[axis])) + R::HALF;
            (centre - self.view.centre_px[axis]) / self.view.focal_px[axis]
        })
    }

    /// What a pixel adds; at the border, and where there are no depths beside it, all that it may add.
    fn pixel(&self, at: [u32; 2], rule: NormalRule, d_mean: R) -> Pixel<R> {
        let &[_, x, y, opacity] = self.surface.as_chunks().0.get(self.index(at)).unwrap_or(&[R::ZERO; 4]);
        let weight = match rule {
            NormalRule::EveryPixel => R::ONE,
            NormalRule::ByOpacity => opacity,
        };
        let (Some(along_x), Some(along_y)) = (self.slope(at, 0), self.slope(at, 1)) else {
            let nothing = [R::ZERO; 2];
            return Pixel { disagreement: weight, d_slopes: nothing, d_normal: nothing };
        };
        let (slopes, ray) = ([along_x, along_y], self.ray(at));
        let (drawn, expected) = (blended_normal([x, y]), surface_normal(slopes, ray));
        let d_dot = -d_mean * weight;
        Pixel {
            disagreement: weight * (R::ONE - dot(drawn, expected)),
            d_slopes: surface_normal_bwd(slopes, ray, drawn.map(|n| n * d_dot)),
            d_normal: blended_normal_bwd([x, y], expected.map(|n| n * d_dot)),
        }
    }

    /// Gradient of a depth, which the slopes of the four pixels beside it are made of.
    fn d_depth(&self, at: [u32; 2], of_pixels: &[Pixel<R>]) -> R {
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

//! The loss of inverse depths: L1 against the map of the photograph, and its gradient (Kerbl et al.
//! 2024, of hierarchical 3D Gaussians).

use rayon::prelude::*;

use super::blend::Canvas;
use super::neighbours::NearestLists;
use super::pixel_sums;
use super::sampler::Sampler;
use crate::abi::terms::Terms;
use crate::backend::DeviceError;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::Drawable;
use crate::dataset::Image;
use crate::math::Real;
use crate::math::field::{
    DensityKernel, PixelQuad, between, cell, deviation_towards, is_near_surface, place_px,
    place_px_bwd,
};
use crate::math::linalg::{Vec3, add, mul, mul_transposed};
use crate::math::normals::{is_smooth, slope, slope_bwd};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// What comes of comparing a frame's inverse depths with a map beside the photograph.
#[derive(Debug)]
pub(crate) struct ComparedDepths<R> {
    /// Mean over all pixels, not weighted: here of the absolute error, per world unit.
    pub(crate) mean: f64,
    /// Gradient of the inverse depths with the weight, [height, width].
    pub(crate) d_inverse_depths: Vec<R>,
}

impl<R> ComparedDepths<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.d_inverse_depths.capacity())
    }
}

/// Compares the inverse depths with the photograph's map, which is of their size; nothing without one.
///
/// Pixels that the photograph's mask excludes count as right; the mean is over all pixels.
pub(crate) fn compare<R: Real>(
    canvas: &Canvas<R>,
    target: &Image,
    weight: f64,
) -> Option<ComparedDepths<R>> {
    let map = target.depth.as_ref()?;
    let pixels = canvas.inverse_depths.len();
    let slope = R::of(weight / pixels as f64);
    let [scale, offset] = [map.scale_of_step(), map.offset].map(|value| R::of(f64::from(value)));
    let error = |pixel: usize| {
        let counts = target.mask.as_ref().is_none_or(|mask| mask[pixel] != 0);
        let expected = R::of(f64::from(map.values[pixel])) * scale + offset;
        if counts { canvas.inverse_depths[pixel] - expected } else { R::ZERO }
    };
    let mean = pixel_sums::mean(pixels, |pixel| error(pixel).abs().to_f64());
    let sign = |error: R| match error.partial_cmp(&R::ZERO) {
        Some(std::cmp::Ordering::Greater) => slope,
        Some(std::cmp::Ordering::Less) => -slope,
        _ => R::ZERO,
    };
    let d_inverse_depths = (0..pixels).into_par_iter().map(|pixel| sign(error(pixel))).collect();
    Some(ComparedDepths { mean, d_inverse_depths })
}

// Stage `surface`, the surface that a view's depths show, and which Gaussians are near it.

/// The depths that a view shows.
#[derive(Debug)]
pub(crate) struct DepthMap<R> {
    view: Viewpoint<R>,
    /// Depth of the farthest splat, which stands behind all others; 0 without any.
    pub(crate) farthest: R,
    /// Depths over it, world units along the view axis, [height, width].
    depths: Vec<R>,
}

/// What a map shows where a point is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepthLookup<R> {
    point_cam: Vec3<R>,
    /// Between which pixels it lies.
    pub(crate) cell: PixelQuad<R>,
    /// How far the surface lies behind the point, world units along the view axis.
    pub(crate) height: R,
    /// How the surface's depth rises along x and y, world units per px.
    slopes: [R; 2],
}

impl<R: Real> DepthMap<R> {
    /// That of a drawn surface, [height, width, 4], whose splats have these depths.
    pub(crate) fn new(
        view: &Viewpoint<R>,
        splat_depths: impl Iterator<Item = R>,
        surface: &[R],
    ) -> Self {
        let farthest = splat_depths.fold(R::ZERO, |farthest, depth| farthest.max(depth));
        let over = |&[depth, _, _, opacity]: &[R; 4]| depth + (R::ONE - opacity) * farthest;
        let depths = surface.as_chunks().0.iter().map(over).collect();
        Self { view: *view, farthest, depths }
    }

    /// How many pixels it has.
    pub(crate) fn pixels(&self) -> usize {
        self.depths.len()
    }

    pub(crate) fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    /// Looks where a Gaussian's point is, given by its offset from the centre in the world; nothing
    /// outside the image and behind the camera.
    pub(crate) fn look(
        &self,
        kernel: &DensityKernel<R>,
        offset: Vec3<R>,
    ) -> Option<DepthLookup<R>> {
        // The offset by itself: added to the centre it would lose digits.
        let mean_cam = add(mul(&self.view.rotation, kernel.mean_world), self.view.translation);
        let point_cam = add(mean_cam, mul(&self.view.rotation, offset));
        let cell = cell(place_px(&self.view, point_cam)?, self.view.size);
        let (depth, slopes) = between(&cell, cell.pixels().map(|at| self.depths[self.index(at)]));
        Some(DepthLookup { point_cam, cell, height: depth - point_cam[2], slopes })
    }

    /// Gradient of the point that was looked at, in the world.
    pub(crate) fn look_bwd(&self, look: &DepthLookup<R>, d_height: R) -> Vec3<R> {
        let d_place = look.slopes.map(|slope| slope * d_height);
        let mut d_point_cam = place_px_bwd(&self.view, look.point_cam, d_place);
        d_point_cam[2] -= d_height;
        mul_transposed(&self.view.rotation, d_point_cam)
    }

    /// Whether a Gaussian's centre is near the surface, two of its standard deviations at most.
    pub(crate) fn has_near(&self, kernel: &DensityKernel<R>) -> bool {
        let deviation = deviation_towards(kernel, self.view.centre_world);
        self.look(kernel, [R::ZERO; 3]).is_some_and(|look| is_near_surface(look.height, deviation))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.depths.capacity())
    }
}

// Stage `surface`, gradients of a view's depths where samples are compared with them.

/// A frame's depths, and their gradient.
#[derive(Debug)]
pub(crate) struct Sampled<R> {
    pub(crate) map: DepthMap<R>,
    /// [height, width]
    d_depths: Vec<R>,
}

impl<R: Real> Sampled<R> {
    /// That of a drawn view, without any gradient yet.
    pub(crate) fn new(map: DepthMap<R>) -> Self {
        let d_depths = vec![R::ZERO; map.pixels()];
        Self { map, d_depths }
    }

    /// Adds the gradient of comparing the depths with the distances of samples of the rows that the
    /// view sees.
    pub(crate) fn compare<P: Drawable>(
        &mut self,
        model: &Model<R, P>,
        near: &NearestLists<P>,
        visible: Vec<usize>,
        terms: &Terms,
    ) -> Result<(), DeviceError> {
        let Self { map, d_depths } = self;
        let sampler = Sampler::new(model, near, visible, terms, Some(map))?;
        sampler.each_depth(|cell, d_depth| {
            for (at, weight) in cell.pixels().into_iter().zip(cell.weights()) {
                d_depths[map.index(at)] += weight * d_depth;
            }
        });
        Ok(())
    }

    /// Adds the gradient to those of the surface's maps, [height, width, 3], and of the final
    /// transmittance, [height, width].
    pub(crate) fn add_to(&self, d_surface: &mut Vec<R>, d_through: &mut Vec<R>) {
        d_surface.resize(self.d_depths.len() * 3, R::ZERO);
        for (d_pixel, &d_depth) in d_surface.as_chunks_mut::<3>().0.iter_mut().zip(&self.d_depths) {
            d_pixel[0] += d_depth;
        }
        d_through.resize(self.d_depths.len(), R::ZERO);
        for (d_pixel, &d_depth) in d_through.iter_mut().zip(&self.d_depths) {
            *d_pixel += d_depth * self.map.farthest;
        }
    }

    pub(crate) fn bytes(&self) -> Bytes {
        self.map.bytes() + Bytes::of::<R>(self.d_depths.capacity())
    }
}

// Slopes of a view's depths along the axes of its image, and the gradients of the depths.

/// Depths of a view's pixels, or their inverses: of these the slopes are the same, turned round, since
/// (1/b - 1/a) / (1/a + 1/b) = (a - b) / (a + b), and a step of one is a step of the other.
#[derive(Clone, Copy)]
pub(crate) struct SlopedMap<'a, R> {
    pub(crate) view: &'a Viewpoint<R>,
    /// 0 where a pixel has none, [height, width].
    pub(crate) depths: &'a [R],
    /// Whether there is no slope beside a step of depth.
    pub(crate) smooth: bool,
}

impl<R: Real> SlopedMap<'_, R> {
    pub(crate) fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    /// The pixel of an index.
    pub(crate) fn at(&self, index: usize) -> [u32; 2] {
        let width = self.view.size[0] as usize;
        [index % width, index / width].map(|side| u32::try_from(side).unwrap_or(u32::MAX))
    }

    pub(crate) fn depth(&self, at: [u32; 2]) -> R {
        self.depths[self.index(at)]
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
        let counts = !self.smooth || (is_smooth(before) && is_smooth(behind));
        counts.then(|| slope(focal_px, before, behind)).flatten()
    }

    /// The slopes at a pixel along x and y, where there are both.
    pub(crate) fn slopes(&self, at: [u32; 2]) -> Option<[R; 2]> {
        Some([self.slope(at, 0)?, self.slope(at, 1)?])
    }

    /// x/z and y/z of what the centre of a pixel shows.
    pub(crate) fn ray(&self, at: [u32; 2]) -> [R; 2] {
        [0, 1].map(|axis| {
            let centre = R::of(f64::from(at[axis])) + R::HALF;
            (centre - self.view.centre_px[axis]) / self.view.focal_px[axis]
        })
    }

    /// Gradient of a depth, which the slopes of the four pixels beside it are made of, from those of the
    /// slopes by the index of their pixel.
    pub(crate) fn d_depth(&self, at: [u32; 2], d_slopes: impl Fn(usize) -> [R; 2]) -> R {
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
                let d_slope = d_slopes(self.index(place))[axis];
                let d = slope_bwd(self.view.focal_px[axis], before, behind, d_slope);
                // Seen from the pixel before it, this one lies behind.
                sum += d[1 - side];
            }
        }
        sum
    }
}

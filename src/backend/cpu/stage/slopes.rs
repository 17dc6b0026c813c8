//! How steeply a view's depths rise along the axes of its image, and the gradients of the depths.

use crate::math::Real;
use crate::math::normals::{is_smooth, slope, slope_bwd};
use crate::math::splat::Viewpoint;

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

//! Stage `surface`, the surface that a view's depths show, and which Gaussians are near it.

use crate::math::Real;
use crate::math::field::{
    DensityKernel, PixelQuad, between, cell, deviation_towards, is_near_surface, place_px,
    place_px_bwd,
};
use crate::math::linalg::{Vec3, add, mul, mul_transposed};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

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

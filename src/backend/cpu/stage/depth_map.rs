//! Stage `surface`: the surface that a view's depths show, and the Gaussians near it.

use crate::math::Real;
use crate::math::field::{
    DensityKernel, PixelQuad, between, cell, deviation_towards, is_near_surface, place_px,
    place_px_bwd,
};
use crate::math::linalg::{Vec3, add, mul, mul_transposed};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// Drawn depths of a view.
#[derive(Debug)]
pub(crate) struct DepthMap<R> {
    view: Viewpoint<R>,
    /// Depth of the farthest splat, used as background depth; 0 without splats.
    pub(crate) farthest: R,
    /// Depths over that background, world units along the view axis, `[height, width]`.
    depths: Vec<R>,
}

/// Depth map at the projection of a point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DepthLookup<R> {
    point_cam: Vec3<R>,
    /// Pixels around the projection.
    pub(crate) cell: PixelQuad<R>,
    /// Distance of the surface behind the point, world units along the view axis.
    pub(crate) height: R,
    /// Slopes of the surface's depth along x and y, world units per px.
    slopes: [R; 2],
}

impl<R: Real> DepthMap<R> {
    /// Creates the map from a drawn surface, `[height, width, 4]`, and the depths of its splats.
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

    pub(crate) fn pixels(&self) -> usize {
        self.depths.len()
    }

    pub(crate) fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    /// Looks up the surface at a point, given by its world-space offset from a Gaussian's centre; `None` outside the
    /// image or behind the camera.
    pub(crate) fn look(
        &self,
        kernel: &DensityKernel<R>,
        offset: Vec3<R>,
    ) -> Option<DepthLookup<R>> {
        // Adding the offset to the centre in world space would lose digits.
        let mean_cam = add(mul(&self.view.rotation, kernel.mean_world), self.view.translation);
        let point_cam = add(mean_cam, mul(&self.view.rotation, offset));
        let cell = cell(place_px(&self.view, point_cam)?, self.view.size);
        let (depth, slopes) = between(&cell, cell.pixels().map(|at| self.depths[self.index(at)]));
        Some(DepthLookup { point_cam, cell, height: depth - point_cam[2], slopes })
    }

    /// Returns the world-space gradient of the point.
    pub(crate) fn look_bwd(&self, look: &DepthLookup<R>, d_height: R) -> Vec3<R> {
        let d_place = look.slopes.map(|slope| slope * d_height);
        let mut d_point_cam = place_px_bwd(&self.view, look.point_cam, d_place);
        d_point_cam[2] -= d_height;
        mul_transposed(&self.view.rotation, d_point_cam)
    }

    /// True if a Gaussian's centre is within two of its standard deviations of the surface.
    pub(crate) fn has_near(&self, kernel: &DensityKernel<R>) -> bool {
        let deviation = deviation_towards(kernel, self.view.centre_world);
        self.look(kernel, [R::ZERO; 3]).is_some_and(|look| is_near_surface(look.height, deviation))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.depths.capacity())
    }
}

//! Gradients that backward passes leave for the next step, in screen space and of the geometry; and the surface that a
//! view's depths show.

use std::marker::PhantomData;

use crate::backend::cpu::primitive::DrawnView;
use crate::backend::{DeviceError, Held};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::field::{
    DensityKernel, PixelQuad, between, cell, deviation_towards, is_near_surface, place_px,
    place_px_bwd,
};
use crate::math::linalg::{Vec3, add, mul, mul_transposed};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Screen-space gradients of the views since the last step, and geometry gradients of surface terms.
#[derive(Debug)]
pub struct Gradients<R, P = Gaussians> {
    pub(crate) views: Vec<ViewGradients<R>>,
    /// Gradients of the geometry of all rows, `[n, 11]`, in the order of
    /// [`DensityKernelGradient::row`](crate::math::field::DensityKernelGradient::row); empty if no term needs them.
    pub(crate) geometry: Vec<R>,
    primitive: PhantomData<P>,
}

impl<R, P> Default for Gradients<R, P> {
    fn default() -> Self {
        Self { views: Vec::new(), geometry: Vec::new(), primitive: PhantomData }
    }
}

impl<R, P> Gradients<R, P> {
    /// Returns the index of each row's splat in each view, or [`UNSEEN`]; `[views, rows]`.
    pub(crate) fn splat_from_row(&self, rows: usize) -> Vec<Vec<usize>> {
        self.views.iter().map(|view| view.splat_from_row(rows)).collect()
    }
}

/// Screen-space gradients of one view.
#[derive(Debug)]
pub(crate) struct ViewGradients<R> {
    pub(crate) view: DrawnView<R>,
    /// `[visible]`
    pub(crate) row_from_splat: Vec<usize>,
    /// `[visible]`
    pub(crate) screen: Vec<ScreenGradient<R>>,
    /// Depths of the view, if samples were compared with them.
    pub(crate) depth_map: Option<DepthMap<R>>,
    /// Error about the first row that was skipped because a value is not finite.
    pub(crate) fault: Option<DeviceError>,
}

/// Marks a row without a splat in the view.
pub(crate) const UNSEEN: usize = usize::MAX;

impl<R> ViewGradients<R> {
    /// Returns the index of each row's splat, or [`UNSEEN`]; `[rows]`.
    fn splat_from_row(&self, rows: usize) -> Vec<usize> {
        let mut splat_from_row = vec![UNSEEN; rows];
        for (splat, &row) in self.row_from_splat.iter().enumerate() {
            splat_from_row[row] = splat;
        }
        splat_from_row
    }
}

impl<R: Real, P> Held for Gradients<R, P> {
    fn bytes(&self) -> Bytes {
        let views = self.views.iter().map(|view| {
            Bytes::of::<ScreenGradient<R>>(view.screen.capacity())
                + Bytes::of::<usize>(view.row_from_splat.capacity())
                + view.depth_map.as_ref().map_or(Bytes(0), DepthMap::bytes)
        });
        views.sum::<Bytes>() + Bytes::of::<R>(self.geometry.capacity())
    }
}

/// Drawn depths of a view.
#[derive(Debug)]
pub(crate) struct DepthMap<R> {
    pub(crate) view: Viewpoint<R>,
    /// Depth of the farthest splat, used as background depth; 0 without splats.
    pub(crate) farthest: R,
    /// Depths over that background, world units along the view axis, `[height, width]`.
    pub(crate) depths: Vec<R>,
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

    /// Looks up the surface at a point, given by its world-space offset from a Gaussian's centre; `None` outside the
    /// image or behind the camera.
    pub(crate) fn look_up(
        &self,
        kernel: &DensityKernel<R>,
        offset: Vec3<R>,
    ) -> Option<DepthLookup<R>> {
        // Adding the offset to the centre in world space would lose digits.
        let mean_cam = add(mul(&self.view.rotation, kernel.mean_world), self.view.translation);
        let point_cam = add(mean_cam, mul(&self.view.rotation, offset));
        let cell = cell(place_px(&self.view, point_cam)?, self.view.size);
        let (depth, slopes) =
            between(&cell, cell.pixels().map(|at| self.depths[self.view.index(at)]));
        Some(DepthLookup { point_cam, cell, height: depth - point_cam[2], slopes })
    }

    /// Returns the world-space gradient of the point.
    pub(crate) fn lookup_bwd(&self, lookup: &DepthLookup<R>, d_height: R) -> Vec3<R> {
        let d_place = lookup.slopes.map(|slope| slope * d_height);
        let mut d_point_cam = place_px_bwd(&self.view, lookup.point_cam, d_place);
        d_point_cam[2] -= d_height;
        mul_transposed(&self.view.rotation, d_point_cam)
    }

    /// True if a Gaussian's centre is within two of its standard deviations of the surface.
    pub(crate) fn has_near(&self, kernel: &DensityKernel<R>) -> bool {
        let deviation = deviation_towards(kernel, self.view.centre_world);
        self.look_up(kernel, [R::ZERO; 3])
            .is_some_and(|lookup| is_near_surface(lookup.height, deviation))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.depths.capacity())
    }
}

//! What backward passes leave for the next step: gradients on the screen and of the geometry.

use super::depth_map::DepthMap;
use crate::backend::{DeviceError, Held};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// Screen-space gradients of the views since the last step, and what the surface terms add to them.
#[derive(Debug)]
pub struct Gradients<R> {
    pub(crate) views: Vec<ViewGradients<R>>,
    /// Gradients of the Gaussians' geometry, seen or not, in the order of
    /// [`DensityKernelGradient::row`](crate::math::field::DensityKernelGradient::row), `[n, 11]`; empty where nothing
    /// asked for them.
    pub(crate) geometry: Vec<R>,
}

impl<R> Default for Gradients<R> {
    /// Of no view yet.
    fn default() -> Self {
        Self { views: Vec::new(), geometry: Vec::new() }
    }
}

/// Screen-space gradients of one view.
#[derive(Debug)]
pub(crate) struct ViewGradients<R> {
    pub(crate) view: Viewpoint<R>,
    pub(crate) sh_degree: u32,
    /// `[visible]`
    pub(crate) gaussian_from_splat: Vec<usize>,
    /// `[visible]`
    pub(crate) screen: Vec<ScreenGradient<R>>,
    /// Its depths, where samples were compared with them.
    pub(crate) depth_map: Option<DepthMap<R>>,
    /// The first Gaussian that was left out because it is broken.
    pub(crate) fault: Option<DeviceError>,
}

/// No splat of this view belongs to the Gaussian.
pub(crate) const UNSEEN: usize = usize::MAX;

impl<R> ViewGradients<R> {
    /// Index of each Gaussian's splat, or [`UNSEEN`]; `[gaussians]`.
    pub(crate) fn slots(&self, gaussians: usize) -> Vec<usize> {
        let mut splat_from_gaussian = vec![UNSEEN; gaussians];
        for (splat, &gaussian) in self.gaussian_from_splat.iter().enumerate() {
            splat_from_gaussian[gaussian] = splat;
        }
        splat_from_gaussian
    }
}

impl<R: Real> Held for Gradients<R> {
    fn bytes(&self) -> Bytes {
        let views = self.views.iter().map(|view| {
            Bytes::of::<ScreenGradient<R>>(view.screen.capacity())
                + Bytes::of::<usize>(view.gaussian_from_splat.capacity())
                + view.depth_map.as_ref().map_or(Bytes(0), DepthMap::bytes)
        });
        views.sum::<Bytes>() + Bytes::of::<R>(self.geometry.capacity())
    }
}

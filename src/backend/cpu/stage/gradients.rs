//! Gradients that backward passes leave for the next step, in screen space and of the geometry.

use std::marker::PhantomData;

use super::depth_map::DepthMap;
use crate::backend::cpu::primitive::DrawnView;
use crate::backend::{DeviceError, Held};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
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

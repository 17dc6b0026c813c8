//! Results of backward passes for the next step: gradients on the screen and of the geometry.

use std::marker::PhantomData;

use super::depth_map::DepthMap;
use crate::backend::cpu::primitive::DrawnView;
use crate::backend::{DeviceError, Held};
use crate::math::Real;
use crate::math::blend::ScreenGradient;
use crate::memory::Bytes;
use crate::model::Gaussians;

/// Screen-space gradients of the views since the last step, and what the surface terms add to them.
#[derive(Debug)]
pub struct Gradients<R, P = Gaussians> {
    pub(crate) views: Vec<ViewGradients<R>>,
    /// Gradients of the geometry of all rows, seen or not, in the order of
    /// [`DensityKernelGradient::row`](crate::math::field::DensityKernelGradient::row), `[n, 11]`; empty where nothing
    /// asked for them.
    pub(crate) geometry: Vec<R>,
    primitive: PhantomData<P>,
}

impl<R, P> Default for Gradients<R, P> {
    /// Of no view yet.
    fn default() -> Self {
        Self { views: Vec::new(), geometry: Vec::new(), primitive: PhantomData }
    }
}

impl<R, P> Gradients<R, P> {
    /// For each view the index of each row's splat, or [`UNSEEN`]; [views, rows].
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
    /// Its depths, where samples were compared with them.
    pub(crate) depth_map: Option<DepthMap<R>>,
    /// The first row that was left out because it is broken.
    pub(crate) fault: Option<DeviceError>,
}

/// No splat of this view belongs to the row.
pub(crate) const UNSEEN: usize = usize::MAX;

impl<R> ViewGradients<R> {
    /// Index of each row's splat, or [`UNSEEN`]; `[rows]`.
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

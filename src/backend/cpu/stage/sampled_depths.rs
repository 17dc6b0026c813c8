//! Stage `surface`, what a view's depths say: their gradient where samples are compared with them.

use super::depth_map::DepthMap;
use super::neighbours::NearestLists;
use super::sampler::Sampler;
use crate::abi::terms::Terms;
use crate::backend::DeviceError;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::primitive::Drawable;
use crate::math::Real;
use crate::memory::Bytes;

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

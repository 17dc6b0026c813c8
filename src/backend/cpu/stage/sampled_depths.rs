//! Stage `surface`, what a view's depths say: their gradient where samples are compared with them.

use super::depth_map::DepthMap;
use super::neighbours::NearestLists;
use super::normals::ComparedNormals;
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

    pub(crate) fn bytes(&self) -> Bytes {
        self.map.bytes() + Bytes::of::<R>(self.d_depths.capacity())
    }
}

/// Gradients of a frame's maps of its surface; empty without.
pub(crate) struct MapGradients<R> {
    /// Of depth and of x and y of the normal, [height, width, 3].
    pub(crate) surface: Vec<R>,
    /// Of the final transmittance, [height, width].
    pub(crate) through: Vec<R>,
}

/// Those of what a frame was compared by.
pub(crate) fn gradients<R: Real>(
    normals: Option<ComparedNormals<R>>,
    sampled: Option<&Sampled<R>>,
) -> MapGradients<R> {
    let (mut surface, mut through) =
        normals.map_or_else(Default::default, |compared| (compared.d_surface, compared.d_through));
    let Some(Sampled { map, d_depths }) = sampled else {
        return MapGradients { surface, through };
    };
    surface.resize(d_depths.len() * 3, R::ZERO);
    for (d_pixel, &d_depth) in surface.as_chunks_mut::<3>().0.iter_mut().zip(d_depths) {
        d_pixel[0] += d_depth;
    }
    through.resize(d_depths.len(), R::ZERO);
    for (d_pixel, &d_depth) in through.iter_mut().zip(d_depths) {
        *d_pixel += d_depth * map.farthest;
    }
    MapGradients { surface, through }
}

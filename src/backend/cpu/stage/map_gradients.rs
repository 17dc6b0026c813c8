//! Gradients of the maps beside a frame's colours, summed over the comparisons.

use super::blend::CanvasGradient;
use super::depth::ComparedDepths;
use super::depth_map::DepthMap;
use super::distortion::RayDistortion;
use super::normals::ComparedNormals;
use super::surface::Sampled;
use crate::math::Real;
use crate::memory::Bytes;

/// Comparisons of a frame's maps; `None` for terms that are off.
#[derive(Debug)]
pub(crate) struct ComparedMaps<R> {
    pub(crate) depths: Option<ComparedDepths<R>>,
    /// Comparison of the normals of the inverse depths.
    pub(crate) normal_map: Option<ComparedDepths<R>>,
    pub(crate) normals: Option<ComparedNormals<R>>,
    pub(crate) distortion: Option<RayDistortion<R>>,
    /// Depths that samples are compared with.
    pub(crate) sampled: Option<Sampled<R>>,
}

/// Gradients of a frame's maps; empty if no term gives any.
#[derive(Debug, Default)]
pub(crate) struct MapGradients<R> {
    /// [height, width]
    pub(crate) inverse_depths: Vec<R>,
    /// [height, width]
    pub(crate) inverse_squares: Vec<R>,
    /// Gradient of depth and of x and y of the normal, `[height, width, 3]`.
    pub(crate) surface: Vec<R>,
    /// Gradient of the final transmittance, `[height, width]`.
    pub(crate) through: Vec<R>,
}

impl<R> MapGradients<R> {
    /// Combines these with the gradient of the image.
    pub(crate) fn with_image<'a>(&'a self, image: &'a [R]) -> CanvasGradient<'a, R> {
        let Self { inverse_depths, inverse_squares, surface, through } = self;
        CanvasGradient { image, inverse_depths, inverse_squares, surface, through }
    }
}

impl<R: Real> ComparedMaps<R> {
    pub(crate) const NOTHING: Self =
        Self { depths: None, normal_map: None, normals: None, distortion: None, sampled: None };

    /// Returns the summed gradients, and the depths that samples are compared with.
    pub(crate) fn into_gradients(self) -> (MapGradients<R>, Option<DepthMap<R>>) {
        let Self { depths, normal_map, normals, distortion, sampled } = self;
        let mut sum = MapGradients::default();
        for compared in [depths, normal_map].into_iter().flatten() {
            add(&mut sum.inverse_depths, compared.d_inverse_depths);
        }
        if let Some(normals) = normals {
            (sum.surface, sum.through) = (normals.d_surface, normals.d_through);
        }
        if let Some(distortion) = distortion {
            add(&mut sum.inverse_depths, distortion.d_inverse_depths);
            add(&mut sum.through, distortion.d_through);
            sum.inverse_squares = distortion.d_inverse_squares;
            // The gradient of the transmittance requires that of the surface.
            sum.surface.resize(sum.through.len() * 3, R::ZERO);
        }
        if let Some(sampled) = &sampled {
            sampled.add_to(&mut sum.surface, &mut sum.through);
        }
        (sum, sampled.map(|sampled| sampled.map))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        let compared = [&self.depths, &self.normal_map].into_iter().flatten();
        compared.map(ComparedDepths::bytes).sum::<Bytes>()
            + self.normals.as_ref().map_or(Bytes(0), ComparedNormals::bytes)
            + self.distortion.as_ref().map_or(Bytes(0), RayDistortion::bytes)
            + self.sampled.as_ref().map_or(Bytes(0), Sampled::bytes)
    }
}

/// Adds to a gradient that may be empty.
fn add<R: Real>(sum: &mut Vec<R>, more: Vec<R>) {
    if sum.is_empty() {
        *sum = more;
    } else {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gradients_of_several_terms_add_up() {
        let depths = || ComparedDepths { mean: 0.0, d_inverse_depths: vec![1.0, 2.0] };
        let mapped = ComparedDepths { mean: 0.0, d_inverse_depths: vec![0.25, 4.0] };
        let normals = || ComparedNormals {
            d_surface: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            d_through: vec![7.0, 8.0],
            ..ComparedNormals::none()
        };
        let distortion = || RayDistortion {
            mean: 0.0,
            d_inverse_depths: vec![0.5, 0.25],
            d_inverse_squares: vec![9.0, 10.0],
            d_through: vec![0.125, 0.75],
        };
        let all = ComparedMaps {
            depths: Some(depths()),
            normal_map: Some(mapped),
            normals: Some(normals()),
            distortion: Some(distortion()),
            ..ComparedMaps::<f64>::NOTHING
        };
        let (sum, _) = all.into_gradients();
        assert_eq!(sum.inverse_depths, [1.75, 6.25]);
        assert_eq!(sum.inverse_squares, [9.0, 10.0]);
        assert_eq!(sum.surface, normals().d_surface);
        assert_eq!(sum.through, [7.125, 8.75]);
        let alone = ComparedMaps { distortion: Some(distortion()), ..ComparedMaps::NOTHING };
        let (sum, _) = alone.into_gradients();
        assert_eq!((sum.inverse_depths, sum.through), (vec![0.5, 0.25], vec![0.125, 0.75]));
        assert_eq!(sum.surface, [0.0; 6]);
        let without = ComparedMaps { depths: Some(depths()), ..ComparedMaps::<f64>::NOTHING };
        let (sum, _) = without.into_gradients();
        assert_eq!(sum.inverse_depths, depths().d_inverse_depths);
        assert!(sum.inverse_squares.is_empty() && sum.surface.is_empty() && sum.through.is_empty());
    }
}

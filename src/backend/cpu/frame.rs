//! A drawn view, and what is compared in it.

use super::model::Model;
use super::stage::bin::Bins;
use super::stage::blend::Canvas;
use super::stage::depth::Compared;
use super::stage::depth_map::DepthMap;
use super::stage::neighbours::Neighbours;
use super::stage::normals;
use super::stage::project::{Splat, draws_surface};
use super::stage::sampled_depths::Sampled;
use crate::backend::{DeviceError, Pass, RenderSettings, SurfaceRule};
use crate::math::Real;
use crate::math::splat::Viewpoint;

/// A drawn view and what the backward pass needs of it.
#[derive(Debug)]
pub struct Frame<R> {
    pub(super) view: Viewpoint<R>,
    pub(super) settings: RenderSettings,
    pub(super) splats: Vec<Splat<R>>,
    pub(super) bins: Bins,
    pub(super) canvas: Canvas<R>,
    /// The colours that are compared with the photograph, where they are not the image's.
    pub(super) compensated: Option<Vec<R>>,
    /// The first Gaussian that was left out because it is broken.
    pub(super) fault: Option<DeviceError>,
    /// Gradient of the image, [height, width, 3]; empty before [`Raster::loss`](crate::backend::Raster::loss).
    pub(super) d_image: Vec<R>,
    /// What came of the inverse depths.
    pub(super) depths: Option<Compared<R>>,
    /// What came of the normals.
    pub(super) normals: Option<normals::Compared<R>>,
    /// What came of samples' distances from the surface.
    pub(super) sampled: Option<Sampled<R>>,
}

impl<R> Frame<R> {
    /// The colours that are compared with the photograph, [height, width, 3].
    pub(super) fn compared(&self) -> &[R] {
        self.compensated.as_deref().unwrap_or(&self.canvas.image)
    }
}

impl<R: Real> Frame<R> {
    /// Adds the gradient of the depths of comparing them with samples' distances.
    pub(super) fn compare_sampled_depths(
        &mut self,
        model: &Model<R>,
        near: &Neighbours,
        rule: &SurfaceRule,
    ) -> Result<(), DeviceError> {
        let is_trained = matches!(self.settings.pass, Pass::Train | Pass::Observe);
        if !(is_trained && draws_surface(&self.settings)) {
            return Err(DeviceError::NoSurfaceMaps);
        }
        near.check(model)?;
        if !rule.compares_distances() {
            return Ok(());
        }
        let sampled = match &mut self.sampled {
            Some(sampled) => sampled,
            none => {
                let depths = self.splats.iter().map(|splat| splat.ellipse.depth);
                let map = DepthMap::new(&self.view, depths, &self.canvas.surface)?;
                none.insert(Sampled::new(map))
            }
        };
        let visible = self.splats.iter().map(|splat| splat.gaussian).collect();
        sampled.compare(model, near, visible, rule);
        Ok(())
    }
}

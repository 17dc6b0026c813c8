//! Stage `regularise`, what a view's depths say: the surface that they show, which Gaussians are near
//! it, and the gradient of the depths where samples are compared with them.

use super::blend::{Canvas, draws_surface};
use super::normals::Compared;
use super::project::Splat;
use super::surface::Sampler;
use crate::backend::cpu::model::Model;
use crate::backend::cpu::{Frame, Neighbours};
use crate::backend::{DeviceError, Pass, SurfaceRule};
use crate::math::Real;
use crate::math::field::{Bump, deviation_towards, is_near_surface};
use crate::math::linalg::{Vec3, add, mul, mul_transposed};
use crate::math::lookup::{Cell, between, cell, place_px, place_px_bwd};
use crate::math::splat::Viewpoint;
use crate::memory::Bytes;

/// The depths that a view shows.
#[derive(Debug)]
pub(crate) struct DepthMap<R> {
    view: Viewpoint<R>,
    /// Depth of the farthest splat, which stands behind all others; 0 without any.
    farthest: R,
    /// Depths over it, world units along the view axis, [height, width].
    depths: Vec<R>,
}

/// What a map shows where a point is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look<R> {
    point_cam: Vec3<R>,
    /// Between which pixels it lies.
    pub(crate) cell: Cell<R>,
    /// How far the surface lies behind the point, world units along the view axis.
    pub(crate) height: R,
    /// How the surface's depth rises along x and y, world units per px.
    slopes: [R; 2],
}

impl<R: Real> DepthMap<R> {
    /// That of a frame; an error where its surface was not drawn.
    fn new(
        view: &Viewpoint<R>,
        splats: &[Splat<R>],
        canvas: &Canvas<R>,
    ) -> Result<Self, DeviceError> {
        if canvas.surface.is_empty() {
            return Err(DeviceError::NoSurfaceMaps);
        }
        let farthest = splats.iter().fold(R::ZERO, |depth, splat| depth.max(splat.ellipse.depth));
        let over = |&[depth, _, _, opacity]: &[R; 4]| depth + (R::ONE - opacity) * farthest;
        let depths = canvas.surface.as_chunks().0.iter().map(over).collect();
        Ok(Self { view: *view, farthest, depths })
    }

    fn index(&self, [x, y]: [u32; 2]) -> usize {
        y as usize * self.view.size[0] as usize + x as usize
    }

    /// Looks where a Gaussian's point is, given by its offset from the centre in the world; nothing
    /// outside the image and behind the camera.
    pub(crate) fn look(&self, bump: &Bump<R>, offset: Vec3<R>) -> Option<Look<R>> {
        // The offset by itself: added to the centre it would lose digits.
        let mean_cam = add(mul(&self.view.rotation, bump.mean_world), self.view.translation);
        let point_cam = add(mean_cam, mul(&self.view.rotation, offset));
        let cell = cell(place_px(&self.view, point_cam)?, self.view.size);
        let (depth, slopes) = between(&cell, cell.pixels().map(|at| self.depths[self.index(at)]));
        Some(Look { point_cam, cell, height: depth - point_cam[2], slopes })
    }

    /// Gradient of the point that was looked at, in the world.
    pub(crate) fn look_bwd(&self, look: &Look<R>, d_height: R) -> Vec3<R> {
        let d_place = look.slopes.map(|slope| slope * d_height);
        let mut d_point_cam = place_px_bwd(&self.view, look.point_cam, d_place);
        d_point_cam[2] -= d_height;
        mul_transposed(&self.view.rotation, d_point_cam)
    }

    /// Whether a Gaussian's centre is near the surface, two of its standard deviations at most.
    pub(crate) fn has_near(&self, bump: &Bump<R>) -> bool {
        let deviation = deviation_towards(bump, self.view.centre_world);
        self.look(bump, [R::ZERO; 3]).is_some_and(|look| is_near_surface(look.height, deviation))
    }

    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::of::<R>(self.depths.capacity())
    }
}

/// A frame's depths, and their gradient.
#[derive(Debug)]
pub(crate) struct Sampled<R> {
    pub(crate) map: DepthMap<R>,
    /// [height, width]
    d_depths: Vec<R>,
}

impl<R: Real> Sampled<R> {
    pub(crate) fn bytes(&self) -> Bytes {
        self.map.bytes() + Bytes::of::<R>(self.d_depths.capacity())
    }
}

/// Adds the gradient of a frame's depths of comparing them with samples' distances.
pub(crate) fn compare<R: Real>(
    model: &Model<R>,
    frame: &mut Frame<R>,
    near: &Neighbours,
    rule: &SurfaceRule,
) -> Result<(), DeviceError> {
    let is_trained = matches!(frame.settings.pass, Pass::Train | Pass::Observe);
    if !(is_trained && draws_surface(&frame.settings)) {
        return Err(DeviceError::NoSurfaceMaps);
    }
    near.check(model)?;
    if !rule.compares_distances() {
        return Ok(());
    }
    let sampled = match &mut frame.sampled {
        Some(sampled) => sampled,
        none => {
            let map = DepthMap::new(&frame.view, &frame.splats, &frame.canvas)?;
            let d_depths = vec![R::ZERO; map.depths.len()];
            none.insert(Sampled { map, d_depths })
        }
    };
    let Sampled { map, d_depths } = sampled;
    let visible = frame.splats.iter().map(|splat| splat.gaussian).collect();
    let sampler = Sampler::new(model, near, visible, (rule, Some(map)));
    sampler.each_depth(|cell, d_depth| {
        for (at, weight) in cell.pixels().into_iter().zip(cell.weights()) {
            d_depths[map.index(at)] += weight * d_depth;
        }
    });
    Ok(())
}

/// Gradients of depth and of x and y of the normal, [height, width, 3], and of what shines through all
/// splats, [height, width], of what a frame was compared by; empty without.
pub(crate) fn gradients<R: Real>(
    normals: Option<Compared<R>>,
    sampled: Option<&Sampled<R>>,
) -> (Vec<R>, Vec<R>) {
    let mut d_surface = normals.map_or(Vec::new(), |compared| compared.d_surface);
    let Some(Sampled { map, d_depths }) = sampled else { return (d_surface, Vec::new()) };
    d_surface.resize(d_depths.len() * 3, R::ZERO);
    for (d_pixel, &d_depth) in d_surface.as_chunks_mut::<3>().0.iter_mut().zip(d_depths) {
        d_pixel[0] += d_depth;
    }
    (d_surface, d_depths.iter().map(|&d| d * map.farthest).collect())
}

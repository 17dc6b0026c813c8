//! A pinhole camera.

use crate::mesh::Vec3;
use crate::vector::{add, mul, mul_transposed, scale, sub};

/// A pinhole camera and where it stands: x right, y down, z forward; the centre of the top left pixel is
/// (0.5, 0.5). `point_cam = rotation point_world + translation`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Camera {
    /// Width, px.
    pub width: usize,
    /// Height, px.
    pub height: usize,
    /// Focal lengths, px.
    pub focal_px: [f64; 2],
    /// Principal point, px.
    pub centre_px: [f64; 2],
    /// Rotation from world to camera axes, in rows.
    pub rotation: [Vec3; 3],
    /// Translation in camera axes, scene units.
    pub translation: Vec3,
}

impl Camera {
    /// The same camera with so many pixels in place of one along each axis.
    pub(crate) fn finer(&self, times: usize) -> Self {
        let factor = times as f64;
        Self {
            width: self.width * times,
            height: self.height * times,
            focal_px: self.focal_px.map(|focal| focal * factor),
            centre_px: self.centre_px.map(|centre| centre * factor),
            ..*self
        }
    }

    /// The camera's place, world space.
    pub(crate) fn centre(&self) -> Vec3 {
        scale(mul_transposed(&self.rotation, self.translation), -1.0)
    }

    /// A world place in camera axes.
    #[inline]
    pub(crate) fn cam(&self, world: Vec3) -> Vec3 {
        add(mul(&self.rotation, world), self.translation)
    }

    /// The ray through a pixel's centre in camera axes, z = 1.
    #[inline]
    pub(crate) fn ray(&self, x: usize, y: usize) -> Vec3 {
        let along =
            |axis: usize, at: usize| (at as f64 + 0.5 - self.centre_px[axis]) / self.focal_px[axis];
        [along(0, x), along(1, y), 1.0]
    }

    /// What a pixel shows at this depth, world space.
    #[inline]
    pub(crate) fn world(&self, x: usize, y: usize, depth: f64) -> Vec3 {
        let cam = scale(self.ray(x, y), depth);
        mul_transposed(&self.rotation, sub(cam, self.translation))
    }

    /// Where a place in camera axes, before the camera, is seen, px.
    #[inline]
    pub(crate) fn pixel(&self, cam: Vec3) -> [f64; 2] {
        [0, 1].map(|a| self.focal_px[a] * cam[a] / cam[2] + self.centre_px[a])
    }

    /// Whether a ball, world space, may be in sight.
    pub(crate) fn sees(&self, centre: Vec3, radius: f64) -> bool {
        let cam = self.cam(centre);
        let size = [self.width as f64, self.height as f64];
        let beside = |axis: usize, span: f64, sign: f64| {
            // The plane through the camera and an edge of the image; its normal looks inwards.
            let focal = self.focal_px[axis];
            let distance = (sign * focal * cam[axis] + span * cam[2]) / focal.hypot(span);
            distance < -radius
        };
        let is_beside = |axis: usize| {
            beside(axis, self.centre_px[axis], 1.0)
                || beside(axis, size[axis] - self.centre_px[axis], -1.0)
        };
        cam[2] > -radius && !is_beside(0) && !is_beside(1)
    }
}

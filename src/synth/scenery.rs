//! What rays, light and the true mesh ask of a scene.

use splat_mesh::place::Bounds;

use super::shape::Ray;
use crate::math::linalg::Vec3;

/// A linear colour, 0..1.
pub(super) type LinearColor = Vec3<f64>;

/// Where a ray ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    /// World units from the ray's origin.
    pub distance: f64,
    pub position: Vec3<f64>,
    pub normal: Vec3<f64>,
    /// Share of the light that the surface gives back, per channel.
    pub albedo: LinearColor,
    /// Strength of the highlight.
    pub gloss: f64,
}

/// Surfaces that can be photographed.
pub(super) trait Scenery: Sync {
    /// The first surface that the ray meets.
    fn trace(&self, ray: &Ray) -> Option<Hit>;

    /// How wide a berth the ray gives all that throws shadows: the smallest angle, in radians and
    /// not above `widest`, between the ray and a surface as the ray's origin sees it; 0 where it is met.
    fn berth(&self, ray: &Ray, widest: f64) -> f64;

    /// How open the surroundings of a surface are, 0..1, felt by steps along the normal.
    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64;

    /// Zero on the surfaces, negative in what is solid, nowhere farther from zero than the distance
    /// from the surface, world units.
    fn distance(&self, point: Vec3<f64>) -> f64;

    /// A box around all surfaces, world space.
    fn bounds(&self) -> Bounds;
}

/// A linear colour written as 0xRRGGBB in sRGB.
pub(super) fn linear(hex: u32) -> LinearColor {
    let [_, red, green, blue] = hex.to_be_bytes();
    [red, green, blue].map(|channel| (f64::from(channel) / 255.0).powf(2.2))
}

/// `a` at 0, `b` at 1.
pub(super) fn mix(a: LinearColor, b: LinearColor, share: f64) -> LinearColor {
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * share)
}

/// 0 below `low`, 1 above `high`, with a soft rise between them.
pub(super) fn smooth_step(low: f64, high: f64, x: f64) -> f64 {
    let x = ((x - low) / (high - low)).clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

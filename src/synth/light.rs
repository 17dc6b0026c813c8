//! How the scene is lit: a lamp of some size, a faint counter light, and a sky.

use super::scene::{Hit, Scene};
use super::shape::Ray;
use crate::math::linalg::{Vec3, add, cross, dot, normalize, scale, sub};

/// Direction to the middle of the lamp.
const LAMP: Vec3<f64> = [0.55, -0.78, 0.32];

/// Colour and strength of the lamp.
const LAMP_COLOR: Vec3<f64> = [1.18, 1.08, 0.94];

/// Direction to the counter light, which throws no shadow, and its colour.
const COUNTER: Vec3<f64> = [-0.7, -0.25, -0.6];
const COUNTER_COLOR: Vec3<f64> = [0.10, 0.14, 0.20];

/// Light from straight above and straight below.
const SKY: [Vec3<f64>; 2] = [[0.30, 0.34, 0.40], [0.16, 0.13, 0.10]];

/// Points of the lamp along one side of its square; together they make shadows soft.
const LAMP_SIDE: usize = 3;

/// The lamp as a grid of directions.
pub(super) struct Light {
    lamp: [Vec3<f64>; LAMP_SIDE * LAMP_SIDE],
    counter: Vec3<f64>,
}

impl Light {
    pub(super) fn new() -> Self {
        let middle = normalize(LAMP);
        let right = normalize(cross(middle, [0.0, 1.0, 0.0]));
        let up = cross(right, middle);
        let offset = |i: usize| (i as f64 - 1.0) * 0.09;
        let lamp = std::array::from_fn(|i| {
            // Neighbouring samples of a pixel take points of the lamp that are far apart.
            let spread = i * 4 % (LAMP_SIDE * LAMP_SIDE);
            let sideways = scale(right, offset(spread % LAMP_SIDE));
            let upwards = scale(up, offset(spread / LAMP_SIDE));
            normalize(add(middle, add(sideways, upwards)))
        });
        Self { lamp, counter: normalize(COUNTER) }
    }

    /// Linear colour of a surface, seen along `direction`, lit by one point of the lamp.
    pub(super) fn shade(
        &self,
        scene: &Scene,
        hit: &Hit,
        direction: Vec3<f64>,
        sample: usize,
    ) -> Vec3<f64> {
        let to_lamp = self.lamp[sample % self.lamp.len()];
        let lit = self.lit(scene, hit, to_lamp);
        let halfway = normalize(sub(to_lamp, direction));
        let highlight = hit.gloss * lit * dot(hit.normal, halfway).max(0.0).powi(22);
        let matt = self.matt(scene, hit, lit);
        std::array::from_fn(|i| matt[i] + highlight * LAMP_COLOR[i])
    }

    /// Linear colour without highlight, lit by the whole lamp.
    pub(super) fn shade_matt(&self, scene: &Scene, hit: &Hit) -> Vec3<f64> {
        let lit: f64 = self.lamp.iter().map(|&to_lamp| self.lit(scene, hit, to_lamp)).sum();
        self.matt(scene, hit, lit / self.lamp.len() as f64)
    }

    /// Cosine of the light's angle, 0 in the shadow.
    fn lit(&self, scene: &Scene, hit: &Hit, to_lamp: Vec3<f64>) -> f64 {
        let cosine = dot(hit.normal, to_lamp);
        if cosine <= 0.0 {
            return 0.0;
        }
        // The shadow's ray starts clear of the surface that it leaves.
        let origin = add(hit.position, scale(hit.normal, 4e-3));
        if scene.is_blocked(&Ray { origin, direction: to_lamp }) { 0.0 } else { cosine }
    }

    fn matt(&self, scene: &Scene, hit: &Hit, lit: f64) -> Vec3<f64> {
        let open = scene.openness(hit.position, hit.normal);
        let upward = 0.5 - 0.5 * hit.normal[1];
        let counter = dot(hit.normal, self.counter).max(0.0);
        std::array::from_fn(|i| {
            let sky = SKY[1][i] + (SKY[0][i] - SKY[1][i]) * upward;
            hit.albedo[i] * (lit * LAMP_COLOR[i] + open * (sky + counter * COUNTER_COLOR[i]))
        })
    }
}

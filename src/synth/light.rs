//! Lighting: a lamp with an extent, a faint counter light, and a sky.

use super::nearest::Ray;
use super::scene::{Hit, Scenery, smooth_step};
use crate::math::linalg::{Vec3, add, dot, normalize, scale, sub};

/// Direction to the lamp, and its colour and strength.
const LAMP: Vec3<f64> = [0.55, -0.78, 0.32];

const LAMP_COLOR: Vec3<f64> = [1.18, 1.08, 0.94];

/// Angular width of a shadow's rim, radians.
const PENUMBRA: f64 = 0.16;

/// Direction and colour of the counter light, which throws no shadow.
const COUNTER: Vec3<f64> = [-0.7, -0.25, -0.6];

const COUNTER_COLOR: Vec3<f64> = [0.10, 0.14, 0.20];

/// Light from straight above and straight below.
const SKY: [Vec3<f64>; 2] = [[0.30, 0.34, 0.40], [0.16, 0.13, 0.10]];

/// Light sources, with unit directions.
pub(super) struct Light {
    lamp: Vec3<f64>,
    counter: Vec3<f64>,
    finish: Finish,
}

/// Reflection of surfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finish {
    /// Glossy surfaces have view-dependent highlights.
    Glossy,
    /// All surfaces are Lambertian.
    Matt,
}

impl Light {
    pub(super) fn new(finish: Finish) -> Self {
        Self { lamp: normalize(LAMP), counter: normalize(COUNTER), finish }
    }

    /// Returns the linear colour of a surface seen along `direction`.
    pub(super) fn shade(&self, scene: &dyn Scenery, hit: &Hit, direction: Vec3<f64>) -> Vec3<f64> {
        let lit = self.lit(scene, hit);
        let halfway = normalize(sub(self.lamp, direction));
        let gloss = match self.finish {
            Finish::Glossy => hit.gloss,
            Finish::Matt => 0.0,
        };
        let highlight = gloss * lit * dot(hit.normal, halfway).max(0.0).powi(22);
        let matt = self.matt(scene, hit, lit);
        std::array::from_fn(|i| matt[i] + highlight * LAMP_COLOR[i])
    }

    /// Returns the linear colour of a surface without its highlight.
    pub(super) fn shade_matt(&self, scene: &dyn Scenery, hit: &Hit) -> Vec3<f64> {
        self.matt(scene, hit, self.lit(scene, hit))
    }

    /// Returns the cosine of the lamp's angle, reduced in the shadow's rim, 0 in the shadow.
    fn lit(&self, scene: &dyn Scenery, hit: &Hit) -> f64 {
        let cosine = dot(hit.normal, self.lamp);
        if cosine <= 0.0 {
            return 0.0;
        }
        // The shadow ray starts above the surface.
        let origin = add(hit.position, scale(hit.normal, 4e-3));
        let berth = scene.berth(&Ray { origin, direction: self.lamp }, PENUMBRA);
        cosine * smooth_step(0.0, PENUMBRA, berth)
    }

    fn matt(&self, scene: &dyn Scenery, hit: &Hit, lit: f64) -> Vec3<f64> {
        let open = scene.openness(hit.position, hit.normal);
        let upward = 0.5 - 0.5 * hit.normal[1];
        let counter = dot(hit.normal, self.counter).max(0.0);
        std::array::from_fn(|i| {
            let sky = SKY[1][i] + (SKY[0][i] - SKY[1][i]) * upward;
            hit.albedo[i] * (lit * LAMP_COLOR[i] + open * (sky + counter * COUNTER_COLOR[i]))
        })
    }
}

/// Encodes a linear intensity for display; both 0..1.
pub(super) fn encode_srgb(linear: f64) -> f64 {
    linear.clamp(0.0, 1.0).powf(1.0 / 2.2)
}

/// Rounds values in 0..1 to 8 bits.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the value is held to 0..=255"
)]
pub(super) fn quantise(color: [f64; 3]) -> [u8; 3] {
    color.map(|channel| (channel.clamp(0.0, 1.0) * 255.0).round() as u8)
}

//! Solids of the demonstration scene with positions and colours, the trait of all scenes, and lighting: a lamp with an
//! extent, a faint counter light, and a sky.

use std::f64::consts::TAU;

use splat_mesh::narrow::round_u8;
use splat_mesh::place::Bounds;

use super::nearest::{Ray, Solid, SurfacePoint, normal};
use crate::math::linalg::{Vec3, add, dot, length, normalize, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// Radius of the floor, at which it has faded to black.
const FLOOR_RADIUS: f64 = 2.3;

/// Thickness of the floor in the true mesh, which has to be closed, world units. No camera sees the floor from below.
const FLOOR_DEPTH: f64 = 0.06;

/// Minimum depth of a point inside a solid, world units.
const BURIED: f64 = 1e-6;
const STEPS_OUT: usize = 64;

#[derive(Clone, Debug)]
struct PlacedSolid {
    centre: Vec3<f64>,
    shape: Solid,
    paint: Paint,
    colors: [LinearColor; 3],
    gloss: f64,
}

/// A pattern over a solid, in coordinates around its centre.
#[derive(Clone, Copy, Debug)]
enum Paint {
    /// Waving bands with a line between two colours.
    Bands { waves: f64, phase: f64 },
    /// Stripes that wind around a ring.
    Stripes { count: f64, phase: f64 },
    /// Two swirling colours.
    Swirl { phase: f64 },
}

/// Surfaces of the demonstration scene of a seed.
pub struct Scene {
    solids: Vec<PlacedSolid>,
    floor: [LinearColor; 3],
    floor_phase: f64,
}

/// sRGB colours of a scene: ball (two and the line), ring (two), floor (two), marbles.
struct Palette {
    ball: [u32; 3],
    ring: [u32; 2],
    floor: [u32; 3],
    marbles: [u32; 4],
}

const PALETTES: [Palette; 3] = [
    Palette {
        ball: [0xb5_3f_52, 0xf4_e4_d4, 0x3f_7f_8f],
        ring: [0x4a_8a_55, 0xef_dc_b8],
        floor: [0x5f_6f_63, 0xbf_c4_b4, 0x93_6f_57],
        marbles: [0x4f_8f_d0, 0xf0_a8_3c, 0xc7_54_8f, 0x59_b0_7a],
    },
    Palette {
        ball: [0x35_4f_9e, 0xf0_d9_b0, 0xe0_76_3a],
        ring: [0xe3_a6_2f, 0x5b_3a_6b],
        floor: [0x7c_6a_5c, 0xd3_c2_a5, 0x4f_6f_6a],
        marbles: [0xd0_4f_3f, 0x43_a0_98, 0xec_c6_58, 0x9a_66_b8],
    },
    Palette {
        ball: [0x1f_8a_8a, 0xf3_e6_cc, 0xd9_8e_2b],
        ring: [0xc8_45_35, 0xf2_dd_c0],
        floor: [0x6d_7f_93, 0xc9_c3_b4, 0x8a_6b_4f],
        marbles: [0xe9_b4_3c, 0x4c_72_c4, 0x6f_ab_4d, 0xd6_5f_85],
    },
];

impl Scene {
    /// Creates the scene of a seed, which determines colours, lobes and positions.
    pub fn new(seed: u64) -> Self {
        let stream = RandomStream::new(seed, 0, RandomUse::Synthesise);
        let phase = |i: u64| TAU * stream.uniform(i);
        let palette = &PALETTES[stream.below(6, PALETTES.len())];
        let ball = palette.ball.map(linear);
        let ring = palette.ring.map(linear);
        let mut solids = vec![
            PlacedSolid {
                centre: [0.0, -0.93, 0.0],
                shape: Solid::Gourd {
                    radius: 0.76,
                    lobes: 6.0 + stream.below(0, 3) as f64,
                    depth: 0.07,
                    twist: 1.2 + stream.uniform(1),
                },
                paint: Paint::Bands { waves: 3.0, phase: phase(2) },
                colors: ball,
                gloss: 0.16,
            },
            PlacedSolid {
                centre: [0.0, -1.77, 0.0],
                shape: Solid::Ball { radius: 0.15 },
                paint: Paint::Swirl { phase: phase(3) },
                colors: [ball[2], ball[2], ball[1]],
                gloss: 0.2,
            },
            PlacedSolid {
                centre: [0.0, -0.2, 0.0],
                shape: Solid::Ring { radius: 0.62, thickness: 0.2 },
                paint: Paint::Stripes { count: 9.0, phase: phase(4) },
                colors: [ring[0], ring[1], ring[0]],
                gloss: 0.1,
            },
        ];
        solids.extend((0_u64..4).map(|i| marble(stream, i, palette)));
        Self { solids, floor: palette.floor.map(linear), floor_phase: phase(5) }
    }

    /// Returns the nearest point on the surfaces, the floor included, to a point in world space.
    ///
    /// Surfaces inside another solid do not count. For a point inside a solid whose nearest surface does not count,
    /// the returned point may not be the nearest.
    pub fn nearest(&self, point: Vec3<f64>) -> SurfacePoint {
        let first = self.nearest_of_solids(point);
        if first.distance >= 0.0 {
            let floor = nearest_of_floor(point);
            return if floor.distance < first.distance { floor } else { first };
        }
        // Leaves the deepest solid, then the solids that its surface is buried in.
        let mut found = first;
        for _ in 0..STEPS_OUT {
            let next = self.nearest_of_solids(found.position);
            if next.distance > -BURIED {
                break;
            }
            found = next;
        }
        SurfacePoint { distance: -length(sub(point, found.position)), ..found }
    }

    /// Returns the nearest point on the solids' surfaces, for a point inside solids on the surface of the deepest one.
    fn nearest_of_solids(&self, point: Vec3<f64>) -> SurfacePoint {
        let mut found = SurfacePoint { position: point, normal: [0.0; 3], distance: f64::INFINITY };
        for solid in &self.solids {
            let local = sub(point, solid.centre);
            if length(local) - solid.shape.bound() < found.distance {
                let near = solid.shape.nearest(local);
                if near.distance < found.distance {
                    found = SurfacePoint { position: add(near.position, solid.centre), ..near };
                }
            }
        }
        found
    }

    /// Returns the distance to the floor from above.
    fn meet_floor(&self, ray: &Ray) -> Option<f64> {
        let distance = -ray.origin[1] / ray.direction[1];
        let position = ray.at(distance);
        let on_disc = position[0].hypot(position[2]) < FLOOR_RADIUS;
        (ray.direction[1] > 1e-6 && distance > 0.0 && on_disc).then_some(distance)
    }

    /// Returns the colour of the floor: tiles in rings that fade to black towards the rim.
    fn floor_color(&self, position: Vec3<f64>) -> LinearColor {
        let radius = position[0].hypot(position[2]);
        let angle = position[2].atan2(position[0]);
        let rings = (TAU * radius / 0.95).sin();
        let tiles = smooth_step(-0.25, 0.25, rings * (6.0 * angle + self.floor_phase).sin());
        let tile = mix(self.floor[0], self.floor[1], tiles);
        let line = 0.55 * (1.0 - smooth_step(0.0, 0.45, rings.abs()));
        let fade = 1.0 - smooth_step(0.68 * FLOOR_RADIUS, FLOOR_RADIUS, radius);
        scale(mix(tile, self.floor[2], line), 0.75 * fade)
    }
}

impl Scenery for Scene {
    fn trace(&self, ray: &Ray) -> Option<Hit> {
        let mut nearest: Option<(f64, &PlacedSolid)> = None;
        for solid in &self.solids {
            let before = nearest.map_or(f64::INFINITY, |(distance, _)| distance);
            if let Some(distance) = solid.shape.meet(&solid.local(ray), before) {
                nearest = Some((distance, solid));
            }
        }
        let floor = self.meet_floor(ray);
        match (nearest, floor) {
            (Some((distance, solid)), floor) if floor.is_none_or(|floor| distance < floor) => {
                let position = ray.at(distance);
                let local = sub(position, solid.centre);
                Some(Hit {
                    distance,
                    position,
                    normal: normal(local, |at| solid.shape.distance(at)),
                    albedo: solid.color(local),
                    gloss: solid.gloss,
                })
            }
            (_, Some(distance)) => {
                let (position, normal) = (ray.at(distance), [0.0, -1.0, 0.0]);
                let albedo = self.floor_color(position);
                Some(Hit { distance, position, normal, albedo, gloss: 0.0 })
            }
            _ => None,
        }
    }

    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        let berths = self.solids.iter().map(|solid| solid.shape.berth(&solid.local(ray), widest));
        berths.fold(widest, f64::min)
    }

    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64 {
        openness(OPENNESS_STEPS, |reach| {
            let probe = std::array::from_fn(|i| position[i] + normal[i] * reach);
            let mut free = -probe[1];
            for solid in &self.solids {
                let local = sub(probe, solid.centre);
                // Distances are lower bounds by at most a fifth, so that solids beyond this do not matter.
                if length(local) - solid.shape.bound() < 2.0 * reach {
                    free = free.min(solid.shape.distance(local));
                }
            }
            free
        })
    }

    fn distance(&self, point: Vec3<f64>) -> f64 {
        let rim = point[0].hypot(point[2]) - FLOOR_RADIUS;
        let under = (point[1] - 0.5 * FLOOR_DEPTH).abs() - 0.5 * FLOOR_DEPTH;
        let floor = rim.max(under).min(0.0) + rim.max(0.0).hypot(under.max(0.0));
        self.solids.iter().fold(floor, |nearest, solid| {
            let local = sub(point, solid.centre);
            // The bounding ball is no farther away than the solid.
            if length(local) - solid.shape.bound() < nearest {
                nearest.min(solid.shape.distance(local))
            } else {
                nearest
            }
        })
    }

    fn bounds(&self) -> Bounds {
        let tops = self.solids.iter().map(|solid| solid.centre[1] - solid.shape.bound());
        let top = tops.fold(0.0, f64::min);
        Bounds {
            low: [-FLOOR_RADIUS, top, -FLOOR_RADIUS],
            high: [FLOOR_RADIUS, FLOOR_DEPTH, FLOOR_RADIUS],
        }
    }
}

fn nearest_of_floor(point: Vec3<f64>) -> SurfacePoint {
    let held = FLOOR_RADIUS / point[0].hypot(point[2]).max(FLOOR_RADIUS);
    let position = [held * point[0], 0.0, held * point[2]];
    SurfacePoint { position, normal: [0.0, -1.0, 0.0], distance: length(sub(point, position)) }
}

/// Returns one of four balls on the floor, each in its own quarter.
fn marble(stream: RandomStream, index: u64, palette: &Palette) -> PlacedSolid {
    let draw = |i: u64| stream.uniform(100 + 8 * index + i);
    let radius = 0.17 + 0.13 * draw(0);
    let angle = TAU * (index as f64 + 0.2 + 0.6 * draw(1)) / 4.0;
    let away = 1.22 + 0.3 * draw(2);
    let color = linear(palette.marbles[usize::try_from(index).unwrap_or(0) % 4]);
    PlacedSolid {
        centre: [away * angle.cos(), -radius, away * angle.sin()],
        shape: Solid::Ball { radius },
        paint: Paint::Swirl { phase: TAU * draw(3) },
        colors: [color, color, mix(color, [0.9; 3], 0.75)],
        gloss: 0.2,
    }
}

impl PlacedSolid {
    /// Returns the ray relative to the centre.
    fn local(&self, ray: &Ray) -> Ray {
        Ray { origin: sub(ray.origin, self.centre), direction: ray.direction }
    }

    fn color(&self, at: Vec3<f64>) -> LinearColor {
        let angle = at[2].atan2(at[0]);
        let [first, second, third] = self.colors;
        match self.paint {
            Paint::Bands { waves, phase } => {
                let wave = (5.2 * at[1] + 0.9 * (waves * angle + phase).sin() + phase).sin();
                let band = mix(first, second, smooth_step(-0.2, 0.2, wave));
                let line = 1.0 - smooth_step(0.12, 0.4, wave.abs());
                let mottle = (4.1 * at[0] + phase).sin() * (3.7 * at[1]).sin()
                    + (4.9 * at[2] - phase).sin() * (3.1 * at[0] + 1.0).sin();
                scale(mix(band, third, line), 0.92 + 0.08 * mottle)
            }
            Paint::Stripes { count, phase } => {
                let wave = (count * angle + 7.0 * at[1] + phase).sin();
                mix(first, second, smooth_step(-0.3, 0.3, wave))
            }
            Paint::Swirl { phase } => {
                let wave = (9.0 * at[1] + 1.3 * (2.0 * angle + phase).sin() + phase).sin();
                mix(first, third, smooth_step(0.1, 0.8, wave))
            }
        }
    }
}

/// Linear colour, 0..1.
pub(super) type LinearColor = Vec3<f64>;

#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    /// Distance from the ray's origin, world units.
    pub distance: f64,
    pub position: Vec3<f64>,
    pub normal: Vec3<f64>,
    /// Albedo of each channel.
    pub albedo: LinearColor,
    /// Strength of the highlight.
    pub gloss: f64,
}

pub(super) trait Scenery: Sync {
    /// Returns the first intersection of the ray.
    fn trace(&self, ray: &Ray) -> Option<Hit>;

    /// Returns the smallest angle between the ray and a surface that throws shadows, as seen from the ray's origin,
    /// at most `widest`, radians; 0 if the ray hits.
    fn berth(&self, ray: &Ray, widest: f64) -> f64;

    /// Returns the openness of a surface's surroundings, 0..1, sampled along the normal.
    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64;

    /// Returns a signed lower bound on the distance from the surfaces, world units: zero on surfaces, negative inside
    /// solids.
    fn distance(&self, point: Vec3<f64>) -> f64;

    /// Returns a box around all surfaces, world space.
    fn bounds(&self) -> Bounds;
}

/// Distances along the normal at which openness is sampled, world units.
pub(super) const OPENNESS_STEPS: [f64; 3] = [0.06, 0.16, 0.34];

/// Returns the openness of surroundings whose surfaces are `free` away at these distances along the normal.
pub(super) fn openness(steps: [f64; 3], free: impl Fn(f64) -> f64) -> f64 {
    let closed = steps.map(|reach| (reach - free(reach)).max(0.0) / reach);
    (1.0 - 0.3 * closed.iter().sum::<f64>()).max(0.1)
}

/// Converts an sRGB colour 0xRRGGBB to a linear colour.
pub(super) fn linear(hex: u32) -> LinearColor {
    let [_, red, green, blue] = hex.to_be_bytes();
    [red, green, blue].map(|channel| (f64::from(channel) / 255.0).powf(2.2))
}

/// Blends linearly from `a` at 0 to `b` at 1.
pub(super) fn mix(a: LinearColor, b: LinearColor, share: f64) -> LinearColor {
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * share)
}

/// Rises smoothly from 0 at `low` to 1 at `high`.
pub(super) fn smooth_step(low: f64, high: f64, x: f64) -> f64 {
    let x = ((x - low) / (high - low)).clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

// Lighting.

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
    /// True if all surfaces are Lambertian, without view-dependent highlights.
    is_matt: bool,
}

impl Light {
    pub(super) fn new(is_matt: bool) -> Self {
        Self { lamp: normalize(LAMP), counter: normalize(COUNTER), is_matt }
    }

    /// Returns the linear colour of a surface seen along `direction`.
    pub(super) fn shade(&self, scene: &dyn Scenery, hit: &Hit, direction: Vec3<f64>) -> Vec3<f64> {
        let lit = self.lit(scene, hit);
        let halfway = normalize(sub(self.lamp, direction));
        let gloss = if self.is_matt { 0.0 } else { hit.gloss };
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
pub(super) fn quantise(color: [f64; 3]) -> [u8; 3] {
    color.map(|channel| round_u8(channel.clamp(0.0, 1.0) * 255.0))
}

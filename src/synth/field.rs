//! Scenes of signed distance functions, drawn by sphere tracing (Hart 1996).

use splat_mesh::place::Bounds;

use super::nearest::{Ray, normal};
use super::scene::{Hit, LinearColor, OPENNESS_STEPS, Scenery, linear, mix, openness, smooth_step};
use crate::math::linalg::{Mat3, Vec3, add, length, mul, rotation, scale, sub};
use crate::math::random::{RandomStream, RandomUse};

/// Maximum steps of a march. A ray that needs more grazes a surface and passes.
const STEPS: usize = 256;

/// Strength of the highlight of all surfaces.
const GLOSS: f64 = 0.1;

#[derive(Clone, Copy, Debug)]
struct PaintedSolid {
    placed: Placed,
    colors: [LinearColor; 2],
}

/// Interior of a room. Everything outside the free shapes is wall.
#[derive(Clone, Debug)]
struct Hollow {
    /// Shapes whose union is free.
    free: Vec<Placed>,
    /// Colours of surfaces that face up, down and sideways.
    colors: [[LinearColor; 2]; 3],
}

/// Solids, with optional walls around them.
#[derive(Clone, Debug)]
pub(super) struct FieldScene {
    parts: Vec<PaintedSolid>,
    hollow: Option<Hollow>,
    texture: Texture,
    bounds: Bounds,
}

impl Hollow {
    /// Returns a lower bound on the distance from the walls, negative inside the walls.
    fn distance(&self, point: Vec3<f64>) -> f64 {
        self.free.iter().map(|free| -free.distance(point)).fold(f64::NEG_INFINITY, f64::max)
    }
}

impl FieldScene {
    fn nearest_part(&self, point: Vec3<f64>) -> (f64, Option<&PaintedSolid>) {
        self.parts.iter().fold((f64::INFINITY, None), |nearest, part| {
            if part.placed.least_distance(point) >= nearest.0 {
                return nearest;
            }
            let distance = part.placed.distance(point);
            if distance < nearest.0 { (distance, Some(part)) } else { nearest }
        })
    }

    /// Returns the distance from the walls; infinite without walls.
    fn wall_distance(&self, point: Vec3<f64>) -> f64 {
        self.hollow.as_ref().map_or(f64::INFINITY, |hollow| hollow.distance(point))
    }

    /// Returns the intersection of a ray that has arrived at `position`.
    fn hit(&self, distance: f64, position: Vec3<f64>) -> Hit {
        let (from_part, part) = self.nearest_part(position);
        let walls = self.hollow.as_ref().filter(|hollow| hollow.distance(position) < from_part);
        let (normal, colors) = match (walls, part) {
            (Some(hollow), _) => {
                let normal = normal(position, |at| hollow.distance(at));
                (normal, hollow.colors[facing(normal)])
            }
            (None, Some(part)) => (normal(position, |at| part.placed.distance(at)), part.colors),
            (None, None) => ([0.0; 3], [[0.0; 3]; 2]),
        };
        let albedo = self.texture.color(colors, position);
        Hit { distance, position, normal, albedo, gloss: GLOSS }
    }

    /// Returns the distances at which the ray's line enters and leaves the ball around all surfaces.
    fn within(&self, ray: &Ray) -> Option<[f64; 2]> {
        let centre = scale(add(self.bounds.low, self.bounds.high), 0.5);
        ray.within(centre, 0.5 * self.bounds.diagonal())
    }

    /// Creates a ball of radius 1.
    pub(super) fn sphere(seed: u64) -> Self {
        Self {
            parts: vec![part(Shape::Ball { radius: 1.0 }, [0.0; 3], TEAL)],
            hollow: None,
            texture: Texture::new(seed, 0.5),
            bounds: Bounds { low: [-1.0; 3], high: [1.0; 3] },
        }
    }

    /// Creates a torus of radii 1 and 0.4 around the vertical axis.
    pub(super) fn torus(seed: u64) -> Self {
        Self {
            parts: vec![part(Shape::Ring { radius: 1.0, thickness: 0.4 }, [0.0; 3], RED)],
            hollow: None,
            texture: Texture::new(seed, 0.5),
            bounds: Bounds { low: [-1.4, -0.4, -1.4], high: [1.4, 0.4, 1.4] },
        }
    }

    /// Creates six solids on a plate, as in DTU's scans.
    pub(super) fn dtu(seed: u64) -> Self {
        const UP: Vec3<f64> = [0.0, -1.0, 0.0];
        let plate = Shape::Block { half: [1.0, 0.04, 1.0] };
        let parts = vec![
            part(plate, [0.0, 0.04, 0.0], STONE),
            part(Shape::Ball { radius: 0.3 }, [-0.5, -0.28, 0.35], RED),
            part(Shape::Block { half: [0.24, 0.36, 0.2] }, [0.5, -0.34, -0.4], BLUE)
                .turned(UP, 28.0),
            part(Shape::Cylinder { radius: 0.2, half_height: 0.26 }, [-0.45, -0.24, -0.4], GREEN),
            part(Shape::Ring { radius: 0.22, thickness: 0.09 }, [0.62, -0.07, 0.45], VIOLET),
            part(Shape::Cone { radii: [0.04, 0.24], half_height: 0.3 }, [0.0, -0.28, 0.02], ORANGE),
            part(Shape::Capsule { radius: 0.1, half_height: 0.22 }, [-0.05, -0.08, 0.74], TEAL)
                .turned([0.0, 0.0, 1.0], 90.0),
        ];
        Self {
            parts,
            hollow: None,
            texture: Texture::new(seed, 0.3),
            bounds: Bounds { low: [-1.0, -0.7, -1.0], high: [1.0, 0.08, 1.0] },
        }
    }

    /// Creates a room with a table, a pillar and a recess, seen from inside; in metres.
    pub(super) fn room(seed: u64) -> Self {
        let [_, half_height, _] = ROOM_HALF;
        let room = Placed::new(Shape::Block { half: ROOM_HALF }, [0.0, -half_height, 0.0]);
        // The recess overlaps the room, so that no wall is left between them.
        let recess = Placed::new(Shape::Block { half: [0.5, 0.7, 0.8] }, [3.0, -1.3, -0.4]);
        let mut parts = vec![
            part(Shape::Cylinder { radius: 0.22, half_height: 1.5 }, [-1.2, -1.35, 0.6], ORANGE),
            // The table top is 2 cm thick.
            part(Shape::Block { half: [0.7, 0.01, 0.4] }, [0.9, -0.74, 0.5], WOOD),
            part(Shape::Ball { radius: 0.14 }, [0.6, -0.88, 0.45], RED),
            part(Shape::Cylinder { radius: 0.1, half_height: 0.12 }, [1.2, -0.86, 0.6], BLUE),
            part(Shape::Block { half: [0.35, 0.3, 0.3] }, [-0.4, -0.28, -1.2], GREEN)
                .turned([0.0, -1.0, 0.0], 20.0),
        ];
        for [x, z] in [[-0.62, -0.32], [-0.62, 0.32], [0.62, -0.32], [0.62, 0.32]] {
            let leg = Shape::Block { half: [0.035, 0.38, 0.035] };
            parts.push(part(leg, [0.9 + x, -0.365, 0.5 + z], WOOD));
        }
        let colors = [STONE, PLASTER, TEAL].map(|colors| colors.map(linear));
        Self {
            parts,
            hollow: Some(Hollow { free: vec![room, recess], colors }),
            texture: Texture::new(seed, 0.7),
            bounds: Bounds { low: [-3.0, -2.0 * half_height, -2.0], high: [3.5, 0.0, 2.0] },
        }
    }
}

/// Returns the index of a wall's colours: 0 facing up, 1 down, 2 sideways; up is -y.
fn facing(normal: Vec3<f64>) -> usize {
    match normal[1] {
        up if up < -0.7 => 0,
        down if down > 0.7 => 1,
        _ => 2,
    }
}

impl Scenery for FieldScene {
    fn trace(&self, ray: &Ray) -> Option<Hit> {
        let within = self.within(ray)?;
        // The ray meets no other parts.
        let before: Vec<&Placed> = self
            .parts
            .iter()
            .map(|part| &part.placed)
            .filter(|placed| placed.within(ray, 0.0).is_some_and(|[_, leave]| leave > 0.0))
            .collect();
        if before.is_empty() && self.hollow.is_none() {
            return None;
        }
        let distance = |point| {
            before.iter().fold(self.wall_distance(point), |nearest, placed| {
                if placed.least_distance(point) < nearest {
                    nearest.min(placed.distance(point))
                } else {
                    nearest
                }
            })
        };
        let at = ray.march(within, STEPS, distance)?;
        Some(self.hit(at, ray.at(at)))
    }

    /// Walls throw no shadows: the lamp shines into the room.
    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        self.parts.iter().fold(widest, |berth, part| part.placed.berth(ray, berth))
    }

    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64 {
        openness(OPENNESS_STEPS, |reach| self.distance(add(position, scale(normal, reach))))
    }

    fn distance(&self, point: Vec3<f64>) -> f64 {
        self.nearest_part(point).0.min(self.wall_distance(point))
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

// Exact signed distances of shapes (Quilez, "Distance functions"). The axis of a shape is y.

const BERTH_STEPS: usize = 128;

#[derive(Clone, Copy, Debug)]
enum Shape {
    Ball {
        radius: f64,
    },
    /// Ring around the axis.
    Ring {
        radius: f64,
        thickness: f64,
    },
    Block {
        half: Vec3<f64>,
    },
    Cylinder {
        radius: f64,
        half_height: f64,
    },
    /// Cylinder with half balls at its ends.
    Capsule {
        radius: f64,
        half_height: f64,
    },
    /// Truncated cone with these radii at -y and at +y.
    Cone {
        radii: [f64; 2],
        half_height: f64,
    },
}

impl Shape {
    /// Returns the distance from the surface, world units; negative inside.
    fn distance(self, point: Vec3<f64>) -> f64 {
        let from_axis = (point[0] * point[0] + point[2] * point[2]).sqrt();
        match self {
            Self::Ball { radius } => length(point) - radius,
            Self::Ring { radius, thickness } => plane([from_axis - radius, point[1]]) - thickness,
            Self::Block { half } => {
                let over: Vec3<f64> = std::array::from_fn(|axis| point[axis].abs() - half[axis]);
                let most = over[0].max(over[1]).max(over[2]);
                length(over.map(|over| over.max(0.0))) + most.min(0.0)
            }
            Self::Cylinder { radius, half_height } => {
                let over = [from_axis - radius, point[1].abs() - half_height];
                plane(over.map(|over| over.max(0.0))) + over[0].max(over[1]).min(0.0)
            }
            Self::Capsule { radius, half_height } => {
                let along = point[1] - point[1].clamp(-half_height, half_height);
                plane([from_axis, along]) - radius
            }
            Self::Cone { radii, half_height } => {
                let end = if point[1] < 0.0 { radii[0] } else { radii[1] };
                let to_end = [from_axis - from_axis.min(end), point[1].abs() - half_height];
                // The flank runs from the end at +y along `flank`.
                let flank = [radii[0] - radii[1], -2.0 * half_height];
                let from_end = [from_axis - radii[1], point[1] - half_height];
                let along = (from_end[0] * flank[0] + from_end[1] * flank[1])
                    / (flank[0] * flank[0] + flank[1] * flank[1]);
                let along = along.clamp(0.0, 1.0);
                let to_flank = [from_end[0] - along * flank[0], from_end[1] - along * flank[1]];
                let side = if to_flank[0] < 0.0 && to_end[1] < 0.0 { -1.0 } else { 1.0 };
                side * plane(to_end).min(plane(to_flank))
            }
        }
    }

    fn bound(self) -> f64 {
        match self {
            Self::Ball { radius } => radius,
            Self::Ring { radius, thickness } => radius + thickness,
            Self::Block { half } => length(half),
            Self::Cylinder { radius, half_height } => plane([radius, half_height]),
            Self::Capsule { radius, half_height } => radius + half_height,
            Self::Cone { radii, half_height } => plane([radii[0].max(radii[1]), half_height]),
        }
    }
}

fn plane([x, y]: [f64; 2]) -> f64 {
    (x * x + y * y).sqrt()
}

#[derive(Clone, Copy, Debug)]
struct Placed {
    shape: Shape,
    centre: Vec3<f64>,
    /// Radius of the bounding ball.
    bound: f64,
    /// Rotation from world axes to the shape's axes, if they differ.
    turn: Option<Mat3<f64>>,
}

impl Placed {
    fn new(shape: Shape, centre: Vec3<f64>) -> Self {
        Self { shape, centre, bound: shape.bound(), turn: None }
    }

    /// Rotates the shape about a unit axis by an angle in degrees.
    fn turned(self, axis: Vec3<f64>, angle_deg: f64) -> Self {
        let (sine, cosine) = (0.5 * angle_deg.to_radians()).sin_cos();
        let turn = rotation([cosine, -sine * axis[0], -sine * axis[1], -sine * axis[2]]);
        Self { turn: Some(turn), ..self }
    }

    /// Returns the distance from the surface, world units; negative inside.
    fn distance(&self, point: Vec3<f64>) -> f64 {
        let local = sub(point, self.centre);
        self.shape.distance(self.turn.as_ref().map_or(local, |turn| mul(turn, local)))
    }

    /// Returns a quick lower bound on the distance from the surface.
    fn least_distance(&self, point: Vec3<f64>) -> f64 {
        length(sub(point, self.centre)) - self.bound
    }

    /// Returns the distances at which a ray's line enters and leaves the bounding ball, enlarged by `wider`.
    fn within(&self, ray: &Ray, wider: f64) -> Option<[f64; 2]> {
        ray.within(self.centre, self.bound + wider)
    }

    /// Returns the ray's [`Ray::berth`] along the whole surface.
    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        let wider = widest * length(sub(ray.origin, self.centre));
        let Some(within) = self.within(ray, wider) else { return widest };
        ray.berth(within, BERTH_STEPS, widest, |at| self.distance(at))
    }
}

// Content of each scene. Up is -y. Stacked parts overlap, so that no surfaces only touch.

const RED: [u32; 2] = [0xb8_4a_3e, 0xf2_d4_a4];
const BLUE: [u32; 2] = [0x2f_62_a8, 0xcf_e0_ea];
const GREEN: [u32; 2] = [0x3c_86_52, 0xe4_e2_a8];
const VIOLET: [u32; 2] = [0x78_4a_92, 0xe8_c8_d8];
const ORANGE: [u32; 2] = [0xd8_84_2c, 0x4a_5a_6a];
const TEAL: [u32; 2] = [0x1f_8a_8a, 0xf3_e6_cc];
const STONE: [u32; 2] = [0xc8_c0_b0, 0x80_74_68];
const WOOD: [u32; 2] = [0x9a_68_40, 0xd8_b0_7c];
const PLASTER: [u32; 2] = [0xe8_e4_d8, 0xb0_a8_b8];

/// Half sides of the room: 6 m long, 2.7 m high, 4 m wide.
pub(super) const ROOM_HALF: Vec3<f64> = [3.0, 1.35, 2.0];

fn part(shape: Shape, centre: Vec3<f64>, colors: [u32; 2]) -> PaintedSolid {
    PaintedSolid { placed: Placed::new(shape, centre), colors: colors.map(linear) }
}

impl PaintedSolid {
    fn turned(self, axis: Vec3<f64>, angle_deg: f64) -> Self {
        Self { placed: self.placed.turned(axis, angle_deg), ..self }
    }
}

// Surface colours: noise of three octaves, so that no two places look alike.

const OCTAVES: u64 = 3;

/// First random stream of textures; lower streams place parts and cameras.
const FIRST_STREAM: u64 = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Texture {
    seed: u64,
    /// Size of the largest patches, world units.
    grain: f64,
}

impl Texture {
    pub(super) const fn new(seed: u64, grain: f64) -> Self {
        Self { seed, grain }
    }

    /// Blends two colours by noise and varies the brightness by another noise.
    pub(super) fn color(&self, colors: [LinearColor; 2], at: Vec3<f64>) -> LinearColor {
        let share = smooth_step(0.4, 0.6, self.octaves(0, at));
        let light = 0.5 + self.octaves(1, at);
        mix(colors[0], colors[1], share).map(|channel| (light * channel).min(1.0))
    }

    /// Returns noise about 0.5, nearly always in 0..1.
    fn octaves(&self, which: u64, at: Vec3<f64>) -> f64 {
        let mut sum = 0.5;
        let (mut weight, mut size) = (1.0, self.grain);
        for octave in 0..OCTAVES {
            let step = FIRST_STREAM + OCTAVES * which + octave;
            let stream = RandomStream::new(self.seed, step, RandomUse::Synthesise);
            sum += weight * (value(stream, at.map(|x| x / size)) - 0.5);
            weight *= 0.6;
            size *= 0.5;
        }
        sum
    }
}

/// Interpolates random values at integer points smoothly (Perlin and Hoffert 1989).
fn value(stream: RandomStream, at: Vec3<f64>) -> f64 {
    let floor = at.map(f64::floor);
    let share: Vec3<f64> = std::array::from_fn(|i| smooth_step(0.0, 1.0, at[i] - floor[i]));
    let corner = |x: u8, y: u8, z: u8| {
        let place = [floor[0] + f64::from(x), floor[1] + f64::from(y), floor[2] + f64::from(z)];
        stream.uniform(index(place))
    };
    let along_x = |y: u8, z: u8| blend(corner(0, y, z), corner(1, y, z), share[0]);
    let along_y = |z: u8| blend(along_x(0, z), along_x(1, z), share[1]);
    blend(along_y(0), along_y(1), share[2])
}

fn blend(a: f64, b: f64, share: f64) -> f64 {
    a + (b - a) * share
}

/// Returns a unique number for each integer point within 2^20 of the origin.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers, of which the low bits count"
)]
fn index(place: Vec3<f64>) -> u64 {
    let [x, y, z] = place.map(|x| x as i64 as u64 & 0x1f_ffff);
    x | y << 21 | z << 42
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::differences::gradient;
    use crate::math::linalg::length;
    use crate::math::random::{RandomStream, RandomUse};

    fn all() -> [FieldScene; 4] {
        [FieldScene::sphere(1), FieldScene::torus(1), FieldScene::dtu(1), FieldScene::room(1)]
    }

    #[test]
    fn distances_are_lower_bounds() {
        let stream = RandomStream::new(8, 0, RandomUse::Sample);
        for (which, scene) in all().iter().enumerate() {
            let sides = scene.bounds.sides();
            for i in 0..2000_u64 {
                let draw = |c: usize| stream.uniform(6 * i + c as u64);
                let point = std::array::from_fn(|c| scene.bounds.low[c] + sides[c] * draw(c));
                let way: Vec3<f64> = std::array::from_fn(|c| 0.2 * (draw(3 + c) - 0.5));
                let rise = scene.distance(add(point, way)) - scene.distance(point);
                assert!(rise.abs() <= length(way) + 1e-12, "scene {which} at {point:?}");
            }
        }
    }

    #[test]
    fn surfaces_lie_within_the_bounds() {
        for (which, scene) in all().iter().enumerate() {
            let Bounds { low, high } = scene.bounds;
            let middle: Vec3<f64> = std::array::from_fn(|c| 0.5 * (low[c] + high[c]));
            for axis in 0..3 {
                for (end, outward) in [(low[axis], -1.0), (high[axis], 1.0)] {
                    let mut at = middle;
                    at[axis] = end + outward * 1e-9;
                    // Outside of open scenes nothing is solid. Around the room everything is solid.
                    let is_solid = scene.distance(at) < 0.0;
                    assert_eq!(is_solid, scene.hollow.is_some(), "scene {which}, axis {axis}");
                }
            }
        }
    }

    const SHAPES: [Shape; 6] = [
        Shape::Ball { radius: 0.7 },
        Shape::Ring { radius: 0.6, thickness: 0.2 },
        Shape::Block { half: [0.3, 0.5, 0.7] },
        Shape::Cylinder { radius: 0.4, half_height: 0.6 },
        Shape::Capsule { radius: 0.3, half_height: 0.4 },
        Shape::Cone { radii: [0.2, 0.6], half_height: 0.5 },
    ];

    #[test]
    fn a_step_down_the_gradient_ends_on_the_surface() {
        let stream = RandomStream::new(4, 0, RandomUse::Sample);
        for (kind, shape) in SHAPES.into_iter().enumerate() {
            let mut reached = 0;
            for i in 0..300 {
                let at = |c: u64| 2.4 * stream.uniform(3 * i + c) - 1.2;
                let point = [at(0), at(1), at(2)];
                let distance = shape.distance(point);
                let gradient = gradient(1e-6, point, |at| shape.distance(at));
                // An exact distance rises by 1, except at creases, on which few points lie.
                let on = sub(point, scale(gradient, distance));
                reached += u32::from(shape.distance(on).abs() < 1e-6);
            }
            assert!(reached > 295, "shape {kind}: {reached}");
        }
    }

    #[test]
    fn shapes_have_their_sizes() {
        let reach = [0.7, 0.2, 0.5, 0.6, 0.7, 0.5];
        for (shape, reach) in SHAPES.into_iter().zip(reach) {
            let at = if let Shape::Ring { radius, .. } = shape { radius } else { 0.0 };
            for side in [-1.0, 1.0] {
                assert!(shape.distance([at, side * reach, 0.0]).abs() < 1e-12, "{shape:?}");
                assert!(shape.distance([at, side * (reach - 0.01), 0.0]) < 0.0, "{shape:?}");
            }
        }
        assert!(SHAPES[5].distance([0.6, 0.5, 0.0]).abs() < 1e-12);
        assert!(SHAPES[5].distance([0.2, -0.5, 0.0]).abs() < 1e-12);
        let lying = Placed::new(SHAPES[3], [1.0, 0.0, 0.0]).turned([0.0, 0.0, 1.0], 90.0);
        assert!(lying.distance([1.6, 0.0, 0.0]).abs() < 1e-12);
        assert!(lying.distance([1.0, 0.4, 0.0]).abs() < 1e-12);
        for shape in SHAPES {
            let placed = Placed::new(shape, [0.0; 3]);
            let out = [shape.bound() / 3.0_f64.sqrt(); 3];
            assert!(shape.distance(out) > -1e-12 && placed.least_distance(out).abs() < 1e-12);
        }
    }

    #[test]
    fn noise_is_smooth_and_differs_between_places() {
        let texture = Texture::new(3, 0.5);
        let colors = [[0.8, 0.2, 0.1], [0.1, 0.3, 0.7]];
        let at = |i: i32| texture.color(colors, [f64::from(i) * 1e-3 - 2.0, 0.3, -1.7]);
        let (mut least, mut most) = (1.0_f64, 0.0_f64);
        for i in 0..4000 {
            let [red, ..] = at(i);
            let step = (at(i + 1)[0] - red).abs();
            assert!(step < 0.1, "{i}: {step}");
            (least, most) = (least.min(red), most.max(red));
        }
        assert!(most > 0.6 && least < 0.15, "{least} {most}");
    }
}

//! Scenes that are distance functions, met by sphere tracing (Hart 1996).

mod form;
mod sets;
mod texture;

use splat_mesh::place::Bounds;

use super::scenery::{Hit, LinearColor, Scenery};
use super::shape::Ray;
use crate::math::linalg::{Vec3, add, dot, normalize, scale, sub};
use form::Placed;
pub(super) use sets::ROOM_HALF;
pub(super) use texture::Texture;

/// Distance at which a march has arrived, world units, as in the demonstration's scene.
const ARRIVED: f64 = 2e-4;

/// Steps of a march; a ray that needs more grazes a surface and passes.
const STEPS: usize = 256;

/// Strength of the highlight of all surfaces.
const GLOSS: f64 = 0.1;

/// A solid and its two colours.
#[derive(Clone, Copy, Debug)]
struct PaintedSolid {
    placed: Placed,
    colors: [LinearColor; 2],
}

/// The hollow in which parts stand, where the scene is a room: all else is wall.
#[derive(Clone, Debug)]
struct Hollow {
    /// Forms whose union is free.
    free: Vec<Placed>,
    /// Colours of what faces up, down and sideways.
    colors: [[LinearColor; 2]; 3],
}

/// Solids, and perhaps walls around them.
#[derive(Clone, Debug)]
pub(super) struct FieldScene {
    parts: Vec<PaintedSolid>,
    hollow: Option<Hollow>,
    texture: Texture,
    bounds: Bounds,
}

impl Hollow {
    /// Distance from the walls, a lower bound; negative in them.
    fn distance(&self, point: Vec3<f64>) -> f64 {
        self.free.iter().map(|free| -free.distance(point)).fold(f64::NEG_INFINITY, f64::max)
    }
}

impl FieldScene {
    /// Distance from the nearest part, and which that is.
    fn nearest_part(&self, point: Vec3<f64>) -> (f64, Option<&PaintedSolid>) {
        self.parts.iter().fold((f64::INFINITY, None), |nearest, part| {
            if part.placed.least_distance(point) >= nearest.0 {
                return nearest;
            }
            let distance = part.placed.distance(point);
            if distance < nearest.0 { (distance, Some(part)) } else { nearest }
        })
    }

    /// Distance from the walls; infinite without walls.
    fn wall_distance(&self, point: Vec3<f64>) -> f64 {
        self.hollow.as_ref().map_or(f64::INFINITY, |hollow| hollow.distance(point))
    }

    /// What a ray meets at a place that it has arrived at.
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

    /// Distances at which the line of the ray enters and leaves the ball around all surfaces.
    fn within(&self, ray: &Ray) -> Option<[f64; 2]> {
        let centre = scale(add(self.bounds.low, self.bounds.high), 0.5);
        let radius = 0.5 * self.bounds.diagonal();
        let from_centre = sub(ray.origin, centre);
        let middle = -dot(from_centre, ray.direction);
        let half = radius * radius - (dot(from_centre, from_centre) - middle * middle);
        (half >= 0.0).then(|| [middle - half.sqrt(), middle + half.sqrt()])
    }
}

/// Direction out of what is solid at a place of its surface, by central differences.
fn normal(point: Vec3<f64>, distance: impl Fn(Vec3<f64>) -> f64) -> Vec3<f64> {
    const STEP: f64 = 1e-4;
    normalize(std::array::from_fn(|axis| {
        let mut offset = [0.0; 3];
        offset[axis] = STEP;
        distance(add(point, offset)) - distance(sub(point, offset))
    }))
}

/// Which of the walls' colours: 0 facing up, 1 down, 2 sideways; up is -y.
fn facing(normal: Vec3<f64>) -> usize {
    match normal[1] {
        up if up < -0.7 => 0,
        down if down > 0.7 => 1,
        _ => 2,
    }
}

impl Scenery for FieldScene {
    fn trace(&self, ray: &Ray) -> Option<Hit> {
        let [enter, leave] = self.within(ray)?;
        // The others are never met, so that no step stops for them.
        let before: Vec<&Placed> = self
            .parts
            .iter()
            .map(|part| &part.placed)
            .filter(|placed| placed.within(ray, 0.0).is_some_and(|[_, leave]| leave > 0.0))
            .collect();
        if before.is_empty() && self.hollow.is_none() {
            return None;
        }
        let mut at = enter.max(0.0);
        for _ in 0..STEPS {
            if at > leave {
                return None;
            }
            let point = ray.at(at);
            let step = before.iter().fold(self.wall_distance(point), |nearest, placed| {
                if placed.least_distance(point) < nearest {
                    nearest.min(placed.distance(point))
                } else {
                    nearest
                }
            });
            if step < ARRIVED {
                return Some(self.hit(at, point));
            }
            at += step;
        }
        None
    }

    /// Walls throw no shadows: the lamp shines into the room as if they were not there.
    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        self.parts.iter().fold(widest, |berth, part| part.placed.berth(ray, berth))
    }

    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64 {
        let closed: f64 = [0.06, 0.16, 0.34]
            .into_iter()
            .map(|reach| {
                let free = self.distance(add(position, scale(normal, reach)));
                (reach - free).max(0.0) / reach
            })
            .sum();
        (1.0 - 0.3 * closed).max(0.1)
    }

    fn distance(&self, point: Vec3<f64>) -> f64 {
        self.nearest_part(point).0.min(self.wall_distance(point))
    }

    fn bounds(&self) -> Bounds {
        self.bounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::length;
    use crate::math::random::{RandomStream, RandomUse};

    fn all() -> [FieldScene; 4] {
        [FieldScene::sphere(1), FieldScene::torus(1), FieldScene::dtu(1), FieldScene::room(1)]
    }

    #[test]
    fn no_distance_is_larger_than_the_way_to_a_surface() {
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
                    // Outside of open scenes nothing is solid; around the room everything is.
                    let is_solid = scene.distance(at) < 0.0;
                    assert_eq!(is_solid, scene.hollow.is_some(), "scene {which}, axis {axis}");
                }
            }
        }
    }
}

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
use texture::Texture;

/// Distance at which a march has arrived, world units, as in the demonstration's scene.
const ARRIVED: f64 = 2e-4;

/// Steps of a march; a ray that needs more grazes a surface and passes.
const STEPS: usize = 256;

/// Strength of the highlight of all surfaces.
const GLOSS: f64 = 0.1;

/// A solid and its two colours.
#[derive(Clone, Copy, Debug)]
struct Part {
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
    parts: Vec<Part>,
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
    fn nearest_part(&self, point: Vec3<f64>) -> (f64, Option<&Part>) {
        self.parts.iter().fold((f64::INFINITY, None), |nearest, part| {
            let distance = part.placed.distance(point);
            if distance < nearest.0 { (distance, Some(part)) } else { nearest }
        })
    }

    /// Distance from the walls; infinite without walls.
    fn from_walls(&self, point: Vec3<f64>) -> f64 {
        self.hollow.as_ref().map_or(f64::INFINITY, |hollow| hollow.distance(point))
    }

    fn normal(&self, point: Vec3<f64>) -> Vec3<f64> {
        const STEP: f64 = 1e-4;
        normalize(std::array::from_fn(|axis| {
            let mut offset = [0.0; 3];
            offset[axis] = STEP;
            self.distance(add(point, offset)) - self.distance(sub(point, offset))
        }))
    }

    fn albedo(&self, point: Vec3<f64>, normal: Vec3<f64>) -> LinearColor {
        let (distance, part) = self.nearest_part(point);
        let walls = self.hollow.as_ref().filter(|hollow| hollow.distance(point) < distance);
        let colors = match (walls, part) {
            (Some(hollow), _) => hollow.colors[facing(normal)],
            (None, Some(part)) => part.colors,
            (None, None) => return [0.0; 3],
        };
        self.texture.color(colors, point)
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
        let mut at = enter.max(0.0);
        for _ in 0..STEPS {
            if at > leave {
                return None;
            }
            let step = self.distance(ray.at(at));
            if step < ARRIVED {
                let position = ray.at(at);
                let normal = self.normal(position);
                let albedo = self.albedo(position, normal);
                return Some(Hit { distance: at, position, normal, albedo, gloss: GLOSS });
            }
            at += step;
        }
        None
    }

    /// Walls throw no shadows: the lamp shines into the room as if they were not there.
    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        let Some([_, leave]) = self.within(ray) else { return widest };
        let (mut berth, mut at) = (widest, 0.01);
        for _ in 0..STEPS {
            if at > leave || berth <= 0.0 {
                break;
            }
            let (gap, _) = self.nearest_part(ray.at(at));
            berth = berth.min((gap / at).max(0.0));
            // Short steps near the surface, lest the narrowest place fall between two.
            at += (0.8 * gap).clamp(0.01, 0.4);
        }
        berth
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
        self.nearest_part(point).0.min(self.from_walls(point))
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

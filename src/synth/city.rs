//! A city of straight streets with houses on a square grid of lots, metres. It is so large that each view shows a
//! small part.

use splat_mesh::narrow::{floor_i32, floor_usize};
use splat_mesh::place::Bounds;

use super::field::Texture;
use super::nearest::Ray;
use super::scene::{Hit, LinearColor, Scenery, linear, openness};
use crate::math::linalg::{Vec3, add, dot, scale};
use crate::math::random::{RandomStream, RandomUse};

const LOTS: i32 = 24;

/// Side of a lot, and width of the streets between houses.
const LOT: f64 = 24.0;
const STREET: f64 = 8.0;
pub(super) const CITY_HALF: f64 = 0.5 * LOT * LOTS as f64;
const HEIGHTS: [f64; 2] = [6.0, 32.0];
const GROUND: f64 = 1.0;

/// Height of a floor, and distance between windows.
const FLOOR: f64 = 3.0;
const WINDOWS: f64 = 2.6;

/// Size of the largest patches of colour.
const GRAIN: f64 = 1.8;

/// Strength of the highlight of all surfaces.
const GLOSS: f64 = 0.05;

/// Distances along the normal at which openness is sampled.
const OPENNESS_STEPS: [f64; 3] = [0.6, 2.0, 6.0];

/// Pairs of plaster colours; a house has one pair.
const PLASTER: [[u32; 2]; 6] = [
    [0xd8_c8a8, 0xb8_a078],
    [0xa0_503c, 0x7c_3c30],
    [0xc8_ccd0, 0x98_a0a8],
    [0xd0_a060, 0xa8_7c44],
    [0x90_a080, 0x6c_7c60],
    [0xb0_9cb0, 0x84_7488],
];
const ROOF: [u32; 2] = [0x8c_8478, 0x54_504c];
const GLASS: [u32; 2] = [0x30_4858, 0x58_7888];
const ASPHALT: [u32; 2] = [0x60_6060, 0x44_4448];
const PAVEMENT: [u32; 2] = [0xa8_a498, 0x80_7c74];
const LINE: u32 = 0xe0_e0d8;

/// Returns the distances at which a ray enters and leaves a box, and the axis of the entered side.
fn crossed(Bounds { low, high }: Bounds, ray: &Ray) -> Option<(f64, f64, usize)> {
    let (mut enter, mut leave, mut axis) = (f64::NEG_INFINITY, f64::INFINITY, 0);
    for k in 0..3 {
        let inverse = 1.0 / ray.direction[k];
        let ways = [low[k], high[k]].map(|side| (side - ray.origin[k]) * inverse);
        // NaN if the ray runs in the plane of a side; `min` and `max` drop it.
        let (near, far) = (ways[0].min(ways[1]), ways[0].max(ways[1]));
        if near > enter {
            (enter, axis) = (near, k);
        }
        leave = leave.min(far);
    }
    (enter <= leave && leave > 0.0).then_some((enter, leave, axis))
}

/// Returns the distance from the surface of a box, negative inside.
fn box_distance(Bounds { low, high }: Bounds, point: Vec3<f64>) -> f64 {
    let beyond: Vec3<f64> = std::array::from_fn(|k| (low[k] - point[k]).max(point[k] - high[k]));
    let outside = beyond.map(|b| b.max(0.0));
    let inside = beyond.into_iter().fold(f64::NEG_INFINITY, f64::max).min(0.0);
    dot(outside, outside).sqrt() + inside
}

struct FirstHit {
    way: f64,
    /// Axis of the side's normal.
    axis: usize,
    /// Lot of the house; `None` for the ground.
    lot: Option<[i32; 2]>,
}

#[derive(Clone, Debug)]
pub(super) struct City {
    stream: RandomStream,
    texture: Texture,
    ground: Bounds,
}

impl City {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            stream: RandomStream::new(seed, 5, RandomUse::Synthesise),
            texture: Texture::new(seed, GRAIN),
            ground: Bounds {
                low: [-CITY_HALF, 0.0, -CITY_HALF],
                high: [CITY_HALF, GROUND, CITY_HALF],
            },
        }
    }

    /// Returns a uniform random number in 0..1 of a lot.
    fn drawn(&self, [x, z]: [i32; 2], which: u64) -> f64 {
        let number = u64::from((x * LOTS + z).unsigned_abs());
        self.stream.uniform(4 * number + which)
    }

    fn house(&self, lot: [i32; 2]) -> Bounds {
        let [least, most] = HEIGHTS;
        // Few houses are high.
        let height = least + (most - least) * self.drawn(lot, 0).powi(2);
        let [x, z] = lot.map(|along| f64::from(along) * LOT - CITY_HALF);
        let (from, to) = (0.5 * STREET, LOT - 0.5 * STREET);
        Bounds { low: [x + from, -height, z + from], high: [x + to, 0.0, z + to] }
    }

    /// Returns the first house between two distances along the ray.
    fn first_house(&self, ray: &Ray, [from, to]: [f64; 2]) -> Option<FirstHit> {
        let start = ray.at(from);
        let mut lot = [0, 2].map(|k| lot_at(start[k]));
        // Distance to the next lot along each axis.
        let next = |k: usize, along: i32| {
            let direction = ray.direction[k];
            let border = f64::from(along + i32::from(direction > 0.0)) * LOT - CITY_HALF;
            if direction == 0.0 { f64::INFINITY } else { (border - ray.origin[k]) / direction }
        };
        let mut ways = [next(0, lot[0]), next(2, lot[1])];
        let steps = [0, 2].map(|k: usize| LOT / ray.direction[k].abs());
        loop {
            if let Some((way, _, axis)) = crossed(self.house(lot), ray)
                && way > 0.0
            {
                return Some(FirstHit { way, axis, lot: Some(lot) });
            }
            let along = usize::from(ways[1] < ways[0]);
            if ways[along] > to {
                return None;
            }
            ways[along] += steps[along];
            lot[along] += if ray.direction[2 * along] > 0.0 { 1 } else { -1 };
            if !(0..LOTS).contains(&lot[along]) {
                return None;
            }
        }
    }

    fn house_before(&self, ray: &Ray) -> Option<FirstHit> {
        let [least, most] = [-CITY_HALF, CITY_HALF];
        let all = Bounds { low: [least, -HEIGHTS[1], least], high: [most, 0.0, most] };
        let (enter, leave, _) = crossed(all, ray)?;
        self.first_house(ray, [enter.max(0.0), leave])
    }

    fn albedo(&self, lot: Option<[i32; 2]>, axis: usize, at: Vec3<f64>) -> LinearColor {
        let of = |pair: [u32; 2]| self.texture.color(pair.map(linear), at);
        match (lot, axis) {
            (None, 1) => of_ground(at).map_or_else(|| linear(LINE), of),
            (None, _) => of(PAVEMENT),
            (Some(_), 1) => of(ROOF),
            (Some(lot), _) => {
                // Along the wall, and up from the street.
                let along = if axis == 0 { at[2] } else { at[0] };
                let [across, up] =
                    [along / WINDOWS, -at[1] / FLOOR].map(|places| places - places.floor());
                let is_window = (0.25..0.75).contains(&across) && (0.3..0.8).contains(&up);
                if is_window {
                    return of(GLASS);
                }
                let which = self.drawn(lot, 1) * PLASTER.len() as f64;
                of(PLASTER[floor_usize(which) % PLASTER.len()])
            }
        }
    }

    /// Returns the houses on a lot and on its neighbours.
    fn houses_around(&self, lot: [i32; 2]) -> impl Iterator<Item = Bounds> {
        let near = |along: i32| (along - 1).max(0)..(along + 2).min(LOTS);
        near(lot[0]).flat_map(move |x| near(lot[1]).map(move |z| self.house([x, z])))
    }
}

/// Returns the lot at a coordinate of an axis, clamped to the city.
fn lot_at(along: f64) -> i32 {
    floor_i32(((along + CITY_HALF) / LOT).floor().clamp(0.0, f64::from(LOTS - 1)))
}

/// Returns the colours of the ground; `None` on the lines in the middle of streets.
fn of_ground(at: Vec3<f64>) -> Option<[u32; 2]> {
    let from_line = [at[0], at[2]].map(|along| {
        let places = (along + CITY_HALF) / LOT;
        (places - places.round()).abs() * LOT
    });
    let dashes = |along: f64| (along / 4.0).rem_euclid(1.0) < 0.5;
    let is_line = (from_line[0] < 0.1 && dashes(at[2])) || (from_line[1] < 0.1 && dashes(at[0]));
    let nearest = from_line[0].min(from_line[1]);
    if is_line {
        None
    } else if nearest < 0.32 * STREET {
        Some(ASPHALT)
    } else {
        Some(PAVEMENT)
    }
}

impl Scenery for City {
    fn trace(&self, ray: &Ray) -> Option<Hit> {
        let ground = crossed(self.ground, ray).filter(|&(way, ..)| way > 0.0);
        let ground = ground.map(|(way, _, axis)| FirstHit { way, axis, lot: None });
        let house = self.house_before(ray);
        let FirstHit { way, axis, lot } = match (house, ground) {
            (Some(house), Some(ground)) if ground.way < house.way => ground,
            (Some(met), _) | (None, Some(met)) => met,
            (None, None) => return None,
        };
        let position = ray.at(way);
        let mut normal = [0.0; 3];
        normal[axis] = -ray.direction[axis].signum();
        let albedo = self.albedo(lot, axis, position);
        Some(Hit { distance: way, position, normal, albedo, gloss: GLOSS })
    }

    /// Returns 0 or `widest`: shadows are sharp.
    fn berth(&self, ray: &Ray, widest: f64) -> f64 {
        if self.house_before(ray).is_some() { 0.0 } else { widest }
    }

    fn openness(&self, position: Vec3<f64>, normal: Vec3<f64>) -> f64 {
        openness(OPENNESS_STEPS, |reach| self.distance(add(position, scale(normal, reach))))
    }

    fn distance(&self, point: Vec3<f64>) -> f64 {
        let lot = [point[0], point[2]].map(lot_at);
        let near = self.houses_around(lot).map(|house| box_distance(house, point));
        let near = near.fold(box_distance(self.ground, point), f64::min);
        // Houses on other lots are no nearer than the borders towards them, from the nearest point of the city.
        let side = |along: f64, lot: i32| {
            let border = |number: i32| f64::from(number) * LOT - CITY_HALF;
            let along = along.clamp(-CITY_HALF, CITY_HALF);
            (along - border(lot - 1)).min(border(lot + 2) - along)
        };
        near.min(0.5 * STREET + side(point[0], lot[0]).min(side(point[2], lot[1])))
    }

    fn bounds(&self) -> Bounds {
        Bounds { low: [-CITY_HALF, -HEIGHTS[1], -CITY_HALF], high: [CITY_HALF, GROUND, CITY_HALF] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::linalg::{length, normalize, sub};

    /// Returns rays from above the city and from its streets.
    fn rays() -> impl Iterator<Item = Ray> {
        let stream = RandomStream::new(3, 0, RandomUse::Sample);
        (0..3000_u64).map(move |i| {
            let draw = |c: u64| 2.0 * stream.uniform(8 * i + c) - 1.0;
            let height = if i % 2 == 0 { 60.0 } else { 2.0 };
            let street = |c: u64| (draw(c) * 11.0).round() * LOT + 1.5 * draw(c + 2);
            let origin = [street(0), -height, street(1)];
            Ray { origin, direction: normalize([draw(4), draw(5) + 0.3, draw(6)]) }
        })
    }

    #[test]
    fn rays_agree_with_marching() {
        let city = City::new(7);
        let mut met = 0;
        for ray in rays() {
            let mut at = 0.0;
            let marched = loop {
                let free = city.distance(ray.at(at));
                if free < 1e-7 {
                    break Some(at);
                }
                at += free;
                if at > 2000.0 {
                    break None;
                }
            };
            match (city.trace(&ray), marched) {
                (Some(hit), Some(marched)) => {
                    // Marching ends within 1e-7 of the surface, which may be oblique.
                    let free = city.distance(hit.position).abs();
                    assert!(free < 1e-6 && hit.distance > marched - 1e-6, "{ray:?} {marched}");
                    let slant = dot(hit.normal, ray.direction).abs().max(1e-6);
                    assert!((hit.distance - marched).abs() < 1e-6 / slant, "{ray:?} {marched}");
                    met += 1;
                }
                (None, None) => {}
                (found, marched) => panic!("{ray:?}: {found:?}, marched {marched:?}"),
            }
        }
        assert!(met > 1500, "{met}");
    }

    #[test]
    fn distances_are_lower_bounds() {
        let city = City::new(7);
        let stream = RandomStream::new(8, 0, RandomUse::Sample);
        for i in 0..4000_u64 {
            let draw = |c: u64| 2.0 * stream.uniform(6 * i + c) - 1.0;
            let point = [1.2 * CITY_HALF * draw(0), 50.0 * draw(1), 1.2 * CITY_HALF * draw(2)];
            let other = add(point, [20.0 * draw(3), 20.0 * draw(4), 20.0 * draw(5)]);
            let rise = city.distance(other) - city.distance(point);
            let is_near = rise.abs() <= length(sub(other, point)) + 1e-9;
            assert!(is_near, "{point:?} {other:?}: {rise}");
        }
    }
}

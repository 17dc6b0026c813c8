//! Points of solids with a known surface, for tests and measurements.

use super::OrientedPoints;
use crate::known_meshes::{TORUS, on_torus};
use crate::mesh::Vec3;
use crate::narrow::to_f32s;
use crate::random::RandomStream;
use crate::vector::{add, normalize};

/// Uniform numbers in [0, 1) by their index.
pub(crate) fn uniform(index: u64) -> f64 {
    RandomStream::of_seed(0).uniform(index)
}

/// A standard normal number by its index (Box and Muller).
pub(crate) fn normal(index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - uniform(2 * index)).ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform(2 * index + 1)).cos()
}

fn noisy(points: &mut OrientedPoints, place: Vec3, direction: Vec3, noise: [f64; 2]) {
    let index = points.len() as u64 * 8 + (1 << 50);
    let jitter = |first: u64, size: f64| -> Vec3 {
        std::array::from_fn(|a| size * normal(index + first + a as u64))
    };
    points.places.push(to_f32s(add(place, jitter(0, noise[0]))));
    points.normals.push(to_f32s(normalize(add(direction, jitter(3, noise[1])))));
    points.colors.push(to_f32s(std::array::from_fn(|a| 0.5 + 0.5 * direction[a])));
}

/// Points of the torus, uniform by area; noise of places and of normals, standard deviation an axis.
pub(crate) fn torus(count: usize, noise: [f64; 2]) -> OrientedPoints {
    let [big, small] = TORUS;
    let mut points = OrientedPoints::default();
    let mut index = 0_u64;
    while points.len() < count {
        let [u, v] =
            [uniform(3 * index), uniform(3 * index + 1)].map(|t| t * std::f64::consts::TAU);
        let kept = uniform(3 * index + 2) * (big + small) < big + small * v.cos();
        index += 1;
        if kept {
            let [place, normal] = on_torus(u, v);
            noisy(&mut points, place, normal, noise);
        }
    }
    points
}

/// Points of the unit sphere, uniform by area, where `keep` says so.
pub(crate) fn sphere(count: usize, noise: [f64; 2], keep: impl Fn(Vec3) -> bool) -> OrientedPoints {
    let mut points = OrientedPoints::default();
    let mut index = 0_u64;
    while points.len() < count {
        let z = 2.0 * uniform(2 * index) - 1.0;
        let u = std::f64::consts::TAU * uniform(2 * index + 1);
        let r = (1.0 - z * z).sqrt();
        index += 1;
        let normal = [r * u.cos(), r * u.sin(), z];
        if keep(normal) {
            noisy(&mut points, normal, normal, noise);
        }
    }
    points
}

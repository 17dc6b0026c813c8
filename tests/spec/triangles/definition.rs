//! A pixel of triangles by the definition: areas and distances, every face in every sample.

use super::{BACKGROUND, Soup};
use crate::common::scene::NEAR;
use splat::backend::Window;
use splat::dataset::View;
use splat::math::adam::floored;
use splat::math::linalg::{add, mul, normalize, scale, sub};
use splat::math::sh;
use splat::math::splat::TRIANGLE_ALPHA_MAX;

pub(super) struct Flat {
    px: [[f64; 2]; 3],
    inverse_depths: [f64; 3],
    colors: [[f64; 3]; 3],
    opacity: f64,
}

fn cross(a: [f64; 2], b: [f64; 2], c: [f64; 2]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

impl Flat {
    fn area(&self) -> f64 {
        cross(self.px[0], self.px[1], self.px[2])
    }

    /// Returns the distances of a position from the edges opposite the corners, not below 0 inside.
    fn distances(&self, place: [f64; 2]) -> [f64; 3] {
        [0, 1, 2].map(|i| {
            let (a, b) = (self.px[(i + 1) % 3], self.px[(i + 2) % 3]);
            cross(a, b, place) * self.area().signum() / (b[0] - a[0]).hypot(b[1] - a[1])
        })
    }

    fn inradius(&self) -> f64 {
        let side = |i: usize| {
            let (a, b) = (self.px[i], self.px[(i + 1) % 3]);
            (b[0] - a[0]).hypot(b[1] - a[1])
        };
        self.area().abs() / (side(0) + side(1) + side(2))
    }

    fn at(&self, place: [f64; 2], exponent: f64) -> Option<(f64, [f64; 3], f64)> {
        let distances = self.distances(place);
        let nearest = distances.into_iter().fold(f64::INFINITY, f64::min);
        let alpha = self.opacity * (nearest.max(0.0) / self.inradius()).powf(exponent);
        if nearest <= 0.0 || alpha < 1.0 / 255.0 {
            return None;
        }
        let shares = [0, 1, 2].map(|i| {
            let (a, b) = (self.px[(i + 1) % 3], self.px[(i + 2) % 3]);
            cross(a, b, place) / self.area()
        });
        let color = (0..3).fold([0.0; 3], |sum, i| add(sum, scale(self.colors[i], shares[i])));
        let inverse_depth = (0..3).map(|i| self.inverse_depths[i] * shares[i]).sum();
        Some((alpha.min(TRIANGLE_ALPHA_MAX), color, inverse_depth))
    }
}

/// Returns the faces beyond the nearest depth, front to back, with their indices.
pub(super) fn flattened(soup: &Soup, view: &View, window: &Window) -> Vec<(usize, Flat)> {
    let vertices = &soup.vertices;
    let triple = |column: &[f32], at: usize| [0, 1, 2].map(|k| f64::from(column[at * 3 + k]));
    let of_face = |(face, corners): (usize, &[u32; 3])| {
        let rows = corners.map(|row| row as usize);
        let worlds = rows.map(|row| triple(&vertices.means, row));
        let cams = worlds.map(|world| add(mul(&view.pose.rotation, world), view.pose.translation));
        let camera = &view.camera;
        let colors = [0, 1, 2].map(|i| {
            let direction = normalize(sub(worlds[i], view.pose.centre_world()));
            let basis = sh::basis(3, direction);
            let rest = |k: usize| triple(&vertices.sh_rest, rows[i] * 15 + k - 1);
            let dc = triple(&vertices.sh_dc, rows[i]).map(|c| 0.5 + sh::C0 * c);
            let sum = (1..16).fold(dc, |sum, k| add(sum, scale(rest(k), basis[k])));
            sum.map(|c| c.max(0.0))
        });
        let opacity =
            |row: usize| floored(f64::from(vertices.opacity_logits[row]), window.opacity_floor);
        let flat = Flat {
            px: cams.map(|cam| {
                [0, 1].map(|k| cam[k] / cam[2] * camera.focal_px[k] + camera.centre_px[k])
            }),
            inverse_depths: cams.map(|cam| 1.0 / cam[2]),
            colors,
            opacity: rows.map(opacity).into_iter().fold(1.0, f64::min),
        };
        let is_seen =
            cams.iter().all(|cam| cam[2] > NEAR) && flat.inradius() > window.inradius_min_px;
        is_seen.then_some((face, flat))
    };
    let mut seen: Vec<_> = soup.faces.iter().enumerate().filter_map(of_face).collect();
    let nearness = |flat: &Flat| flat.inverse_depths.iter().sum::<f64>();
    seen.sort_by(|(_, a), (_, b)| nearness(b).total_cmp(&nearness(a)));
    seen
}

/// Returns the colours, the inverse depth and the faces' largest weights of a pixel by the definition, without tiles
/// and bounds.
pub(super) fn by_definition(
    faces: &[(usize, Flat)],
    [x, y]: [u32; 2],
    window: &Window,
    weights: &mut [f64],
) -> ([f64; 3], f64) {
    let samples = window.samples;
    let (mut color, mut inverse_depth) = ([0.0; 3], 0.0);
    for k in 0..samples * samples {
        let offset = |i: u32| (f64::from(i) + 0.5) / f64::from(samples) - 0.5;
        let place =
            [f64::from(x) + 0.5 + offset(k % samples), f64::from(y) + 0.5 + offset(k / samples)];
        let mut transmittance = 1.0;
        for (face, flat) in faces {
            let Some((alpha, here, depth)) = flat.at(place, window.exponent) else { continue };
            let weight = alpha * transmittance;
            color = add(color, scale(here, weight));
            inverse_depth += weight * depth;
            transmittance *= 1.0 - alpha;
            weights[*face] = f64::max(weights[*face], weight);
            if transmittance < 1e-4 {
                break;
            }
        }
        color = add(color, scale(BACKGROUND.map(f64::from), transmittance));
    }
    let share = 1.0 / f64::from(samples * samples);
    (scale(color, share), inverse_depth * share)
}

//! Moving, turning and scaling a mesh onto the truth: iterated closest points, from places to planes
//! (Chen and Medioni 1992), the worst tenth of the pairs left out (Chetverikov et al. 2002).

use rayon::prelude::*;
use serde::Serialize;

use super::SurfaceSamples;
use super::viewpoint::about;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f32s, to_f64s};
use crate::search::BoxTree;
use crate::vector::{add, cross, dot, length, mat_mul, mul, normalize, scale, sub};

const ROUNDS: usize = 30;
const SAMPLES: usize = 20_000;
const KEPT_SHARE: f64 = 0.9;

/// Unknowns: a turn, a shift, the logarithm of the scale.
const UNKNOWNS: usize = 7;

/// x' = scale rotation x + translation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Similarity {
    /// Factor of lengths.
    pub scale: f64,
    /// Rotation in rows.
    pub rotation: [Vec3; 3],
    /// Shift after both, world units.
    pub translation: Vec3,
}

impl Similarity {
    /// What leaves all as it is.
    pub const IDENTITY: Self = Self {
        scale: 1.0,
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation: [0.0; 3],
    };

    /// Where a place goes.
    pub fn of(&self, place: Vec3) -> Vec3 {
        add(scale(mul(&self.rotation, place), self.scale), self.translation)
    }

    /// The mesh, moved, its normals turned.
    pub fn applied_to(&self, mesh: &Mesh) -> Mesh {
        Mesh {
            vertices: mesh.vertices.iter().map(|&v| to_f32s(self.of(to_f64s(v)))).collect(),
            faces: mesh.faces.clone(),
            normals: mesh
                .normals
                .iter()
                .map(|&n| to_f32s(mul(&self.rotation, to_f64s(n))))
                .collect(),
            colors: mesh.colors.clone(),
        }
    }

    /// This after `first`.
    fn after(&self, first: &Self) -> Self {
        Self {
            scale: self.scale * first.scale,
            rotation: mat_mul(&self.rotation, &first.rotation),
            translation: self.of(first.translation),
        }
    }
}

/// A place of the mesh, the nearest one of the truth and the truth's normal there.
#[derive(Clone, Copy)]
struct Pair {
    place: Vec3,
    off: Vec3,
    normal: Vec3,
}

/// The similarity that brings the mesh onto the truth, from where it stands.
pub(super) fn align(mesh: &BoxTree<'_>, truth: &BoxTree<'_>, seed: u64) -> Similarity {
    let samples = SurfaceSamples::new(mesh.mesh(), |_| SAMPLES, seed);
    let places: Vec<Vec3> = (0..samples.len()).map(|index| samples.get(index).place).collect();
    let mut found = Similarity::IDENTITY;
    for _ in 0..ROUNDS {
        let mut pairs: Vec<Pair> = places
            .par_iter()
            .filter_map(|&place| {
                let place = found.of(place);
                let nearest = truth.nearest(place, f64::INFINITY)?;
                let normal = truth.normal(nearest.face);
                Some(Pair { place, off: sub(nearest.place, place), normal })
            })
            .collect();
        pairs.sort_by(|a, b| dot(a.off, a.off).total_cmp(&dot(b.off, b.off)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share")]
        pairs.truncate((KEPT_SHARE * pairs.len() as f64) as usize);
        let Some(step) = step(&pairs) else { break };
        found = step.after(&found);
    }
    found
}

/// The small similarity that brings the pairs closest along their normals: least squares of
/// n · (w x r + s r + t - off) over turn w, scale e^s and shift t, r from the middle of the places.
fn step(pairs: &[Pair]) -> Option<Similarity> {
    let count = pairs.len() as f64;
    let middle = scale(pairs.iter().fold([0.0; 3], |sum, pair| add(sum, pair.place)), 1.0 / count);
    let size = pairs.iter().map(|pair| length(sub(pair.place, middle))).sum::<f64>() / count;
    if !(size.is_finite() && size > 0.0) {
        return None;
    }
    let mut normal_matrix = [[0.0; UNKNOWNS]; UNKNOWNS];
    let mut right = [0.0; UNKNOWNS];
    for pair in pairs {
        let from_middle = scale(sub(pair.place, middle), 1.0 / size);
        let turn = cross(from_middle, pair.normal);
        let n = pair.normal;
        let row = [turn[0], turn[1], turn[2], n[0], n[1], n[2], dot(n, from_middle)];
        let residual = dot(n, pair.off);
        for i in 0..UNKNOWNS {
            right[i] += row[i] * residual;
            for j in 0..UNKNOWNS {
                normal_matrix[i][j] += row[i] * row[j];
            }
        }
    }
    // So little that it only decides what the surfaces leave open, as the turns of a sphere are.
    let trace: f64 = (0..UNKNOWNS).map(|i| normal_matrix[i][i]).sum();
    (0..UNKNOWNS).for_each(|i| normal_matrix[i][i] += 1e-7 * trace);
    let [wx, wy, wz, tx, ty, tz, s] = solve(normal_matrix, right)?;
    let turn = scale([wx, wy, wz], 1.0 / size);
    let rotation = about(normalize(turn), length(turn));
    let factor = (s / size).exp();
    let shift = add(middle, [tx, ty, tz]);
    let translation = sub(shift, scale(mul(&rotation, middle), factor));
    Some(Similarity { scale: factor, rotation, translation })
}

/// Solves a symmetric positive definite system by Cholesky's factors; none where it is not.
fn solve(mut a: [[f64; UNKNOWNS]; UNKNOWNS], mut b: [f64; UNKNOWNS]) -> Option<[f64; UNKNOWNS]> {
    for i in 0..UNKNOWNS {
        for j in 0..=i {
            let sum = a[i][j] - (0..j).map(|k| a[i][k] * a[j][k]).sum::<f64>();
            if i != j {
                a[i][j] = sum / a[j][j];
            } else if sum > 0.0 {
                a[i][i] = sum.sqrt();
            } else {
                return None;
            }
        }
    }
    for i in 0..UNKNOWNS {
        b[i] = (b[i] - (0..i).map(|k| a[i][k] * b[k]).sum::<f64>()) / a[i][i];
    }
    for i in (0..UNKNOWNS).rev() {
        b[i] = (b[i] - (i + 1..UNKNOWNS).map(|k| a[k][i] * b[k]).sum::<f64>()) / a[i][i];
    }
    Some(b)
}

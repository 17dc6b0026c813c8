//! Last steps of a surface's vertices onto a level of the field that it was cut from.

use rayon::prelude::*;

use super::error::CutError;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;
use crate::vector::{add, cross, length, normalize, scale, sub};

/// The vacancy on the surface.
const LEVEL: f64 = 0.5;

/// How far to polish.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polish {
    /// Most steps of a vertex.
    pub steps: u32,
    /// A vertex rests where its vacancy is as near to 1/2 as this.
    pub tolerance: f64,
    /// Step for a vacancy that is 1 off, in mean lengths of the edges at the vertex.
    pub rate: f64,
}

impl Default for Polish {
    fn default() -> Self {
        Self { steps: 10, tolerance: 0.1, rate: 0.5 }
    }
}

/// Moves vertices along their normals to where `vacancy` is 1/2; returns how many have not come
/// there.
///
/// x += r (1/2 - v(x)) l N: v rises from 0 inside to 1 outside, N is the normal, and l the mean
/// length of the edges at the vertex, which makes the step the same share of the mesh at any scale ("Gaussian
/// wrapping", primal adaptive meshing). No vertex moves farther than l in all. `vacancy` labels a
/// batch of places, once a step; where it is NaN, a vertex rests.
///
/// # Errors
/// If `vacancy` fails, or misses a place.
pub fn polish<E: From<CutError>>(
    mesh: &mut Mesh,
    polish: &Polish,
    mut vacancy: impl FnMut(&[Vec3]) -> Result<Vec<f64>, E>,
) -> Result<usize, E> {
    let place = |vertex: &[f32; 3]| vertex.map(f64::from);
    let start: Vec<Vec3> = mesh.vertices.par_iter().map(place).collect();
    let mut places = start.clone();
    let reach = mean_edges(&mesh.faces, &start);
    // A vertex without a face has no normal.
    let mut moving: Vec<usize> = (0..start.len()).filter(|&at| reach[at].is_finite()).collect();
    for _ in 0..polish.steps {
        if moving.is_empty() {
            break;
        }
        let asked: Vec<Vec3> = moving.iter().map(|&at| places[at]).collect();
        let vacancies = vacancy(&asked)?;
        if vacancies.len() != asked.len() {
            return Err(CutError::Labels { labels: vacancies.len(), points: asked.len() }.into());
        }
        let normals = normals(&mesh.faces, &places);
        let mut still = Vec::with_capacity(moving.len());
        for (&at, &v) in moving.iter().zip(&vacancies) {
            let off = LEVEL - v;
            // Also where it is NaN.
            if off.abs() < polish.tolerance || off.is_nan() {
                continue;
            }
            let step = scale(normals[at], polish.rate * off * reach[at]);
            places[at] = within(start[at], add(places[at], step), reach[at]);
            still.push(at);
        }
        moving = still;
    }
    mesh.vertices = places.into_par_iter().map(to_f32s).collect();
    Ok(moving.len())
}

/// A place, drawn to within a distance of another.
fn within(centre: Vec3, place: Vec3, distance: f64) -> Vec3 {
    let offset = sub(place, centre);
    let far = length(offset);
    if far > distance { add(centre, scale(offset, distance / far)) } else { place }
}

/// Mean length of the edges of the faces at each vertex; NaN without a face.
fn mean_edges(faces: &[[u32; 3]], places: &[Vec3]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); places.len()];
    for face in faces {
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let edge = [face[a] as usize, face[b] as usize];
            let length = length(sub(places[edge[0]], places[edge[1]]));
            for vertex in edge {
                let (sum, count) = sums[vertex];
                sums[vertex] = (sum + length, count + 1.0);
            }
        }
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

/// Unit normals of vertices: those of their faces, weighted by area.
fn normals(faces: &[[u32; 3]], places: &[Vec3]) -> Vec<Vec3> {
    let mut normals = vec![[0.0; 3]; places.len()];
    for face in faces {
        let [a, b, c] = face.map(|vertex| places[vertex as usize]);
        let twice_area = cross(sub(b, a), sub(c, a));
        for &vertex in face {
            normals[vertex as usize] = add(normals[vertex as usize], twice_area);
        }
    }
    normals.into_par_iter().map(normalize).collect()
}

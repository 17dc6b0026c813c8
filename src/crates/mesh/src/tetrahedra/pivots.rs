//! Points that tetrahedra are built over, so that the surface passes between them.

use rayon::prelude::*;

use super::CutError;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;
use crate::place::Bounds;
use crate::vector::{add, cross, length, normalize, scale, sub};

/// Standard deviations along its normal between a Gaussian and its pivots.
const REACH: f64 = 3.0;

/// Size of the box around all, over that of the pivots' own.
const ENCLOSURE: f64 = 3.0;

/// Where pivots lie about a Gaussian, besides its mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotSides {
    /// On the outer side, where a normal is learned.
    Outer,
    /// On both sides, where its sign means nothing.
    Both,
}

/// Pivots of Gaussians, and a box around them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pivots {
    /// Places, world units; the last [`Pivots::CORNERS`] are the corners of the box.
    pub points: Vec<Vec3>,
}

impl Pivots {
    /// Corners of the box, which lie outside by definition.
    pub const CORNERS: usize = 8;

    /// Pivots of flat Gaussians: each mean, and three standard deviations from it along its normal;
    /// then the corners of a box three times as large as theirs, so that the hull is outside.
    ///
    /// `gaussians` are means (world), unit normals and standard deviations along them (world
    /// units). Pivots that are not finite are left out.
    pub fn of(gaussians: impl IntoIterator<Item = (Vec3, Vec3, f64)>, sides: PivotSides) -> Self {
        let mut points: Vec<Vec3> = gaussians
            .into_iter()
            .flat_map(|(mean, normal, deviation)| {
                let step = scale(normal, REACH * deviation);
                let inner = (sides == PivotSides::Both).then(|| add(mean, scale(step, -1.0)));
                [Some(mean), Some(add(mean, step)), inner].into_iter().flatten()
            })
            .filter(|point| point.iter().all(|x| x.is_finite()))
            .collect();
        points.extend(corners(&points));
        Self { points }
    }

    /// Labels of all from those of the pivots proper: the corners are outside.
    pub fn labels(&self, mut inside: Vec<bool>) -> Vec<bool> {
        inside.truncate(self.points.len().saturating_sub(Self::CORNERS));
        inside.resize(self.points.len(), false);
        inside
    }

    /// The points but for the corners of the box.
    pub fn inner(&self) -> &[Vec3] {
        &self.points[..self.points.len().saturating_sub(Self::CORNERS)]
    }
}

/// Corners of the box around all, of at least unit size where it has none.
fn corners(points: &[Vec3]) -> [Vec3; Pivots::CORNERS] {
    let bounds = Bounds::of(points.iter().copied());
    let side = bounds.longest_side();
    let corner = |corner: usize| {
        std::array::from_fn(|axis| {
            let centre =
                if points.is_empty() { 0.0 } else { (bounds.low[axis] + bounds.high[axis]) / 2.0 };
            let half = ENCLOSURE / 2.0 * if side > 0.0 { side } else { 1.0 };
            if corner >> axis & 1 == 0 { centre - half } else { centre + half }
        })
    };
    std::array::from_fn(corner)
}

// Last steps of a surface's vertices onto a level of the field that it was cut from.

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

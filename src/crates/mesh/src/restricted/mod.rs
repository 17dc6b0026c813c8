//! A surface over given points that follows loose triangles: their restricted Delaunay
//! triangulation.
//!
//! A face of the Delaunay tetrahedra is kept where its dual, the segment between the centres of the
//! spheres on both sides, meets a triangle (Edelsbrunner and Shah, "Triangulating topological
//! spaces", 1997).

mod hierarchy;
#[cfg(test)]
mod tests;

use hierarchy::Hierarchy;
use rayon::prelude::*;

use crate::delaunay::predicates::OPPOSITE;
use crate::delaunay::{Delaunay, OUTSIDE};
use crate::edges::orient;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f32s, to_u32};
use crate::place::doubled_area;
use crate::vector::{add, cross, dot, length, normalize, scale, sub};

/// A dual reaches at most this many of its tetrahedron's longest edges: spheres of flat
/// tetrahedra have centres far from anything.
const REACH: f64 = 10.0;

/// A surface over points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Restricted {
    /// The surface; vertices in the order of their points.
    pub mesh: Mesh,
    /// The point of each vertex.
    pub point_from_vertex: Vec<u32>,
    /// Edges whose two faces could not be turned alike.
    pub conflicts: usize,
}

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RestrictedError {
    /// The neighbours of tetrahedra are missing.
    #[error(
        "{neighbours} neighbours for {tetrahedra} tetrahedra: triangulate with `Want::Neighbours`"
    )]
    Neighbours {
        /// Neighbours given.
        neighbours: usize,
        /// Tetrahedra given.
        tetrahedra: usize,
    },
    /// A tetrahedron with a corner that is no point, or a neighbour that is no tetrahedron.
    #[error("tetrahedron {tetrahedron} names what is not there: triangulate these points")]
    Stray {
        /// The tetrahedron.
        tetrahedron: usize,
    },
    /// A triangle that is not finite.
    #[error("triangle {index} has the corners {corners:?}: drop triangles that are not finite")]
    UnfitTriangle {
        /// Its index.
        index: usize,
        /// Its corners.
        corners: [Vec3; 3],
    },
    /// No dual meets a triangle.
    #[error("none of {triangles} triangles lies between the points: see that both share a space")]
    Apart {
        /// Triangles given.
        triangles: usize,
    },
}

/// The faces of the triangulation of `points` whose duals meet a triangle, turned alike, and
/// mostly as the triangles are.
///
/// Corners of a triangle run counter-clockwise seen from outside, as far as it has an outside.
///
/// # Errors
/// If parts do not fit together, triangles are not finite, or nothing meets them.
pub fn restricted(
    points: &[Vec3],
    delaunay: &Delaunay,
    triangles: &[[Vec3; 3]],
) -> Result<Restricted, RestrictedError> {
    check(points, delaunay, triangles)?;
    let hierarchy = Hierarchy::over(triangles);
    let duals = Duals { points, delaunay };
    let count = to_u32(delaunay.tetrahedra.len());
    let met: Vec<([u32; 3], u32)> = (0..count)
        .into_par_iter()
        .flat_map_iter(|tetrahedron| {
            let (duals, hierarchy) = (&duals, &hierarchy);
            (0..4).filter_map(move |corner| duals.met(tetrahedron, corner, hierarchy))
        })
        .collect();
    if met.is_empty() {
        return Err(RestrictedError::Apart { triangles: triangles.len() });
    }
    // How much each face, as it is turned now, agrees with its triangle.
    let agreement: Vec<f64> = met
        .par_iter()
        .map(|&(face, triangle)| {
            let unit = normalize(doubled_area(triangles[triangle as usize]));
            dot(doubled_area(face.map(|corner| points[corner as usize])), unit)
        })
        .collect();
    let mut faces: Vec<[u32; 3]> = met.into_iter().map(|(face, _)| face).collect();
    let conflicts = orient(&mut faces, &agreement).conflicts;
    Ok(over_used(points, faces, conflicts))
}

/// Whether all parts fit together.
fn check(
    points: &[Vec3],
    delaunay: &Delaunay,
    triangles: &[[Vec3; 3]],
) -> Result<(), RestrictedError> {
    let (tetrahedra, neighbours) = (&delaunay.tetrahedra, &delaunay.neighbours);
    if tetrahedra.len() != neighbours.len() {
        return Err(RestrictedError::Neighbours {
            neighbours: neighbours.len(),
            tetrahedra: tetrahedra.len(),
        });
    }
    let no_point = |corner: &u32| *corner as usize >= points.len();
    let no_tetrahedron = |&other: &u32| other != OUTSIDE && other as usize >= tetrahedra.len();
    let strays = |(corners, others): (&[u32; 4], &[u32; 4])| {
        corners.iter().any(no_point) || others.iter().any(no_tetrahedron)
    };
    if let Some(tetrahedron) = tetrahedra.par_iter().zip(neighbours).position_first(strays) {
        return Err(RestrictedError::Stray { tetrahedron });
    }
    let unfit = |corners: &[Vec3; 3]| corners.iter().flatten().any(|x| !x.is_finite());
    match triangles.par_iter().position_first(unfit) {
        Some(index) => Err(RestrictedError::UnfitTriangle { index, corners: triangles[index] }),
        None => Ok(()),
    }
}

/// The mesh of the points that faces use.
fn over_used(points: &[Vec3], mut faces: Vec<[u32; 3]>, conflicts: usize) -> Restricted {
    let mut point_from_vertex: Vec<u32> = faces.iter().flatten().copied().collect();
    point_from_vertex.par_sort_unstable();
    point_from_vertex.dedup();
    faces.par_iter_mut().flatten().for_each(|corner| {
        let vertex = point_from_vertex.partition_point(|point| point < corner);
        *corner = to_u32(vertex);
    });
    let place = |&point: &u32| to_f32s(points[point as usize]);
    let vertices = point_from_vertex.iter().map(place).collect();
    let mesh = Mesh { vertices, faces, ..Mesh::default() };
    Restricted { mesh, point_from_vertex, conflicts }
}

/// Segments across the faces of tetrahedra.
struct Duals<'a> {
    points: &'a [Vec3],
    delaunay: &'a Delaunay,
}

impl Duals<'_> {
    /// The face opposite to a corner, with a triangle that its dual meets; each face once.
    fn met(
        &self,
        tetrahedron: u32,
        corner: usize,
        hierarchy: &Hierarchy<'_>,
    ) -> Option<([u32; 3], u32)> {
        let other = self.delaunay.neighbours[tetrahedron as usize][corner];
        if other < tetrahedron {
            return None;
        }
        let corners = self.delaunay.tetrahedra[tetrahedron as usize];
        // The normal points to the corner: outwards is against it.
        let face = OPPOSITE[corner].map(|at| corners[at]);
        let from = self.centre(tetrahedron);
        let to = if other == OUTSIDE {
            let places = face.map(|corner| self.points[corner as usize]);
            let outwards = normalize(scale(doubled_area(places), -1.0));
            add(from, scale(outwards, REACH * longest(&places)))
        } else {
            self.centre(other)
        };
        hierarchy.met(from, to).map(|triangle| (face, triangle))
    }

    /// The centre of a tetrahedron's sphere, or the place towards it that is within reach.
    fn centre(&self, tetrahedron: u32) -> Vec3 {
        let corners = self.delaunay.tetrahedra[tetrahedron as usize];
        let places = corners.map(|corner| self.points[corner as usize]);
        let [a, b, c, d] = places;
        let (b, c, d) = (sub(b, a), sub(c, a), sub(d, a));
        // |d|² (b x c) + |c|² (d x b) + |b|² (c x d) over 2 b · (c x d).
        let towards = add(
            scale(cross(b, c), dot(d, d)),
            add(scale(cross(d, b), dot(c, c)), scale(cross(c, d), dot(b, b))),
        );
        let offset = scale(towards, 0.5 / dot(b, cross(c, d)));
        let reach = REACH * longest(&places);
        // Not so where it is NaN, either.
        if length(offset) <= reach {
            return add(a, offset);
        }
        let middle = scale(add(b, add(c, d)), 0.25);
        let direction = normalize(towards);
        let is_finite = direction.iter().all(|x| x.is_finite());
        add(a, if is_finite { scale(direction, reach) } else { middle })
    }
}

/// The longest distance between places.
fn longest(places: &[Vec3]) -> f64 {
    let mut longest = 0.0_f64;
    for (at, &a) in places.iter().enumerate() {
        for &b in &places[at + 1..] {
            longest = longest.max(length(sub(a, b)));
        }
    }
    longest
}

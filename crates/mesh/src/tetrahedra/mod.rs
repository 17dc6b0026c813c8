//! Surface between the inside and the outside of a scene, cut from tetrahedra over labelled points.
//!
//! Marching tetrahedra (Doi and Koide, 1991): a face of the surface lies in each tetrahedron with
//! corners on both sides, its corners on the edges that cross. They are found on those edges by
//! bisection with the labels of points between. The surface is closed and manifold where the hull
//! is outside, which [`Pivots`] see to.

mod crossing;
mod faces;
mod pivots;
mod polish;
#[cfg(test)]
mod tests;

use crossing::{Crossings, longest_kept};
use faces::{faces, without_vertices};
use rayon::prelude::*;

pub use pivots::{PivotSides, Pivots};
pub use polish::{Polish, polish};

use crate::mesh::{Mesh, Vec3};

/// Most bisections: a place on an edge is a number of 32 bits.
const MOST_BISECTIONS: u32 = 31;

/// Labelled points and the tetrahedra over them.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Places, world units.
    pub points: &'a [Vec3],
    /// Corners [a, b, c, d] with (b - a) x (c - a) · (d - a) > 0, each face in at most two.
    pub tetrahedra: &'a [[u32; 4]],
    /// Whether each point is inside.
    pub inside: &'a [bool],
}

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cutting {
    /// Halvings of each crossing edge, at most 31.
    pub bisections: u32,
    /// What becomes of faces that long edges hold.
    pub long_edges: LongEdges,
}

impl Default for Cutting {
    fn default() -> Self {
        Self { bisections: 8, long_edges: LongEdges::Keep }
    }
}

/// What becomes of faces whose corners lie on long edges, which span what no point has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LongEdges {
    /// They stay: the surface is closed.
    #[default]
    Keep,
    /// They go where an edge is longer than this, world units; by default
    /// [`LongEdges::MEDIANS`] medians of the crossing edges.
    Drop(Option<f64>),
}

impl LongEdges {
    /// The longest edge that holds a face of an open surface, in medians.
    pub const MEDIANS: f64 = 20.0;
}

/// A surface, and what it was cut from.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The surface; vertices in the order of their edges' lower, then higher points.
    pub mesh: Mesh,
    /// The points inside and outside that each vertex lies between.
    pub edge_from_vertex: Vec<[u32; 2]>,
    /// Faces that went with long edges.
    pub dropped_faces: usize,
}

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CutError {
    /// Not a label a point.
    #[error("{labels} labels for {points} points: give one for each")]
    Labels {
        /// Labels given.
        labels: usize,
        /// Points that they are for.
        points: usize,
    },
    /// A tetrahedron with a corner that is no point.
    #[error("tetrahedron {tetrahedron} names point {corner} of {points}: triangulate these points")]
    Corner {
        /// The tetrahedron.
        tetrahedron: usize,
        /// Its corner.
        corner: u32,
        /// Points given.
        points: usize,
    },
    /// No edge crosses the surface.
    #[error(
        "no surface: {inside} of {points} points are inside, and no edge leads outside; see \
         whether the views see the scene"
    )]
    OneSide {
        /// Points inside.
        inside: usize,
        /// Points given.
        points: usize,
    },
    /// All faces lie on long edges.
    #[error("nothing is left of {faces} faces: the longest edge of {longest} is too short")]
    NothingLeft {
        /// Faces before.
        faces: usize,
        /// The longest edge allowed, world units.
        longest: f64,
    },
}

/// Cuts the surface; `is_inside` labels a batch of places, once a bisection.
///
/// # Errors
/// If labels are missing, nothing crosses, nothing is left, or `is_inside` fails.
pub fn cut<E: From<CutError>>(
    labelled: &Labelled<'_>,
    cutting: &Cutting,
    mut is_inside: impl FnMut(&[Vec3]) -> Result<Vec<bool>, E>,
) -> Result<Cut, E> {
    check(labelled)?;
    let mut crossings = Crossings::of(labelled);
    if crossings.is_empty() {
        let inside = labelled.inside.iter().filter(|&&inside| inside).count();
        return Err(CutError::OneSide { inside, points: labelled.points.len() }.into());
    }
    for _ in 0..cutting.bisections.min(MOST_BISECTIONS) {
        let middles = crossings.middles(labelled);
        let labels = is_inside(&middles)?;
        if labels.len() != middles.len() {
            return Err(CutError::Labels { labels: labels.len(), points: middles.len() }.into());
        }
        crossings.halve(&labels);
    }
    let mut faces = faces(labelled, &crossings);
    let mut places = crossings.middles(labelled);
    let mut edge_from_vertex = crossings.into_edges(labelled);
    let all = faces.len();
    if let LongEdges::Drop(longest) = cutting.long_edges {
        let lengths = crossing::lengths(labelled.points, &edge_from_vertex);
        let longest = longest.unwrap_or_else(|| longest_kept(&lengths));
        let drops: Vec<bool> = lengths.par_iter().map(|&length| length > longest).collect();
        without_vertices(&drops, &mut faces, &mut places, &mut edge_from_vertex);
        if faces.is_empty() {
            return Err(CutError::NothingLeft { faces: all, longest }.into());
        }
    }
    let dropped_faces = all - faces.len();
    #[expect(clippy::cast_possible_truncation, reason = "rounded to a mesh's precision")]
    let rounded = |place: &Vec3| [place[0] as f32, place[1] as f32, place[2] as f32];
    let vertices = places.par_iter().map(rounded).collect();
    Ok(Cut { mesh: Mesh { vertices, faces, ..Mesh::default() }, edge_from_vertex, dropped_faces })
}

/// Whether there is a label a point and a point a corner.
fn check(labelled: &Labelled<'_>) -> Result<(), CutError> {
    let points = labelled.points.len();
    if labelled.inside.len() != points {
        return Err(CutError::Labels { labels: labelled.inside.len(), points });
    }
    let stray = |corner: &u32| *corner as usize >= points;
    let strays = |corners: &[u32; 4]| corners.iter().any(stray);
    match labelled.tetrahedra.par_iter().position_first(strays) {
        Some(tetrahedron) => {
            let corners = labelled.tetrahedra[tetrahedron];
            let corner = corners.into_iter().find(stray).unwrap_or_default();
            Err(CutError::Corner { tetrahedron, corner, points })
        }
        None => Ok(()),
    }
}

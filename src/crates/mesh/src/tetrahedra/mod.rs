//! Surface between the inside and the outside of a scene, cut from tetrahedra over labelled points.
//!
//! Marching tetrahedra (Doi and Koide, 1991): a face of the surface lies in each tetrahedron with
//! corners on both sides, its corners on the edges that cross. They are found on those edges by
//! bisection with the labels of points between. The surface is closed and manifold where the hull
//! is outside, which [`Pivots`] see to.

mod crossing;
mod cutting;
mod error;
mod faces;
mod labelled;
mod pivots;
mod polish;
#[cfg(test)]
mod tests;

use crossing::{Crossings, longest_kept};
use faces::{faces, without_vertices};
use labelled::check;
use rayon::prelude::*;

pub use cutting::{Cutting, LongEdges};
pub use error::CutError;
pub use labelled::Labelled;
pub use pivots::{PivotSides, Pivots};
pub use polish::{Polish, polish};

use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;

/// Most bisections: a place on an edge is a number of 32 bits.
const MOST_BISECTIONS: u32 = 31;

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
    let vertices = places.into_par_iter().map(to_f32s).collect();
    Ok(Cut { mesh: Mesh { vertices, faces, ..Mesh::default() }, edge_from_vertex, dropped_faces })
}

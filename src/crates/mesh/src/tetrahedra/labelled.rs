//! Labelled points and the tetrahedra over them.

use rayon::prelude::*;

use super::error::CutError;
use crate::mesh::Vec3;

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

/// Whether there is a label a point and a point a corner.
pub(super) fn check(labelled: &Labelled<'_>) -> Result<(), CutError> {
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

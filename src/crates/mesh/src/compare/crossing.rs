//! Faces that pass through others.

use rayon::prelude::*;
use serde::Serialize;

use crate::mesh::Vec3;
use crate::narrow::to_u32;
use crate::place::doubled_area;
use crate::search::BoxTree;
use crate::vector::{add, cross, dot, scale, sub};

/// Most faces that are looked at.
const SAMPLED: usize = 100_000;

/// Faces of a sample that pass through others of the surface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FaceCrossings {
    /// Faces that were looked at, evenly over all.
    pub sampled: usize,
    /// Those that pass through another.
    pub crossing: usize,
}

/// Looks for self-intersections at 100,000 faces, or at all where there are fewer.
pub fn self_crossings(tree: &BoxTree<'_>) -> FaceCrossings {
    let faces = tree.mesh().faces.len();
    let sampled = faces.min(SAMPLED);
    let crossing = (0..sampled)
        .into_par_iter()
        .filter(|&index| crosses(tree, to_u32(index * faces / sampled)))
        .count();
    FaceCrossings { sampled, crossing }
}

fn crosses(tree: &BoxTree<'_>, face: u32) -> bool {
    let places = tree.corners(face);
    let mut found = false;
    tree.neighbours(face, |other| {
        if found || other == face {
            return;
        }
        let others = tree.corners(other);
        // Those that share a corner, by place, meet there.
        if places.iter().any(|place| others.contains(place)) {
            return;
        }
        found = pierces(places, others) || pierces(others, places);
    });
    found
}

/// Whether a side of one triangle passes through the inside of the other. Both ends lie clearly on
/// either side of its plane: neighbours in one plane, but for rounding, only touch.
fn pierces(sides: [Vec3; 3], through: [Vec3; 3]) -> bool {
    const CLEARLY: f64 = 1e-9;
    let normal = doubled_area(through);
    let squared = dot(normal, normal);
    let heights = sides.map(|place| dot(normal, sub(place, through[0])));
    // Twice the area is about the square of a side's length.
    let least = CLEARLY * squared.sqrt() * squared.sqrt().sqrt();
    (0..3).any(|corner| {
        let (from, to) = (heights[corner], heights[(corner + 1) % 3]);
        if from * to >= 0.0 || from.abs() < least || to.abs() < least {
            return false;
        }
        let along = sub(sides[(corner + 1) % 3], sides[corner]);
        let place = add(sides[corner], scale(along, from / (from - to)));
        (0..3).all(|side| {
            let (a, b) = (through[side], through[(side + 1) % 3]);
            dot(normal, cross(sub(b, a), sub(place, a))) > 1e-6 * squared
        })
    })
}

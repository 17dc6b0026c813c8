//! Faces in the tetrahedra that the surface crosses.

use rayon::prelude::*;

use super::crossing::Crossings;
use super::labelled::Labelled;
use crate::delaunay::predicates::OPPOSITE;
use crate::mesh::Vec3;

/// Faces of all tetrahedra, in their order, with normals that point outside.
pub(super) fn faces(labelled: &Labelled<'_>, crossings: &Crossings) -> Vec<[u32; 3]> {
    let of = |corners: &[u32; 4]| faces_in(*corners, labelled.inside, crossings);
    labelled.tetrahedra.par_iter().flat_map_iter(of).collect()
}

/// The faces in a tetrahedron: none, one, or two that share a diagonal.
fn faces_in(
    corners: [u32; 4],
    inside: &[bool],
    crossings: &Crossings,
) -> impl Iterator<Item = [u32; 3]> + use<> {
    let is_inside = corners.map(|corner| inside[corner as usize]);
    // Every edge asked for crosses, so a vertex is on it.
    let vertex = |a: usize, b: usize| crossings.vertex(corners[a], corners[b]).unwrap_or(0);
    let lone = |corner: usize| OPPOSITE[corner].map(|other| vertex(corner, other));
    let position = |value: bool| is_inside.iter().position(|&inside| inside == value).unwrap_or(0);
    let found = match is_inside.iter().filter(|&&inside| inside).count() {
        1 => {
            let [a, b, c] = lone(position(true));
            [Some([a, c, b]), None]
        }
        3 => [Some(lone(position(false))), None],
        2 => {
            let [i, j, k, l] = split(is_inside);
            halves([vertex(i, k), vertex(i, l), vertex(j, l), vertex(j, k)])
        }
        _ => [None, None],
    };
    found.into_iter().flatten()
}

/// Corners with the two that are inside first, in an order of the same sign.
fn split(is_inside: [bool; 4]) -> [usize; 4] {
    match is_inside {
        [true, true, ..] => [0, 1, 2, 3],
        [true, _, true, _] => [0, 2, 3, 1],
        [true, ..] => [0, 3, 1, 2],
        [_, true, true, _] => [1, 2, 0, 3],
        [_, true, ..] => [1, 3, 2, 0],
        _ => [2, 3, 0, 1],
    }
}

/// The triangles of a quadrangle on both sides of its lowest corner's diagonal.
fn halves(quad: [u32; 4]) -> [Option<[u32; 3]>; 2] {
    let first = (0..4).min_by_key(|&at| quad[at]).unwrap_or(0);
    let corner = |at: usize| quad[(first + at) & 3];
    [Some([corner(0), corner(1), corner(2)]), Some([corner(0), corner(2), corner(3)])]
}

/// Drops vertices with the faces that have them as corners, then vertices without a face.
pub(super) fn without_vertices(
    drops: &[bool],
    faces: &mut Vec<[u32; 3]>,
    places: &mut Vec<Vec3>,
    edges: &mut Vec<[u32; 2]>,
) {
    faces.retain(|face| face.iter().all(|&vertex| !drops[vertex as usize]));
    let mut is_used = vec![false; drops.len()];
    for &vertex in faces.iter().flatten() {
        is_used[vertex as usize] = true;
    }
    let mut kept = 0;
    let new_from_old: Vec<u32> = is_used
        .iter()
        .map(|&is_used| {
            let new = kept;
            kept += u32::from(is_used);
            new
        })
        .collect();
    for vertex in faces.iter_mut().flatten() {
        *vertex = new_from_old[*vertex as usize];
    }
    let mut used = is_used.iter();
    places.retain(|_| used.next().copied().unwrap_or(false));
    let mut used = is_used.iter();
    edges.retain(|_| used.next().copied().unwrap_or(false));
}

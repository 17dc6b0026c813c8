//! Vertices at one place, and faces of the same vertices.

use rayon::prelude::*;

use crate::mesh::Mesh;
use crate::narrow::to_u32;

/// Lets faces use the first of the vertices at a place; how many others there are.
pub(super) fn weld(mesh: &mut Mesh) -> usize {
    let vertices = &mesh.vertices;
    // Both zeros are one place.
    let bits = |vertex: u32| vertices[vertex as usize].map(|x| (x + 0.0).to_bits());
    let mut order: Vec<u32> = (0..to_u32(vertices.len())).collect();
    order.par_sort_unstable_by_key(|&vertex| (bits(vertex), vertex));
    let mut firsts: Vec<u32> = (0..to_u32(vertices.len())).collect();
    let mut equal = 0;
    for group in order.chunk_by(|&a, &b| bits(a) == bits(b)) {
        equal += group.len() - 1;
        group.iter().for_each(|&vertex| firsts[vertex as usize] = group[0]);
    }
    mesh.faces.iter_mut().flatten().for_each(|vertex| *vertex = firsts[*vertex as usize]);
    equal
}

/// Keeps the first of the faces of the same vertices, whichever side they show; how many go.
pub(super) fn drop_duplicate_faces(mesh: &mut Mesh) -> usize {
    let key = |index: u32| {
        let mut face = mesh.faces[index as usize];
        face.sort_unstable();
        face
    };
    let mut order: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
    order.par_sort_unstable_by_key(|&index| (key(index), index));
    let mut is_kept = vec![false; mesh.faces.len()];
    for group in order.chunk_by(|&a, &b| key(a) == key(b)) {
        is_kept[group[0] as usize] = true;
    }
    keep_faces(mesh, &is_kept)
}

/// Keeps some of the faces, in their order; how many go.
pub(super) fn keep_faces(mesh: &mut Mesh, is_kept: &[bool]) -> usize {
    let before = mesh.faces.len();
    let mut kept = is_kept.iter();
    mesh.faces.retain(|_| kept.next().copied().unwrap_or(true));
    before - mesh.faces.len()
}

//! A first pass over the blocks of a mesh that is too large to be decimated at once.

use meshopt::{SimplifyOptions, SimplifyVertex};
use rayon::prelude::*;

use super::collapse::collapse;
use crate::mesh::Mesh;
use crate::narrow::to_u32;
use crate::vertices::compact;

/// Decimates a mesh to about `target_faces`, each of its blocks of at most `block_faces` by the same
/// share; how many blocks there were. Vertices that blocks share stay where they are, so the blocks
/// fit. The same for any number of threads.
pub(super) fn decimate_in_blocks(
    mesh: &mut Mesh,
    target_faces: usize,
    block_faces: usize,
) -> usize {
    let blocks = cut(mesh, block_faces);
    let is_shared = shared_vertices(mesh, &blocks);
    let total = mesh.faces.len() as u128;
    let parts: Vec<Part> = blocks
        .par_iter()
        .map(|faces| {
            let share = faces.len() as u128 * target_faces as u128 / total.max(1);
            let mut part = Part::of(mesh, faces);
            let locks: Vec<SimplifyVertex> =
                part.names.iter().map(|&vertex| lock(is_shared[vertex as usize])).collect();
            let target = usize::try_from(share).unwrap_or(usize::MAX);
            collapse(&mut part.mesh, Some(&locks), target, SimplifyOptions::Regularize);
            part
        })
        .collect();
    mesh.faces.clear();
    for part in parts {
        for (index, &name) in part.names.iter().enumerate() {
            mesh.vertices[name as usize] = part.mesh.vertices[index];
            if let Some(color) = part.mesh.colors.get(index) {
                mesh.colors[name as usize] = *color;
            }
        }
        let faces = part.mesh.faces.iter();
        mesh.faces.extend(faces.map(|face| face.map(|vertex| part.names[vertex as usize])));
    }
    compact(mesh);
    blocks.len()
}

fn lock(is_shared: bool) -> SimplifyVertex {
    if is_shared { SimplifyVertex::Lock } else { SimplifyVertex::None }
}

/// A block as a mesh of its own, with the names of its vertices in the whole.
struct Part {
    mesh: Mesh,
    names: Vec<u32>,
}

impl Part {
    fn of(mesh: &Mesh, faces: &[u32]) -> Self {
        let corners = || faces.iter().flat_map(|&face| mesh.faces[face as usize]);
        let mut names: Vec<u32> = corners().collect();
        names.sort_unstable();
        names.dedup();
        let rows = |rows: &[[f32; 3]]| -> Vec<[f32; 3]> {
            names.iter().filter_map(|&name| rows.get(name as usize).copied()).collect()
        };
        let (vertices, colors) = (rows(&mesh.vertices), rows(&mesh.colors));
        let local = |vertex: u32| to_u32(names.partition_point(|&name| name < vertex));
        let faces = faces.iter().map(|&face| mesh.faces[face as usize].map(local)).collect();
        Self { mesh: Mesh { vertices, faces, normals: Vec::new(), colors }, names }
    }
}

/// Cuts the faces at the median of the longest axis until no part has too many. Faces of a block stay
/// in their order.
fn cut(mesh: &Mesh, block_faces: usize) -> Vec<Vec<u32>> {
    let mut blocks = Vec::new();
    let mut left = vec![(0..to_u32(mesh.faces.len())).collect::<Vec<u32>>()];
    while let Some(mut faces) = left.pop() {
        if faces.len() <= block_faces {
            faces.sort_unstable();
            blocks.push(faces);
            continue;
        }
        let first = |face: u32| mesh.vertices[mesh.faces[face as usize][0] as usize];
        let sides: [f32; 3] = std::array::from_fn(|axis| {
            let along = faces.iter().map(|&face| first(face)[axis]);
            along.clone().fold(f32::NEG_INFINITY, f32::max) - along.fold(f32::INFINITY, f32::min)
        });
        let axis = (0..3).max_by(|&a, &b| sides[a].total_cmp(&sides[b])).unwrap_or(0);
        let middle = faces.len() / 2;
        faces.select_nth_unstable_by(middle, |&a, &b| {
            first(a)[axis].total_cmp(&first(b)[axis]).then(a.cmp(&b))
        });
        left.push(faces.split_off(middle));
        left.push(faces);
    }
    blocks
}

/// Which vertices faces of more than one block use.
fn shared_vertices(mesh: &Mesh, blocks: &[Vec<u32>]) -> Vec<bool> {
    let mut users = vec![u32::MAX; mesh.vertices.len()];
    let mut is_shared = vec![false; mesh.vertices.len()];
    for (block, faces) in (0_u32..).zip(blocks) {
        for vertex in faces.iter().flat_map(|&face| mesh.faces[face as usize]) {
            let user = &mut users[vertex as usize];
            is_shared[vertex as usize] |= *user != u32::MAX && *user != block;
            *user = block;
        }
    }
    is_shared
}

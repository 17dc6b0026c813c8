//! Fewer faces for the same surface, by edge collapses under quadric errors of places and colours
//! (meshoptimizer), then cleaned.

#[cfg(test)]
mod tests;

use meshopt::{SimplifyOptions, SimplifyVertex, simplify_with_update};
use rayon::prelude::*;

use crate::clean::{CleanCounts, CleanError, CleanOptions, MinComponent, Sides, clean};
use crate::mesh::Mesh;
use crate::mesh::check_mesh;
use crate::mesh::compact;
use crate::mesh::vertex_normals;
use crate::narrow::to_u32;

/// How many times the final target a mesh in blocks keeps until the last pass, which alone moves what
/// lies between blocks.
const BLOCKS_KEEP: usize = 2;

/// How far to decimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecimateOptions {
    /// Most faces that are left.
    pub target_faces: usize,
    /// Most faces that are decimated at once; more are cut in blocks first.
    pub block_faces: usize,
}

impl DecimateOptions {
    /// Down to so many faces, in blocks above a million.
    pub fn to(target_faces: usize) -> Self {
        Self { target_faces, block_faces: 1_000_000 }
    }
}

/// What decimation did.
#[derive(Clone, Debug, PartialEq)]
pub struct Decimated {
    /// Faces that came.
    pub faces_before: usize,
    /// Faces that are left; more than the target only where the surface allows no fewer.
    pub faces: usize,
    /// Blocks of the first pass; 1 where there was none.
    pub blocks: usize,
    /// What was cleaned afterwards.
    pub cleaned: CleanCounts,
}

/// Decimates a mesh to `target_faces` or fewer. Vertices move and colours change to where the error is
/// least; borders are kept as long as can be. Normals, if there were any, are computed anew.
pub fn decimate(
    mut mesh: Mesh,
    options: &DecimateOptions,
) -> Result<(Mesh, Decimated), CleanError> {
    check_mesh(&mesh)?;
    let faces_before = mesh.faces.len();
    let has_normals = !mesh.normals.is_empty();
    let mut blocks = 1;
    if faces_before > options.target_faces {
        mesh.normals.clear();
        let kept = options.target_faces.saturating_mul(BLOCKS_KEEP);
        if faces_before > options.block_faces && faces_before > kept {
            blocks = decimate_in_blocks(&mut mesh, kept, options.block_faces.max(1));
        }
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Regularize);
        // What holds it back, if anything does, is the rule for even faces or that pieces stay.
        collapse(&mut mesh, None, options.target_faces, SimplifyOptions::Prune);
        if mesh.faces.is_empty() {
            let target = options.target_faces;
            return Err(CleanError::DecimatedAway { faces: faces_before, target });
        }
        compact(&mut mesh);
    }
    let as_it_is = CleanOptions {
        min_component: MinComponent::Faces(0),
        sides: Sides::Kept,
        fill_hole_edges: 0,
    };
    let (mut mesh, cleaned) = clean(mesh, &as_it_is)?;
    if has_normals && faces_before > options.target_faces {
        mesh.normals = vertex_normals(&mesh);
    }
    let faces = mesh.faces.len();
    Ok((mesh, Decimated { faces_before, faces, blocks, cleaned }))
}

// Edge collapses of a whole mesh or of one block.

/// How much a colour channel counts against a place, in the mesh's size.
const COLOR_WEIGHT: f32 = 0.05;

/// Collapses edges of a checked mesh without normals until `target_faces` are left or none can be
/// collapsed; nothing where there are no more. Vertices that are no longer used stay.
fn collapse(
    mesh: &mut Mesh,
    locks: Option<&[SimplifyVertex]>,
    target_faces: usize,
    options: SimplifyOptions,
) {
    if mesh.faces.len() <= target_faces {
        return;
    }
    let has_colors = !mesh.colors.is_empty();
    let weights: &[f32] = if has_colors { &[COLOR_WEIGHT; 3] } else { &[] };
    let left = simplify_with_update(
        mesh.faces.as_flattened_mut(),
        &mut mesh.vertices,
        mesh.colors.as_flattened_mut(),
        weights,
        size_of_val(weights),
        locks,
        target_faces.saturating_mul(3),
        f32::MAX,
        options,
        None,
    );
    mesh.faces.truncate(left / 3);
    mesh.colors
        .as_flattened_mut()
        .iter_mut()
        .for_each(|channel| *channel = channel.clamp(0.0, 1.0));
}

// A first pass over the blocks of a mesh that is too large to be decimated at once.

/// Decimates a mesh to about `target_faces`, each of its blocks of at most `block_faces` by the same
/// share; how many blocks there were. Vertices that blocks share stay where they are, so the blocks
/// fit. The same for any number of threads.
fn decimate_in_blocks(mesh: &mut Mesh, target_faces: usize, block_faces: usize) -> usize {
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

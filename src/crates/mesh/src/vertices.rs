//! Vertices dropped and copied, with all that belongs to them.

use crate::mesh::Mesh;
use crate::narrow::to_u32;

/// Drops vertices that no face uses; how many.
pub(super) fn compact(mesh: &mut Mesh) -> usize {
    drop_unused(mesh).iter().filter(|&&used| !used).count()
}

/// Drops vertices that no face uses; whether each was used.
pub(super) fn drop_unused(mesh: &mut Mesh) -> Vec<bool> {
    let mut is_used = vec![false; mesh.vertices.len()];
    mesh.faces.iter().flatten().for_each(|&vertex| is_used[vertex as usize] = true);
    let mut names = Vec::with_capacity(is_used.len());
    let mut kept = 0_u32;
    for &used in &is_used {
        names.push(kept);
        kept += u32::from(used);
    }
    mesh.faces.iter_mut().flatten().for_each(|vertex| *vertex = names[*vertex as usize]);
    for rows in [&mut mesh.vertices, &mut mesh.normals, &mut mesh.colors] {
        keep_rows(rows, &is_used);
    }
    is_used
}

/// Keeps the rows that `keep` says; those beyond its end stay.
pub(super) fn keep_rows<T>(rows: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    rows.retain(|_| keep.next().copied().unwrap_or(true));
}

/// Adds a copy of a vertex, with normal and colour; its name.
pub(super) fn copy_of(mesh: &mut Mesh, vertex: u32) -> u32 {
    let name = to_u32(mesh.vertices.len());
    for rows in [&mut mesh.vertices, &mut mesh.normals, &mut mesh.colors] {
        rows.extend(rows.get(vertex as usize).copied());
    }
    name
}

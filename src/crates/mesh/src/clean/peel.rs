//! The frayed border of a surface, taken off (parity with SuGaR's post-processing).

use crate::edges::Edges;
use crate::mesh::{Mesh, Vec3};
use crate::place::{centroid, corners};
use crate::vertices::{compact, keep_rows};

/// Which faces of a checked mesh stay when, so many times, all faces at a boundary are removed, as
/// the remaining faces have it. Whoever asks may let some stay by the density at their
/// [centres](face_centres).
pub fn peel_border(mesh: &Mesh, times: usize) -> Vec<bool> {
    let mut left: Vec<u32> = (0..crate::narrow::to_u32(mesh.faces.len())).collect();
    for _ in 0..times {
        let faces: Vec<[u32; 3]> = left.iter().map(|&face| mesh.faces[face as usize]).collect();
        let mut is_border = vec![false; faces.len()];
        for group in Edges::of(&faces).groups() {
            if let [alone] = group {
                is_border[alone.side as usize / 3] = true;
            }
        }
        let mut border = is_border.iter();
        let before = left.len();
        left.retain(|_| !border.next().copied().unwrap_or(false));
        if left.len() == before {
            break;
        }
    }
    let mut stays = vec![false; mesh.faces.len()];
    left.into_iter().for_each(|face| stays[face as usize] = true);
    stays
}

/// A mesh of the faces that stay, without vertices that none of them uses.
pub fn keep_faces(mut mesh: Mesh, stays: &[bool]) -> Mesh {
    keep_rows(&mut mesh.faces, stays);
    compact(&mut mesh);
    mesh
}

/// The centre of each face of a checked mesh, world space.
pub fn face_centres(mesh: &Mesh) -> Vec<Vec3> {
    mesh.faces.iter().map(|&face| centroid(corners(mesh, face))).collect()
}

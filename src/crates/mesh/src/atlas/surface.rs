//! The faces of a mesh and which of them have a common side.

use rayon::prelude::*;

use crate::edges::{Edges, NO_SIDE};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_u32;
use crate::place::{corners, doubled_area};
use crate::union_find::UnionFind;
use crate::vector::normalize;

/// A checked mesh and what charts are cut by.
pub(super) struct Surface<'a> {
    pub(super) mesh: &'a Mesh,
    /// The other side of each side, or [`NO_SIDE`].
    pub(super) twins: Vec<u32>,
    /// Unit normals of the faces; zero of those without area.
    pub(super) normals: Vec<Vec3>,
}

impl<'a> Surface<'a> {
    pub(super) fn of(mesh: &'a Mesh) -> Self {
        let normal = |&face: &[u32; 3]| normalize(doubled_area(corners(mesh, face)));
        Self {
            mesh,
            twins: Edges::of(&mesh.faces).twins(),
            normals: mesh.faces.par_iter().map(normal).collect(),
        }
    }

    /// The faces that have a side in common with one.
    pub(super) fn neighbours(&self, face: u32) -> impl Iterator<Item = u32> {
        let sides = 3 * face as usize..3 * face as usize + 3;
        self.twins[sides].iter().filter(|&&twin| twin != NO_SIDE).map(|twin| twin / 3)
    }

    /// Connected patches of some faces, which are in ascending order.
    pub(super) fn patches(&self, faces: &[u32]) -> Vec<Vec<u32>> {
        let mut sets = UnionFind::new(faces.len());
        for (at, &face) in faces.iter().enumerate() {
            for other in self.neighbours(face) {
                if let Ok(other) = faces.binary_search(&other) {
                    sets.join(to_u32(at), to_u32(other));
                }
            }
        }
        let mut members: Vec<(u32, u32)> =
            faces.iter().zip(0..).map(|(&face, at)| (sets.root(at), face)).collect();
        members.sort_unstable();
        let patches = members.chunk_by(|a, b| a.0 == b.0);
        patches.map(|patch| patch.iter().map(|&(_, face)| face).collect()).collect()
    }
}

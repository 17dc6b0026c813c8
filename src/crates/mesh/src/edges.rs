//! Edges of a mesh as sorted integer keys.

use rayon::prelude::*;

use crate::mesh::Mesh;
use crate::narrow::to_u32;
use crate::union_find::UnionFind;

/// No side.
pub(super) const NO_SIDE: u32 = u32::MAX;

/// A side of a face: side `3 f + i` runs from corner i of face f to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EdgeUse {
    /// Both vertices, the lower in the upper half.
    pub(super) key: u64,
    /// The side.
    pub(super) side: u32,
}

/// The key of the edge between two vertices.
pub(super) fn edge_key(a: u32, b: u32) -> u64 {
    u64::from(a.min(b)) << 32 | u64::from(a.max(b))
}

/// The vertices that a side runs from and to.
pub(super) fn side_vertices(faces: &[[u32; 3]], side: u32) -> [u32; 2] {
    let face = faces[side as usize / 3];
    [face[side as usize % 3], face[(side as usize + 1) % 3]]
}

/// The side's own corner and the next one, as numbers `3 f + i`.
pub(super) fn side_corners(side: u32) -> [u32; 2] {
    let start = side - side % 3;
    [side, start + (side + 1 - start) % 3]
}

/// All sides of a mesh in the order of their edges.
pub(super) struct Edges {
    uses: Vec<EdgeUse>,
}

impl Edges {
    /// The edges of these faces.
    pub(super) fn of(faces: &[[u32; 3]]) -> Self {
        let sides = 3 * faces.len();
        let mut uses: Vec<EdgeUse> = (0..to_u32(sides))
            .into_par_iter()
            .map(|side| {
                let [a, b] = side_vertices(faces, side);
                EdgeUse { key: edge_key(a, b), side }
            })
            .collect();
        uses.par_sort_unstable();
        Self { uses }
    }

    /// The sides of each edge.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[EdgeUse]> {
        self.uses.chunk_by(|a, b| a.key == b.key)
    }

    /// The sides of one edge.
    pub(super) fn sides_of(&self, key: u64) -> &[EdgeUse] {
        let first = self.uses.partition_point(|edge| edge.key < key);
        let count = self.uses[first..].partition_point(|edge| edge.key == key);
        &self.uses[first..first + count]
    }

    /// The other side of each side, where an edge has exactly two; else [`NO_SIDE`].
    pub(super) fn twins(&self) -> Vec<u32> {
        let mut twins = vec![NO_SIDE; self.uses.len()];
        for group in self.groups() {
            if let [a, b] = group {
                twins[a.side as usize] = b.side;
                twins[b.side as usize] = a.side;
            }
        }
        twins
    }
}

/// Fans of faces about vertices: corners that neighbouring faces share are in one set.
pub(super) fn fans(mesh: &Mesh, edges: &Edges) -> UnionFind {
    let mut fans = UnionFind::new(3 * mesh.faces.len());
    for group in edges.groups() {
        for pair in group.windows(2) {
            join_corners(&mut fans, &mesh.faces, [pair[0].side, pair[1].side]);
        }
    }
    fans
}

/// Joins the corners of two sides of one edge.
pub(super) fn join_corners(fans: &mut UnionFind, faces: &[[u32; 3]], [s, t]: [u32; 2]) {
    let ([s0, s1], [t0, t1]) = (side_corners(s), side_corners(t));
    let same_way = side_vertices(faces, s)[0] == side_vertices(faces, t)[0];
    let [t0, t1] = if same_way { [t0, t1] } else { [t1, t0] };
    fans.join(s0, t0);
    fans.join(s1, t1);
}

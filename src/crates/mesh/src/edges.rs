//! Edges of a mesh as sorted integer keys, sets of connected elements, and consistent sides.

use std::collections::VecDeque;

use rayon::prelude::*;

use crate::mesh::Mesh;
use crate::narrow::to_u32;

pub(super) const NO_SIDE: u32 = u32::MAX;

/// A side of a face: side `3 f + i` runs from corner i of face f to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EdgeUse {
    /// Both vertices, the lower in the upper half.
    pub(super) key: u64,
    pub(super) side: u32,
}

pub(super) fn edge_key(a: u32, b: u32) -> u64 {
    u64::from(a.min(b)) << 32 | u64::from(a.max(b))
}

/// Returns the vertices that a side runs from and to.
pub(super) fn side_vertices(faces: &[[u32; 3]], side: u32) -> [u32; 2] {
    let face = faces[side as usize / 3];
    [face[side as usize % 3], face[(side as usize + 1) % 3]]
}

/// Returns the side's own corner and the next one, as numbers `3 f + i`.
pub(super) fn side_corners(side: u32) -> [u32; 2] {
    let start = side - side % 3;
    [side, start + (side + 1 - start) % 3]
}

/// All sides of a mesh in the order of their edges.
pub(super) struct Edges {
    uses: Vec<EdgeUse>,
}

impl Edges {
    pub(super) fn of(faces: &[[u32; 3]]) -> Self {
        let edge = |side: u32| {
            let [a, b] = side_vertices(faces, side);
            EdgeUse { key: edge_key(a, b), side }
        };
        let sides = (0..to_u32(3 * faces.len())).into_par_iter();
        let mut uses: Vec<EdgeUse> = sides.map(edge).collect();
        uses.par_sort_unstable();
        Self { uses }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &[EdgeUse]> {
        self.uses.chunk_by(|a, b| a.key == b.key)
    }

    pub(super) fn sides_of(&self, key: u64) -> &[EdgeUse] {
        let first = self.uses.partition_point(|edge| edge.key < key);
        let count = self.uses[first..].partition_point(|edge| edge.key == key);
        &self.uses[first..first + count]
    }

    /// Returns the other side of each side, where an edge has exactly two; else [`NO_SIDE`].
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

/// Sets of the numbers below a count, each named by its least member: union-find with path halving (Tarjan and van
/// Leeuwen 1984).
pub(super) struct UnionFind {
    parents: Vec<u32>,
}

impl UnionFind {
    pub(super) fn new(count: usize) -> Self {
        Self { parents: (0..to_u32(count)).collect() }
    }

    /// Returns the least member of the set of `member`.
    pub(super) fn root(&mut self, mut member: u32) -> u32 {
        while self.parents[member as usize] != member {
            let above = self.parents[self.parents[member as usize] as usize];
            self.parents[member as usize] = above;
            member = above;
        }
        member
    }

    pub(super) fn join(&mut self, a: u32, b: u32) {
        let (a, b) = (self.root(a), self.root(b));
        self.parents[a.max(b) as usize] = a.min(b);
    }
}

/// Returns the sets of vertices that faces connect.
pub(super) fn connected_vertices(mesh: &Mesh) -> UnionFind {
    let mut sets = UnionFind::new(mesh.vertices.len());
    for &[a, b, c] in &mesh.faces {
        sets.join(a, b);
        sets.join(a, c);
    }
    sets
}

pub(super) struct Oriented {
    /// The component of each face, connected by edges.
    pub(super) component: Vec<u32>,
    /// True for each component that has neither a boundary nor a conflict.
    pub(super) is_closed: Vec<bool>,
    pub(super) is_turned: Vec<bool>,
    /// Edges between faces that could not be made to agree: the surface is one-sided.
    pub(super) conflicts: usize,
}

impl Oriented {
    /// Counts the faces that are turned in the end if the `turned` components are turned once more.
    pub(super) fn count_turned(&self, turned: &[bool]) -> usize {
        let faces = self.is_turned.iter().zip(&self.component);
        faces.filter(|&(&once, &component)| once != turned[component as usize]).count()
    }
}

/// Turns faces so that neighbours run along their edge in opposite ways, breadth first from the first face of each
/// component; of both sides, the one with most of the `weights` of the faces stays. Edges of more than two faces join
/// nothing.
pub(super) fn orient(faces: &mut [[u32; 3]], weights: &[f64]) -> Oriented {
    let twins = Edges::of(faces).twins();
    let mut oriented = Oriented {
        component: vec![u32::MAX; faces.len()],
        is_closed: Vec::new(),
        is_turned: vec![false; faces.len()],
        conflicts: 0,
    };
    let mut queue = VecDeque::new();
    for start in 0..faces.len() {
        if oriented.component[start] == u32::MAX {
            queue.push_back(to_u32(start));
            oriented.spread(faces, weights, &twins, &mut queue);
        }
    }
    for (face, &turned) in faces.iter_mut().zip(&oriented.is_turned) {
        if turned {
            face.swap(1, 2);
        }
    }
    oriented
}

impl Oriented {
    /// Gives the component of the face in the queue a consistent side.
    fn spread(
        &mut self,
        faces: &[[u32; 3]],
        weights: &[f64],
        twins: &[u32],
        queue: &mut VecDeque<u32>,
    ) {
        let name = to_u32(self.is_closed.len());
        let mut members: Vec<u32> = queue.iter().copied().collect();
        members.iter().for_each(|&face| self.component[face as usize] = name);
        let mut is_open = false;
        let mut conflicts = 0;
        while let Some(face) = queue.pop_front() {
            for side in 3 * face..3 * face + 3 {
                let twin = twins[side as usize];
                if twin == NO_SIDE {
                    is_open = true;
                    continue;
                }
                let other = twin / 3;
                let from = |side| side_vertices(faces, side)[0];
                let wanted = self.is_turned[face as usize] != (from(side) == from(twin));
                if self.component[other as usize] == u32::MAX {
                    self.component[other as usize] = name;
                    self.is_turned[other as usize] = wanted;
                    members.push(other);
                    queue.push_back(other);
                } else if self.is_turned[other as usize] != wanted {
                    // Each conflict is met from both sides.
                    conflicts += 1;
                }
            }
        }
        let sides = members.iter().fold([0.0; 2], |mut sides, &face| {
            sides[usize::from(self.is_turned[face as usize])] += weights[face as usize];
            sides
        });
        if sides[1] > sides[0] {
            members.iter().for_each(|&face| {
                let turned = &mut self.is_turned[face as usize];
                *turned = !*turned;
            });
        }
        self.conflicts += conflicts / 2;
        self.is_closed.push(!is_open && conflicts == 0);
    }
}

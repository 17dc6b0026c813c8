//! Small holes, closed by the least area.

use crate::edges::{Edges, NO_SIDE, edge_key, side_vertices};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f64s, to_u32};
use crate::place::area;

/// Boundaries of more edges are closed by ears, whose work does not grow as their cube.
const LEAST_AREA_EDGES: usize = 96;

/// What was closed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Filled {
    pub(super) holes: usize,
    pub(super) faces: usize,
}

/// Closes boundaries of at most `most_edges` edges of a manifold mesh. One stays where closing it
/// would give an edge a third face.
pub(super) fn fill(mesh: &mut Mesh, most_edges: usize) -> Filled {
    let mut filled = Filled::default();
    if most_edges < 3 {
        return filled;
    }
    let edges = Edges::of(&mesh.faces);
    for boundary in boundaries(mesh, &edges, most_edges) {
        let hole = Hole { mesh, edges: &edges, vertices: &boundary };
        let faces =
            if boundary.len() <= LEAST_AREA_EDGES { hole.least_area() } else { hole.ears() };
        if let Some(faces) = faces {
            filled.holes += 1;
            filled.faces += faces.len();
            mesh.faces.extend(faces);
        }
    }
    filled
}

/// The vertices of each boundary in the order that faces of the hole run along it.
fn boundaries(mesh: &Mesh, edges: &Edges, most_edges: usize) -> Vec<Vec<u32>> {
    let twins = edges.twins();
    let mut next = vec![NO_SIDE; mesh.vertices.len()];
    let mut starts = Vec::new();
    for side in 0..to_u32(twins.len()) {
        let [a, b] = side_vertices(&mesh.faces, side);
        if twins[side as usize] == NO_SIDE && edges.sides_of(edge_key(a, b)).len() == 1 {
            // The hole runs against its faces. Of a manifold, each vertex has one such side.
            next[b as usize] = a;
            starts.push(b);
        }
    }
    let mut found = Vec::new();
    let mut is_done = vec![false; mesh.vertices.len()];
    for start in starts {
        let mut loop_vertices = Vec::new();
        let mut at = start;
        while at != NO_SIDE && !is_done[at as usize] {
            is_done[at as usize] = true;
            loop_vertices.push(at);
            at = next[at as usize];
        }
        if at == start && (3..=most_edges).contains(&loop_vertices.len()) {
            found.push(loop_vertices);
        }
    }
    found
}

struct Hole<'a> {
    mesh: &'a Mesh,
    edges: &'a Edges,
    vertices: &'a [u32],
}

impl Hole<'_> {
    fn place(&self, index: usize) -> Vec3 {
        to_f64s(self.mesh.vertices[self.vertices[index] as usize])
    }

    fn area(&self, corners: [usize; 3]) -> f64 {
        area(corners.map(|index| self.place(index)))
    }

    /// Whether an edge between two vertices of the boundary may be added: the surface has none.
    fn is_free(&self, i: usize, j: usize) -> bool {
        let key = edge_key(self.vertices[i], self.vertices[j]);
        self.edges.sides_of(key).is_empty()
    }

    /// The triangulation of least area (Barequet and Sharir 1995): best of i and j closes the boundary from
    /// i to j by the edge between them.
    fn least_area(&self) -> Option<Vec<[u32; 3]>> {
        let n = self.vertices.len();
        let mut best = vec![0.0; n * n];
        let mut split = vec![0; n * n];
        for gap in 2..n {
            for i in 0..n - gap {
                let j = i + gap;
                best[i * n + j] = f64::INFINITY;
                if gap < n - 1 && !self.is_free(i, j) {
                    continue;
                }
                for k in i + 1..j {
                    let sum = best[i * n + k] + best[k * n + j] + self.area([i, k, j]);
                    if sum < best[i * n + j] {
                        best[i * n + j] = sum;
                        split[i * n + j] = k;
                    }
                }
            }
        }
        if !best[n - 1].is_finite() {
            return None;
        }
        let mut faces = Vec::with_capacity(n - 2);
        let mut spans = vec![(0, n - 1)];
        while let Some((i, j)) = spans.pop() {
            if j - i >= 2 {
                let k = split[i * n + j];
                faces.push([i, k, j].map(|index| self.vertices[index]));
                spans.extend([(i, k), (k, j)]);
            }
        }
        Some(faces)
    }

    /// Cuts off the corner with the shortest new edge, again and again.
    fn ears(&self) -> Option<Vec<[u32; 3]>> {
        let mut left: Vec<usize> = (0..self.vertices.len()).collect();
        let mut faces = Vec::new();
        while left.len() > 3 {
            let n = left.len();
            let ends = |at: usize| (left[(at + n - 1) % n], left[(at + 1) % n]);
            let free = (0..n).filter(|&at| self.is_free(ends(at).0, ends(at).1));
            let length = |at: usize| {
                let (i, j) = ends(at);
                crate::vector::length(crate::vector::sub(self.place(i), self.place(j)))
            };
            let at = free.min_by(|&a, &b| length(a).total_cmp(&length(b)))?;
            let (i, j) = ends(at);
            faces.push([i, left[at], j].map(|index| self.vertices[index]));
            left.remove(at);
        }
        faces.push([left[0], left[1], left[2]].map(|index| self.vertices[index]));
        Some(faces)
    }
}

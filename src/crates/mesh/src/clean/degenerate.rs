//! Faces without area.
//!
//! Dropping one would open the surface at its sides. A face with a short side is closed up along it;
//! one whose corner lies on its longest side is turned about that side with its neighbour.

use super::weld::keep_faces;
use crate::edges::{Edges, edge_key, side_vertices};
use crate::mesh::Mesh;
use crate::narrow::to_u32;
use crate::place::{Bounds, area, corners};
use crate::union_find::UnionFind;
use crate::vector::{length, sub};

/// Least area of a face, in squares of the mesh's longest side.
const LEAST_AREA: f64 = 1e-12;

/// Sides up to this length are closed up, in longest sides of the mesh: a square's of that area.
const SHORT_SIDE: f64 = 1e-6;

/// Repairs or drops the faces without area; how many there were.
pub(super) fn repair(mesh: &mut Mesh) -> usize {
    let pinched = drop_pinched(mesh);
    let side = Bounds::of_faces(mesh).longest_side();
    let slivers: Vec<u32> = (0..to_u32(mesh.faces.len()))
        .filter(|&face| area(corners(mesh, mesh.faces[face as usize])) < LEAST_AREA * side * side)
        .collect();
    if slivers.is_empty() {
        return pinched;
    }
    let mut merged = UnionFind::new(mesh.vertices.len());
    let mut turns = Turns::new(mesh);
    let mut is_kept = vec![true; mesh.faces.len()];
    for &sliver in &slivers {
        let face = mesh.faces[sliver as usize];
        let lengths = side_lengths(mesh, face);
        let shortest = (0..3).min_by(|&a, &b| lengths[a].total_cmp(&lengths[b])).unwrap_or(0);
        let longest = (0..3).max_by(|&a, &b| lengths[a].total_cmp(&lengths[b])).unwrap_or(0);
        if lengths[shortest] <= SHORT_SIDE * side {
            merged.join(face[shortest], face[(shortest + 1) % 3]);
        } else if !turns.turn(mesh, sliver, longest) {
            is_kept[sliver as usize] = false;
        }
    }
    keep_faces(mesh, &is_kept);
    mesh.faces.iter_mut().flatten().for_each(|vertex| *vertex = merged.root(*vertex));
    drop_pinched(mesh);
    pinched + slivers.len()
}

/// Drops faces that name a vertex twice.
fn drop_pinched(mesh: &mut Mesh) -> usize {
    let before = mesh.faces.len();
    mesh.faces.retain(|&[a, b, c]| a != b && b != c && c != a);
    before - mesh.faces.len()
}

/// Lengths of the sides from each corner to the next.
fn side_lengths(mesh: &Mesh, face: [u32; 3]) -> [f64; 3] {
    let places = corners(mesh, face);
    std::array::from_fn(|corner| length(sub(places[(corner + 1) % 3], places[corner])))
}

/// Turns of edges, each face in one at most.
struct Turns {
    edges: Edges,
    is_touched: Vec<bool>,
    added: Vec<u64>,
}

impl Turns {
    fn new(mesh: &Mesh) -> Self {
        let edges = Edges::of(&mesh.faces);
        Self { edges, is_touched: vec![false; mesh.faces.len()], added: Vec::new() }
    }

    /// Replaces the side of `sliver` from corner `longest` on, which its neighbour shares, by the edge
    /// between the corners opposite of it; whether that could be.
    fn turn(&mut self, mesh: &mut Mesh, sliver: u32, longest: usize) -> bool {
        let face = mesh.faces[sliver as usize];
        let [a, b, c] = std::array::from_fn(|i| face[(longest + i) % 3]);
        let [first, second] = self.edges.sides_of(edge_key(a, b)) else {
            return false;
        };
        let other = if first.side / 3 == sliver { second.side } else { first.side };
        let neighbour = other / 3;
        let touched = self.is_touched[sliver as usize] || self.is_touched[neighbour as usize];
        if touched || side_vertices(&mesh.faces, other) != [b, a] {
            return false;
        }
        let d = mesh.faces[neighbour as usize][(other as usize + 2) % 3];
        let key = edge_key(c, d);
        if c == d || !self.edges.sides_of(key).is_empty() || self.added.contains(&key) {
            return false;
        }
        for face in [sliver, neighbour] {
            self.is_touched[face as usize] = true;
        }
        self.added.push(key);
        mesh.faces[sliver as usize] = [a, d, c];
        mesh.faces[neighbour as usize] = [d, b, c];
        true
    }
}

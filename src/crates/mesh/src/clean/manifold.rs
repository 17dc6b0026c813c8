//! Edges of more than two faces and vertices of more than one fan, taken apart.

use crate::edges::UnionFind;
use crate::edges::{EdgeUse, Edges, join_corners, side_corners, side_vertices};
use crate::mesh::copy_of;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f64s;
use crate::vector::{dot, normalize, scale, sub};

/// Rounds after which nothing can be left: the second parts all that the first could not.
const MAX_ROUNDS: usize = 4;

/// What was taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Parted {
    /// Edges that had more than two faces.
    pub(super) edges: usize,
    /// Vertices that were added.
    pub(super) vertices: usize,
}

/// Gives each fan of faces its own vertex.
///
/// At an edge of more than two faces, those that run along it in opposite ways and lie flattest to one
/// another become neighbours, pair after pair: surfaces that touch along an edge stay closed.
pub(super) fn separate(mesh: &mut Mesh) -> Parted {
    let mut parted = Parted::default();
    for round in 0..MAX_ROUNDS {
        let edges = Edges::of(&mesh.faces);
        let mut fans = UnionFind::new(3 * mesh.faces.len());
        let mut crowded = Vec::new();
        for group in edges.groups() {
            match group {
                [_] => {}
                &[a, b] => join_corners(&mut fans, &mesh.faces, [a.side, b.side]),
                _ => {
                    let pairs = pair_up(mesh, group);
                    for &[s, t] in pairs.iter().filter(|[s, t]| s != t) {
                        join_corners(&mut fans, &mesh.faces, [s, t]);
                    }
                    crowded.push(pairs);
                }
            }
        }
        if round == 0 {
            parted.edges = crowded.len();
        } else {
            parted.vertices += detach(mesh, &crowded);
            if !crowded.is_empty() {
                continue;
            }
        }
        parted.vertices += part_fans(mesh, &mut fans);
        if round > 0 || parted.edges == 0 {
            break;
        }
    }
    parted
}

/// The pairs of sides of an edge; a side that stays alone is paired with itself.
fn pair_up(mesh: &Mesh, group: &[EdgeUse]) -> Vec<[u32; 2]> {
    let runs: Vec<(u32, u32, Vec3)> = group
        .iter()
        .map(|edge| {
            let from = side_vertices(&mesh.faces, edge.side)[0];
            (edge.side, from, away_from_edge(mesh, edge.side))
        })
        .collect();
    let mut candidates = Vec::new();
    for (i, &(s, from_s, away_s)) in runs.iter().enumerate() {
        for &(t, from_t, away_t) in &runs[i + 1..] {
            // The cosine of the angle between the faces: -1 where they lie flat.
            candidates.push((from_s == from_t, dot(away_s, away_t), [s, t]));
        }
    }
    candidates.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut left: Vec<u32> = group.iter().map(|edge| edge.side).collect();
    let mut pairs = Vec::new();
    for (_, _, pair) in candidates {
        if pair.iter().all(|side| left.contains(side)) {
            left.retain(|side| !pair.contains(side));
            pairs.push(pair);
        }
    }
    pairs.extend(left.into_iter().map(|side| [side, side]));
    pairs
}

/// The unit direction in a face from one of its sides to the opposite corner.
fn away_from_edge(mesh: &Mesh, side: u32) -> Vec3 {
    let face = mesh.faces[side as usize / 3];
    let corner = |i: u32| to_f64s(mesh.vertices[face[(side + i) as usize % 3] as usize]);
    let [a, b, c] = [corner(0), corner(1), corner(2)];
    let along = normalize(sub(b, a));
    let off = sub(c, a);
    normalize(sub(off, scale(along, dot(off, along))))
}

/// Gives the faces of all pairs of an edge but the first their own vertices there.
fn detach(mesh: &mut Mesh, crowded: &[Vec<[u32; 2]>]) -> usize {
    let before = mesh.faces.clone();
    let count = mesh.vertices.len();
    for pair in crowded.iter().flat_map(|pairs| &pairs[1..]) {
        let [a, b] = side_vertices(&before, pair[0]);
        let copies = [copy_of(mesh, a), copy_of(mesh, b)];
        for &side in if pair[0] == pair[1] { &pair[..1] } else { &pair[..] } {
            for corner in side_corners(side) {
                let vertex = before[corner as usize / 3][corner as usize % 3];
                mesh.faces[corner as usize / 3][corner as usize % 3] =
                    copies[usize::from(vertex != a)];
            }
        }
    }
    mesh.vertices.len() - count
}

/// Lets the first fan of a vertex keep it and gives the others copies; how many.
fn part_fans(mesh: &mut Mesh, fans: &mut UnionFind) -> usize {
    let count = mesh.vertices.len();
    let mut is_taken = vec![false; count];
    let mut names = vec![0_u32; 3 * mesh.faces.len()];
    for corner in 0..names.len() {
        let (face, at) = (corner / 3, corner % 3);
        let vertex = mesh.faces[face][at];
        let root = fans.root(crate::narrow::to_u32(corner)) as usize;
        if root == corner {
            // The least corner of a fan comes first.
            let taken = std::mem::replace(&mut is_taken[vertex as usize], true);
            names[corner] = if taken { copy_of(mesh, vertex) } else { vertex };
        } else {
            names[corner] = names[root];
        }
    }
    for (corner, name) in names.into_iter().enumerate() {
        mesh.faces[corner / 3][corner % 3] = name;
    }
    mesh.vertices.len() - count
}

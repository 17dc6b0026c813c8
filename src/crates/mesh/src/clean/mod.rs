//! Cleaning: from what an extraction leaves to a manifold surface that points outwards.

mod components;
mod holes;
mod manifold;
mod outward;

#[cfg(test)]
mod tests;

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use crate::edges::UnionFind;
use crate::edges::orient;
use crate::edges::{Edges, edge_key, side_vertices};
use crate::mesh::vertex_normals;
use crate::mesh::{Mesh, Vec3};
use crate::mesh::{MeshError, check_mesh};
use crate::mesh::{compact, keep_rows};
use crate::narrow::to_u32;
use crate::place::{Bounds, area, centroid, corners};
use crate::vector::{length, sub};

pub use components::{Dropped, MinComponent, drop_small};

/// Rounds after which cleaning ends, whether or not a further one would find anything.
const MAX_ROUNDS: usize = 3;

/// Which side of a component becomes the outer one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sides<'a> {
    /// That of most of its area.
    Kept,
    /// The one that cameras see, whose places in world space these are; of a closed component that
    /// none sees, the one away from what it encloses. There need not be a camera.
    Outward(&'a [Vec3]),
}

/// What cleaning may remove and add.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions<'a> {
    /// The smallest component that stays.
    pub min_component: MinComponent,
    /// Which side of a component is the outer one.
    pub sides: Sides<'a>,
    /// Boundaries of at most so many edges are closed.
    pub fill_hole_edges: usize,
}

impl Default for CleanOptions<'_> {
    fn default() -> Self {
        let min_component = MinComponent::FaceShare(0.001);
        Self { min_component, sides: Sides::Outward(&[]), fill_hole_edges: 0 }
    }
}

/// Why there is no clean mesh.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CleanError {
    /// It was no mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// A step removed all that there was.
    #[error(
        "nothing is left after {step}: {faces} faces of {vertices} vertices came to it. Extract a \
         finer surface, or let smaller components stay"
    )]
    NothingLeft {
        /// The step.
        step: &'static str,
        /// Faces before it.
        faces: usize,
        /// Vertices before it.
        vertices: usize,
    },
    /// Decimation removed all that there was.
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} or fewer. Decimate it to \
         more"
    )]
    DecimatedAway {
        /// Faces before it.
        faces: usize,
        /// Faces that were asked for, at most.
        target: usize,
    },
}

/// Cleans a mesh: equal places become one vertex, slivers and doubled faces go, edges of more than two
/// faces and vertices of more than one fan are taken apart, small components go, faces are turned
/// outwards, small holes closed, unused vertices dropped. All but the first step are repeated until
/// they find nothing, at most three times.
///
/// Normals are computed anew where faces were turned over.
pub fn clean(
    mut mesh: Mesh,
    options: &CleanOptions<'_>,
) -> Result<(Mesh, CleanCounts), CleanError> {
    check_mesh(&mesh)?;
    // Once only: the vertices that later steps part lie at one place.
    let equal_vertices = weld(&mut mesh);
    let mut counts = CleanCounts { equal_vertices, ..CleanCounts::default() };
    for _ in 0..MAX_ROUNDS {
        let before = counts.clone();
        round(&mut mesh, options, &mut counts)?;
        if counts.changes() == before.changes() {
            break;
        }
    }
    counts.unused_vertices = compact(&mut mesh);
    if counts.turned_faces > 0 && !mesh.normals.is_empty() {
        mesh.normals = vertex_normals(&mesh);
    }
    Ok((mesh, counts))
}

fn round(
    mesh: &mut Mesh,
    options: &CleanOptions<'_>,
    counts: &mut CleanCounts,
) -> Result<(), CleanError> {
    counts.rounds += 1;
    let came = (mesh.faces.len(), mesh.vertices.len());
    let left = |mesh: &Mesh, step| {
        let (faces, vertices) = came;
        if mesh.faces.is_empty() {
            return Err(CleanError::NothingLeft { step, faces, vertices });
        }
        Ok(())
    };
    left(mesh, "extraction")?;
    counts.degenerate_faces += repair(mesh);
    left(mesh, "the removal of faces without area")?;
    counts.duplicate_faces += drop_duplicate_faces(mesh);
    let parted = manifold::separate(mesh);
    counts.nonmanifold_edges += parted.edges;
    counts.split_vertices += parted.vertices;
    let dropped = drop_small(mesh, options.min_component);
    counts.small_components += dropped.components;
    counts.component_faces += dropped.faces;
    left(mesh, "the removal of small components")?;
    let areas: Vec<f64> = mesh.faces.iter().map(|&face| area(corners(mesh, face))).collect();
    let oriented = orient(&mut mesh.faces, &areas);
    let turned = match options.sides {
        Sides::Kept => vec![false; oriented.components.len()],
        Sides::Outward(cameras) => outward::turn_outward(mesh, &oriented, cameras)?,
    };
    counts.turned_faces += oriented.turned_and(&turned);
    counts.one_sided_edges = oriented.conflicts;
    let filled = holes::fill(mesh, options.fill_hole_edges);
    counts.filled_holes += filled.holes;
    counts.added_faces += filled.faces;
    Ok(())
}

// What cleaning did.

/// How much each step of cleaning found, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CleanCounts {
    /// Vertices at the place of another.
    pub equal_vertices: usize,
    /// Faces without area.
    pub degenerate_faces: usize,
    /// Faces with the vertices of another.
    pub duplicate_faces: usize,
    /// Edges of more than two faces.
    pub nonmanifold_edges: usize,
    /// Copies of vertices where fans were parted.
    pub split_vertices: usize,
    /// Components that were too small.
    pub small_components: usize,
    /// Their faces.
    pub component_faces: usize,
    /// Faces that were turned over.
    pub turned_faces: usize,
    /// Edges across which the surface has one side only, as a Moebius band has; those of the last
    /// round.
    pub one_sided_edges: usize,
    /// Boundaries that were closed.
    pub filled_holes: usize,
    /// Faces that closed them.
    pub added_faces: usize,
    /// Vertices without a face.
    pub unused_vertices: usize,
    /// Rounds.
    pub rounds: usize,
}

impl CleanCounts {
    /// A sum that grows with every change.
    fn changes(&self) -> usize {
        self.degenerate_faces
            + self.duplicate_faces
            + self.nonmanifold_edges
            + self.split_vertices
            + self.component_faces
            + self.turned_faces
            + self.added_faces
    }
}

impl fmt::Display for CleanCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = [
            (self.equal_vertices, "equal vertices merged"),
            (self.degenerate_faces, "faces without area repaired"),
            (self.duplicate_faces, "duplicate faces dropped"),
            (self.nonmanifold_edges, "edges of more than two faces parted"),
            (self.split_vertices, "vertices split"),
            (self.small_components, "small components dropped"),
            (self.component_faces, "faces of theirs"),
            (self.turned_faces, "faces turned over"),
            (self.one_sided_edges, "edges without a consistent side left"),
            (self.filled_holes, "holes closed"),
            (self.added_faces, "faces added there"),
            (self.unused_vertices, "unused vertices dropped"),
        ];
        let mut found = steps.iter().filter(|step| step.0 > 0).peekable();
        if found.peek().is_none() {
            return f.write_str("nothing to clean");
        }
        for (index, (count, what)) in found.enumerate() {
            write!(f, "{}{count} {what}", if index > 0 { ", " } else { "" })?;
        }
        Ok(())
    }
}

// The frayed border of a surface, taken off (parity with SuGaR's post-processing).

/// Which faces of a checked mesh stay when, so many times, all faces at a boundary are removed, as
/// the remaining faces have it. Whoever asks may let some stay by the density at their
/// [centres](face_centres).
pub fn peel_border(mesh: &Mesh, times: usize) -> Vec<bool> {
    let mut left: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
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

// Vertices at one place, and faces of the same vertices.

/// Lets faces use the first of the vertices at a place; how many others there are.
fn weld(mesh: &mut Mesh) -> usize {
    let vertices = &mesh.vertices;
    // Both zeros are one place.
    let bits = |vertex: u32| vertices[vertex as usize].map(|x| (x + 0.0).to_bits());
    let mut order: Vec<u32> = (0..to_u32(vertices.len())).collect();
    order.par_sort_unstable_by_key(|&vertex| (bits(vertex), vertex));
    let mut firsts: Vec<u32> = (0..to_u32(vertices.len())).collect();
    let mut equal = 0;
    for group in order.chunk_by(|&a, &b| bits(a) == bits(b)) {
        equal += group.len() - 1;
        group.iter().for_each(|&vertex| firsts[vertex as usize] = group[0]);
    }
    mesh.faces.iter_mut().flatten().for_each(|vertex| *vertex = firsts[*vertex as usize]);
    equal
}

/// Keeps the first of the faces of the same vertices, whichever side they show; how many go.
fn drop_duplicate_faces(mesh: &mut Mesh) -> usize {
    let key = |index: u32| {
        let mut face = mesh.faces[index as usize];
        face.sort_unstable();
        face
    };
    let mut order: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
    order.par_sort_unstable_by_key(|&index| (key(index), index));
    let mut is_kept = vec![false; mesh.faces.len()];
    for group in order.chunk_by(|&a, &b| key(a) == key(b)) {
        is_kept[group[0] as usize] = true;
    }
    retain_faces(mesh, &is_kept)
}

/// Keeps some of the faces, in their order; how many go.
fn retain_faces(mesh: &mut Mesh, is_kept: &[bool]) -> usize {
    let before = mesh.faces.len();
    let mut kept = is_kept.iter();
    mesh.faces.retain(|_| kept.next().copied().unwrap_or(true));
    before - mesh.faces.len()
}

// Faces without area.
//
// Dropping one would open the surface at its sides. A face with a short side is closed up along it;
// one whose corner lies on its longest side is turned about that side with its neighbour.

/// Least area of a face, in squares of the mesh's longest side.
const LEAST_AREA: f64 = 1e-12;

/// Sides up to this length are closed up, in longest sides of the mesh: a square's of that area.
const SHORT_SIDE: f64 = 1e-6;

/// Repairs or drops the faces without area; how many there were.
fn repair(mesh: &mut Mesh) -> usize {
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
    retain_faces(mesh, &is_kept);
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

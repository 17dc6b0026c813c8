//! Cleaning: makes the result of an extraction a manifold surface that points outwards.

use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use crate::edges::{
    EdgeUse, Edges, NO_SIDE, Oriented, UnionFind, connected_vertices, edge_key, join_corners,
    orient, side_corners, side_vertices,
};
use crate::mesh::{
    Mesh, MeshError, Vec3, check_mesh, compact, copy_vertex, keep_rows, vertex_normals,
};
use crate::narrow::{to_f64s, to_u32};
use crate::place::{
    Bounds, area, centroid, corners, dot, doubled_area, length, normalize, scale, six_volumes, sub,
};
use crate::search::BoxTree;

/// Rounds after which cleaning ends even if another one would find something.
const MAX_ROUNDS: usize = 3;

/// Outer side of a component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sides<'a> {
    /// Side that most of its area has.
    Kept,
    /// Side that cameras at these places see, world space. A closed component that no camera sees gets the side away
    /// from what it encloses. The list may be empty.
    Outward(&'a [Vec3]),
}

/// Limits of what cleaning removes and adds.
#[derive(Clone, Copy, Debug)]
pub struct CleanOptions<'a> {
    /// The smallest component that stays.
    pub min_component: MinComponent,
    /// Outer side of a component.
    pub sides: Sides<'a>,
    /// Largest number of edges of a boundary that is closed.
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
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CleanError {
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error(
        "nothing is left after {step}: {faces} faces of {vertices} vertices came to it. Extract a \
         finer surface, or let smaller components stay"
    )]
    NothingLeft { step: &'static str, faces: usize, vertices: usize },
    #[error(
        "zero triangles are left of {faces}: the surface has no form of {target} or fewer. Decimate it to \
         more"
    )]
    DecimatedAway { faces: usize, target: usize },
}

/// Cleans a mesh: merges vertices at one place, removes slivers and doubled faces, splits edges of more than two faces
/// and vertices of more than one fan, removes small components, turns faces outwards, closes small holes and drops
/// unused vertices. All steps but the first are repeated until they find nothing, at most three times. Normals are
/// computed again if faces were turned over.
pub fn clean(
    mut mesh: Mesh,
    options: &CleanOptions<'_>,
) -> Result<(Mesh, CleanCounts), CleanError> {
    check_mesh(&mesh)?;
    // Only once: later steps put several vertices at one place.
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
    let (faces, vertices) = (mesh.faces.len(), mesh.vertices.len());
    let left = |mesh: &Mesh, step| match mesh.faces.is_empty() {
        true => Err(CleanError::NothingLeft { step, faces, vertices }),
        false => Ok(()),
    };
    left(mesh, "extraction")?;
    counts.degenerate_faces += repair(mesh);
    left(mesh, "the removal of faces without area")?;
    counts.duplicate_faces += drop_duplicate_faces(mesh);
    separate(mesh, counts);
    let dropped = drop_small(mesh, options.min_component);
    counts.small_components += dropped.components;
    counts.component_faces += dropped.faces;
    left(mesh, "the removal of small components")?;
    let areas: Vec<f64> = mesh.faces.iter().map(|&face| area(corners(mesh, face))).collect();
    let oriented = orient(&mut mesh.faces, &areas);
    let turned = match options.sides {
        Sides::Kept => vec![false; oriented.is_closed.len()],
        Sides::Outward(cameras) => turn_outward(mesh, &oriented, cameras)?,
    };
    counts.turned_faces += oriented.count_turned(&turned);
    counts.one_sided_edges = oriented.conflicts;
    fill(mesh, options.fill_hole_edges, counts);
    Ok(())
}

/// Findings of each cleaning step, over all rounds.
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
    /// Copies of vertices where fans were separated.
    pub split_vertices: usize,
    /// Components that were too small.
    pub small_components: usize,
    /// Faces of small components.
    pub component_faces: usize,
    /// Faces that were turned over.
    pub turned_faces: usize,
    /// Edges across which the surface has one side only, as a Moebius band has; of the last round.
    pub one_sided_edges: usize,
    /// Boundaries that were closed.
    pub filled_holes: usize,
    /// Faces that were added to close boundaries.
    pub added_faces: usize,
    /// Vertices without a face.
    pub unused_vertices: usize,
    /// Rounds.
    pub rounds: usize,
}

impl CleanCounts {
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

/// Returns which faces of a checked mesh stay if all faces at a boundary are removed `times` times (parity with
/// SuGaR's post-processing, which keeps some by the density at their [centres](face_centres)).
pub fn peel_border(mesh: &Mesh, times: usize) -> Vec<bool> {
    let mut left: Vec<u32> = (0..to_u32(mesh.faces.len())).collect();
    for _ in 0..times {
        let faces: Vec<[u32; 3]> = left.iter().map(|&face| mesh.faces[face as usize]).collect();
        let mut keeps = vec![true; faces.len()];
        for group in Edges::of(&faces).groups() {
            if let [alone] = group {
                keeps[alone.side as usize / 3] = false;
            }
        }
        let before = left.len();
        keep_rows(&mut left, &keeps);
        if left.len() == before {
            break;
        }
    }
    let mut stays = vec![false; mesh.faces.len()];
    left.into_iter().for_each(|face| stays[face as usize] = true);
    stays
}

/// Returns a mesh of the faces that stay, without vertices that none of them uses.
pub fn keep_faces(mut mesh: Mesh, stays: &[bool]) -> Mesh {
    keep_rows(&mut mesh.faces, stays);
    compact(&mut mesh);
    mesh
}

/// Returns the centre of each face of a checked mesh, world space.
pub fn face_centres(mesh: &Mesh) -> Vec<Vec3> {
    mesh.faces.iter().map(|&face| centroid(corners(mesh, face))).collect()
}

/// Lets faces use the first of the vertices at a place, and returns the number of the others.
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

/// Keeps the first of the faces of the same vertices, whichever side they show, and returns the number of others.
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

/// Keeps some of the faces, and returns the number of the others.
fn retain_faces(mesh: &mut Mesh, is_kept: &[bool]) -> usize {
    let before = mesh.faces.len();
    keep_rows(&mut mesh.faces, is_kept);
    before - mesh.faces.len()
}

// Dropping a face without area would open the surface at its sides. A face with a short side is collapsed along it; of
// a face whose corner lies on its longest side, that side is flipped with the neighbour.

/// Least area of a face, in squares of the mesh's longest side.
const MIN_AREA: f64 = 1e-12;

/// Longest side that is collapsed, in longest sides of the mesh: the square root of [`MIN_AREA`].
const SHORT_SIDE: f64 = 1e-6;

/// Repairs or drops the faces without area, and returns their number.
fn repair(mesh: &mut Mesh) -> usize {
    let pinched = drop_pinched(mesh);
    let side = Bounds::of_faces(mesh).longest_side();
    let slivers: Vec<u32> = (0..to_u32(mesh.faces.len()))
        .filter(|&face| area(corners(mesh, mesh.faces[face as usize])) < MIN_AREA * side * side)
        .collect();
    if slivers.is_empty() {
        return pinched;
    }
    let mut merged = UnionFind::new(mesh.vertices.len());
    let (edges, is_touched) = (Edges::of(&mesh.faces), vec![false; mesh.faces.len()]);
    let mut turns = Turns { edges, is_touched, added: Vec::new() };
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

/// Drops faces that name a vertex twice, and returns their number.
fn drop_pinched(mesh: &mut Mesh) -> usize {
    let before = mesh.faces.len();
    mesh.faces.retain(|&[a, b, c]| a != b && b != c && c != a);
    before - mesh.faces.len()
}

fn side_lengths(mesh: &Mesh, face: [u32; 3]) -> [f64; 3] {
    let places = corners(mesh, face);
    std::array::from_fn(|corner| length(sub(places[(corner + 1) % 3], places[corner])))
}

/// Edge flips, each face in one at most.
struct Turns {
    edges: Edges,
    is_touched: Vec<bool>,
    added: Vec<u64>,
}

impl Turns {
    /// Replaces the side of `sliver` from corner `longest` on, which its neighbour shares, by the edge between the
    /// corners opposite to it. Returns false if this is impossible.
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

/// Smallest component that cleaning keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MinComponent {
    /// Smallest share of the faces of the component with the most. Counts faces and not area, because a fine surface
    /// near the cameras is as important as a coarse one far away.
    FaceShare(f64),
    /// Smallest number of faces.
    Faces(usize),
    /// Number of components to keep: those of the most area.
    Largest(usize),
}

/// Components that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Dropped {
    /// Number of components.
    pub components: usize,
    /// Number of their faces.
    pub faces: usize,
}

/// Returns the component of each face, by common vertices, and their number; in the order of their first faces.
fn components(mesh: &Mesh) -> (Vec<u32>, usize) {
    let mut pieces = connected_vertices(mesh);
    let mut names = vec![u32::MAX; mesh.vertices.len()];
    let mut count = 0;
    let component = |face: &[u32; 3]| {
        let name = &mut names[pieces.root(face[0]) as usize];
        if *name == u32::MAX {
            *name = count;
            count += 1;
        }
        *name
    };
    let of_face = mesh.faces.iter().map(component).collect();
    (of_face, count as usize)
}

/// Drops the components that are too small. Their vertices stay, unused.
pub fn drop_small(mesh: &mut Mesh, min: MinComponent) -> Dropped {
    let (of_face, count) = components(mesh);
    let mut areas = vec![0.0; count];
    let mut faces = vec![0_usize; count];
    for (&face, &component) in mesh.faces.iter().zip(&of_face) {
        areas[component as usize] += area(corners(mesh, face));
        faces[component as usize] += 1;
    }
    let stays: Vec<bool> = match min {
        MinComponent::FaceShare(share) => {
            let least = share * faces.iter().copied().max().unwrap_or(0) as f64;
            faces.iter().map(|&count| count as f64 >= least).collect()
        }
        MinComponent::Faces(least) => faces.iter().map(|&count| count >= least).collect(),
        MinComponent::Largest(most) => {
            let mut order: Vec<usize> = (0..areas.len()).collect();
            order.sort_by(|&a, &b| areas[b].total_cmp(&areas[a]).then(a.cmp(&b)));
            let mut stays = vec![false; areas.len()];
            order.into_iter().take(most).for_each(|component| stays[component] = true);
            stays
        }
    };
    let is_kept: Vec<bool> = of_face.iter().map(|&c| stays[c as usize]).collect();
    Dropped {
        components: stays.iter().filter(|&&stays| !stays).count(),
        faces: retain_faces(mesh, &is_kept),
    }
}

/// Boundaries of more edges are closed by ears, because the work of the other way grows with their cube.
const MAX_LEAST_AREA_EDGES: usize = 96;

/// Closes boundaries of at most `most_edges` edges of a manifold mesh. A boundary stays open if closing it would give
/// an edge a third face.
fn fill(mesh: &mut Mesh, most_edges: usize, counts: &mut CleanCounts) {
    if most_edges < 3 {
        return;
    }
    let edges = Edges::of(&mesh.faces);
    for boundary in boundaries(mesh, &edges, most_edges) {
        let hole = Hole { mesh, edges: &edges, vertices: &boundary };
        let faces =
            if boundary.len() <= MAX_LEAST_AREA_EDGES { hole.least_area() } else { hole.ears() };
        if let Some(faces) = faces {
            counts.filled_holes += 1;
            counts.added_faces += faces.len();
            mesh.faces.extend(faces);
        }
    }
}

/// Returns the vertices of each boundary in the order in which faces of the hole run along it.
fn boundaries(mesh: &Mesh, edges: &Edges, most_edges: usize) -> Vec<Vec<u32>> {
    let twins = edges.twins();
    let mut next = vec![NO_SIDE; mesh.vertices.len()];
    let mut starts = Vec::new();
    for side in 0..to_u32(twins.len()) {
        let [a, b] = side_vertices(&mesh.faces, side);
        if twins[side as usize] == NO_SIDE && edges.sides_of(edge_key(a, b)).len() == 1 {
            // The hole runs against its faces. Each vertex of a manifold has one such side.
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

    /// True if an edge between two vertices of the boundary may be added: the surface has none.
    fn is_free(&self, i: usize, j: usize) -> bool {
        let key = edge_key(self.vertices[i], self.vertices[j]);
        self.edges.sides_of(key).is_empty()
    }

    /// Returns the triangulation of least area (Barequet and Sharir 1995): `best` of i and j closes the boundary from
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
                    let area = area([i, k, j].map(|index| self.place(index)));
                    let sum = best[i * n + k] + best[k * n + j] + area;
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

    /// Cuts off the corner with the shortest new edge until a triangle is left.
    fn ears(&self) -> Option<Vec<[u32; 3]>> {
        let mut left: Vec<usize> = (0..self.vertices.len()).collect();
        let mut faces = Vec::new();
        while left.len() > 3 {
            let n = left.len();
            let ends = |at: usize| (left[(at + n - 1) % n], left[(at + 1) % n]);
            let free = (0..n).filter(|&at| self.is_free(ends(at).0, ends(at).1));
            let length = |at: usize| {
                let (i, j) = ends(at);
                length(sub(self.place(i), self.place(j)))
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

/// Rounds after which nothing can be left: the second separates all that the first could not.
const SPLIT_ROUNDS: usize = 4;

/// Gives each fan of faces its own vertex.
///
/// At an edge of more than two faces, those that run along it in opposite ways and form the flattest angle become
/// neighbours, pair after pair: surfaces that touch along an edge stay closed.
fn separate(mesh: &mut Mesh, counts: &mut CleanCounts) {
    let mut crowded_at_first = 0;
    for round in 0..SPLIT_ROUNDS {
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
            crowded_at_first = crowded.len();
        } else {
            counts.split_vertices += detach(mesh, &crowded);
            if !crowded.is_empty() {
                continue;
            }
        }
        counts.split_vertices += split_fans(mesh, &mut fans);
        if round > 0 || crowded_at_first == 0 {
            break;
        }
    }
    counts.nonmanifold_edges += crowded_at_first;
}

/// Returns the pairs of sides of an edge; a side that stays alone is paired with itself.
fn pair_up(mesh: &Mesh, group: &[EdgeUse]) -> Vec<[u32; 2]> {
    let run = |&EdgeUse { side, .. }: &EdgeUse| {
        (side, side_vertices(&mesh.faces, side)[0], away_from_edge(mesh, side))
    };
    let runs: Vec<(u32, u32, Vec3)> = group.iter().map(run).collect();
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

/// Returns the unit direction in a face from one of its sides to the opposite corner.
fn away_from_edge(mesh: &Mesh, side: u32) -> Vec3 {
    let places = corners(mesh, mesh.faces[side as usize / 3]);
    let [a, b, c] = [0, 1, 2].map(|i| places[(side as usize + i) % 3]);
    let along = normalize(sub(b, a));
    let off = sub(c, a);
    normalize(sub(off, scale(along, dot(off, along))))
}

/// Gives the faces of all pairs of an edge but the first their own vertices there, and returns their number.
fn detach(mesh: &mut Mesh, crowded: &[Vec<[u32; 2]>]) -> usize {
    let before = mesh.faces.clone();
    let count = mesh.vertices.len();
    for pair in crowded.iter().flat_map(|pairs| &pairs[1..]) {
        let [a, b] = side_vertices(&before, pair[0]);
        let copies = [copy_vertex(mesh, a), copy_vertex(mesh, b)];
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

/// Lets the first fan of a vertex keep it and gives the others copies, and returns the number of copies.
fn split_fans(mesh: &mut Mesh, fans: &mut UnionFind) -> usize {
    let count = mesh.vertices.len();
    let mut is_taken = vec![false; count];
    let mut names = vec![0_u32; 3 * mesh.faces.len()];
    for corner in 0..names.len() {
        let (face, at) = (corner / 3, corner % 3);
        let vertex = mesh.faces[face][at];
        let root = fans.root(to_u32(corner)) as usize;
        if root == corner {
            // The least corner of a fan comes first.
            let taken = std::mem::replace(&mut is_taken[vertex as usize], true);
            names[corner] = if taken { copy_vertex(mesh, vertex) } else { vertex };
        } else {
            names[corner] = names[root];
        }
    }
    for (corner, name) in names.into_iter().enumerate() {
        mesh.faces[corner / 3][corner % 3] = name;
    }
    mesh.vertices.len() - count
}

// Cameras see outer sides: they decide about the components that they see. A closed component that no camera sees
// encloses a positive volume, or a negative one if an odd number of others enclose it: a cavity.

/// Faces of a component that are tested.
const SAMPLES: usize = 100;
/// Cameras that faces are tested for.
const CAMERAS: usize = 32;

/// Directions along which enclosing surfaces are counted: three, so that one that grazes an edge is outvoted.
const DIRECTIONS: [Vec3; 3] =
    [[0.577, 0.123, 0.807], [-0.311, 0.899, 0.308], [0.201, -0.433, -0.879]];

/// Turns components over that show their inner side, and returns which.
fn turn_outward(
    mesh: &mut Mesh,
    oriented: &Oriented,
    cameras: &[Vec3],
) -> Result<Vec<bool>, MeshError> {
    let mut members = vec![Vec::new(); oriented.is_closed.len()];
    for (face, &component) in (0_u32..).zip(&oriented.component) {
        members[component as usize].push(face);
    }
    let volumes = signed_volumes(mesh, oriented);
    let closed = oriented.is_closed.iter().filter(|&&is_closed| is_closed).count();
    let turned: Vec<bool> = if cameras.is_empty() && closed <= 1 {
        let closed = oriented.is_closed.iter();
        closed.zip(&volumes).map(|(&is_closed, &volume)| is_closed && volume < 0.0).collect()
    } else {
        let tree = BoxTree::new(mesh)?;
        let cameras: Vec<Vec3> = strided(cameras, CAMERAS).collect();
        let test = SideTest { tree, oriented, cameras };
        let tested = members.par_iter().enumerate();
        tested.map(|(name, faces)| test.is_inside_out(name, faces, volumes[name])).collect()
    };
    for (face, &component) in mesh.faces.iter_mut().zip(&oriented.component) {
        if turned[component as usize] {
            face.swap(1, 2);
        }
    }
    Ok(turned)
}

/// Returns six times the volume of each component, about its first vertex.
fn signed_volumes(mesh: &Mesh, oriented: &Oriented) -> Vec<f64> {
    let mut origins: Vec<Option<Vec3>> = vec![None; oriented.is_closed.len()];
    let mut volumes = vec![0.0; oriented.is_closed.len()];
    for (&face, &component) in mesh.faces.iter().zip(&oriented.component) {
        let places = corners(mesh, face);
        let origin = *origins[component as usize].get_or_insert(places[0]);
        volumes[component as usize] += six_volumes(places.map(|place| sub(place, origin)));
    }
    volumes
}

/// Returns at most `most` items, evenly over all.
fn strided<T: Copy>(all: &[T], most: usize) -> impl Iterator<Item = T> {
    let count = all.len().min(most);
    (0..count).map(move |index| all[index * all.len() / count])
}

struct SideTest<'a> {
    tree: BoxTree<'a>,
    oriented: &'a Oriented,
    cameras: Vec<Vec3>,
}

impl SideTest<'_> {
    fn is_inside_out(&self, name: usize, faces: &[u32], volume: f64) -> bool {
        let (fronts, backs) = self.count_views(faces);
        if fronts != backs {
            return backs > fronts;
        }
        if !self.oriented.is_closed[name] {
            return false;
        }
        let is_cavity = faces.first().is_some_and(|&face| self.is_enclosed(name, face));
        if is_cavity { volume > 0.0 } else { volume < 0.0 }
    }

    /// Counts how often cameras see the front and the back of some faces of a component.
    fn count_views(&self, faces: &[u32]) -> (usize, usize) {
        let mut seen = (0, 0);
        for face in strided(faces, SAMPLES) {
            let places = self.tree.corners(face);
            let (centre, normal) = (centroid(places), doubled_area(places));
            for &camera in &self.cameras {
                let to_camera = sub(camera, centre);
                // The face itself does not hide its centre.
                if self.tree.is_hit(centre, to_camera, [1e-6, 1.0]) {
                    continue;
                }
                let facing = dot(normal, to_camera);
                seen.0 += usize::from(facing > 0.0);
                seen.1 += usize::from(facing < 0.0);
            }
        }
        seen
    }

    /// True if an odd number of other closed components lie about a face of one.
    fn is_enclosed(&self, name: usize, face: u32) -> bool {
        let origin = centroid(self.tree.corners(face));
        let votes = DIRECTIONS.iter().filter(|&&direction| {
            let mut crossed = 0;
            self.tree.hits(origin, direction, [0.0, f64::INFINITY], |hit| {
                let other = self.oriented.component[hit.face as usize] as usize;
                let counts = other != name && self.oriented.is_closed[other];
                crossed += usize::from(counts);
                f64::INFINITY
            });
            crossed % 2 == 1
        });
        votes.count() >= 2
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers")]
mod tests {
    use std::f64::consts::{PI, TAU};

    use proptest::prelude::*;

    use super::*;
    use crate::known_meshes::{bow_tie, cube, joined, mesh_of, moved, sphere, torus, turned_over};
    use crate::narrow::to_f32s;
    use crate::report::MeshReport;

    fn cleaned(mesh: &Mesh) -> (Mesh, CleanCounts) {
        let options =
            CleanOptions { min_component: MinComponent::Faces(0), ..CleanOptions::default() };
        clean(mesh.clone(), &options).unwrap()
    }

    fn report(mesh: &Mesh) -> MeshReport {
        MeshReport::of(mesh).unwrap()
    }

    /// Returns a band of `n` quads about the z axis that turns by `half_turns` half turns.
    fn band(n: u32, half_turns: f64) -> Mesh {
        let mut mesh = Mesh::default();
        for i in 0..n {
            let u = TAU * f64::from(i) / f64::from(n);
            for side in [-0.2, 0.2] {
                let (sin, cos) = (half_turns * u / 2.0).sin_cos();
                let ring = 1.0 + side * cos;
                mesh.vertices.push(to_f32s([ring * u.cos(), ring * u.sin(), side * sin]));
            }
            let [a, b, c, d] = [0, 1, 2, 3].map(|corner| (2 * i + corner) % (2 * n));
            let crosses = i + 1 == n && (half_turns % 2.0).abs() > 0.5;
            let [c, d] = if crosses { [d, c] } else { [c, d] };
            mesh.faces.extend([[a, c, b], [b, c, d]]);
        }
        mesh
    }

    #[test]
    fn a_clean_mesh_stays_as_it_is() {
        let mesh = torus([1.0, 0.4], [30, 20], |_, _| 1.0);
        let (found, counts) = cleaned(&mesh);
        assert_eq!(found, mesh);
        assert_eq!(counts, CleanCounts { rounds: 1, ..CleanCounts::default() });
        assert_eq!(counts.to_string(), "nothing to clean");
    }

    #[test]
    fn a_soup_of_triangles_becomes_one_surface() {
        let mesh = sphere(1.0, 3);
        let mut soup = Mesh::default();
        for (index, face) in (0..).zip(&mesh.faces) {
            soup.vertices.extend(face.map(|v| mesh.vertices[v as usize].map(|x| -x)));
            soup.faces.push([3 * index, 3 * index + 1, 3 * index + 2]);
        }
        soup.colors = soup.vertices.clone();
        let (found, counts) = cleaned(&soup);
        assert_eq!(counts.equal_vertices, soup.vertices.len() - mesh.vertices.len());
        let found_report = report(&found);
        assert_eq!((found_report.genus, found_report.components), (Some(0), 1));
        // A mirrored sphere is inside out.
        assert!(counts.turned_faces == mesh.faces.len() && found_report.volume.unwrap() > 4.0);
        assert_eq!(found.colors, found.vertices);
    }

    #[test]
    fn a_bow_tie_gets_a_vertex_for_each_wing() {
        let (found, counts) = cleaned(&bow_tie());
        assert_eq!((counts.split_vertices, found.vertices.len()), (1, 6));
        assert_eq!(report(&found).nonmanifold_vertices, 0);
        assert_eq!(found.vertices[5], [0.0; 3]);
    }

    #[test]
    fn of_three_faces_at_an_edge_the_flattest_two_stay_together() {
        let three = mesh_of(
            &[[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.5], [-1.0, 0.1, 0.5], [0.2, 1.0, 0.5]],
            &[[0, 4, 1], [0, 1, 2], [1, 0, 3]],
        );
        let (found, counts) = cleaned(&three);
        assert_eq!((counts.nonmanifold_edges, counts.split_vertices), (1, 2));
        let shared = |a: usize, b: usize| {
            found.faces[a].iter().filter(|v| found.faces[b].contains(v)).count()
        };
        assert_eq!((shared(1, 2), shared(0, 1), shared(0, 2)), (2, 0, 0));
        assert_eq!(report(&found).nonmanifold_edges, 0);
    }

    #[test]
    fn bodies_that_touch_along_an_edge_stay_closed() {
        // Two cubes with one edge in common, three with one vertex.
        let two = joined(cube(), &moved(cube(), [1.0, 1.0, 0.0]));
        let three = joined(two, &moved(cube(), [-1.0, -1.0, -1.0]));
        let (found, counts) = cleaned(&three);
        assert_eq!(counts.nonmanifold_edges, 1);
        let report = report(&found);
        assert!(report.watertight && report.nonmanifold_vertices == 0, "{report}");
        assert_eq!(report.volume, Some(3.0));
    }

    #[test]
    fn a_patch_that_shows_its_back_is_turned() {
        let mut mesh = torus([1.0, 0.4], [40, 20], |_, _| 1.0);
        mesh.normals = vec![[0.0, 0.0, 1.0]; mesh.vertices.len()];
        mesh.faces[100..240].iter_mut().for_each(|face| face.swap(0, 1));
        let (found, counts) = cleaned(&mesh);
        assert_eq!(counts.turned_faces, 140);
        let report = report(&found);
        assert!(report.watertight && report.volume.unwrap() > 3.0, "{report}");
        assert_eq!(found.normals, vertex_normals(&found));
    }

    #[test]
    fn a_moebius_band_has_edges_without_a_consistent_side() {
        let (_, plain) = cleaned(&band(40, 0.0));
        assert_eq!(plain.one_sided_edges, 0);
        let (found, counts) = cleaned(&band(40, 1.0));
        assert!(counts.one_sided_edges > 0);
        assert!(counts.to_string().contains("without a consistent side"), "{counts}");
        assert!(!report(&found).watertight);
    }

    #[test]
    fn spheres_inside_out_are_turned_and_cavities_are_not() {
        let nested = joined(
            joined(turned_over(sphere(3.0, 4)), &sphere(2.0, 4)),
            &turned_over(sphere(1.0, 4)),
        );
        let (found, counts) = cleaned(&nested);
        assert_eq!(counts.turned_faces, nested.faces.len());
        // Solid, hollow, solid: 4/3 pi (27 - 8 + 1), less what the faces cut off.
        let volume = report(&found).volume.unwrap();
        assert!((volume / (80.0 / 3.0 * PI) - 1.0).abs() < 0.01, "{volume}");
    }

    #[test]
    fn cameras_decide_where_they_see_a_surface() {
        // The inner side of a room is the visible one.
        let cameras = [[0.1, 0.2, 0.0], [0.0, -0.3, 0.2]];
        let options = CleanOptions { sides: Sides::Outward(&cameras), ..CleanOptions::default() };
        let (room, counts) = clean(sphere(2.0, 3), &options).unwrap();
        assert_eq!(counts.turned_faces, room.faces.len());
        assert!(report(&room).volume.unwrap() < 0.0);
        // An open wall, seen from one side.
        let wall = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], &[[0, 1, 2]]);
        for (z, turned) in [(1.0, 0), (-1.0, 1)] {
            let cameras = [[0.2, 0.2, z]];
            let options =
                CleanOptions { sides: Sides::Outward(&cameras), ..CleanOptions::default() };
            assert_eq!(clean(wall.clone(), &options).unwrap().1.turned_faces, turned);
        }
    }

    #[test]
    fn small_components_go_by_share_number_or_rank() {
        let all = joined(
            joined(sphere(1.0, 3), &moved(sphere(0.5, 1), [4.0, 0.0, 0.0])),
            &moved(sphere(0.05, 2), [8.0, 0.0, 0.0]),
        );
        for (min, components) in [
            (MinComponent::FaceShare(0.1), 2),
            (MinComponent::FaceShare(0.3), 1),
            (MinComponent::Faces(33), 2),
            (MinComponent::Largest(2), 2),
            (MinComponent::Largest(50), 3),
        ] {
            let options = CleanOptions { min_component: min, ..CleanOptions::default() };
            let (found, counts) = clean(all.clone(), &options).unwrap();
            assert_eq!(report(&found).components, components, "{min:?}");
            assert_eq!(counts.small_components, 3 - components);
            assert_eq!(report(&found).unused_vertices, 0);
        }
        let none =
            CleanOptions { min_component: MinComponent::Faces(10_000), ..CleanOptions::default() };
        let error = clean(all, &none).unwrap_err().to_string();
        assert!(
            error.contains("nothing is left after the removal of small components: 672"),
            "{error}"
        );
        let error = clean(Mesh::default(), &none).unwrap_err().to_string();
        assert!(error.contains("after extraction"), "{error}");
    }

    #[test]
    fn slivers_are_mended_without_a_hole() {
        // A needle: a pole of a sphere, doubled. A cap: a corner on its longest side.
        let mut mesh = sphere(1.0, 2);
        let pole = 4;
        assert_eq!(mesh.vertices[pole as usize], [0.0, 0.0, 1.0]);
        mesh.vertices.push([1e-12, 0.0, 1.0]);
        let twin = mesh.vertices.len() as u32 - 1;
        // One of the faces about the pole goes to its twin, and two needles stand at its sides.
        let first = mesh.faces.iter().position(|face| face.contains(&pole)).unwrap();
        let at = mesh.faces[first].iter().position(|&v| v == pole).unwrap();
        let [b, c] = [mesh.faces[first][(at + 1) % 3], mesh.faces[first][(at + 2) % 3]];
        mesh.faces[first] = [twin, b, c];
        mesh.faces.extend([[pole, b, twin], [pole, twin, c]]);
        assert!(report(&mesh).watertight);
        let (found, counts) = cleaned(&mesh);
        assert!(report(&found).watertight && counts.degenerate_faces == 2, "{counts}");
        assert_eq!(found.faces.len(), 128);

        let mut mesh = cube();
        let middle = mesh.vertices.len() as u32;
        mesh.vertices.push([0.5, 0.5, 0.0]);
        // The bottom's diagonal runs through the new vertex on one side only.
        assert_eq!(mesh.faces[..2], [[0, 2, 1], [1, 2, 3]]);
        mesh.faces[0] = [0, 2, middle];
        mesh.faces.extend([[0, middle, 1], [1, middle, 2]]);
        let (found, counts) = cleaned(&mesh);
        let report = report(&found);
        assert!(report.watertight && counts.degenerate_faces == 1, "{report}");
        assert_eq!((report.faces, report.volume), (14, Some(1.0)));
    }

    #[test]
    fn doubled_faces_go_whichever_side_they_show() {
        let mut mesh = cube();
        mesh.faces.extend([mesh.faces[3], [1, 2, 0]]);
        let (found, counts) = cleaned(&mesh);
        assert_eq!((counts.duplicate_faces, found.faces), (2, cube().faces));
    }

    #[test]
    fn holes_up_to_the_given_size_are_closed() {
        let whole = sphere(1.0, 4);
        let mut pierced = whole.clone();
        // Around the poles: a hole of 4 faces, 4 edges, and a large one.
        pierced.faces.retain(|f| !f.iter().any(|&v| whole.vertices[v as usize][2] > 0.9999));
        pierced.faces.retain(|f| !f.iter().all(|&v| whole.vertices[v as usize][2] < -0.9));
        let boundary = report(&pierced).boundary_edges;
        for (edges, holes) in [(0, 0), (4, 1), (1000, 2)] {
            let options = CleanOptions { fill_hole_edges: edges, ..CleanOptions::default() };
            let (found, counts) = clean(pierced.clone(), &options).unwrap();
            assert_eq!(counts.filled_holes, holes);
            let found = report(&found);
            assert_eq!(found.watertight, holes == 2, "{found}");
            if holes == 2 {
                assert_eq!((found.genus, counts.added_faces), (Some(0), boundary - 4));
                assert!(found.volume.unwrap() > 3.8);
            }
        }
    }

    #[test]
    fn a_large_hole_is_closed_by_ears() {
        let mut open = band(200, 0.0);
        open.vertices
            .iter_mut()
            .enumerate()
            .for_each(|(i, v)| v[2] = if i % 2 == 0 { 0.0 } else { 0.3 });
        let options = CleanOptions { fill_hole_edges: 200, ..CleanOptions::default() };
        let (found, counts) = clean(open, &options).unwrap();
        let found = report(&found);
        assert!(found.watertight && counts.added_faces == 2 * 198, "{found}");
        assert_eq!(found.genus, Some(0));
    }

    #[test]
    fn borders_are_peeled_ring_by_ring() {
        let ring = band(30, 0.0).vertices;
        let mut mesh = Mesh::default();
        // Seven rows of vertices, six of faces.
        for row in 0..7_u8 {
            mesh.vertices.extend(ring.iter().step_by(2).map(|&[x, y, _]| [x, y, f32::from(row)]));
        }
        for row in 0..6 {
            for i in 0..30 {
                let [a, b] = [30 * row + i, 30 * row + (i + 1) % 30];
                mesh.faces.extend([[a, b, a + 30], [b, b + 30, a + 30]]);
            }
        }
        let stay = |times| peel_border(&mesh, times).iter().filter(|&&stays| stays).count();
        // The first round takes one triangle of each quad at both borders, the next the other.
        assert_eq!([stay(0), stay(1), stay(2), stay(20)], [360, 300, 240, 0]);
        assert_eq!(face_centres(&mesh).len(), 360);
    }

    proptest! {
        #[test]
        fn any_faces_become_a_manifold_once_and_for_all(
            faces in prop::collection::vec(prop::array::uniform3(0..9_u32), 1..40),
            places in prop::collection::vec(prop::array::uniform3(0..4_i8), 9),
        ) {
            let vertices: Vec<[f32; 3]> = places.iter().map(|p| p.map(f32::from)).collect();
            let options = CleanOptions {
                min_component: MinComponent::Faces(0), fill_hole_edges: 6, ..CleanOptions::default()
            };
            match clean(mesh_of(&vertices, &faces), &options) {
                Err(error) => prop_assert!(error.to_string().contains("nothing is left")),
                Ok((found, counts)) => {
                    let report = report(&found);
                    prop_assert_eq!(report.nonmanifold_edges, 0);
                    prop_assert_eq!(report.nonmanifold_vertices, 0);
                    prop_assert_eq!(report.unused_vertices, 0);
                    prop_assert_eq!(report.misoriented_edges, counts.one_sided_edges);
                }
            }
        }
    }
}

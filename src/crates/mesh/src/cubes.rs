//! Marching cubes (Lorensen and Cline 1987) on bricks, by a table made from a rule.

use rayon::prelude::*;

use crate::bricks::{
    self, BLOCK, BLOCK_NODES, BRICK_NODES, Block, Bricks, OWN, SIDE, block_index, for_nodes,
    neighbour, node_index,
};
use crate::mesh::{Mesh, Vec3, keep_rows, renumber_used};
use crate::narrow::{floor_u32, to_f32, to_f32s, to_f64s, to_u32};
use crate::place::{Bounds, add, scale, sub};
use crate::{Stopped, Watch};

// A vertex belongs to the lattice edge that it lies on: (brick, node, axis). One bit per edge says whether the surface
// passes it. The rank of the bit, counted over bricks by a prefix sum, is the vertex' number, so that two cells that
// share an edge share its vertex.

/// Share of an edge that a vertex keeps from its ends, so that every triangle has an area.
const KEEP_FROM_ENDS: f64 = 0.02;

/// Words of the bits of a brick's edges: three axes times 512 nodes.
const WORDS: usize = 3 * BRICK_NODES / 64;

/// Why no surface was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ExtractError {
    #[error(
        "the surface has {vertices} vertices, and an index of 32 bits counts to 4294967295. Use a smaller depth or a larger voxel"
    )]
    TooManyVertices { vertices: u64 },
    #[error("{values} values for {bricks} bricks of 512 nodes. Give one value a node")]
    Length { values: usize, bricks: usize },
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A vertex on the edge from a node along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Brick of the node.
    pub brick: u32,
    /// Index of the node in its brick.
    pub node: u16,
    /// Axis: 0, 1 or 2 for x, y or z.
    pub axis: u8,
    /// Position along the edge, above 0 and below 1.
    pub share: f32,
}

/// A surface on the lattice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatticeSurface {
    /// Vertices on edges of the lattice.
    pub crossings: Vec<Crossing>,
    /// Three vertices a face, counter-clockwise as seen from the side of the higher values.
    pub faces: Vec<[u32; 3]>,
}

impl Crossing {
    /// Returns the place, in nodes of the lattice.
    pub fn place(&self, bricks: &Bricks) -> Vec3 {
        let node = usize::from(self.node);
        let local = [node % SIDE, node / SIDE % SIDE, node / (SIDE * SIDE)];
        let brick = bricks.place(self.brick as usize);
        let mut place: Vec3 =
            std::array::from_fn(|a| f64::from(brick[a]) * SIDE as f64 + local[a] as f64);
        place[usize::from(self.axis)] += f64::from(self.share);
        place
    }
}

impl LatticeSurface {
    /// Returns the surface in the world; `place` maps places in nodes of the lattice there and keeps handedness.
    pub fn mesh(self, bricks: &Bricks, place: &(dyn Fn(Vec3) -> Vec3 + Sync)) -> Mesh {
        let vertices = self.crossings.par_iter().map(|c| to_f32s(place(c.place(bricks)))).collect();
        Mesh { vertices, faces: self.faces, normals: Vec::new(), colors: Vec::new() }
    }
}

/// Edges of a brick that the surface passes.
struct Passed {
    bits: [u64; WORDS],
    /// Vertices before each word, including all bricks before.
    before: [u32; WORDS],
}

/// Extracts the surface where `values`, `[bricks, 512]`, passes `level`: lower is inside, equal is outside.
///
/// A cell has no surface if one of its corners is NaN or in a missing brick. The surface is closed and manifold but
/// for the border of such cells.
pub fn extract(
    bricks: &Bricks,
    values: &[f32],
    level: f32,
    watch: &Watch<'_>,
) -> Result<LatticeSurface, ExtractError> {
    if values.len() != bricks.len() * BRICK_NODES {
        return Err(ExtractError::Length { values: values.len(), bricks: bricks.len() });
    }
    watch.report("surface", 0.0)?;
    let passed = passed_edges(bricks, values, level)?;
    watch.report("surface", 0.3)?;
    let of_brick = |brick| crossings_of(bricks, values, level, brick, &passed[brick]);
    let crossings = (0..bricks.len()).into_par_iter().map(of_brick);
    let mut crossings = crossings.collect::<Vec<_>>().concat();
    watch.report("surface", 0.6)?;
    let table = CaseTable::new();
    let of_brick = |brick| faces_of(bricks, values, level, brick, &passed, &table);
    let faces = (0..bricks.len()).into_par_iter().map(of_brick);
    let mut faces = faces.collect::<Vec<_>>().concat();
    watch.report("surface", 1.0)?;
    // No face uses a vertex on an edge whose cells all lack a corner.
    let is_used = renumber_used(&mut faces, crossings.len());
    keep_rows(&mut crossings, &is_used);
    Ok(LatticeSurface { crossings, faces })
}

/// True if a value is inside, and true if it is known.
#[inline]
fn side(value: f32, level: f32) -> (bool, bool) {
    (value < level, !value.is_nan())
}

fn passed_edges(bricks: &Bricks, values: &[f32], level: f32) -> Result<Vec<Passed>, ExtractError> {
    let of_brick = |block: &mut Block, brick| {
        bricks.gather(values, brick, f32::NAN, block);
        Passed { bits: passed_bits(block, level), before: [0; WORDS] }
    };
    let all = (0..bricks.len()).into_par_iter().map_init(|| [0.0; BLOCK_NODES], of_brick);
    let mut all: Vec<Passed> = all.collect();
    let mut count = 0_u64;
    for passed in &mut all {
        for (bits, before) in passed.bits.iter().zip(&mut passed.before) {
            *before = u32::try_from(count).unwrap_or(u32::MAX);
            count += u64::from(bits.count_ones());
        }
    }
    if count > u64::from(u32::MAX) {
        return Err(ExtractError::TooManyVertices { vertices: count });
    }
    Ok(all)
}

fn passed_bits(block: &Block, level: f32) -> [u64; WORDS] {
    let mut bits = [0; WORDS];
    for_nodes(|node, x, y, z| {
        let (inside, known) = side(block[block_index(x, y, z)], level);
        let beyond = [block_index(x + 1, y, z), block_index(x, y + 1, z), block_index(x, y, z + 1)];
        for (axis, &other) in beyond.iter().enumerate() {
            let (other_inside, other_known) = side(block[other], level);
            if known && other_known && inside != other_inside {
                let bit = axis * BRICK_NODES + node;
                bits[bit / 64] |= 1 << (bit % 64);
            }
        }
    });
    bits
}

fn crossings_of(
    bricks: &Bricks,
    values: &[f32],
    level: f32,
    brick: usize,
    passed: &Passed,
) -> Vec<Crossing> {
    let count: u32 = passed.bits.iter().map(|word| word.count_ones()).sum();
    if count == 0 {
        return Vec::new();
    }
    let mut block = [0.0; BLOCK_NODES];
    bricks.gather(values, brick, f32::NAN, &mut block);
    let mut crossings = Vec::with_capacity(count as usize);
    for (word, &bits) in passed.bits.iter().enumerate() {
        let mut left = bits;
        while left != 0 {
            let bit = word * 64 + left.trailing_zeros() as usize;
            left &= left - 1;
            let (axis, node) = (bit / BRICK_NODES, bit % BRICK_NODES);
            let at = block_index(node % SIDE + 1, node / SIDE % SIDE + 1, node / (SIDE * SIDE) + 1);
            let beyond = at + [1, BLOCK, BLOCK * BLOCK][axis];
            let f = |at: usize| f64::from(block[at]) - f64::from(level);
            let (f0, f1) = (f(at), f(beyond));
            let share = (f0 / (f0 - f1)).clamp(KEEP_FROM_ENDS, 1.0 - KEEP_FROM_ENDS);
            crossings.push(Crossing {
                brick: to_u32(brick),
                node: u16::try_from(node).unwrap_or(0),
                axis: u8::try_from(axis).unwrap_or(0),
                share: to_f32(share),
            });
        }
    }
    crossings
}

fn faces_of(
    bricks: &Bricks,
    values: &[f32],
    level: f32,
    brick: usize,
    passed: &[Passed],
    table: &CaseTable,
) -> Vec<[u32; 3]> {
    let mut block = [0.0; BLOCK_NODES];
    bricks.gather(values, brick, f32::NAN, &mut block);
    let mut faces = Vec::new();
    for_nodes(|_, x, y, z| {
        let mut case = 0_u8;
        let mut all_known = true;
        for corner in 0..8 {
            let offset = corner_offset(corner);
            let value = block[block_index(x + offset[0], y + offset[1], z + offset[2])];
            let (inside, known) = side(value, level);
            case |= u8::from(inside) << corner;
            all_known &= known;
        }
        if all_known && case != 0 && case != u8::MAX {
            let number = |edge| vertex_number(bricks, brick, [x - 1, y - 1, z - 1], edge, passed);
            faces.extend(table.triangles(case).iter().map(|triangle| triangle.map(number)));
        }
    });
    faces
}

/// Returns the number of the vertex on an edge of the cell at this node of the brick.
fn vertex_number(
    bricks: &Bricks,
    brick: usize,
    cell: [usize; 3],
    edge: u8,
    passed: &[Passed],
) -> u32 {
    let (corner, axis) = edge_start(edge);
    let offset = corner_offset(corner);
    let at: [usize; 3] = std::array::from_fn(|a| cell[a] + offset[a]);
    let beyond = at.map(|a| i32::from(a == SIDE));
    let home = neighbour(beyond);
    let owner = if home == OWN { brick } else { bricks.neighbours(brick)[home] as usize };
    let bit = axis * BRICK_NODES + node_index(at[0] % SIDE, at[1] % SIDE, at[2] % SIDE);
    let passed = &passed[owner];
    let below = passed.bits[bit / 64] & ((1 << (bit % 64)) - 1);
    passed.before[bit / 64] + below.count_ones()
}

// One rule makes the triangles of each of the 256 cases of a cell. A corner is its coordinates as bits, x in the
// lowest; a case is the set of corners inside, as bits. On each face, every run of inside corners is cut off by its
// own segment, so that on an ambiguous face the outside corners are joined. The cell on the other side has the same
// segments, reversed, so that surfaces of neighbouring cells meet without a crack. Segments close to loops along the
// cell's edges, and each loop is cut into triangles.

const EDGES: usize = 12;

/// Corners of the six faces, counter-clockwise as seen from outside the cell.
const FACES: [[u8; 4]; 6] =
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

const NONE: u8 = u8::MAX;

#[derive(Clone, Debug)]
struct CaseTable {
    /// Edges of the triangles of all cases, one after another.
    triangles: Vec<[u8; 3]>,
    /// First triangle of each case, and the end.
    starts: [u16; 257],
}

#[inline]
const fn corner_offset(corner: u8) -> [usize; 3] {
    [(corner & 1) as usize, (corner >> 1 & 1) as usize, (corner >> 2 & 1) as usize]
}

/// Returns the edge between two corners that differ along one axis: `4 axis + the other two bits`.
const fn edge_between(a: u8, b: u8) -> u8 {
    let low = a & b;
    match a ^ b {
        1 => low >> 1,
        2 => 4 + ((low & 1) | (low >> 2 & 1) << 1),
        _ => 8 + (low & 3),
    }
}

#[inline]
const fn edge_start(edge: u8) -> (u8, usize) {
    let bits = edge & 3;
    match edge >> 2 {
        0 => (bits << 1, 0),
        1 => ((bits & 1) | (bits >> 1) << 2, 1),
        _ => (bits, 2),
    }
}

impl CaseTable {
    fn new() -> Self {
        let mut triangles = Vec::new();
        let mut starts = [0; 257];
        for case in 0..=u8::MAX {
            for edges in loops(case) {
                triangulate(&edges, &mut triangles);
            }
            starts[case as usize + 1] = u16::try_from(triangles.len()).unwrap_or(u16::MAX);
        }
        Self { triangles, starts }
    }

    /// Returns the triangles of a case as edges of the cell, counter-clockwise seen from outside.
    #[inline]
    fn triangles(&self, case: u8) -> &[[u8; 3]] {
        let case = case as usize;
        &self.triangles[self.starts[case] as usize..self.starts[case + 1] as usize]
    }
}

/// Returns the closed loops of a case, each a list of edges in order.
fn loops(case: u8) -> Vec<Vec<u8>> {
    let mut next = [NONE; EDGES];
    let inside = |corner: u8| case >> corner & 1 == 1;
    for face in FACES {
        // A run of inside corners begins after an outside corner.
        for first in 0..4 {
            if !inside(face[first]) || inside(face[(first + 3) % 4]) {
                continue;
            }
            let mut last = first;
            while inside(face[(last + 1) % 4]) {
                last = (last + 1) % 4;
            }
            let entered = edge_between(face[(first + 3) % 4], face[first]);
            next[entered as usize] = edge_between(face[last], face[(last + 1) % 4]);
        }
    }
    let mut found = Vec::new();
    for start in 0..12_u8 {
        let mut edges = Vec::new();
        let mut edge = start;
        while next[edge as usize] != NONE {
            edges.push(edge);
            edge = std::mem::replace(&mut next[edge as usize], NONE);
        }
        if !edges.is_empty() {
            found.push(edges);
        }
    }
    found
}

/// True if two edges of a cell lie on one of its faces.
fn share_a_face(a: u8, b: u8) -> bool {
    let ends = |edge: u8| {
        let (corner, axis) = edge_start(edge);
        [corner, corner | 1 << axis]
    };
    FACES.iter().any(|face| ends(a).iter().chain(&ends(b)).all(|end| face.contains(end)))
}

/// Cuts a loop into triangles, but not along a face, because the neighbouring cell could make the same triangle.
fn triangulate(edges: &[u8], triangles: &mut Vec<[u8; 3]>) {
    let count = edges.len();
    if count == 3 {
        triangles.push([edges[0], edges[1], edges[2]]);
    }
    if count < 4 {
        return;
    }
    let fan =
        |root: usize| (2..count - 1).all(|k| !share_a_face(edges[root], edges[(root + k) % count]));
    let root = (0..count).find(|&root| fan(root)).unwrap_or(0);
    for k in 1..count - 1 {
        triangles.push([edges[root], edges[(root + k) % count], edges[(root + k + 1) % count]]);
    }
}

/// Cells along a side of the finest level that keys can address.
const FINEST: f64 = (1_u64 << bricks::AXIS_BITS) as f64;

/// A cube of world space. Level l cuts each side in 2^l cells. "Unit" places have the cube as [0, 1]³.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cube {
    /// Smallest corner, world space.
    pub corner: Vec3,
    /// Length of a side, scene units; above zero.
    pub side: f64,
}

impl Cube {
    /// Returns the cube around the box of these points, `factor` times as large as its longest side; none if there are
    /// no two different points.
    pub fn around(places: &[[f32; 3]], factor: f64) -> Option<Self> {
        let Bounds { low, high } = Bounds::of(places.iter().copied().map(to_f64s));
        let extent = sub(high, low).into_iter().fold(0.0, f64::max);
        let side = factor * extent;
        let centre = scale(add(low, high), 0.5);
        let is_one = places.is_empty() || !side.is_normal() || side < 0.0;
        (!is_one).then(|| Self { corner: sub(centre, [side / 2.0; 3]), side })
    }

    /// Returns a world place in units of the cube.
    #[inline]
    pub fn unit(&self, place: [f32; 3]) -> Vec3 {
        let inverse = 1.0 / self.side;
        std::array::from_fn(|a| (f64::from(place[a]) - self.corner[a]) * inverse)
    }

    /// Returns the key of the cell of a level that holds a world place; of the nearest cell outside the cube.
    #[inline]
    pub fn key(&self, place: [f32; 3], level: u32) -> u64 {
        let finest = self.unit(place).map(|u| floor_u32((u * FINEST).clamp(0.0, FINEST - 1.0)));
        bricks::key(finest) >> (3 * (bricks::AXIS_BITS - level))
    }

    /// Returns the world place of a place in nodes of a level.
    #[inline]
    pub fn world(&self, nodes: Vec3, level: u32) -> Vec3 {
        add(self.corner, scale(nodes, self.side / f64::from(1_u32 << level)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{bad_edges, node_places, unwatched, volume};
    use crate::place::{corners, dot, doubled_area};
    use crate::random::mix;
    use crate::report::MeshReport;

    #[test]
    fn edges_and_corners_name_each_other() {
        for edge in 0..12 {
            let (corner, axis) = edge_start(edge);
            assert_eq!(edge_between(corner, corner | 1 << axis), edge);
            assert_eq!(edge_between(corner | 1 << axis, corner), edge);
        }
    }

    #[test]
    fn no_cut_of_a_loop_runs_along_a_face() {
        for case in 0..=u8::MAX {
            for edges in loops(case) {
                let mut triangles = Vec::new();
                triangulate(&edges, &mut triangles);
                for (a, b) in
                    triangles.iter().flat_map(|t| [(t[0], t[1]), (t[1], t[2]), (t[2], t[0])])
                {
                    let at = |e| edges.iter().position(|&x| x == e).unwrap();
                    let apart = (at(a) + edges.len() - at(b)) % edges.len();
                    let along_loop = apart == 1 || apart == edges.len() - 1;
                    assert!(along_loop || !share_a_face(a, b), "case {case}: {edges:?}");
                }
            }
        }
    }

    #[test]
    fn one_corner_inside_gives_a_triangle_that_looks_away_from_it() {
        let table = CaseTable::new();
        let [triangle] = table.triangles(1) else { panic!("one triangle") };
        // Edges 0, 4 and 8 lie on x, y and z; counter-clockwise from outside is x, y, z.
        let start = triangle.iter().position(|&e| e == 0).unwrap();
        let turned: Vec<u8> = (0..3).map(|k| triangle[(start + k) % 3]).collect();
        assert_eq!(turned, [0, 4, 8]);
    }

    fn surface(bricks: &Bricks, values: &[f32]) -> Mesh {
        extract(bricks, values, 0.0, &unwatched()).unwrap().mesh(bricks, &|p| p)
    }

    /// Returns a cube of bricks with these values.
    fn cube_of(side: u32, value: impl FnMut([usize; 3]) -> f32) -> (Bricks, Vec<f32>) {
        let keys =
            (0..side.pow(3)).map(|i| bricks::key([i % side, i / side % side, i / side / side]));
        let bricks = Bricks::of_keys(keys.collect());
        let values = node_places(&bricks).map(value).collect();
        (bricks, values)
    }

    #[test]
    fn each_edge_of_a_random_field_has_one_opposite() {
        for seed in 0..250 {
            let mut index = seed << 20;
            let (bricks, values) = cube_of(1 + (seed % 2) as u32, |at| {
                let last = SIDE * (1 + (seed % 2) as usize) - 1;
                index += 1;
                let uniform = (mix(index) >> 40) as f32 / (1 << 24) as f32 - 0.5;
                match at.iter().any(|&a| a == 0 || a == last) {
                    true => 1.0,
                    // A node on the level itself counts as outside.
                    false if uniform.abs() < 0.05 => 0.0,
                    false => uniform,
                }
            });
            let mesh = surface(&bricks, &values);
            assert_eq!(bad_edges(&mesh), 0, "seed {seed}");
            assert!(mesh.faces.len() > 100);
        }
    }

    #[test]
    fn cells_of_all_cases_meet_their_six_neighbours() {
        for case in 0..256_u32 {
            for around in 0..16_u64 {
                // The cell in the middle has the case. The nodes around it, which its neighbours use, are random.
                let (bricks, values) = cube_of(1, |at| {
                    let corner = at.map(|a| a.wrapping_sub(3));
                    if corner.iter().all(|&c| c < 2) {
                        let bit = corner[0] + 2 * corner[1] + 4 * corner[2];
                        return if case >> bit & 1 == 1 { -1.0 } else { 1.0 };
                    }
                    let inner = at.iter().all(|&a| (2..6).contains(&a));
                    let number = (at[0] + 8 * at[1] + 64 * at[2]) as u64;
                    let is_inside = inner && mix(number + (around << 32) + 1) & 1 == 1;
                    if is_inside { -1.0 } else { 1.0 }
                });
                assert_eq!(
                    bad_edges(&surface(&bricks, &values)),
                    0,
                    "case {case}, around {around}"
                );
            }
        }
    }

    #[test]
    fn a_ball_has_its_volume_and_looks_outwards() {
        let radius = 12.3;
        let (bricks, values) = cube_of(4, |at| {
            let d = at.map(|a| a as f32 - 15.7);
            (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]).sqrt() - radius
        });
        let mesh = surface(&bricks, &values);
        let exact = 4.0 / 3.0 * std::f64::consts::PI * f64::from(radius).powi(3);
        // Chords cut off about h² / (4 r²) of each part: 1 / 600.
        let share = volume(&mesh) / exact;
        assert!((share - 1.0).abs() < 0.004, "{share}");
        assert!(mesh.faces.iter().all(|&face| {
            let places = corners(&mesh, face);
            dot(doubled_area(places), sub(places[0], [15.7; 3])) > 0.0
        }));
    }

    #[test]
    fn unknown_nodes_leave_a_hole_and_no_stray_vertex() {
        let (bricks, values) =
            cube_of(2, |at| if at == [7, 7, 7] { f32::NAN } else { at[2] as f32 - 7.5 });
        let mesh = surface(&bricks, &values);
        // 15 x 15 cells in two triangles each, less the four with the corner.
        assert_eq!(mesh.faces.len(), 2 * (15 * 15 - 4));
        assert_eq!(MeshReport::of(&mesh).unwrap().unused_vertices, 0);
    }
}

//! Marching cubes (Lorensen and Cline 1987) on bricks, by a table made from a rule.

mod table;

#[cfg(test)]
mod tests;

use rayon::prelude::*;
use table::{CaseTable, corner_offset, edge_start};

use crate::bricks::{
    BLOCK, BLOCK_NODES, BRICK_NODES, Block, Bricks, OWN, SIDE, block_index, neighbour, node_index,
};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f32, to_f32s, to_u32};
use crate::watch::{Stopped, Watch};

// The surface where a field on bricks passes a value.
//
// A vertex belongs to the lattice edge that it lies on: (brick, voxel, axis). A bit a brick's edge
// says whether the surface passes it, and the rank of the bit, counted over bricks by a prefix sum,
// is the vertex' number. So two cells that share an edge share its vertex.

/// The share of an edge that a vertex keeps from its ends, so that no triangle is without area.
const KEEP_FROM_ENDS: f64 = 0.02;

/// Words of the bits of a brick's edges: three axes times 512 nodes.
const WORDS: usize = 3 * BRICK_NODES / 64;

/// Why no surface was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtractError {
    /// More vertices than an index can tell apart.
    #[error(
        "the surface has {vertices} vertices, and an index of 32 bits counts to 4294967295. Use a smaller depth or a larger voxel"
    )]
    TooManyVertices {
        /// How many there are.
        vertices: u64,
    },
    /// Values of another number of bricks.
    #[error("{values} values for {bricks} bricks of 512 nodes. Give one value a node")]
    Length {
        /// Values that were given.
        values: usize,
        /// Bricks that there are.
        bricks: usize,
    },
    /// The caller's wish.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Where a vertex lies: on the edge from a node along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// The node's brick.
    pub brick: u32,
    /// The node in its brick.
    pub node: u16,
    /// The axis: 0, 1 or 2 for x, y or z.
    pub axis: u8,
    /// How far along the edge, above 0 and below 1.
    pub share: f32,
}

/// A surface in terms of the lattice.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LatticeSurface {
    /// Where each vertex lies.
    pub crossings: Vec<Crossing>,
    /// Three vertices a face, counter-clockwise as seen from the side of the higher values.
    pub faces: Vec<[u32; 3]>,
}

impl Crossing {
    /// The place, in nodes of the lattice.
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
    /// The surface in the world; `place` maps places in nodes of the lattice there and keeps handedness.
    pub fn mesh(self, bricks: &Bricks, place: &(dyn Fn(Vec3) -> Vec3 + Sync)) -> Mesh {
        let vertices = self.crossings.par_iter().map(|c| to_f32s(place(c.place(bricks)))).collect();
        Mesh { vertices, faces: self.faces, normals: Vec::new(), colors: Vec::new() }
    }
}

/// Which edges of a brick the surface passes.
struct Passed {
    bits: [u64; WORDS],
    /// Vertices before each word, the bricks before included.
    before: [u32; WORDS],
}

/// The surface where `values`, `[bricks, 512]`, passes `level`: lower is inside, equal is outside.
///
/// A cell with a corner that is NaN, or in a brick that is not there, has no surface. The surface is
/// closed and manifold but for the border of such cells.
pub fn extract(
    bricks: &Bricks,
    values: &[f32],
    level: f32,
    watch: &Watch<'_>,
) -> Result<LatticeSurface, ExtractError> {
    if values.len() != bricks.len() * BRICK_NODES {
        return Err(ExtractError::Length { values: values.len(), bricks: bricks.len() });
    }
    watch.tell("surface", 0.0)?;
    let passed = passed_edges(bricks, values, level)?;
    watch.tell("surface", 0.3)?;
    let crossings: Vec<Vec<Crossing>> = (0..bricks.len())
        .into_par_iter()
        .map(|brick| crossings_of(bricks, values, level, brick, &passed[brick]))
        .collect();
    let crossings = crossings.concat();
    watch.tell("surface", 0.6)?;
    let table = CaseTable::new();
    let faces: Vec<Vec<[u32; 3]>> = (0..bricks.len())
        .into_par_iter()
        .map(|brick| faces_of(bricks, values, level, brick, &passed, &table))
        .collect();
    let faces = faces.concat();
    watch.tell("surface", 1.0)?;
    Ok(without_unused(&crossings, faces))
}

/// Whether a value is inside, and whether it is known.
#[inline]
fn side(value: f32, level: f32) -> (bool, bool) {
    (value < level, !value.is_nan())
}

fn passed_edges(bricks: &Bricks, values: &[f32], level: f32) -> Result<Vec<Passed>, ExtractError> {
    let mut all: Vec<Passed> = (0..bricks.len())
        .into_par_iter()
        .map_init(
            || [0.0; BLOCK_NODES],
            |block, brick| {
                bricks.gather(values, brick, f32::NAN, block);
                Passed { bits: passed_bits(block, level), before: [0; WORDS] }
            },
        )
        .collect();
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

/// Calls for each node of a brick, with its coordinates in the block.
#[inline]
fn for_nodes(mut each: impl FnMut(usize, usize, usize, usize)) {
    for z in 0..SIDE {
        for y in 0..SIDE {
            for x in 0..SIDE {
                each(node_index(x, y, z), x + 1, y + 1, z + 1);
            }
        }
    }
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

/// The number of the vertex on an edge of the cell at this node of the brick.
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

/// The surface without vertices that no face uses: those on edges whose cells all lack a corner.
fn without_unused(crossings: &[Crossing], mut faces: Vec<[u32; 3]>) -> LatticeSurface {
    let mut number = vec![0_u32; crossings.len()];
    for &vertex in faces.as_flattened() {
        number[vertex as usize] = 1;
    }
    let mut kept = Vec::new();
    for (crossing, number) in crossings.iter().zip(&mut number) {
        if std::mem::replace(number, to_u32(kept.len())) == 1 {
            kept.push(*crossing);
        }
    }
    for face in &mut faces {
        *face = face.map(|vertex| number[vertex as usize]);
    }
    LatticeSurface { crossings: kept, faces }
}

//! A mesh and the Gaussians bound to its triangles: learned columns and fixed topology.

use std::ops::Range;

use crate::layout::BoundSizes;
use crate::math::Real;
use crate::math::bound::PerTriangle;
use crate::math::linalg::{Vec3, length, sub};

const MIN_SCALE: f64 = 1e-12;

/// Ratio of the initial scale to touching circles, between which the background would show. The reference uses 1; 1.4
/// was 0.2 dB better after 120 iterations.
const INITIAL_SCALE_FACTOR: f64 = 1.5;

/// Learned values of a mesh and of the Gaussians' shapes. Row `n f + j` is Gaussian j of the n on face f.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BoundColumns {
    /// Positions of the vertices, world space; `[vertices, 3]`.
    pub vertices: Vec<f32>,
    /// Logarithms of the scales in the plane, world units; `[Gaussians, 2]`.
    pub log_scales: Vec<f32>,
    /// Complex numbers whose angles turn the Gaussians in the plane; `[Gaussians, 2]`.
    pub turns: Vec<f32>,
}

impl BoundColumns {
    /// Values per row of each column.
    pub const WIDTHS: [usize; 3] = [3, 2, 2];

    /// Returns the columns in their order.
    pub fn values(&self) -> [&[f32]; 3] {
        [&self.vertices, &self.log_scales, &self.turns]
    }

    /// Returns the columns to be changed.
    pub fn values_mut(&mut self) -> [&mut Vec<f32>; 3] {
        [&mut self.vertices, &mut self.log_scales, &mut self.turns]
    }

    /// Creates columns of these lengths with zeros.
    pub fn zeros_like(&self) -> Self {
        let [vertices, log_scales, turns] = self.values().map(|column| vec![0.0; column.len()]);
        Self { vertices, log_scales, turns }
    }

    /// Creates Gaussians as large as their triangles allow, with their axes along the edges.
    pub fn at_rest(vertices: &[[f32; 3]], topology: &BoundTopology) -> Self {
        let per_triangle = topology.per_triangle;
        let place = |vertex: u32| vertices[vertex as usize].map(f64::from);
        let log_scale = |face: &[u32; 3]| {
            let [a, b, c]: [Vec3<f64>; 3] = face.map(place);
            let edges = [sub(a, b), sub(b, c), sub(c, a)];
            let shortest = edges.map(length).into_iter().fold(f64::INFINITY, f64::min);
            (INITIAL_SCALE_FACTOR * per_triangle.radius() * shortest).max(MIN_SCALE).ln().to_f32()
        };
        let rows = topology.gaussians();
        let both = 2 * per_triangle.count();
        Self {
            vertices: vertices.as_flattened().to_vec(),
            log_scales: topology
                .faces
                .iter()
                .flat_map(|face| std::iter::repeat_n(log_scale(face), both))
                .collect(),
            turns: [1.0, 0.0].repeat(rows),
        }
    }
}

/// Numbers that belong to each vertex, in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VertexLists {
    /// First index of each vertex in `numbers`, and the end; `[vertices + 1]`.
    pub starts: Vec<u32>,
    /// Numbers of all vertices.
    pub numbers: Vec<u32>,
}

impl VertexLists {
    /// Lists the indices in `uses` of each vertex.
    fn of(vertices: usize, uses: &[u32]) -> Self {
        let mut starts = vec![0_u32; vertices + 1];
        for &vertex in uses {
            starts[vertex as usize + 1] += 1;
        }
        for vertex in 0..vertices {
            starts[vertex + 1] += starts[vertex];
        }
        let mut next = starts.clone();
        let mut numbers = vec![0; uses.len()];
        for (number, &vertex) in (0_u32..).zip(uses) {
            let place = &mut next[vertex as usize];
            numbers[*place as usize] = number;
            *place += 1;
        }
        Self { starts, numbers }
    }

    /// Returns the numbers of a vertex.
    pub fn numbers_of(&self, vertex: usize) -> &[u32] {
        let [start, end] = [0, 1].map(|i| self.starts[vertex + i] as usize);
        &self.numbers[start..end]
    }
}

/// Fixed topology of a mesh with bound Gaussians.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundTopology {
    /// Three vertices of each face.
    pub faces: Vec<[u32; 3]>,
    /// Number of Gaussians on each face.
    pub per_triangle: PerTriangle,
    /// Logarithm of the Gaussians' scale along the normals, world units.
    pub log_thickness: f32,
    /// Pairs of faces at an edge: the edge's vertices, then the third vertex of each face.
    pub hinges: Vec<[u32; 4]>,
    /// Corners `3 f + i` of the faces around each vertex.
    pub corners_of: VertexLists,
    /// Indices `4 h + i` of each vertex in the hinges.
    pub hinges_of: VertexLists,
}

/// A mesh with more triangles than a model has rows for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{faces} triangles with {each} Gaussians each are more than {} Gaussians. Use a mesh with fewer \
     triangles",
    Self::MAX_GAUSSIANS
)]
pub struct TooManyBound {
    /// Triangles of the mesh.
    pub faces: usize,
    /// Gaussians on each triangle.
    pub each: usize,
}

impl TooManyBound {
    /// Largest number of rows: their values are counted in 32 bits.
    const MAX_GAUSSIANS: usize = 1 << 28;
}

/// A side of a face, sorted by its edge.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FaceSide {
    low: u32,
    high: u32,
    face: u32,
    /// Corner that is not on the edge.
    third: u32,
}

impl BoundTopology {
    /// Creates the topology of faces over `vertices` vertices.
    pub fn new(
        faces: Vec<[u32; 3]>,
        vertices: usize,
        per_triangle: PerTriangle,
        log_thickness: f32,
    ) -> Result<Self, TooManyBound> {
        let each = per_triangle.count();
        let hinges = hinges(&faces);
        let most = TooManyBound::MAX_GAUSSIANS;
        if faces.len() > most / each || hinges.len() > most {
            return Err(TooManyBound { faces: faces.len(), each });
        }
        let corners_of = VertexLists::of(vertices, faces.as_flattened());
        let hinges_of = VertexLists::of(vertices, hinges.as_flattened());
        Ok(Self { faces, per_triangle, log_thickness, hinges, corners_of, hinges_of })
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> usize {
        self.corners_of.starts.len().saturating_sub(1)
    }

    /// Returns the number of bound Gaussians.
    pub fn gaussians(&self) -> usize {
        self.faces.len() * self.per_triangle.count()
    }

    /// Returns the sizes of the mesh.
    pub fn sizes(&self) -> BoundSizes {
        BoundSizes {
            vertices: self.vertices() as u64,
            faces: self.faces.len() as u64,
            hinges: self.hinges.len() as u64,
            gaussians: self.gaussians() as u64,
        }
    }

    /// Returns the Gaussians on a face.
    pub fn rows_of(&self, face: usize) -> Range<usize> {
        let each = self.per_triangle.count();
        face * each..(face + 1) * each
    }
}

/// Returns the pairs of faces at each edge, in the order of the edges and faces.
fn hinges(faces: &[[u32; 3]]) -> Vec<[u32; 4]> {
    let mut sides: Vec<FaceSide> = (0_u32..)
        .zip(faces)
        .flat_map(|(face, &[a, b, c])| {
            [[a, b, c], [b, c, a], [c, a, b]].map(|[from, to, third]| FaceSide {
                low: from.min(to),
                high: from.max(to),
                face,
                third,
            })
        })
        .collect();
    sides.sort_unstable();
    let mut hinges = Vec::with_capacity(sides.len() / 2);
    for edge in sides.chunk_by(|a, b| (a.low, a.high) == (b.low, b.high)) {
        for (at, first) in edge.iter().enumerate() {
            let others = edge[at + 1..].iter();
            hinges.extend(others.map(|second| [first.low, first.high, first.third, second.third]));
        }
    }
    hinges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hinges_are_the_pairs_of_faces_at_an_edge() {
        let topology = |faces: &[[u32; 3]], vertices| {
            BoundTopology::new(faces.to_vec(), vertices, PerTriangle::Three, -5.0).unwrap()
        };
        let quad = topology(&[[0, 1, 2], [2, 1, 3]], 4);
        assert_eq!(quad.hinges, [[1, 2, 0, 3]]);
        assert_eq!((quad.gaussians(), quad.rows_of(1)), (6, 3..6));
        assert_eq!(quad.corners_of.numbers_of(1), [1, 4]);
        assert_eq!(quad.hinges_of.numbers_of(3), [3]);
        let fan = topology(&[[0, 1, 2], [1, 0, 3], [0, 1, 4]], 5);
        assert_eq!(fan.hinges, [[0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 3, 4]]);
        assert_eq!(fan.hinges_of.numbers_of(4), [7, 11]);
        assert_eq!(fan.vertices(), 5);
    }

    #[test]
    fn initial_scales_follow_the_shortest_edge() {
        let faces = vec![[0, 1, 2]];
        let topology = BoundTopology::new(faces, 3, PerTriangle::One, -5.0).unwrap();
        let vertices = [[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 1.0, 0.0]];
        let columns = BoundColumns::at_rest(&vertices, &topology);
        let expected = (INITIAL_SCALE_FACTOR / (2.0 * 3.0_f64.sqrt())).ln();
        assert!((f64::from(columns.log_scales[1]) - expected).abs() < 1e-6);
        assert_eq!((columns.turns, columns.vertices.len()), (vec![1.0, 0.0], 9));
        let point = BoundColumns::at_rest(&[[1.0; 3]; 3], &topology);
        assert!((f64::from(point.log_scales[0]) - MIN_SCALE.ln()).abs() < 1e-5);
    }
}

//! The triangles of each of the 256 cases of a cell, made from one rule.
//!
//! A corner is its coordinates as bits, x in the lowest; a case is the set of corners inside, as bits.
//! On each face, every run of inside corners is cut off by a segment of its own, so that on an ambiguous
//! face the outside corners are joined. The cell on the other side draws the same segments, turned
//! round, so that surfaces of neighbouring cells meet without a crack. Segments close to loops along the
//! cell's edges, and each loop is cut into triangles.

/// Edges of a cell.
const EDGES: usize = 12;

/// Corners of the six faces, counter-clockwise as seen from outside the cell.
const FACES: [[u8; 4]; 6] =
    [[0, 4, 6, 2], [1, 3, 7, 5], [0, 1, 5, 4], [2, 6, 7, 3], [0, 2, 3, 1], [4, 5, 7, 6]];

/// Stands for no edge.
const NONE: u8 = u8::MAX;

/// Triangles of all cases.
#[derive(Clone, Debug)]
pub(super) struct CaseTable {
    /// Edges of the triangles of all cases, one after another.
    triangles: Vec<[u8; 3]>,
    /// Where each case's triangles start; one more than there are cases.
    starts: [u16; 257],
}

/// A corner's coordinates in its cell, 0 or 1.
#[inline]
pub(super) const fn corner_offset(corner: u8) -> [usize; 3] {
    [(corner & 1) as usize, (corner >> 1 & 1) as usize, (corner >> 2 & 1) as usize]
}

/// The edge between two corners that differ along one axis: `4 axis + the other two bits`.
const fn edge_between(a: u8, b: u8) -> u8 {
    let low = a & b;
    match a ^ b {
        1 => low >> 1,
        2 => 4 + ((low & 1) | (low >> 2 & 1) << 1),
        _ => 8 + (low & 3),
    }
}

/// An edge's lower corner and its axis.
#[inline]
pub(super) const fn edge_start(edge: u8) -> (u8, usize) {
    let bits = edge & 3;
    match edge >> 2 {
        0 => (bits << 1, 0),
        1 => ((bits & 1) | (bits >> 1) << 2, 1),
        _ => (bits, 2),
    }
}

impl CaseTable {
    /// Makes the table; a few microseconds.
    pub(super) fn new() -> Self {
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

    /// The triangles of a case, corners counter-clockwise as seen from outside, as edges of the cell.
    #[inline]
    pub(super) fn triangles(&self, case: u8) -> &[[u8; 3]] {
        let case = case as usize;
        &self.triangles[self.starts[case] as usize..self.starts[case + 1] as usize]
    }
}

/// The closed loops of a case, each a list of edges in order.
fn loops(case: u8) -> Vec<Vec<u8>> {
    let mut next = [NONE; EDGES];
    let inside = |corner: u8| case >> corner & 1 == 1;
    for face in FACES {
        // A run of inside corners begins where the one before is outside.
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

/// Whether two edges of a cell lie on one of its faces.
fn share_a_face(a: u8, b: u8) -> bool {
    let ends = |edge: u8| {
        let (corner, axis) = edge_start(edge);
        [corner, corner | 1 << axis]
    };
    FACES.iter().any(|face| ends(a).iter().chain(&ends(b)).all(|end| face.contains(end)))
}

/// Cuts a loop into triangles, without a cut along a face: the cell beyond could make the same one.
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

#[cfg(test)]
mod tests {
    use super::*;

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
}

//! Triangles are split in four at the middles of their edges, which neighbours share.

use rayon::prelude::*;

/// What becomes of triangles that are split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitFaces {
    /// The ends of the edges that get a new vertex in their middle.
    pub midpoints: Vec<[u32; 2]>,
    /// All triangles: those that are split have four in their place. New vertices are numbered after those
    /// that there were.
    pub faces: Vec<[u32; 3]>,
    /// How many were split.
    pub count: usize,
}

/// No triangle that is split, among ranks.
const UNSPLIT: u32 = u32::MAX;

/// An edge of a triangle that is to be split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedEdge {
    /// The smaller number first.
    ends: [u32; 2],
    /// Place of the triangle in the order.
    rank: u32,
    /// Which of its edges: from its corner of this number to the next.
    slot: u8,
}

/// Splits the triangles of an order, each once in it, for as long as no more than `most` vertices are made.
/// A neighbour that is not split keeps the whole edge: the new vertex then lies on it.
pub fn split(faces: &[[u32; 3]], vertices: usize, order: &[u32], most: usize) -> SplitFaces {
    let mut edges = wanted_edges(faces, order);
    let count = affordable(&edges, order.len(), most);
    edges.retain(|edge| (edge.rank as usize) < count);
    let first_new = u32::try_from(vertices).unwrap_or(u32::MAX);
    let mut midpoints: Vec<[u32; 2]> = Vec::with_capacity(most.min(edges.len()));
    let mut middles = vec![[0; 3]; count];
    for edge in &edges {
        if midpoints.last() != Some(&edge.ends) {
            midpoints.push(edge.ends);
        }
        let last = u32::try_from(midpoints.len() - 1).unwrap_or(u32::MAX);
        middles[edge.rank as usize][usize::from(edge.slot)] = first_new.saturating_add(last);
    }
    let mut rank_from_face = vec![UNSPLIT; faces.len()];
    for (rank, &face) in (0..).zip(&order[..count]) {
        rank_from_face[face as usize] = rank;
    }
    let mut all = Vec::with_capacity(faces.len() + 3 * count);
    for (&face, &rank) in faces.iter().zip(&rank_from_face) {
        match middles.get(rank as usize) {
            Some(&middles) => all.extend(quarters(face, middles)),
            None => all.push(face),
        }
    }
    SplitFaces { midpoints, faces: all, count }
}

/// The edges of the triangles of an order, equal ones side by side and by rank.
fn wanted_edges(faces: &[[u32; 3]], order: &[u32]) -> Vec<WantedEdge> {
    let ranked: Vec<(u32, [u32; 3])> =
        (0..).zip(order).map(|(rank, &face)| (rank, faces[face as usize])).collect();
    let edges_of = |(rank, face): (u32, [u32; 3])| {
        [0_u8, 1, 2].map(|slot| {
            let from = usize::from(slot);
            let (a, b) = (face[from], face[(from + 1) % 3]);
            WantedEdge { ends: [a.min(b), a.max(b)], rank, slot }
        })
    };
    let mut edges: Vec<WantedEdge> = ranked.into_par_iter().flat_map_iter(edges_of).collect();
    edges.par_sort_unstable();
    edges
}

/// How many of the first triangles of an order can be split by at most so many new vertices.
fn affordable(edges: &[WantedEdge], triangles: usize, most: usize) -> usize {
    let mut made_by_rank = vec![0_u8; triangles];
    let mut before = None;
    for edge in edges {
        // The first triangle that wants an edge split makes its vertex.
        if before != Some(edge.ends) {
            made_by_rank[edge.rank as usize] += 1;
        }
        before = Some(edge.ends);
    }
    let mut made = 0;
    let fits = |&new: &u8| {
        made += usize::from(new);
        made <= most
    };
    made_by_rank.iter().copied().take_while(fits).count()
}

/// The four in the place of a triangle with these vertices in the middle of its edges, turned as it is.
fn quarters([a, b, c]: [u32; 3], [ab, bc, ca]: [u32; 3]) -> [[u32; 3]; 4] {
    [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::math::random::{RandomStream, RandomUse};

    /// A square of so many by so many vertices.
    fn grid(side: u32) -> Vec<[u32; 3]> {
        let cells = (0..side - 1).flat_map(|y| (0..side - 1).map(move |x| y * side + x));
        cells.flat_map(|at| [[at, at + 1, at + side], [at + side, at + 1, at + side + 1]]).collect()
    }

    #[test]
    fn neighbours_share_the_vertex_in_the_middle_of_their_edge() {
        let SplitFaces { midpoints, faces, count } = split(&[[0, 1, 2], [2, 1, 3]], 4, &[1, 0], 99);
        assert_eq!(midpoints, [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(count, 2);
        let of_first = [[0, 4, 5], [4, 1, 6], [5, 6, 2], [4, 6, 5]];
        let of_second = [[2, 6, 8], [6, 1, 7], [8, 7, 3], [6, 7, 8]];
        assert_eq!(faces, [of_first, of_second].concat());
    }

    #[test]
    fn an_unselected_neighbour_stays_as_it_is() {
        let SplitFaces { midpoints, faces, count } = split(&[[0, 1, 2], [2, 1, 3]], 4, &[1], 3);
        assert_eq!((midpoints.len(), faces.len(), count), (3, 5, 1));
        assert_eq!(faces[0], [0, 1, 2]);
        assert_eq!(split(&[[0, 1, 2]], 3, &[], 9).faces, [[0, 1, 2]]);
    }

    #[test]
    fn the_number_of_new_vertices_is_never_exceeded_and_no_vertex_is_lost() {
        let faces = grid(9);
        for most in 0..400 {
            let stream = RandomStream::new(7, most, RandomUse::SplitTriangles);
            let order: Vec<u32> = stream
                .permutation(faces.len())
                .into_iter()
                .take(1 + stream.below(900, faces.len()))
                .map(|face| u32::try_from(face).unwrap())
                .collect();
            let most = usize::try_from(most).unwrap();
            let found = split(&faces, 81, &order, most);
            assert!(found.midpoints.len() <= most);
            assert_eq!(found.faces.len(), faces.len() + 3 * found.count);
            let used: BTreeSet<u32> = found.faces.as_flattened().iter().copied().collect();
            assert!(used.into_iter().eq(0..81 + u32::try_from(found.midpoints.len()).unwrap()));
            // A triangle that is not split would have needed more vertices than are left.
            if found.count < order.len() {
                assert!(most - found.midpoints.len() < 3);
            }
        }
    }

    #[test]
    fn a_mesh_that_is_split_everywhere_has_no_seams() {
        let faces = grid(5);
        let order: Vec<u32> = (0..u32::try_from(faces.len()).unwrap()).collect();
        let found = split(&faces, 25, &order, usize::MAX);
        // A vertex for each edge: 20 along each axis, and 16 across.
        assert_eq!((found.midpoints.len(), found.faces.len()), (56, 4 * faces.len()));
        let mut edges: Vec<_> = found
            .faces
            .iter()
            .flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]])
            .map(|[a, b]| [a.min(b), a.max(b)])
            .collect();
        edges.sort_unstable();
        let lone = edges.chunk_by(|a, b| a == b).filter(|same| same.len() == 1).count();
        assert_eq!(lone, 32, "only the border has edges of one triangle");
    }
}

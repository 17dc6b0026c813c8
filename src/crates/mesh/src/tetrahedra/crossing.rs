//! Edges between a point inside and one outside, each once, and where the surface crosses them.

use rayon::prelude::*;

use super::cutting::LongEdges;
use super::labelled::Labelled;
use crate::mesh::Vec3;
use crate::vector::{add, length, scale, sub};

/// The edges of a tetrahedron by corners.
const EDGES: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];

/// Crossing edges, and the part of each that the surface crosses.
#[derive(Debug)]
pub(super) struct Crossings {
    /// Lower point in the high half, higher point in the low half: ascending.
    pairs: Vec<u64>,
    /// Parts of the edge between the inside point and the part that crosses.
    parts: Vec<u32>,
    /// Halvings so far: each edge has 2^halvings parts.
    halvings: u32,
}

/// The pair of two points.
fn pair(a: u32, b: u32) -> u64 {
    u64::from(a.min(b)) << 32 | u64::from(a.max(b))
}

/// The lower and the higher point of a pair.
fn ends(pair: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    let ends = [(pair >> 32) as u32, pair as u32];
    ends
}

impl Crossings {
    /// All crossing edges.
    pub(super) fn of(labelled: &Labelled<'_>) -> Self {
        let crossing = |corners: &[u32; 4]| {
            let corners = *corners;
            let inside = |corner: u32| labelled.inside[corner as usize];
            EDGES.into_iter().filter_map(move |[a, b]| {
                let (a, b) = (corners[a], corners[b]);
                (inside(a) != inside(b)).then(|| pair(a, b))
            })
        };
        let mut pairs: Vec<u64> = labelled.tetrahedra.par_iter().flat_map_iter(crossing).collect();
        pairs.par_sort_unstable();
        pairs.dedup();
        pairs.shrink_to_fit();
        Self { parts: vec![0; pairs.len()], pairs, halvings: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The vertex on the edge between two points; `None` where it does not cross.
    pub(super) fn vertex(&self, a: u32, b: u32) -> Option<u32> {
        self.pairs.binary_search(&pair(a, b)).ok().and_then(|at| u32::try_from(at).ok())
    }

    /// The middle of each edge's part that crosses.
    pub(super) fn middles(&self, labelled: &Labelled<'_>) -> Vec<Vec3> {
        let place = |point: u32| labelled.points[point as usize];
        let part = 0.5_f64.powi(self.halvings.cast_signed());
        let middle = |(&pair, &before): (&u64, &u32)| {
            let [inside, outside] = oriented(pair, labelled).map(place);
            let share = (f64::from(before) + 0.5) * part;
            // From the nearer end, so that a middle never rounds to the far one.
            if share < 0.5 {
                add(inside, scale(sub(outside, inside), share))
            } else {
                add(outside, scale(sub(inside, outside), 1.0 - share))
            }
        };
        self.pairs.par_iter().zip(&self.parts).map(middle).collect()
    }

    /// Halves each part, given whether its middle is inside.
    pub(super) fn halve(&mut self, inside: &[bool]) {
        self.halvings += 1;
        self.parts.par_iter_mut().zip(inside).for_each(|(part, &inside)| {
            *part = *part << 1 | u32::from(inside);
        });
    }

    /// The points inside and outside of each edge.
    pub(super) fn into_edges(self, labelled: &Labelled<'_>) -> Vec<[u32; 2]> {
        self.pairs.into_par_iter().map(|pair| oriented(pair, labelled)).collect()
    }
}

/// The points inside and outside of a pair.
fn oriented(pair: u64, labelled: &Labelled<'_>) -> [u32; 2] {
    let [lower, higher] = ends(pair);
    if labelled.inside[lower as usize] { [lower, higher] } else { [higher, lower] }
}

/// Lengths of edges, world units.
pub(super) fn lengths(points: &[Vec3], edges: &[[u32; 2]]) -> Vec<f64> {
    let of = |&[a, b]: &[u32; 2]| length(sub(points[a as usize], points[b as usize]));
    edges.par_iter().map(of).collect()
}

/// The longest edge that an open surface keeps by default.
pub(super) fn longest_kept(lengths: &[f64]) -> f64 {
    let mut sorted = lengths.to_vec();
    let middle = sorted.len() / 2;
    let (_, median, _) = sorted.select_nth_unstable_by(middle, f64::total_cmp);
    LongEdges::MEDIANS * *median
}

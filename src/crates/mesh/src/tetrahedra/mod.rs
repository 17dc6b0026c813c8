//! Surface between the inside and the outside of a scene, cut from tetrahedra over labelled points.
//!
//! Marching tetrahedra (Doi and Koide, 1991): a face of the surface lies in each tetrahedron with
//! corners on both sides, its corners on the edges that cross. They are found on those edges by
//! bisection with the labels of points between. The surface is closed and manifold where the hull
//! is outside, which [`Pivots`] see to.

mod pivots;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use crate::delaunay::predicates::OPPOSITE;
use crate::mesh::{Mesh, Vec3};
use crate::narrow::to_f32s;
use crate::vector::{add, length, scale, sub};

pub use pivots::{PivotSides, Pivots, Polish, polish};

/// Most bisections: a place on an edge is a number of 32 bits.
const MOST_BISECTIONS: u32 = 31;

/// A surface, and what it was cut from.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The surface; vertices in the order of their edges' lower, then higher points.
    pub mesh: Mesh,
    /// The points inside and outside that each vertex lies between.
    pub edge_from_vertex: Vec<[u32; 2]>,
    /// Faces that went with long edges.
    pub dropped_faces: usize,
}

/// Cuts the surface; `is_inside` labels a batch of places, once a bisection.
///
/// # Errors
/// If labels are missing, nothing crosses, nothing is left, or `is_inside` fails.
pub fn cut<E: From<CutError>>(
    labelled: &Labelled<'_>,
    cutting: &Cutting,
    mut is_inside: impl FnMut(&[Vec3]) -> Result<Vec<bool>, E>,
) -> Result<Cut, E> {
    check(labelled)?;
    let mut crossings = Crossings::of(labelled);
    if crossings.is_empty() {
        let inside = labelled.inside.iter().filter(|&&inside| inside).count();
        return Err(CutError::OneSide { inside, points: labelled.points.len() }.into());
    }
    for _ in 0..cutting.bisections.min(MOST_BISECTIONS) {
        let middles = crossings.middles(labelled);
        let labels = is_inside(&middles)?;
        if labels.len() != middles.len() {
            return Err(CutError::Labels { labels: labels.len(), points: middles.len() }.into());
        }
        crossings.halve(&labels);
    }
    let mut faces = faces(labelled, &crossings);
    let mut places = crossings.middles(labelled);
    let mut edge_from_vertex = crossings.into_edges(labelled);
    let all = faces.len();
    if let LongEdges::Drop(longest) = cutting.long_edges {
        let lengths = lengths(labelled.points, &edge_from_vertex);
        let longest = longest.unwrap_or_else(|| longest_kept(&lengths));
        let drops: Vec<bool> = lengths.par_iter().map(|&length| length > longest).collect();
        without_vertices(&drops, &mut faces, &mut places, &mut edge_from_vertex);
        if faces.is_empty() {
            return Err(CutError::NothingLeft { faces: all, longest }.into());
        }
    }
    let dropped_faces = all - faces.len();
    let vertices = places.into_par_iter().map(to_f32s).collect();
    Ok(Cut { mesh: Mesh { vertices, faces, ..Mesh::default() }, edge_from_vertex, dropped_faces })
}

// Why there is no surface.

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CutError {
    /// Not a label a point.
    #[error("{labels} labels for {points} points: give one for each")]
    Labels {
        /// Labels given.
        labels: usize,
        /// Points that they are for.
        points: usize,
    },
    /// A tetrahedron with a corner that is no point.
    #[error("tetrahedron {tetrahedron} names point {corner} of {points}: triangulate these points")]
    Corner {
        /// The tetrahedron.
        tetrahedron: usize,
        /// Its corner.
        corner: u32,
        /// Points given.
        points: usize,
    },
    /// No edge crosses the surface.
    #[error(
        "no surface: {inside} of {points} points are inside, and no edge leads outside; see \
         whether the views see the scene"
    )]
    OneSide {
        /// Points inside.
        inside: usize,
        /// Points given.
        points: usize,
    },
    /// All faces lie on long edges.
    #[error("nothing is left of {faces} faces: the longest edge of {longest} is too short")]
    NothingLeft {
        /// Faces before.
        faces: usize,
        /// The longest edge allowed, world units.
        longest: f64,
    },
}

// Labelled points and the tetrahedra over them.

/// Labelled points and the tetrahedra over them.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Places, world units.
    pub points: &'a [Vec3],
    /// Corners [a, b, c, d] with (b - a) x (c - a) · (d - a) > 0, each face in at most two.
    pub tetrahedra: &'a [[u32; 4]],
    /// Whether each point is inside.
    pub inside: &'a [bool],
}

/// Whether there is a label a point and a point a corner.
fn check(labelled: &Labelled<'_>) -> Result<(), CutError> {
    let points = labelled.points.len();
    if labelled.inside.len() != points {
        return Err(CutError::Labels { labels: labelled.inside.len(), points });
    }
    let stray = |corner: &u32| *corner as usize >= points;
    let strays = |corners: &[u32; 4]| corners.iter().any(stray);
    match labelled.tetrahedra.par_iter().position_first(strays) {
        Some(tetrahedron) => {
            let corners = labelled.tetrahedra[tetrahedron];
            let corner = corners.into_iter().find(stray).unwrap_or_default();
            Err(CutError::Corner { tetrahedron, corner, points })
        }
        None => Ok(()),
    }
}

// How to cut.

/// How to cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cutting {
    /// Halvings of each crossing edge, at most 31.
    pub bisections: u32,
    /// What becomes of faces that long edges hold.
    pub long_edges: LongEdges,
}

impl Default for Cutting {
    fn default() -> Self {
        Self { bisections: 8, long_edges: LongEdges::Keep }
    }
}

/// What becomes of faces whose corners lie on long edges, which span what no point has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LongEdges {
    /// They stay: the surface is closed.
    #[default]
    Keep,
    /// They go where an edge is longer than this, world units; by default
    /// [`LongEdges::MEDIANS`] medians of the crossing edges.
    Drop(Option<f64>),
}

impl LongEdges {
    /// The longest edge that holds a face of an open surface, in medians.
    pub const MEDIANS: f64 = 20.0;
}

// Faces in the tetrahedra that the surface crosses.

/// Faces of all tetrahedra, in their order, with normals that point outside.
fn faces(labelled: &Labelled<'_>, crossings: &Crossings) -> Vec<[u32; 3]> {
    let of = |corners: &[u32; 4]| faces_in(*corners, labelled.inside, crossings);
    labelled.tetrahedra.par_iter().flat_map_iter(of).collect()
}

/// The faces in a tetrahedron: none, one, or two that share a diagonal.
fn faces_in(
    corners: [u32; 4],
    inside: &[bool],
    crossings: &Crossings,
) -> impl Iterator<Item = [u32; 3]> + use<> {
    let is_inside = corners.map(|corner| inside[corner as usize]);
    // Every edge asked for crosses, so a vertex is on it.
    let vertex = |a: usize, b: usize| crossings.vertex(corners[a], corners[b]).unwrap_or(0);
    let lone = |corner: usize| OPPOSITE[corner].map(|other| vertex(corner, other));
    let position = |value: bool| is_inside.iter().position(|&inside| inside == value).unwrap_or(0);
    let found = match is_inside.iter().filter(|&&inside| inside).count() {
        1 => {
            let [a, b, c] = lone(position(true));
            [Some([a, c, b]), None]
        }
        3 => [Some(lone(position(false))), None],
        2 => {
            let [i, j, k, l] = split(is_inside);
            halves([vertex(i, k), vertex(i, l), vertex(j, l), vertex(j, k)])
        }
        _ => [None, None],
    };
    found.into_iter().flatten()
}

/// Corners with the two that are inside first, in an order of the same sign.
fn split(is_inside: [bool; 4]) -> [usize; 4] {
    match is_inside {
        [true, true, ..] => [0, 1, 2, 3],
        [true, _, true, _] => [0, 2, 3, 1],
        [true, ..] => [0, 3, 1, 2],
        [_, true, true, _] => [1, 2, 0, 3],
        [_, true, ..] => [1, 3, 2, 0],
        _ => [2, 3, 0, 1],
    }
}

/// The triangles of a quadrangle on both sides of its lowest corner's diagonal.
fn halves(quad: [u32; 4]) -> [Option<[u32; 3]>; 2] {
    let first = (0..4).min_by_key(|&at| quad[at]).unwrap_or(0);
    let corner = |at: usize| quad[(first + at) & 3];
    [Some([corner(0), corner(1), corner(2)]), Some([corner(0), corner(2), corner(3)])]
}

/// Drops vertices with the faces that have them as corners, then vertices without a face.
fn without_vertices(
    drops: &[bool],
    faces: &mut Vec<[u32; 3]>,
    places: &mut Vec<Vec3>,
    edges: &mut Vec<[u32; 2]>,
) {
    faces.retain(|face| face.iter().all(|&vertex| !drops[vertex as usize]));
    let mut is_used = vec![false; drops.len()];
    for &vertex in faces.iter().flatten() {
        is_used[vertex as usize] = true;
    }
    let mut kept = 0;
    let new_from_old: Vec<u32> = is_used
        .iter()
        .map(|&is_used| {
            let new = kept;
            kept += u32::from(is_used);
            new
        })
        .collect();
    for vertex in faces.iter_mut().flatten() {
        *vertex = new_from_old[*vertex as usize];
    }
    let mut used = is_used.iter();
    places.retain(|_| used.next().copied().unwrap_or(false));
    let mut used = is_used.iter();
    edges.retain(|_| used.next().copied().unwrap_or(false));
}

// Edges between a point inside and one outside, each once, and where the surface crosses them.

/// The edges of a tetrahedron by corners.
const EDGES: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];

/// Crossing edges, and the part of each that the surface crosses.
#[derive(Debug)]
struct Crossings {
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
    fn of(labelled: &Labelled<'_>) -> Self {
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

    fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The vertex on the edge between two points; `None` where it does not cross.
    fn vertex(&self, a: u32, b: u32) -> Option<u32> {
        self.pairs.binary_search(&pair(a, b)).ok().and_then(|at| u32::try_from(at).ok())
    }

    /// The middle of each edge's part that crosses.
    fn middles(&self, labelled: &Labelled<'_>) -> Vec<Vec3> {
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
    fn halve(&mut self, inside: &[bool]) {
        self.halvings += 1;
        self.parts.par_iter_mut().zip(inside).for_each(|(part, &inside)| {
            *part = *part << 1 | u32::from(inside);
        });
    }

    /// The points inside and outside of each edge.
    fn into_edges(self, labelled: &Labelled<'_>) -> Vec<[u32; 2]> {
        self.pairs.into_par_iter().map(|pair| oriented(pair, labelled)).collect()
    }
}

/// The points inside and outside of a pair.
fn oriented(pair: u64, labelled: &Labelled<'_>) -> [u32; 2] {
    let [lower, higher] = ends(pair);
    if labelled.inside[lower as usize] { [lower, higher] } else { [higher, lower] }
}

/// Lengths of edges, world units.
fn lengths(points: &[Vec3], edges: &[[u32; 2]]) -> Vec<f64> {
    let of = |&[a, b]: &[u32; 2]| length(sub(points[a as usize], points[b as usize]));
    edges.par_iter().map(of).collect()
}

/// The longest edge that an open surface keeps by default.
fn longest_kept(lengths: &[f64]) -> f64 {
    let mut sorted = lengths.to_vec();
    let middle = sorted.len() / 2;
    let (_, median, _) = sorted.select_nth_unstable_by(middle, f64::total_cmp);
    LongEdges::MEDIANS * *median
}

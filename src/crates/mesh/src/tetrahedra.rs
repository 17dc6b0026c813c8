//! Surface between the inside and the outside of a scene, cut from tetrahedra over labelled points.
//!
//! Marching tetrahedra (Doi and Koide, 1991): each tetrahedron with corners on both sides holds faces, whose corners
//! lie on the edges that cross the surface, found by bisection with the labels of places between. The surface is
//! closed and manifold if the hull is outside, which [`Pivots`] ensure.

use rayon::prelude::*;

use crate::delaunay::insertion::OPPOSITE;
use crate::edges::edge_key;
use crate::mesh::{Mesh, Vec3, drop_unused, keep_rows, normals_of};
use crate::narrow::to_f32s;
use crate::place::{Bounds, add, length, scale, sub};

/// Largest number of bisections: a position on an edge is a number of 32 bits.
const MAX_BISECTIONS: u32 = 31;

/// A surface with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Cut {
    /// The surface; vertices in the order of their edges' lower, then higher points.
    pub mesh: Mesh,
    /// Points inside and outside at the ends of each vertex's edge.
    pub edge_from_vertex: Vec<[u32; 2]>,
    /// Faces that were dropped because of long edges.
    pub dropped_faces: usize,
}

/// Cuts the surface; `is_inside` labels a batch of places, once per bisection.
///
/// # Errors
/// Fails if labels are missing, nothing crosses, nothing is left, or `is_inside` fails.
pub fn cut<E: From<CutError>>(
    labelled: &Labelled<'_>,
    cutting: &Cutting,
    mut is_inside: impl FnMut(&[Vec3]) -> Result<Vec<bool>, E>,
) -> Result<Cut, E> {
    check(labelled)?;
    let mut crossings = Crossings::of(labelled);
    if crossings.keys.is_empty() {
        let inside = labelled.inside.iter().filter(|&&inside| inside).count();
        return Err(CutError::OneSide { inside, points: labelled.points.len() }.into());
    }
    for _ in 0..cutting.bisections.min(MAX_BISECTIONS) {
        let middles = crossings.middles(labelled);
        let labels = is_inside(&middles)?;
        if labels.len() != middles.len() {
            return Err(CutError::Labels { labels: labels.len(), points: middles.len() }.into());
        }
        crossings.halve(&labels);
    }
    let vertices = crossings.middles(labelled).into_par_iter().map(to_f32s).collect();
    let of = |corners: &[u32; 4]| faces_in(*corners, labelled.inside, &crossings);
    let faces = labelled.tetrahedra.par_iter().flat_map_iter(of).collect();
    let mut mesh = Mesh { vertices, faces, ..Mesh::default() };
    let keys = crossings.keys.into_par_iter();
    let mut edge_from_vertex: Vec<[u32; 2]> = keys.map(|key| oriented(key, labelled)).collect();
    let all = mesh.faces.len();
    if let LongEdges::Drop(longest) = cutting.long_edges {
        let length = |edge: &[u32; 2]| {
            let [a, b] = edge.map(|point| labelled.points[point as usize]);
            length(sub(a, b))
        };
        let lengths: Vec<f64> = edge_from_vertex.par_iter().map(length).collect();
        let longest = longest.unwrap_or_else(|| {
            let (mut sorted, middle) = (lengths.clone(), lengths.len() / 2);
            LongEdges::MEDIANS * *sorted.select_nth_unstable_by(middle, f64::total_cmp).1
        });
        mesh.faces.retain(|face| !face.iter().any(|&vertex| lengths[vertex as usize] > longest));
        if mesh.faces.is_empty() {
            return Err(CutError::NothingLeft { faces: all, longest }.into());
        }
        keep_rows(&mut edge_from_vertex, &drop_unused(&mut mesh));
    }
    let dropped_faces = all - mesh.faces.len();
    Ok(Cut { mesh, edge_from_vertex, dropped_faces })
}

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum CutError {
    #[error("{labels} labels for {points} points: give one for each")]
    Labels { labels: usize, points: usize },
    #[error("tetrahedron {tetrahedron} names point {corner} of {points}: triangulate these points")]
    Corner { tetrahedron: usize, corner: u32, points: usize },
    #[error(
        "no surface: {inside} of {points} points are inside, and no edge leads outside; see \
         whether the views see the scene"
    )]
    OneSide { inside: usize, points: usize },
    #[error("nothing is left of {faces} faces: the longest edge of {longest} is too short")]
    NothingLeft { faces: usize, longest: f64 },
}

/// Labelled points and the tetrahedra over them.
#[derive(Clone, Copy, Debug)]
pub struct Labelled<'a> {
    /// Places, world units.
    pub points: &'a [Vec3],
    /// Corners [a, b, c, d] with (b - a) x (c - a) · (d - a) > 0, each face in at most two.
    pub tetrahedra: &'a [[u32; 4]],
    /// True if each point is inside.
    pub inside: &'a [bool],
}

/// Fails unless there is a label per point and a point per corner.
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

/// Options of [`cut`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cutting {
    /// Halvings of each crossing edge, at most 31.
    pub bisections: u32,
    /// Treatment of faces on long edges.
    pub long_edges: LongEdges,
}

impl Default for Cutting {
    fn default() -> Self {
        Self { bisections: 8, long_edges: LongEdges::Keep }
    }
}

/// Treatment of faces whose corners lie on long edges, which span unseen space.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LongEdges {
    /// Keeps the faces: the surface is closed.
    #[default]
    Keep,
    /// Drops the faces if an edge is longer than this, world units; by default [`LongEdges::MEDIANS`] medians of the
    /// crossing edges.
    Drop(Option<f64>),
}

impl LongEdges {
    /// Longest edge that holds a face of an open surface, in medians.
    pub const MEDIANS: f64 = 20.0;
}

/// Returns the faces in a tetrahedron, their normals outwards: none, one, or two that share a diagonal.
fn faces_in(
    corners: [u32; 4],
    inside: &[bool],
    crossings: &Crossings,
) -> impl Iterator<Item = [u32; 3]> + use<> {
    let is_inside = corners.map(|corner| inside[corner as usize]);
    // Every edge that is used crosses, so a vertex is on it.
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

/// Returns the corners with the two that are inside first, in an order of the same sign.
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

/// Returns the triangles of a quadrangle on both sides of its lowest corner's diagonal.
fn halves(quad: [u32; 4]) -> [Option<[u32; 3]>; 2] {
    let first = (0..4).min_by_key(|&at| quad[at]).unwrap_or(0);
    let corner = |at: usize| quad[(first + at) & 3];
    [Some([corner(0), corner(1), corner(2)]), Some([corner(0), corner(2), corner(3)])]
}

const EDGES: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];

/// Edges between a point inside and one outside, each once, and the part of each that the surface crosses.
#[derive(Debug)]
struct Crossings {
    /// Keys of the edges, ascending.
    keys: Vec<u64>,
    /// Number of parts of the edge between the inside point and the part that crosses.
    parts: Vec<u32>,
    /// Number of halvings: each edge has 2^halvings parts.
    halvings: u32,
}

impl Crossings {
    fn of(labelled: &Labelled<'_>) -> Self {
        let crossing = |corners: &[u32; 4]| {
            let corners = *corners;
            let inside = |corner: u32| labelled.inside[corner as usize];
            EDGES.into_iter().filter_map(move |[a, b]| {
                let (a, b) = (corners[a], corners[b]);
                (inside(a) != inside(b)).then(|| edge_key(a, b))
            })
        };
        let mut keys: Vec<u64> = labelled.tetrahedra.par_iter().flat_map_iter(crossing).collect();
        keys.par_sort_unstable();
        keys.dedup();
        keys.shrink_to_fit();
        Self { parts: vec![0; keys.len()], keys, halvings: 0 }
    }

    /// Returns the vertex on the edge between two points; none if the edge does not cross.
    fn vertex(&self, a: u32, b: u32) -> Option<u32> {
        self.keys.binary_search(&edge_key(a, b)).ok().and_then(|at| u32::try_from(at).ok())
    }

    /// Returns the middle of each edge's part that crosses.
    fn middles(&self, labelled: &Labelled<'_>) -> Vec<Vec3> {
        let place = |point: u32| labelled.points[point as usize];
        let part = 0.5_f64.powi(self.halvings.cast_signed());
        let middle = |(&key, &before): (&u64, &u32)| {
            let [inside, outside] = oriented(key, labelled).map(place);
            let share = (f64::from(before) + 0.5) * part;
            // From the nearer end, so that a middle never rounds to the far one.
            if share < 0.5 {
                add(inside, scale(sub(outside, inside), share))
            } else {
                add(outside, scale(sub(inside, outside), 1.0 - share))
            }
        };
        self.keys.par_iter().zip(&self.parts).map(middle).collect()
    }

    /// Halves each part by the label of its middle.
    fn halve(&mut self, inside: &[bool]) {
        self.halvings += 1;
        self.parts.par_iter_mut().zip(inside).for_each(|(part, &inside)| {
            *part = *part << 1 | u32::from(inside);
        });
    }
}

/// Returns the points inside and outside of an edge.
fn oriented(key: u64, labelled: &Labelled<'_>) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
    let [lower, higher] = [(key >> 32) as u32, key as u32];
    if labelled.inside[lower as usize] { [lower, higher] } else { [higher, lower] }
}

/// Distance between a Gaussian and its pivots along its normal, in standard deviations.
const REACH: f64 = 3.0;

/// Size of the box around all pivots, over that of the pivots.
const ENCLOSURE: f64 = 3.0;

/// Sides of a Gaussian's mean with further pivots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PivotSides {
    /// The outer side, for a learned normal.
    Outer,
    /// Both sides, for a normal of unknown sign.
    Both,
}

/// Pivots of Gaussians, and a box around them: tetrahedra over these hold a surface between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pivots {
    /// Places, world units; the last [`Pivots::CORNERS`] are the corners of the box.
    pub points: Vec<Vec3>,
}

impl Pivots {
    /// Corners of the box, which lie outside by definition.
    pub const CORNERS: usize = 8;

    /// Takes pivots of flat Gaussians: each mean, and three standard deviations from it along its normal; then the
    /// corners of a box three times as large as all of them, so that the hull is outside. `gaussians` are means
    /// (world), unit normals and standard deviations along these (world units). Skips pivots that are not finite.
    pub fn of(gaussians: impl IntoIterator<Item = (Vec3, Vec3, f64)>, sides: PivotSides) -> Self {
        let pivots = |(mean, normal, deviation): (Vec3, Vec3, f64)| {
            let step = scale(normal, REACH * deviation);
            let inner = (sides == PivotSides::Both).then(|| add(mean, scale(step, -1.0)));
            [Some(mean), Some(add(mean, step)), inner].into_iter().flatten()
        };
        let is_finite = |point: &Vec3| point.iter().all(|x| x.is_finite());
        let mut points: Vec<Vec3> =
            gaussians.into_iter().flat_map(pivots).filter(is_finite).collect();
        points.extend(corners(&points));
        Self { points }
    }

    /// Appends the labels of the corners, outside, to those of the other pivots.
    pub fn labels(&self, mut inside: Vec<bool>) -> Vec<bool> {
        inside.truncate(self.points.len().saturating_sub(Self::CORNERS));
        inside.resize(self.points.len(), false);
        inside
    }

    /// Returns the points without the corners of the box.
    pub fn inner(&self) -> &[Vec3] {
        &self.points[..self.points.len().saturating_sub(Self::CORNERS)]
    }
}

/// Returns the corners of the box around all points, of unit size if they have no extent.
fn corners(points: &[Vec3]) -> [Vec3; Pivots::CORNERS] {
    let bounds = Bounds::of(points.iter().copied());
    let side = bounds.longest_side();
    let corner = |corner: usize| {
        std::array::from_fn(|axis| {
            let centre =
                if points.is_empty() { 0.0 } else { (bounds.low[axis] + bounds.high[axis]) / 2.0 };
            let half = ENCLOSURE / 2.0 * if side > 0.0 { side } else { 1.0 };
            if corner >> axis & 1 == 0 { centre - half } else { centre + half }
        })
    };
    std::array::from_fn(corner)
}

const LEVEL: f64 = 0.5;

/// Options of [`polish`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polish {
    /// Most steps of a vertex.
    pub steps: u32,
    /// Largest distance of a resting vertex's vacancy from 1/2.
    pub tolerance: f64,
    /// Step for a vacancy that is 1 off, in mean lengths of the edges at the vertex.
    pub rate: f64,
}

impl Default for Polish {
    fn default() -> Self {
        Self { steps: 10, tolerance: 0.1, rate: 0.5 }
    }
}

/// Moves vertices along their normals to where `vacancy` is 1/2, and returns the number of vertices that have not
/// reached it.
///
/// x += r (1/2 - v(x)) l N: v rises from 0 inside to 1 outside, N is the normal, and l the mean length of the edges at
/// the vertex, which makes the step the same share of the mesh at any scale ("Gaussian wrapping", primal adaptive
/// meshing). No vertex moves farther than l in all. `vacancy` computes a batch of places, once per step; where it is
/// NaN, a vertex rests.
///
/// # Errors
/// Fails if `vacancy` fails, or misses a place.
pub fn polish<E: From<CutError>>(
    mesh: &mut Mesh,
    polish: &Polish,
    mut vacancy: impl FnMut(&[Vec3]) -> Result<Vec<f64>, E>,
) -> Result<usize, E> {
    let start: Vec<Vec3> = mesh.vertices.par_iter().map(|v| v.map(f64::from)).collect();
    let mut places = start.clone();
    let reach = mean_edges(&mesh.faces, &start);
    // A vertex without a face has no normal.
    let mut moving: Vec<usize> = (0..start.len()).filter(|&at| reach[at].is_finite()).collect();
    for _ in 0..polish.steps {
        if moving.is_empty() {
            break;
        }
        let requested: Vec<Vec3> = moving.iter().map(|&at| places[at]).collect();
        let vacancies = vacancy(&requested)?;
        if vacancies.len() != requested.len() {
            return Err(
                CutError::Labels { labels: vacancies.len(), points: requested.len() }.into()
            );
        }
        let normals = normals_of(&mesh.faces, places.len(), |vertex| places[vertex as usize]);
        let mut still = Vec::with_capacity(moving.len());
        for (&at, &v) in moving.iter().zip(&vacancies) {
            let off = LEVEL - v;
            // Also where it is NaN.
            if off.abs() < polish.tolerance || off.is_nan() {
                continue;
            }
            let step = scale(normals[at], polish.rate * off * reach[at]);
            places[at] = within(start[at], add(places[at], step), reach[at]);
            still.push(at);
        }
        moving = still;
    }
    mesh.vertices = places.into_par_iter().map(to_f32s).collect();
    Ok(moving.len())
}

/// Moves a place to within a distance of another.
fn within(centre: Vec3, place: Vec3, distance: f64) -> Vec3 {
    let offset = sub(place, centre);
    let far = length(offset);
    if far > distance { add(centre, scale(offset, distance / far)) } else { place }
}

/// Returns the mean length of the edges of the faces at each vertex; NaN without a face.
fn mean_edges(faces: &[[u32; 3]], places: &[Vec3]) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); places.len()];
    for face in faces {
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let edge = [face[a] as usize, face[b] as usize];
            let length = length(sub(places[edge[0]], places[edge[1]]));
            for vertex in edge {
                let (sum, count) = sums[vertex];
                sums[vertex] = (sum + length, count + 1.0);
            }
        }
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use proptest::prelude::*;

    use super::*;
    use crate::delaunay::{Want, delaunay};
    use crate::known_meshes::{TORUS, TORUS_VOLUME, on_torus, torus_distance, volume};
    use crate::place::{centroid, corners, doubled_area};
    use crate::random::RandomSequence;
    use crate::report::MeshReport;
    use crate::search::BoxTree;

    /// Returns flat Gaussians on the torus, off it by up to half of their thickness.
    fn torus_gaussians(count: usize) -> Vec<(Vec3, Vec3, f64)> {
        let mut noise = RandomSequence::of_seed(5);
        let gaussian = |_| {
            let [place, normal] = on_torus(noise.uniform() * TAU, noise.uniform() * TAU);
            (add(place, scale(normal, 0.01 * (noise.uniform() - 0.5))), normal, 0.01)
        };
        (0..count).map(gaussian).collect()
    }

    fn cut_torus(sides: PivotSides, cutting: &Cutting) -> Cut {
        let pivots = Pivots::of(torus_gaussians(8_000), sides);
        let found = delaunay(&pivots.points, Want::Tetrahedra).unwrap();
        let label = |places: &[Vec3]| {
            Ok::<_, CutError>(places.iter().map(|&place| torus_distance(place) < 0.0).collect())
        };
        let inside = pivots.labels(label(pivots.inner()).unwrap());
        let labelled =
            Labelled { points: &pivots.points, tetrahedra: &found.tetrahedra, inside: &inside };
        cut(&labelled, cutting, label).unwrap()
    }

    /// Checks that each directed edge exists once, with one opposite, and that each vertex has one fan of faces.
    fn assert_closed_manifold(mesh: &Mesh) {
        let report = MeshReport::of(mesh).unwrap();
        assert!(report.watertight && report.nonmanifold_vertices == 0, "{report}");
    }

    #[test]
    fn torus_gaussians_give_a_closed_outward_torus() {
        for sides in [PivotSides::Outer, PivotSides::Both] {
            let found = cut_torus(sides, &Cutting::default());
            let mesh = &found.mesh;
            assert_closed_manifold(mesh);
            // Euler: 0 for one torus; E = 3/2 F.
            assert_eq!(2 * mesh.vertices.len(), mesh.faces.len());
            // Outward; chords of 8,000 points lie within .3 % of the size of the arc.
            let volume = volume(mesh);
            assert!((volume / TORUS_VOLUME - 1.0).abs() < 0.02, "{volume} against {TORUS_VOLUME}");
            assert_eq!(found.dropped_faces, 0);
        }
    }

    #[test]
    fn the_chamfer_distance_of_a_torus_is_below_a_tenth_of_a_percent() {
        let mesh = cut_torus(PivotSides::Outer, &Cutting::default()).mesh;
        let side = 2.0 * (TORUS[0] + TORUS[1]);
        let (mut area, mut off) = (0.0, 0.0);
        for &face in &mesh.faces {
            let corners = corners(&mesh, face);
            let twice_area = length(doubled_area(corners));
            let distance = torus_distance(centroid(corners)).abs();
            (area, off) = (area + twice_area, off + twice_area * distance);
        }
        let mut noise = RandomSequence::of_seed(9);
        let (tree, samples) = (BoxTree::new(&mesh).unwrap(), 40);
        let missing: f64 = (0..samples)
            .map(|_| on_torus(noise.uniform() * TAU, noise.uniform() * TAU)[0])
            .map(|place| tree.nearest(place, f64::INFINITY).unwrap().distance)
            .sum();
        let chamfer = (off / area + missing / f64::from(samples)) / 2.0;
        assert!(chamfer < 0.001 * side, "{chamfer} of {side}");
    }

    #[test]
    fn bisection_finds_the_surface_on_every_edge() {
        let found = cut_torus(PivotSides::Outer, &Cutting { bisections: 16, ..Cutting::default() });
        for vertex in &found.mesh.vertices {
            // Edges are at most 6 long: 6 / 2^17, and the rounding to f32.
            assert!(torus_distance(vertex.map(f64::from)).abs() < 5e-5);
        }
    }

    #[test]
    fn faces_on_long_edges_are_dropped_from_an_open_surface() {
        let closed = cut_torus(PivotSides::Outer, &Cutting::default());
        let long_edges = LongEdges::Drop(Some(0.1));
        let open = cut_torus(PivotSides::Outer, &Cutting { long_edges, ..Cutting::default() });
        assert!(open.dropped_faces > 0);
        assert_eq!(open.mesh.faces.len() + open.dropped_faces, closed.mesh.faces.len());
        assert_eq!(open.mesh.vertices.len(), open.edge_from_vertex.len());
        assert_eq!(MeshReport::of(&open.mesh).unwrap().unused_vertices, 0);
        for vertex in &open.mesh.vertices {
            // The rest lies on the torus as before: 0.1 / 2^9.
            assert!(torus_distance(vertex.map(f64::from)).abs() < 2e-4);
        }
    }

    #[test]
    fn polishing_moves_vertices_onto_the_level() {
        let mut mesh =
            cut_torus(PivotSides::Outer, &Cutting { bisections: 2, ..Cutting::default() }).mesh;
        let off = |mesh: &Mesh| {
            let distances = mesh.vertices.iter().map(|v| torus_distance(v.map(f64::from)).abs());
            distances.sum::<f64>() / mesh.vertices.len() as f64
        };
        let before = off(&mesh);
        let vacancy = |places: &[Vec3]| {
            let of = |&place: &Vec3| (0.5 + 50.0 * torus_distance(place)).clamp(0.0, 1.0);
            Ok::<_, CutError>(places.iter().map(of).collect())
        };
        let options = Polish { tolerance: 0.02, ..Polish::default() };
        let far = polish(&mut mesh, &options, vacancy).unwrap();
        let after = off(&mesh);
        // A vertex rests within .02 / 50 = .0004; a few are on slivers, whose normals lead astray.
        assert!(after < 0.0004 && after < 0.5 * before, "{after} after {before}");
        assert!(far < mesh.vertices.len() / 30, "{far} of {}", mesh.vertices.len());
    }

    #[test]
    fn points_all_on_one_side_have_no_surface() {
        let points = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let cut_with = |inside: &[bool], tetrahedra: &[[u32; 4]]| {
            let labelled = Labelled { points: &points, tetrahedra, inside };
            cut(&labelled, &Cutting::default(), |places: &[Vec3]| -> Result<_, CutError> {
                Ok(vec![true; places.len() - 1])
            })
            .unwrap_err()
        };
        let one = [[0, 1, 2, 3]];
        assert_eq!(cut_with(&[true; 4], &one), CutError::OneSide { inside: 4, points: 4 });
        assert_eq!(cut_with(&[true; 3], &one), CutError::Labels { labels: 3, points: 4 });
        assert_eq!(
            cut_with(&[true; 4], &[[0, 1, 2, 9]]),
            CutError::Corner { tetrahedron: 0, corner: 9, points: 4 }
        );
        let mixed = [true, false, false, false];
        assert_eq!(cut_with(&mixed, &one), CutError::Labels { labels: 2, points: 3 });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn any_labels_give_a_closed_outward_manifold(
            cells in prop::collection::vec([0..5_i32, 0..5, 0..5], 5..80),
            seed in any::<u64>(),
        ) {
            let gaussians = cells.iter().map(|cell| (cell.map(f64::from), [0.6, 0.0, 0.8], 0.1));
            let pivots = Pivots::of(gaussians, PivotSides::Outer);
            let found = delaunay(&pivots.points, Want::Tetrahedra).unwrap();
            let mut noise = RandomSequence::of_seed(seed);
            let mut inside = pivots.labels(pivots.inner().iter().map(|_| noise.uniform() < 0.5).collect());
            for &[duplicate, first] in &found.duplicates {
                inside[duplicate as usize] = inside[first as usize];
            }
            let any_inside = inside.iter().any(|&inside| inside);
            let labelled =
                Labelled { points: &pivots.points, tetrahedra: &found.tetrahedra, inside: &inside };
            let result = cut(&labelled, &Cutting::default(), |places: &[Vec3]| -> Result<_, CutError> {
                Ok(places.iter().map(|_| noise.uniform() < 0.5).collect())
            });
            match result {
                Ok(found) => {
                    assert_closed_manifold(&found.mesh);
                    prop_assert!(volume(&found.mesh) > 0.0);
                }
                Err(error) => prop_assert!(!any_inside, "{error}"),
            }
        }
    }
}

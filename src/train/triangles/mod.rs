//! Mesh operations of triangle training on plain arrays (MeshSplatting, Held et al. 2025): initial triangles, splits,
//! prunes and the connection of the mesh. Devices do the rest.

pub mod schedule;

use std::cmp::Ordering;
use std::f64::consts::TAU;

use rayon::prelude::*;
use splat_mesh::delaunay::{DelaunayError, Want, delaunay};
use splat_mesh::restricted::{Restricted, RestrictedError, restricted};

use crate::backend::FaceStatistics;
use crate::config::OptimizeOptions;
use crate::dataset::PointCloud;
use crate::math::Real;
use crate::math::linalg::{cross, rotation, sub};
use crate::math::morton::Cube;
use crate::math::random::{RandomStream, RandomUse};
use crate::model::{Gaussians, TriangleMesh, from_points};

// Initial triangles: one per point, without shared vertices.

/// Number of vertices per initial triangle.
pub const SOUP_VERTICES: usize = 3;

/// Distance of a corner from the point, relative to the scale of a Gaussian at the point (Held et al. 2025).
const CORNER_DISTANCE: f64 = 2.23;

/// Creates an equilateral triangle at each point, randomly rotated, in the point's colour. Neighbouring points become
/// neighbours in memory.
pub fn soup(
    points: &PointCloud,
    options: &OptimizeOptions,
    cube: &Cube,
    seed: u64,
) -> TriangleMesh {
    let points = sorted_along_curve(points, cube);
    let ellipsoids = from_points(&points, options, seed);
    let stream = RandomStream::new(seed, 0, RandomUse::Orient);
    let count = points.positions.len();
    let mut vertices = Gaussians::zeros(options.sh_degree, 3 * count);
    let thrice = |values: &[f32], width: usize| -> Vec<f32> {
        values.chunks_exact(width).flat_map(|row| row.repeat(3)).collect()
    };
    vertices.opacity_logits = thrice(&ellipsoids.opacity_logits, 1);
    vertices.sh_dc = thrice(&ellipsoids.sh_dc, 3);
    vertices.quats = [1.0, 0.0, 0.0, 0.0].repeat(3 * count);
    for (at, place) in points.positions.iter().enumerate() {
        let scale = f64::from(ellipsoids.log_scales[3 * at]).exp();
        // Normally distributed numbers would make a uniform rotation. Uniform numbers are close enough.
        let turn = [0, 1, 2, 3].map(|k| 2.0 * stream.uniform(at as u64 * 4 + k) - 1.0);
        let turn = rotation(turn);
        for corner in 0..SOUP_VERTICES {
            let angle = corner as f64 * TAU / SOUP_VERTICES as f64;
            let (sin, cos) = angle.sin_cos();
            let row = 3 * (3 * at + corner);
            for axis in 0..3 {
                let offset = turn[axis][0] * cos + turn[axis][1] * sin;
                let moved = f64::from(place[axis]) + CORNER_DISTANCE * scale * offset;
                vertices.means[row + axis] = moved.to_f32();
            }
        }
    }
    let faces = (0..count)
        .map(|at| [0, 1, 2].map(|corner| u32::try_from(3 * at + corner).unwrap_or(u32::MAX)));
    let mut mesh = TriangleMesh { vertices, faces: faces.collect() };
    mesh.size_vertices();
    mesh
}

/// Sorts the points along the Z-curve of a cube.
fn sorted_along_curve(points: &PointCloud, cube: &Cube) -> PointCloud {
    let mut order: Vec<usize> = (0..points.positions.len()).collect();
    order.sort_by_cached_key(|&at| cube.key(points.positions[at]));
    PointCloud {
        positions: order.iter().map(|&at| points.positions[at]).collect(),
        colors: order.iter().map(|&at| points.colors[at]).collect(),
    }
}

// Choice of triangles to split: the largest, and others at random in proportion to their scores.

/// Returns the areas of triangles.
pub fn areas(faces: &[[u32; 3]], places: &[[f32; 3]]) -> Vec<f32> {
    let area = |&[a, b, c]: &[u32; 3]| {
        let [a, b, c] = [a, b, c].map(|corner| places[corner as usize]);
        let doubled = cross(sub(b, a), sub(c, a));
        doubled.iter().map(|x| x * x).sum::<f32>().sqrt() * 0.5
    };
    faces.par_iter().map(area).collect()
}

/// Rule that draws triangles to split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaceDraw {
    /// Number of drawn triangles. Only triangles with a score above 0 are drawn.
    pub drawn: usize,
    /// Smallest area of a drawn triangle.
    pub area_min: f32,
    /// Number of the largest triangles that are split in addition.
    pub largest: usize,
}

/// Returns the triangles to split, each once: first the largest, then others drawn without replacement in proportion
/// to their scores.
///
/// Each triangle gets the key ln(u) / score with a random u, and the largest keys are drawn (Efraimidis and Spirakis,
/// "Weighted random sampling with a reservoir", 2006).
pub fn draw(scores: &[f32], areas: &[f32], rule: &FaceDraw, stream: RandomStream) -> Vec<u32> {
    let largest =
        top_keys(ranked(areas, |_, area| (area > 0.0).then_some(f64::from(area))), rule.largest);
    let keys = ranked(scores, |face, score| {
        let may_be = score > 0.0 && areas[face] >= rule.area_min;
        may_be.then(|| (1.0 - stream.uniform(face as u64)).ln() / f64::from(score))
    });
    let mut order: Vec<u32> = largest.into_iter().map(|(_, face)| face).collect();
    let mut is_there = vec![false; scores.len()];
    order.iter().for_each(|&face| is_there[face as usize] = true);
    let drawn = top_keys(keys, rule.drawn).into_iter().map(|(_, face)| face);
    order.extend(drawn.filter(|&face| !is_there[face as usize]));
    order
}

/// Returns the keys of the triangles that have one, each with its triangle.
fn ranked(values: &[f32], key: impl Fn(usize, f32) -> Option<f64> + Sync) -> Vec<(f64, u32)> {
    let numbered = (0_u32..).zip(values).collect::<Vec<_>>();
    numbered
        .into_par_iter()
        .filter_map(|(face, &value)| Some((key(face as usize, value)?, face)))
        .collect()
}

/// Returns the `count` largest keys in descending order. Equal keys are ordered by triangle.
fn top_keys(mut ranked: Vec<(f64, u32)>, count: usize) -> Vec<(f64, u32)> {
    let order = |(one, first): &(f64, u32), (other, second): &(f64, u32)| -> Ordering {
        other.total_cmp(one).then(first.cmp(second))
    };
    if count == 0 {
        return Vec::new();
    }
    if count < ranked.len() {
        ranked.select_nth_unstable_by(count, order);
        ranked.truncate(count);
    }
    ranked.par_sort_unstable_by(order);
    ranked
}

// Splits of triangles into four at the midpoints of their edges, which neighbours share.

/// Result of splitting triangles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitFaces {
    /// End vertices of the edges that get a new vertex at their midpoint.
    pub midpoints: Vec<[u32; 2]>,
    /// All triangles. A split triangle is replaced by four. New vertices are numbered after the old ones.
    pub faces: Vec<[u32; 3]>,
    /// Number of split triangles.
    pub count: usize,
}

/// Rank of triangles that are not split.
const UNSPLIT: u32 = u32::MAX;

/// Edge of a triangle to split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WantedEdge {
    /// End vertices in ascending order.
    ends: [u32; 2],
    /// Position of the triangle in the order of splits.
    rank: u32,
    /// Edge of the triangle, from this corner to the next.
    slot: u8,
}

/// Splits the triangles of `order`, which are distinct, until `most` new vertices are used up. An unsplit neighbour
/// keeps the whole edge, and the new vertex lies on it.
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

/// Returns the edges of the triangles to split, sorted by ends and rank.
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

/// Returns how many leading triangles can be split with at most `most` new vertices.
fn affordable(edges: &[WantedEdge], triangles: usize, most: usize) -> usize {
    let mut made_by_rank = vec![0_u8; triangles];
    let mut before = None;
    for edge in edges {
        // The first triangle that splits an edge pays for its vertex.
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

/// Returns the four parts of a triangle with these edge midpoints, in the same orientation.
fn quarters([a, b, c]: [u32; 3], [ab, bc, ca]: [u32; 3]) -> [[u32; 3]; 4] {
    [[a, ab, ca], [ab, b, bc], [ca, bc, c], [ab, bc, ca]]
}

// Prune of triangles and of unused vertices.

/// Limits beyond which a triangle is pruned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PruneRule {
    /// Largest opacity of pruned triangles.
    pub opacity_max: f32,
    /// Largest weight of pruned triangles, if weights count.
    pub weight_max: Option<f32>,
    /// Largest reach of kept triangles, px.
    pub reach_max_px: f32,
}

/// Returns true for each triangle that stays. `opacities` belong to the vertices.
pub fn stays(
    faces: &[[u32; 3]],
    opacities: &[f32],
    statistics: &FaceStatistics,
    rule: &PruneRule,
) -> Vec<bool> {
    let FaceStatistics { weights, reaches_px, .. } = statistics;
    faces
        .par_iter()
        .zip(weights)
        .zip(reaches_px)
        .map(|((face, &weight), &reach_px)| {
            let least = face.iter().map(|&v| opacities[v as usize]).fold(f32::INFINITY, f32::min);
            let is_seen = rule.weight_max.is_none_or(|most| weight > most);
            least > rule.opacity_max && is_seen && reach_px <= rule.reach_max_px
        })
        .collect()
}

/// Returns the values whose flag is set.
pub fn kept<T: Copy>(all: &[T], stays: &[bool]) -> Vec<T> {
    all.iter().zip(stays).filter(|&(_, &stays)| stays).map(|(&value, _)| value).collect()
}

/// Vertices that triangles use, and their new numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedVertices {
    /// Old number of each used vertex, ascending.
    pub kept: Vec<u32>,
    /// New number of each old vertex. Meaningless for unused vertices.
    new_from_old: Vec<u32>,
}

impl UsedVertices {
    /// Finds the vertices that these triangles use.
    pub fn of(faces: &[[u32; 3]], vertices: usize) -> Self {
        let mut is_used = vec![false; vertices];
        for &corner in faces.as_flattened() {
            is_used[corner as usize] = true;
        }
        let mut kept = Vec::new();
        let mut new_from_old = vec![0; vertices];
        for ((old, new), _) in (0..).zip(&mut new_from_old).zip(is_used).filter(|&(_, used)| used) {
            *new = u32::try_from(kept.len()).unwrap_or(u32::MAX);
            kept.push(old);
        }
        Self { kept, new_from_old }
    }

    /// Renumbers the corners of triangles. Vertices that were added behind the old ones follow the used ones.
    pub fn renumber(&self, faces: &mut [[u32; 3]]) {
        let before = self.new_from_old.len();
        faces.as_flattened_mut().par_iter_mut().for_each(|corner| {
            let old = *corner as usize;
            *corner = match self.new_from_old.get(old) {
                Some(&new) => new,
                None => u32::try_from(old - before + self.kept.len()).unwrap_or(u32::MAX),
            };
        });
    }
}

// Connection of the triangles: the restricted Delaunay triangulation of the vertices, which covers what the earlier
// triangles covered.

/// Error of connecting a mesh.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The vertices have no tetrahedralisation.
    #[error(transparent)]
    Tetrahedra(#[from] DelaunayError),
    /// No surface follows the triangles.
    #[error(transparent)]
    Surface(#[from] RestrictedError),
}

/// Mesh of some of the vertices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connected {
    /// Used vertices, ascending.
    pub kept: Vec<u32>,
    /// Triangles, as positions in `kept`.
    pub faces: Vec<[u32; 3]>,
}

/// Connects vertices to a mesh that follows these triangles. `places`: positions, world units.
pub fn connect(places: &[[f32; 3]], faces: &[[u32; 3]]) -> Result<Connected, ConnectError> {
    let points: Vec<[f64; 3]> = places.par_iter().map(|place| place.map(f64::from)).collect();
    let tetrahedra = delaunay(&points, Want::Neighbours)?;
    let corners = |face: &[u32; 3]| face.map(|corner| points[corner as usize]);
    let triangles: Vec<[[f64; 3]; 3]> = faces.par_iter().map(corners).collect();
    let Restricted { mesh, point_from_vertex, .. } = restricted(&points, &tetrahedra, &triangles)?;
    Ok(Connected { kept: point_from_vertex, faces: mesh.faces })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::math::random::{RandomStream, RandomUse};
    use crate::math::sigmoid;

    const CUBE: Cube = Cube { centre: [0.0; 3], half_side: 4.0 };

    /// Returns points whose second comes last along the Z-curve.
    fn cloud() -> PointCloud {
        let positions = vec![[-1.0; 3], [3.0; 3], [-1.0, 1.0, -1.0]];
        PointCloud { positions, colors: vec![[255, 0, 51], [1, 2, 3], [4, 5, 6]] }
    }

    fn distance(a: [f32; 3], b: [f32; 3]) -> f32 {
        (0..3).map(|k| (a[k] - b[k]).powi(2)).sum::<f32>().sqrt()
    }

    #[test]
    fn a_point_becomes_an_equilateral_triangle_about_it() {
        let options =
            OptimizeOptions { sh_degree: 1, init_opacity: 0.28, ..OptimizeOptions::default() };
        let points = cloud();
        let TriangleMesh { vertices, faces } = soup(&points, &options, &CUBE, 5);
        assert_eq!(faces, [[0, 1, 2], [3, 4, 5], [6, 7, 8]]);
        // The squared distances of the first point to the others are 4 and 48.
        let radius = 2.23 * 26.0_f32.sqrt();
        let corners = *vertices.means.as_chunks::<3>().0.first_chunk::<3>().unwrap();
        // Rounding of single precision.
        for corner in corners {
            assert!((distance(corner, points.positions[0]) - radius).abs() < 1e-5);
        }
        for (a, b) in [(0, 1), (1, 2), (2, 0)] {
            let side = distance(corners[a], corners[b]);
            assert!((side - radius * 3.0_f32.sqrt()).abs() < 1e-5, "{side}");
        }
        let colors = vertices.sh_dc.as_chunks::<9>().0;
        assert!(colors.iter().all(|color| color[..3] == color[3..6] && color[..3] == color[6..]));
        let [.., last] = colors else { panic!("no colours") };
        let red = (last[0] - colors[1][0]) * crate::math::sh::C0.to_f32() * 255.0;
        assert!((red + 3.0).abs() < 1e-3, "the second point comes last: {red}");
        assert!(vertices.opacity_logits.iter().all(|&w| (sigmoid(w) - 0.28).abs() < 1e-6));
        assert_eq!(vertices.quats[32..], [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(vertices.sh_rest.len(), 9 * 9);
        // The area of an equilateral triangle is 3 root(3) / 4 times its squared circumradius.
        let size = (0.75 * 3.0_f32.sqrt()).sqrt() * radius;
        let sizes = &vertices.log_scales[..9];
        assert!(sizes.iter().all(|found| (found - size.ln()).abs() < 1e-5), "{sizes:?}");
    }

    #[test]
    fn triangles_are_turned_by_the_seed_and_as_large_as_the_options_say() {
        let options = OptimizeOptions::default();
        let places =
            |options: &OptimizeOptions, seed| soup(&cloud(), options, &CUBE, seed).vertices.means;
        assert_eq!(places(&options, 5), places(&options, 5));
        assert_ne!(places(&options, 5), places(&options, 6));
        let half = OptimizeOptions { init_scale: 0.5, ..options.clone() };
        let (small, large) = (places(&half, 5), places(&options, 5));
        // Direction of the first corner from its point.
        assert!((0..3).all(|k| (2.0 * (small[k] + 1.0) - (large[k] + 1.0)).abs() < 1e-5));
    }

    fn stream(step: u64) -> RandomStream {
        RandomStream::new(1, step, RandomUse::SplitTriangles)
    }

    #[test]
    fn areas_are_those_of_triangles() {
        let places = [[0.0; 3], [3.0, 0.0, 0.0], [0.0, 4.0, 0.0], [3.0, 0.0, 2.0]];
        assert_eq!(areas(&[[0, 1, 2], [0, 1, 3], [0, 1, 1]], &places), [6.0, 3.0, 0.0]);
    }

    #[test]
    fn triangles_are_drawn_once_unless_too_small_or_without_score() {
        let scores: Vec<f32> = (0..1000_u16).map(|face| f32::from(face % 5)).collect();
        let areas: Vec<f32> = (0..1000_u16).map(|face| f32::from(face % 7)).collect();
        let rule = FaceDraw { drawn: 300, area_min: 1.0, largest: 0 };
        let mut drawn = draw(&scores, &areas, &rule, stream(1));
        assert_eq!(drawn, draw(&scores, &areas, &rule, stream(1)));
        assert_ne!(drawn, draw(&scores, &areas, &rule, stream(2)));
        assert_eq!(drawn.len(), 300);
        assert!(drawn.iter().all(|face| face % 5 > 0 && face % 7 > 0));
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 300);
        let all = draw(&scores, &areas, &FaceDraw { drawn: 10_000, ..rule }, stream(1));
        assert_eq!(all.len(), (0..1000).filter(|face| face % 5 > 0 && face % 7 > 0).count());
        assert!(draw(&scores, &areas, &FaceDraw { drawn: 0, ..rule }, stream(1)).is_empty());
    }

    #[test]
    fn the_largest_come_first_and_are_not_drawn_again() {
        let scores = [1.0; 6];
        let areas = [0.1, 5.0, 0.2, 9.0, 5.0, 0.3];
        let rule = FaceDraw { drawn: 6, area_min: 0.0, largest: 3 };
        let drawn = draw(&scores, &areas, &rule, stream(1));
        assert_eq!((&drawn[..3], drawn.len()), (&[3, 1, 4][..], 6));
    }

    #[test]
    fn the_first_is_drawn_in_proportion_to_scores() {
        let (scores, areas) = ([1.0, 3.0], [1.0; 2]);
        let rule = FaceDraw { drawn: 1, area_min: 0.0, largest: 0 };
        let heavy =
            (0..4000).filter(|&step| draw(&scores, &areas, &rule, stream(step)) == [1]).count();
        // Four standard errors of 4000 draws.
        assert!(heavy.abs_diff(3000) < 110, "{heavy}");
    }

    /// Returns a square grid of `side` by `side` vertices.
    fn grid(side: u32) -> Vec<[u32; 3]> {
        let cells = (0..side - 1).flat_map(|y| (0..side - 1).map(move |x| y * side + x));
        cells.flat_map(|at| [[at, at + 1, at + side], [at + side, at + 1, at + side + 1]]).collect()
    }

    #[test]
    fn split_neighbours_share_the_middle_of_their_edge_and_an_unselected_one_stays() {
        let pair = [[0, 1, 2], [2, 1, 3]];
        let SplitFaces { midpoints, faces, count } = split(&pair, 4, &[1, 0], 99);
        assert_eq!(midpoints, [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]);
        assert_eq!(count, 2);
        let of_first = [[0, 4, 5], [4, 1, 6], [5, 6, 2], [4, 6, 5]];
        let of_second = [[2, 6, 8], [6, 1, 7], [8, 7, 3], [6, 7, 8]];
        assert_eq!(faces, [of_first, of_second].concat());
        let SplitFaces { midpoints, faces, count } = split(&pair, 4, &[1], 3);
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
            // An unsplit triangle would have needed more vertices than are left.
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
        // One vertex per edge: 20 along each axis, and 16 across.
        assert_eq!((found.midpoints.len(), found.faces.len()), (56, 4 * faces.len()));
        let lone = edges(&found.faces).into_iter().filter(|&count| count == 1).count();
        assert_eq!(lone, 32, "only the border has edges of one triangle");
    }

    const FACES: [[u32; 3]; 4] = [[0, 1, 2], [2, 1, 3], [4, 5, 6], [6, 5, 8]];

    fn statistics() -> FaceStatistics {
        FaceStatistics {
            weights: vec![0.5, 0.2, 0.9, 0.6],
            reaches_px: vec![10.0, 20.0, 30.0, 40.0],
            gradient_norms: vec![0.0; 4],
        }
    }

    #[test]
    fn transparent_unseen_and_huge_triangles_are_pruned() {
        let opacities = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.0, 0.9];
        let of = |opacity_max, weight_max, reach_max_px| {
            let rule = PruneRule { opacity_max, weight_max, reach_max_px };
            stays(&FACES, &opacities, &statistics(), &rule)
        };
        assert_eq!(of(0.6, None, 100.0), [true, false, false, false]);
        assert_eq!(of(0.0, Some(0.5), 100.0), [false, false, true, true]);
        assert_eq!(of(0.0, None, 30.0), [true, true, true, false]);
        assert_eq!(kept(&FACES, &[false, true, false, true]), [FACES[1], FACES[3]]);
    }

    #[test]
    fn unused_vertices_are_removed_and_the_rest_keep_their_order() {
        let mut faces = [FACES[1], [3, 8, 9], [9, 10, 2]];
        let used = UsedVertices::of(&faces[..1], 9);
        assert_eq!(used.kept, [1, 2, 3]);
        let used = UsedVertices::of(&[FACES[1], FACES[3]], 9);
        assert_eq!(used.kept, [1, 2, 3, 5, 6, 8]);
        // Vertices 9 and 10 are new, after 9 old ones.
        used.renumber(&mut faces);
        assert_eq!(faces, [[1, 0, 2], [2, 5, 6], [6, 7, 1]]);
        assert_eq!(UsedVertices::of(&[], 3).kept, [0; 0]);
    }

    const OCTAHEDRON: [[f32; 3]; 6] = [
        [1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0],
        [-1.0, 0.0, 0.0],
        [0.0, -1.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 0.0, -1.0],
    ];

    const SIDES: [[u32; 3]; 8] =
        [[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4], [1, 0, 5], [2, 1, 5], [3, 2, 5], [0, 3, 5]];

    fn split_at(places: &mut Vec<[f32; 3]>, faces: &mut Vec<[u32; 3]>, order: &[u32]) {
        let SplitFaces { midpoints, faces: all, .. } =
            split(faces, places.len(), order, usize::MAX);
        for [a, b] in midpoints {
            let ends = [places[a as usize], places[b as usize]];
            places.push([0, 1, 2].map(|axis| 0.5 * (ends[0][axis] + ends[1][axis])));
        }
        *faces = all;
    }

    /// Returns the number of triangles at each edge.
    fn edges(faces: &[[u32; 3]]) -> Vec<usize> {
        let ends = faces.iter().flat_map(|&[a, b, c]| [[a, b], [b, c], [c, a]]);
        let mut edges: Vec<_> = ends.map(|[a, b]| [a.min(b), a.max(b)]).collect();
        edges.sort_unstable();
        edges.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
    }

    #[test]
    fn a_sphere_with_open_seams_becomes_closed() {
        let (mut places, mut faces) = (OCTAHEDRON.to_vec(), SIDES.to_vec());
        for _ in 0..3 {
            let all: Vec<u32> = (0..).take(faces.len()).collect();
            split_at(&mut places, &mut faces, &all);
        }
        for place in &mut places {
            let norm = place.iter().map(|x| x * x).sum::<f32>().sqrt();
            *place = place.map(|x| x / norm);
        }
        assert!(edges(&faces).iter().all(|&count| count == 2));
        let some: Vec<u32> = (0..512).step_by(7).collect();
        split_at(&mut places, &mut faces, &some);
        let open = edges(&faces).iter().filter(|&&count| count == 1).count();
        assert!(open > 500, "{open}");
        // No triangle is near this vertex.
        places.push([0.0; 3]);
        let vertices = places.len() - 1;
        let Connected { kept, faces: found } = connect(&places, &faces).unwrap();
        assert!(kept.is_sorted_by(|a, b| a < b) && kept.len() <= vertices);
        assert!(kept.iter().all(|&vertex| (vertex as usize) < vertices));
        assert!(found.as_flattened().iter().all(|&corner| (corner as usize) < kept.len()));
        let counts = edges(&found);
        let closed = counts.iter().filter(|&&count| count == 2).count();
        // All corners lie on one sphere, so a face may be one of several of a flat tetrahedron.
        assert!(closed * 100 >= counts.len() * 99, "{closed} of {}", counts.len());
    }

    #[test]
    fn a_mesh_without_tetrahedra_is_an_error() {
        let flat = [[0.0; 3], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0]];
        assert!(matches!(connect(&flat, &[[0, 1, 2]]), Err(ConnectError::Tetrahedra(_))));
    }
}

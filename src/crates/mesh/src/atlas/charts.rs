//! Charts that bend little, flattened as rigidly as it goes; those that cannot be are boxes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rayon::prelude::*;

use super::boxes::boxes;
use super::boxes::{FlatChart, LocalFaces};
use super::packing::Place;
use super::packing::flatten;
use crate::edges::UnionFind;
use crate::edges::{Edges, NO_SIDE};
use crate::mesh::{Mesh, Vec3};
use crate::narrow::{to_f32, to_u32};
use crate::place::{area, centroid, corners, doubled_area};
use crate::vector::{add, dot, length, normalize, scale, sub};

/// A face that becomes larger or smaller by more than this factor does not fit into its chart.
const MOST_STRETCH: f64 = 4.0;

/// The share of its faces that may not fit into a chart; of more, the chart is crumpled.
const MOST_MISFITS: f64 = 0.1;

/// How often faces that do not fit are flattened anew; then each lies alone.
const ROUNDS: usize = 3;

/// A mesh as flat charts.
pub(super) struct CutCharts {
    pub(super) charts: Vec<FlatChart>,
    /// Faces of charts that are too crumpled, which are boxes.
    pub(super) boxed: usize,
}

/// Cuts and flattens a mesh.
pub(super) fn charts(surface: &Surface<'_>) -> CutCharts {
    let pieces: Vec<FlattenedPiece> =
        grow(surface).into_par_iter().map(|faces| piece(surface, faces)).collect();
    let mut charts = Vec::new();
    let mut crumpled = Vec::new();
    for piece in pieces {
        match piece {
            FlattenedPiece::Flat(flat) => charts.extend(flat),
            FlattenedPiece::Crumpled(faces) => crumpled.extend(faces),
        }
    }
    crumpled.sort_unstable();
    charts.extend(boxes(surface, &crumpled));
    CutCharts { charts, boxed: crumpled.len() }
}

/// What becomes of a chart.
enum FlattenedPiece {
    /// Itself, and small ones of what does not fit into it.
    Flat(Vec<FlatChart>),
    /// It folds over in too many places.
    Crumpled(Vec<u32>),
}

fn piece(surface: &Surface<'_>, faces: Vec<u32>) -> FlattenedPiece {
    let count = faces.len();
    let mut charts = Vec::new();
    let misfits = split_misfits(surface, faces, &mut charts);
    if misfits.len() as f64 > MOST_MISFITS * count as f64 {
        let left = charts.into_iter().flat_map(|chart| chart.faces);
        return FlattenedPiece::Crumpled(left.chain(misfits).collect());
    }
    let mut left = misfits;
    for _ in 1..ROUNDS {
        let patches = surface.patches(&left);
        left = patches.into_iter().flat_map(|p| split_misfits(surface, p, &mut charts)).collect();
        left.sort_unstable();
    }
    charts.extend(left.into_iter().map(|face| FlatChart::alone(surface.mesh, face)));
    FlattenedPiece::Flat(charts)
}

/// Flattens faces, adds the charts of those that fit and returns the others.
fn split_misfits(surface: &Surface<'_>, faces: Vec<u32>, charts: &mut Vec<FlatChart>) -> Vec<u32> {
    let mesh = surface.mesh;
    if let [face] = faces[..] {
        charts.push(FlatChart::alone(mesh, face));
        return Vec::new();
    }
    let local = LocalFaces::of(mesh, &faces);
    let places = flatten(mesh, &faces, &local);
    let fits = |(&face, ends): (&u32, &[u32; 3])| {
        let doubled = doubled_area_of(ends.map(|end| places[end as usize]));
        let own = 2.0 * area(corners(mesh, mesh.faces[face as usize]));
        doubled >= own / MOST_STRETCH && doubled <= own * MOST_STRETCH
    };
    let fits: Vec<bool> = faces.iter().zip(&local.corners).map(fits).collect();
    let pick = |wanted: bool| -> Vec<u32> {
        let picked = faces.iter().zip(&fits).filter(|(_, fits)| **fits == wanted);
        picked.map(|(&face, _)| face).collect()
    };
    let misfits = pick(false);
    if misfits.is_empty() {
        charts.push(FlatChart::new(faces, local.corners, places));
        return misfits;
    }
    let left = pick(true);
    let whole = FlatChart::new(faces, local.corners, places);
    charts.extend(surface.patches(&left).into_iter().map(|patch| whole.part(patch)));
    misfits
}

/// Twice the signed area; positive from x to y.
fn doubled_area_of([a, b, c]: [Place; 3]) -> f64 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

// Which faces make one chart: pieces that bend little, of a bounded number of faces.

/// Faces of a chart at most: the work of flattening one grows faster than its faces.
pub(super) const MOST_FACES: usize = 1000;

/// Charts that a mesh is cut into at least, unless they have fewer faces than the next constant: larger ones
/// leave gaps between their rectangles.
const LEAST_CHARTS: usize = 64;

/// A bound on a chart's faces is not below this.
const LEAST_BOUND: usize = 64;

/// Charts of fewer faces join a neighbour.
const FEW_FACES: usize = 8;

/// Rounds in which charts grow from the middles of the charts before.
const GROWTH_ROUNDS: usize = 2;

/// Rounds of smoothing the normals that charts are cut by: those of noisy surfaces would cut combs.
const SMOOTHING_ROUNDS: usize = 6;

/// Least cosine between neighbours that are smoothed: sharp edges stay.
const SMOOTH_COSINE: f64 = 0.5;

/// Least cosine between a face's smoothed normal and that of its chart.
const LEAST_COSINE: f64 = 0.5;

/// How much farther a face seems where it bends away from its chart or lies past a crease.
const BEND_WEIGHT: f64 = 2.0;
const CREASE_WEIGHT: f64 = 4.0;

/// No chart.
const NO_CHART: u32 = u32::MAX;

/// The faces of each chart, in ascending order.
pub(super) fn grow(surface: &Surface<'_>) -> Vec<Vec<u32>> {
    let faces = surface.mesh.faces.len();
    let bound = (faces / LEAST_CHARTS).clamp(LEAST_BOUND, MOST_FACES);
    let mut growth = ChartGrowth::of(surface);
    // Half of the bound leaves the next round room for what the first one leaves between its charts.
    growth.fill(bound / 2);
    for _ in 0..GROWTH_ROUNDS {
        let seeds = growth.middles(bound / 8);
        growth.of_face.fill(NO_CHART);
        growth.charts.clear();
        let heap = seeds.into_iter().map(|seed| growth.plant(seed.face, seed.normal)).collect();
        growth.spread(heap, bound);
        growth.fill(bound);
    }
    growth.join_few(bound);
    growth.members()
}

/// Where a chart begins.
struct Seed {
    face: u32,
    normal: Vec3,
}

/// A chart that grows.
struct GrowingChart {
    normal: Vec3,
    faces: usize,
}

/// A face that may join a chart: by distance from where it began, then by number.
type Candidate = Reverse<(u32, u32, u32)>;

struct ChartGrowth<'a> {
    surface: &'a Surface<'a>,
    centres: Vec<[f32; 3]>,
    /// Smoothed unit normals.
    normals: Vec<[f32; 3]>,
    of_face: Vec<u32>,
    charts: Vec<GrowingChart>,
}

impl<'a> ChartGrowth<'a> {
    fn of(surface: &'a Surface<'a>) -> Self {
        let mesh = surface.mesh;
        let centre = |&face: &[u32; 3]| centroid(corners(mesh, face)).map(to_f32);
        Self {
            surface,
            centres: mesh.faces.par_iter().map(centre).collect(),
            normals: smoothed(surface),
            of_face: vec![NO_CHART; mesh.faces.len()],
            charts: Vec::new(),
        }
    }

    fn centre(&self, face: u32) -> Vec3 {
        self.centres[face as usize].map(f64::from)
    }

    fn normal(&self, face: u32) -> Vec3 {
        self.normals[face as usize].map(f64::from)
    }

    /// Begins a chart.
    fn plant(&mut self, face: u32, normal: Vec3) -> Candidate {
        self.charts.push(GrowingChart { normal, faces: 0 });
        Reverse((0, face, to_u32(self.charts.len() - 1)))
    }

    /// Gives each face without a chart one: of at most `bound` faces.
    fn fill(&mut self, bound: usize) {
        for face in 0..to_u32(self.of_face.len()) {
            if self.of_face[face as usize] == NO_CHART {
                let seed = self.plant(face, self.normal(face));
                self.spread(BinaryHeap::from([seed]), bound);
            }
        }
    }

    /// Lets charts grow from where they begin, nearest faces first (Dijkstra 1959).
    fn spread(&mut self, mut heap: BinaryHeap<Candidate>, bound: usize) {
        while let Some(Reverse((bits, face, chart))) = heap.pop() {
            let growing = &mut self.charts[chart as usize];
            if self.of_face[face as usize] != NO_CHART || growing.faces == bound {
                continue;
            }
            self.of_face[face as usize] = chart;
            growing.faces += 1;
            let along = growing.normal;
            // Bits of numbers from 0 on are in the order of the numbers.
            let distance = f32::from_bits(bits);
            let (centre, normal) = (self.centre(face), self.surface.normals[face as usize]);
            for other in self.surface.neighbours(face) {
                let cosine = dot(along, self.normal(other));
                if self.of_face[other as usize] != NO_CHART || cosine < LEAST_COSINE {
                    continue;
                }
                let crease = 1.0 - dot(normal, self.surface.normals[other as usize]);
                let factor = 1.0 + BEND_WEIGHT * (1.0 - cosine) + CREASE_WEIGHT * crease;
                let step = factor * length(sub(self.centre(other), centre));
                heap.push(Reverse(((distance + to_f32(step)).to_bits(), other, chart)));
            }
        }
    }

    /// Mean normals of the charts, and the faces nearest to their middles; not of those with fewer than
    /// `least` faces, beside which others have room.
    fn middles(&self, least: usize) -> Vec<Seed> {
        let members = self.members();
        let middle = |faces: &Vec<u32>| {
            let mut sums = ([0.0; 3], [0.0; 3], 0.0);
            for &face in faces {
                let area = self.area(face);
                sums.0 = add(sums.0, scale(self.centre(face), area));
                sums.1 = add(sums.1, scale(self.normal(face), area));
                sums.2 += area;
            }
            let centre = scale(sums.0, 1.0 / sums.2.max(f64::MIN_POSITIVE));
            let away = |face: u32| length(sub(self.centre(face), centre));
            let face = faces.iter().copied().min_by(|&a, &b| away(a).total_cmp(&away(b)))?;
            Some(Seed { face, normal: normalize(sums.1) })
        };
        members.par_iter().filter(|faces| faces.len() >= least).filter_map(middle).collect()
    }

    fn area(&self, face: u32) -> f64 {
        let mesh = self.surface.mesh;
        length(doubled_area(corners(mesh, mesh.faces[face as usize])))
    }

    /// Gives the faces of very small charts to the neighbour with most common sides.
    fn join_few(&mut self, bound: usize) {
        for faces in self.members() {
            let own = self.of_face[faces[0] as usize];
            // One that others have joined stays.
            if faces.len() >= FEW_FACES || self.charts[own as usize].faces > faces.len() {
                continue;
            }
            let mut others: Vec<u32> = Vec::new();
            for &face in &faces {
                let neighbours = self.surface.neighbours(face);
                others.extend(neighbours.map(|other| self.of_face[other as usize]));
            }
            others.sort_unstable();
            let takes = |other: u32| {
                let chart = &self.charts[other as usize];
                other != own
                    && chart.faces + faces.len() <= bound
                    && faces.iter().all(|&face| {
                        dot(chart.normal, self.surface.normals[face as usize]) >= LEAST_COSINE
                    })
            };
            let best = others
                .chunk_by(|a, b| a == b)
                .filter(|same| takes(same[0]))
                .max_by_key(|same| (same.len(), Reverse(same[0])));
            if let Some(same) = best {
                let chart = same[0];
                self.charts[chart as usize].faces += faces.len();
                self.charts[own as usize].faces = 0;
                faces.iter().for_each(|&face| self.of_face[face as usize] = chart);
            }
        }
    }

    /// The faces of each chart that has some.
    fn members(&self) -> Vec<Vec<u32>> {
        let mut members: Vec<Vec<u32>> =
            self.charts.iter().map(|chart| Vec::with_capacity(chart.faces)).collect();
        for (face, &chart) in (0..).zip(&self.of_face) {
            members[chart as usize].push(face);
        }
        members.retain(|faces| !faces.is_empty());
        members
    }
}

/// The normals of the faces, smoothed over neighbours but not past sharp edges.
fn smoothed(surface: &Surface<'_>) -> Vec<[f32; 3]> {
    let mesh = surface.mesh;
    let is_smooth = |side: usize| {
        let twin = surface.twins[side];
        let normal = |side: usize| surface.normals[side / 3];
        twin != NO_SIDE && dot(normal(side), normal(twin as usize)) >= SMOOTH_COSINE
    };
    let links: Vec<[bool; 3]> = (0..mesh.faces.len())
        .into_par_iter()
        .map(|face| [0, 1, 2].map(|side| is_smooth(3 * face + side)))
        .collect();
    let mut normals: Vec<Vec3> =
        mesh.faces.par_iter().map(|&face| doubled_area(corners(mesh, face))).collect();
    for _ in 0..SMOOTHING_ROUNDS {
        let smooth = |face: usize| {
            let others = (0..3).filter(|&side| links[face][side]);
            others.fold(normals[face], |sum, side| {
                add(sum, normals[surface.twins[3 * face + side] as usize / 3])
            })
        };
        normals = (0..normals.len()).into_par_iter().map(smooth).collect();
    }
    normals.into_par_iter().map(|normal| normalize(normal).map(to_f32)).collect()
}

// The faces of a mesh and which of them have a common side.

/// A checked mesh and what charts are cut by.
pub(super) struct Surface<'a> {
    pub(super) mesh: &'a Mesh,
    /// The other side of each side, or [`NO_SIDE`].
    pub(super) twins: Vec<u32>,
    /// Unit normals of the faces; zero of those without area.
    pub(super) normals: Vec<Vec3>,
}

impl<'a> Surface<'a> {
    pub(super) fn of(mesh: &'a Mesh) -> Self {
        let normal = |&face: &[u32; 3]| normalize(doubled_area(corners(mesh, face)));
        Self {
            mesh,
            twins: Edges::of(&mesh.faces).twins(),
            normals: mesh.faces.par_iter().map(normal).collect(),
        }
    }

    /// The faces that have a side in common with one.
    pub(super) fn neighbours(&self, face: u32) -> impl Iterator<Item = u32> {
        let sides = 3 * face as usize..3 * face as usize + 3;
        self.twins[sides].iter().filter(|&&twin| twin != NO_SIDE).map(|twin| twin / 3)
    }

    /// Connected patches of some faces, which are in ascending order.
    pub(super) fn patches(&self, faces: &[u32]) -> Vec<Vec<u32>> {
        let mut sets = UnionFind::new(faces.len());
        for (at, &face) in faces.iter().enumerate() {
            for other in self.neighbours(face) {
                if let Ok(other) = faces.binary_search(&other) {
                    sets.join(to_u32(at), to_u32(other));
                }
            }
        }
        let mut members: Vec<(u32, u32)> =
            faces.iter().zip(0..).map(|(&face, at)| (sets.root(at), face)).collect();
        members.sort_unstable();
        let patches = members.chunk_by(|a, b| a.0 == b.0);
        patches.map(|patch| patch.iter().map(|&(_, face)| face).collect()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::known_meshes::{cube, sphere, torus};
    use crate::random::RandomStream;

    /// The work of flattening grows faster than the faces of a chart, which is why these are bounded.
    #[test]
    fn charts_are_connected_and_have_a_bounded_number_of_faces() {
        let stream = RandomStream::of_seed(9);
        let rough = torus([1.0, 0.4], [400, 200], |u, v| {
            1.0 + 0.05 * stream.uniform((1e3 * u).to_bits() ^ (1e3 * v).to_bits().rotate_left(20))
        });
        for mesh in [rough, sphere(1.0, 4), cube()] {
            let surface = Surface::of(&mesh);
            let charts = grow(&surface);
            let most = charts.iter().map(Vec::len).max().unwrap();
            assert!(most <= MOST_FACES, "{most}");
            let few = (mesh.faces.len() / LEAST_CHARTS).max(LEAST_BOUND);
            assert!(most <= few, "{most} of {}", mesh.faces.len());
            assert!(charts.iter().all(|faces| surface.patches(faces).len() == 1));
            let mut all = charts.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..to_u32(mesh.faces.len())));
        }
        assert_eq!(grow(&Surface::of(&cube())).len(), 6);
    }
}

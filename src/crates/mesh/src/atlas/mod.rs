//! Texture atlases: positions of a mesh's faces on a picture.

mod packing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use packing::{FlatChart, LocalFaces, Packed, Place, boxed, flatten, pack};
use rayon::prelude::*;

use crate::edges::{Edges, NO_SIDE, UnionFind};
use crate::mesh::{Mesh, MeshError, Vec3, check_mesh};
use crate::narrow::{floor_u32, to_f32, to_u32};
use crate::place::{
    add, area, centroid, corners, dot, doubled_area, length, normalize, scale, sub,
};

#[cfg(test)]
pub(crate) use packing::texel_faces;
pub use packing::{dilate, for_each_texel};
pub(crate) use packing::{doubled_area_px, for_each_touched};

/// An atlas and its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct MadeAtlas {
    /// The atlas.
    pub atlas: Atlas,
    /// Faces that lie in boxes, because their charts are too crumpled to be flattened.
    pub boxed: usize,
}

/// Lays the faces of a mesh out on a picture: faces do not share texels and are not turned over.
pub fn make_atlas(mesh: &Mesh, options: &AtlasOptions) -> Result<MadeAtlas, AtlasError> {
    check_mesh(mesh)?;
    if options.side_px > MOST_SIDE_PX {
        return Err(AtlasError::TooLarge { found: options.side_px, most: MOST_SIDE_PX });
    }
    let faces = mesh.faces.len();
    if !mesh.faces.iter().any(|&face| doubled_area(corners(mesh, face)) != [0.0; 3]) {
        return Err(AtlasError::NoArea { faces });
    }
    let (atlas, boxed) = match options.layout {
        Layout::Squares { side_px } => (packing::squares(faces, side_px, options.side_px)?, 0),
        Layout::Boxes => {
            let surface = Surface::of(mesh);
            let all: Vec<u32> = (0..to_u32(faces)).collect();
            (lay_out(&surface, boxed(&surface, &all), options)?, 0)
        }
        Layout::Charts => {
            let surface = Surface::of(mesh);
            let (charts, boxed) = charts(&surface);
            (lay_out(&surface, charts, options)?, boxed)
        }
    };
    Ok(MadeAtlas { atlas, boxed })
}

/// Returns the side of a texture in texels: the next multiple of 4 of √(2 A), A the sum over the faces of the largest
/// area in px² that any view shows them at; at most `most_px`.
pub fn texture_side_px(face_areas_px2: &[f64], most_px: u32) -> u32 {
    let sum: f64 = face_areas_px2.iter().sum();
    let side = floor_u32((2.0 * sum).sqrt().ceil());
    side.min(most_px).div_ceil(4).saturating_mul(4).clamp(64, most_px.max(64))
}

/// Why there is no atlas.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum AtlasError {
    #[error(transparent)]
    Mesh(#[from] MeshError),
    #[error("no atlas of a mesh of {faces} faces without area: extract a surface first")]
    NoArea { faces: usize },
    #[error("a texture of {found} x {found} texels: {most} x {most} is the most that is made")]
    TooLarge { found: u32, most: u32 },
    #[error(
        "{charts} charts do not fit a texture of {side_px} x {side_px}: take a larger texture or \
         decimate the mesh"
    )]
    TooSmall { charts: usize, side_px: u32 },
    #[error("squares of {found} texels: a face needs a square of 4 or more")]
    Square { found: u32 },
    #[error("the {charts} regions still overlap after {rounds} rounds: clean or decimate the mesh")]
    Overlap { charts: usize, rounds: usize },
}

/// Greatest side of a picture in texels.
pub const MOST_SIDE_PX: u32 = 16_384;

/// Way of cutting a surface and laying it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Charts that bend little, flattened; boxes for crumpled ones.
    Charts,
    /// Regions seen along one of 26 directions, in rows.
    Boxes,
    /// Two faces a square of this side, whatever their size.
    Squares {
        /// Side in texels, 4 or more.
        side_px: u32,
    },
}

/// Options of [`make_atlas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtlasOptions {
    /// Way of cutting the surface.
    pub layout: Layout,
    /// Width and largest height of the picture in texels.
    pub side_px: u32,
    /// Free texels about each chart.
    pub padding_px: u32,
}

/// Positions of a mesh's faces on a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Atlas {
    /// Width of the picture in texels.
    pub width: u32,
    /// Height of the picture in texels.
    pub height: u32,
    /// Places in texels, from the outer corner of the top left texel, whose centre is (0.5, 0.5); v runs down.
    pub places_px: Vec<[f32; 2]>,
    /// Three places of each face of the mesh, in the faces' order. All faces have the same orientation.
    pub faces: Vec<[u32; 3]>,
    /// Connected pieces that the surface is cut into.
    pub charts: u32,
}

impl Atlas {
    /// Returns a place as shares of width and height, v down; the origin if there is no such place.
    pub fn uv(&self, place: usize) -> [f32; 2] {
        let [x, y] = self.places_px.get(place).copied().unwrap_or_default();
        [x / self.width.max(1) as f32, y / self.height.max(1) as f32]
    }

    /// Returns the places of a face in texels; the origin for missing ones.
    pub fn corners_px(&self, face: [u32; 3]) -> [[f64; 2]; 3] {
        face.map(|place| {
            self.places_px.get(place as usize).copied().unwrap_or_default().map(f64::from)
        })
    }
}

/// Rounds of separating charts that fold over themselves.
const OVERLAP_ROUNDS: usize = 40;
/// First rounds, which separate connected patches. Later ones separate single faces.
const ROUNDS_BY_PATCH: usize = 8;

/// Packs charts, and separates those in which two faces claim one texel until there is none.
fn lay_out(
    surface: &Surface<'_>,
    mut charts: Vec<FlatChart>,
    options: &AtlasOptions,
) -> Result<Atlas, AtlasError> {
    for round in 0..OVERLAP_ROUNDS {
        let sizes: Vec<[f64; 2]> = charts.iter().map(|chart| chart.size).collect();
        let packed = pack(&sizes, options.side_px, options.padding_px)
            .ok_or(AtlasError::TooSmall { charts: charts.len(), side_px: options.side_px })?;
        let count = charts.len();
        let by_patch = round < ROUNDS_BY_PATCH;
        let split = |(chart, &corner_px): (FlatChart, &[u32; 2])| {
            split_overlaps(surface, chart, corner_px, packed.density, by_patch)
        };
        let split: Vec<Vec<FlatChart>> =
            charts.into_par_iter().zip(&packed.corners).map(split).collect();
        charts = split.into_iter().flatten().collect();
        if charts.len() == count {
            return Ok(placed(&charts, &packed, surface.mesh.faces.len(), options.side_px));
        }
    }
    Err(AtlasError::Overlap { charts: charts.len(), rounds: OVERLAP_ROUNDS })
}

/// Returns the position of a place of a chart on the picture.
fn place_px(place: Place, corner_px: [u32; 2], density: f64) -> [f32; 2] {
    [0, 1].map(|axis| to_f32(f64::from(corner_px[axis]) + place[axis] * density))
}

/// Returns the chart without the faces that lie on a texel of an earlier face, and charts of those faces; only the
/// chart if there are none.
fn split_overlaps(
    surface: &Surface<'_>,
    chart: FlatChart,
    corner_px: [u32; 2],
    density: f64,
    by_patch: bool,
) -> Vec<FlatChart> {
    let taken = overlapping(&chart, corner_px, density);
    if taken.is_empty() {
        return vec![chart];
    }
    let left: Vec<u32> =
        chart.faces.iter().copied().filter(|f| taken.binary_search(f).is_err()).collect();
    // The rest may have come apart.
    let mut parts: Vec<FlatChart> =
        surface.patches(&left).into_iter().map(|faces| chart.part(faces)).collect();
    if by_patch {
        parts.extend(surface.patches(&taken).into_iter().map(|faces| chart.part(faces)));
    } else {
        parts.extend(taken.into_iter().map(|face| FlatChart::alone(surface.mesh, face)));
    }
    parts
}

/// Returns the faces with a texel that an earlier face has, in ascending order.
fn overlapping(chart: &FlatChart, corner_px: [u32; 2], density: f64) -> Vec<u32> {
    // The texels that the packer keeps, and one more on each side for rounding.
    let [width, height] = [0, 1].map(|axis| floor_u32(chart.size[axis] * density) + 3);
    let first = corner_px.map(|corner| corner.saturating_sub(1));
    let end = [first[0] + width, first[1] + height];
    let mut is_claimed = vec![false; width as usize * height as usize];
    let mut own = Vec::new();
    let mut taken = Vec::new();
    for (&face, &corners) in chart.faces.iter().zip(&chart.corners) {
        own.clear();
        let corners_px = corners
            .map(|place| place_px(chart.places[place as usize], corner_px, density).map(f64::from));
        for_each_texel(corners_px, end, |x, y| {
            own.push((y - first[1]) as usize * width as usize + (x - first[0]) as usize);
        });
        if own.iter().any(|&texel| is_claimed[texel]) {
            taken.push(face);
        } else {
            own.iter().for_each(|&texel| is_claimed[texel] = true);
        }
    }
    taken
}

fn placed(charts: &[FlatChart], packed: &Packed, faces: usize, side_px: u32) -> Atlas {
    let mut atlas = Atlas {
        width: side_px,
        height: packed.height.next_multiple_of(4),
        places_px: Vec::with_capacity(charts.iter().map(|chart| chart.places.len()).sum()),
        faces: vec![[0; 3]; faces],
        charts: to_u32(charts.len()),
    };
    for (chart, &corner) in charts.iter().zip(&packed.corners) {
        let first = to_u32(atlas.places_px.len());
        let places = chart.places.iter();
        atlas.places_px.extend(places.map(|&place| place_px(place, corner, packed.density)));
        for (&face, places) in chart.faces.iter().zip(&chart.corners) {
            atlas.faces[face as usize] = places.map(|place| first + place);
        }
    }
    atlas
}

/// Largest factor by which the area of a face may change within its chart.
const MAX_STRETCH: f64 = 4.0;

/// Largest share of faces that may change more. A chart with more of them is crumpled.
const MAX_MISFITS: f64 = 0.1;

/// Times that faces that do not fit are flattened again. Then each gets its own chart.
const CHART_ROUNDS: usize = 3;

/// Cuts and flattens a mesh. Also returns the number of faces in crumpled charts, which become boxes.
fn charts(surface: &Surface<'_>) -> (Vec<FlatChart>, usize) {
    let pieces: Vec<_> =
        grow(surface).into_par_iter().map(|faces| flatten_piece(surface, faces)).collect();
    let mut charts = Vec::new();
    let mut crumpled = Vec::new();
    for piece in pieces {
        match piece {
            Ok(flat) => charts.extend(flat),
            Err(faces) => crumpled.extend(faces),
        }
    }
    crumpled.sort_unstable();
    charts.extend(boxed(surface, &crumpled));
    (charts, crumpled.len())
}

/// Returns the flat chart of a piece and small ones of faces that do not fit into it. Returns the faces as an error if
/// the chart is crumpled.
fn flatten_piece(surface: &Surface<'_>, faces: Vec<u32>) -> Result<Vec<FlatChart>, Vec<u32>> {
    let count = faces.len();
    let mut charts = Vec::new();
    let misfits = split_misfits(surface, faces, &mut charts);
    if misfits.len() as f64 > MAX_MISFITS * count as f64 {
        let left = charts.into_iter().flat_map(|chart| chart.faces);
        return Err(left.chain(misfits).collect());
    }
    let mut left = misfits;
    for _ in 1..CHART_ROUNDS {
        let patches = surface.patches(&left);
        left = patches.into_iter().flat_map(|p| split_misfits(surface, p, &mut charts)).collect();
        left.sort_unstable();
    }
    charts.extend(left.into_iter().map(|face| FlatChart::alone(surface.mesh, face)));
    Ok(charts)
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
        let doubled = doubled_area_px(ends.map(|end| places[end as usize]));
        let own = 2.0 * area(corners(mesh, mesh.faces[face as usize]));
        doubled >= own / MAX_STRETCH && doubled <= own * MAX_STRETCH
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

/// Largest number of faces of a chart: the work of flattening a chart grows faster than its faces.
const MAX_FACES: usize = 1000;

/// Smallest number of charts of a mesh that is large enough. Larger charts leave gaps between their rectangles.
const MIN_CHARTS: usize = 64;

/// Lower bound of the faces that a chart may have.
const MIN_BOUND: usize = 64;

/// Charts of fewer faces join a neighbour.
const FEW_FACES: usize = 8;

/// Rounds in which charts grow from the middles of the charts before.
const GROWTH_ROUNDS: usize = 2;

/// Rounds of smoothing the normals that charts are cut by: those of noisy surfaces would cut combs.
const SMOOTHING_ROUNDS: usize = 6;

/// Least cosine between neighbours that are smoothed: sharp edges stay.
const SMOOTH_COSINE: f64 = 0.5;

/// Least cosine between a face's smoothed normal and that of its chart.
const MIN_COSINE: f64 = 0.5;

/// Weight of the angle between a face and its chart in the distance of the face.
const BEND_WEIGHT: f64 = 2.0;
/// Weight of the angle between neighbouring faces in the distance.
const CREASE_WEIGHT: f64 = 4.0;

const NO_CHART: u32 = u32::MAX;

/// Returns the faces of each chart, in ascending order.
fn grow(surface: &Surface<'_>) -> Vec<Vec<u32>> {
    let faces = surface.mesh.faces.len();
    let bound = (faces / MIN_CHARTS).clamp(MIN_BOUND, MAX_FACES);
    let mut growth = ChartGrowth::of(surface);
    // Half of the bound leaves room for the gaps between the next round's charts.
    growth.fill(bound / 2);
    for _ in 0..GROWTH_ROUNDS {
        let seeds = growth.middles(bound / 8);
        growth.of_face.fill(NO_CHART);
        growth.charts.clear();
        let heap = seeds.into_iter().map(|(face, normal)| growth.plant(face, normal)).collect();
        growth.spread(heap, bound);
        growth.fill(bound);
    }
    growth.join_few(bound);
    growth.members()
}

struct GrowingChart {
    normal: Vec3,
    faces: usize,
}

/// A face that may join a chart: distance from the chart's first face (bits of an f32), face, chart.
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

    fn plant(&mut self, face: u32, normal: Vec3) -> Candidate {
        self.charts.push(GrowingChart { normal, faces: 0 });
        Reverse((0, face, to_u32(self.charts.len() - 1)))
    }

    /// Starts charts of at most `bound` faces at faces without one.
    fn fill(&mut self, bound: usize) {
        for face in 0..to_u32(self.of_face.len()) {
            if self.of_face[face as usize] == NO_CHART {
                let seed = self.plant(face, self.normal(face));
                self.spread(BinaryHeap::from([seed]), bound);
            }
        }
    }

    /// Lets charts grow from their first faces, nearest faces first (Dijkstra 1959).
    fn spread(&mut self, mut heap: BinaryHeap<Candidate>, bound: usize) {
        while let Some(Reverse((bits, face, chart))) = heap.pop() {
            let growing = &mut self.charts[chart as usize];
            if self.of_face[face as usize] != NO_CHART || growing.faces == bound {
                continue;
            }
            self.of_face[face as usize] = chart;
            growing.faces += 1;
            let along = growing.normal;
            // The bits of numbers that are not negative have the order of the numbers.
            let distance = f32::from_bits(bits);
            let (centre, normal) = (self.centre(face), self.surface.normals[face as usize]);
            for other in self.surface.neighbours(face) {
                let cosine = dot(along, self.normal(other));
                if self.of_face[other as usize] != NO_CHART || cosine < MIN_COSINE {
                    continue;
                }
                let crease = 1.0 - dot(normal, self.surface.normals[other as usize]);
                let factor = 1.0 + BEND_WEIGHT * (1.0 - cosine) + CREASE_WEIGHT * crease;
                let step = factor * length(sub(self.centre(other), centre));
                heap.push(Reverse(((distance + to_f32(step)).to_bits(), other, chart)));
            }
        }
    }

    /// Returns the faces nearest to the charts' middles, and the charts' mean normals. Leaves out charts of fewer than
    /// `least` faces, so that others have room.
    fn middles(&self, least: usize) -> Vec<(u32, Vec3)> {
        let (mesh, members) = (self.surface.mesh, self.members());
        let middle = |faces: &Vec<u32>| {
            let mut sums = ([0.0; 3], [0.0; 3], 0.0);
            for &face in faces {
                let area = length(doubled_area(corners(mesh, mesh.faces[face as usize])));
                sums.0 = add(sums.0, scale(self.centre(face), area));
                sums.1 = add(sums.1, scale(self.normal(face), area));
                sums.2 += area;
            }
            let centre = scale(sums.0, 1.0 / sums.2.max(f64::MIN_POSITIVE));
            let away = |face: u32| length(sub(self.centre(face), centre));
            let face = faces.iter().copied().min_by(|&a, &b| away(a).total_cmp(&away(b)))?;
            Some((face, normalize(sums.1)))
        };
        members.par_iter().filter(|faces| faces.len() >= least).filter_map(middle).collect()
    }

    /// Gives the faces of very small charts to the neighbour with most common sides.
    fn join_few(&mut self, bound: usize) {
        for faces in self.members() {
            let own = self.of_face[faces[0] as usize];
            // A chart that others have joined stays.
            if faces.len() >= FEW_FACES || self.charts[own as usize].faces > faces.len() {
                continue;
            }
            let mut others: Vec<u32> = Vec::new();
            for &face in &faces {
                let neighbours = self.surface.neighbours(face);
                others.extend(neighbours.map(|other| self.of_face[other as usize]));
            }
            let takes = |other: u32| {
                let chart = &self.charts[other as usize];
                other != own
                    && chart.faces + faces.len() <= bound
                    && faces.iter().all(|&face| {
                        dot(chart.normal, self.surface.normals[face as usize]) >= MIN_COSINE
                    })
            };
            if let Some(chart) = most_frequent(others, takes) {
                self.charts[chart as usize].faces += faces.len();
                self.charts[own as usize].faces = 0;
                faces.iter().for_each(|&face| self.of_face[face as usize] = chart);
            }
        }
    }

    /// Returns the faces of each chart that has some.
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

/// Returns the most frequent of the numbers that `fits`; the least of several.
fn most_frequent(mut numbers: Vec<u32>, fits: impl Fn(u32) -> bool) -> Option<u32> {
    numbers.sort_unstable();
    let runs = numbers.chunk_by(|a, b| a == b).filter(|run| fits(run[0]));
    runs.max_by_key(|run| (run.len(), Reverse(run[0]))).map(|run| run[0])
}

/// Returns the normals of the faces, smoothed over neighbours but not past sharp edges.
fn smoothed(surface: &Surface<'_>) -> Vec<[f32; 3]> {
    let mesh = surface.mesh;
    let is_smooth = |side: usize| {
        let twin = surface.twins[side];
        let normal = |side: usize| surface.normals[side / 3];
        twin != NO_SIDE && dot(normal(side), normal(twin as usize)) >= SMOOTH_COSINE
    };
    let links = |face: usize| [0, 1, 2].map(|side| is_smooth(3 * face + side));
    let links: Vec<[bool; 3]> = (0..mesh.faces.len()).into_par_iter().map(links).collect();
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

/// A checked mesh with the neighbours and normals of its faces.
struct Surface<'a> {
    mesh: &'a Mesh,
    /// The other side of each side, or [`NO_SIDE`].
    twins: Vec<u32>,
    /// Unit normals of the faces; zero of those without area.
    normals: Vec<Vec3>,
}

impl<'a> Surface<'a> {
    fn of(mesh: &'a Mesh) -> Self {
        let normal = |&face: &[u32; 3]| normalize(doubled_area(corners(mesh, face)));
        Self {
            mesh,
            twins: Edges::of(&mesh.faces).twins(),
            normals: mesh.faces.par_iter().map(normal).collect(),
        }
    }

    /// Returns the faces that have a side in common with a face.
    fn neighbours(&self, face: u32) -> impl Iterator<Item = u32> {
        let sides = 3 * face as usize..3 * face as usize + 3;
        self.twins[sides].iter().filter(|&&twin| twin != NO_SIDE).map(|twin| twin / 3)
    }

    /// Returns the connected patches of some faces, which are in ascending order.
    fn patches(&self, faces: &[u32]) -> Vec<Vec<u32>> {
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
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small numbers")]
mod tests {
    use super::*;
    use crate::known_meshes::{cube, mesh_of, rough_torus, sphere, torus};
    use crate::random::RandomStream;

    const OPTIONS: AtlasOptions =
        AtlasOptions { layout: Layout::Boxes, side_px: 512, padding_px: 2 };

    #[derive(Debug, Default)]
    struct AtlasCheck {
        claimed: usize,
        claimed_share: f64,
        claimed_twice: usize,
        flipped: usize,
        outside: usize,
    }

    impl AtlasCheck {
        fn of(atlas: &Atlas) -> Self {
            let size = [atlas.width, atlas.height];
            let mut check = Self::default();
            let mut is_claimed = vec![false; size[0] as usize * size[1] as usize];
            for &face in &atlas.faces {
                let corners = atlas.corners_px(face);
                let is_place = |&place: &u32| (place as usize) < atlas.places_px.len();
                let is_inside = |place: &[f64; 2]| {
                    (0..2).all(|axis| (0.0..=f64::from(size[axis])).contains(&place[axis]))
                };
                if !(face.iter().all(is_place) && corners.iter().all(is_inside)) {
                    check.outside += 1;
                    continue;
                }
                // Rounding may turn a sliver over.
                check.flipped += usize::from(doubled_area_px(corners) < -2e-3);
                for_each_texel(corners, size, |x, y| {
                    let claim = &mut is_claimed[y as usize * size[0] as usize + x as usize];
                    let is_second = std::mem::replace(claim, true);
                    check.claimed += usize::from(!is_second);
                    check.claimed_twice += usize::from(is_second);
                });
            }
            check.claimed_share = check.claimed as f64 / is_claimed.len().max(1) as f64;
            check
        }

        fn is_sound(&self) -> bool {
            self.claimed_twice == 0 && self.flipped == 0 && self.outside == 0
        }
    }

    fn rough(sizes: [u32; 2], noise: f64) -> Mesh {
        rough_torus(sizes, 6, noise)
    }

    /// Returns the percentiles 1 and 99 of the faces' texels per area, over the median.
    fn densities(mesh: &Mesh, atlas: &Atlas) -> [f64; 2] {
        let density = |(&face, &places): (&[u32; 3], &[u32; 3])| {
            0.5 * doubled_area_px(atlas.corners_px(places)) / area(corners(mesh, face))
        };
        let mut found: Vec<f64> = mesh.faces.iter().zip(&atlas.faces).map(density).collect();
        found.sort_by(f64::total_cmp);
        let middle = found[found.len() / 2];
        [found[found.len() / 100] / middle, found[found.len() * 99 / 100] / middle]
    }

    /// True if the texels of different charts are at least twice the padding apart.
    fn keeps_padding(atlas: &Atlas, padding: i64) -> bool {
        let faces = texel_faces(atlas);
        let mut charts = UnionFind::new(atlas.places_px.len());
        for face in &atlas.faces {
            charts.join(face[0], face[1]);
            charts.join(face[0], face[2]);
        }
        let (width, height) = (i64::from(atlas.width), i64::from(atlas.height));
        let mut chart_at = |x: i64, y: i64| {
            let face = *faces.get((y * width + x) as usize)?;
            let face = atlas.faces.get(face as usize)?;
            Some(charts.root(face[0]))
        };
        for y in 0..height {
            for x in 0..width {
                let Some(own) = chart_at(x, y) else { continue };
                for (dx, dy) in [(2 * padding - 1, 0), (0, 2 * padding - 1), (padding, padding - 1)]
                {
                    let is_inside = x + dx < width && y + dy < height;
                    if is_inside && chart_at(x + dx, y + dy).is_some_and(|other| other != own) {
                        return false;
                    }
                }
            }
        }
        true
    }

    #[test]
    fn boxes_and_charts_are_sound_even_and_apart() {
        // A direction of 26 is within 37 degrees of a normal, a joined face's within 78.
        let boxes = (Layout::Boxes, 2, [0.15, f64::INFINITY]);
        let charts = (Layout::Charts, 1, [0.7, 1.4]);
        for ((layout, padding, [least, most]), mesh) in [
            (boxes, rough([120, 60], 0.002)),
            (boxes, rough([60, 30], 0.4)),
            (boxes, sphere(1.0, 4)),
            (boxes, cube()),
            (charts, rough([120, 60], 0.002)),
            (charts, sphere(1.0, 4)),
        ] {
            let options = AtlasOptions { layout, ..OPTIONS };
            let MadeAtlas { atlas, boxed } = make_atlas(&mesh, &options).unwrap();
            assert_eq!(boxed, 0);
            let check = AtlasCheck::of(&atlas);
            assert!(check.is_sound() && check.claimed_share > 0.2, "{layout:?} {check:?}");
            assert!(keeps_padding(&atlas, padding), "{layout:?} {}", atlas.charts);
            let found = densities(&mesh, &atlas);
            assert!(found[0] > least && found[1] < most, "{layout:?} {found:?}");
        }
        assert_eq!(make_atlas(&cube(), &OPTIONS).unwrap().atlas.charts, 6);
    }

    #[test]
    fn a_crumpled_surface_gets_boxes() {
        let options = AtlasOptions { layout: Layout::Charts, ..OPTIONS };
        let MadeAtlas { atlas, boxed } = make_atlas(&rough([60, 30], 0.8), &options).unwrap();
        assert!(AtlasCheck::of(&atlas).is_sound());
        assert!(boxed > 0);
    }

    #[test]
    fn a_surface_that_winds_over_itself_is_parted() {
        // Three turns of a ramp: each lies over the others, all face up.
        let mut ramp = Mesh::default();
        for i in 0..=90_u32 {
            let angle = f64::from(i) * 0.2;
            for radius in [0.5, 1.0] {
                ramp.vertices.push([
                    (radius * angle.cos()) as f32,
                    (radius * angle.sin()) as f32,
                    (0.01 * angle) as f32,
                ]);
            }
            if i > 0 {
                let [a, b, c, d] = [2 * i - 2, 2 * i - 1, 2 * i, 2 * i + 1];
                ramp.faces.extend([[a, b, d], [a, d, c]]);
            }
        }
        let atlas = make_atlas(&ramp, &OPTIONS).unwrap().atlas;
        let check = AtlasCheck::of(&atlas);
        assert!(check.is_sound() && (3..20).contains(&atlas.charts), "{check:?} {}", atlas.charts);
    }

    #[test]
    fn squares_hold_two_faces_each_of_either_number() {
        for faces in [1, 2, 3, 7, 8, 9, 50, 51] {
            let mut mesh = sphere(1.0, 2);
            mesh.faces.truncate(faces);
            for side_px in [4, 5, 8, 10] {
                let options = AtlasOptions { layout: Layout::Squares { side_px }, ..OPTIONS };
                let atlas = make_atlas(&mesh, &options).unwrap().atlas;
                let check = AtlasCheck::of(&atlas);
                assert!(check.is_sound(), "{faces} {side_px} {check:?}");
                assert!(atlas.width >= side_px && atlas.faces.len() == faces);
                assert!(side_px < 8 || keeps_padding(&atlas, 1));
            }
        }
    }

    #[test]
    fn faults_are_found() {
        let atlas = |places_px: Vec<[f32; 2]>, faces: Vec<[u32; 3]>| {
            AtlasCheck::of(&Atlas { width: 16, height: 16, places_px, faces, charts: 1 })
        };
        let square = vec![[2.0, 2.0], [10.0, 2.0], [10.0, 10.0], [2.0, 10.0]];
        let good = atlas(square.clone(), vec![[0, 1, 2], [0, 2, 3]]);
        assert!(good.is_sound() && good.claimed == 64, "{good:?}");
        let flipped = atlas(square.clone(), vec![[0, 1, 2], [0, 3, 2]]);
        assert_eq!((flipped.flipped, flipped.claimed_twice), (1, 0));
        let twice = atlas(square.clone(), vec![[0, 1, 2], [0, 1, 3]]);
        assert!(twice.claimed_twice > 8 && !twice.is_sound());
        assert_eq!(atlas(square, vec![[0, 1, 9]]).outside, 1);
        assert_eq!(atlas(vec![[0.0, 0.0], [17.0, 0.0], [0.0, 9.0]], vec![[0, 1, 2]]).outside, 1);
    }

    #[test]
    fn meshes_and_sizes_without_an_atlas_are_refused() {
        let flat = mesh_of(&[[0.0; 3], [1.0, 0.0, 0.0]], &[[0, 1, 1]]);
        let broken = mesh_of(&[[0.0; 3]], &[[0, 0, 1]]);
        let [tens, threes] = [10, 3].map(|side_px| Layout::Squares { side_px });
        for (mesh, layout, side_px, expected) in [
            (flat, Layout::Boxes, 512, "1 faces without area"),
            (broken, Layout::Boxes, 512, "face 0 names vertex 1"),
            (cube(), Layout::Boxes, 20_000, "20000 x 20000"),
            // Too small even for boxes.
            (rough([60, 30], 0.01), Layout::Boxes, 8, "do not fit a texture of 8 x 8"),
            (sphere(1.0, 2), tens, 60, "64 charts do not fit a texture of 60 x 60"),
            (sphere(1.0, 2), threes, 512, "squares of 3 texels"),
        ] {
            let options = AtlasOptions { layout, side_px, ..OPTIONS };
            let error = make_atlas(&mesh, &options).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_side_follows_the_views() {
        assert_eq!(texture_side_px(&[1e6; 4], 8192), 2832);
        assert_eq!(texture_side_px(&[1e6; 400], 8192), 8192);
        assert_eq!(texture_side_px(&[], 8192), 64);
    }

    /// Prints the figures of a million triangles: `cargo test --release -p splat-mesh -- --ignored a_million_faces
    /// --nocapture`.
    #[test]
    #[ignore = "takes a minute"]
    fn a_million_faces_are_laid_out() {
        let edge = std::f64::consts::TAU / 447.0;
        let mesh = rough([1118, 447], 0.5 * edge);
        for (layout, side_px) in
            [(Layout::Charts, 4096), (Layout::Boxes, 4096), (Layout::Squares { side_px: 8 }, 8192)]
        {
            let started = std::time::Instant::now();
            let options = AtlasOptions { layout, side_px, padding_px: 2 };
            let MadeAtlas { atlas, boxed } = make_atlas(&mesh, &options).unwrap();
            assert_eq!(boxed, 0);
            let seconds = started.elapsed().as_secs_f64();
            let check = AtlasCheck::of(&atlas);
            println!(
                "{layout:?}: {seconds:.1} s, {} charts, {:.2} places a vertex, {:.0} % claimed, density {:?}",
                atlas.charts,
                atlas.places_px.len() as f64 / mesh.vertices.len() as f64,
                100.0 * check.claimed_share,
                densities(&mesh, &atlas)
            );
            assert!(check.is_sound());
        }
    }

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
            assert!(most <= MAX_FACES, "{most}");
            let few = (mesh.faces.len() / MIN_CHARTS).max(MIN_BOUND);
            assert!(most <= few, "{most} of {}", mesh.faces.len());
            assert!(charts.iter().all(|faces| surface.patches(faces).len() == 1));
            let mut all = charts.concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..to_u32(mesh.faces.len())));
        }
        assert_eq!(grow(&Surface::of(&cube())).len(), 6);
    }
}

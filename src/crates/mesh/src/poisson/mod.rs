//! Screened Poisson reconstruction (Kazhdan and Hoppe 2013) on sparse bricks.
//!
//! A function x rises by one from inside to outside. Its gradient follows the points' normals, spread over the area of
//! each point; the surface is where x has its value at the points. Levels of 2^l cells along the cube of the surface,
//! l = 4 to the depth, are solved one after another with trilinear hats: the coarsest everywhere, the others only near
//! the points, each starting from the coarser one. Inside the modules, levels count the cells of the domain, which is
//! twice as wide.

mod equations;

use std::collections::HashMap;

use equations::{
    Band, COARSEST, NodeField, Operator, Pyramid, Reader, Screen, Solved, SortedPoints, WIDER,
    cube_span, fill_others, within_cube,
};
use rayon::prelude::*;

use crate::bricks::{self, BLOCK_NODES, BRICK_NODES, Block, Bricks, SIDE, block_index};
use crate::cubes::{ExtractError, extract};
use crate::mesh::{Mesh, Vec3, drop_unused, keep_rows};
use crate::narrow::{floor_u32, to_f32, to_f32s, to_index, to_u32};
use crate::points::{OrientedPoints, PointsError, same_lengths};
use crate::{Stopped, Watch};

pub use crate::cubes::Cube;
pub use equations::{DEEPEST, LevelReport, SHALLOWEST};

/// Least number of points of a surface.
pub const FEWEST_POINTS: usize = 1000;

/// Side of the surface's cube over the longest side of the points' box.
pub const CUBE_FACTOR: f64 = 1.1;

/// Levels between the depth and that of the density.
const DENSITY_ABOVE: u32 = 2;

const COARSEST_STEPS: usize = 200;

const STEPS: usize = 20;

/// Options of [`reconstruct`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoissonSettings {
    /// Level of the finest cells.
    pub depth: Depth,
    /// Weight of passing near the points against following their normals.
    pub alpha: f64,
    /// Largest number of bricks of the finest level, including those into which the surface is followed.
    pub bricks: usize,
}

/// Level of the finest cells: 2^level of them along the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Finest level whose occupied cells hold 1.5 points on average, at most this.
    UpTo(u32),
    /// Exactly this level.
    Exactly(u32),
}

impl Default for PoissonSettings {
    fn default() -> Self {
        Self { depth: Depth::UpTo(10), alpha: 4.0, bricks: usize::MAX }
    }
}

/// A surface with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconstruction {
    /// The surface, world space, with colours.
    pub mesh: Mesh,
    /// Points per cell of the finest level around each vertex; 0 without any.
    pub densities: Vec<f32>,
    /// Level of the finest cells.
    pub depth: u32,
    /// Side of the finest cells, scene units.
    pub cell: f64,
    /// Area of all points, scene units squared.
    pub area: f64,
    /// Value of the function on the surface.
    pub iso: f64,
    /// Report of each level, the coarsest first.
    pub levels: Vec<LevelReport>,
    /// True if the surface reached the granted number of bricks, and so has a border.
    pub is_cut: bool,
    /// True if the surface reaches the cube, and ends there.
    pub meets_cube: bool,
}

/// Reconstructs the surface of at least [`FEWEST_POINTS`] finite points with normals
/// ([`checked`](crate::points::checked)). It is closed and manifold, unless it meets the cube or is cut. Its bits do
/// not depend on the number of threads.
pub fn reconstruct(
    points: &OrientedPoints,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<Reconstruction, PoissonError> {
    same_lengths(points)?;
    if points.len() < FEWEST_POINTS {
        return Err(PointsError::TooFew { found: points.len(), wanted: FEWEST_POINTS }.into());
    }
    let domain = domain_of(points)?;
    watch.report("points", 0.0)?;
    let points = SortedPoints::new(points, domain);
    let level = level_of(settings.depth, &points)?;
    // Points at the nodes of a level.
    let density = NodeField::of_points(&points, level - DENSITY_ABOVE, |_| [1.0]);
    let areas = areas_of(&points, &density);
    watch.report("points", 1.0)?;

    let (pyramid, finest, levels) = solve(&points, &areas, level, settings, watch)?;
    let iso = level_at_points(&points, &areas, &finest, level);
    let followed = follow(&pyramid, finest, level, to_f32(iso), settings.bricks, watch)?;
    drop(pyramid);
    let place = |nodes: Vec3| domain.world(nodes, level);
    let surface = extract(&followed.bricks, &followed.values, to_f32(iso), watch)?;
    let mut mesh = surface.mesh(&followed.bricks, &place);
    let Followed { is_cut, meets_cube, .. } = followed;
    if mesh.faces.is_empty() {
        return Err(PoissonError::NoSurface { points: points.len() });
    }
    let units: Vec<Vec3> = mesh.vertices.par_iter().map(|&vertex| domain.unit(vertex)).collect();
    let densities = points_a_cell(&density, &units, level);
    watch.report("colours", 0.0)?;
    mesh.colors = colors_at(&points, &areas, &units, level - 1);
    watch.report("colours", 1.0)?;
    let area = areas.iter().map(|&a| f64::from(a)).sum::<f64>() * domain.side * domain.side;
    let cell = domain.side / f64::from(1_u32 << level);
    let depth = level - WIDER;
    Ok(Reconstruction { mesh, densities, depth, cell, area, iso, levels, is_cut, meets_cube })
}

/// Returns the depth that [`reconstruct`] takes for these points, so that they can be prepared for it.
pub fn depth_for(points: &OrientedPoints, depth: Depth) -> Result<u32, PoissonError> {
    Ok(level_of(depth, &SortedPoints::new(points, domain_of(points)?))? - WIDER)
}

fn domain_of(points: &OrientedPoints) -> Result<Cube, PoissonError> {
    Cube::around(&points.places, CUBE_FACTOR * f64::from(1_u32 << WIDER))
        .ok_or(PoissonError::NoExtent { points: points.len() })
}

fn level_of(depth: Depth, points: &SortedPoints) -> Result<u32, PoissonError> {
    let (Depth::UpTo(wanted) | Depth::Exactly(wanted)) = depth;
    if !(SHALLOWEST..=DEEPEST).contains(&wanted) {
        return Err(PoissonError::Depth { depth: wanted, deepest: DEEPEST });
    }
    Ok(match depth {
        Depth::UpTo(deepest) => points.finest_full(deepest + WIDER),
        Depth::Exactly(depth) => depth + WIDER,
    })
}

/// Solves the equations of all levels. Returns the levels below the finest, the finest, and their reports.
fn solve(
    points: &SortedPoints,
    areas: &[f32],
    finest: u32,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<(Pyramid, Solved, Vec<LevelReport>), PoissonError> {
    let mut band = band_of(points, finest);
    if band.bricks.len() > settings.bricks {
        let (bricks, granted) = (band.bricks.len(), settings.bricks);
        let mut coarser = (COARSEST..finest).rev();
        let fits = coarser.find(|&level| band_of(points, level).bricks.len() <= granted);
        let (depth, fits) = (finest - WIDER, fits.unwrap_or(COARSEST) - WIDER);
        return Err(PoissonError::TooManyBricks { depth, bricks, granted, fits });
    }
    watch.report("equations", 0.0)?;
    let mut b = equations::finest(points, areas, &band, finest);
    // From the finest level to the coarsest, because each right side is computed from the finer one.
    let mut levels = Vec::new();
    for level in (COARSEST..finest).rev() {
        watch.check()?;
        let coarse = band_of(points, level);
        let coarse_b = equations::restricted(&coarse, &band.bricks, &b);
        levels.push((level + 1, band, b));
        (band, b) = (coarse, coarse_b);
    }
    levels.push((COARSEST, band, b));
    watch.report("equations", 1.0)?;

    let mut pyramid = Pyramid::default();
    let mut reports: Vec<LevelReport> = Vec::new();
    while let Some((level, band, mut b)) = levels.pop() {
        watch.report("solve", f64::from(level - COARSEST) / f64::from(finest - COARSEST + 1))?;
        let screen = Screen::new(points, areas, &band, level, settings.alpha);
        let mut x = pyramid.start(level, &band);
        let steps = if level == COARSEST { COARSEST_STEPS } else { STEPS };
        let operator = Operator { level, band: &band, screen: &screen };
        reports.push(operator.solve(&mut x, &mut b, steps, watch)?);
        pyramid.levels.push(Solved { bricks: band.bricks, x });
    }
    watch.report("solve", 1.0)?;
    let no_levels = Solved { bricks: Bricks::default(), x: Vec::new() };
    let solved = pyramid.levels.pop().unwrap_or(no_levels);
    Ok((pyramid, solved, reports))
}

fn band_of(points: &SortedPoints, level: u32) -> Band {
    if level == COARSEST { Band::dense(points, level) } else { Band::near(points, level) }
}

/// Returns the mean of the function at the points, weighted by area.
fn level_at_points(points: &SortedPoints, areas: &[f32], finest: &Solved, level: u32) -> f64 {
    let of_part = |(places, areas): (&[[f32; 3]], &[f32])| {
        let mut reader = Reader::new(level, &finest.bricks, [finest.x.as_slice()]);
        places.iter().zip(areas).fold([0.0; 2], |[sum, whole], (&place, &area)| {
            let [x] = reader.at(points.cube.unit(place));
            [sum + f64::from(area) * x, whole + f64::from(area)]
        })
    };
    let places = points.points.places.par_chunks(POINTS_A_PART);
    let parts = places.zip(areas.par_chunks(POINTS_A_PART)).map(of_part);
    let parts: Vec<[f64; 2]> = parts.collect();
    let [sum, whole] = parts.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    sum / whole
}

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum PoissonError {
    #[error(transparent)]
    Points(#[from] PointsError),
    #[error("the {points} points lie at one place. Check the model's places")]
    NoExtent { points: usize },
    #[error("a depth of {depth} is not offered. Give --poisson-depth from 4 to {deepest}")]
    Depth { depth: u32, deepest: u32 },
    #[error(
        "level {level} has a residual of {residual:.1e} after {steps} steps, and .001 is needed. Lower --poisson-depth, or look for points far from the others"
    )]
    NotConverged { level: u32, steps: usize, residual: f64 },
    #[error(
        "depth {depth} takes {bricks} bricks and the plan grants {granted}. Use --poisson-depth {fits}"
    )]
    TooManyBricks { depth: u32, bricks: usize, granted: usize, fits: u32 },
    #[error("no surface passes the {points} points. Check their normals")]
    NoSurface { points: usize },
    #[error(transparent)]
    Extract(#[from] ExtractError),
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Returns the colours of the points around each place: (sum a phi colour) / (sum a phi) on level `finest`, or on the
/// finest coarser level that has points near the place.
fn colors_at(points: &SortedPoints, areas: &[f32], units: &[Vec3], finest: u32) -> Vec<[f32; 3]> {
    let mut colors: Vec<Option<[f32; 3]>> = vec![None; units.len()];
    for level in (0..=finest).rev() {
        if colors.par_iter().all(Option::is_some) {
            break;
        }
        // Areas are shares of the cube's face. A cell's face has area 1 here.
        let scale = 4.0_f64.powi(level.cast_signed());
        let field = NodeField::<4>::of_points(points, level, |row| {
            let area = f64::from(areas[row]) * scale;
            let [r, g, b] = points.points.colors[row].map(f64::from);
            [area * r, area * g, area * b, area]
        });
        let places = colors.par_iter_mut().zip(units).with_min_len(POINTS_A_PART);
        places.for_each_init(
            || field.reader(),
            |reader, (color, &unit)| {
                if color.is_none() {
                    let [r, g, b, area] = reader.at(unit);
                    *color = (area > MIN_AREA)
                        .then(|| to_f32s([r, g, b].map(|c| (c / area).clamp(0.0, 1.0))));
                }
            },
        );
    }
    colors.into_iter().map(Option::unwrap_or_default).collect()
}

/// Area of points around a vertex, in cell faces, below which rounding could show.
const MIN_AREA: f64 = 1e-4;

// The density `c_j = sum over points of phi_j(p)`. Over a surface with rho points per area, `sum_j phi_j(p) c_j = rho
// h² 2/3` on average: the hats' products integrate to h² in the surface, and to 2/3 across it, averaged over the
// positions of the surface between two nodes.

/// Mean of the sum of the squares of the hats at a place, along one axis.
const ACROSS: f64 = 2.0 / 3.0;

/// Points of a part of a parallel loop over points.
const POINTS_A_PART: usize = 4096;

/// Returns the area of each point, in units of the cube's face: 1 / rho.
fn areas_of(points: &SortedPoints, density: &NodeField<1>) -> Vec<f32> {
    let cells_a_face = 4.0_f64.powi(density.level.cast_signed());
    let places = points.points.places.par_iter().with_min_len(POINTS_A_PART);
    let area = |reader: &mut Reader<'_, 1>, &place: &[f32; 3]| {
        let [density] = reader.at(points.cube.unit(place));
        to_f32(ACROSS / (density * cells_a_face))
    };
    places.map_init(|| density.reader(), area).collect()
}

/// Returns the points per cell of level `depth` that the surface crosses squarely: rho h², at places in units of the
/// cube.
fn points_a_cell(density: &NodeField<1>, units: &[Vec3], depth: u32) -> Vec<f32> {
    let smaller = 4.0_f64.powi(density.level.cast_signed() - depth.cast_signed());
    let found = |reader: &mut Reader<'_, 1>, &unit: &Vec3| {
        let [density] = reader.at(unit);
        to_f32(density / ACROSS * smaller)
    };
    units.par_iter().with_min_len(POINTS_A_PART).map_init(|| density.reader(), found).collect()
}

/// Density below which vertices are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trim {
    /// Keeps all vertices: the surface stays closed.
    Nothing,
    /// Share of the vertices to drop, those of the lowest density; 0 to 1.
    Quantile(f64),
    /// Least number of points per cell of a vertex that stays.
    PointsACell(f64),
}

/// Trimming dropped the whole surface.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error(
    "cutting off what no points support left none of {vertices} vertices and {faces} faces. Give a smaller --density-trim or --density-min, or 0"
)]
pub struct NothingLeft {
    /// Vertices before.
    pub vertices: usize,
    /// Faces before.
    pub faces: usize,
}

/// Drops the vertices below the trim's density, `densities` per vertex, faces that touch them, and then vertices
/// without a face. Returns the number of dropped faces.
pub fn trim(mesh: &mut Mesh, densities: &mut Vec<f32>, trim: Trim) -> Result<usize, NothingLeft> {
    let least = match trim {
        Trim::Nothing => return Ok(0),
        Trim::PointsACell(least) => least,
        Trim::Quantile(share) => quantile(densities, share),
    };
    let goes: Vec<bool> = densities.iter().map(|&density| f64::from(density) < least).collect();
    cut_off(mesh, densities, &goes)
}

/// Drops the vertices that `goes` marks, faces that touch them, and then vertices without a face. Returns the number
/// of dropped faces. `densities` and `goes` have a value per vertex.
pub fn cut_off(
    mesh: &mut Mesh,
    densities: &mut Vec<f32>,
    goes: &[bool],
) -> Result<usize, NothingLeft> {
    let before = NothingLeft { vertices: mesh.vertices.len(), faces: mesh.faces.len() };
    mesh.faces.retain(|face| !face.iter().any(|&vertex| goes[vertex as usize]));
    if mesh.faces.is_empty() {
        return Err(before);
    }
    let used = drop_unused(mesh);
    keep_rows(densities, &used);
    Ok(before.faces - mesh.faces.len())
}

/// Returns the value below which this share of the values lies.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let below = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
    let index = floor_u32(below) as usize;
    sorted.get(index).map_or(f64::INFINITY, |&value| f64::from(value))
}

// A cell's face that the surface passes belongs to two cells. If these lie in two bricks, both bricks must exist, or
// the surface would end. So a sign change on a brick's face adds its neighbour, with values of the finest level that
// has them.

/// Bricks that the surface passes, also where there are no points.
struct Followed {
    bricks: Bricks,
    /// `[bricks, 512]`; NaN outside the cube.
    values: Vec<f32>,
    /// True if more bricks were needed than granted, so that the surface ends somewhere.
    is_cut: bool,
    /// True if the surface reaches the cube, and ends there.
    meets_cube: bool,
}

struct GrowingBricks<'a> {
    pyramid: &'a Pyramid,
    level: u32,
    iso: f32,
    ids: HashMap<u64, u32>,
    keys: Vec<u64>,
    values: Vec<f32>,
}

/// Returns the bricks of the finest level, and those into which the surface at `iso` leaves them; up to `granted`.
fn follow(
    pyramid: &Pyramid,
    mut finest: Solved,
    level: u32,
    iso: f32,
    granted: usize,
    watch: &Watch<'_>,
) -> Result<Followed, Stopped> {
    finest.x.par_chunks_mut(BRICK_NODES).zip(finest.bricks.keys()).for_each(|(values, &key)| {
        hide_outside(bricks::cell(key), level, values);
    });
    let keys = finest.bricks.keys().to_vec();
    let ids = keys.iter().enumerate().map(|(id, &key)| (key, to_u32(id))).collect();
    let mut found = GrowingBricks { pyramid, level, iso, ids, keys, values: finest.x };
    let mut fresh = 0..found.keys.len();
    let (mut is_cut, mut meets_cube) = (false, false);
    while !fresh.is_empty() && !is_cut {
        watch.check()?;
        let called_by = |block: &mut Block, id| found.called_by(id, block);
        let calls = fresh.clone().into_par_iter().map_init(|| [0.0; BLOCK_NODES], called_by);
        let calls: Vec<(Vec<u64>, bool)> = calls.collect();
        meets_cube |= calls.iter().any(|(_, meets)| *meets);
        let mut called: Vec<u64> = calls.into_iter().flat_map(|(called, _)| called).collect();
        called.par_sort_unstable();
        called.dedup();
        fresh = found.keys.len()..found.keys.len() + called.len();
        is_cut = fresh.end > granted;
        if is_cut {
            called.truncate(granted.saturating_sub(fresh.start));
        }
        found.add(&called);
    }
    let (bricks, values) = found.finish();
    Ok(Followed { bricks, values, is_cut, meets_cube })
}

impl GrowingBricks<'_> {
    fn place(&self, id: usize) -> [i32; 3] {
        bricks::cell(self.keys[id]).map(u32::cast_signed)
    }

    /// Returns the missing bricks that the surface enters from this brick and, if it passes the brick at all, those
    /// that hold the upper corners of its cells. Also returns true if the surface meets the cube here.
    fn called_by(&self, id: usize, block: &mut Block) -> (Vec<u64>, bool) {
        let place = self.place(id);
        if !self.holds_cube(place) {
            return (Vec::new(), false);
        }
        self.gather(id, block);
        let mut called = Vec::new();
        let mut meets_cube = false;
        let mut call = |offset: [i32; 3]| {
            let there: [i32; 3] = std::array::from_fn(|a| place[a] + offset[a]);
            if self.holds_cube(there) {
                let key = bricks::key(there.map(i32::unsigned_abs));
                if !self.ids.contains_key(&key) {
                    called.push(key);
                }
            }
        };
        // The cells of a brick use its nodes 0 to 8, which are 1 to 9 in the block.
        if !self.passes(block, [[1, 9]; 3]) {
            return (called, false);
        }
        let faces = cube_span(self.level).map(u32::cast_signed);
        for axis in 0..3 {
            for (side, at) in [(-1, 1), (1, 9)] {
                let mut span = [[1, 9]; 3];
                span[axis] = [at, at];
                if self.passes(block, span) {
                    let mut offset = [0; 3];
                    offset[axis] = side;
                    call(offset);
                    meets_cube |= at == 1 && faces.contains(&(8 * place[axis]));
                }
            }
        }
        for upper in 1..8 {
            call([upper & 1, upper >> 1 & 1, upper >> 2]);
        }
        (called, meets_cube)
    }

    /// True if known nodes of this part of a block lie on both sides of the surface.
    fn passes(&self, block: &Block, span: [[usize; 2]; 3]) -> bool {
        let (mut inside, mut outside) = (false, false);
        for z in span[2][0]..=span[2][1] {
            for y in span[1][0]..=span[1][1] {
                for x in span[0][0]..=span[0][1] {
                    let value = block[block_index(x, y, z)];
                    inside |= value < self.iso;
                    outside |= value >= self.iso;
                }
            }
        }
        inside && outside
    }

    /// Gathers the brick's nodes and those behind it.
    fn gather(&self, id: usize, block: &mut Block) {
        let place = self.place(id);
        let mut fetched = [0.0; BRICK_NODES];
        for upper in 0..8 {
            let offset = [upper & 1, upper >> 1 & 1, upper >> 2];
            let there: [i32; 3] = std::array::from_fn(|a| place[a] + offset[a]);
            let values = match self.ids.get(&bricks::key(there.map(i32::unsigned_abs))) {
                Some(&id) => &self.values[id as usize * BRICK_NODES..][..BRICK_NODES],
                None => {
                    self.fill(there, &mut fetched);
                    &fetched
                }
            };
            let count = offset.map(|o| if o == 1 { 1 } else { SIDE });
            let start = offset.map(|o| to_index(8 * o) + 1);
            for z in 0..count[2] {
                for y in 0..count[1] {
                    let to = block_index(start[0], start[1] + y, start[2] + z);
                    let from = (z * SIDE + y) * SIDE;
                    block[to..to + count[0]].copy_from_slice(&values[from..from + count[0]]);
                }
            }
        }
    }

    /// True if a brick has nodes of the surface's cube.
    fn holds_cube(&self, place: [i32; 3]) -> bool {
        place.iter().all(|&p| p >= 0)
            && within_cube(place.map(i32::unsigned_abs), self.level).iter().any(|&word| word != 0)
    }

    /// Computes the values of a missing brick; NaN outside the cube.
    fn fill(&self, place: [i32; 3], values: &mut [f32]) {
        if self.level > COARSEST {
            self.pyramid.prolonged(self.level, place, values);
        }
        hide_outside(place.map(i32::unsigned_abs), self.level, values);
    }

    fn add(&mut self, called: &[u64]) {
        let start = self.values.len();
        self.values.resize(start + called.len() * BRICK_NODES, 0.0);
        let mut added = self.values.split_off(start);
        added.par_chunks_mut(BRICK_NODES).zip(called).for_each(|(values, &key)| {
            self.fill(bricks::cell(key).map(u32::cast_signed), values);
        });
        self.values.append(&mut added);
        for &key in called {
            self.ids.insert(key, to_u32(self.keys.len()));
            self.keys.push(key);
        }
    }

    fn finish(self) -> (Bricks, Vec<f32>) {
        let bricks = Bricks::of_keys(self.keys.clone());
        let mut values = vec![0.0; bricks.len() * BRICK_NODES];
        values.par_chunks_mut(BRICK_NODES).enumerate().for_each(|(brick, values)| {
            let id = self.ids.get(&bricks.keys()[brick]).map_or(0, |&id| id as usize);
            values.copy_from_slice(&self.values[id * BRICK_NODES..][..BRICK_NODES]);
        });
        (bricks, values)
    }
}

/// Makes the values of a brick's nodes outside the surface's cube NaN.
fn hide_outside(place: [u32; 3], level: u32, values: &mut [f32]) {
    fill_others(&within_cube(place, level), values, f32::NAN);
}

#[cfg(test)]
mod tests {
    use std::f64::consts::PI;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::known_meshes::{
        TORUS_VOLUME, bad_edges, node_places, same_on_any_threads, sphere_points, torus_distance,
        torus_points, unwatched, volume,
    };
    use crate::narrow::to_f64s;
    use crate::place::length;
    use crate::report::MeshReport;

    fn made(points: &OrientedPoints, depth: u32) -> Result<Reconstruction, PoissonError> {
        let settings = PoissonSettings { depth: Depth::Exactly(depth), ..Default::default() };
        reconstruct(points, &settings, &unwatched())
    }

    fn open_edges(mesh: &Mesh) -> usize {
        MeshReport::of(mesh).unwrap().boundary_edges
    }

    /// Returns V - E + F of a closed mesh.
    fn euler_number(mesh: &Mesh) -> i64 {
        mesh.vertices.len() as i64 - mesh.faces.len() as i64 / 2
    }

    #[test]
    fn a_torus_is_closed_and_as_near_as_its_noise_allows() {
        let made = made(&torus_points(1_000_000, [0.003, 0.11]), 8).unwrap();
        let mesh = &made.mesh;
        let distances = mesh.vertices.iter().map(|&v| torus_distance(to_f64s(v)).abs());
        let mean = distances.sum::<f64>() / mesh.vertices.len() as f64;
        // The reference reaches .00034 on points like these.
        assert!(mean < 0.0005, "{mean}");
        assert_eq!(bad_edges(mesh), 0);
        assert_eq!(euler_number(mesh), 0);
        let share = volume(mesh) / TORUS_VOLUME;
        assert!((share - 1.0).abs() < 0.001, "{share}");
        // 4 pi² R r; the mean of sum phi² over how a surface lies between nodes is exact to a percent.
        assert!((made.area / (4.0 * PI * PI * 0.4) - 1.0).abs() < 0.01, "{}", made.area);
        // Twenty steps a level are enough.
        assert!(made.levels.iter().all(|level| level.residual < 1e-4));
        // Points per cell: count / area times the cell's face; the seam of cells blurs it by a few percent.
        let expected = 1e6 / 15.791 * made.cell * made.cell;
        let mean =
            made.densities.iter().map(|&d| f64::from(d)).sum::<f64>() / made.densities.len() as f64;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} against {expected}");
    }

    #[test]
    fn vertices_have_the_colours_of_the_points_around() {
        let made = made(&sphere_points(30_000, [0.0, 0.0], |_| true), 6).unwrap();
        for (vertex, color) in made.mesh.vertices.iter().zip(&made.mesh.colors) {
            for axis in 0..3 {
                // Half the normal plus a half; a cell of level 5 is .07 wide.
                assert!((0.5 + 0.5 * vertex[axis] - color[axis]).abs() < 0.04);
            }
        }
    }

    #[test]
    fn the_bits_are_the_same_for_any_number_of_threads() {
        let points = torus_points(10_000, [0.003, 0.11]);
        same_on_any_threads(|| made(&points, 6).unwrap());
    }

    #[test]
    fn a_hole_of_a_fifth_is_closed_and_opens_when_trimmed() {
        // A cap of height .4 has a fifth of the unit sphere's area.
        let points = sphere_points(25_000, [0.002, 0.05], |n| n[2] < 0.6);
        let mut made = made(&points, 6).unwrap();
        assert_eq!(bad_edges(&made.mesh), 0);
        assert_eq!(euler_number(&made.mesh), 2);
        let before = made.mesh.faces.len();
        let trimmed = trim(&mut made.mesh, &mut made.densities, Trim::PointsACell(1.0)).unwrap();
        assert_eq!(made.mesh.faces.len() + trimmed, before);
        assert!(open_edges(&made.mesh) > 50);
        assert_eq!(made.mesh.vertices.len(), made.densities.len());
        assert_eq!(made.mesh.vertices.len(), made.mesh.colors.len());
        // The rest is the sphere; two cells of the density's level beyond the rim may stay.
        let reach = 0.6 + 8.0 * made.cell;
        assert!(made.mesh.vertices.iter().all(|v| f64::from(v[2]) < reach));
        assert!(made.mesh.vertices.iter().any(|v| f64::from(v[2]) > 0.55));
    }

    #[test]
    fn half_a_sphere_is_followed_shut() {
        for depth in [5, 6] {
            let made = made(&sphere_points(20_000, [0.0, 0.0], |n| n[2] > 0.0), depth).unwrap();
            assert!(!made.is_cut);
            assert_eq!(bad_edges(&made.mesh), 0, "depth {depth}");
            assert_eq!(euler_number(&made.mesh), 2, "depth {depth}");
            // The dome is where the points are.
            for vertex in made.mesh.vertices.iter().filter(|v| v[2] > 0.2) {
                assert!((length(to_f64s(*vertex)) - 1.0).abs() < 0.5 * made.cell, "{vertex:?}");
            }
        }
    }

    #[test]
    fn a_grant_of_bricks_cuts_the_surface() {
        let points = sphere_points(15_000, [0.0, 0.0], |n| n[2] > 0.0);
        let full = made(&points, 6).unwrap();
        let of_points = full.levels.last().unwrap().bricks;
        let exactly = |bricks| PoissonSettings { depth: Depth::Exactly(6), bricks, alpha: 4.0 };
        let cut = reconstruct(&points, &exactly(of_points + 3), &unwatched()).unwrap();
        assert!(cut.is_cut);
        assert!(open_edges(&cut.mesh) > 0);
        let refused = reconstruct(&points, &exactly(of_points - 1), &unwatched()).unwrap_err();
        let (bricks, granted) = (of_points, of_points - 1);
        let found = PoissonError::TooManyBricks { depth: 6, bricks, granted, fits: 5 };
        assert_eq!(refused, found);
    }

    #[test]
    fn the_depth_follows_the_points() {
        let depth = |count: usize| {
            let points = sphere_points(count, [0.0, 0.0], |_| true);
            reconstruct(&points, &PoissonSettings::default(), &unwatched()).unwrap().depth
        };
        // A level more has four times the cells.
        assert_eq!(depth(5_000) + 1, depth(20_000));
        assert!((4..7).contains(&depth(1000)));
    }

    #[test]
    fn a_room_seen_from_inside_is_closed_and_looks_inwards() {
        let mut points = sphere_points(30_000, [0.0, 0.0], |_| true);
        points.normals.iter_mut().for_each(|n| *n = n.map(|c| -c));
        let made = made(&points, 6).unwrap();
        assert_eq!(bad_edges(&made.mesh), 0);
        // The faces look at the middle, so that the volume counts as negative.
        assert!((volume(&made.mesh) / (-4.0 / 3.0 * PI) - 1.0).abs() < 0.01);
    }

    #[test]
    fn points_without_a_surface_are_refused() {
        let few = torus_points(37, [0.0, 0.0]);
        let message = made(&few, 6).unwrap_err().to_string();
        assert!(message.starts_with("no surface: 37 points of 1000"), "{message}");
        let mut same = torus_points(2000, [0.0, 0.0]);
        same.places.fill([1.0, 2.0, 3.0]);
        assert_eq!(made(&same, 6), Err(PoissonError::NoExtent { points: 2000 }));
        let mut uneven = torus_points(2000, [0.0, 0.0]);
        uneven.colors.pop();
        assert!(matches!(made(&uneven, 6), Err(PoissonError::Points(PointsError::Lengths { .. }))));
        let mut broken = torus_points(2000, [0.0, 0.0]);
        broken.places[11] = [f32::NAN; 3];
        broken.normals[12] = [f32::INFINITY; 3];
        assert!(matches!(made(&broken, 6), Err(PoissonError::NotConverged { .. })));
        let points = torus_points(2000, [0.0, 0.0]);
        for depth in [3, 17] {
            assert_eq!(made(&points, depth), Err(PoissonError::Depth { depth, deepest: DEEPEST }));
        }
        let stop = AtomicBool::new(true);
        let watch = Watch { stop: &stop, ..unwatched() };
        let stopped = reconstruct(&points, &PoissonSettings::default(), &watch);
        assert_eq!(stopped, Err(PoissonError::Stopped(Stopped)));
    }

    #[test]
    fn few_points_in_any_shape_give_a_surface_or_an_error() {
        // A line, a plane and a cloud: the result is closed or a named error.
        let mut line = torus_points(1500, [0.0, 0.0]);
        line.places.iter_mut().for_each(|p| *p = [p[0], 0.0, 0.0]);
        let mut plane = torus_points(1500, [0.0, 0.0]);
        plane.places.iter_mut().for_each(|p| p[2] = 0.0);
        plane.normals.fill([0.0, 0.0, 1.0]);
        let mut cloud = torus_points(1500, [0.5, 9.0]);
        cloud.places[7] = [40.0, 0.0, 0.0];
        for points in [line, plane, cloud] {
            for depth in [4, 5, 7] {
                if let Ok(made) = made(&points, depth) {
                    assert!(made.mesh.vertices.as_flattened().iter().all(|x| x.is_finite()));
                    assert_eq!(made.mesh.vertices.len(), made.mesh.colors.len());
                }
            }
        }
    }

    #[test]
    fn a_sheet_runs_to_the_cube_and_is_reported_open() {
        let mut points = torus_points(20_000, [0.0, 0.0]);
        for (place, normal) in points.places.iter_mut().zip(&mut points.normals) {
            let wide = place[0].hypot(place[1]);
            *place = [place[0] / wide * (wide - 0.6), place[1] / wide * (wide - 0.6), 0.1];
            *normal = [0.0, 0.0, 1.0];
        }
        let made = made(&points, 6).unwrap();
        assert!(made.meets_cube && !made.is_cut);
        assert!(open_edges(&made.mesh) > 0);
        let reach = 1.1 * 0.8 + 0.01;
        let sheet = made.mesh.vertices.iter().filter(|v| v[0].hypot(v[1]) < 0.75);
        assert!(sheet.clone().count() > 1000);
        assert!(sheet.clone().all(|v| (f64::from(v[2]) - 0.1).abs() < 0.2 * made.cell));
        assert!(made.mesh.vertices.iter().flatten().all(|x| f64::from(x.abs()) < reach));
    }

    /// Applies the left side to a function of the nodes of the coarsest level.
    fn applied(
        points: &SortedPoints,
        areas: &[f32],
        alpha: f64,
        f: impl Fn([f64; 3]) -> f64,
    ) -> (Bricks, Vec<f32>) {
        let band = Band::dense(points, COARSEST);
        let screen = Screen::new(points, areas, &band, COARSEST, alpha);
        let value = |at: [usize; 3]| to_f32(f(at.map(|a| a as f64)));
        let mut x: Vec<f32> = node_places(&band.bricks).map(value).collect();
        let of_bricks = x.chunks_mut(512).zip(&band.unknown);
        of_bricks.for_each(|(x, unknown)| fill_others(unknown, x, 0.0));
        let operator = Operator { level: COARSEST, band: &band, screen: &screen };
        let mut out = vec![0.0; x.len()];
        let mut block = [0.0; BLOCK_NODES];
        for (brick, out) in out.chunks_mut(512).enumerate() {
            band.bricks.gather(&x, brick, 0.0, &mut block);
            operator.apply(brick, &block, out);
        }
        (band.bricks, out)
    }

    fn sorted(points: &OrientedPoints) -> SortedPoints {
        SortedPoints::new(points, Cube::around(&points.places, 2.2).unwrap())
    }

    #[test]
    fn the_left_side_is_zero_for_a_constant_and_linear_inside() {
        let points = sorted(&torus_points(1000, [0.0, 0.0]));
        let areas = vec![1e-4; points.len()];
        let (_, out) = applied(&points, &areas, 0.0, |_| 1.0);
        // Rounding of f32 in sums of 27 products of up to 3: also at the border, which is free.
        let most = out.iter().fold(0.0, |most: f32, y| most.max(y.abs()));
        assert!(most < 5e-6 && out.iter().all(|y| y.is_finite()), "{most}");
        let (bricks, out) = applied(&points, &areas, 0.0, |at| at[0] - 2.0 * at[1] + 0.5 * at[2]);
        for (at, y) in node_places(&bricks).zip(&out) {
            // Values of up to 80 in f32, a dozen roundings each.
            assert!(!at.iter().all(|a| (1..32).contains(a)) || y.abs() < 5e-4, "{at:?}");
        }
    }

    #[test]
    fn the_points_part_of_the_left_side_is_their_area_times_the_value() {
        let points = sorted(&torus_points(5000, [0.0, 0.0]));
        let areas: Vec<f32> = (0..points.len()).map(|row| 1e-4 * (1 + row % 7) as f32).collect();
        let (_, out) = applied(&points, &areas, 4.0, |at| 1.0 + at[0]);
        // Hats sum to one, so that the sum over all nodes is alpha/h² sum_c A_c x(c), and x is linear.
        let found: f64 = out.iter().map(|&y| f64::from(y)).sum();
        let cells = f64::from(1_u32 << COARSEST);
        let value = |row: usize| 1.0 + points.cube.unit(points.points.places[row])[0] * cells;
        let wanted: f64 = (0..points.len()).map(|row| f64::from(areas[row]) * value(row)).sum();
        assert!((found / (4.0 * cells * cells * wanted) - 1.0).abs() < 1e-5);
    }

    #[test]
    fn a_restricted_right_side_is_that_of_the_coarser_hats() {
        let points = sorted(&torus_points(3000, [0.01, 0.3]));
        let areas: Vec<f32> = (0..points.len()).map(|row| 1e-4 * (1 + row % 5) as f32).collect();
        let (fine, coarse) = (Band::near(&points, COARSEST + 1), Band::dense(&points, COARSEST));
        let fine_b = equations::finest(&points, &areas, &fine, COARSEST + 1);
        let b = equations::restricted(&coarse, &fine.bricks, &fine_b);
        // The integral of grad phi · V over all space against V's moments: summed with the values of a linear function
        // of the fine nodes, both levels give the same integral of its gradient times V.
        let moment = |bricks: &Bricks, b: &[f32], scale: f64| -> [f64; 4] {
            let mut sums = [0.0; 4];
            for (at, &b) in node_places(bricks).zip(b) {
                sums[3] += f64::from(b);
                for a in 0..3 {
                    sums[a] += f64::from(b) * scale * at[a] as f64;
                }
            }
            sums
        };
        let of_fine = moment(&fine.bricks, &fine_b, 1.0);
        let of_coarse = moment(&coarse.bricks, &b, 2.0);
        // The integral of V itself, in the fine level's cells.
        let cells = 4.0_f64.powi(6);
        let exact: [f64; 3] = std::array::from_fn(|a| {
            let sum = |row: usize| f64::from(areas[row] * points.points.normals[row][a]);
            cells * (0..points.len()).map(sum).sum::<f64>()
        });
        for a in 0..3 {
            // Sums of some 10^4 terms in f32; each level is divided by its own cell.
            assert!((of_fine[a] - exact[a]).abs() < 1e-3, "{of_fine:?} {exact:?}");
            assert!((2.0 * of_coarse[a] - of_fine[a]).abs() < 1e-3, "{of_coarse:?} {of_fine:?}");
        }
        assert!(of_fine[3].abs() < 1e-3 && of_coarse[3].abs() < 1e-3);
    }

    #[test]
    fn a_trim_that_leaves_nothing_is_refused() {
        let mut made = made(&torus_points(5000, [0.0, 0.0]), 5).unwrap();
        let whole = made.mesh.clone();
        assert_eq!(trim(&mut made.mesh, &mut made.densities, Trim::Nothing), Ok(0));
        assert_eq!(made.mesh, whole);
        let nothing =
            trim(&mut made.mesh.clone(), &mut made.densities.clone(), Trim::Quantile(1.0));
        let (vertices, faces) = (whole.vertices.len(), whole.faces.len());
        assert_eq!(nothing, Err(NothingLeft { vertices, faces }));
        let gone = trim(&mut made.mesh, &mut made.densities, Trim::Quantile(0.1)).unwrap();
        // A vertex has six faces and shares each with two more.
        assert!(gone > faces / 20 && gone < faces / 2, "{gone} of {faces}");
        assert!(made.mesh.vertices.len() <= vertices - vertices / 10);
    }
}

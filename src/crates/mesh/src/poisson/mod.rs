//! Screened Poisson reconstruction (Kazhdan and Hoppe 2013) on sparse bricks.
//!
//! A function x rises by one from inside to outside, where its gradient is the points' normals, spread
//! over the area that each stands for; the surface is where x has the value that it has at the points.
//! Levels of 2^l cells along the cube of the surface, l = 4 to the depth, are solved one after another with
//! trilinear hats, the coarsest everywhere and the others near the points only, where each begins at the
//! coarser one. Inside the modules, levels count the cells of the domain, which is twice as wide.

mod band;
mod follow;
mod operator;
mod pyramid;
mod solve;
mod sorted;
#[cfg(test)]
mod tests;

use band::Band;
use follow::follow;
use operator::Operator;
use operator::Screen;
use pyramid::{COARSEST, WIDER};
use pyramid::{NodeField, Reader};
use pyramid::{Pyramid, Solved};
use rayon::prelude::*;
use sorted::SortedPoints;

use crate::bricks::Bricks;
use crate::cubes::{ExtractError, extract};
use crate::edges::Edges;
use crate::mesh::{Mesh, Vec3};
use crate::mesh::{drop_unused, keep_rows};
use crate::narrow::{floor_u32, to_f32, to_f32s};
use crate::points::{OrientedPoints, PointsError, same_lengths};
use crate::watch::{Stopped, Watch};

pub use crate::cube::Cube;
pub use pyramid::{DEEPEST, SHALLOWEST};
pub use solve::LevelReport;

/// Points that a surface takes at least.
pub const FEWEST_POINTS: usize = 1000;

/// Side of the surface's cube over the longest side of the points' box.
pub const CUBE_FACTOR: f64 = 1.1;

/// Levels between the depth and that of the density.
const DENSITY_ABOVE: u32 = 2;

/// Conjugate-gradient steps on the coarsest level.
const COARSEST_STEPS: usize = 200;

/// Conjugate-gradient steps on every other level.
const STEPS: usize = 20;

/// How a surface is sought.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoissonSettings {
    /// Level of the finest cells.
    pub depth: Depth,
    /// How much passing near the points counts against following their normals.
    pub alpha: f64,
    /// Bricks that the finest level may have, those included into which the surface is followed.
    pub bricks: usize,
}

/// Level of the finest cells: 2^level of them along the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The finest whose occupied cells hold 1.5 points on average, at most this.
    UpTo(u32),
    /// This.
    Exactly(u32),
}

impl Default for PoissonSettings {
    fn default() -> Self {
        Self { depth: Depth::UpTo(10), alpha: 4.0, bricks: usize::MAX }
    }
}

/// A surface, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconstruction {
    /// The surface, world space, with colours.
    pub mesh: Mesh,
    /// Points a cell of the finest level around each vertex; 0 where there are none.
    pub densities: Vec<f32>,
    /// The level of the finest cells.
    pub depth: u32,
    /// Length of their side, scene units.
    pub cell: f64,
    /// Area that the points stand for, scene units squared.
    pub area: f64,
    /// The function's value on the surface.
    pub iso: f64,
    /// How each level went, the coarsest first.
    pub levels: Vec<LevelReport>,
    /// True if the surface was followed further than the plan grants, and so has a border.
    pub is_cut: bool,
    /// True if the surface reaches the cube, and ends there.
    pub meets_cube: bool,
}

/// The surface of the points: at least [`FEWEST_POINTS`], finite, with normals
/// ([`checked`](crate::points::checked)).
///
/// Closed and manifold, unless it meets the cube or is cut. Its bits do not depend on the number
/// of threads.
pub fn reconstruct(
    points: &OrientedPoints,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<Reconstruction, PoissonError> {
    same_lengths(points)?;
    if points.len() < FEWEST_POINTS {
        return Err(PointsError::TooFew { found: points.len(), wanted: FEWEST_POINTS }.into());
    }
    let no_extent = PoissonError::NoExtent { points: points.len() };
    let domain = domain_of(points).ok_or(no_extent)?;
    watch.tell("points", 0.0)?;
    let points = SortedPoints::new(points, domain);
    let level = level_of(settings.depth, &points)?;
    let density = Density::new(&points, level - DENSITY_ABOVE);
    let areas = density.areas(&points);
    watch.tell("points", 1.0)?;

    let (pyramid, finest, levels) = solve(&points, &areas, level, settings, watch)?;
    let iso = level_at_points(&points, &areas, &finest, level);
    let followed = follow(&pyramid, finest, level, to_f32(iso), settings.bricks, watch)?;
    drop(pyramid);
    let place = |nodes: Vec3| domain.world(nodes, level);
    let surface = extract(&followed.bricks, &followed.values, to_f32(iso), watch)?;
    let mut mesh = surface.mesh(&followed.bricks, &place);
    let (is_cut, meets_cube) = (followed.is_cut, followed.meets_cube);
    drop(followed);
    if mesh.faces.is_empty() {
        return Err(PoissonError::NoSurface { points: points.len() });
    }
    let units: Vec<Vec3> = mesh.vertices.par_iter().map(|&vertex| domain.unit(vertex)).collect();
    let densities = density.points_a_cell(&units, level);
    watch.tell("colours", 0.0)?;
    mesh.colors = colors_at(&points, &areas, &units, level - 1);
    watch.tell("colours", 1.0)?;
    let area = areas.iter().map(|&a| f64::from(a)).sum::<f64>() * domain.side * domain.side;
    let cell = domain.side / f64::from(1_u32 << level);
    Ok(Reconstruction {
        mesh,
        densities,
        depth: level - WIDER,
        cell,
        area,
        iso,
        levels,
        is_cut,
        meets_cube,
    })
}

/// The depth that [`reconstruct`] would take for these points, so that those can be prepared for it.
pub fn depth_for(points: &OrientedPoints, depth: Depth) -> Result<u32, PoissonError> {
    let no_extent = PoissonError::NoExtent { points: points.len() };
    let domain = domain_of(points).ok_or(no_extent)?;
    Ok(level_of(depth, &SortedPoints::new(points, domain))? - WIDER)
}

/// The cube of the equations.
fn domain_of(points: &OrientedPoints) -> Option<Cube> {
    Cube::around(&points.places, CUBE_FACTOR * f64::from(1_u32 << WIDER))
}

/// The finest level of the domain.
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

/// The levels below the finest, the finest, and how each went.
type Solution = (Pyramid, Solved, Vec<LevelReport>);

fn solve(
    points: &SortedPoints,
    areas: &[f32],
    finest: u32,
    settings: &PoissonSettings,
    watch: &Watch<'_>,
) -> Result<Solution, PoissonError> {
    let mut band = band_of(points, finest);
    if band.bricks.len() > settings.bricks {
        let (bricks, granted) = (band.bricks.len(), settings.bricks);
        let mut coarser = (COARSEST..finest).rev();
        let fits = coarser.find(|&level| band_of(points, level).bricks.len() <= granted);
        let (depth, fits) = (finest - WIDER, fits.unwrap_or(COARSEST) - WIDER);
        return Err(PoissonError::TooManyBricks { depth, bricks, granted, fits });
    }
    watch.tell("equations", 0.0)?;
    let mut b = operator::finest(points, areas, &band, finest);
    // From the finest level to the coarsest, since each right side comes from the finer one's.
    let mut levels = Vec::new();
    for level in (COARSEST..finest).rev() {
        watch.check()?;
        let coarse = band_of(points, level);
        let coarse_b = operator::restricted(&coarse, &band.bricks, &b);
        levels.push((
            level + 1,
            std::mem::replace(&mut band, coarse),
            std::mem::replace(&mut b, coarse_b),
        ));
    }
    levels.push((COARSEST, band, b));
    watch.tell("equations", 1.0)?;

    let mut pyramid = Pyramid::default();
    let mut reports: Vec<LevelReport> = Vec::new();
    while let Some((level, band, mut b)) = levels.pop() {
        watch.tell("solve", f64::from(level - COARSEST) / f64::from(finest - COARSEST + 1))?;
        let screen = Screen::new(points, areas, &band, level, settings.alpha);
        let mut x = pyramid.start(level, &band);
        let steps = if level == COARSEST { COARSEST_STEPS } else { STEPS };
        let operator = Operator { level, band: &band, screen: &screen };
        reports.push(operator.solve(&mut x, &mut b, steps, watch)?);
        pyramid.levels.push(Solved { bricks: band.bricks, x });
    }
    watch.tell("solve", 1.0)?;
    let no_levels = Solved { bricks: Bricks::default(), x: Vec::new() };
    let solved = pyramid.levels.pop().unwrap_or(no_levels);
    Ok((pyramid, solved, reports))
}

fn band_of(points: &SortedPoints, level: u32) -> Band {
    if level == COARSEST { Band::dense(points, level) } else { Band::near(points, level) }
}

/// Mean of the function at the points, by area.
fn level_at_points(points: &SortedPoints, areas: &[f32], finest: &Solved, level: u32) -> f64 {
    let parts: Vec<[f64; 2]> = points
        .points
        .places
        .par_chunks(POINTS_A_PART)
        .zip(areas.par_chunks(POINTS_A_PART))
        .map(|(places, areas)| {
            let mut reader = Reader::new(level, &finest.bricks, [finest.x.as_slice()]);
            places.iter().zip(areas).fold([0.0; 2], |[sum, whole], (&place, &area)| {
                let [x] = reader.at(points.cube.unit(place));
                [sum + f64::from(area) * x, whole + f64::from(area)]
            })
        })
        .collect();
    let [sum, whole] = parts.iter().fold([0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
    sum / whole
}

// What can keep a surface from being made.

/// Why there is no surface.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PoissonError {
    /// The points cannot be a surface.
    #[error(transparent)]
    Points(#[from] PointsError),
    /// All points at one place.
    #[error("the {points} points lie at one place. Check the model's places")]
    NoExtent {
        /// How many there are.
        points: usize,
    },
    /// A depth that is not offered.
    #[error("a depth of {depth} is not offered. Give --poisson-depth from 4 to {deepest}")]
    Depth {
        /// What was asked for.
        depth: u32,
        /// The largest.
        deepest: u32,
    },
    /// A level whose equations were not solved.
    #[error(
        "level {level} has a residual of {residual:.1e} after {steps} steps, and .001 is needed. Lower --poisson-depth, or look for points far from the others"
    )]
    NotConverged {
        /// The level.
        level: u32,
        /// Steps taken.
        steps: usize,
        /// |b - A x| / |b|.
        residual: f64,
    },
    /// The points take more bricks than the plan grants.
    #[error(
        "depth {depth} takes {bricks} bricks and the plan grants {granted}. Use --poisson-depth {fits}"
    )]
    TooManyBricks {
        /// The depth.
        depth: u32,
        /// Bricks of its level.
        bricks: usize,
        /// How many the plan grants.
        granted: usize,
        /// The deepest that would fit.
        fits: u32,
    },
    /// No place where the solution passes its level.
    #[error("no surface passes the {points} points. Check their normals")]
    NoSurface {
        /// How many there are.
        points: usize,
    },
    /// The surface could not be written down.
    #[error(transparent)]
    Extract(#[from] ExtractError),
    /// The caller's wish.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

// Colours of a surface's vertices: those of the points around, by area.

/// (sum a phi colour) / (sum a phi) on level `finest`, and where no point is near, on the next coarser one
/// that has some.
fn colors_at(points: &SortedPoints, areas: &[f32], units: &[Vec3], finest: u32) -> Vec<[f32; 3]> {
    let mut colors: Vec<Option<[f32; 3]>> = vec![None; units.len()];
    for level in (0..=finest).rev() {
        if colors.par_iter().all(Option::is_some) {
            break;
        }
        // Areas are shares of the cube's face; a cell's face has area 1 here.
        let scale = 4.0_f64.powi(level.cast_signed());
        let field = NodeField::<4>::of_points(points, level, |row| {
            let area = f64::from(areas[row]) * scale;
            let [r, g, b] = points.points.colors[row].map(f64::from);
            [area * r, area * g, area * b, area]
        });
        colors.par_chunks_mut(POINTS_A_PART).zip(units.par_chunks(POINTS_A_PART)).for_each(
            |(colors, units)| {
                let mut reader = field.reader();
                for (color, &unit) in colors.iter_mut().zip(units) {
                    if color.is_none() {
                        let [r, g, b, area] = reader.at(unit);
                        *color = (area > LEAST_AREA)
                            .then(|| to_f32s([r, g, b].map(|c| (c / area).clamp(0.0, 1.0))));
                    }
                }
            },
        );
    }
    colors.into_iter().map(Option::unwrap_or_default).collect()
}

/// Area of points around a vertex, in cell faces, below which rounding could show.
const LEAST_AREA: f64 = 1e-4;

// How dense the points lie, and the area that each stands for.
//
// `c_j = sum over points of phi_j(p)`. Over a surface with rho points an area,
// `sum_j phi_j(p) c_j = rho h² 2/3` on average: the hats' products integrate to h² in the surface, and
// to 2/3 across it, averaged over how the surface lies between two nodes.

/// Mean of the sum of the squares of the hats at a place, one axis.
const ACROSS: f64 = 2.0 / 3.0;

/// Points a part of a parallel loop over points takes.
const POINTS_A_PART: usize = 4096;

/// The points' density.
struct Density {
    field: NodeField<1>,
}

impl Density {
    /// Counts the points at the nodes of a level.
    fn new(points: &SortedPoints, level: u32) -> Self {
        Self { field: NodeField::of_points(points, level, |_| [1.0]) }
    }

    /// Area that each point stands for, in units of the cube's face: 1 / rho.
    fn areas(&self, points: &SortedPoints) -> Vec<f32> {
        let cells_a_face = 4.0_f64.powi(self.field.level().cast_signed());
        let mut areas = vec![0.0; points.len()];
        areas
            .par_chunks_mut(POINTS_A_PART)
            .zip(points.points.places.par_chunks(POINTS_A_PART))
            .for_each(|(areas, places)| {
                let mut reader = self.field.reader();
                for (area, &place) in areas.iter_mut().zip(places) {
                    let [density] = reader.at(points.cube.unit(place));
                    *area = to_f32(ACROSS / (density * cells_a_face));
                }
            });
        areas
    }

    /// Points a cell of level `depth` that the surface crosses squarely: rho h², at places in units of
    /// the cube.
    fn points_a_cell(&self, units: &[[f64; 3]], depth: u32) -> Vec<f32> {
        let smaller = 4.0_f64.powi(self.field.level().cast_signed() - depth.cast_signed());
        let mut found = vec![0.0; units.len()];
        found.par_chunks_mut(POINTS_A_PART).zip(units.par_chunks(POINTS_A_PART)).for_each(
            |(found, units)| {
                let mut reader = self.field.reader();
                for (found, &unit) in found.iter_mut().zip(units) {
                    let [density] = reader.at(unit);
                    *found = to_f32(density / ACROSS * smaller);
                }
            },
        );
        found
    }
}

// Cutting off what no points support.

/// Below which density vertices go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trim {
    /// Nothing goes: the surface stays closed.
    Nothing,
    /// This share of the vertices goes, those of the lowest density; 0 to 1.
    Quantile(f64),
    /// Vertices with fewer points a cell go.
    PointsACell(f64),
}

/// Trimming left nothing.
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

/// Drops the vertices below the trim's density, `densities` a vertex, and faces that touch them; and then
/// vertices without a face. Returns how many faces went.
pub fn trim(mesh: &mut Mesh, densities: &mut Vec<f32>, trim: Trim) -> Result<usize, NothingLeft> {
    let least = match trim {
        Trim::Nothing => return Ok(0),
        Trim::PointsACell(least) => least,
        Trim::Quantile(share) => quantile(densities, share),
    };
    let goes: Vec<bool> = densities.iter().map(|&density| f64::from(density) < least).collect();
    cut_off(mesh, densities, &goes)
}

/// Drops the vertices that `goes` names, and faces that touch them; and then vertices without a face. Returns
/// how many faces went. `densities` and `goes` have a value a vertex.
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

/// The value below which this share of the values lies.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f32::total_cmp);
    let below = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil();
    let index = floor_u32(below) as usize;
    sorted.get(index).map_or(f64::INFINITY, |&value| f64::from(value))
}

/// Edges of one face only: none in a closed surface.
pub fn open_edges(mesh: &Mesh) -> usize {
    Edges::of(&mesh.faces).groups().filter(|sides| sides.len() == 1).count()
}
